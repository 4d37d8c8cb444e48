"""Outcomes in words: exceptions of a submission, memory that it changed, and what Triton means by its errors."""

from __future__ import annotations

import re
from dataclasses import replace

from grader.judge.causes import describe_access
from grader.judge.memory import Change
from grader.judge.output import clean
from grader.judge.replies import Access, LargeEntry, Raised
from grader.judge.verdict import Outcome, Verdict, Where

NO_ELEMENTS = (
    "before this line, return an empty result where it has no elements; where only a sum has no terms, it is zeros "
    "(with k = 0 a product; attention without keys: o is zeros, and lse is -inf)"
)
IN_PYTORCH = "in PyTorch code use PyTorch's own: torch.exp, s.amax(-1), s.sum(-1); tl.* is for kernels"

# Errors whose text does not say what to do: a part of the text, why, and what to try.
KNOWN_ERRORS = (
    (
        "Did you forget to add @triton.jit", "a function of triton.language is called outside of a kernel",
        f"{IN_PYTORCH}, which have @triton.jit above them",
    ),
    (
        "'torch.dtype' object has no attribute 'is_", "a function of triton.language got a tensor of PyTorch",
        IN_PYTORCH,
    ),
    *(
        (
            part, "the two tensors of a product of PyTorch have different dtypes",
            "widen both in the same way before it: q.float(), k.float(), v.float()",
        )
        for part in ("expected m1 and m2 to have the same dtype", "self and mat2 must have the same dtype",
                     "expected scalar type", "expected both vectors to have same dtype")
    ),
    (
        "incorrect number of gradients", "backward returns one value for each argument that forward has after ctx",
        "return None for each that is no tensor to be differentiated, such as is_causal and scale: "
        "return dq, dk, dv, None, None",
    ),
    (
        "but expected shape compatible with", "backward returns a gradient of another shape than its input has",
        "each gradient has the shape of its input: return dx.reshape(x.shape) where rows were made of x before",
    ),
    (
        "0 active drivers", "@triton.autotune times its configurations, and there is no GPU to time them on",
        "use autotune_or_first from assignment/_autotune.py: without a GPU it keeps the first configuration",
    ),
    (
        "only 0-dimensional arrays can be converted",
        "a function of Python's math or numpy got a whole tile, or numpy and triton do not fit together",
        "inside a kernel use tl.exp, tl.sqrt and the like; is there no such call, run `python -m grader doctor`",
    ),
    (
        "arange's range must be a power of 2", "a tile has a power of two as its length",
        "round up with triton.next_power_of_2, and mask the elements that do not exist",
    ),
    (
        "Expected dtype ['fp32', 'fp64'] but got", "this function of Triton takes float32 only",
        "compute in float32: .to(tl.float32) after the load",
    ),
    (
        "has no attribute 'tanh'", "Triton's language has no tanh",
        "tanh(u) is 2 * tl.sigmoid(2 * u) - 1, which does not overflow",
    ),
    (
        "for ** or pow()", "tiles have no power operator", "multiply: x * x * x",
    ),
    (
        "Both operands must be same dtype", "the two tiles of tl.dot have different dtypes",
        "cast one to the other's dtype, tl.dot(x.to(y.dtype), y); the sum is float32 all the same",
    ),
    (
        "must have equal ranks", "tl.dot takes two tiles of two dimensions, and one of these has more or fewer",
        "look for a [:, None] that is there twice: [:, None] * stride makes a column of one index, once",
    ),
    (
        "must have equal reduction dimensions", "tl.dot(x, y) needs as many columns in x as there are rows in y",
        "let k run down the tile of b: k[:, None] * its stride along k + n[None, :] * its stride along n",
    ),
    (
        "are not compatible for matmul", "tl.dot(x, y) needs as many columns in x as there are rows in y",
        "let k run down the tile of b: k[:, None] * its stride along k + n[None, :] * its stride along n",
    ),
    (
        "must not be zero", "a size is 0 here, and range or tl.arange got it as its step",
        NO_ELEMENTS,
    ),
    (
        "end argument must be greater than", "tl.arange got a length of 0: a size is 0 here",
        NO_ELEMENTS,
    ),
    (
        "cannot be accessed from Triton", "a kernel on the GPU got a tensor of the CPU",
        "allocate on the device of the input: torch.empty(..., device=a.device)",
    ),
    (
        "illegal memory access", "a kernel read or wrote memory that belongs to no tensor",
        "mask every load and store; an index times a stride beyond 2^31 needs int64: index.to(tl.int64)",
    ),
    (
        "Cannot make_shape_compatible", "two tiles whose shapes do not fit are combined",
        "along each dimension sizes are equal or 1: look for a [:, None] that should be a [None, :]",
    ),
    (
        "unsupported operand type(s) for @", "tiles have no operator @", "multiply with tl.dot(a, b)",
    ),
    (
        "has no attribute 'relu'", "Triton's language has no relu", "relu(x) is tl.maximum(x, 0.0)",
    ),
    (
        "has no attribute 'gelu'", "Triton's language has no gelu", "write its tanh form with tl.sigmoid or tl.exp",
    ),
    (
        "Unsupported ptr type", "tl.load and tl.store take addresses, and got something else",
        "a kernel gets the tensor itself; in it, address = pointer + index * stride",
    ),
    (
        "has no attribute 'type'", "a kernel takes tensors and numbers, and got something else",
        "pass each size and stride by itself: x.shape[0], x.stride(0)",
    ),
    (
        "'float' object cannot be interpreted as an integer", "a count is a fraction",
        "round up with triton.cdiv(size, BLOCK); / gives a float",
    ),
    (
        "out of resource: shared memory", "all stages' tiles together need more shared memory than a block can have",
        "use smaller tiles, or a smaller num_stages",
    ),
    (
        "Input shapes should have", "a side of this tl.dot is too short for a GPU", "each side must be 16 or more",
    ),
    (
        "Loop-carried variable", "a variable leaves the loop with another type or shape than it had before",
        "give it its final dtype and shape before the loop: tl.zeros((M, N), tl.float32)",
    ),
    (
        "'NoneType'", "a function gave None: in Triton's interpreter every function of libdevice does",
        "libdevice needs a GPU: use tl.sigmoid, tl.exp, tl.erf and the like, which run everywhere",
    ),
    (
        "exceeds dtype primitive_bitwidth (1 bits)", "Triton's interpreter cannot pass a bool to a kernel",
        "declare that parameter as tl.constexpr",
    ),
    (
        "values to unpack", "the tensor has another number of dimensions here",
        "any number of dimensions may come: x.reshape(-1, x.shape[-1]) makes rows of them",
    ),
    (
        "view size is not compatible", "the elements of this tensor do not lie in one piece",
        "use x.contiguous() or x.reshape(...) in place of view",
    ),
    (
        "cannot reshape tensor of 0 elements", "a size is 0 here", NO_ELEMENTS,
    ),
    (
        "to have non-zero size", "a size is 0 here, and no elements have no maximum", NO_ELEMENTS,
    ),
    (
        "expects a non-empty TensorList", "a size is 0 here, and the list of tiles is empty", NO_ELEMENTS,
    ),
    (
        "expected a non-empty list of Tensors", "a size is 0 here, and the list of tiles is empty", NO_ELEMENTS,
    ),
    (
        "no attribute 'grid_idx'", "a kernel is called like a function, without a grid",
        "launch it with a grid: kernel[(programs,)](pointer, ..., BLOCK=1024)",
    ),
    (
        "object has no attribute 'scalar'", "a kernel is called like a function, without a grid",
        "launch it with a grid: kernel[(programs,)](pointer, ..., BLOCK=1024)",
    ),
    (
        "object of type 'int' has no len()", "a grid is a tuple, also of one number", "write kernel[(programs,)](...)",
    ),
    (
        "'function' object is not subscriptable", "this function is no kernel", "put @triton.jit above it",
    ),
    (
        "must be of type tl.constexpr", "the length of a tile must be known when the kernel is compiled",
        "declare that parameter as BLOCK: tl.constexpr, and pass it by name",
    ),
    (
        "'tuple' object has no attribute", "ctx.saved_tensors is a tuple, also of one tensor",
        "unpack it: (y,) = ctx.saved_tensors",
    ),
    (
        "must be Tensor, not tensor", "a kernel calls a function of PyTorch",
        "inside a kernel use triton.language only; allocate before the launch",
    ),
    *(
        (
            part, "not every backend has a mean among its reductions: gloo has none",
            "reduce with SUM, then divide by dist.get_world_size(process_group)",
        )
        for part in ("has SUM but no AVG", "ReduceOp.AVG")
    ),
    (
        "BdbQuit", "there is no keyboard here for breakpoint()", "use pytest tests/test_PROBLEM.py --here",
    ),
    (
        "EOFError", "there is no keyboard here", "use pytest tests/test_PROBLEM.py --here, or print",
    ),
    (
        "No module named 'assignment.", "there is no such file beside the one that imports it",
        "copy it from the assignment as it was handed out, or take the import out",
    ),
    (
        "ModuleNotFoundError", "modules of your own are imported with a dot, and other packages are not there",
        "for a file kernels.py write `from . import kernels` or `from .kernels import ...`",
    ),
    (
        "FileNotFoundError", "only the Python files of your folder are there when it is graded",
        "write the numbers into a module",
    ),
    (
        "expected an indented block", "a function, a loop or an if has no body there, and a comment is none",
        "write `pass` or a docstring, or finish it",
    ),
    (
        "by zero", "a size may be 0 here", NO_ELEMENTS,
    ),
)  # fmt: skip


