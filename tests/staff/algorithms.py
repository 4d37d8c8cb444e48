"""The handout's algorithms in plain PyTorch, line by line: a loop stands for the programs of a launch.

A comment is a step of the handout, word for word, and the line below it does what it says: `test_algorithms.py` holds
both together, and shows that the algorithms are right. Memory is flat, as a kernel sees it: `load` and `store` take
addresses and what exists of them. Ranks are threads, and `Network` is what lies between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition
from typing import Any

import torch
from torch import Tensor, nn

INFINITY = math.inf
WAIT_S = 20.0  # for other ranks


def load(memory: Tensor, address: Tensor, exists: Tensor, other: float = 0.0) -> Tensor:
    """What lies at these addresses where `exists`, and `other` elsewhere. An address outside of the memory raises."""
    values = torch.full(address.shape, other, dtype=memory.dtype)
    values[exists] = memory[address[exists]]
    return values


def store(memory: Tensor, address: Tensor, values: Tensor, exists: Tensor) -> None:
    """Write where `exists`, rounded to the dtype of the memory."""
    memory[address[exists]] = values[exists].to(memory.dtype)


def unwritten(*shape: int, dtype: torch.dtype) -> Tensor:
    """Fresh memory: NaN, so that what is never written shows."""
    return torch.full(shape, math.nan, dtype=dtype)


def gelu(x: Tensor, B: int) -> Tensor:
    """x: (elements,), contiguous. B elements a program."""
    elements, y_memory = len(x), unwritten(len(x), dtype=x.dtype)
    for program in range(math.ceil(elements / B)):
        # E1  i = program · B + (0, 1, … B − 1)
        i = program * B + torch.arange(B)
        # E2  x = load element i, where i < elements; convert to float32
        value = load(x, i, i < elements).float()
        # E3  u = √(2/π) · (x + 0.044715 · x³)
        u = math.sqrt(2 / math.pi) * (value + 0.044715 * value * value * value)
        # E4  y = x / (1 + exp(−2u))
        y = value / (1 + torch.exp(-2 * u))
        # E5  round y to the dtype, store it at element i, where i < elements
        store(y_memory, i, y, i < elements)
    return y_memory


def softmax(memory: Tensor, rows: int, columns: int, strides: tuple[int, int], B: int) -> Tensor:
    """Rows and columns at these strides of a flat memory. A program for each row, in blocks of B columns."""
    y_memory = unwritten(rows * columns, dtype=memory.dtype)
    for row in range(rows):
        # S1  m = −∞, l = 0
        m, weights = torch.tensor(-INFINITY), torch.tensor(0.0)
        # S2  for start = 0, B, 2B, … below columns:
        for start in range(0, columns, B):
            # S3      j = start + (0, 1, … B − 1)
            j = start + torch.arange(B)
            # S4      x = load element j of the row, −∞ where j ≥ columns; convert to float32
            x = load(memory, row * strides[0] + j * strides[1], j < columns, other=-INFINITY).float()
            # S5      n = max(m, maximum of x);  z = n, or 0 where n is −∞
            n = torch.maximum(m, x.max())
            z = torch.where(n == -INFINITY, 0.0, n)
            # S6      l = l · exp(m − z) + sum of exp(x − z);  m = n
            weights = weights * torch.exp(m - z) + torch.exp(x - z).sum()
            m = n
        # S7  for start = 0, B, 2B, … below columns:
        for start in range(0, columns, B):
            # S8      j and x as in S3 and S4
            j = start + torch.arange(B)
            x = load(memory, row * strides[0] + j * strides[1], j < columns, other=-INFINITY).float()
            # S9      round exp(x − m) / l to the dtype, store it at element j of the row, where j < columns
            store(y_memory, row * columns + j, torch.exp(x - m) / weights, j < columns)
    return y_memory.reshape(rows, columns)


def softmax_gradient(y: Tensor, dy: Tensor, strides: tuple[int, int], B: int) -> Tensor:
    """y: (rows, columns), contiguous; dy: a flat memory with the same at these strides."""
    (rows, columns), y_memory, dx_memory = y.shape, y.flatten(), unwritten(y.numel(), dtype=y.dtype)
    for row in range(rows):
        # T1  s = 0
        s = torch.tensor(0.0)
        # T2  for start = 0, B, 2B, … below columns:
        for start in range(0, columns, B):
            # T3      load y and dy of this block, each by its own strides, 0 where j ≥ columns; to float32
            j = start + torch.arange(B)
            y_block = load(y_memory, row * columns + j, j < columns).float()
            dy_block = load(dy, row * strides[0] + j * strides[1], j < columns).float()
            # T4      s = s + sum of dy · y
            s = s + (dy_block * y_block).sum()
        # T5  for start = 0, B, 2B, … below columns:
        for start in range(0, columns, B):
            # T6      load y and dy again
            j = start + torch.arange(B)
            y_block = load(y_memory, row * columns + j, j < columns).float()
            dy_block = load(dy, row * strides[0] + j * strides[1], j < columns).float()
            # T7      round y · (dy − s) to the dtype, store it, where j < columns
            store(dx_memory, row * columns + j, y_block * (dy_block - s), j < columns)
    return dx_memory.reshape(rows, columns)


def tile_of(program: int, tiles_m: int, tiles_n: int, G: int) -> tuple[int, int]:
    """Row and column, in tiles, of the tile of a program: columns of G tiles each, group after group."""
    # M1  first = ⌊program / (G · tiles_n)⌋ · G
    first = program // (G * tiles_n) * G
    # M2  height = min(G, tiles_m − first)
    height = min(G, tiles_m - first)
    # M3  rest = program − first · tiles_n
    rest = program - first * tiles_n
    # M4  my tile: row first + rest mod height, column ⌊rest / height⌋
    return first + rest % height, rest // height


def matmul(
    a: Tensor, b: Tensor, sizes: tuple[int, int, int], strides: tuple[int, int, int, int],
    tile: tuple[int, int, int], G: int, activation: Callable[[Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """a, b: flat memories with (M, K) and (K, N) at the four strides. A program for each tile of the result."""
    (M, N, K), (BM, BN, BK) = sizes, tile
    tiles_m, tiles_n = math.ceil(M / BM), math.ceil(N / BN)
    c_memory = unwritten(M * N, dtype=a.dtype)
    for program in range(tiles_m * tiles_n):
        tile_row, tile_column = tile_of(program, tiles_m, tiles_n, G)
        # M5  m = my row · BM + (0 … BM − 1), a column;  n = my column · BN + (0 … BN − 1), a row
        m = (tile_row * BM + torch.arange(BM))[:, None]
        n = (tile_column * BN + torch.arange(BN))[None, :]
        # M6  c = zeros, BM × BN, float32
        c = torch.zeros(BM, BN)
        # M7  for start = 0, BK, 2·BK, … below K:
        for start in range(0, K, BK):
            # M8      k = start + (0 … BK − 1), a row for a and a column for b
            k = start + torch.arange(BK)
            # M9      load the tile of a, BM × BK, where m < M and k < K; 0 elsewhere
            a_tile = load(a, m * strides[0] + k[None, :] * strides[1], (m < M) & (k[None, :] < K))
            # M10     load the tile of b, BK × BN, where k < K and n < N; 0 elsewhere
            b_tile = load(b, k[:, None] * strides[2] + n * strides[3], (k[:, None] < K) & (n < N))
            # M11     c = c + (tile of a) · (tile of b), in float32
            c = c + a_tile.float() @ b_tile.float()
        # M12 c = activation(c)
        c = activation(c)
        # M13 round c to the dtype, store it where m < M and n < N
        store(c_memory, m * N + n, c, (m < M) & (n < N))
    return c_memory.reshape(M, N)


def rows_of(x: Tensor, first: int, size: int) -> Tensor:
    """Rows of a (rows, ...) tensor; those that do not exist are 0."""
    i = first + torch.arange(size)
    found = torch.zeros(size, *x.shape[1:], dtype=x.dtype)
    found[i < len(x)] = x[i[i < len(x)]]
    return found


def store_rows(memory: Tensor, first: int, values: Tensor) -> None:
    """Write those rows that exist."""
    memory[first : first + len(values)] = values[: max(0, len(memory) - first)].to(memory.dtype)


def hidden(i: Tensor, j: Tensor, n_k: int, is_causal: bool) -> Tensor:
    """Which keys j a query i does not see, (queries, keys): they do not exist, or come later."""
    beyond = (j >= n_k).expand(len(i), len(j))
    return beyond | (j > i[:, None]) if is_causal else beyond


def attention_forward(
    q: Tensor, k: Tensor, v: Tensor, scale: float, is_causal: bool, tile: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """One head: q (n_q, d), k and v (n_k, d). A program for each tile of BQ queries."""
    (n_q, d), n_k, (BQ, BK) = q.shape, len(k), tile
    o_memory, lse_memory = unwritten(n_q, d, dtype=q.dtype), unwritten(n_q, dtype=torch.float32)
    for first in range(0, n_q, BQ):
        # F1  i = first + (0 … BQ − 1);  load q, BQ × d, rows from n_q on as 0
        i = first + torch.arange(BQ)
        q_tile = rows_of(q, first, BQ)
        # F2  m = −∞ and l = 0, BQ numbers each;  a = 0, BQ × d;  all float32
        m, weights, a = torch.full((BQ,), -INFINITY), torch.zeros(BQ), torch.zeros(BQ, d)
        # F3  end = n_k;  if causal, end = min(n_k, first + BQ)
        end = min(n_k, first + BQ) if is_causal else n_k
        # F4  for start = 0, BK, 2·BK, … below end:
        for start in range(0, end, BK):
            # F5      j = start + (0 … BK − 1);  load k and v, BK × d, rows from n_k on as 0
            j = start + torch.arange(BK)
            k_tile, v_tile = rows_of(k, start, BK), rows_of(v, start, BK)
            # F6      s = scale · q kᵀ, BQ × BK
            s = scale * (q_tile.float() @ k_tile.float().T)
            # F7      s = −∞ where j ≥ n_k, and if causal where j > i
            s = s.masked_fill(hidden(i, j, n_k, is_causal), -INFINITY)
            # F8      n = max(m, maximum of each row of s)
            n = torch.maximum(m, s.amax(1))
            # F9      p = exp(s − n);  shrink = exp(m − n)
            p, shrink = torch.exp(s - n[:, None]), torch.exp(m - n)
            # F10     l = l · shrink + sum of each row of p
            weights = weights * shrink + p.sum(1)
            # F11     a = a · shrink + p v, with p rounded to the dtype of v
            a = a * shrink[:, None] + p.to(v.dtype).float() @ v_tile.float()
            # F12     m = n
            m = n
        # F13 o = a / l, and 0 where l = 0;  lse = m + log l
        o = a / torch.where(weights == 0, 1.0, weights)[:, None]
        lse = m + torch.log(weights)
        # F14 store the rows i < n_q of o, rounded to the dtype, and of lse
        store_rows(o_memory, first, o)
        store_rows(lse_memory, first, lse)
    return o_memory, lse_memory


def row_products(do: Tensor, o: Tensor) -> Tensor:
    """What both backward algorithms need of each query."""
    # D1  D = sum of each row of do ∘ o, in float32
    return (do.float() * o.float()).sum(1)


def attention_backward_queries(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, scale: float, is_causal: bool,
    tile: tuple[int, int],
) -> Tensor:  # fmt: skip
    """dq of one head. A program for each tile of BQ queries."""
    (n_q, d), n_k, (BQ, BK) = q.shape, len(k), tile
    dq_memory, products = unwritten(n_q, d, dtype=q.dtype), row_products(do, o)
    for first in range(0, n_q, BQ):
        # Q1  i = first + (0 … BQ − 1);  load q, do, lse and D, rows from n_q on as 0
        i = first + torch.arange(BQ)
        q_tile, do_tile = rows_of(q, first, BQ), rows_of(do, first, BQ)
        lse_tile, D = rows_of(lse, first, BQ), rows_of(products, first, BQ)
        # Q2  dq = 0, BQ × d, float32;  end as in F3
        dq, end = torch.zeros(BQ, d), min(n_k, first + BQ) if is_causal else n_k
        # Q3  for start = 0, BK, 2·BK, … below end:
        for start in range(0, end, BK):
            # Q4      j = start + (0 … BK − 1);  load k and v, rows from n_k on as 0
            j = start + torch.arange(BK)
            k_tile, v_tile = rows_of(k, start, BK), rows_of(v, start, BK)
            # Q5      p = exp(scale · q kᵀ − lse), and 0 where F7 has −∞
            p = torch.exp(scale * (q_tile.float() @ k_tile.float().T) - lse_tile[:, None])
            p = p.masked_fill(hidden(i, j, n_k, is_causal), 0.0)
            # Q6      dp = do vᵀ
            dp = do_tile.float() @ v_tile.float().T
            # Q7      ds = p ∘ (dp − D)
            ds = p * (dp - D[:, None])
            # Q8      dq = dq + ds k, with ds rounded to the dtype of k
            dq = dq + ds.to(k.dtype).float() @ k_tile.float()
        # Q9  store the rows i < n_q of scale · dq, rounded to the dtype
        store_rows(dq_memory, first, scale * dq)
    return dq_memory


def attention_backward_keys(
    do: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, scale: float, is_causal: bool,
    tile: tuple[int, int],
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """dk and dv of one head. A program for each tile of BK keys."""
    (n_q, d), n_k, (BQ, BK) = q.shape, len(k), tile
    dk_memory, dv_memory = unwritten(n_k, d, dtype=k.dtype), unwritten(n_k, d, dtype=v.dtype)
    products = row_products(do, o)
    for first in range(0, n_k, BK):
        # K1  j = first + (0 … BK − 1);  load k and v, rows from n_k on as 0
        j = first + torch.arange(BK)
        k_tile, v_tile = rows_of(k, first, BK), rows_of(v, first, BK)
        # K2  dk = dv = 0, BK × d, float32;  begin = 0;  if causal, begin = ⌊first / BQ⌋ · BQ
        dk, dv = torch.zeros(BK, d), torch.zeros(BK, d)
        begin = first // BQ * BQ if is_causal else 0
        # K3  for start = begin, begin + BQ, … below n_q:
        for start in range(begin, n_q, BQ):
            # K4      i = start + (0 … BQ − 1);  load q, do, lse and D, rows from n_q on as 0
            i = start + torch.arange(BQ)
            q_tile, do_tile = rows_of(q, start, BQ), rows_of(do, start, BQ)
            lse_tile, D = rows_of(lse, start, BQ), rows_of(products, start, BQ)
            # K5      p = exp(scale · q kᵀ − lse), and 0 where F7 has −∞ or i ≥ n_q
            p = torch.exp(scale * (q_tile.float() @ k_tile.float().T) - lse_tile[:, None])
            p = p.masked_fill(hidden(i, j, n_k, is_causal) | (i >= n_q)[:, None], 0.0)
            # K6      dv = dv + pᵀ do, with p rounded to the dtype of do
            dv = dv + p.T.to(do.dtype).float() @ do_tile.float()
            # K7      dp = do vᵀ;  ds = p ∘ (dp − D)
            ds = p * (do_tile.float() @ v_tile.float().T - D[:, None])
            # K8      dk = dk + dsᵀ q, with ds rounded to the dtype of q
            dk = dk + ds.T.to(q.dtype).float() @ q_tile.float()
        # K9  store the rows j < n_k of dv and of scale · dk, rounded to the dtype
        store_rows(dv_memory, first, dv)
        store_rows(dk_memory, first, scale * dk)
    return dk_memory, dv_memory


class Network:
    """Collectives between ranks that are threads. They have no names: a rank's nth call meets the others' nth call."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.calls: list[list[int]] = [[] for _ in range(ranks)]  # elements that each rank has sent, call by call
        self._given: dict[int, dict[int, Tensor]] = {}  # by call, then by rank
        self._changed = Condition()

    def gather(self, rank: int, tensor: Tensor) -> Callable[[], list[Tensor]]:
        """Begin a collective: give a tensor, and get what waits for those of all ranks."""
        with self._changed:
            number = len(self.calls[rank])
            self.calls[rank].append(tensor.numel())
            self._given.setdefault(number, {})[rank] = tensor.detach().clone()
            self._changed.notify_all()

        def wait() -> list[Tensor]:
            with self._changed:
                if not self._changed.wait_for(lambda: len(self._given[number]) == self.ranks, WAIT_S):
                    raise TimeoutError(f"rank {rank} waits in call {number}")
                return [self._given[number][of] for of in range(self.ranks)]

        return wait


