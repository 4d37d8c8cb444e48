"""Notes which operators of PyTorch a call runs, how many kernels it launches and compiles; marks fresh memory.

Advice: it can be blinded.
"""

from typing import Any

import loading
import origins
import torch
from origins import tensors_in
from torch.utils._python_dispatch import TorchDispatchMode

# What makes room without a value. PyTorch fills it with the NaN that arithmetic gives as well, so it gets bits of its
# own: the judge tells by them what was never written. They also stand in `grader/judge/memory.py`.
MAKES_ROOM = {"aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided"}
FRESH = {2: (torch.int16, 0x7FC2), 4: (torch.int32, 0x7FC0F111), 8: (torch.int64, 0x7FF8F111F111F111)}


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Entered around each call of a student's function; what it notes adds up over the calls of a check."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[str, dict[str, Any]] = {}
        self.launches = 0
        self.compiled_s = 0.0  # what Triton says that its compiler took, in the whole life of this process
        self.folder = "/"
        self.origins: origins.Origins | None = None  # on a CPU

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler for this, which takes seconds

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        """Carry the operator out; note it by its name if it gives numbers, or changes an argument and gives nothing."""
        given, name = [*arguments, *(options or {}).values()], function._schema.name
        is_ours = name.startswith("aten::")  # of others nobody knows what they do, whatever they say
        is_view = function.is_view and is_ours
        writes = not is_view or name == "aten::lift_fresh"  # of torch.tensor(...): its numbers are new
        known = self.origins is not None and writes and self.origins.know_all(given)
        result = function(*arguments, **(options or {}))
        if name in MAKES_ROOM:
            mark_as_fresh(result)
        touched = list(tensors_in(arguments if result is None else result))
        if not is_view and (not is_ours or any(tensor.dtype != torch.bool for tensor in touched)):
            noted = self.seen.setdefault(
                name + reduction(function, arguments, options or {}), {"count": 0, "where": None}
            )
            noted["where"] = noted["where"] or loading.line_in(self.folder)
            noted["count"] += 1
        if self.origins:
            self.origins.operator(name, given, result, known)
        return result

    def count_launch(self, *what: object) -> None:
        """Called at each launch of a kernel: by the interpreter's watch, or by triton itself on a GPU."""
        self.launches += 1

    def count_compilation(self, *, times: Any, **_: object) -> None:
        """Called by triton whenever a kernel was compiled, or found compiled already."""
        self.compiled_s += times.total / 1e6


def mark_as_fresh(room: torch.Tensor) -> None:
    """Fill new memory for floating-point numbers with a NaN that no computation gives."""
    if room.is_floating_point() and room.element_size() in FRESH and room.layout is torch.strided:
        integer, pattern = FRESH[room.element_size()]
        room.view(integer).fill_(pattern)


def reduction(function: Any, arguments: Any, options: dict[str, Any]) -> str:
    """What is added to the name of an operator that moves elements, where it calculates with them as well."""
    given = dict(zip((one.name for one in function._schema.arguments), arguments, strict=False)) | options
    return ".reduce" if given.get("accumulate") is True or isinstance(given.get("reduce"), str) else ""