# The same, where no line of the submission's is on the stack: Triton's own functions raised it.
KNOWN_IN_TRITON = (
    (
        "object has no attribute 'scalar'", "a function of triton.language got a tensor of PyTorch", IN_PYTORCH,
    ),
)  # fmt: skip


# The same, told by the line that failed, and where one line fails in several ways by the message as well.
KNOWN_LINES = (
    (
        r"driver\.active", "", "this line asks for the GPU, and there is none here",
        "allocate on the device of the input: device=a.device",
    ),
    (
        r"\.cuda\(|[\"']cuda|is_cuda", "", "this line wants a GPU, and your input is not on one here",
        "stay on the device of the input: x.device",
    ),
    (
        r"^assert\b", "", "an assert of your own refuses this input, which is allowed",
        "take it out, and handle the input: by its strides, or after x = x.contiguous()",
    ),
    (
        r"saved_tensors", r"unpack \(expected \d+, got 0\)|index out of range",
        "for this input forward returned without ctx.save_for_backward, or saved less than backward takes",
        "call ctx.save_for_backward(...) before every return of forward, an early one too",
    ),
    (
        r"saved_tensors", r"values to unpack", "forward saves another number of tensors than this line takes",
        "save the same ones before every return of forward, and unpack as many",
    ),
    (
        r"\]\(", r"missing \d+ required positional arguments?",
        "what is named here are parameters of the kernel that its launch does not pass",
        "pass each by its name, kernel[grid](..., GROUP_ROWS=8), or take it out of the kernel",
    ),
)  # fmt: skip

