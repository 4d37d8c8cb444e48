"""The solutions on inputs that only a GPU can do, most beyond 2^31 elements, where 32-bit offsets overflow.

Called directly: no judge, no copies to it.
"""

import pytest
import torch

from grader.doctor import Machine, uses_gpu
from grader.judge.reference import gelu, matmul, softmax

PAST_INT32 = 2**31 + 2**20  # elements; 4.3 GB in bfloat16

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not uses_gpu(Machine.here()), reason="needs a GPU with 20 GB: tensors of over 2^31 elements"),
]


@pytest.fixture(autouse=True)
def without_leftovers():
    yield
    torch.cuda.empty_cache()


def noise(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=dtype)


def test_gelu_reaches_the_last_elements():
    from solutions.gelu import gelu as solution

    x = noise(PAST_INT32)
    y = solution(x)
    for part in (slice(0, 1000), slice(2**31 - 500, 2**31 + 500), slice(PAST_INT32 - 1000, None)):
        expected = gelu.gelu(x[part].cpu())
        assert expected.errors(y[part].cpu()).within(expected.tolerance)


@pytest.mark.parametrize("columns", [32_768, 32_769, 1000])
def test_softmax_reaches_the_last_rows(columns):
    from solutions.softmax import softmax as solution

    x = noise(PAST_INT32 // columns + 1, columns)
    y = solution(x)
    for row in (0, 2**31 // columns, x.shape[0] - 1):
        expected = softmax.softmax(x[row].cpu())
        assert expected.errors(y[row].cpu()).within(expected.tolerance)


@pytest.mark.parametrize("transposed", [False, True], ids=["a as it is", "a transposed"])
@pytest.mark.parametrize("n", [40_000, 40_001])  # 40 001 bfloat16 numbers are not a multiple of 16 bytes
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)  # by descriptors, by pointers
def test_matmul_writes_over_two_to_the_31_elements(dtype, n, transposed):
    from solutions.matmul import matmul as solution

    m, k = PAST_INT32 // n + 1, 64
    a = noise(k, m, dtype=dtype).t() if transposed else noise(m, k, dtype=dtype)
    b = noise(k, n, dtype=dtype)
    c = solution(a, b)
    for rows in (slice(0, 16), slice(2**31 // n - 8, 2**31 // n + 8), slice(m - 16, None)):
        expected = matmul.matmul(a[rows].cpu(), b.cpu())
        assert expected.errors(c[rows].cpu()).within(expected.tolerance)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("k", [32_768, 32_769])
def test_matmul_reads_over_two_to_the_31_elements(k, dtype):
    from solutions.matmul import matmul as solution

    a, b = noise(PAST_INT32 // k + 1, k, dtype=dtype), noise(k, 64, dtype=dtype)
    c = solution(a, b)
    for rows in (slice(0, 16), slice(a.shape[0] - 16, None)):
        expected = matmul.matmul(a[rows].cpu(), b.cpu())
        assert expected.errors(c[rows].cpu()).within(expected.tolerance)


def attention_inputs(heads: int, n: int, d: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """q, k, v and do."""
    return [noise(heads, n, d, dtype=dtype) for _ in range(4)]


def attention_rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, rows: slice, is_causal: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """o, lse and dq of some queries of one head, in float64."""
    q, k, v, do = q[rows].double(), k.double(), v.double(), do[rows].double()
    scores = q @ k.T / q.shape[-1] ** 0.5
    if is_causal:
        query = torch.arange(rows.start, rows.stop, device=q.device)[:, None]
        scores = scores.masked_fill(torch.arange(len(k), device=q.device) > query, -torch.inf)
    p = torch.softmax(scores, -1)
    products = do @ v.T
    ds = p * (products - (p * products).sum(-1, keepdim=True))
    return p @ v, torch.logsumexp(scores, -1), ds @ k / q.shape[-1] ** 0.5


def attention_columns(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, o: torch.Tensor, lse: torch.Tensor,
    keys: slice, is_causal: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """dk and dv of some keys of one head, in float64, from a log-sum-exp and o that were checked before."""
    q, k, v, do = q.double(), k[keys].double(), v[keys].double(), do.double()
    scores = q @ k.T / q.shape[-1] ** 0.5
    if is_causal:
        key = torch.arange(keys.start, keys.stop, device=q.device)
        scores = scores.masked_fill(key > torch.arange(len(q), device=q.device)[:, None], -torch.inf)
    p = torch.exp(scores - lse.double()[:, None])
    ds = p * (do @ v.T - (do * o.double()).sum(-1, keepdim=True))
    return ds.T @ q / q.shape[-1] ** 0.5, p.T @ do


def relative(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.double() - expected).norm() / expected.norm())


RELATIVE = {torch.float32: 1e-5, torch.float16: 1.5e-3, torch.bfloat16: 1.2e-2}  # over three times what is right


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize(
    ("heads", "n", "d", "dtype"),
    [(8, 131_072, 64, torch.bfloat16), (2**31 // (4096 * 64) + 1, 4096, 64, torch.bfloat16)],
    ids=["131 072 tokens", "over 2^31 elements"],
)
def test_attention_over_long_sequences_and_many_heads(heads, n, d, dtype, is_causal):
    from solutions.flash_attention import flash_attention_backward, flash_attention_forward

    q, k, v, do = attention_inputs(heads, n, d, dtype)
    o, lse = flash_attention_forward(q, k, v, is_causal)
    gradients = flash_attention_backward(do, q, k, v, o, lse, is_causal)
    for head in (0, heads - 1):
        for part in (slice(0, 32), slice(n // 2 - 16, n // 2 + 16), slice(n - 32, n)):
            mine = [x[head] for x in (q, k, v, do)]
            right_o, right_lse, right_dq = attention_rows(*mine, part, is_causal)
            assert relative(o[head, part], right_o) < RELATIVE[dtype]
            assert relative(lse[head, part], right_lse) < 1e-5
            assert relative(gradients[0][head, part], right_dq) < 2 * RELATIVE[dtype]
            columns = attention_columns(*mine, o[head], lse[head], part, is_causal)
            for got, expected in zip(gradients[1:], columns, strict=True):
                assert relative(got[head, part], expected) < 2 * RELATIVE[dtype]


@pytest.mark.parametrize("dtype", list(RELATIVE), ids=str)
@pytest.mark.parametrize("d", [1, 3, 8, 16, 17, 32, 48, 64, 80, 96, 128, 160, 192, 255, 256])
def test_attention_with_every_kind_of_head(d, dtype):
    assert_attention_is_right(700, d, dtype, is_causal=True)


@pytest.mark.parametrize("is_causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("dtype", list(RELATIVE), ids=str)
@pytest.mark.parametrize("d", [64, 128, 256])
def test_attention_where_loops_are_long_enough_to_be_pipelined(d, dtype, is_causal):
    assert_attention_is_right(4096, d, dtype, is_causal)


def assert_attention_is_right(n: int, d: int, dtype: torch.dtype, is_causal: bool) -> None:
    """Forward and backward of two heads, each row of them."""
    from solutions.flash_attention import flash_attention_backward, flash_attention_forward

    q, k, v, do = attention_inputs(2, n, d, dtype)
    o, lse = flash_attention_forward(q, k, v, is_causal)
    dq, dk, dv = flash_attention_backward(do, q, k, v, o, lse, is_causal)
    everything = slice(0, n)
    for head in range(2):
        mine = [x[head] for x in (q, k, v, do)]
        right_o, right_lse, right_dq = attention_rows(*mine, everything, is_causal)
        right_dk, right_dv = attention_columns(*mine, right_o, right_lse, everything, is_causal)
        assert relative(lse[head], right_lse) < 1e-5
        for got, expected in ((o, right_o), (dq, right_dq), (dk, right_dk), (dv, right_dv)):
            assert relative(got[head], expected) < 2 * RELATIVE[dtype]


def test_attention_with_more_heads_than_a_grid_has_columns():
    from solutions.flash_attention import flash_attention_forward

    q, k, v, do = attention_inputs(70_000, 5, 16, torch.float16)
    o, _ = flash_attention_forward(q, k, v)
    for head in (0, 65_535, 65_536, 69_999):
        right_o, _, _ = attention_rows(*(x[head] for x in (q, k, v, do)), slice(0, 5), False)
        assert relative(o[head], right_o) < RELATIVE[torch.float16]
