"""The solutions beyond 2^31 elements, where 32-bit offsets overflow. Called directly: no judge, no copies to it."""

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
