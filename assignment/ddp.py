"""Problem ddp: train one model on several ranks that average their gradients.

A rank is a process with a copy of the model and its own part of each batch. Four things are graded, each by itself:

1. `broadcast_module`: all ranks start with the same weights.
2. `all_reduce_gradients`: after the backward, one all-reduce per parameter.
3. `all_reduce_gradients_flat`: after the backward, one all-reduce per dtype.
4. `DDP`: several all-reduces, while the backward still runs.

Use `torch.distributed` with the process group that you are given. Do not assume a backend: gloo has no ReduceOp.AVG,
and tensors may be on a GPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch import nn


def broadcast_module(module: nn.Module, process_group: dist.ProcessGroup | None = None) -> None:
    """Copy the parameters and buffers of the group's first rank into those of all ranks.

    Arguments:
        module: a model of the same structure on every rank: the same parameters and buffers, in the same order, with
            the same shapes and dtypes. The values differ.
        process_group: the ranks that take part. None stands for all of them.

    What must hold:
        - Frozen parameters (requires_grad is False) are copied too.
        - Buffers are copied too, also those of integers or bools.
        - Values are written in place: each parameter and buffer stays the same tensor object.
        - A tensor may be strided, for example transposed. It keeps its strides.
        - The group's first rank has rank 0 in the group. It can have another number among all ranks.

    Hints:
        1. `module.parameters()` and `module.buffers()` give every tensor once.
        2. `dist.broadcast(tensor, group=process_group, group_src=0)` counts ranks within the group; `src` does not.
        3. A broadcast wants contiguous memory, and writes into it: a leaf that requires a gradient needs `detach()`.
        4. Not every backend sends every dtype. All of them send bytes: `tensor.view(torch.uint8)`.
    """
    raise NotImplementedError


def all_reduce_gradients(module: nn.Module, process_group: dist.ProcessGroup | None = None) -> None:
    """Average `.grad` over the ranks, parameter by parameter. It is called after the backward, on all ranks.

    Arguments:
        module: a model of the same structure on every rank. `.grad` of a parameter is None or a dense tensor.
        process_group: the ranks that take part. None stands for all of them.

    What must hold:
        - The average is the sum over all ranks, divided by their number. All ranks get the same one, to the bit.
        - There is one all-reduce of each parameter that has a gradient on at least one rank.
        - A parameter without a gradient on any rank keeps `.grad is None`.
        - A parameter with a gradient on some ranks counts as zero on the others. All ranks get the average.
        - Where `.grad` is a tensor, it stays the same object. Where it is None, a new one is made.
        - Frozen parameters are not touched, and not sent.
        - A parameter with two names (tied) is averaged once.
        - Parameters may have different dtypes. Each gradient is sent in its own.
        - What you send to find out who has a gradient is at most 8 bytes per parameter and 64 bytes.
        - Nothing hangs, whichever gradients are missing on which rank. One rank alone works too.

    Hints:
        1. First, without missing gradients: `dist.all_reduce(grad, group=process_group)`, then divide.
        2. If one rank skips an all-reduce, the others wait for it for ever. So all ranks must know which gradients
           exist.
        3. Make a tensor with a 0 or a 1 for each parameter, and all-reduce it with `dist.ReduceOp.MAX`.
        4. Where a gradient is missing, send zeros.
    """
    raise NotImplementedError


def all_reduce_gradients_flat(module: nn.Module, process_group: dist.ProcessGroup | None = None) -> None:
    """Average `.grad` over the ranks, with one all-reduce per dtype. All that is said of all_reduce_gradients holds.

    All gradients of one dtype that exist on at least one rank are copied into one flat tensor, that is reduced, and the
    averages are copied back. A call has a fixed price: this pays it once, and not for every parameter.

    Hints:
        1. `torch.cat([grad.reshape(-1), ...])` makes the flat tensor.
        2. `flat.split([elements, ...])` cuts it up again. `view_as` gives each piece its shape.
    """
    raise NotImplementedError


class DDP(nn.Module):
    """Wraps a module, and averages its gradients over the ranks while the backward still runs.

        model = DDP(model)
        for x, y in batches:                          # every rank has its own
            optimizer.zero_grad()
            loss(model(x), y).backward()
            model.finish_gradient_synchronization()
            optimizer.step()

    One backward, event by event:
        1. The forward runs. Nothing is sent.
        2. The backward starts at the loss. Gradients appear from the last layer to the first.
        3. When the gradient of a parameter is complete, its hook is called.
        4. The hook of a bucket's last missing parameter completes the bucket. It is copied into a flat tensor.
        5. If all buckets before it have been started, its all-reduce starts, without waiting. So do complete buckets
           after it.
        6. The backward goes on with earlier layers, while the all-reduce runs. Steps 3 to 5 repeat.
        7. `finish_gradient_synchronization` starts what has not been started, with zeros for missing gradients.
        8. It finds out which parameters have a gradient on any rank, and waits for all handles.
        9. It writes the averages into `.grad`, and clears everything for the next step.

    Buckets:
        - Parameters are put into buckets in reverse order of registration: `reversed(list(module.parameters()))`.
        - Parameters that do not require a gradient when DDP is constructed are in no bucket.
        - A bucket holds one dtype. Parameters of each dtype fill buckets of their own.
        - A bucket is closed when the next parameter would make it larger than bucket_bytes.
        - A parameter larger than bucket_bytes has a bucket to itself.
        - All ranks start the buckets in the same order, always. Else they wait for different things.

    What must hold:
        - The averages are those of all_reduce_gradients, with all that is said there of missing gradients, frozen and
          tied parameters, dtypes and the bytes of the flags. After finish_gradient_synchronization all ranks have them.
        - Construction gives all ranks the parameters and buffers of the group's first rank.
        - From one finish_gradient_synchronization to the next, each bucket is sent once.
        - The all-reduce of the last layers is on its way before the first layers have gradients.
        - Ranks may take different branches of the model, and their gradients may be ready in different orders.
        - The second step works, and all later ones.
        - Each finish_gradient_synchronization has one backward outside of no_sync before it.

    Hints:
        1. Write all_reduce_gradients_flat first. finish_gradient_synchronization can call it: that is right, but late.
        2. `parameter.register_post_accumulate_grad_hook(f)` calls f(parameter) when `.grad` is complete. Count there.
        3. `dist.all_reduce(flat, group=..., async_op=True)` returns a handle at once. Keep the handle and the tensor.
        4. Keep the number of buckets that have been started. Start the next one only, while it is complete.
        5. Exchange flags after all buckets have been started: ranks start them at different moments, but the order of
           all calls must be the same.
    """

    def __init__(
        self, module: nn.Module, bucket_bytes: int = 25 * 2**20, process_group: dist.ProcessGroup | None = None
    ) -> None:
        """Wrap `module`, which is kept as the attribute `module`.

        Arguments:
            module: a model of the same structure on every rank. The values are those of the group's first rank.
            bucket_bytes: how many bytes of gradients travel together. It may be smaller than a parameter, or larger
                than the model.
            process_group: the ranks that take part. None stands for all of them.
        """
        raise NotImplementedError

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module with all arguments, and return what it returns, whatever that is."""
        raise NotImplementedError

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards inside `with model.no_sync():` add to the local gradients and send nothing, not even flags.

        The next backward outside, with its finish_gradient_synchronization, averages all that has accumulated, once:
        each bucket is sent once. That includes parameters that only the backwards inside used. After the block
        everything is as before.
        """
        raise NotImplementedError

    def finish_gradient_synchronization(self) -> None:
        """Leave the averages in `.grad`. It is called after the backward, before the optimizer, on all ranks."""
        raise NotImplementedError
