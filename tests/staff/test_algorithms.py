"""The handout's algorithms: `algorithms.py` follows them step by step, and they are right."""

import math
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.staff import algorithms
from tests.staff.conftest import ROOT, STAFF

FLOAT16 = torch.float16
CLOSE = {torch.float32: 2e-5, FLOAT16: 4e-3}


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape).to(dtype)


def assert_close(got: Tensor, right: Tensor) -> None:
    """Right everywhere but for a few roundings, relative to the element or to the answer's rms, whichever is larger."""
    assert got.shape == right.shape
    right = right.double()
    rms = right.square().mean().sqrt() if right.any() else torch.tensor(1.0)
    assert ((got.double() - right).abs() <= CLOSE[got.dtype] * right.abs().clamp(min=rms)).all()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# Steps


def steps_of_handout() -> list[tuple[str, str]]:
    """Name and text of each step, in their order; the blanks before a text show how deep it is."""
    blocks = re.findall(r"^```text\n(.*?)^```", (ROOT / "handout.md").read_text(), re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [(found[1], found[2]) for line in lines if (found := re.fullmatch(r"([A-Z]\d+) +(\S.*)", line))]


def steps_of_file() -> dict[str, str]:
    """The same from comments."""
    comments = re.findall(r"^ *# ([A-Z]\d+) +(\S.*)$", (STAFF / "algorithms.py").read_text(), re.MULTILINE)
    assert len(dict(comments)) == len(comments), "a step stands in two places"
    return dict(comments)


def test_the_steps_of_handout_and_file_are_the_same_word_for_word():
    assert dict(steps_of_handout()) == steps_of_file()


def test_the_steps_of_an_algorithm_are_numbered_in_their_order():
    names = [name for name, _ in steps_of_handout()]
    for letter in {name[0] for name in names}:
        numbers = [int(name[1:]) for name in names if name[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1)), letter


# Kernels


@pytest.mark.parametrize("elements", [0, 1, 255, 256, 1000])
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_gelu(elements, dtype):
    x = 3 * normal(elements, dtype=dtype)
    assert_close(algorithms.gelu(x, 256), nn.functional.gelu(x.double(), approximate="tanh"))


@pytest.mark.parametrize("x", [100.0, -100.0, 3e38, -3e38])
def test_gelu_of_a_large_number_is_that_number_or_zero(x):
    assert algorithms.gelu(torch.tensor([x]), 16).equal(torch.tensor([max(x, 0.0)]))


STRIDES = [("contiguous", (100, 1)), ("every other column", (200, 2)), ("transposed", (1, 5)), ("expanded", (0, 1))]


def with_strides(x: Tensor, strides: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """A flat memory, NaN but for a matrix at these strides, and that matrix."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, strides, strict=True))
    memory = torch.full((reach,), math.nan, dtype=x.dtype)
    view = memory.as_strided(x.shape, strides)
    for row, values in enumerate(x):  # one after another: expanded rows lie over each other
        view[row] = values
    return memory, view


@pytest.mark.parametrize(("layout", "strides"), STRIDES)
@pytest.mark.parametrize("B", [16, 32, 128])
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_softmax_of_rows_in_any_layout_with_one_block_or_several(layout, strides, B, dtype):
    memory, x = with_strides(10 * normal(5, 100, dtype=dtype), strides)
    assert_close(algorithms.softmax(memory, 5, 100, strides, B), x.double().softmax(-1))


def test_softmax_where_blocks_or_a_whole_row_are_minus_infinity():
    x = normal(3, 100)
    x[0, :70] = -math.inf
    x[1, ::3] = -math.inf
    x[2] = -math.inf
    y = algorithms.softmax(x.flatten(), 3, 100, (100, 1), 32)
    assert_close(y[:2], x[:2].double().softmax(-1))
    assert y[2].isnan().all()


@pytest.mark.parametrize(("layout", "strides"), STRIDES)
@pytest.mark.parametrize("B", [32, 128])
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_softmax_gradient(layout, strides, B, dtype):
    x = normal(5, 100).double().requires_grad_()
    y = x.softmax(-1)
    memory, dy = with_strides(normal(5, 100, dtype=dtype), strides)
    [right] = torch.autograd.grad(y, x, dy.double())
    assert_close(algorithms.softmax_gradient(y.detach().to(dtype), memory, strides, B), right)


@pytest.mark.parametrize(("M", "N", "K"), [(100, 70, 50), (1, 33, 17), (5, 200, 3), (64, 64, 64), (8, 9, 0)])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_matmul(M, N, K, transposed, dtype):
    a, b = (normal(*s[::-1], dtype=dtype).T if t else normal(*s, dtype=dtype)
            for s, t in zip(((M, K), (K, N)), transposed, strict=True))  # fmt: skip
    memories = [(x.T if t else x).flatten() for x, t in zip((a, b), transposed, strict=True)]
    got = algorithms.matmul(*memories, (M, N, K), (*a.stride(), *b.stride()), (32, 16, 16), 2, torch.relu)
    assert_close(got, (a.double() @ b.double()).relu())


@pytest.mark.parametrize(("tiles_m", "tiles_n", "G"), [(3, 4, 2), (9, 9, 3), (1, 5, 8), (7, 2, 3), (16, 1, 4)])
def test_every_tile_has_one_program_and_a_group_is_finished_before_the_next_one(tiles_m, tiles_n, G):
    tiles = [algorithms.tile_of(program, tiles_m, tiles_n, G) for program in range(tiles_m * tiles_n)]
    assert sorted(tiles) == [(m, n) for m in range(tiles_m) for n in range(tiles_n)]
    groups = [m // G for m, _ in tiles]
    assert groups == sorted(groups)


def test_the_order_of_the_picture_and_of_the_text():
    """Three rows of four tiles in groups of two; and 9 programs of 9 x 9 tiles, which need 54 tiles, not 90."""
    numbers = {algorithms.tile_of(program, 3, 4, 2): program for program in range(12)}
    assert [[numbers[m, n] for n in range(4)] for m in range(3)] == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 9, 10, 11]]
    first = [algorithms.tile_of(program, 9, 9, 3) for program in range(9)]
    assert 9 * (len({m for m, _ in first}) + len({n for _, n in first})) == 54


HEADS = [(64, 64, 16), (100, 100, 8), (33, 70, 48), (70, 33, 5), (1, 50, 16), (50, 1, 16), (4, 0, 8), (0, 4, 8)]
TILES = [(16, 16), (32, 16), (16, 64)]


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float, is_causal: bool) -> tuple[Tensor, Tensor]:
    """o and lse in one piece."""
    scores = scale * (q @ k.T)
    if is_causal:
        scores = scores.masked_fill(torch.ones(scores.shape).triu(1).bool(), -math.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@pytest.mark.parametrize(("n_q", "n_k", "d"), HEADS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("tile", TILES)
def test_attention_forward(n_q, n_k, d, is_causal, tile):
    q, k, v = 5 * normal(n_q, d), normal(n_k, d), normal(n_k, d)
    o, lse = algorithms.attention_forward(q, k, v, 0.3, is_causal, tile)
    right_o, right_lse = attention(q.double(), k.double(), v.double(), 0.3, is_causal)
    assert_close(o, right_o)
    if n_k:
        assert_close(lse, right_lse)
    else:
        assert (lse == -math.inf).all()


@pytest.mark.parametrize(("n_q", "n_k", "d"), HEADS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("tile", TILES)
def test_attention_backward(n_q, n_k, d, is_causal, tile):
    given = [normal(n_q, d), normal(n_k, d), normal(n_k, d)]
    q, k, v = (x.double().requires_grad_() for x in given)
    o, lse = attention(q, k, v, 0.3, is_causal)
    do = normal(n_q, d)
    right = torch.autograd.grad(o, (q, k, v), do.double(), allow_unused=True, materialize_grads=True)
    arguments = (do, *given, o.detach().float(), lse.detach().float(), 0.3, is_causal, tile)
    got = algorithms.attention_backward_queries(*arguments), *algorithms.attention_backward_keys(*arguments)
    for gradient, expected in zip(got, right, strict=True):
        assert_close(gradient, expected)


def test_attention_in_float16():
    given = [normal(100, 32, dtype=FLOAT16) for _ in range(4)]
    q, k, v = (x.double().requires_grad_() for x in given[:3])
    o, lse = attention(q, k, v, 0.2, True)
    right = torch.autograd.grad(o, (q, k, v), given[3].double())
    got_o, got_lse = algorithms.attention_forward(*given[:3], 0.2, True, (32, 16))
    assert_close(got_o, o.detach())
    assert_close(got_lse, lse.detach())
    arguments = (given[3], *given[:3], got_o, got_lse, 0.2, True, (32, 16))
    got = algorithms.attention_backward_queries(*arguments), *algorithms.attention_backward_keys(*arguments)
    for gradient, expected in zip(got, right, strict=True):
        assert_close(gradient, expected)


# Ranks


def on_ranks(world: int, work: Callable[[int, algorithms.Network], Any]) -> tuple[list[Any], algorithms.Network]:
    """What a function gives on each of several ranks, and the network between them."""
    network, results = algorithms.Network(world), [None] * world

    def run(rank: int) -> None:
        results[rank] = work(rank, network)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in results, "a rank failed"
    return results, network


class Forked(nn.Module):
    """A layer, one of two branches, a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.left, self.right, self.last = (nn.Linear(6, 6) for _ in range(4))
        self.first.bias.requires_grad_(False)

    def forward(self, x: Tensor, branch: str) -> Tensor:
        return self.last(getattr(self, branch)(self.first(x).tanh()).tanh())


WAYS = [("left", "left"), ("left", "right"), ("right", "left", "left")]


def gradients(model: nn.Module) -> list[Tensor | None]:
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize("bucket_bytes", [1, 300, 10**9])
@pytest.mark.parametrize("local", [False, True], ids=["each backward sent", "one backward in no_sync before"])
def test_data_parallel_training_equals_one_process_with_all_batches(ways, bucket_bytes, local):
    torch.manual_seed(1)
    models = [Forked() for _ in ways]
    batches = [[normal(3, 6) for _ in range(2)] for _ in ways]
    whole = Forked()
    whole.load_state_dict(models[0].state_dict())
    whole.double()
    for way, parts in zip(ways, batches, strict=True):
        for part in parts if local else parts[1:]:
            (whole(part.double(), way).sum() / len(ways)).backward()

    def train(rank: int, network: algorithms.Network) -> list[Tensor | None]:
        parallel = algorithms.DataParallel(models[rank], bucket_bytes, rank, network)
        if local:
            with parallel.no_sync():
                models[rank](batches[rank][0], ways[rank]).sum().backward()
        models[rank](batches[rank][1], ways[rank]).sum().backward()
        parallel.finish_gradient_synchronization()
        return gradients(models[rank])

    results, _ = on_ranks(len(ways), train)
    for result in results:
        for got, right in zip(result, gradients(whole), strict=True):
            assert (got is None) == (right is None)
            if right is not None:
                assert_close(got, right)


def test_buckets_are_sent_during_the_backward_and_each_once():
    seen = []

    def train(rank: int, network: algorithms.Network) -> bool:
        model = nn.Sequential(*(nn.Linear(4, 4, bias=False) for _ in range(4)))
        parallel = algorithms.DataParallel(model, 64, rank, network)
        before = len(network.calls[rank])
        model[0].weight.register_hook(lambda gradient: seen.append(len(network.calls[rank]) - before))
        model(normal(2, 4)).sum().backward()
        parallel.finish_gradient_synchronization()
        assert network.calls[rank][before:] == [16, 16, 16, 16, 4]  # a bucket a layer, and a flag for each
        return True

    on_ranks(2, train)
    assert seen == [3, 3]  # the buckets of three layers are under way before the first layer has a gradient


def test_a_bucket_holds_one_dtype_and_no_more_than_it_may():
    kinds = [(10, torch.float32), (10, FLOAT16), (10, torch.float32), (90, torch.float32), (5, FLOAT16)]
    parameters = [nn.Parameter(torch.zeros(elements, dtype=dtype)) for elements, dtype in kinds]
    buckets = algorithms.fill(iter(parameters), 100)
    assert [[p.numel() for p in bucket] for bucket in buckets] == [[10, 10], [90], [10, 5]]


def test_owners_are_those_of_the_example_in_the_handout():
    sizes = [900, 500, 400, 80, 70]
    found = algorithms.owners([torch.zeros(size, dtype=torch.uint8) for size in sizes], 2)
    owned = [[size for size, owner in zip(sizes, found, strict=True) if owner == rank] for rank in range(2)]
    assert owned == [[900, 80], [500, 400, 70]]


@pytest.mark.parametrize("world", [1, 2, 3, 6])
def test_a_sharded_optimizer_equals_the_optimizer_itself(world):
    shapes = [(4, 3), (3,), (5, 4), (5,)]
    start, steps = [normal(*shape) for shape in shapes], [[normal(*shape) for shape in shapes] for _ in range(4)]

    def train(optimizer_of: Callable[[list[dict[str, Any]]], Any]) -> list[Tensor]:
        parameters = [nn.Parameter(values.clone()) for values in start]
        optimizer = optimizer_of([{"params": parameters[:2], "weight_decay": 0.3}, {"params": parameters[2:]}])
        for number, of_step in enumerate(steps):
            for group in optimizer.param_groups:
                group["lr"] = 0.1 / (1 + number)  # as a scheduler does
            for parameter, gradient in zip(parameters, of_step, strict=True):
                parameter.grad = gradient.clone()
            assert optimizer.step(lambda: 7.0) == 7.0
        return [parameter.detach() for parameter in parameters]

    right = train(lambda groups: torch.optim.AdamW(groups, lr=1.0))
    results, _ = on_ranks(
        world, lambda rank, network: train(
            lambda groups: algorithms.Sharded(groups, torch.optim.AdamW, rank, network, lr=1.0))
    )  # fmt: skip
    for result in results:
        assert all(torch.equal(got, expected) for got, expected in zip(result, right, strict=True))


def test_the_state_of_a_parameter_is_on_its_owner_only():
    def states(rank: int, network: algorithms.Network) -> list[int]:
        parameters = [nn.Parameter(normal(n)) for n in (8, 7, 6)]
        optimizer = algorithms.Sharded([{"params": parameters}], torch.optim.AdamW, rank, network, lr=0.1)
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()
        return [n for n, parameter in enumerate(parameters) if parameter in optimizer.inner.state]

    results, _ = on_ranks(2, states)
    assert results == [[0], [1, 2]]
