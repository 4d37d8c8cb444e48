"""The strict form of everything a runner may say. What does not fit is no reply, and the run a `crash`."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from grader.runner.protocol import Malformed
from grader.runner.tensors import DTYPES

Text = Annotated[str, Field(max_length=8000)]
Count = Annotated[int, Field(ge=0, lt=2**62)]
Seconds = Annotated[float, Field(ge=0, lt=1e6)]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Place(Strict):
    file: Annotated[str, Field(max_length=1000)]
    line: Count


class Access(Strict):
    """One line of a kernel that touched memory outside every tensor, as the runner tells it."""

    kind: Literal["read", "write"]
    program: Annotated[list[Count], Field(min_length=3, max_length=3)]
    lanes: Annotated[list[Count], Field(min_length=2, max_length=2)]
    count: Count
    tensor: Text | None
    element: Annotated[int, Field(gt=-(2**62), lt=2**62)] | None
    where: Place | None


class Operator(Strict):
    """How often an operator of PyTorch ran, and from which line first."""

    count: Count
    where: Place | None


class TensorEntry(Strict):
    kind: Literal["tensor"]
    dtype: Text
    shape: Annotated[list[Count], Field(max_length=16)]
    device: Literal["cpu", "cuda"]

    @property
    def nbytes(self) -> int:
        if self.dtype not in DTYPES:
            raise Malformed("a tensor of an unknown dtype")
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class LargeEntry(Strict):
    """A tensor so much larger than what was sent that it did not travel."""

    kind: Literal["large"]
    dtype: Text
    shape: Annotated[list[Count], Field(max_length=64)]
    device: Literal["cpu", "cuda"]


class NoneEntry(Strict):
    kind: Literal["none"]


class OtherEntry(Strict):
    kind: Literal["other"]
    what: Text


Entry = Annotated[TensorEntry | LargeEntry | NoneEntry | OtherEntry, Field(discriminator="kind")]
Entries = Annotated[list[Entry], Field(max_length=64)]
Accesses = Annotated[list[Access], Field(max_length=64)]


class Loaded(Strict):
    number: Count
    status: Literal["loaded"]
    names: Annotated[list[Text], Field(max_length=200)]


Unseen = Literal["read", "answer", "numbers", "interpreter"]  # grader/runner/origins.py


class Answered(Strict):
    number: Count
    status: Literal["answer"]
    outputs: Entries
    gradients: Entries = []
    earlier: Entries = []
    accesses: Accesses = []
    operators: Annotated[dict[Text, Operator], Field(max_length=64)] = {}  # of PyTorch, so far in this check
    launches: Count = 0  # of kernels, so far in this check
    unseen: dict[Unseen, Place | None] = {}  # what came from elsewhere, so far in this check, and a line
    compiled_s: Seconds = 0.0  # by triton's word, in the whole life of the process: to be shown, nothing else


class Raised(Strict):
    number: Count
    status: Literal["raised"]
    type: Text
    out_of_memory: bool
    missing: Text | None
    message: Text
    where: Place | None
    traceback: Text
    accesses: Accesses


Size = Annotated[tuple[Text, Count], Field(strict=False)]  # dtype and number of elements
Sizes = Annotated[list[Size], Field(max_length=4096)]


class Request(Strict):
    """One rank's part in a collective of a scenario, whose tensors follow; or its arrival at a gate, or at the end."""

    number: Count
    status: Literal["request"]
    request: Count
    kind: Literal[
        "all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all",
        "barrier", "send", "receive", "gate", "end",
    ]  # fmt: skip
    inputs: Sizes
    outputs: Sizes
    phase: Annotated[str, Field(max_length=40)]  # of the scenario, by the runner's word
    group: Annotated[list[Count], Field(max_length=64)] = []  # global ranks
    root: Annotated[int, Field(ge=-1, lt=64)] = -1  # or the other side of a send or a receive; a rank of the group
    operation: Literal["SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"] = "SUM"
    gate: Count = 0


class Carried(Strict):
    """A rank has gone through its scenario: what it reported, one report after the other."""

    number: Count
    status: Literal["carried"]
    lengths: Annotated[list[Count], Field(max_length=4096)]
    values: Annotated[list[Entry], Field(max_length=65536)]
    borrowed: Annotated[list[Text], Field(max_length=16)] = []  # classes of the library's that do the whole problem


class PlaceEntry(Strict):
    """Where a tensor lies that stays in the runner's device memory, by the runner's word."""

    kind: Literal["place"]
    block: Count
    offset: Count  # in bytes
    strides: Annotated[list[Annotated[int, Field(gt=-(2**62), lt=2**62)]], Field(max_length=16)]
    dtype: Text
    shape: Annotated[list[Count], Field(max_length=16)]


Handle = Annotated[str, Field(pattern="^[0-9a-f]{128}$")]
Placed = Annotated[PlaceEntry | LargeEntry | NoneEntry | OtherEntry, Field(discriminator="kind")]
Places = Annotated[list[Placed], Field(max_length=16)]


class Timed(Strict):
    """Calls for the clock are made: where their answers will lie, and handles of blocks not named before, in order."""

    number: Count
    status: Literal["timed"]
    places: Annotated[list[Places], Field(max_length=4096)] = []  # of each call
    blocks: Annotated[list[Handle], Field(max_length=4096)] = []
    compiled_s: Seconds = 0.0  # as in an answer


class Done(Strict):
    """The answers of such calls are there."""

    number: Count
    status: Literal["done"]


class Estimated(Strict):
    """Seconds of a call in rounds of calls, by the runner's own clock and word."""

    number: Count
    status: Literal["estimated"]
    seconds: Annotated[list[Annotated[float, Field(gt=0, allow_inf_nan=False)]], Field(min_length=2, max_length=4096)]


Reply = Loaded | Answered | Raised | Request | Carried | Timed | Done | Estimated
_REPLY: TypeAdapter[Reply] = TypeAdapter(Annotated[Reply, Field(discriminator="status")])


def parse(header: object) -> Reply:
    """Check a reply's header against its form; raises `Malformed`."""
    try:
        return _REPLY.validate_python(header)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        fields = first["loc"][:-1] if first["type"] == "extra_forbidden" else first["loc"]
        place = ".".join(str(part) for part in fields[:2])  # below a field, keys may be the runner's text
        raise Malformed(f"a reply whose {place or 'form'} is wrong ({first['type']})") from None


def split(
    entries: list[TensorEntry], storages: list[int], payload: bytearray
) -> tuple[list[torch.Tensor], list[memoryview]]:
    """Cut a payload into the tensors that its header names and the storages that the judge had sent.

    Raises `Malformed` unless the sizes agree to the byte.
    """
    if sum(entry.nbytes for entry in entries) + sum(storages) != len(payload):
        raise Malformed("a reply whose tensors do not fill its payload")
    at, tensors, returned = 0, [], []
    for entry in entries:
        tensors.append(_tensor(entry, payload[at : at + entry.nbytes]))
        at += entry.nbytes
    for size in storages:
        returned.append(memoryview(payload)[at : at + size])
        at += size
    return tensors, returned


def _tensor(entry: TensorEntry, content: bytearray) -> torch.Tensor:
    dtype = DTYPES[entry.dtype]
    if not content:
        flat = torch.empty(0, dtype=dtype)
    elif dtype is torch.bool:
        flat = torch.frombuffer(content, dtype=torch.uint8) != 0
    else:
        flat = torch.frombuffer(content, dtype=dtype)
    try:
        return flat.reshape(entry.shape)
    except RuntimeError:
        raise Malformed("a tensor of an impossible shape") from None
