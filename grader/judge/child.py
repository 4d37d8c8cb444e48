"""One check's process in the runner: one message out, one reply back, deadlines kept by killing."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Sequence

from grader.judge import replies
from grader.judge.spawned import Runner
from grader.judge.verdict import Outcome, Verdict, Where
from grader.runner import protocol

PAYLOAD_FLOOR_BYTES = 64 << 20  # a reply may always be this large, and four times what was sent
LOOK_EVERY_S = 1.0  # while waiting, whether the process is still there
CONNECTION_LOST = 74  # the runner's own exit status where it can no longer speak (EX_IOERR)


def payload_limit(parts: Sequence[memoryview]) -> int:
    """Bytes that the reply to a request may bring: its storages again, and the results."""
    return max(PAYLOAD_FLOOR_BYTES, 4 * sum(part.nbytes for part in parts))


# How faulthandler begins: of a fatal signal, or asked by SIGUSR1.
STACK = re.compile(r"^(?:Fatal Python error: .*|(?:Current thread|Stack) .*)$", re.MULTILINE)
STACK_S = 0.2  # for a process to report its stack


class RunnerChild:
    """One check's process. After a crash or a timeout it is dead, and every request says the same again."""

    def __init__(self, server: Runner, modules: Sequence[str] = ()) -> None:
        self.server, self.line = server, server.open(modules)
        self.requests = 0
        self.ended: dict[str, int] | None = None  # how, by the server's word
        self.failure: Outcome | None = None
        self.closed = False
        self.loading = False  # it has been told which module it is for
        self.functions: tuple[str, ...] = ()  # what the module offers that it has loaded
        self.folder = "/"  # of the submission, once it is loaded
        self.compiled_s = 0.0  # by its own word

    def request(
        self, header: dict[str, object], parts: Sequence[memoryview] = (), limit_s: float = 20.0, of_s: float = 20.0
    ) -> tuple[replies.Reply, bytearray]:
        """Send one message and wait for its reply, for `limit_s` of the `of_s` that the child has in all.

        Raises `Outcome` (crash or timeout) and ends the child.
        """
        deadline = time.monotonic() + limit_s
        self.ask(header, parts, deadline, of_s)
        return self.hear(payload_limit(parts), deadline, of_s)

    def ask(self, header: dict[str, object], parts: Sequence[memoryview], deadline: float, of_s: float) -> None:
        """Send one message that is due a reply. Raises as `request` does."""
        if self.failure:
            raise self.failure.with_traceback(None)  # or it would grow, and keep each case's tensors alive
        self.requests += 1
        self.folder = str(header.get("folder", self.folder))
        try:
            self._refuse_early_words()
            protocol.send(self.line.conversation, {"number": self.requests, **header}, parts, deadline)
            return
        except protocol.ConversationError as error:
            outcome = self._outcome_of(error, of_s)
        raise outcome  # from here, or its context would keep the payload alive

    def tell(self, header: dict[str, object], parts: Sequence[memoryview], deadline: float, of_s: float) -> None:
        """Send one message on the way, that belongs to the last one asked. Raises as `request` does."""
        try:
            protocol.send(self.line.conversation, header, parts, deadline)
            return
        except protocol.ConversationError as error:
            outcome = self._outcome_of(error, of_s)
        raise outcome

    def hear(self, limit_bytes: int, deadline: float, of_s: float) -> tuple[replies.Reply, bytearray]:
        """The next message, about what was asked last, with a payload of at most so many bytes. Raises as `request`."""
        try:
            self._await_words(deadline)
            header, payload = protocol.receive(self.line.conversation, limit_bytes, deadline)
            reply = replies.parse(header)
            if reply.number != self.requests:
                raise protocol.Malformed("a reply to another request")
            self._note_compiled(reply)
            return reply, payload
        except protocol.ConversationError as error:
            outcome = self._outcome_of(error, of_s)
        raise outcome

    def _note_compiled(self, reply: replies.Reply) -> None:
        if isinstance(reply, (replies.Answered, replies.Timed)) and reply.compiled_s > self.compiled_s:
            self.server.compiled_s += reply.compiled_s - self.compiled_s
            self.compiled_s = reply.compiled_s

    def _outcome_of(self, error: protocol.ConversationError, of_s: float) -> Outcome:
        """End the child, which can no longer be spoken with: what that means."""
        if isinstance(error, protocol.Late):
            return self.overdue(of_s)
        if isinstance(error, protocol.Closed):
            return self._fail(self._obituary())
        return self.malformed(str(error))

    def malformed(self, what: str) -> Outcome:
        """The verdict on a reply that is none, to be raised."""
        return self._fail(Outcome(
            Verdict.CRASH, f"the process that runs your code sent {what}",
            "something wrote to the grader's connection, or overwrote memory that it uses",
            "leave file descriptors alone that your code did not open",
        ))  # fmt: skip

    def end(self) -> None:
        """Kill the child and everything that it has started."""
        if self.closed:
            return
        self.closed = True
        self.line.conversation.close()
        self.server.end(self.line.pid)

    def forget(self) -> None:
        """From now on another check is served: what was printed is that of the one before."""
        self.line.output.forget()
        self.line.errors.forget()

    def printed(self) -> str:
        """What the submission has written to standard output and standard error, without reports of its stack."""
        patience_s = 0.2 if self.closed else 0.02
        errors = STACK.split(self.line.errors.text(patience_s))[0]
        return "\n".join(text for text in (self.line.output.text(patience_s), errors) if text.strip())

    def look(self) -> None:
        """Raise as `request` does if the process has ended, though somebody else still holds its connection."""
        self.ended = self.server.how_ended(self.line.pid, 0)
        if self.ended:
            raise self._fail(self._obituary())

    def overdue(self, of_s: float) -> Outcome:
        """End the child, whose time is over: the verdict, to be raised."""
        return self._fail(self._overdue(of_s))

    def attend(self, seconds: float) -> None:
        """Look for the child's next words without sleeping, for so long. Raises as `request` does."""
        until = time.monotonic() + seconds
        try:
            while not self._peek(0) and time.monotonic() < until:
                pass
            return
        except protocol.Closed as error:
            outcome = self._outcome_of(error, seconds)
        raise outcome

    def _refuse_early_words(self) -> None:
        if self._peek(0):
            raise protocol.Malformed("a reply to a request that was not made yet")

    def _await_words(self, deadline: float) -> None:
        """Wait for the first byte. A process that has left may have left its connection to another one: look for it."""
        while not self._peek(max(min(LOOK_EVERY_S, deadline - time.monotonic()), 0)):
            if time.monotonic() >= deadline:
                raise protocol.Late("no answer in time")
            self.ended = self.server.how_ended(self.line.pid, 0)
            if self.ended:
                raise protocol.Closed("the process has ended")

    def _peek(self, seconds: float) -> bool:
        """Whether the child says something within `seconds`. Raises `Closed` at the end of its connection."""
        self.line.conversation.settimeout(seconds)
        try:
            if self.line.conversation.recv(1, socket.MSG_PEEK):
                return True
        except (BlockingIOError, TimeoutError):
            return False
        except OSError as error:
            raise protocol.Closed(str(error)) from None
        raise protocol.Closed("the process has ended")

    def _fail(self, outcome: Outcome) -> Outcome:
        self.failure = outcome
        self.end()
        outcome.printed = self.printed()
        return outcome

    def _overdue(self, of_s: float) -> Outcome:
        """The verdict on a process that does not answer, with the line where it is, by its own word."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it is gone, or runs a set-user-id program
            if self.line.process:
                os.kill(self.line.process, signal.SIGUSR1)
                time.sleep(STACK_S)
        where = self._last_line()
        return Outcome(
            Verdict.TIMEOUT,
            f"no answer within the check's {of_s:.0f} s" + (f"; it was at {_place(where)}" if where else ""),
            hint="look for a loop whose condition never turns false; on a CPU use few programs with large tiles",
            where=where,
        )

    def _last_line(self) -> Where | None:
        """The innermost line of the submission in the last report of the child's stack."""
        report = STACK.split(self.line.errors.text())[-1]
        for path, line in re.findall(r'File "(.{1,300}?)", line (\d{1,7})\b', report):
            if path.startswith(f"{self.folder}/"):
                return Where(f"assignment/{path.removeprefix(self.folder + '/')}", int(line))
        return None

    def _excessive(self, what: str) -> Outcome:
        """The verdict on a process that the watchdog has killed."""
        limits = self.server.limits
        if what == "memory":
            return Outcome(
                Verdict.OUT_OF_MEMORY,
                f"your code took more than the {limits.memory_bytes / 2**30:.0f} GiB of memory that it may have",
                hint="allocate the answer and little else: print the shapes before you allocate",
            )
        if what == "files":
            return Outcome(
                Verdict.CRASH, f"your code made more than {limits.files} files", hint="write none: return the tensor",
            )  # fmt: skip
        return Outcome(
            Verdict.CRASH, f"your code had more than {limits.processes} processes and threads",
            hint="start none: a kernel needs no process of its own",
        )  # fmt: skip

    def _obituary(self) -> Outcome:
        """The verdict on a process that went away, with the words for how it did."""
        if self.server.excess:
            return self._excessive(self.server.excess)
        ended = self.ended or self.server.how_ended(self.line.pid, 2.0) or {}
        if "code" in ended and ended["code"] != CONNECTION_LOST:
            return Outcome(
                Verdict.CRASH, f"your code ended the process with exit status {ended['code']}",
                "os._exit, or something that calls it",
                "return the answer instead; a function must not leave",
            )  # fmt: skip
        number = ended.get("signal", 0)
        name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
        if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT):
            where = self._last_line()
            return Outcome(
                Verdict.CRASH, f"your code crashed the process ({name})" + (f" at {_place(where)}" if where else ""),
                "it read or wrote memory that does not belong to any tensor",
                "mask every load and store: an index must be smaller than the size it runs over",
                detail=self.line.errors.text()[-4000:], where=where,
            )  # fmt: skip
        return Outcome(
            Verdict.CRASH, f"the process that ran your code went away ({name if number else 'for an unknown reason'})",
            "it was killed, or closed the grader's connection",
            "do not signal processes or close descriptors that your code did not open",
        )  # fmt: skip


def _place(where: Where) -> str:
    return f"line {where.line} of {where.file}"
