"""Files that are there whole or not at all, and archives whose bytes say nothing but what is in them."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, in the place of one that is there."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.chmod(file.name, 0o644)
    try:
        os.replace(file.name, path)
    except OSError:
        os.unlink(file.name)
        raise


def zipped(contents: Mapping[str, bytes]) -> bytes:
    """A zip archive of files by name: the same bytes on every machine and day.

    Nothing is compressed, since libraries compress differently; times, order and rights are fixed.
    """
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name)  # of 1980-01-01, the earliest that there is
            entry.create_system = 3  # Unix, whose rights follow
            entry.external_attr = 0o100644 << 16
            file.writestr(entry, contents[name])
    return archive.getvalue()
