"""Load a submission from its files, under the name `assignment`, and from nowhere else.

A finder of our own serves `assignment` and what lies below it; no search path is touched, so a
`random.py` or `torch.py` in a submission shadows nothing. Source files only: stale or forged
bytecode is never read.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

PACKAGE = "assignment"


class SourceOnlyLoader(importlib.machinery.SourceFileLoader):
    """Compiles the source at every import and ignores `__pycache__`."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class SubmissionFinder(importlib.abc.MetaPathFinder):
    """Finds `assignment` in one folder and its modules below it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, below = fullname.partition(".")
        if package != PACKAGE:
            return None
        place = self.folder.joinpath(*below.split(".")) if below else self.folder
        if (source := place / "__init__.py").is_file():
            return _from_file(fullname, source, [str(place)])
        if below and (source := place.with_name(f"{place.name}.py")).is_file():
            return _from_file(fullname, source)
        if not place.is_dir():
            return None
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(place)]
        return spec


def _from_file(
    fullname: str, source: Path, search_below: list[str] | None = None
) -> importlib.machinery.ModuleSpec | None:
    loader = SourceOnlyLoader(fullname, str(source))
    return importlib.util.spec_from_file_location(
        fullname, source, loader=loader, submodule_search_locations=search_below
    )


def install(folder: Path) -> None:
    """From now on `import assignment` means the files in `folder`."""
    forget()
    sys.meta_path.insert(0, SubmissionFinder(folder))


def forget() -> None:
    """Undo `install`: drop the finder and every module that it loaded."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, SubmissionFinder)]
    for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
        del sys.modules[name]
