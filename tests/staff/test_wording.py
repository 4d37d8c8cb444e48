"""Errors whose own text does not say what to do: each is met as a student meets it, and told why."""

import io
from types import SimpleNamespace

import pytest

from grader.doctor import Gpu
from grader.judge import expected
from grader.judge import servers as servers_module
from grader.judge.plugin import _lacking
from grader.judge.reference import flash_attention
from grader.judge.replies import Raised
from grader.judge.servers import Servers
from grader.judge.verdict import Verdict
from grader.judge.wording import KNOWN_ERRORS, KNOWN_IN_TRITON, raised_outcome
from grader.rubric import Rubric
from grader.rubric_files import ALL_LIMIT_S
from grader.summary import show_result
from grader.terminal import make_console

# What a kernel does with x (16 elements from `x_ptr`, as tile `x`), or with two 16 x 16 tiles `a` and `b`, and a part
# of what the student reads.
IN_THE_KERNEL = {
    "y = tl.dot(a, b.to(tl.float16))": "have different dtypes",
    "y = tl.dot(a, tl.load(x_ptr + tl.arange(0, 32)[:, None] + tl.arange(0, 16)[None, :]))": "as many columns in x",
    "y = a + tl.zeros((16, 32), tl.float32)": "whose shapes do not fit",
    "y = a @ b": "tiles have no operator @",
    "y = a.relu()": "no relu",
    "y = tl.relu(a)": "no relu",
    "y = tl.gelu(a)": "no gelu",
    "y = tl.tanh(a)": "no tanh",
    "y = a ** 2": "no power operator",
    "y = tl.load(count)": "take addresses",
    "y = torch.relu(a)": "calls a function of PyTorch",
    "y = tl.arange(0, 24)": "a power of two as its length",
    "y = tl.exp(x.to(tl.float16))": "takes float32 only",
    "y = tl.dot(a[:, None], b)": "look for a [:, None] that is there twice",
}
IN_THE_LAUNCHER = {
    "kernel[(1,)](x.shape, y, x.numel())": "a kernel takes tensors and numbers",
    "kernel[(x.numel() / 16,)](x, y, x.numel())": "a count is a fraction",
    "kernel[1](x, y, x.numel())": "a grid is a tuple",
    "kernel(x, y, x.numel())": "without a grid",
    "kernel[(1,)](x, count=1)": "are parameters of the kernel that its launch does not pass",
    "kernel[(1,)](x)": "positional arguments: 'y_ptr' and 'count'",
    "kernel[(1,)](\n        x, y,\n    )": "or take it out of the kernel",
}

MODULE = """
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, count):
    x = tl.load(x_ptr + tl.arange(0, 16))
    a = tl.load(x_ptr + tl.arange(0, 16)[:, None] + tl.arange(0, 16)[None, :])
    b = a
    {body}
    tl.store(y_ptr + tl.arange(0, 16), x)


def gelu(x):
    y = torch.empty_like(x)
    {launch}
    return y
"""
LAUNCH = "kernel[(1,)](x, y, x.numel())"


def told(grade, folder, body: str, launch: str) -> str:
    """What a student reads of the first failure."""
    (folder / "gelu.py").write_text(MODULE.format(body=body, launch=launch))
    [check] = grade(folder, "gelu.large_values").checks
    assert check.verdict is Verdict.FAIL
    assert check.where.file == "assignment/gelu.py"
    return f"{check.message}\n{check.why}\n{check.hint}"


@pytest.mark.parametrize(("body", "words"), IN_THE_KERNEL.items())
def test_an_error_in_a_kernel_says_what_triton_means(body, words, grade, servers, tmp_path):
    if servers.device == "cuda":
        pytest.skip("needs the interpreter: a compiler has other words")
    assert words in told(grade, tmp_path, body, LAUNCH)


@pytest.mark.parametrize(("launch", "words"), IN_THE_LAUNCHER.items())
def test_an_error_at_a_launch_says_what_triton_means(launch, words, grade, servers, tmp_path):
    if servers.device == "cuda":
        pytest.skip("needs the interpreter: a compiler has other words")
    assert words in told(grade, tmp_path, "pass", launch)


