"""A sharded optimizer that gathers flat shares. Its inner optimizer has the very dicts of options of its own groups."""

import torch
import torch.distributed as dist
from torch.optim import Optimizer


class ShardedOptimizer(Optimizer):
    def __init__(self, params, optimizer_cls, process_group=None, **kwargs):
        self.group = process_group
        self.rank, self.world = dist.get_rank(process_group), dist.get_world_size(process_group)
        self.load, self.home, self.inner = [0] * self.world, {}, None
        self.optimizer_cls, self.kwargs = optimizer_cls, kwargs
        super().__init__(params, {})

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for parameter in sorted(group["params"], key=lambda p: -p.numel()):
            home = min(range(self.world), key=lambda rank: self.load[rank])
            self.home[parameter] = home
            self.load[home] += parameter.numel()
        mine = [p for p in group["params"] if self.home[p] == self.rank]
        options = {name: value for name, value in group.items() if name != "params"}
        if self.inner is None:
            self.inner = self.optimizer_cls([{**options, "params": mine}], **self.kwargs)
        else:
            self.inner.add_param_group({**options, "params": mine})
        for name, value in self.inner.param_groups[-1].items():
            group.setdefault(name, value)

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            inner.update({name: value for name, value in group.items() if name != "params"})
        self.inner.step()
        self.exchange()
        return loss

    @torch.no_grad()
    def exchange(self):
        shares = [[p for p in self.home if self.home[p] == rank] for rank in range(self.world)]
        longest = max(sum(p.numel() for p in share) for share in shares)
        flat = torch.zeros(longest)
        mine = [p.flatten() for p in shares[self.rank]]
        if mine:
            flat[: sum(map(len, mine))] = torch.cat(mine)
        everybody = [torch.empty_like(flat) for _ in shares]
        dist.all_gather(everybody, flat, group=self.group)
        for rank, share in enumerate(shares):
            at = 0
            for parameter in share if rank != self.rank else ():
                parameter.copy_(everybody[rank][at : at + parameter.numel()].reshape(parameter.shape))
                at += parameter.numel()

    def state_dict(self):
        return {"mine": self.inner.state_dict()}

    def load_state_dict(self, state_dict):
        self.inner.load_state_dict(state_dict["mine"])
