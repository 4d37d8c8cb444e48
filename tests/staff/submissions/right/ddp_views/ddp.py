"""Data parallel training with gradients that are views of flat buckets: what a backward adds to is what is sent."""

from contextlib import contextmanager

import torch
import torch.distributed as dist


class Bucket:
    def __init__(self, parameters):
        self.parameters = parameters
        self.flat = parameters[0].new_zeros(sum(map(torch.Tensor.numel, parameters)), requires_grad=False)
        pieces = self.flat.split([*map(torch.Tensor.numel, parameters)])
        self.views = {one: piece.view_as(one) for one, piece in zip(parameters, pieces, strict=True)}
        self.empty()

    def empty(self):
        self.missing, self.work = set(self.parameters), None

    def take(self, parameter):
        """Its gradient becomes a view of this bucket."""
        view = self.views[parameter]
        if parameter.grad is None:
            view.zero_()
        elif parameter.grad is not view:
            view.copy_(parameter.grad)
            parameter.grad = view

    def send(self, group):
        for parameter in self.parameters:
            self.take(parameter)
        self.work = dist.all_reduce(self.flat, group=group, async_op=True)


def buckets_of(parameters, most):
    members, size = [], 0
    for parameter in parameters:
        if members and (size + parameter.nbytes > most or members[0].dtype != parameter.dtype):
            yield Bucket(members)
            members, size = [], 0
        members.append(parameter)
        size += parameter.nbytes
    yield Bucket(members)


class DDP(torch.nn.Module):
    def __init__(self, module, bucket_bytes=25 << 20, process_group=None):
        super().__init__()
        self.module, self.group, self.sends = module, process_group, True
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, group_src=0, group=process_group)
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.buckets = [*buckets_of(reversed(trained), bucket_bytes)]
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(lambda one, bucket=bucket: self.note(one, bucket))

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self):
        self.sends = False
        yield
        self.sends = True

    def note(self, parameter, bucket):
        if self.sends:
            bucket.missing.discard(parameter)
            for following in self.buckets:
                if following.missing:
                    return
                if following.work is None:
                    following.send(self.group)

    def finish_gradient_synchronization(self):
        every = [parameter for bucket in self.buckets for parameter in bucket.parameters]
        used = every[0].new_tensor([parameter.grad is not None for parameter in every], dtype=torch.int32)
        for bucket in self.buckets:
            if bucket.work is None:
                bucket.send(self.group)
        dist.all_reduce(used, op=dist.ReduceOp.MAX, group=self.group)
        somewhere = {parameter for parameter, flag in zip(every, used.tolist(), strict=True) if flag}
        for bucket in self.buckets:
            bucket.work.wait()
            bucket.flat /= dist.get_world_size(self.group)
            for parameter, view in bucket.views.items():
                parameter.grad = view if parameter in somewhere else None
            bucket.empty()
