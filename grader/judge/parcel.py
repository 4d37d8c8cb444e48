"""One call as it travels: which storages, which tensors lie in them, and the arguments in order."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from grader.judge.memory import Change, first_change, storage_bytes


@dataclass(frozen=True)
class Parcel:
    """The inputs of one call by name, ready to be sent, and to be compared with what comes back."""

    inputs: dict[str, torch.Tensor]
    storages: tuple[str, ...]  # for each storage, the name of the first input that lies in it

    @classmethod
    def of(cls, inputs: dict[str, torch.Tensor]) -> Parcel:
        """Inputs that share a storage send it once."""
        first: dict[int, str] = {}
        for name, tensor in inputs.items():
            first.setdefault(_address(tensor), name)
        return cls(inputs, tuple(first.values()))

    @property
    def parts(self) -> list[memoryview]:
        """The storages, whole."""
        return [storage_bytes(self.inputs[name]) for name in self.storages]

    def specs(self, leaves: list[str], elsewhere: str | None = None) -> list[dict[str, object]]:
        """A header's description of each input: where it lies, and whether a gradient is wanted.

        The input of the name `elsewhere` is to be moved to another device.
        """
        places = {_address(self.inputs[name]): index for index, name in enumerate(self.storages)}
        return [
            {
                "name": name, "storage": places[_address(tensor)],
                "dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape),
                "strides": list(tensor.stride()), "offset": tensor.storage_offset(), "requires_grad": name in leaves,
                "elsewhere": name == elsewhere,
            }
            for name, tensor in self.inputs.items()
        ]  # fmt: skip

    def first_change(self, returned: list[memoryview]) -> tuple[str, Change] | None:
        """The first storage that came back different: the input that lies in it, and where."""
        for name, content in zip(self.storages, returned, strict=True):
            if change := first_change(self.inputs[name], content):
                return name, change
        return None


def _address(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
