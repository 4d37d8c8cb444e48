"""Hidden checks of `gelu`: other numbers, the same kinds as in the public ones."""

import pytest
import torch

from grader.judge.cases import Input, Values, every_other, expanded, normal, permuted, row_pitch, shifted, uniform
from grader.judge.compare import assert_matches
from grader.judge.reference import gelu as reference


def many_scales(shape, generator):
    """Magnitudes spread evenly over the exponents from 1e-6 to 1e6, of either sign."""
    exponents = 12 * torch.rand(shape, generator=generator) - 6
    return 10**exponents * torch.randn(shape, generator=generator).sign()


OTHER_SIZES = [Input((n,)) for n in (3, 63, 129, 2047, 12_345)]
OTHER_SIZES += [
    Input((51, 83), layout=row_pitch(97)),
    Input((51, 83), layout=permuted(1, 0)),
    Input((51, 83), layout=every_other(-1)),
    Input((1, 83), layout=expanded(0)),
    Input((2050,), layout=shifted(1)),
    Input((4097,), torch.float16),
]
MIXED_VALUES = [
    Input((5000,), values=Values("magnitudes from 1e-6 to 1e6", many_scales)),
    Input((5000,), values=normal(1e-3)),
    Input((5000,), values=uniform(12)),
    Input((5000,), values=uniform(3e38)),
    Input((5000,), torch.float16, values=uniform(12)),
]
MANY_DIMENSIONS = [Input((1, 1, 1)), Input((2, 0, 3)), Input((2, 1, 3, 1, 41)), Input((4, 3, 2, 5, 6))]
HALF_LAYOUTS = [
    Input((61, 90), torch.float16, layout=permuted(1, 0)),
    Input((7, 8, 90), torch.float16, layout=permuted(2, 1, 0)),
    Input((61, 90), torch.float16, layout=every_other(0)),
    Input((7, 90), torch.float16, layout=expanded(0)),
]


@pytest.mark.parametrize("case", OTHER_SIZES, ids=str)
def test_other_sizes(submission, draw, case):
    """Sizes and layouts of every promised kind."""
    x = draw(case)
    assert_matches(submission.gelu(x), reference.gelu(x))


@pytest.mark.parametrize("case", MIXED_VALUES, ids=str)
def test_mixed_values(submission, draw, case):
    """Every finite value is right."""
    x = draw(case)
    assert_matches(submission.gelu(x), reference.gelu(x))


@pytest.mark.parametrize("case", MANY_DIMENSIONS, ids=str)
def test_many_dimensions(submission, draw, case):
    """Any number of dimensions, of any size."""
    x = draw(case)
    assert_matches(submission.gelu(x), reference.gelu(x))


@pytest.mark.parametrize("case", HALF_LAYOUTS, ids=str)
def test_half_layouts(submission, draw, case):
    """float16 in layouts of every promised kind."""
    x = draw(case)
    assert_matches(submission.gelu(x), reference.gelu(x))
