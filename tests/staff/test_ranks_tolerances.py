"""The tolerances of the checks of several ranks: what float32 gives stays far below them, in whichever order it adds.

What is wrong is off by a part of its size that a mutant shows; here is that no draw makes the right refused.
"""

from itertools import chain

import pytest
import torch

from grader.hidden import test_ddp as hidden_ddp
from grader.hidden import test_sharded_optimizer as hidden_sharded
from grader.judge.optimization import Optimization, OptimizationDraw
from grader.judge.reference import ddp as ddp_reference
from grader.judge.reference import sharded_optimizer as sharded_reference
from grader.judge.training import Draw, Reference, Training, mean_of
from tests import test_ddp, test_sharded_optimizer

DRAWS = 20
MARGIN = {torch.float32: 3.0, torch.bfloat16: 1.3}  # how far below its limit a right answer is


def cases_of(kind, *modules):
    """All cases in the tables of modules of checks."""
    tables = chain.from_iterable(vars(module).values() for module in modules)
    found = [case for table in tables if isinstance(table, list) for case in table if isinstance(case, kind)]
    return list({str(case): case for case in found}.values())


@pytest.mark.parametrize("case", cases_of(Training, test_ddp, hidden_ddp), ids=str)
def test_gradients_in_float32_are_far_below_every_limit(case):
    for seed in range(DRAWS):
        draw = Draw.of(case, torch.Generator().manual_seed(seed))
        right, found = Reference.of(draw), Reference.of(draw, torch.float32)
        for local, calculated in zip(right.local, found.local, strict=True):
            for number, name in enumerate(right.names):
                gradients = [of_rank[number] for of_rank in local]
                if mean_of(gradients) is None:
                    continue
                filled = [
                    torch.zeros_like(next(g for g in gradients if g is not None)) if g is None else g for g in gradients
                ]
                dtype = right.weights[right.weight_names.index(name)].dtype
                expected = ddp_reference.gradient(filled, 0, dtype, None, {}, case.world)
                mean = mean_of([of_rank[number] for of_rank in reversed(calculated)]).to(dtype)
                excess = expected.errors(mean).excess(expected.tolerance)
                assert excess <= 1 / MARGIN[dtype], f"{name}, seed {seed}: {excess:.2f} of the limit"


@pytest.mark.parametrize("case", cases_of(Optimization, test_sharded_optimizer, hidden_sharded), ids=str)
def test_parameters_in_float32_are_far_below_every_limit(case):
    for seed in range(DRAWS):
        draw = OptimizationDraw.of(case, torch.Generator().manual_seed(seed))
        right, found = draw.reference(), draw.reference(dtype=torch.float32)
        for step, parameters in enumerate(found):
            for index, parameter in enumerate(parameters):
                expected = sharded_reference.parameter(draw, step, index, right)
                excess = expected.errors(parameter).excess(expected.tolerance)
                assert excess <= 1 / MARGIN[torch.float32], f"parameter {index}, seed {seed}: {excess:.2f} of the limit"
