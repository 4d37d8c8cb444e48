"""Data parallel training: a bucket's gradients are summed as soon as the backward has all of them."""

import torch
import torch.distributed as dist

MIB = 1 << 20


class DDP(torch.nn.Module):
    def __init__(self, module, bucket_bytes=25 * MIB, process_group=None):
        super().__init__()
        self.module, self.group, self.buckets, self.sent = module, process_group, [[]], []
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, group_src=0, group=process_group)
        for parameter in reversed([one for one in module.parameters() if one.requires_grad]):
            if self.buckets[-1] and sum(one.nbytes for one in [*self.buckets[-1], parameter]) > bucket_bytes:
                self.buckets.append([])
            self.buckets[-1].append(parameter)
            parameter.register_post_accumulate_grad_hook(self.arrived)
        self.missing = {one for bucket in self.buckets for one in bucket}

    def forward(self, *arguments, **options):
        return self.module(*arguments, **options)

    def arrived(self, parameter):
        self.missing.discard(parameter)
        while len(self.sent) < len(self.buckets) and self.missing.isdisjoint(self.buckets[len(self.sent)]):
            self.send()

    def send(self):
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in self.buckets[len(self.sent)]])
        self.sent.append((flat, dist.all_reduce(flat, group=self.group, async_op=True)))

    def finish_gradient_synchronization(self):
        for bucket, (flat, work) in zip(self.buckets, self.sent, strict=True):
            work.wait()
            flat /= dist.get_world_size(self.group)
            for parameter, mean in zip(bucket, flat.split([one.numel() for one in bucket]), strict=True):
                parameter.grad = mean.view_as(parameter)
            self.missing.update(bucket)
        self.sent.clear()
