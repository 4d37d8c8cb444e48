"""Static looks: each finds its fault on its line, and leaves the harmless neighbour alone."""

from pathlib import Path

import pytest

from grader.inspect.looks import LOOKS, Look, looks_at
from tests.staff.conftest import ROOT, STAFF
from tests.staff.test_looks_of_the_compiler import REFUSED

IMPORTS = """\
import torch
import triton
import triton.language as tl

"""
MATMUL = """\
@triton.jit
def kernel(a, b, c, K, BM: tl.constexpr, BK: tl.constexpr{default}):
    m, k = tl.arange(0, BM), tl.arange(0, BK)
    acc = tl.zeros((BM, BM), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + k[None, :])
        y = tl.load(b + k[:, None] * K + m[None, :])
        acc += tl.dot(x, y)
    tl.store(c + m[:, None] * K + m[None, :], acc)

"""
KERNEL = """\
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
{body}
    tl.store(y_ptr + i, y, mask=i < n)

"""
CONFIGURATIONS = "[triton.Config({'BM': 32, 'BK': 16}), triton.Config({'BM': 16, 'BK': 64}, num_warps=8)]"
MATMUL_DOT = IMPORTS.count("\n") + 8  # the line of tl.dot in IMPORTS + MATMUL
BODY = IMPORTS.count("\n") + 4  # the line of the body in IMPORTS + KERNEL


def matmul(launch: str, default: str = "", decorator: str = "") -> str:
    return IMPORTS + decorator + MATMUL.format(default=default) + "\ndef matmul(a, b):\n    " + launch + "\n"


def kernel(*body: str) -> str:
    return IMPORTS + KERNEL.format(body="\n".join(f"    {line}" for line in body))


def launched(launch: str, before: str = "pass") -> str:
    return kernel("y = 1.0") + f"\nSIZE = 256\n\n\ndef gelu(x, n):\n    {before}\n    {launch}\n"


LAUNCHED = launched("").rstrip().count("\n") + 2  # the line of the launch