# A line in a function that is no kernel, and a part of what the student reads.
IN_PYTORCH = {
    "tl.max(x, 0)": "a function of triton.language got a tensor of PyTorch",
    "tl.sum(x, 0)": "a function of triton.language got a tensor of PyTorch",
    "tl.exp(x)": "a function of triton.language is called outside of a kernel",
    "x[None] @ x.half()[:, None]": "the two tensors of a product of PyTorch have different dtypes",
    "x[None, None] @ x.half()[None, :, None]": "widen both in the same way before it: q.float()",
    "x.half() @ x": "the two tensors of a product of PyTorch have different dtypes",
    "torch.addmm(x[:, None].half(), x[:, None], x[None])": "the two tensors of a product of PyTorch",
    "x[:0].amax(0)": "no elements have no maximum",
    "torch.cat([])": "where only a sum has no terms, it is zeros",
    "torch.stack([])": "the list of tiles is empty",
}


@pytest.mark.parametrize(("line", "words"), IN_PYTORCH.items())
def test_an_error_in_pytorch_says_what_to_do_in_pytorch(line, words, grade, servers, tmp_path):
    if servers.device == "cuda":
        pytest.skip("needs a CPU: other devices have other words")
    (tmp_path / "gelu.py").write_text(
        f"import torch\nimport triton.language as tl\n\n\ndef gelu(x):\n    return {line}\n"
    )
    [check] = grade(tmp_path, "gelu.large_values").checks
    assert words in f"{check.message}\n{check.why}\n{check.hint}"
    assert "grid" not in check.why


def test_a_backward_that_gives_too_few_gradients_is_told_to_return_none_for_the_others(grade, tmp_path):
    (tmp_path / "flash_attention.py").write_text(TOO_FEW_GRADIENTS)
    [check] = grade(tmp_path, "flash_attention.autograd_gradients").checks
    assert "incorrect number of gradients (expected 5, got 3)" in check.message
    assert "return None for each that is no tensor to be differentiated, such as is_causal and scale" in check.hint


TOO_FEW_GRADIENTS = """
import torch


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal, scale):
        return q.clone()

    @staticmethod
    def backward(ctx, do):
        return do, do, do


def flash_attention(q, k, v, is_causal=False, scale=None):
    return Attention.apply(q, k, v, is_causal, scale)
"""


# What forward and backward of an autograd.Function begin with, and a part of what the student reads.
AUTOGRAD = [
    ("pass", "(y,) = ctx.saved_tensors", "for this input forward returned without ctx.save_for_backward"),
    ("pass", "y = ctx.saved_tensors[0]", "call ctx.save_for_backward(...) before every return of forward"),
    ("ctx.save_for_backward(x, x)", "(y,) = ctx.saved_tensors", "forward saves another number of tensors than this"),
    ("pass", "return dy[..., :2]", "each gradient has the shape of its input"),
    ("pass", "rows, columns, _, _, _, _ = dy.shape", "the tensor has another number of dimensions here"),
]
AUTOGRAD_MODULE = """
import torch


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        {forward}
        return x.softmax(-1)

    @staticmethod
    def backward(ctx, dy):
        {backward}
        return dy


softmax = Softmax.apply
"""


@pytest.mark.parametrize(("forward", "backward", "words"), AUTOGRAD)
def test_an_error_between_forward_and_backward_is_told_by_its_line(forward, backward, words, grade, tmp_path):
    (tmp_path / "softmax.py").write_text(AUTOGRAD_MODULE.format(forward=forward, backward=backward))
    [check] = grade(tmp_path, "softmax.gradient").checks
    assert words in f"{check.message}\n{check.why}\n{check.hint}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("(n,) = x.shape", "another number of dimensions"),  # a tensor without dimensions
        ("(y,) = ctx.saved_tensors", "without ctx.save_for_backward"),
        ("(\n        y,\n    ) = ctx.saved_tensors", "without ctx.save_for_backward"),  # as Python 3.13 quotes it
    ],
)
def test_nothing_to_unpack_is_told_by_the_line_that_unpacks(line, said):
    outcome = raised_outcome(
        Raised(
            number=1, status="raised", type="ValueError", out_of_memory=False, missing=None, where=None, accesses=[],
            message="not enough values to unpack (expected 1, got 0)",
            traceback=f'  File "softmax.py", line 3, in g\n    x.shape\n  File "softmax.py", line 9, in f\n    {line}',
        )
    )  # fmt: skip
    assert said in outcome.why


@pytest.mark.parametrize("form", [expected.LIKE_X, flash_attention.O_FORM, flash_attention.GRADIENT_FORM])
def test_a_form_allocates_in_the_way_that_suits_a_transposed_input(form):
    assert "empty_like" not in form
    assert "device=" in form


