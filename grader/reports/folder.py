"""A folder of reports, in which an earlier report's files are replaced and those that are left over are removed.

`LIST` names the files that are ours: a file is in it before it is on the disk, so whatever ended a report, the next one
knows. Nothing else in the folder is touched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from grader.files import write_whole, written_whole

LIST = ".reports"
OURS = re.compile(r"([a-z-]+/)?[a-z0-9_-]+\.[a-z]+")  # no way out of the folder


class ReportFolder:
    """The files of one report. What is made whole or not at all is each file, not the folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        listed = path / LIST
        names = listed.read_text(errors="replace").splitlines() if listed.is_file() else []
        self.earlier = {name for name in names if OURS.fullmatch(name)}
        self.names: set[str] = set()

    def write(self, name: str, content: bytes) -> None:
        """Write one file whole."""
        write_whole(self._noted(name), content)

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write piece by piece, which is there at the end or not at all."""
        with written_whole(self._noted(name)) as file:
            yield file

    def finish(self) -> None:
        """Remove what an earlier report wrote and this one did not."""
        for name in sorted(self.earlier - self.names):
            (self.path / name).unlink(missing_ok=True)
        write_whole(self.path / LIST, "".join(f"{name}\n" for name in sorted(self.names)).encode())

    def _noted(self, name: str) -> Path:
        if not OURS.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a report's file")
        self.names.add(name)
        if name not in self.earlier:
            with (self.path / LIST).open("a") as listed:
                listed.write(f"{name}\n")
                listed.flush()
                os.fsync(listed.fileno())
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        return path
