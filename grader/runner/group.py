"""A process group whose far end is the judge: a collective's tensors go there, and its result comes from there.

It offers what gloo does. The judge sees who takes part in what, and with how many bytes.
"""

# What torch tells mypy of its process groups are overloads that it never calls.
# mypy: disable-error-code="override, assignment, attr-defined, call-arg, no-untyped-call"

import socket
import threading
from collections.abc import Sequence
from typing import Any

import protocol
import torch
import torch.distributed as dist
from tensors import pack
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

OPERATIONS = ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
NAME = "judged"

Tensors = Sequence[torch.Tensor]


class Line:
    """This rank's way to the judge while a scenario runs: requests in any thread, results in one of its own."""

    def __init__(self, conversation: socket.socket, number: int) -> None:
        self.conversation, self.number = conversation, number
        self.phase, self.count = "start", 0  # of the scenario; the requests so far
        self.sending = threading.Lock()
        self.awaited: dict[int, tuple[Any, Tensors]] = {}
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def post(self, kind: str, inputs: Tensors, outputs: Tensors, **fields: Any) -> Any:
        """Send a request with `inputs`; the future is done once `outputs` are filled with the result."""
        sizes = [[str(one.dtype).removeprefix("torch."), one.numel()] for one in inputs]
        wanted = [[str(one.dtype).removeprefix("torch."), one.numel()] for one in outputs]
        on_gpu: list[Any] = sorted({output.device for output in outputs if output.is_cuda}, key=str)
        for device in on_gpu:
            torch.cuda.current_stream(device).synchronize()  # the result comes by another stream
        with self.sending:
            self.count += 1
            future = Future(devices=on_gpu)  # type: ignore[var-annotated]
            self.awaited[self.count] = (future, outputs)
            header = {"status": "request", "number": self.number, "request": self.count, "kind": kind,
                      "inputs": sizes, "outputs": wanted, "phase": self.phase, **fields}  # fmt: skip
            protocol.send(self.conversation, header, [pack(one) for one in inputs])
        return future

    def close(self) -> None:
        """Tell the judge that this rank is through, and hear its last word."""
        self.post("end", [], [])
        self.listener.join()

    def _listen(self) -> None:
        while True:
            header, payload = protocol.receive(self.conversation, payload_limit=1 << 40)
            if header.get("over"):
                return
            future, outputs = self.awaited.pop(header["completes"])
            self._fill(outputs, payload)
            del payload
            future.set_result([*outputs])
            del future, outputs  # nothing of a result is held while the next one is waited for

    def _fill(self, outputs: Tensors, payload: bytearray) -> None:
        at = 0
        for output in outputs:
            if size := output.nbytes:
                content = torch.frombuffer(payload, dtype=output.dtype, count=output.numel(), offset=at)
                output.detach().copy_(content.view(output.shape))
            at += size
        for device in {output.device for output in outputs if output.is_cuda}:
            torch.cuda.synchronize(device)


class JudgedGroup(dist.ProcessGroup):
    """One group of ranks. Methods as `torch.distributed` calls them, in its older and its newer versions."""

    line: Line  # of this process, while a scenario runs

    def __init__(self, rank: int, ranks: list[int]) -> None:
        super().__init__(rank, len(ranks))
        self.mine, self.ranks = rank, ranks

    def getBackendName(self) -> str:
        return NAME

    def _work(self, kind: str, inputs: Tensors, outputs: Tensors, opts: Any = None, root: int = -1) -> Any:
        operation = "SUM"
        if (asked := getattr(opts, "reduceOp", None)) is not None:
            operation = next((name for name in OPERATIONS if asked == getattr(dist.ReduceOp, name)), "")
            if not operation:
                raise RuntimeError("this reduction is not there: as gloo, this process group has SUM but no AVG")
        ranks = {"group": self.ranks, "root": root, "operation": operation}
        return _create_work_from_future(self.line.post(kind, inputs, outputs, **ranks))

    def allreduce(self, tensors: Tensors, opts: Any = None) -> Any:
        return self._work("all_reduce", tensors, tensors, opts)

    def broadcast(self, tensors: Tensors, opts: Any) -> Any:
        mine = opts.rootRank == self.mine
        return self._work("broadcast", tensors if mine else [], [] if mine else tensors, root=opts.rootRank)

    def reduce(self, tensors: Tensors, opts: Any) -> Any:
        outputs = tensors if opts.rootRank == self.mine else []
        return self._work("reduce", tensors, outputs, opts, opts.rootRank)

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Any:
        return self._work("all_gather", inputs, outputs[0])

    def all_gather_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.allgather([output.view(-1).chunk(len(self.ranks))], [tensor])

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Any:
        return self._work("gather", inputs, outputs[0] if outputs else [], root=opts.rootRank)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Any:
        return self._work("scatter", inputs[0] if inputs else [], outputs, root=opts.rootRank)

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Any:
        return self._work("reduce_scatter", inputs[0], outputs, opts)

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Any:
        return self.reduce_scatter([output], [tensor.view(-1).chunk(len(self.ranks))], opts)

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Any:
        return self._work("all_to_all", inputs, outputs)

    def all_to_all_single(
        self, output: torch.Tensor, tensor: torch.Tensor, received: list[int], sent: list[int], opts: Any = None
    ) -> Any:
        even = [1] * len(self.ranks)
        pieces = [
            whole.split([size * len(whole) // sum(sizes or even) for size in sizes or even])
            for whole, sizes in ((output, received), (tensor, sent))
        ]
        return self.alltoall(*pieces)

    def barrier(self, opts: Any = None) -> Any:
        return self._work("barrier", [], [])

    def send(self, tensors: Tensors, to: int, tag: int) -> Any:
        return self._work("send", tensors, [], root=to)

    def recv(self, tensors: Tensors, source: int, tag: int) -> Any:
        return self._work("receive", [], tensors, root=source)

    allreduce_coalesced = allreduce
    _allgather_base, _reduce_scatter_base, alltoall_base = all_gather_single, reduce_scatter_single, all_to_all_single


def make(opts: Any, _: Any = None) -> JudgedGroup:
    """What `torch.distributed` calls for each new group of this backend."""
    return JudgedGroup(opts.group_rank, list(opts.global_ranks_in_group) or list(range(opts.group_size)))


def start(line: Line) -> None:
    """From now on a group of the backend `judged` speaks over this line."""
    JudgedGroup.line = line
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, make, extended_api=True, devices=["cpu", "cuda"])
