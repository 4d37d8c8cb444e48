"""Memory of a call as the judge sees it from outside: of the process on a CPU, of the device on a GPU."""

import textwrap

import pytest
import torch

from grader.judge.cases import Input
from grader.judge.footprint import IMPORTS_BYTES
from grader.judge.servers import Servers
from grader.judge.submission import CheckProcess, Submission

MIB = 1 << 20
COLUMNS = 256
# PyTorch takes a GPU's memory in blocks of 2 MiB for small tensors and 20 MiB for others; a heap grows by less.
BLOCKS, SMALL_BLOCKS = 24 * MIB, 4 * MIB


def footprint(servers: Servers, body: str, size: int, after: int, at_import: str = "") -> tuple[torch.Tensor, int]:
    """The answer of a gelu with this body for `size` elements, after a call with `after`, and what it took in bytes."""
    tree = servers.sandbox.tree
    imports = "import ctypes, os, threading, time\n\nimport torch\n"
    (tree / "gelu.py").write_text(f"{imports}\n{at_import}\n\n\ndef gelu(x):\n    {body}\n")
    process, generator = CheckProcess(servers, tree, "gelu", 60.0), torch.Generator().manual_seed(0)
    x, before = (Input((elements,)).draw(generator) for elements in (size, after))
    try:
        results, taken = Submission(process).gelu.footprint(x, after=(before,))
    finally:
        process.close()
    return results.answer.plain(), taken


SMALL, LARGE = 4096, 1 << 18  # elements: the larger input has 1 MiB


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
    answer, taken = footprint(confined, body, LARGE, after=SMALL)
    assert answer.shape == (LARGE,)
    expected = 4 * LARGE * (1 + matrices * COLUMNS)
    assert expected - SMALL_BLOCKS < taken < expected + BLOCKS, (expected, taken)


TAKES = "torch.ones(1 << 18, 256, device=x.device)"  # 256 MiB, freed at once


def test_what_was_freed_in_a_call_counts(confined: Servers) -> None:
    _, taken = footprint(confined, f"x.numel() > 5000 and {TAKES}\n    return x + 1", LARGE, after=SMALL)
    assert taken > 256 * MIB - SMALL_BLOCKS


def test_what_was_freed_before_a_call_does_not_count(confined: Servers) -> None:
    if confined.device == "cuda":
        pytest.skip("needs a machine without a GPU: there, PyTorch keeps what was freed")
    _, taken = footprint(confined, f"x.numel() < 5000 and {TAKES}\n    return x + 1", LARGE, after=SMALL)
    assert taken < 4 * LARGE + BLOCKS


HIDING = {
    "by resetting the mark": f"""
        held = {TAKES}
        del held
        open("/proc/self/clear_refs", "w").write("5")
    """,
    "in another process": f"""
        if not os.fork():
            held = {TAKES}
            time.sleep(0.3)
            os._exit(0)
        os.wait()
    """,
    "in a process whose first thread has ended": f"""
        def hold():
            time.sleep(0.1)
            held = {TAKES}
            time.sleep(0.3)
            os._exit(0)

        if not os.fork():
            threading.Thread(target=hold).start()
            ctypes.CDLL(None).pthread_exit(None)
        os.wait()
    """,
    "in a file of shared memory": """
        with open("/dev/shm/held", "wb") as file:
            for _ in range(256):
                file.write(bytes(1 << 20))
        os.unlink("/dev/shm/held")
    """,
    "in a file in the home folder": """
        with open("held", "wb") as file:
            for _ in range(256):
                file.write(bytes(1 << 20))
        os.unlink("held")
    """,
}


@pytest.mark.parametrize("hiding", HIDING)
def test_memory_cannot_be_hidden_on_a_cpu(confined: Servers, hiding: str) -> None:
    if confined.device == "cuda":
        pytest.skip("needs a machine without a GPU")
    lines = textwrap.indent(textwrap.dedent(HIDING[hiding]), " " * 8)
    _, taken = footprint(confined, f"if x.numel() > 5000:\n{lines}\n    return x + 1", LARGE, after=SMALL)
    assert taken > 200 * MIB


@pytest.mark.parametrize("held", ["HELD = torch.zeros(1 << 18, 256)", "open('held', 'wb').write(bytes(1 << 28))"])
def test_what_a_module_takes_when_it_is_imported_counts_on_a_cpu(confined: Servers, held: str) -> None:
    if confined.device == "cuda":
        pytest.skip("needs a machine without a GPU")
    _, taken = footprint(confined, "return x + 1", LARGE, SMALL, at_import=held)
    assert 256 * MIB - IMPORTS_BYTES < taken < 256 * MIB + BLOCKS
