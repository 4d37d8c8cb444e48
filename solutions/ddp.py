"""Data parallel training: every rank holds the whole model, and the ranks average their gradients.

`broadcast_module` gives all ranks the first one's weights. After a backward, `all_reduce_gradients` and
`all_reduce_gradients_flat` average what it left in `.grad`; `DDP` does so while the backward still runs. Buffers are
never averaged. Which collectives run, and in which order, follows from the model's parameters alone: all ranks agree on
that whatever their data did.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

# Pieces that all three ways share


def trainable_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The parameters whose gradients are averaged, in order of registration. A tied one stands here once."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


@torch.no_grad()
def flatten_gradients(parameters: list[nn.Parameter]) -> torch.Tensor:
    """A new flat tensor of the gradients, one after the other, with zeros for a gradient that is missing."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


@dataclass(frozen=True)
class Average:
    """Gradients on their way: an all-reduce that has been started."""

    parameters: list[nn.Parameter]
    flat: torch.Tensor
    """The gradients, one after the other. The averages, once `work` is done."""
    work: dist.Work

    @staticmethod
    def launch(parameters: list[nn.Parameter], process_group: dist.ProcessGroup | None) -> "Average":
        """Start averaging the gradients of parameters of one dtype."""
        flat = flatten_gradients(parameters)
        flat.div_(dist.get_world_size(process_group))  # before the sum, which could pass float16's largest number
        return Average(parameters, flat, dist.all_reduce(flat, group=process_group, async_op=True))

    @torch.no_grad()
    def land(self, present: set[nn.Parameter]) -> None:
        """Wait, and write the averages into the `.grad` of those parameters that are in `present`."""
        self.work.wait()
        averages = self.flat.split([parameter.numel() for parameter in self.parameters])
        for parameter, average in zip(self.parameters, averages, strict=True):
            if parameter in present:
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                parameter.grad.copy_(average.view_as(parameter))


def set_on_any_rank(flags: list[bool], device: torch.device, process_group: dist.ProcessGroup | None) -> list[bool]:
    """For each flag, whether it is set on at least one rank. It costs one byte per flag."""
    shared = torch.tensor(flags, dtype=torch.uint8, device=device)
    dist.all_reduce(shared, op=dist.ReduceOp.MAX, group=process_group)
    return shared.bool().tolist()


def with_gradient_anywhere(
    parameters: list[nn.Parameter], process_group: dist.ProcessGroup | None
) -> list[nn.Parameter]:
    """The parameters that have a gradient on at least one rank: the same ones, in the same order, on all ranks."""
    if not parameters:
        return []
    flags = set_on_any_rank([p.grad is not None for p in parameters], parameters[0].device, process_group)
    return [parameter for parameter, flag in zip(parameters, flags, strict=True) if flag]


# Before training, and after a backward


@torch.no_grad()
def broadcast_module(module: nn.Module, process_group: dist.ProcessGroup | None = None) -> None:
    """Copy parameters and buffers of the group's first rank, of every dtype, frozen or not, into those of all ranks."""
    for tensor in chain(module.parameters(), module.buffers()):
        values = tensor.detach().contiguous()  # the tensor itself, unless it is strided
        # As bytes: gloo knows no int16, and not every backend a bool.
        dist.broadcast(values.view(-1).view(torch.uint8), group=process_group, group_src=0)
        if not tensor.is_contiguous():
            tensor.copy_(values)


def all_reduce_gradients(module: nn.Module, process_group: dist.ProcessGroup | None = None) -> None:
    """Average `.grad` over the ranks, with one all-reduce per parameter that has a gradient on any of them."""
    for parameter in with_gradient_anywhere(trainable_parameters(module), process_group):
        Average.launch([parameter], process_group).land({parameter})


def all_reduce_gradients_flat(module: nn.Module, process_group: dist.ProcessGroup | None = None) -> None:
    """Average `.grad` over the ranks, with one all-reduce per dtype."""
    by_dtype = defaultdict(list)
    for parameter in with_gradient_anywhere(trainable_parameters(module), process_group):
        by_dtype[parameter.dtype].append(parameter)
    for parameters in by_dtype.values():
        Average.launch(parameters, process_group).land(set(parameters))


# During the backward


