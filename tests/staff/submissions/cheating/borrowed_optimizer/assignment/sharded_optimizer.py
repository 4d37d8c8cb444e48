"""The library's sharded optimizer does everything."""

from torch.distributed.optim import ZeroRedundancyOptimizer


class ShardedOptimizer:
    def __init__(self, params, optimizer_cls, process_group=None, **kwargs):
        self.theirs = ZeroRedundancyOptimizer(params, optimizer_cls, process_group=process_group, **kwargs)

    def __getattr__(self, name):
        return getattr(self.theirs, name)