# What is found: its name, its line, the source, and a part of the words.
FOUND = {
    "a constant at a launch": ("small_dot", MATMUL_DOT, matmul("kernel[(1,)](a, b, a, 8, BM=16, BK=8)"), "`BK` is 8"),
    "in its place": ("small_dot", MATMUL_DOT, matmul("kernel[(1,)](a, b, a, 8, 8, 32)"), "`BM` is 8"),
    "a default": ("small_dot", MATMUL_DOT, matmul("kernel[(1,)](a, b, a, 8, 32)", default=" = 4"), "`BK` is 4"),
    "a name": ("small_dot", MATMUL_DOT, matmul("kernel[(1,)](a, b, a, 8, 32, SIDE)") + "\n\nSIDE = 8\n", "`BK` is 8"),
    "a tl.constexpr": (
        "small_dot", MATMUL_DOT, matmul("kernel[(1,)](a, b, a, 8, 32, SIDE)") + "\n\nSIDE = tl.constexpr(8)\n",
        "`BK` is 8",
    ),
    "a configuration": (
        "small_dot", MATMUL_DOT + 1,
        matmul("pass", decorator=f"@autotune_or_first({CONFIGURATIONS.replace('64', '8')}, key=[])\n"), "`BK` is 8",
    ),
    "a product": ("half_arithmetic", BODY + 1, kernel("x = tl.load(x_ptr + i)", "y = 2 * x"), "`x` is calculated with"),
    "a load in place": (
        "half_arithmetic", BODY, kernel("y = 2 * tl.load(x_ptr + i, mask=i < n)"), "`tl.load(x_ptr + i, mask=i < n)`",
    ),
    "a method": ("half_arithmetic", BODY + 1, kernel("x = tl.load(x_ptr + i)", "y = x.sum()"), "`x`"),
    "after a mask": (
        "half_arithmetic", BODY + 2,
        kernel("x = tl.load(x_ptr + i)", "x = tl.where(i < n, x, 0)", "y = x - 1"), "`x`",
    ),
    "a sum that is half": (
        "half_arithmetic", BODY + 1,
        kernel("total = tl.zeros((BLOCK,), tl.float16)", "total += tl.load(x_ptr + i)", "y = total"), "tl.load",
    ),
    "in a loop": (
        "half_arithmetic", BODY + 1,
        kernel("for j in range(n):", "    y = 1 - tl.load(x_ptr + j)"), "tl.load(x_ptr + j)",
    ),
    "a conversion to bfloat16": (
        "half_type", BODY, kernel("y = tl.load(x_ptr + i).to(tl.bfloat16)"), "the bit patterns of bfloat16",
    ),
    "a block pointer": (
        "block_pointer", BODY, kernel("y = tl.load(tl.make_block_ptr(x_ptr, (n,), (1,), (0,), (BLOCK,), (0,)))"),
        "make_block_ptr is gone",
    ),
    "autotune": (
        "many_configurations", 5, matmul("pass", decorator=f"@triton.autotune({CONFIGURATIONS}, key=[])\n"),
        "several configurations",
    ),
    "autotune with a list of its own": (
        "many_configurations", 8,
        IMPORTS + f"\nCONFIGURATIONS = {CONFIGURATIONS}\n\n@triton.autotune(configs=CONFIGURATIONS, key=[])\n"
        + MATMUL.format(default=""), "several configurations",
    ),
    "autotune with a list that is built": (
        "many_configurations", 5,
        matmul("pass", decorator="@triton.autotune([triton.Config({'BM': m}) for m in (32, 64)], key=[])\n"),
        "several configurations",
    ),
    "a rest that is dropped": (
        "empty_grid", LAUNCHED, launched("kernel[(n // SIZE,)](x, x, n, BLOCK=SIZE)"), "`n // SIZE` programs",
    ),
    "a number": ("empty_grid", LAUNCHED, launched("kernel[(n // 256,)](x, x, n, BLOCK=256)"), "triton.cdiv(n, 256)"),
    "a grid with a name": (
        "empty_grid", LAUNCHED,
        launched("kernel[grid](x, x, n, BLOCK=SIZE)", before="grid = (n // SIZE,)"), "n // SIZE",
    ),
    "programs with a name": (
        "empty_grid", LAUNCHED,
        launched("kernel[(programs,)](x, x, n, BLOCK=SIZE)", before="programs = n // SIZE"), "n // SIZE",
    ),
    "a grid of a configuration": (
        "empty_grid", LAUNCHED, launched("kernel[lambda meta: (n // meta['BLOCK'],)](x, x, n)"), "n // meta['BLOCK']",
    ),
    "no programs": ("empty_grid", LAUNCHED, launched("kernel[(1, 0)](x, x, n, BLOCK=SIZE)"), "nothing runs"),
}  # fmt: skip

HARMLESS = {
    "a tile of 16": matmul("kernel[(1,)](a, b, a, 8, BM=16, BK=16)"),
    "a small size that is no tile": matmul("kernel[(1,)](a, b, a, 8, 16, 16)"),
    "strides that are unpacked": matmul("kernel[(1,)](a, b, *a.stride(), 8, 8, 16)"),
    "a size that nobody knows": matmul("kernel[(1,)](a, b, a, 8, 16, a.shape[1])"),
    "a small tile without a dot": launched("kernel[(n,)](x, x, n, BLOCK=8)"),
    "widened at once": kernel("y = 2 * tl.load(x_ptr + i).to(tl.float32)"),
    "widened later": kernel("x = tl.load(x_ptr + i)", "x = x.to(tl.float32)", "y = tl.exp(x)"),
    "divided": kernel("x = tl.load(x_ptr + i)", "y = x / 2"),
    "its maximum subtracted": kernel("x = tl.load(x_ptr + i)", "y = x - tl.max(x, axis=0)"),
    "multiplied by an argument": kernel("x = tl.load(x_ptr + i)", "y = x * n"),
    "an index": kernel("j = tl.load(x_ptr + i) + 1", "y = tl.load(x_ptr + j)"),
    "scratch memory from elsewhere": kernel("y = 1 - tl.load(x_ptr + i)")
    + "\ndef f(x):\n    kernel[(1,)](KEPT[x.shape], x, 9, BLOCK=16)\n",
    "only copied": kernel("x = tl.load(x_ptr + i)", "y = tl.where(i < n, x, 0)"),
    "added to a float32 sum": kernel(
        "total = tl.zeros((BLOCK,), tl.float32)", "total += tl.load(x_ptr + i)", "y = total"
    ),
    "subtracted from a product": kernel("s = tl.dot(i, i)", "l = tl.load(x_ptr + i)", "y = tl.exp(s - l[:, None])"),
    "float32 scratch memory": kernel("y = 1 - tl.load(x_ptr + i)")
    + "\ndef f(x):\n    sums = torch.zeros(9, dtype=torch.float32)\n    kernel[(1,)](sums, x, 9, BLOCK=16)\n",
    "an address": kernel("j = i * 2 + 1", "y = tl.load(x_ptr + j * n)"),
    "masks": kernel("inside = (i < n) & (i > 0)", "y = tl.load(x_ptr + i, mask=inside)"),
    "one configuration": matmul("pass", decorator="@triton.autotune([triton.Config({'BM': 32, 'BK': 16})], key=[])\n"),
    "our helper": matmul("pass", decorator=f"@autotune_or_first({CONFIGURATIONS}, key=[])\n"),
    "a choice by the interpreter": matmul(
        "pass", decorator=f"@triton.autotune({CONFIGURATIONS} if not interpret else [], key=[])\n"
    ),
    "rounded up": launched("kernel[(triton.cdiv(n, SIZE),)](x, x, n, BLOCK=SIZE)"),
    "one more": launched("kernel[(n // SIZE + 1,)](x, x, n, BLOCK=SIZE)"),
    "rounded up by hand": launched("kernel[((n + SIZE - 1) // SIZE,)](x, x, n, BLOCK=SIZE)"),
    "rows": launched("kernel[(x.numel() // n,)](x, x, n, BLOCK=SIZE)"),
    "a row that is a tile": launched("kernel[(x.numel() // n,)](x, x, n, BLOCK=n)"),
    "not a kernel": IMPORTS + "def f(x, y):\n    return tl.exp(tl.load(x)) * y\n",
}

