"""Notes which operators of PyTorch a call runs, and how many kernels it launches. Advice: it can be blinded."""

from typing import Any

import loading
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Entered around each call of a student's function; what it notes adds up over the calls of a check."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[str, dict[str, Any]] = {}
        self.launches = 0
        self.folder = "/"

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or torch imports its compiler for this, which takes seconds

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        """Carry the operator out; note it by its name if it gives numbers, or changes an argument and gives nothing."""
        result = function(*arguments, **(options or {}))
        touched, name = first_tensor(arguments if result is None else result), function._schema.name
        is_view = function.is_view and name.startswith("aten::")  # of one that was added, nobody knows what it does
        if touched is not None and touched.dtype != torch.bool and not is_view:
            noted = self.seen.setdefault(name, {"count": 0, "where": None})
            noted["where"] = noted["where"] or loading.line_in(self.folder)
            noted["count"] += 1
        return result

    def count_launch(self, *what: object) -> None:
        """Called at each launch of a kernel: by the interpreter's watch, or by triton itself on a GPU."""
        self.launches += 1


def first_tensor(thing: object) -> torch.Tensor | None:
    """The first tensor in a nest of lists and tuples."""
    if isinstance(thing, torch.Tensor):
        return thing
    inner = thing if isinstance(thing, (list, tuple)) else ()
    return next((found for one in inner if (found := first_tensor(one)) is not None), None)
