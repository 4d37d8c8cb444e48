"""Memory of a call as the judge sees it from outside: of the process on a CPU, of the device on a GPU."""

import pytest
import torch

from grader.judge.cases import Input
from grader.judge.servers import Servers
from grader.judge.submission import CheckProcess, Submission

MIB = 1 << 20
COLUMNS = 256
BLOCKS = 24 * MIB  # that the driver, or the C library, gives out at once


@pytest.mark.parametrize(
    ("body", "matrices"),
    [
        ("return x + 1", 0),
        ("return torch.outer(x, x[:256]).sum(1)", 1),
        ("a = torch.outer(x, x[:256])\n    return (a + 1).sum(1)", 2),
    ],
    ids=["the answer only", "a matrix in between", "two matrices in between"],
)
def test_what_a_call_holds_at_once_is_counted(confined: Servers, body: str, matrices: int) -> None:
    tree = confined.sandbox.tree
    (tree / "gelu.py").write_text(f"import torch\n\n\ndef gelu(x):\n    {body}\n")
    process = CheckProcess(confined, tree, "gelu", 60.0)
    generator = torch.Generator().manual_seed(0)
    small, large = Input((4096,)).draw(generator), Input((1 << 18,)).draw(generator)
    try:
        results, taken = Submission(process).gelu.footprint(large, after=(small,))
    finally:
        process.close()
    assert results.answer.plain().shape == large.shape
    expected = large.nbytes * (1 + matrices * COLUMNS)
    assert expected - 4 * MIB < taken < expected + BLOCKS, (expected, taken)


def test_what_was_freed_in_a_call_counts_and_what_was_freed_before_does_not(confined: Servers) -> None:
    tree = confined.sandbox.tree
    (tree / "gelu.py").write_text(
        "import torch\n\n\ndef gelu(x):\n    rows = 1 << 18 if x.numel() < 5000 else 1\n"
        "    torch.ones(rows, 256, device=x.device)\n    return x + 1\n"
    )
    process = CheckProcess(confined, tree, "gelu", 60.0)
    generator = torch.Generator().manual_seed(0)
    small, large = Input((4096,)).draw(generator), Input((1 << 18,)).draw(generator)
    try:
        if confined.device == "cpu":  # on a GPU, PyTorch keeps what was freed
            _, taken = Submission(process).gelu.footprint(large, after=(small,))
            assert taken < large.nbytes + BLOCKS
        _, taken = Submission(process).gelu.footprint(small, after=(large,))
        assert taken > 256 * MIB - 2 * MIB
    finally:
        process.close()


@pytest.mark.parametrize(
    "hiding",
    [
        "open('/proc/self/clear_refs', 'w').write('5')",
        "pipe = os.pipe()\n    if not os.fork():\n        held = torch.ones(1 << 18, 256)\n        time.sleep(0.3)\n"
        "        os._exit(0)\n    os.wait()",
    ],
    ids=["by resetting the mark", "in another process"],
)
def test_memory_cannot_be_hidden_on_a_cpu(confined: Servers, hiding: str) -> None:
    if confined.device == "cuda":
        pytest.skip("needs a machine without a GPU")
    tree = confined.sandbox.tree
    (tree / "gelu.py").write_text(
        "import os, time\n\nimport torch\n\n\ndef gelu(x):\n    if x.numel() > 5000:\n"
        f"        held = torch.ones(1 << 18, 256)\n        del held\n    {hiding}\n    return x + 1\n"
    )
    process = CheckProcess(confined, tree, "gelu", 60.0)
    generator = torch.Generator().manual_seed(0)
    small, large = Input((4096,)).draw(generator), Input((1 << 18,)).draw(generator)
    try:
        _, taken = Submission(process).gelu.footprint(large, after=(small,))
    finally:
        process.close()
    assert taken > 200 * MIB
