"""A submission as checks see it: `submission.softmax(x)` calls the student's function in the runner.

What comes back is a `Result`: a tensor with the evidence of its call. Everything that ends a case early
(a crash, an exception, an input changed in place) is raised as an `Outcome`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from grader.closest import closest
from grader.inspect.unwatched import Way, known_ways
from grader.judge import replies
from grader.judge.borrowed import Borrowed, borrowed
from grader.judge.child import RunnerChild, payload_limit
from grader.judge.footprint import Footprint, of_gpu, of_processes
from grader.judge.output import clean
from grader.judge.parcel import Parcel
from grader.judge.replies import Access, Answered, Entry, LargeEntry, Loaded, Operator, OtherEntry, Raised, TensorEntry
from grader.judge.server import RunnerBroken
from grader.judge.servers import Servers
from grader.judge.spawned import Runner
from grader.judge.verdict import Outcome, Verdict
from grader.judge.wording import changed_outcome, raised_outcome, too_large_outcome
from grader.runner.protocol import Malformed
from grader.sandbox.limits import taken_bytes

Option = str | float | bool | None  # an argument that is no tensor; travels as JSON


@dataclass
class Result:
    """One value that came back, with the evidence of its call."""

    name: str  # "the answer", "the gradient of x"
    entry: Entry
    tensor: torch.Tensor | None
    accesses: tuple[Access, ...] = ()  # what the runner's watch saw: advice
    device: str = "cpu"  # where the inputs were
    launches: int | None = None  # of kernels, so far in this check: advice

    def plain(self) -> torch.Tensor:
        """The tensor; raises `Outcome` where it is none."""
        if self.tensor is not None:
            return self.tensor
        if isinstance(self.entry, OtherEntry):
            raise Outcome(
                Verdict.FAIL, f"{self.name} is not a plain tensor: got {clean(self.entry.what, 200)}",
                hint="return one torch.Tensor, nothing derived from it and nothing around it", cause="not_a_tensor",
            )  # fmt: skip
        if "gradient" not in self.name:
            raise Outcome(
                Verdict.FAIL, "the function returned None", hint="return the tensor that the kernel has written",
                cause="nothing_returned",
            )  # fmt: skip
        raise Outcome(
            Verdict.FAIL, f"{self.name} is missing (None)", cause="nothing_returned",
            hint="make the function differentiable: torch.autograd.Function with a backward, for an empty input, too",
        )  # fmt: skip


@dataclass
class CheckProcess:
    """The runner's child that serves one check: opened at its first call, with one time limit for all its cases."""

    servers: Servers
    folder: Path
    module: str
    limit_s: float
    child: RunnerChild | None = None
    refusal: Outcome | None = None  # why it is not even started
    functions: tuple[str, ...] = ()  # what the module offers
    called: set[str] = field(default_factory=set)  # of them
    names: dict[int, str] = field(default_factory=dict)  # of inputs, by the address of their storage
    stray: Access | None = None  # the first access outside every tensor in a call that went well: advice
    operators: dict[str, Operator] = field(default_factory=dict)  # of PyTorch that ran in its calls: advice
    launches: int | None = None  # of kernels in its calls: advice
    unseen: dict[replies.Unseen, replies.Place | None] = field(
        default_factory=dict
    )  # numbers that came from elsewhere: advice
    spent_s: float = 0.0
    when_forked: int = 0  # bytes that its child had taken before it loaded anything
    fresh: bool = True  # nothing of this check has been called yet
    told: bool = False  # what it wrote

    def load(self) -> None:
        """Open the child and import the module. Raises `Outcome`, each time again, if that fails."""
        if self.refusal:
            raise self.refusal.with_traceback(None)
        self.start()
        assert self.child
        if not self.child.loading:
            self.child.loading = True
            folder = self.servers.sandbox.seen_at(self.folder)
            message: dict[str, object] = {"verb": "load", "folder": folder, "module": self.module}
            reply, _ = self.request(message)
            if isinstance(reply, Loaded):
                self.functions = self.child.functions = tuple(reply.names)
            elif isinstance(reply, Raised):
                self.child.failure = self._load_failure(reply)
            else:
                self.child.malformed("an answer where nothing was asked")
        elif self.child.functions and not self.functions:  # it has served another check
            self.functions = self.child.functions
        if self.child.failure:
            raise self.child.failure

    def start(self) -> None:
        """Open the child if there is none, without waiting for it."""
        if self.child is None and not self.refusal:
            self.child = self._open()
            self.when_forked = taken_bytes(self.child.line.process)

    def request(self, header: dict[str, object], parts: Sequence[memoryview] = ()) -> tuple[replies.Reply, bytearray]:
        """Speak with the child within what is left of the check's time."""
        assert self.child
        start, of_s = time.monotonic(), self.limit_s * self.servers.slack
        try:
            return self.child.request(header, parts, max(of_s - self.spent_s, 0.1), of_s)
        finally:
            self.spent_s += time.monotonic() - start

    def require(self, function: str) -> None:
        """Raise `todo` unless the module has this function."""
        self.load()
        if function not in self.functions:
            raise Outcome(
                Verdict.TODO, f"assignment/{self.module}.py has no function `{function}`",
                hint=_near(function, self.functions, "function"),
            )  # fmt: skip

    def name_of(self, tensor: torch.Tensor) -> str:
        """What an input is called."""
        return self.names.get(tensor.untyped_storage().data_ptr(), "the input")

    def malformed(self, what: str) -> Outcome:
        """The verdict on a reply that is none, to be raised."""
        assert self.child
        return self.child.malformed(what)

    def close(self) -> None:
        if self.child:
            self.child.end()

    def renew(self) -> None:
        """End the child, so that the next call has a new one. What it printed is lost unless it was told."""
        self.close()
        self.child, self.functions, self.fresh = None, (), True

    def watched(self) -> AbstractContextManager[Footprint]:
        """Look at the memory of its child, or at that of its GPU."""
        assert self.child
        if gpu := self.servers.gpu:
            return of_gpu(gpu.uuid)
        return of_processes({self.child.line.process: self.when_forked}, self.child.server.leader)

    def doubt(self) -> Borrowed | None:
        """What speaks against the submission's own code having computed the answers so far, by the runner's word."""
        return borrowed(
            self.module, self.called, self.operators, self.launches, self.unseen, next(iter(self.ways()), None)
        )

    def ways(self) -> tuple[Way, ...]:
        """What leads to where nobody watches, by its source."""
        return known_ways(self.folder, self.module, self.folder.stat().st_mtime_ns)

    def hand_over(self) -> list[RunnerChild]:
        """The children for another check of the same problem, unless they have failed."""
        child, self.child = self.child, None
        if child and (child.failure or child.closed):
            child.end()
            return []
        return [child] if child else []

    def take_over(self, children: list[RunnerChild]) -> None:
        """Go on with children that have served another check."""
        for child in children[:1]:
            child.forget()
            self.child = child

    def printed(self) -> str:
        """What the submission wrote, cleaned; told once, with the first case that did not pass."""
        told, self.told = self.told, True
        return self.child.printed() if self.child and not told else ""

    def _open(self) -> RunnerChild:
        """A fresh child; where an earlier check has spoilt the server, by a new one."""
        try:
            return self._open_on(self.servers.ready())
        except RunnerBroken:
            return self._open_on(self.servers.ready())

    def _open_on(self, server: Runner) -> RunnerChild:
        return RunnerChild(server)

    def _load_failure(self, reply: Raised) -> Outcome:
        if reply.missing == f"assignment.{self.module}":
            files = tuple(path.name for path in sorted(self.folder.glob("*.py")) if path.is_file())
            return Outcome(
                Verdict.TODO, f"there is no assignment/{self.module}.py", hint=_near(f"{self.module}.py", files, "file")
            )
        return raised_outcome(reply, f"assignment/{self.module}.py cannot be imported")


