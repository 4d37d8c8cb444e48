"""What a runner's child does for the judge: `load`, `call`, `scenario`, `sample`, `estimate`.

One message in, one reply out. A child serves one check and is thrown away. It reports what happened and judges
nothing: whatever it says may have been said by the student's code, which lives in the same process.
"""

import contextlib
import importlib
import os
import socket
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import loading
import operators
import origins
import protocol
import torch
from tensors import Storages, describe, pack

TEXT_LIMIT = 4000  # characters of an exception's message or traceback
MOST_RESULTS = 16  # that a function may return as a tuple; more are one wrong result


class Child:
    """The state of one check's process: the loaded module, the judge's storages, the last results."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.folder = Path("/")
        self.module: ModuleType | None = None
        self.storages = Storages(device)
        self.results: list[object] = []
        self.leaves: list[torch.Tensor] = []
        self.operators = operators.Operators()
        self.origins = origins.Origins()
        self.watch: Any = None
        self.timed: Any = None
        if "watch" in sys.modules:
            import watch

            self.operators.origins = self.origins
            self.watch = watch.Watch(self.operators.count_launch, self.origins)
            self.watch.install()
        elif device == "cuda":
            import triton

            triton.knobs.runtime.launch_enter_hook.add(self.operators.count_launch)
            triton.knobs.compilation.listener = self.operators.count_compilation

    def serve(self, conversation: socket.socket) -> None:
        """Answer until the judge hangs up."""
        self.conversation = conversation
        while True:
            try:
                header, payload = protocol.receive(conversation, payload_limit=1 << 40)
            except protocol.Closed:
                return
            reply, parts = self.answer(header, payload)
            protocol.send(conversation, {"number": header["number"], **reply}, parts)
            if header["verb"] == "sample" and reply["status"] == "timed":
                protocol.send(conversation, {"number": header["number"], **self.wait()})

    def answer(self, header: dict[str, Any], payload: bytearray) -> tuple[dict[str, Any], list[memoryview]]:
        """Carry out one message. Whatever the student's code raises becomes a reply."""
        verbs = {"probe": self.probe, "load": self.load, "call": self.call, "scenario": self.scenario,
                 "prepare": self.prepare, "sample": self.sample, "estimate": self.estimate}  # fmt: skip
        try:
            return verbs[header["verb"]](header, payload)
        except BaseException as error:  # the boundary: SystemExit and KeyboardInterrupt are the student's, too
            return {"status": "raised", **self.describe_exception(error)}, []

    def probe(self, header: dict[str, Any], payload: bytearray) -> tuple[dict[str, Any], list[memoryview]]:
        """Run a small kernel of our own on the judge's numbers; read the judge's device memory where it is shared."""
        import probe

        self.storages.fill(header["storages"], payload, keep_addresses=False)
        results = [probe.double(self.storages.view(header["tensor"]))]
        if header["handle"]:
            results.append(probe.shared_bytes(header["handle"], header["count"]))
        return {"status": "answer", "outputs": [describe(result, 1 << 20) for result in results]}, [*map(pack, results)]

    def load(self, header: dict[str, Any], payload: bytearray) -> tuple[dict[str, Any], list[memoryview]]:
        """Import one module of the submission."""
        self.folder = Path(header["folder"])
        self.operators.folder = self.origins.folder = str(self.folder)
        if self.watch:
            self.watch.folder = str(self.folder)
        loading.install(self.folder)
        with self.operators if self.watch else contextlib.nullcontext():  # what it makes now, it may use later
            self.module = importlib.import_module(f"{loading.PACKAGE}.{header['module']}")
        self.origins.is_loading = False
        offered = {name: thing for name, thing in vars(self.module).items() if callable(thing) and name[0] != "_"}
        home = f"{loading.PACKAGE}.{header['module']}"
        names = sorted(offered, key=lambda name: getattr(offered[name], "__module__", "") != home)  # imported ones last
        return {"status": "loaded", "names": [plain(name, 200) for name in names[:200]]}, []

    def call(self, header: dict[str, Any], payload: bytearray) -> tuple[dict[str, Any], list[memoryview]]:
        """Call a function of the loaded module; go backward where gradients are asked for."""
        if header["fresh"]:  # another check's turn
            self.operators.seen, self.operators.launches, self.results, self.leaves = {}, 0, [], []
            self.origins.begin()
        if not header["own_stream"]:
            return self._call(header, payload)
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            return self._call(header, payload)

    def _call(self, header: dict[str, Any], payload: bytearray) -> tuple[dict[str, Any], list[memoryview]]:
        self.storages.fill(header["storages"], payload, header["keep_addresses"])
        if header["own_stream"]:
            self.storages.arrive_late()
        named = [(spec["storage"], spec["name"], self.storages.view(spec)) for spec in header["tensors"]]
        tensors = [tensor for _, _, tensor in named]
        if self.watch:
            self.watch.begin(self.storages.blocks, named, header["order"], header["shuffle_seed"])
        function = getattr(self.module, header["function"])
        with self.operators:
            result = function(*(tensors[index] for index in header["arguments"]), **header["options"])
            results = list(result) if type(result) is tuple and 1 < len(result) <= MOST_RESULTS else [result]
            leaves = [tensor for tensor in tensors if tensor.requires_grad]
            backward = (self.leaves, self.results) if header["late"] else (leaves, results)
            gradients = self._gradients(header, tensors, *backward)
        if self.watch:
            self.watch.end([*results, *gradients])
        earlier, self.results, self.leaves = self.results, results, leaves
        return self._reply(results, gradients, earlier if header["recall"] else [], header["room"])

    def scenario(self, header: dict[str, Any], payload: bytearray) -> tuple[dict[str, Any], list[memoryview]]:
        """Be one rank of a training in which the loaded module takes part."""
        import scenario

        storages = Storages(header["device"])
        if header["device"] != "cpu":
            torch.cuda.set_device(header["device"])
        storages.fill(header["storages"], payload, keep_addresses=False)
        tensors = [storages.view(spec) for spec in header["tensors"]]
        return scenario.carry_out(self.module, header, tensors, self.conversation)

    def prepare(self, header: dict[str, Any], payload: bytearray) -> tuple[dict[str, Any], list[memoryview]]:
        """Get ready for calls that the judge times."""
        import timing

        if self.timed:
            self.timed.close()  # before there are others
        self.timed = timing.Timed(self.module, header, self.device)
        return {"status": "timed"}, []

    def sample(self, header: dict[str, Any], payload: bytearray) -> tuple[dict[str, Any], list[memoryview]]:
        """Make calls that the judge times."""
        return {"status": "timed", **self.timed.run(header["order"]), "compiled_s": self.operators.compiled_s}, []

    def estimate(self, header: dict[str, Any], payload: bytearray) -> tuple[dict[str, Any], list[memoryview]]:
        """Time calls here, for a student: nothing that is graded rests on it."""
        import estimate

        return {"status": "estimated", "seconds": estimate.Estimate(self.module, header, self.device).run()}, []

    def wait(self) -> dict[str, Any]:
        """Until the GPU has done all that was asked for. The judge's clock stops when it hears this."""
        try:
            torch.cuda.synchronize()
        except BaseException as error:
            return {"status": "raised", **self.describe_exception(error)}
        return {"status": "done"}

    def _gradients(
        self, header: dict[str, Any], tensors: list[torch.Tensor], leaves: list[torch.Tensor], results: list[object]
    ) -> list[torch.Tensor | None]:
        if not leaves:
            return []
        pairs = [
            (result, tensors[index])
            for result, index in zip(results, header["incoming"], strict=False)
            if isinstance(result, torch.Tensor) and result.requires_grad and result.shape == tensors[index].shape
        ]
        if not pairs:
            return [None] * len(leaves)
        outputs, incoming = zip(*pairs, strict=True)
        # As torch.autograd.grad does, which first imports symbolic shapes for half a second or more.
        run = torch.autograd.graph._engine_run_backward
        return list(run(outputs, incoming, False, False, tuple(leaves), allow_unreachable=True, accumulate_grad=False))

    def _reply(
        self, results: list[object], gradients: list[torch.Tensor | None], earlier: list[object], room: int
    ) -> tuple[dict[str, Any], list[memoryview]]:
        reply: dict[str, Any] = {
            "status": "answer", "accesses": self.watch.reports if self.watch else [],
            "operators": dict(list(self.operators.seen.items())[:64]), "launches": self.operators.launches,
            "compiled_s": self.operators.compiled_s, "unseen": self.origins.found,
        }  # fmt: skip
        parts: list[memoryview] = []
        for field, values in (("outputs", results), ("gradients", gradients), ("earlier", earlier)):
            reply[field] = []
            for value in values:
                entry = describe(value, room - sum(part.nbytes for part in parts))
                parts += [pack(value)] if entry["kind"] == "tensor" else []
                reply[field].append(entry)
        if self.device == "cuda":  # results are due on the current stream, the rest of the device may take longer
            torch.cuda.synchronize()
        return reply, parts + [pack(block) for block in self.storages.blocks]

    def describe_exception(self, error: BaseException) -> dict[str, Any]:
        """Type, message and place of an exception; the interpreter's wrapper around it is taken off."""
        while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
            error = error.__cause__
        stack = traceback.extract_tb(error.__traceback__)
        frames = [frame for frame in stack if frame.filename.startswith(str(self.folder))]
        return {
            "type": plain(type(error).__name__, 200),
            "out_of_memory": isinstance(error, (torch.OutOfMemoryError, MemoryError)),
            "missing": plain(error.name, 200) if isinstance(error, ModuleNotFoundError) else None,
            "message": plain(f"{error.msg}: {(error.text or '').strip()}" if isinstance(error, SyntaxError) else error),
            "where": self._place(error, frames),
            "traceback": plain("".join(traceback.format_list(frames))[-TEXT_LIMIT:]),
            "accesses": self.watch.reports if self.watch else [],
        }

    def _place(self, error: BaseException, frames: list[traceback.FrameSummary]) -> dict[str, Any] | None:
        path, line = (frames[-1].filename, frames[-1].lineno) if frames else ("", 0)
        if isinstance(error, SyntaxError) and (error.filename or "").startswith(str(self.folder)):
            path, line = error.filename or "", error.lineno
        return {"file": plain(os.path.relpath(path, self.folder), 1000), "line": line or 0} if path else None


def plain(thing: object, limit: int = TEXT_LIMIT) -> str:
    """The text of a thing of the student's, fit to be sent; its own `__str__` may raise."""
    try:
        return str(thing)[:limit].encode(errors="replace").decode()
    except Exception as error:
        return f"({type(error).__name__} in __str__)"