@dataclass(eq=False)
class Bucket:
    """Gradients of one dtype that travel together, from one `finish_gradient_synchronization` to the next."""

    parameters: list[nn.Parameter]
    missing: set[nn.Parameter] = field(init=False)
    """Parameters whose gradient the backward has not completed yet."""
    average: Average | None = field(init=False)
    """The gradients on their way. None before the launch."""
    outdated: bool = field(init=False)
    """Gradients changed after the launch, so they have to travel again."""

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.missing = set(self.parameters)
        self.average = None
        self.outdated = False


def fill_buckets(parameters: Iterable[nn.Parameter], bucket_bytes: int) -> list[Bucket]:
    """Put parameters into buckets, in the order given. Buckets come in the order of their last parameters.

    Each dtype fills buckets of its own. A parameter of more than `bucket_bytes` has a bucket to itself.
    """
    filled: list[list[nn.Parameter]] = []
    filling: dict[torch.dtype, list[nn.Parameter]] = {}
    room: dict[torch.dtype, int] = {}  # bytes left in the bucket that is being filled
    position: dict[nn.Parameter, int] = {}
    for index, parameter in enumerate(parameters):
        dtype, position[parameter] = parameter.dtype, index
        if dtype not in filling or parameter.nbytes > room[dtype]:
            filling[dtype], room[dtype] = [], bucket_bytes
            filled.append(filling[dtype])
        filling[dtype].append(parameter)
        room[dtype] -= parameter.nbytes
    filled.sort(key=lambda members: position[members[-1]])  # a bucket is ready when its last gradient is
    return [Bucket(members) for members in filled]


class DDP(nn.Module):
    """Wraps a module: its gradients are averaged over the ranks, bucket by bucket, while the backward still runs.

    The model runs from its first layer to its last, so the backward completes gradients about in reverse order of
    registration: buckets are filled in that order. They are launched in the order of the list, even where a later one
    is ready first, since ranks must start the same collectives in the same order.

    A step that failed midway leaves buckets under way, on each rank perhaps others. They cannot be called back, so they
    count as launched, and the next forward marks them as outdated: `finish_gradient_synchronization` reduces them again
    on all ranks. So it does if two backwards run without `no_sync`. Both cost traffic, neither a wrong gradient.
    """

    def __init__(
        self, module: nn.Module, bucket_bytes: int = 25 * 2**20, process_group: dist.ProcessGroup | None = None
    ) -> None:
        super().__init__()
        self.module = module
        self._process_group = process_group
        self._trainable = trainable_parameters(module)
        self._buckets = fill_buckets(reversed(self._trainable), bucket_bytes)
        self._launched = 0  # of the buckets, in their order
        self._synchronizes = True

        broadcast_module(module, process_group)
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(partial(self._on_gradient, bucket))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        if torch.is_grad_enabled():
            self._expect_gradients()
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards inside add to the local gradients and send nothing."""
        before, self._synchronizes = self._synchronizes, False
        try:
            yield
        finally:
            self._synchronizes = before

    def finish_gradient_synchronization(self) -> None:
        """Leave the averages in `.grad`. Call it after the backward and before the optimizer, on all ranks."""
        if not self._buckets:
            return
        while self._launched < len(self._buckets):
            self._launch_next()

        # After the buckets: before them, ranks that launched different numbers of them would disagree on the order.
        flags = [p.grad is not None for p in self._trainable] + [bucket.outdated for bucket in self._buckets]
        anywhere = set_on_any_rank(flags, self._trainable[0].device, self._process_group)
        parameters = len(self._trainable)
        present = {p for p, flag in zip(self._trainable, anywhere[:parameters], strict=True) if flag}

        for bucket, outdated in zip(self._buckets, anywhere[parameters:], strict=True):
            assert bucket.average is not None  # all have been launched
            if outdated:
                bucket.average.work.wait()
                bucket.average = Average.launch(bucket.parameters, self._process_group)
            bucket.average.land(present)
            bucket.clear()
        self._launched = 0

    def _expect_gradients(self) -> None:
        """A forward begins: the gradients of its backward are still to come, whatever became of an earlier one."""
        for bucket in self._buckets:
            if bucket.average is None:
                bucket.clear()
            else:
                bucket.outdated = True

    def _on_gradient(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        """The backward has added all that it has to `parameter.grad`."""
        if bucket.average is not None:
            bucket.outdated = True
        elif self._synchronizes:
            bucket.missing.discard(parameter)
            while self._launched < len(self._buckets) and not self._buckets[self._launched].missing:
                self._launch_next()

    def _launch_next(self) -> None:
        bucket = self._buckets[self._launched]
        bucket.average = Average.launch(bucket.parameters, self._process_group)
        self._launched += 1