class Submission:
    """What the fixture `submission` gives: the functions of one module, called in the runner."""

    def __init__(self, process: CheckProcess, order: str = "forward") -> None:
        self._process, self._order = process, order

    def in_order(self, order: str) -> Submission:
        """The same, but the interpreter runs the programs of a launch "reversed" or "shuffled"."""
        return Submission(self._process, order)

    @property
    def on_gpu(self) -> bool:
        """Whether its kernels run on a GPU."""
        return self._process.servers.device == "cuda"

    def __getattr__(self, name: str) -> Function:
        if name.startswith("_"):
            raise AttributeError(name)
        return Function(self._process, name, self._order)


@dataclass(frozen=True)
class Call:
    """One call of a function, as a check wants it."""

    arguments: tuple[torch.Tensor, ...]
    options: dict[str, Option]
    gradient: torch.Tensor | None = None  # to go backward from
    of: tuple[torch.Tensor, ...] | None = None  # the arguments that need a gradient; None for all
    again: bool = False  # at the addresses of the call before, whose answer is read once more
    elsewhere: torch.Tensor | None = None  # the argument that lies on another device
    keeps_graph: bool = False  # a backward will follow
    late: bool = False  # the gradient is that of the call before, which kept its graph
    own_stream: bool = False  # a stream other than the default one is the current one, and brings the inputs late

    @property
    def differentiates(self) -> bool:
        """Whether a gradient is due, now or later."""
        return self.keeps_graph or self.gradient is not None