# PyTorch raises the stubs' NotImplementedError, too, where an operator does not take a dtype or a device.
TORCH_LACKS = ("not implemented for", "Could not run", "out of meta tensor")
NO_MEMORY = "DefaultCPUAllocator: can't allocate memory"  # torch says so in a plain RuntimeError


def raised_outcome(reply: Raised, doing: str = "") -> Outcome:
    """The outcome of an exception that the submission raised."""
    where = Where(f"assignment/{clean(reply.where.file)}", reply.where.line) if reply.where else None
    place = f" (line {where.line} of {where.file})" if where else ""
    message = _reason(reply)
    kind = " ".join(clean(reply.type, 200).split()) or "an exception without a name"
    said = f"{kind}: {message}" if message else kind
    detail = clean(reply.traceback)
    if reply.out_of_memory or NO_MEMORY in reply.message:
        return Outcome(
            Verdict.OUT_OF_MEMORY, f"memory ran out: {said}{place}",
            hint="allocate no more than inputs and outputs need", where=where, detail=detail,
        )  # fmt: skip
    if reply.type == "NotImplementedError" and not any(words in reply.message for words in TORCH_LACKS):
        return Outcome(Verdict.TODO, f"not written yet{place}", where=where)
    if reply.type == "SystemExit":
        return Outcome(
            Verdict.CRASH, f"your code called sys.exit({message}){place}", hint="a module or a function must not exit",
            where=where, detail=detail,
        )  # fmt: skip
    why, hint = _explained(said, reply.traceback)
    cause = None
    if reply.type == "StrayStore" and reply.accesses:
        found = describe_access(reply.accesses[-1])
        said, hint, cause = found.why, found.hint, found.name
        where, place = found.where, ""
    message = f"{doing + ': ' if doing else ''}{said}{place}"
    return Outcome(Verdict.FAIL, message, why, hint, cause=cause, where=where, detail=detail)


