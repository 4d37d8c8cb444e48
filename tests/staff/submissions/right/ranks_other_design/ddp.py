"""Data parallel training by reduce-scatter and all-gather. Who has used what is gathered, not reduced."""

import contextlib

import torch
import torch.distributed as dist


def ranks_of(group):
    return dist.get_process_group_ranks(group or dist.group.WORLD)


def broadcast_module(module, process_group=None):
    first = ranks_of(process_group)[0]
    with torch.no_grad():
        for tensor in [*module.parameters(), *module.buffers()]:
            copy = tensor.detach().clone().contiguous()
            dist.broadcast(copy, first, group=process_group)
            tensor.copy_(copy)


def used_anywhere(parameters, group):
    mine = torch.tensor([p.grad is not None for p in parameters], dtype=torch.int32)
    all_of_them = [torch.empty_like(mine) for _ in ranks_of(group)]
    dist.all_gather(all_of_them, mine, group=group)
    return torch.stack(all_of_them).any(0).tolist()


class Flight:
    """Some parameters' gradients on their way through a reduce-scatter, and then an all-gather."""

    def __init__(self, parameters, group):
        self.parameters, self.group = parameters, group
        self.world = len(ranks_of(group))
        pieces = [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in parameters]
        flat = torch.cat(pieces).detach()
        self.count = flat.numel()
        self.flat = torch.nn.functional.pad(flat, (0, -self.count % self.world))
        self.part = self.flat.new_empty(self.flat.numel() // self.world)
        self.work = dist.reduce_scatter_tensor(self.part, self.flat, group=group, async_op=True)

    def arrive(self):
        self.work.wait()
        self.part /= self.world
        dist.all_gather_into_tensor(self.flat, self.part, group=self.group)
        return zip(self.parameters, self.flat[: self.count].split([p.numel() for p in self.parameters]), strict=True)


def write_back(flights, used):
    with torch.no_grad():
        for flight in flights:
            for parameter, average in flight.arrive():
                if used[parameter]:
                    if parameter.grad is None:
                        parameter.grad = torch.zeros_like(parameter)
                    parameter.grad.copy_(average.reshape(parameter.shape))


def reduce_together(module, group, packed):
    parameters = [p for p in module.parameters() if p.requires_grad]
    used = dict(zip(parameters, used_anywhere(parameters, group), strict=True))
    parameters = [p for p in parameters if used[p]]
    packs = {}
    for number, parameter in enumerate(parameters):
        packs.setdefault(parameter.dtype if packed else number, []).append(parameter)
    write_back([Flight(pack, group) for pack in packs.values()], used)


def all_reduce_gradients(module, process_group=None):
    reduce_together(module, process_group, packed=False)


def all_reduce_gradients_flat(module, process_group=None):
    reduce_together(module, process_group, packed=True)


class DDP(torch.nn.Module):
    def __init__(self, module, bucket_bytes=1 << 24, process_group=None):
        super().__init__()
        self.module, self.group, self.quiet = module, process_group, False
        broadcast_module(module, process_group)
        self.trained = [p for p in module.parameters() if p.requires_grad]
        self.packs = [[]]
        for parameter in reversed(self.trained):
            last = self.packs[-1]
            size = sum(p.nbytes for p in last)
            if last and (size + parameter.nbytes > bucket_bytes or last[0].dtype != parameter.dtype):
                self.packs.append([])
            self.packs[-1].append(parameter)
        self.begin()
        for parameter in self.trained:
            parameter.register_post_accumulate_grad_hook(self.arrived)

    def begin(self):
        self.flights, self.here = [], set()

    def forward(self, *arguments, **options):
        return self.module(*arguments, **options)

    @contextlib.contextmanager
    def no_sync(self):
        self.quiet = True
        try:
            yield
        finally:
            self.quiet = False

    def arrived(self, parameter):
        if self.quiet:
            return
        self.here.add(parameter)
        while len(self.flights) < len(self.packs) and self.here.issuperset(self.packs[len(self.flights)]):
            self.launch()

    def launch(self):
        self.flights.append(Flight(self.packs[len(self.flights)], self.group))

    def finish_gradient_synchronization(self):
        if not self.trained:
            return
        while len(self.flights) < len(self.packs):
            self.launch()
        used = dict(zip(self.trained, used_anywhere(self.trained, self.group), strict=True))
        write_back(self.flights, used)
        self.begin()
