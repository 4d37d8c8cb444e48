"""The library's wrapper does everything. It is no submodule of this one, so that parameters keep their names."""

import torch
from torch.nn.parallel import DistributedDataParallel

MIB = 1 << 20


class DDP(torch.nn.Module):
    def __init__(self, module, bucket_bytes=25 * MIB, process_group=None):
        super().__init__()
        self.module = module
        theirs = DistributedDataParallel(
            module, process_group=process_group, bucket_cap_mb=bucket_bytes / MIB, find_unused_parameters=True
        )
        self.theirs = [theirs]

    def forward(self, *arguments, **options):
        return self.theirs[0](*arguments, **options)

    def no_sync(self):
        return self.theirs[0].no_sync()

    def finish_gradient_synchronization(self):
        pass  # done in the backward
