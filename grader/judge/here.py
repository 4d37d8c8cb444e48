"""`pytest --here`: the submission runs in pytest's own process, where breakpoints and prints work.

No isolation and no verdicts: this is for finding a fault, not for judging one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import pytest

from grader.judge import replies
from grader.judge.footprint import Footprint
from grader.judge.submission import CheckProcess
from grader.judge.verdict import Outcome, Verdict
from grader.sandbox.levels import RUNNER_FOLDER


def reexecute(config: pytest.Config) -> None:
    """Start pytest again with the interpreter's environment, which must be set before triton is imported."""
    if capture := config.pluginmanager.getplugin("capturemanager"):
        capture.stop_global_capturing()  # or the new process has no keyboard for its breakpoints
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", "pytest", "-s", *sys.argv[1:]], environment)


class HereProcess(CheckProcess):
    """Carries out the runner's verbs in this process; what the student's code raises goes straight to pytest."""

    def load(self) -> None:
        """Import the module here, once."""
        if self.functions:
            return
        sys.path.insert(0, str(RUNNER_FOLDER))
        try:
            from verbs import Child  # type: ignore[import-not-found]

            self._verbs = Child(self.servers.device)
        finally:
            sys.path.remove(str(RUNNER_FOLDER))
        reply, _ = self._verbs.load({"folder": str(self.folder), "module": self.module}, bytearray())
        self.functions = tuple(reply["names"])

    def request(self, header: dict[str, object], parts: Sequence[memoryview] = ()) -> tuple[replies.Reply, bytearray]:
        """Call the function here."""
        reply, returned = self._verbs.call(header, bytearray(b"".join(parts)))
        return replies.parse({"number": 1, **reply}), bytearray(b"".join(returned))

    def malformed(self, what: str) -> Outcome:
        """A reply that is none: here that can only be a mistake of ours."""
        return Outcome(Verdict.GRADER_ERROR, f"the runner's verbs gave {what}")

    def close(self) -> None:
        """Nothing to end."""

    def renew(self) -> None:
        """There is no other process."""

    def watched(self) -> AbstractContextManager[Footprint]:
        """Nobody looks: the memory of this process is the judge's as well."""
        return nullcontext(Footprint())
