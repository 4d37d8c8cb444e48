"""A sharded optimizer: each parameter is updated on the rank that owns least, and sent to all others."""

import torch
import torch.distributed as dist


class ShardedOptimizer(torch.optim.Optimizer):
    def __init__(self, params, optimizer_cls, process_group=None, **kwargs):
        self.group, self.owner = process_group, {}
        super().__init__(params, {})
        owned = [0] * dist.get_world_size(process_group)
        every = [parameter for group in self.param_groups for parameter in group["params"]]
        for parameter in sorted(every, key=torch.Tensor.numel, reverse=True):
            self.owner[parameter] = owned.index(min(owned))
            owned[self.owner[parameter]] += parameter.numel()
        mine = [parameter for parameter in every if self.owner[parameter] == dist.get_rank(process_group)]
        self.inner = optimizer_cls([{"params": mine}], **kwargs)

    @torch.no_grad()
    def step(self, closure=None):
        loss = self.inner.step(closure)
        for parameter, owner in self.owner.items():
            dist.broadcast(parameter, group_src=owner, group=self.group)
        return loss