# A whole module, the verdict of its check, and what is said of it.
MODULES = {
    "import torch\n\n\ndef gelu(x):\n    return x.cuda()\n": ("fail", "this line wants a GPU"),
    "import torch\n\n\ndef gelu(x):\n    return torch.empty(3, device='cuda:0')\n": ("fail", "this line wants a GPU"),
    "def gelu(x):\n    assert x.numel() > 10**9, 'too small'\n": ("fail", "an assert of your own refuses this input"),
    "import triton\n\nDEVICE = triton.runtime.driver.active.get_active_torch_device()\n": (
        "fail", "this line asks for the GPU, and there is none here",
    ),
    "from ._autotune import autotune_or_first\n": ("fail", "no such file beside"),
    "import my_kernels\n": ("fail", "imported with a dot"),
    "X = open('tiles.json').read()\n": ("fail", "only the Python files of your folder"),
    "def gelu(x):\n    # later\n": ("fail", "a comment is none"),
    "def gelu(x, dim):\n    return x\n": ("fail", "the checks call gelu(x), and yours takes other arguments"),
    "def gelu(*, x):\n    return x\n": ("fail", "the checks call gelu(x), and yours takes other arguments"),
    "def gelu(x):\n    return inner()\n\n\ndef inner(y):\n    return y\n": ("fail", "missing 1 required positional"),
    "def gelu(x):\n    return x.double()\n": (
        "fail", "torch.empty(x.shape, dtype=x.dtype, device=x.device); the store converts",
    ),
    "def gelu_forward(x):\n    return x\n": ("todo", "there is a function `gelu_forward`"),
}  # fmt: skip


@pytest.mark.parametrize("source", MODULES)
def test_what_is_wrong_with_a_whole_module_is_said(source, grade, servers, tmp_path):
    if servers.device == "cuda" and ("cuda" in source or "driver" in source):
        pytest.skip("needs a machine without a GPU")
    (tmp_path / "gelu.py").write_text(source)
    [check] = grade(tmp_path, "gelu.sizes").checks
    verdict, words = MODULES[source]
    assert check.verdict == verdict
    assert words in f"{check.message}\n{check.why}\n{check.hint}"


def test_arguments_that_a_helper_lacks_are_not_taken_for_those_of_the_function(grade, tmp_path):
    (tmp_path / "gelu.py").write_text("def gelu(x):\n    return inner()\n\n\ndef inner(y):\n    return y\n")
    [check] = grade(tmp_path, "gelu.sizes").checks
    assert "the checks call" not in check.why


def test_after_two_checks_that_do_not_end_the_others_of_the_problem_are_not_tried(grade, servers, tmp_path):
    (tmp_path / "gelu.py").write_text("def gelu(x):\n    while True:\n        pass\n")
    (tmp_path / "softmax.py").write_text("def softmax(x):\n    return x\n")
    servers.ready()  # which measures how slow this machine is
    servers.slack, kept = servers.slack / 40, servers.slack
    try:
        checks = grade(tmp_path, "gelu.sizes", "gelu.shapes", "gelu.layouts", "softmax.columns").checks
        graded = grade(tmp_path, "gelu.sizes", "gelu.shapes", "gelu.layouts", staff=True).checks
    finally:
        servers.slack = kept
    assert [check.verdict for check in checks] == ["timeout", "timeout", "timeout", "fail"]
    assert [check.cause for check in checks[:3]] == [None, None, "not_tried"]
    assert "ran out of time, the last in line" in checks[2].message
    assert [check.cause for check in graded] == [None, None, None]


@pytest.mark.parametrize("staff", [False, True], ids=["student", "staff"])
def test_after_the_time_for_all_checks_the_others_are_not_tried(grade, servers, tmp_path, monkeypatch, staff):
    (tmp_path / "gelu.py").write_text("import time\n\n\ndef gelu(x):\n    time.sleep(0.3)\n    return x\n")
    servers.ready()
    monkeypatch.setattr(servers, "slack", 0.1 / ALL_LIMIT_S)
    checks = grade(tmp_path, "gelu.sizes", "gelu.shapes", "gelu.layouts", staff=staff).checks
    assert [check.verdict for check in checks] == ["timeout", "timeout", "timeout"]
    assert [check.cause for check in checks] == [None, "not_tried", "not_tried"]
    assert "the checks before it took more than" in checks[1].message