@dataclass(frozen=True)
class Function:
    """One function of the submission."""

    process: CheckProcess
    name: str
    order: str = "forward"

    def __call__(self, *arguments: torch.Tensor, **options: Option) -> Result:
        """Call it once, with the arguments in fresh memory."""
        return self._answers(Call(arguments, options)).answer

    def values(self, names: Sequence[str], *arguments: torch.Tensor, **options: Option) -> tuple[Result, ...]:
        """Call a function that returns as many tensors as there are names for them."""
        return self._answers(Call(arguments, options)).named(names)

    def again(self, *arguments: torch.Tensor, **options: Option) -> tuple[Result, Result]:
        """Call it once more, with new content at the addresses of the call before.

        Returns the new answer, and the answer of the call before as it reads now.
        """
        results = self._answers(Call(arguments, options, again=True))
        return results.answer, results.earlier[0]

    def values_again(
        self, names: Sequence[str], *arguments: torch.Tensor, **options: Option
    ) -> tuple[tuple[Result, ...], tuple[Result, ...]]:
        """The same for a function that returns as many tensors as there are names for them."""
        results = self._answers(Call(arguments, options, again=True))
        earlier = [f"{name} of the first call, read again after the second," for name in names]
        return results.named(names), _named(results.earlier, earlier)

    def on_own_stream(self, *arguments: torch.Tensor, **options: Option) -> Result:
        """Call it while a stream of its own is the current one, on which the inputs are not there yet (on a GPU)."""
        return self._answers(Call(arguments, options, own_stream=True)).answer

    def footprint(
        self, *arguments: torch.Tensor, after: tuple[torch.Tensor, ...], **options: Option
    ) -> tuple[Results, int]:
        """Call it in a new process: its answers, and the most memory that it took at once beside the inputs, in bytes.

        `after` are small arguments of a first call, so that compiling and loading do not count. On a CPU the answer is
        never less than the size of the inputs, which travel at first.
        """
        self.process.renew()
        self._answers(Call(after, options))
        with self.process.watched() as taken:
            results = self._answers(Call(arguments, options))
        storages = {value.untyped_storage().data_ptr(): value.untyped_storage().nbytes() for value in arguments}
        return results, taken.bytes - sum(storages.values())

    def backward(
        self,
        *arguments: torch.Tensor,
        gradient: torch.Tensor,
        of: tuple[torch.Tensor, ...] | None = None,
        **options: Option,
    ) -> tuple[Result, ...]:
        """Call it and go backward from `gradient`. Returns the answer and the gradient of each argument, or of some."""
        results = self._answers(Call(arguments, options, gradient, of))
        answer = results.answer
        if answer.plain().shape != gradient.shape:
            raise Outcome(
                Verdict.FAIL, f"the answer has shape {list(answer.plain().shape)}, expected {list(gradient.shape)}",
                hint="no gradient was asked for: the answer's own shape comes first", cause="wrong_shape",
            )  # fmt: skip
        return answer, *results.gradients

    def backward_late(
        self,
        first: tuple[torch.Tensor, ...],
        second: tuple[torch.Tensor, ...],
        gradient: torch.Tensor,
        **options: Option,
    ) -> tuple[Result, ...]:
        """Call it twice, then go backward from `gradient` through the first call: the gradient of each argument."""
        self._answers(Call(first, options, keeps_graph=True))
        return tuple(self._answers(Call(second, options, gradient, late=True)).gradients)

    def exception(
        self, *arguments: torch.Tensor, elsewhere: torch.Tensor | None = None, **options: Option
    ) -> Raised | Result:
        """Call it where it ought to raise: the exception, or else the answer.

        The argument that is also given as `elsewhere` lies on another device ("meta", which every machine has).
        """
        results = self._request(Call(arguments, options, elsewhere=elsewhere))
        return results if isinstance(results, Raised) else results.outputs[0]

    def _answers(self, call: Call) -> Results:
        results = self._request(call)
        if isinstance(results, Raised):
            raise self._misfit(call, results) or raised_outcome(results)
        return results

    def _misfit(self, call: Call, raised: Raised) -> Outcome | None:
        """The outcome of a function that cannot be called as the checks do it."""
        if raised.type != "TypeError" or raised.where or f"{self.name}() " not in raised.message:
            return None
        names = [self.process.name_of(value) for value in call.arguments]
        words = ", ".join([*names, *(f"{name}={value!r}" for name, value in call.options.items())])
        outcome = raised_outcome(raised)
        outcome.why = f"the checks call {self.name}({words}), and yours takes other arguments"
        outcome.hint = "take the arguments of the stub, in its order, and give others a default"
        return outcome

    def _request(self, call: Call) -> Raised | Results:
        self.process.require(self.name)
        self.process.called.add(self.name)
        inputs = {self.process.name_of(value): value for value in call.arguments}
        needing = call.arguments if call.of is None else call.of
        leaves = [self.process.name_of(value) for value in needing] if call.differentiates else []
        parcel = Parcel.of(inputs if call.gradient is None else inputs | {"the incoming gradient": call.gradient})
        storages = [part.nbytes for part in parcel.parts]
        header: dict[str, object] = {
            "verb": "call", "function": self.name,
            "storages": storages, "room": payload_limit(parcel.parts) - sum(storages),
            "tensors": parcel.specs(leaves, None if call.elsewhere is None else self.process.name_of(call.elsewhere)),
            "arguments": list(range(len(call.arguments))), "options": call.options,
            "incoming": [] if call.gradient is None else [len(call.arguments)],
            "keep_addresses": call.again, "recall": call.again, "order": self.order, "shuffle_seed": 1,
            "late": call.late,
            "own_stream": call.own_stream and self.process.servers.device == "cuda", "fresh": self.process.fresh,
        }  # fmt: skip
        self.process.fresh = False
        reply, payload = self.process.request(header, parcel.parts)
        if isinstance(reply, Raised):
            return reply
        if not isinstance(reply, Answered):
            raise self.process.malformed("a reply of the wrong kind")
        self.process.stray = self.process.stray or next(iter(reply.accesses), None)
        self.process.operators, self.process.launches = reply.operators, reply.launches
        self.process.unseen = reply.unseen
        try:
            return Results.of(reply, payload, parcel, leaves, call.again, self.process.servers.device)
        except Malformed as error:
            raise self.process.malformed(str(error)) from None