UNREADABLE = {
    "no module": None, "a syntax error": b"def f(:", "no text": b"\xff\xfe\x00", "a null byte": b"x = 1\x00",
    "nothing": b"", "nested deeply": b"x = " + b"(" * 5000 + b")" * 5000,
    "added up": b"x = " + b"+".join([b"1"] * 50_000),
    "many kernels": b"@triton.jit\ndef k(x): tl.make_block_ptr(x)\nk[(n // BLOCK,)](1)\n" * 2000,
    "large": b"#" * 2_000_000,
}  # fmt: skip


def looks(tmp_path: Path, source: str) -> list[Look]:
    (tmp_path / "matmul.py").write_text(source)
    return looks_at(tmp_path, ["matmul"])


@pytest.mark.parametrize("name", FOUND)
def test_a_look_finds_its_fault_on_its_line(name, tmp_path):
    kind, line, source, words = FOUND[name]
    [found] = looks(tmp_path, source)
    assert (found.name, found.line, found.file) == (kind, line, "assignment/matmul.py"), source
    assert words in f"{found.what}\n{found.hint}"
    assert found.hint


@pytest.mark.parametrize("name", HARMLESS)
def test_a_look_leaves_the_harmless_neighbour_alone(name, tmp_path):
    assert looks(tmp_path, HARMLESS[name]) == []


def test_every_look_is_seen_to_find_something():
    found = {kind for kind, *_ in FOUND.values()} | {kind for kind, *_ in REFUSED.values()}
    assert found == {look.__name__ for look in LOOKS}


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_has_no_looks(name, tmp_path):
    if (content := UNREADABLE[name]) is not None:
        (tmp_path / "matmul.py").write_bytes(content)
    assert looks_at(tmp_path, ["matmul"]) == []


@pytest.mark.parametrize(
    "folder",
    [ROOT / "solutions", ROOT / "assignment"]
    + [folder for kind in ("right", "slower") for folder in sorted((STAFF / "submissions" / kind).iterdir())],
    ids=lambda folder: folder.name,
)
def test_right_kernels_have_no_looks(folder):
    assert looks_at(folder, [path.stem for path in folder.glob("*.py")]) == []


def test_looks_are_sorted_by_line_and_never_too_many(tmp_path):
    lines = [f"    y = tl.make_block_ptr(x_ptr + {i})" for i in range(100)]
    found = looks(tmp_path, IMPORTS + "def f(x_ptr):\n" + "\n".join(lines) + "\n")
    assert [look.line for look in found] == list(range(6, 26))
