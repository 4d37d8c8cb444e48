"""Files that are there whole or not at all, and archives whose bytes say nothing but what is in them."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, in the place of one that is there."""
    with written_whole(path) as file:
        file.write(content)


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write piece by piece: it takes its place at the end, or not at all."""
    file = tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False)  # noqa: SIM115
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except BaseException:
        os.unlink(file.name)
        raise


def zipped(contents: Mapping[str, bytes], programs: Collection[str] = ()) -> bytes:
    """A zip archive of files by name: the same bytes on every machine and day.

    Nothing is compressed, since libraries compress differently; times, order and rights are fixed. `programs` are
    those of the files that can be run.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name)  # of 1980-01-01, the earliest that there is
            entry.create_system = 3  # Unix, whose rights follow
            entry.external_attr = (0o100755 if name in programs else 0o100644) << 16
            file.writestr(entry, contents[name])
    return archive.getvalue()
