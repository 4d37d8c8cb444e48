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
from tests.staff.nearly_right import refused, right_all_the_same, wrong_in_one_thing

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


def expected_of_training(case):
    """What a training is compared with: each weight at the start, each gradient of the first step."""
    draw = Draw.of(case, torch.Generator().manual_seed(0))
    right = Reference.of(draw)
    for name, first, own in zip(right.weight_names, right.weights, draw.states[0], strict=True):
        yield name, ddp_reference.weight(first, own)
    for number, name in enumerate(right.names if right.local else ()):
        local = [of_rank[number] for of_rank in right.local[0]]
        if all(gradient is not None for gradient in local):
            dtype = right.weights[right.weight_names.index(name)].dtype
            yield f"the gradient of {name}", ddp_reference.gradient(local, 0, dtype, None, {}, case.world)


def expected_of_optimization(case):
    """What an optimizer is compared with: each parameter after the last step."""
    draw = OptimizationDraw.of(case, torch.Generator().manual_seed(0))
    right = draw.reference()
    for index in range(len(right[-1])):
        yield f"parameter {index}", sharded_reference.parameter(draw, len(right) - 1, index, right)


def words(one):
    return getattr(one, "__name__", str(one))


COMPARED = [
    *((expected_of_training, case) for case in cases_of(Training, test_ddp, hidden_ddp)),
    *((expected_of_optimization, case) for case in cases_of(Optimization, test_sharded_optimizer, hidden_sharded)),
]


@pytest.mark.parametrize(("expected_of", "case"), COMPARED, ids=words)
def test_what_is_wrong_in_one_thing_is_refused(expected_of, case):
    for name, expected in expected_of(case):
        for what, answer in wrong_in_one_thing(expected):
            assert refused(answer, expected), f"{name}: {what}"


@pytest.mark.parametrize(("expected_of", "case"), COMPARED, ids=words)
def test_negative_zeros_and_any_strides_are_accepted(expected_of, case):
    for name, expected in expected_of(case):
        for what, answer in right_all_the_same(expected):
            assert not refused(answer, expected), f"{name}: {what}"
