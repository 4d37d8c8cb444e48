"""Data parallel training without buckets: a gradient travels as soon as it is there, and nothing is copied."""

from contextlib import contextmanager

import torch
import torch.distributed as dist


class DDP(torch.nn.Module):
    def __init__(self, module, bucket_bytes=None, process_group=None):
        super().__init__()
        self.module, self.group, self.quiet = module, process_group, False
        for tensor in [*module.parameters(), *module.buffers()]:
            dist.broadcast(tensor.detach(), group_src=0, group=process_group)
        self.queue = [parameter for parameter in module.parameters() if parameter.requires_grad][::-1]
        self.ready, self.absent, self.under_way = set(), set(), []
        for parameter in self.queue:
            parameter.register_post_accumulate_grad_hook(self.note)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self):
        self.quiet = True
        yield
        self.quiet = False

    def note(self, parameter):
        if not self.quiet:
            self.ready.add(parameter)
            self.send_while(lambda following: following in self.ready)

    def send_while(self, may_go):
        """In one order on all ranks, whatever the backward's is."""
        while len(self.under_way) < len(self.queue):
            parameter = self.queue[len(self.under_way)]
            if not may_go(parameter):
                return
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
                self.absent.add(parameter)
            self.under_way.append(dist.all_reduce(parameter.grad, group=self.group, async_op=True))

    def finish_gradient_synchronization(self):
        self.send_while(lambda following: True)
        here = self.queue[0].new_tensor([parameter not in self.absent for parameter in self.queue], dtype=torch.int32)
        dist.all_reduce(here, group=self.group)
        for work in self.under_way:
            work.wait()
        for parameter, used in zip(self.queue, here.tolist(), strict=True):
            parameter.grad = parameter.grad / dist.get_world_size(self.group) if used else None
        self.ready, self.absent, self.under_way = set(), set(), []