KNOWN = [*((row, "a line") for row in KNOWN_ERRORS), *((row, "") for row in KNOWN_IN_TRITON)]


@pytest.mark.parametrize(("row", "stack"), KNOWN, ids=[f"{row[0]}-{stack}" for row, stack in KNOWN])
def test_a_known_error_has_a_reason_and_a_next_step_and_is_found_before_any_other(row, stack):
    part, why, hint = row
    outcome = raised_outcome(
        Raised(
            number=1, status="raised", type="RuntimeError", out_of_memory=False, missing=None, message=part, where=None,
            traceback=stack, accesses=[],
        )
    )  # fmt: skip
    assert (outcome.why, outcome.hint) == (why, hint)
    assert why
    assert hint


def test_what_nobody_has_explained_is_left_as_it_is():
    said = "a message of the student's own"
    outcome = raised_outcome(
        Raised(
            number=1, status="raised", type="ValueError", out_of_memory=False, missing=None, message=said, where=None,
            traceback="", accesses=[],
        )
    )  # fmt: skip
    assert (outcome.message, outcome.why, outcome.hint) == (f"ValueError: {said}", "", "")


H100 = Gpu("NVIDIA H100", (9, 0), shared_bytes=232_448, memory_bytes=80 << 30)
T4 = Gpu("Tesla T4", (7, 5), shared_bytes=65_536, memory_bytes=16 << 30)


@pytest.mark.parametrize(
    ("gpu", "needs", "said"),
    [
        (None, {}, "needs a GPU: a CPU has no streams"),
        (T4, {"gib": 24}, "needs a GPU with 24 GiB of memory"),
        (T4, {"capability": (8, 0)}, "needs a GPU of capability 8.0"),
        (T4, {}, None),
        (H100, {"gib": 24, "capability": (8, 0)}, None),
    ],
)
def test_what_a_machine_lacks_is_the_reason_of_a_skip(gpu, needs, said):
    assert _lacking(gpu, pytest.mark.needs_gpu("a CPU has no streams", **needs).mark) == said


def test_no_memory_on_a_gpu_that_others_fill_is_the_graders_fault(grade, servers, tmp_path, monkeypatch):
    (tmp_path / "gelu.py").write_text("import torch\n\n\ndef gelu(x):\n    raise torch.OutOfMemoryError('CUDA')\n")
    assert grade(tmp_path, "gelu.large_values").checks[0].verdict == "out_of_memory"
    monkeypatch.setattr(Servers, "crowded", True)
    [check] = grade(tmp_path, "gelu.large_values").checks
    assert (check.verdict, check.score, check.runs) == ("grader_error", None, 2)
    assert "others held much of its memory" in check.message


@pytest.mark.parametrize(("used", "crowded"), [(19 << 30, False), (21 << 30, True)])
def test_a_gpu_is_crowded_where_others_hold_a_quarter_of_it(used, crowded):
    servers = Servers([H100])
    assert not servers.crowded
    servers.used_before = used
    assert servers.crowded is crowded


@pytest.mark.parametrize(("used", "unreturned"), [(5 << 30, 4 << 30), (1 << 30, 0)])
def test_memory_that_a_gpu_does_not_get_back_is_told(monkeypatch, used, unreturned):
    monkeypatch.setattr(servers_module, "RETURN_LIMIT_S", 0.05)
    servers = Servers([H100])
    servers._server = SimpleNamespace(close=lambda: None, compiled_s=0.0)
    servers.used_before = 1 << 30
    monkeypatch.setattr(servers, "_used_bytes", lambda: used)
    servers.close()
    assert servers.unreturned_bytes == unreturned


@pytest.mark.parametrize(
    ("checks", "words"),
    [
        (["fewer_key_heads"], "flash_attention.fewer_key_heads bonus, comes on top: flash_attention: several heads"),
        (["autograd_two_calls", "fewer_key_heads"], "the same: flash_attention.fewer_key_heads (bonus)"),
    ],
)
def test_a_bonus_that_fails_is_called_one(checks, words, grade, tmp_path):
    (tmp_path / "flash_attention.py").write_text(TOO_FEW_GRADIENTS)
    stream = io.StringIO()
    result = grade(tmp_path, *(f"flash_attention.{check}" for check in checks))
    show_result(result, Rubric.read(), make_console(stream), staff=False)
    assert words in " ".join(stream.getvalue().split())