def on_rank(outcome: Outcome, rank: int, world: int) -> Outcome:
    """The same outcome, which says on which of several ranks it happened."""
    if world > 1 and outcome.verdict is not Verdict.TODO:
        outcome = replace(outcome, message=f"on rank {rank} of {world}: {outcome.message}")
    return outcome


def _explained(said: str, stack: str) -> tuple[str, str]:
    """Why, and what to try, if the failing line or the message is known."""
    lines = [line.strip() for line in stack.splitlines() if line.strip(" ^~")]  # without the marks below a line
    frame = max((number for number, line in enumerate(lines) if line.startswith('File "')), default=-1)
    line = " ".join(lines[frame + 1 :])  # from Python 3.13 on a statement is quoted with all its lines
    by_line = [
        (why, hint) for pattern, part, why, hint in KNOWN_LINES if re.search(pattern, line) and re.search(part, said)
    ]
    known = KNOWN_ERRORS if lines else (*KNOWN_IN_TRITON, *KNOWN_ERRORS)
    by_message = [(why, hint) for part, why, hint in known if part in said]
    return next(iter(by_line + by_message), ("", ""))


def _reason(reply: Raised) -> str:
    """The message in one line; of Triton's compiler, which quotes the kernel first, the end."""
    lines = [line.strip() for line in clean(reply.message).splitlines() if line.strip()]
    if reply.type == "CompilationError":
        lines = lines[-1:]
    return " ".join(" ".join(lines).split())[:400]


def too_large_outcome(name: str, entry: LargeEntry) -> Outcome:
    """The outcome of a result so large that it can only be of a wrong shape."""
    return Outcome(
        Verdict.FAIL, f"{name} has shape {list(entry.shape)}: far more elements than were asked for",
        hint="print the shapes of what you combine, and the shape of what you allocate",
        cause="wrong_shape",
    )  # fmt: skip


def changed_outcome(name: str, change: Change, accesses: tuple[Access, ...] = ()) -> Outcome:
    """The outcome of a call that wrote to memory it was only to read."""
    if change.index is not None:
        return Outcome(
            Verdict.FAIL, f"`{name}` was changed in place, first at {list(change.index)}",
            "the function must leave its inputs as they are", "write to a new tensor",
            cause="input_changed",
        )  # fmt: skip
    writes = [access for access in accesses if access.kind == "write"]
    found = describe_access(writes[0]) if writes else None
    distance = abs(change.elements_past_end)
    side = "past the end" if change.elements_past_end > 0 else "before the start"
    place = f"{distance} element{'s' * (distance != 1)} {side}" if distance else "in the gap between elements"
    return Outcome(
        Verdict.FAIL, f"memory around `{name}` was written to, first {place}", found.why if found else "",
        "mask the store: an index must be smaller than the size it runs over. Is the tensor that you write to large "
        "enough?", cause="out_of_bounds_write",
        where=found.where if found else None,
    )  # fmt: skip