class DataParallel:
    """Algorithm H on one rank: a module whose gradients are averaged during the backward."""

    def __init__(self, module: nn.Module, bucket_bytes: int, rank: int, network: Network) -> None:
        self.module, self.rank, self.network, self.synchronizes = module, rank, network, True
        # H1  broadcast parameters and buffers from the group's first rank
        for tensor in [*module.parameters(), *module.buffers()]:
            tensor.detach().copy_(network.gather(rank, tensor)()[0])
        self.trainable = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.buckets = fill(reversed(self.trainable), bucket_bytes)
        # H5  next = 0;  every trainable parameter is missing
        self.next, self.missing = 0, set(self.trainable)
        self.flying: list[tuple[Tensor, Callable[[], list[Tensor]]]] = []
        for parameter in self.trainable:
            parameter.register_post_accumulate_grad_hook(self.on_gradient)

    def on_gradient(self, parameter: nn.Parameter) -> None:
        """The hook of a parameter."""
        if not self.synchronizes:
            return
        # H6  it is no longer missing
        self.missing.discard(parameter)
        # H7  while there is a bucket number `next`, and nothing of it is missing:
        while self.next < len(self.buckets) and not self.missing.intersection(self.buckets[self.next]):
            # H8      start(bucket number next);  next = next + 1
            self.start(self.buckets[self.next])
            self.next += 1

    def start(self, bucket: Sequence[nn.Parameter]) -> None:
        # H9  copy its gradients into one flat tensor, zeros for a gradient that is None
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        # H10 begin its all-reduce without waiting;  keep the tensor and the handle
        self.flying.append((flat, self.network.gather(self.rank, flat)))

    def finish_gradient_synchronization(self) -> None:
        # H11 start every bucket from number next on
        for bucket in self.buckets[self.next :]:
            self.start(bucket)
        # H12 one byte per parameter, is its gradient there?  All-reduce them with MAX
        flags = torch.tensor([parameter.grad is not None for parameter in self.trainable], dtype=torch.uint8)
        used = torch.stack(self.network.gather(self.rank, flags)()).amax(0)
        there = {parameter for parameter, flag in zip(self.trainable, used, strict=True) if flag}
        for bucket, (_, wait) in zip(self.buckets, self.flying, strict=True):
            # H13 for each bucket: wait, divide by the number of ranks
            average = torch.stack(wait()).sum(0) / self.network.ranks
            # H14     for each of its parameters that any rank has used: write its piece into .grad
            for parameter, piece in zip(bucket, average.split([p.numel() for p in bucket]), strict=True):
                if parameter in there:
                    parameter.grad = piece.view_as(parameter).clone()
        # H15 as in H5
        self.next, self.missing, self.flying = 0, set(self.trainable), []

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.synchronizes = False
        yield
        self.synchronizes = True


