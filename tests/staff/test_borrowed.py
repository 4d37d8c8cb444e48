"""Did the student write it? Borrowed answers are a warning, and open a review in grading; set-up is neither."""

import textwrap
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from grader.judge.borrowed import OWN_OPERATION, SET_UP, borrowed
from grader.judge.replies import Operator, Place
from grader.judge.verdict import Verdict
from grader.result import CheckResult
from tests.staff.conftest import ROOT

IMPORTS = """
import torch
import triton
import triton.language as tl


"""

COPY = """
@triton.jit
def copy_kernel(source, target, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + index, tl.load(source + index, mask=index < count), mask=index < count)


def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""

SHOW = """
@triton.jit
def show_kernel(target):
    tl.store(target, 1.0)


def shown():
    show_kernel[(1,)](torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu"))


"""

SCALED = """
@triton.jit
def gelu_kernel(source, target, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source + index, mask=index < count).to(tl.float32)
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    tl.store(target + index, (x * tl.sigmoid(2 * u)), mask=index < count)
"""

# A borrowed answer, which is right: a name, the problem's check, the source, the reason, and what the evidence names.
BORROWED = {
    "the library's function": (
        "softmax.columns", "def softmax(x):\n    return torch.softmax(x, -1)",
        "PyTorch's own softmax ran", "_softmax",
    ),
    "a name put together": (
        "softmax.columns", "def softmax(x):\n    return getattr(torch, 'soft' + 'max')(x, -1)",
        "PyTorch's own softmax ran", "_softmax",
    ),
    "the operator itself": (
        "softmax.columns", "def softmax(x):\n    return torch.ops.aten._softmax(x, -1, False)",
        "PyTorch's own softmax ran", "_softmax",
    ),
    "its logarithm": (
        "softmax.columns", "def softmax(x):\n    return torch.log_softmax(x, -1).exp()",
        "PyTorch's own softmax ran", "_log_softmax",
    ),
    "a library's gelu": (
        "gelu.sizes", "def gelu(x):\n    return torch.nn.functional.gelu(x, approximate='tanh')",
        "PyTorch's own gelu ran", "gelu",
    ),
    "arithmetic of the library": (
        "gelu.sizes",
        "def gelu(x):\n    return x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))",
        "no Triton kernel was launched", "sigmoid",
    ),
    "numpy": (
        "gelu.sizes",
        "import numpy as np\n\n\ndef gelu(x):\n    v = x.numpy()\n"
        "    u = 1.5957691216057308 * (v + 0.044715 * v * v * v)\n"
        "    return torch.from_numpy((v / (1 + np.exp(-u))).astype(v.dtype))",
        "no Triton kernel was launched", "no operator",
    ),
    "a kernel for show": (
        "softmax.columns", COPY + "\n\ndef softmax(x):\n    return torch.softmax(copied(x), -1)",
        "PyTorch's own softmax ran", "_softmax",
    ),
    "a kernel for a part": (
        "softmax.columns",
        COPY + "\n\ndef softmax(x):\n    if x.numel() == 0:\n        return x.clone()\n"
        "    power = copied(torch.exp(x - x.amax(-1, keepdim=True)))\n"
        "    return power / power.sum(-1, keepdim=True)",
        "PyTorch computed a part", "exp",
    ),
    "a fallback": (
        "softmax.columns",
        "@triton.jit\ndef broken_kernel(x):\n    tl.nothing_of_this_name(x)\n\n\ndef softmax(x):\n    try:\n"
        "        broken_kernel[(1,)](x)\n    except Exception:\n        return torch.softmax(x, -1)",
        "PyTorch's own softmax ran", "_softmax",
    ),
    "an operator of matrices": (
        "matmul.sizes", "def matmul(a, b, activation=None):\n    return a @ b", "PyTorch's own matmul ran", "mm",
    ),
    "a sum over indices": (
        "matmul.sizes", "def matmul(a, b, activation=None):\n    return torch.einsum('mk,kn->mn', a, b)",
        "PyTorch's own matmul ran", "bmm",
    ),
    "a layer": (
        "matmul.sizes", "def matmul(a, b, activation=None):\n    return torch.nn.functional.linear(a, b.t())",
        "PyTorch's own matmul ran", "",
    ),
    "products and sums": (
        "matmul.sizes", "def matmul(a, b, activation=None):\n    return (a[:, :, None] * b[None]).sum(1)",
        "no Triton kernel was launched", "mul",
    ),
    "integers": (
        "matmul.sizes",
        SHOW + "def matmul(a, b, activation=None):\n    shown()\n"
        "    whole = [(x.double() * 2**20).round().to(torch.int64) for x in (a, b)]\n"
        "    return ((whole[0][:, :, None] * whole[1][None]).sum(1).double() / 2**40).to(a.dtype)",
        "PyTorch computed a part", "mul",
    ),
    "complex numbers": (
        "gelu.sizes",
        SHOW + "def gelu(x):\n    shown()\n    z = torch.complex(x, x * 0)\n"
        "    u = 1.5957691216057308 * (z + 0.044715 * z * z * z)\n"
        "    return (z / (1 + torch.exp(-u))).real.contiguous()",
        "PyTorch computed a part", "exp",
    ),
    "operators on lists": (
        "gelu.sizes",
        SHOW + "def gelu(x):\n    shown()\n    u = x.clone()\n    torch._foreach_pow_([u], 3)\n"
        "    torch._foreach_mul_([u], 0.044715)\n    torch._foreach_add_([u], [x])\n"
        "    torch._foreach_mul_([u], 1.5957691216057308)\n    torch._foreach_sigmoid_([u])\n"
        "    torch._foreach_mul_([u], [x])\n    return u",
        "PyTorch computed a part", "_foreach_sigmoid",
    ),
    "an operator that says it is a view": (
        "matmul.sizes",
        SHOW
        + "LIBRARY = torch.library.Library('student', 'DEF')\n"
        "LIBRARY.define('product(Tensor(a) a, Tensor b) -> Tensor(a)')\n"
        "LIBRARY.impl('product', lambda a, b: a @ b, 'CPU')\nLIBRARY.impl('product', lambda a, b: a @ b, 'CUDA')\n\n\n"
        "def matmul(a, b, activation=None):\n    shown()\n    return torch.ops.student.product(a, b)",
        "PyTorch computed a part", "student::product",
    ),
    "a compiler": (
        "matmul.sizes",
        "@torch.compile(backend='eager')\ndef product(a, b):\n    return a @ b\n\n\n"
        "def matmul(a, b, activation=None):\n    return product(a, b)",
        "PyTorch's own matmul ran", "mm",
    ),
}  # fmt: skip

HONEST = (
    SCALED
    + """

def gelu(x):
    shape, count = x.shape, x.numel()
    if not bool(torch.isfinite(x).all()) or not torch.equal(x, x):
        raise ValueError("infinite")
    x = torch.nn.functional.pad(x.to(torch.float32).contiguous().reshape(-1), (0, 3))
    if bool(torch.isnan(x).any()):
        raise ValueError("NaN")
    y = torch.zeros_like(x)
    if count:
        gelu_kernel[(triton.cdiv(count, 1024),)](x, y, count, BLOCK=1024)
    return torch.cat([y[:count], y[:0]]).reshape(shape)
"""
)


def ran(*names: str) -> dict[str, Operator]:
    """These operators, each once."""
    return {f"aten::{name}": Operator(count=1, where=None) for name in names}


@pytest.fixture
def submit(tmp_path) -> Callable[[str, str], Path]:
    """A submission of one module."""

    def write(problem: str, source: str) -> Path:
        (tmp_path / f"{problem}.py").write_text(IMPORTS + "\n\n" + textwrap.dedent(source) + "\n")
        return tmp_path

    return write


@pytest.mark.parametrize("name", BORROWED)
def test_a_borrowed_answer_is_a_warning_for_students_and_a_review_for_staff(name, grade, submit, servers):
    check, source, reason, evidence = BORROWED[name]
    if name == "numpy" and servers.device == "cuda":
        pytest.skip("needs the interpreter: numpy cannot read a GPU's tensors")
    folder = submit(check.partition(".")[0], source)
    [warned] = grade(folder, check).checks
    assert (warned.verdict, warned.cause, warned.review) == (Verdict.PASS, "borrowed", None), warned.message
    assert warned.score == warned.max > 0
    assert reason in warned.why
    assert evidence in warned.why
    graded = grade(folder, check, staff=True)
    [reviewed] = graded.checks
    assert (reviewed.verdict, reviewed.score) == (Verdict.PASS, None)
    assert reviewed.review.reason == reason
    assert evidence in reviewed.review.evidence
    assert (graded.score.complete, graded.score.raw, graded.score.max) == (False, 0, 0)


def test_set_up_operators_around_a_kernel_are_not_reported(grade, submit):
    [check] = grade(submit("gelu", HONEST), "gelu.sizes", staff=True).checks
    assert (check.verdict, check.cause, check.review) == (Verdict.PASS, None, None), check.review


def test_the_solutions_borrow_nothing(grade):
    result = grade(ROOT / "solutions", hidden=True, staff=True)
    assert not [f"{check.id}: {check.review}" for check in result.checks if check.review]


def test_a_wrong_answer_that_is_borrowed_needs_no_decision(grade, submit):
    folder = submit("softmax", "def softmax(x):\n    return torch.softmax(x, 0)")
    [check] = grade(folder, "softmax.columns", staff=True).checks
    assert (check.verdict, check.score, check.review) == (Verdict.FAIL, 0, None)


def test_in_place_forms_and_other_libraries_are_judged_by_what_they_are():
    assert borrowed("gelu", {"gelu"}, ran("copy_", "clone", "fill_"), launches=1) is None
    assert borrowed("gelu", {"gelu"}, ran("exp_"), launches=1).evidence == "exp 1 x"
    assert (
        borrowed("gelu", {"gelu"}, {"mine::tanh": Operator(count=1, where=None)}, launches=1).reason
        == "PyTorch computed a part"
    )
    assert borrowed("gelu", {"gelu"}, {}, launches=None) is None
    assert borrowed("ddp", {"ddp"}, ran("mm"), launches=0) is None


def test_evidence_names_the_own_operation_first_and_not_everything():
    found = borrowed("matmul", {"matmul"}, ran(*"abcdefg", "mm"), launches=0)
    assert found.evidence == "mm 1 x, a 1 x, b 1 x, c 1 x, d 1 x, e 1 x and 2 more"


def test_evidence_names_a_line_of_the_submission():
    where = Place(file="matmul.py", line=7)
    found = borrowed("matmul", {"matmul"}, {"aten::mm": Operator(count=2, where=where)}, launches=0)
    assert found.evidence == "mm 2 x (line 7 of assignment/matmul.py)"


def test_no_operator_is_set_up_for_its_own_problem():
    assert not any(operations & SET_UP for operations in OWN_OPERATION.values())


def test_a_review_leaves_the_other_checks_alone(grade, submit):
    folder = submit("softmax", "def softmax(x):\n    return torch.softmax(x, -1)")
    (folder / "gelu.py").write_text((ROOT / "solutions" / "gelu.py").read_text())
    result = grade(folder, "softmax.columns", "gelu.sizes", staff=True)
    of = {check.id: check for check in result.checks}
    assert isinstance(of["gelu.sizes"], CheckResult)
    assert (of["softmax.columns"].score, of["gelu.sizes"].score) == (None, of["gelu.sizes"].max)
    assert result.score.raw == result.score.max == of["gelu.sizes"].max > Decimal(0)


def test_attention_in_pytorch_is_allowed_where_it_is_asked_for():
    arithmetic = ran("bmm", "exp", "amax")
    assert borrowed("flash_attention", {"attention_tiled"}, arithmetic, launches=0) is None
    assert borrowed("flash_attention", {"flash_attention_forward"}, arithmetic, launches=1)
    assert borrowed("flash_attention", {"attention_tiled", "flash_attention"}, arithmetic, launches=1)
    found = borrowed(
        "flash_attention", {"attention_tiled"}, ran("_scaled_dot_product_flash_attention_for_cpu"), launches=0
    )
    assert found
    assert found.reason == "PyTorch's own attention ran"
