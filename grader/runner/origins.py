"""Where numbers come from: notes what watched operators and kernels have written, and finds what they have not.

A kernel has no use for numbers that nothing watched has made, nor has an answer: they come from a thread, another
process, numpy, or from below PyTorch's dispatcher. Advice, for people: it can be blinded.
"""

import ctypes
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import loading
import torch

FEW_BYTES = 256  # of a storage: a constant or two, which may come from anywhere
WHOLE_BYTES = 4 << 20  # of a larger one a part is looked at
FILLS = {  # operators that take a number of Python's; lift_fresh is in torch.tensor(1.0), and in x[0] = 1.0
    "aten::lift_fresh", "aten::fill_", "aten::full", "aten::full_like", "aten::new_full", "aten::scalar_tensor",
    "aten::masked_fill_",
}  # fmt: skip
FEW_NUMBERS = 16  # that a check writes into tensors one by one
PLAIN = (torch.Tensor, torch.nn.Parameter)


class Origins:
    """The contents of storages as the last watched operator or kernel left them, by their addresses."""

    def __init__(self) -> None:
        self.contents: dict[int, int] = {}
        self.given: list[torch.Tensor] = []  # the judge's storages
        self.folder = "/"
        self.is_loading = True  # the module, before there is any input: its tables are known
        self.begin()

    def begin(self) -> None:
        """Forget what was found, not what was written: what a submission keeps between checks is known."""
        self.found: dict[str, dict[str, Any] | None] = {}
        self.numbers: set[float] = set()

    def know_all(self, arguments: object) -> bool:
        """Whether an operator that is about to run gets nothing but known numbers."""
        return self.is_loading or all(self.knows(tensor) for tensor in tensors_in(arguments))

    def operator(self, name: str, arguments: object, result: object, known: bool) -> None:
        """An operator has run. What it has written is known if all that went in was."""
        self._count_numbers(name, arguments)
        if known and name != "aten::set_":
            self.write([*tensors_in(arguments), *tensors_in(result)])

    def write(self, tensors: Iterable[torch.Tensor]) -> None:
        """These hold what something watched has written."""
        for tensor in tensors:
            if is_plain(tensor):
                storage = tensor.untyped_storage()
                self.write_bytes(storage.data_ptr(), storage.nbytes())

    def write_bytes(self, start: int, count: int) -> None:
        """The same of bytes."""
        if count > FEW_BYTES:
            self.contents[start] = content(start, count)

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether its memory holds what was last written there by something watched."""
        if type(tensor) not in PLAIN:
            return False  # a kind of tensor of its own: it may have no memory at all
        if not is_plain(tensor):
            return True
        storage = tensor.untyped_storage()
        return self.knows_bytes(storage.data_ptr(), storage.nbytes())

    def knows_bytes(self, start: int, count: int) -> bool:
        """The same of bytes."""
        if count <= FEW_BYTES or any(block.untyped_storage().data_ptr() == start for block in self.given):
            return True
        return self.contents.get(start) == content(start, count)

    def find(self, kind: str) -> None:
        """Note one of the kinds of `Unseen` in grader/judge/replies.py, with the line from which it came."""
        if kind not in self.found:
            self.found[kind] = loading.line_in(self.folder)

    def _count_numbers(self, name: str, arguments: object) -> None:
        if name in FILLS:
            for one in arguments if isinstance(arguments, list) else ():
                if isinstance(one, torch.Tensor) and one.dim() == 0 and name == "aten::lift_fresh":
                    self.numbers.add(float(one))
                elif isinstance(one, float):
                    self.numbers.add(one)
            if len(self.numbers) > FEW_NUMBERS:
                self.find("numbers")


def content(start: int, count: int) -> int:
    """A number for what lies there: of all of it, or of its beginning and its end."""
    ends = [(start, count)] if count <= WHOLE_BYTES else [
        (start, WHOLE_BYTES // 2), (start + count - WHOLE_BYTES // 2, WHOLE_BYTES // 2)
    ]  # fmt: skip
    number = 0
    for first, length in ends:
        number = zlib.crc32((ctypes.c_char * length).from_address(first), number)
    return number


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether it lies in this process's memory, element by element."""
    return type(tensor) in PLAIN and tensor.layout is torch.strided and tensor.device.type == "cpu"


def tensors_in(thing: object) -> Iterator[torch.Tensor]:
    """All tensors in a nest of lists, tuples and dictionaries."""
    if isinstance(thing, torch.Tensor):
        yield thing
    elif isinstance(thing, dict):
        yield from tensors_in(list(thing.values()))
    elif isinstance(thing, (list, tuple)):
        for one in thing:
            yield from tensors_in(one)