def fill(parameters: Iterator[nn.Parameter], bucket_bytes: int) -> list[list[nn.Parameter]]:
    """The buckets of parameters, in their order."""
    buckets: list[list[nn.Parameter]] = []
    open_of: dict[torch.dtype, list[nn.Parameter]] = {}
    # H2  for each trainable parameter, the last one first:
    for parameter in parameters:
        # H3      put it into the open bucket of its dtype; if that would pass bucket_bytes, into a new one
        bucket = open_of.get(parameter.dtype)
        if bucket is None or sum(p.nbytes for p in bucket) + parameter.nbytes > bucket_bytes:
            bucket = open_of[parameter.dtype] = []
        bucket.append(parameter)
        # H4  order the buckets by the moment at which each got its last parameter
        buckets = [*(one for one in buckets if one is not bucket), bucket]
    return buckets


def owners(parameters: Sequence[Tensor], ranks: int) -> list[int]:
    """The rank that owns each parameter."""
    found, owned = [0] * len(parameters), [0] * ranks
    # P1  go through the parameters of all groups by bytes, largest first, equal ones in order:
    for index in sorted(range(len(parameters)), key=lambda number: -parameters[number].nbytes):
        # P2      its owner is the rank that owns fewest bytes so far, the first of several
        found[index] = owned.index(min(owned))
        # P3      add its bytes to what the owner owns
        owned[found[index]] += parameters[index].nbytes
    return found


