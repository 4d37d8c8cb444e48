"""Did the student write it? What PyTorch computed during a check, against what the problem allows.

Operators that make room, copy, convert or move elements are set-up. Any other that gives numbers is arithmetic, and the
problem's own operation is named as such. The runner tells which ones ran, and can be blinded: so this is evidence for
people and decides nothing. In a self-check it is a warning, in grading it opens a review. So do numbers that came from
where nobody watches, and in the source, what leads there: that is read here, and cannot be blinded.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType

from grader.inspect.unwatched import Way
from grader.judge.output import clean
from grader.judge.replies import Operator, Place, Unseen

# The library's own version of what each problem asks for. With other arithmetic the warning has other words.
OWN_OPERATION = {
    "gelu": {"gelu"},
    "softmax": {"_softmax", "_safe_softmax", "_log_softmax", "logsumexp", "_softmax_backward_data"},
    "matmul": {
        "mm", "bmm", "addmm", "addbmm", "baddbmm", "mv", "addmv", "dot", "vdot", "ger", "addr", "linear", "convolution",
        "_trilinear", "_scaled_mm", "_addmm_activation", "_grouped_mm", "linalg_matmul", "matmul", "tensordot",
    },
    "flash_attention": {
        "scaled_dot_product_attention", "_scaled_dot_product_attention_math", "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable",
        "_flash_attention_forward", "_efficient_attention_forward", "_cudnn_attention_forward",
        "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention_backward",
        "_flash_attention_backward", "_efficient_attention_backward", "_cudnn_attention_backward",
        "_transformer_encoder_layer_fwd", "_native_multi_head_attention", "flex_attention", "flex_attention_backward",
    },
}  # fmt: skip

IN_PYTORCH = {"attention_tiled"}  # functions that are to be written without a kernel

# What changes no value, or sums: contiguous is clone, float() is _to_copy, a padded copy is constant_pad_nd.
SET_UP = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like", "new_zeros",
    "ones", "ones_like", "full", "full_like", "new_full", "fill", "zero", "scalar_tensor", "arange", "lift_fresh",
    "clone", "copy", "_to_copy", "_unsafe_view", "_reshape_copy", "resize", "set", "detach", "alias",
    "cat", "stack", "constant_pad_nd", "repeat", "index", "index_select", "gather", "take", "flip", "roll", "tril",
    "triu", "abs", "index_put", "scatter", "masked_scatter", "_local_scalar_dense", "select_backward", "slice_backward",
    "as_strided_scatter", "slice_scatter", "masked_fill", "where", "sum", "_pin_memory", "record_stream",
}  # fmt: skip

# What the runner finds in its process, most telling first.
UNSEEN: dict[Unseen, str] = {
    "interpreter": "Triton's interpreter was changed",
    "read": "a kernel read numbers that neither a kernel nor PyTorch had written, as far as was seen",
    "answer": "neither a kernel nor PyTorch wrote the answer, as far as was seen",
    "numbers": "numbers were put into tensors one by one",
}
MOST_NAMES = 6  # in the evidence


@dataclass(frozen=True)
class Borrowed:
    """Why somebody should look, and what was seen."""

    reason: str
    evidence: str
    hint: str = "let your kernel compute all of it; PyTorch may make room, copy, convert and move elements"


def borrowed(
    problem: str, functions: Set[str], operators: Mapping[str, Operator], launches: int | None,
    unseen: Mapping[Unseen, Place | None] = MappingProxyType({}), way: Way | None = None,
) -> Borrowed | None:  # fmt: skip
    """What speaks against the student's own code having computed the answers of a check, if anything does.

    `functions` are those that were called; `operators` counts those that ran, by the names of their schemas
    ("aten::mm"); `launches` counts kernels, None where nobody counts them; `unseen` is what came from elsewhere; `way`
    is the first that the source has to where nobody watches.
    """
    own = OWN_OPERATION.get(problem)
    if own is None:
        return None
    arithmetic = {name: count for name, count in operators.items() if _short(name) not in SET_UP}
    evidence = _evidence(arithmetic, own)
    if any(_short(name) in own for name in arithmetic):
        return Borrowed(f"PyTorch's own {problem.replace('flash_', '')} ran", evidence)
    if functions and functions <= IN_PYTORCH:
        return None
    if launches == 0:
        return Borrowed("no Triton kernel was launched", evidence or "no operator of PyTorch computed anything, either")
    if arithmetic:
        return Borrowed("PyTorch computed a part", evidence)
    if found := next((kind for kind in UNSEEN if kind in unseen), None):
        return Borrowed(UNSEEN[found], _place(unseen[found]) or "no line of the submission's was being run")
    return borrowed_by(way) if way else None


def borrowed_by(way: Way, hint: str = Borrowed.hint) -> Borrowed:
    """The same for what the source says alone."""
    return Borrowed("it uses what nobody watches", f"{way.what}, {_place(Place(file=way.file, line=way.line))}", hint)


def _evidence(arithmetic: Mapping[str, Operator], own: set[str]) -> str:
    """The operators, the problem's own ones first, how often each ran, and from where the first did."""
    names = sorted(arithmetic, key=lambda name: (_short(name) not in own, name))
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    where = next((one.where for name in names if (one := arithmetic[name]).where), None)
    place = f" ({_place(where)})" if where else ""
    return (
        ", ".join(f"{clean(_short(name), 60)} {arithmetic[name].count} x" for name in names[:MOST_NAMES]) + more + place
    )


def _place(where: Place | None) -> str:
    return f"line {where.line} of assignment/{clean(where.file, 100)}" if where else ""


def _short(name: str) -> str:
    """The operator, without its library and without the underscore of its in-place form."""
    return name.removeprefix("aten::").removesuffix("_")
