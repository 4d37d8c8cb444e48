"""Did the student write it? Borrowed answers are a warning, and open a review in grading; set-up is neither."""

import textwrap
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest
import torch

from grader.inspect.unwatched import ways_around
from grader.judge.borrowed import OWN_OPERATION, SET_UP, Borrowed, borrowed
from grader.judge.replies import Operator, Place
from grader.judge.servers import Servers
from grader.judge.submission import CheckProcess, Submission
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

# Each gives a right answer that a kernel only carries, from where nobody watches. The interpreter tells of what was
# seen on a CPU; on a GPU the source is all that does, where it does.
READ = "a kernel read numbers that neither a kernel nor PyTorch had written"
AROUND = "it uses what nobody watches"
UNWATCHED = {
    "a thread": (
        COPY + "\n\ndef softmax(x):\n    import threading\n\n    found = []\n"
        "    thread = threading.Thread(target=lambda: found.append(torch.softmax(x, -1)))\n"
        "    thread.start()\n    thread.join()\n    return copied(found[0])",
        READ, AROUND, "import threading",
    ),
    "a thread that fills what PyTorch has made": (
        COPY + "\n\ndef softmax(x):\n    import threading\n\n    y = torch.zeros_like(x)\n"
        "    thread = threading.Thread(target=lambda: torch.softmax(x, -1, out=y))\n"
        "    thread.start()\n    thread.join()\n    return copied(y)",
        READ, AROUND, "import threading",
    ),
    "a thread, and a kernel before it": (
        COPY + "\n\ndef softmax(x):\n    import threading\n\n    y = copied(x)\n"
        "    thread = threading.Thread(target=lambda: torch.softmax(x, -1, out=y))\n"
        "    thread.start()\n    thread.join()\n    return y",
        "neither a kernel nor PyTorch wrote the answer", AROUND, "import threading",
    ),
    "another process": (
        COPY + "\n\ndef softmax(x):\n    import mmap\n    import os\n\n"
        "    room = mmap.mmap(-1, x.numel() * x.element_size())\n"
        "    y = torch.frombuffer(room, dtype=x.dtype).view(x.shape)\n    child = os.fork()\n    if child == 0:\n"
        "        y.copy_(torch.softmax(x, -1))\n        os._exit(0)\n    os.waitpid(child, 0)\n    return copied(y)",
        READ, AROUND, "import mmap",
    ),
    "numpy": (
        COPY + "\n\ndef softmax(x):\n    import numpy as np\n\n    v = np.asarray(x.detach().cpu())\n"
        "    v = np.exp(v - v.max(-1, keepdims=True, initial=-np.inf))\n"
        "    v = (v / v.sum(-1, keepdims=True)).astype(np.float32)\n"
        "    return copied(torch.from_numpy(v).to(x.dtype).to(x.device))",
        READ, "", "",
    ),
    "Python's own numbers": (
        COPY + "\n\ndef softmax(x):\n    import math\n\n    rows = []\n"
        "    for row in x.reshape(-1, x.shape[-1]).tolist():\n"
        "        powers = [math.exp(one - max(row)) for one in row]\n"
        "        rows.append([one / sum(powers) for one in powers])\n"
        "    return copied(torch.tensor(rows, dtype=x.dtype, device=x.device).reshape(x.shape))",
        READ, AROUND, ".tolist",
    ),
    "numbers one by one": (
        COPY + "\n\ndef softmax(x):\n    import math\n\n    y = torch.zeros_like(x)\n"
        "    flat, to = x.reshape(-1, x.shape[-1]), y.view(-1, x.shape[-1])\n    for r in range(len(flat)):\n"
        "        row = [float(one) for one in flat[r]]\n        powers = [math.exp(one - max(row)) for one in row]\n"
        "        for c, power in enumerate(powers):\n            to[r, c] = power / sum(powers)\n    return copied(y)",
        "numbers were put into tensors one by one", "", "",
    ),
    "below the dispatcher": (
        COPY + "\n\ndef softmax(x):\n    key = torch._C.DispatchKey.CUDA if x.is_cuda else torch._C.DispatchKey.CPU\n"
        "    operator = torch.ops.aten._softmax.default\n"
        "    return copied(operator.redispatch(torch._C.DispatchKeySet(key), x, -1, False))",
        READ, AROUND, "torch._C.DispatchKey",
    ),
    "without the watch": (
        COPY + "\n\ndef softmax(x):\n    from torch.utils._python_dispatch import _disable_current_modes\n\n"
        "    with _disable_current_modes():\n        y = torch.softmax(x, -1)\n    return copied(y)",
        READ, AROUND, "from torch.utils._python_dispatch import _disable_current_modes",
    ),
    "a changed interpreter": (
        COPY + "\n\ndef softmax(x):\n    from triton.runtime.interpreter import interpreter_builder as builder\n\n"
        "    store = type(builder).create_masked_store\n"
        "    builder.create_masked_store = lambda *arguments: store(builder, *arguments)\n"
        "    copied(x)\n    return torch.ones_like(x) if x.shape[-1] == 1 else copied(torch.zeros_like(x))",
        "Triton's interpreter was changed", AROUND, "from triton.runtime.interpreter import interpreter_builder",
    ),
    "an operator under another's name": (
        COPY + "\n\nLIBRARY = torch.library.Library('aten', 'FRAGMENT')\n"
        "LIBRARY.define('clone.of_student(Tensor x) -> Tensor')\n"
        "LIBRARY.impl('clone.of_student', lambda x: torch.softmax(x, -1), 'CompositeExplicitAutograd')\n\n\n"
        "def softmax(x):\n    return copied(torch.ops.aten.clone.of_student(x))",
        "", AROUND, "torch.library.Library",
    ),
    "a tensor of another kind": (
        COPY + "\n\nclass Late(torch.Tensor):\n    @classmethod\n"
        "    def __torch_dispatch__(cls, function, types, arguments=(), options=None):\n"
        "        return torch.softmax(arguments[0].inner, -1)\n\n\n"
        "def softmax(x):\n    late = torch.Tensor._make_wrapper_subclass(Late, x.shape, dtype=x.dtype)\n"
        "    late.inner = x\n    return copied(late.clone())",
        READ, AROUND, "class Late, a kind of tensor",
    ),
    "a module of its own": (
        COPY + "\n\ndef softmax(x):\n    from .helper import answer\n\n    return copied(answer(x))",
        READ, AROUND, "line 1 of assignment/helper.py",
    ),
}  # fmt: skip
ROWS = """
@triton.jit
def rows_kernel(x, scale, y, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * columns + at, mask=at < columns, other=-float("inf"))
    power = tl.exp((row - tl.max(row, axis=0)) * tl.load(scale))
    tl.store(y + tl.program_id(0) * columns + at, power / tl.sum(power, axis=0), mask=at < columns)


def rows(x, scale, y):
    x = x.contiguous()
    rows_kernel[(x.numel() // x.shape[-1],)](x, scale, y, x.shape[-1], BLOCK=128)
    return y


"""
KEPT = (
    ROWS
    + """
ONE, ROOM = {}, {}


def softmax(x):
    scale = ONE.setdefault(x.device, torch.zeros(100, device=x.device))
    scale[3:] = 2.0
    scale[0] = 1
    scale[:3].fill_(1.0)
    y = ROOM.setdefault(x.shape, torch.empty_like(x))
    return rows(x, scale, y).clone()
"""
)
SCALE = (
    ROWS
    + """
TABLE = torch.tensor([1.0] * 200)


def softmax(x):
    return rows(x, TABLE.to(x.device), torch.empty_like(x))
"""
)
AGAIN = (
    ROWS
    + """
@triton.jit
def breaks_kernel(y):
    tl.store(y, 1.0)
    tl.nothing_of_this_name()


def softmax(x):
    y = torch.empty_like(x)
    try:
        breaks_kernel[(1,)](y)
    except Exception:
        pass
    return rows(x, torch.tensor(1.0, device=x.device), y)
"""
)
HELPER = """import threading

import torch


def answer(x):
    found = []
    thread = threading.Thread(target=lambda: found.append(torch.softmax(x, -1)))
    thread.start()
    thread.join()
    return found[0]
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
        "matmul.sizes", "def matmul(a, b, activation=None):\n"
        "    return (a.float()[:, :, None] * b.float()[None]).sum(1).to(a.dtype)",
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
    "an operator that moves, and multiplies": (
        "matmul.sizes",
        COPY + "\n\ndef matmul(a, b, activation=None):\n    if not a.numel() or not b.numel():\n"
        "        return torch.zeros(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)\n"
        "    p = a.t().float()[:, :, None].expand(-1, -1, b.shape[1]).clone()\n"
        "    every = torch.zeros(p.shape, dtype=torch.int64, device=a.device)\n"
        "    rows = every + torch.arange(a.shape[0], device=a.device)[None, :, None]\n"
        "    p.scatter_(1, rows, b.float()[:, None, :].expand_as(p), reduce='multiply')\n"
        "    return copied(p.sum(0).to(a.dtype))",
        "PyTorch computed a part", "scatter",
    ),
    "an operator without an answer": (
        "softmax.columns",
        COPY + "\n\nLIBRARY = torch.library.Library('student', 'DEF')\n"
        "LIBRARY.define('fill(Tensor idle, Tensor x, Tensor(a!) y) -> ()')\n"
        "def fill(idle, x, y):\n    torch.softmax(x, -1, out=y)\n\n\n"
        "LIBRARY.impl('fill', fill, 'CompositeExplicitAutograd')\n\n\n"
        "def softmax(x):\n    y = torch.empty_like(x)\n    idle = torch.zeros(1, dtype=torch.bool, device=x.device)\n"
        "    torch.ops.student.fill(idle, x, y)\n    return copied(y)",
        "PyTorch computed a part", "student::fill",
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


@pytest.fixture
def doubt(servers: Servers) -> Iterator[Callable[[Path], Borrowed | None]]:
    """What is doubted of a softmax after two calls, whose answers are not compared."""
    opened: list[CheckProcess] = []

    def after_calls(folder: Path) -> Borrowed | None:
        opened.append(CheckProcess(servers, folder, "softmax", limit_s=120))
        for shape in ((3, 40), (2, 2, 65)):
            Submission(opened[-1]).softmax(torch.randn(shape))
        return opened[-1].doubt()

    yield after_calls
    for process in opened:
        process.close()


@pytest.mark.parametrize("name", UNWATCHED)
def test_an_answer_from_where_nobody_watches_is_doubted(name, submit, doubt, servers, monkeypatch):
    if servers.device == "cuda":
        pytest.skip("needs Triton's interpreter")
    source, seen, read, evidence = UNWATCHED[name]
    folder = submit("softmax", source)
    (folder / "helper.py").write_text(HELPER)
    ways = [f"{way.what}, line {way.line} of assignment/{way.file}" for way in ways_around(folder, "softmax")]
    assert bool(ways) == bool(read), ways
    found = doubt(folder)
    assert found
    assert found.reason.startswith(seen or read)
    if read:
        monkeypatch.setattr("grader.judge.borrowed.UNSEEN", {})  # on a GPU the source is all that tells
        found = doubt(folder)
        assert found
        assert found.reason == read
        assert evidence in found.evidence


@pytest.mark.parametrize("source", [KEPT, SCALE, AGAIN], ids=["kept between calls", "a constant", "another try"])
def test_what_kernels_may_read_and_write_is_not_doubted(source, submit, doubt):
    assert doubt(submit("softmax", source)) is None


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


def test_a_text_that_becomes_code_in_a_training_is_looked_at(grade, tmp_path):
    """It may be the library's own."""
    (tmp_path / "ddp.py").write_text((ROOT / "solutions" / "ddp.py").read_text() + "\n\nexec('SEEN = 1')\n")
    [check] = grade(tmp_path, "ddp.naive_mean", staff=True).checks
    assert (check.verdict, check.score) == (Verdict.PASS, None)
    assert check.review.reason == AROUND
    assert check.review.evidence.startswith("exec(...), line ")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("from os import getpid, fork", "from os import fork"),
        ("from sys import modules as m", "from sys import modules"),
        ("import torch as t\n\nt._C._jit_pass_inline", "torch._C._jit_pass_inline"),
        ("from torch import _refs", "from torch import _refs"),
        ("import triton.language as tl\n\ntl.load = None", "triton.language.load = ..."),
        ("import torch\n\ngetattr(torch, 'soft' + 'max')", "getattr(...)"),
        ("import concurrent.futures", "import concurrent.futures"),
        ("def f():\n    return eval('1')", "eval(...)"),
    ],
)
def test_what_leads_around_the_watch_is_read_in_the_source(source, what, tmp_path):
    (tmp_path / "gelu.py").write_text(source + "\n")
    assert what in [way.what for way in ways_around(tmp_path, "gelu")]


@pytest.mark.parametrize(
    "source",
    [
        "import os\n\nprint(os.environ, os.path)",
        "import torch\n\ntorch.backends.cuda.matmul.allow_tf32 = False\nhasattr(torch, 'compile')",
        "class Tiles(dict):\n    pass\n\n\ndef thread(stream):\n    'exec, eval, fork'\n    return stream",
        "import torch\n\n\nclass F(torch.autograd.Function):\n    pass\n\n\nstream = torch.cuda.Stream\nx = 1",
        "from dataclasses import dataclass\nfrom functools import lru_cache\nimport math, sys, warnings",
        "import numpy as np\n\nSCALE = np.sqrt(2 / np.pi)",
    ],
)
def test_ordinary_code_leads_nowhere(source, tmp_path):
    (tmp_path / "gelu.py").write_text(source + "\n")
    assert not list(ways_around(tmp_path, "gelu"))


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
