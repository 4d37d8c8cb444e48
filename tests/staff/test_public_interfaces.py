"""The interfaces of a public course on language models: its tests, written anew, pass with the solutions.

There attention is an `autograd.Function` with `forward(ctx, Q, K, V, is_causal=False)`. It saves a tensor of the shape
(batch, queries), which its tests take for the log-sum-exp. All have 4 batches of 128 tokens, d = 64, and a tolerance of
1e-2. The solutions stand behind an adapter.

Its wrapper for data parallel training averages gradients until `finish_gradient_synchronization()`, its sharded
optimizer is made of parameters and a class. Two ranks over gloo train toy models with tied and frozen parameters on
halves of a batch, and are compared with one process that has the whole batch.
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


DISTRIBUTED = """
    import os
    import sys
    import tempfile

    import torch
    import torch.distributed as dist
    from torch import nn

    from solutions.ddp import DDP
    from solutions.sharded_optimizer import ShardedOptimizer

    WORLD, STEPS, ROWS = 2, 5, 20


    class Toy(nn.Module):
        def __init__(self, tied):
            super().__init__()
            self.first = nn.Linear(10, 10, bias=False)
            self.second = nn.Linear(10, 50)
            self.second.bias.requires_grad = False
            self.third = nn.Linear(50, 10, bias=False)
            self.fourth = nn.Linear(10, 50, bias=False)
            self.last = nn.Linear(50, 5, bias=False)
            self.unused = nn.Parameter(torch.tensor([2.0, 2.0]), requires_grad=False)
            if tied:
                self.fourth.weight = self.second.weight

        def forward(self, x):
            x = torch.relu(self.second(torch.relu(self.first(x))))
            return self.last(torch.relu(self.fourth(torch.relu(self.third(x)))))


    def make(tied, seed):
        torch.manual_seed(seed)
        return Toy(tied)


    def compare(rank, tied, bucketed, sharded):
        alone, mine = make(tied, 0), make(tied, rank)
        wrapped = DDP(mine, bucket_bytes=1000) if bucketed else DDP(mine)
        for one, other in zip(alone.parameters(), wrapped.parameters(), strict=True):
            assert torch.equal(one, other), "not broadcast"
        for step in range(STEPS):
            torch.manual_seed(100 + step)
            x, y = torch.randn(ROWS, 10), torch.randn(ROWS, 5)
            own = slice(rank * ROWS // WORLD, (rank + 1) * ROWS // WORLD)
            if step == 0:
                one = torch.optim.AdamW(alone.parameters(), lr=0.1, weight_decay=0.1, betas=(0.9, 0.999), eps=1e-8)
                other = (
                    ShardedOptimizer(wrapped.parameters(), torch.optim.AdamW, lr=0.1, weight_decay=0.1)
                    if sharded
                    else torch.optim.AdamW(wrapped.parameters(), lr=0.1, weight_decay=0.1)
                )
            for model, optimizer, rows in ((alone, one, slice(None)), (wrapped, other, own)):
                optimizer.zero_grad()
                nn.functional.mse_loss(model(x[rows]), y[rows]).backward()
                if model is wrapped:
                    model.finish_gradient_synchronization()
                optimizer.step()
            for left, right in zip(alone.parameters(), wrapped.parameters(), strict=True):
                torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)
        assert torch.equal(wrapped.module.unused, torch.tensor([2.0, 2.0]))


    def work(rank, path):
        dist.init_process_group("gloo", store=dist.FileStore(path, WORLD), rank=rank, world_size=WORLD)
        for tied in (False, True):
            for bucketed in (False, True):
                for sharded in (False, True):
                    compare(rank, tied, bucketed, sharded)
        dist.destroy_process_group()


    if __name__ == "__main__":
        torch.multiprocessing.start_processes(
            work, (os.path.join(tempfile.mkdtemp(), "store"),), nprocs=WORLD, start_method="fork"
        )
        print("as one process")
"""


def test_the_solutions_pass_the_public_courses_tests_of_data_parallel_training(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(DISTRIBUTED))
    environment = os.environ | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], env=environment, capture_output=True, text=True, timeout=180
    )
    assert done.stdout.splitlines()[-1:] == ["as one process"], done.stderr[-2000:]