class Sharded:
    """Algorithm P on one rank: an optimizer for the parameters that this rank owns, and a broadcast of each."""

    def __init__(
        self, groups: list[dict[str, Any]], optimizer_cls: Callable[..., torch.optim.Optimizer], rank: int,
        network: Network, **options: Any,
    ) -> None:  # fmt: skip
        self.rank, self.network = rank, network
        self.parameters = [parameter for group in groups for parameter in group["params"]]
        self.owner = dict(zip(self.parameters, owners(self.parameters, network.ranks), strict=True))
        self.param_groups = [options | group for group in groups]
        # P4  the inner optimizer gets the same groups, each with the owned parameters only
        shares = [[p for p in group["params"] if self.owner[p] == rank] for group in groups]
        self.inner = optimizer_cls(
            [group | {"params": share} for group, share in zip(self.param_groups, shares, strict=True)]
        )

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        # P5  if there is a closure, call it once, with gradients enabled, and keep what it returns
        with torch.enable_grad():
            loss = closure() if closure else None
        # P6  copy the options of each group, all but its parameters, into the inner group
        for group, inner in zip(self.param_groups, self.inner.param_groups, strict=True):
            inner.update({name: value for name, value in group.items() if name != "params"})
        # P7  the inner optimizer steps
        self.inner.step()
        for parameter in self.parameters:
            # P8  for each parameter, in the same order on all ranks: broadcast it from its owner
            parameter.detach().copy_(self.network.gather(self.rank, parameter)()[self.owner[parameter]])
        # P9  return what the closure returned
        return loss
