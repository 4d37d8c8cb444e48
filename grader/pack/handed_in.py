"""`pack`: what will be graded, told, and the file to hand in, written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from grader.files import write_whole, zipped
from grader.judge.output import clean
from grader.judge.snapshot import PACKAGE, Snapshot
from grader.pack.manifest import Manifest
from grader.pack.sources import State
from grader.rubric import Rubric

STYLES = {State.READY: "green", State.PARTLY: "yellow", State.TODO: "yellow", State.MISSING: "red"}
MOST_NAMES = 12  # of files that are listed


def contents_of(snapshot: Snapshot) -> dict[str, bytes]:
    """The files of a snapshot by their names in it."""
    paths = sorted(path for path in snapshot.folder.rglob("*.py") if path.is_file())
    return {path.relative_to(snapshot.folder).as_posix(): path.read_bytes() for path in paths}


def hand_in(folder: Path, snapshot: Snapshot, rubric: Rubric, out: Path, console: Console) -> bool | None:
    """Show the manifest and write the archive. Whether all can be graded; None, and nothing written: nothing can.

    folder: of which the snapshot is. It may have a folder `assignment`, which is then all that is graded.
    """
    contents = contents_of(snapshot)
    manifest = Manifest.of(snapshot, contents, rubric.problems)
    if not any(row.file for row in manifest.rows):
        return None
    show(manifest, out, snapshot.source, console)
    beside = [f"{problem}.py" for problem in rubric.problems if (folder / f"{problem}.py").is_file()]
    if beside and snapshot.source != folder.resolve():
        _say(console, f"Only its folder {PACKAGE} is graded, and not {_listed(beside)} beside it.", "yellow")
    archive = zipped({f"{PACKAGE}/{name}": content for name, content in contents.items()})
    write_whole(out, archive)
    _say(console, f"{clean(str(out))}: {len(archive):,} bytes, {len(contents)} Python file{'s' * (len(contents) > 1)}")
    _say(console, f"SHA-256: {hashlib.sha256(archive).hexdigest()}")
    _say(console, f"content: {snapshot.sha256} (tree_sha256 in results)")
    lost = [name for row in manifest.rows for name in row.earns_nothing]
    if lost:
        _say(console, f"Earns nothing as it is: {', '.join(lost)}.", "yellow")
    incomplete = [name for row in manifest.rows for name in row.incomplete]
    if incomplete:
        _say(console, f"Incomplete: {', '.join(incomplete)}. Checks that need the rest earn nothing.", "yellow")
    return not (lost or incomplete)


def show(manifest: Manifest, out: Path, source: Path, console: Console) -> None:
    """One line for each function, faults below their problem, and the other files."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for row in manifest.rows:
        if row.faults or row.file != f"{row.problem}.py":
            reason = "cannot be imported" if row.faults else row.functions[0].words
            table.add_row(row.problem, "", Text(clean(reason), style="red"))
            continue
        for index, function in enumerate(row.functions):
            words = Text(clean(function.words), style=STYLES[function.state])
            table.add_row("" if index else row.problem, function.name, words)
    console.print(table)
    for fault in dict.fromkeys(fault for row in manifest.rows for fault in row.faults):  # a shared module's once
        _say(console, fault, "red")
    behind = [name for name in manifest.behind if not _is(name, out, source)]
    for title, names in (("Comes along", manifest.along), ("Stays behind", behind)):
        if names:
            _say(console, f"{title}: {_listed(names)}.")
    console.print()


def _is(name: str, out: Path, source: Path) -> bool:
    """Whether a name on the list is the archive that an earlier run has written."""
    return source / name.rpartition(" (")[0] == out.resolve()


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return clean(", ".join(names[:MOST_NAMES])) + more


def _say(console: Console, sentence: str, style: str = "") -> None:
    console.print(Text(clean(sentence), style=style))
