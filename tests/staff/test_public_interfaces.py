"""The interfaces of a public course on language models: its tests, written anew, pass with the solutions.

There attention is an `autograd.Function` with `forward(ctx, Q, K, V, is_causal=False)`. It saves a tensor of the shape
(batch, queries), which its tests take for the log-sum-exp. All have 4 batches of 128 tokens, d = 64, and a tolerance of
1e-2. The solutions stand behind an adapter.
"""

import os
import subprocess
import sys
import textwrap

import pytest

from grader.doctor import Machine, can_run_kernels, uses_gpu

from .conftest import ROOT

pytestmark = pytest.mark.skipif(bool(can_run_kernels(Machine.here())), reason=str(can_run_kernels(Machine.here())))

ATTENTION = """
    import sys

    import torch

    from solutions import flash_attention as solution

    device = sys.argv[1]


    class InTriton(torch.autograd.Function):
        @staticmethod
        def forward(ctx, Q, K, V, is_causal=False):
            o, lse = solution.flash_attention_forward(Q, K, V, is_causal)
            ctx.save_for_backward(lse, Q, K, V, o)
            ctx.is_causal = is_causal
            return o

        @staticmethod
        def backward(ctx, do):
            lse, q, k, v, o = ctx.saved_tensors
            return *solution.flash_attention_backward(do, q, k, v, o, lse, ctx.is_causal), None


    class InPyTorch(InTriton):
        @staticmethod
        def forward(ctx, Q, K, V, is_causal=False):
            o, lse = solution.attention_tiled(Q, K, V, is_causal)
            ctx.save_for_backward(lse, Q, K, V, o)
            ctx.is_causal = is_causal
            return o


    torch.manual_seed(0)
    for implementation in (InPyTorch, InTriton):
        for is_causal in (False, True):
            q, k, v, do = (torch.randn(4, 128, 64, device=device, requires_grad=True) for _ in range(4))
            scores = q @ k.transpose(1, 2) / 8
            if is_causal:
                scores = scores.masked_fill(torch.ones(128, 128, device=device).triu(1).bool(), -torch.inf)
            expected = torch.softmax(scores, -1) @ v
            o = implementation.apply(q, k, v, is_causal)
            torch.testing.assert_close(o, expected, rtol=1e-2, atol=1e-2)
            [lse] = [saved for saved in o.grad_fn.saved_tensors if saved.shape == (4, 128)]
            torch.testing.assert_close(lse, torch.logsumexp(scores, -1), rtol=1e-2, atol=1e-2)
            got, right = (torch.autograd.grad(out, (q, k, v), do) for out in (o, expected))
            for mine, its in zip(got, right, strict=True):
                torch.testing.assert_close(mine, its, rtol=1e-2, atol=1e-2)
            print(implementation.__name__, is_causal)
"""


def test_attention_passes_the_tests_of_the_public_course():
    on_gpu = uses_gpu(Machine.here())
    environment = os.environ | ({} if on_gpu else {"TRITON_INTERPRET": "1"})
    command = [sys.executable, "-c", textwrap.dedent(ATTENTION), "cuda" if on_gpu else "cpu"]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.stdout.split() == [
        "InPyTorch",
        "False",
        "InPyTorch",
        "True",
        "InTriton",
        "False",
        "InTriton",
        "True",
    ], ended.stderr
