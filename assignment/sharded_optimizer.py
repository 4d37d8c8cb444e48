"""Problem sharded_optimizer: spread the state of an optimizer over the ranks.

AdamW keeps two numbers for every parameter. When every rank updates every parameter, every rank holds all of them. Here
each parameter has one rank that owns it: only the owner holds its state and updates it, and sends the new weights to
the others. Use `torch.distributed` with the process group that you are given. Do not assume a backend.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.optim.optimizer import ParamsT


class ShardedOptimizer(torch.optim.Optimizer):
    """Wraps an optimizer class, so that the state of each parameter lives on one rank.

        optimizer = ShardedOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)

    It holds an inner optimizer of that class for the parameters that this rank owns. Gradients are taken as they are:
    on all ranks the same, because they were averaged before.

    What must hold:
        - After each step all ranks have the same weights, to the bit: those that optimizer_cls alone would have given.
        - The state of a parameter is on its owner only. Each parameter has one owner.
        - Owners are balanced by bytes: no rank has more than 1.25 times an equal share, unless it is one parameter.
          Sort them, largest first, and give each to the rank that owns fewest bytes so far.
        - A step sends each parameter once: about as many bytes as the parameters have.
        - Any subclass of torch.optim.Optimizer works whose `step` needs no closure, also one with state that is not a
          tensor.
        - A rank may own nothing. There may be fewer parameters than ranks.
        - A parameter without a gradient on any rank is left as it is, as optimizer_cls does.
        - Parameter groups have options of their own. What is written into `param_groups` counts from the next step on,
          so that schedulers work.

    Hints:
        1. One group, SGD, and a broadcast per parameter. An inner optimizer takes a group without parameters
           ([{"params": []}]), but not an empty list.
        2. `super().__init__(params, defaults)` accepts all kinds of `params`, and makes `param_groups` of them. It
           calls `add_param_group` for each.
        3. Give the inner optimizer the same groups, with the owned parameters only. Before each step, copy the options
           of your groups into its groups.
        4. If `state` is the inner optimizer's state, the inherited `state_dict` is right already.
        5. Then make large messages of small ones: a flat tensor for each owner and dtype. Think of the memory that it
           takes.
    """

    def __init__(
        self,
        params: ParamsT,
        optimizer_cls: type[torch.optim.Optimizer],
        process_group: dist.ProcessGroup | None = None,
        **kwargs: Any,
    ) -> None:
        """Divide the parameters, and make the inner optimizer.

        Arguments:
            params: parameters, or groups of them (dicts with `params` and options), in a list or from a generator. The
                same on every rank, in the same order.
            optimizer_cls: the class of the inner optimizer, for example torch.optim.AdamW.
            process_group: the ranks that share the state. None stands for all of them.
            kwargs: options for optimizer_cls, for example lr=1e-3. A group may override them.
        """
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, also after some steps. Its parameters get owners in the same way; no other parameter changes
        its.

        Note that torch.optim.Optimizer.__init__ calls this too.
        """
        raise NotImplementedError

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters on all ranks.

        Arguments:
            closure: computes the loss and the gradients, with gradients enabled. It is called exactly once, if given.

        Returns:
            What the closure returned, or None.
        """
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict()` gave, or a copy.deepcopy of it, on the rank that gave it, with as many ranks.

        `state_dict()` has the state of owned parameters only. Loading it into another ShardedOptimizer of the same
        parameters and going on gives the same weights as having gone on.
        """
        raise NotImplementedError