@dataclass(frozen=True)
class Results:
    """All that one call gave."""

    outputs: list[Result]
    gradients: list[Result]
    earlier: list[Result]

    @property
    def answer(self) -> Result:
        """The only value that the function gave."""
        if len(self.outputs) > 1:
            raise Outcome(
                Verdict.FAIL, f"the function returned {len(self.outputs)} values, expected one tensor",
                hint="return the result alone", cause="not_a_tensor",
            )  # fmt: skip
        return self.outputs[0]

    def named(self, names: Sequence[str]) -> tuple[Result, ...]:
        """The values that the function gave, under these names. Raises `Outcome` where there are more or fewer."""
        return _named(self.outputs, names)

    @classmethod
    def of(
        cls, reply: Answered, payload: bytearray, parcel: Parcel, leaves: list[str], again: bool, device: str
    ) -> Results:
        """Cut the payload up, and raise `Outcome` if the call changed memory that it was only to read."""
        fields = (reply.outputs, reply.gradients, reply.earlier)
        plain = [entry for entries in fields for entry in entries if isinstance(entry, TensorEntry)]
        tensors, returned = replies.split(plain, [part.nbytes for part in parcel.parts], payload)
        if not reply.outputs or len(reply.gradients) != len(leaves) or bool(reply.earlier) != again:
            raise Malformed("a reply with too few or too many results")
        accesses = tuple(reply.accesses)
        if changed := parcel.first_change(returned):
            raise changed_outcome(*changed, accesses)
        names = (
            ["the answer"] * len(reply.outputs),
            [f"the gradient of {leaf}" for leaf in leaves],
            ["the first answer, read again after the second call,"] * len(reply.earlier),
        )
        queue = iter(tensors)
        groups: list[list[Result]] = []
        for group, entries in zip(names, fields, strict=True):
            groups.append([])
            for name, entry in zip(group, entries, strict=True):
                if isinstance(entry, LargeEntry):
                    raise too_large_outcome(name, entry)
                tensor = next(queue) if isinstance(entry, TensorEntry) else None
                groups[-1].append(Result(name, entry, tensor, accesses, device, reply.launches))
        return cls(*groups)


def _named(results: list[Result], names: Sequence[str]) -> tuple[Result, ...]:
    """The results under these names; raises `Outcome` where there are more or fewer."""
    if len(results) != len(names):
        raise Outcome(
            Verdict.FAIL, f"the function returned {len(results)} value{'s' * (len(results) != 1)}, "
            f"expected {len(names)}: {', '.join(names)}", hint=f"return {', '.join(names)}", cause="not_a_tensor",
        )  # fmt: skip
    for result, name in zip(results, names, strict=True):
        result.name = name
    return tuple(results)


def _near(wanted: str, names: tuple[str, ...], kind: str) -> str:
    """A suggestion where something has nearly the right name."""
    if found := closest(wanted, names):
        return f"there is a {kind} `{clean(found, 80)}`: is it meant to be `{wanted}`?"
    return f"add the {kind} `{wanted}`"
