"""A process that judges one submission for the `local` engine: `python -m grader.batch.supervisor`.

A line of JSON comes in on standard input: the job. Lines of JSON go out on standard output: `{"done": 3, "of": 163,
"check": "gelu.sizes"}` while it works, and at the end `{"result": {...}}`, or `{"error": "..."}` where nothing could be
judged. Standard input stays open for as long as its engine lives: at its end the supervisor ends itself, and with it
all that it has started.
"""

from __future__ import annotations

import base64
import gc
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

gc.disable()  # importing torch creates objects by the million, and none of them is garbage

if TYPE_CHECKING:
    from grader.judge.plugin import CaseResult
    from grader.result import Result


class Words:
    """What goes out: the checks' progress as a listener, and the end."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.order: list[str] = []

    def say(self, **words: object) -> None:
        print(json.dumps(words, allow_nan=False), file=self.stream, flush=True)

    def planned(self, checks: Sequence[str]) -> None:
        self.order += [check for check in checks if check not in self.order]

    def started(self, check: str) -> None:
        at = self.order.index(check) if check in self.order else 0
        self.say(done=at, of=len(self.order), check=check)

    def finished(self, case: CaseResult) -> None: ...


def main() -> None:
    """Read the job, judge, answer."""
    words = Words(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # whatever prints, prints elsewhere
    job = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with, args=(sys.stdin,), daemon=True).start()
    try:
        words.say(result=json.loads(_judged(job, words).model_dump_json(by_alias=True)))
    except Exception as error:  # the boundary: whatever it is, it is ours
        import traceback

        traceback.print_exc()
        words.say(error=f"{type(error).__name__}: {error}")


def _end_with(stream: TextIO) -> None:
    """End this process and its group once nobody writes to a stream any more."""
    stream.read()
    os.killpg(0, signal.SIGKILL)


def _judged(job: dict[str, Any], words: Words) -> Result:
    """Raises `ValueError` where what arrived, or this installation, is not what the driver means."""
    from grader.doctor import Machine, can_run_kernels, can_run_ranks
    from grader.judge.identity import checks_sha256
    from grader.judge.servers import Servers
    from grader.judge.snapshot import Snapshot
    from grader.rubric import Rubric
    from grader.sandbox.bubblewrap import Bubblewrap
    from grader.sandbox.levels import Unconfined

    if (ours := checks_sha256()) != job["checks_sha256"]:
        raise ValueError(f"the checks here are {ours[:12]}, and the batch's are {job['checks_sha256'][:12]}")
    machine, rubric = Machine.here(), Rubric.read()
    with tempfile.TemporaryDirectory(prefix="tree-") as folder:
        _write(Path(folder), job["files"])
        snapshot = Snapshot.of(Path(folder))
        if snapshot.sha256 != job["tree_sha256"]:
            raise ValueError(f"the tree here is {snapshot.sha256[:12]}, and the batch's is {job['tree_sha256'][:12]}")
        servers = Servers.on(machine, Bubblewrap(snapshot.folder) if job["confined"] else Unconfined())
        try:
            if not (can_run_kernels(machine) and can_run_ranks(machine)):
                servers.start()  # imports torch while this process does
            from grader.judge.plugin import Judge, Obstacles
            from grader.judge.run import Selection, run_checks

            gc.enable()
            judge = Judge(snapshot, servers, rubric, None, Obstacles.on(machine), staff=True, options="")
            checks = Selection(tuple(job["problems"]), hidden=True).checks(rubric)
            return run_checks(judge, checks, words, job["submission"])
        finally:
            servers.close()
            snapshot.remove()


def _write(folder: Path, files: dict[str, str]) -> None:
    """The tree as the package of a submission."""
    from grader.judge.snapshot import PACKAGE

    for name, content in files.items():
        path = folder / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(content))


if __name__ == "__main__":
    main()
