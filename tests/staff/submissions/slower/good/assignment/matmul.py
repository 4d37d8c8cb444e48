"""Matrix product in tiles of 128 x 128, eight rows of tiles at a time: tiles in flight share rows and columns."""

import torch
import triton
import triton.language as tl

from .agree import check_agree, check_dtype
from .gelu import activate_gelu

GROUP_ROWS = 8


@triton.jit
def grouped(tile, row_tiles, column_tiles, GROUP: tl.constexpr):
    """Row and column of a tile: down GROUP rows of tiles, then on to the next column."""
    group, place = tile // (GROUP * column_tiles), tile % (GROUP * column_tiles)
    height = tl.minimum(row_tiles - group * GROUP, GROUP)
    return group * GROUP + place % height, place // height


@triton.jit
def matmul_kernel(
    a_pointer, b_pointer, out_pointer, rows, columns, inner, a_row, a_inner, b_inner, b_column,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    tile_row, tile_column = grouped(tl.program_id(0), tl.cdiv(rows, ROWS), tl.cdiv(columns, COLUMNS), GROUP)
    row = (tile_row * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    column = (tile_column * COLUMNS + tl.arange(0, COLUMNS)[None, :]).to(tl.int64)
    k = tl.arange(0, INNER).to(tl.int64)
    a_tile = a_pointer + row * a_row + k[None, :] * a_inner
    b_tile = b_pointer + k[:, None] * b_inner + column * b_column
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, inner, INNER):
        left = inner - start
        a = tl.load(a_tile, mask=(row < rows) & (k[None, :] < left), other=0.0)
        b = tl.load(b_tile, mask=(k[:, None] < left) & (column < columns), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_tile += tl.cast(INNER, tl.int64) * a_inner
        b_tile += tl.cast(INNER, tl.int64) * b_inner
    if ACTIVATION == "relu":
        total = tl.where(total > 0.0, total, 0.0)
    elif ACTIVATION == "gelu":
        total = activate_gelu(total)
    inside = (row < rows) & (column < columns)
    tl.store(out_pointer + row * columns + column, total.to(out_pointer.dtype.element_ty), mask=inside)


def choose_tile(x: torch.Tensor) -> dict[str, int]:
    """A smaller tile in float32, whose products take more registers."""
    if x.device.type == "cpu":
        return {"ROWS": 128, "COLUMNS": 128, "INNER": 128}
    if x.dtype == torch.float32:
        return {"ROWS": 64, "COLUMNS": 64, "INNER": 32, "num_warps": 4, "num_stages": 3}
    return {"ROWS": 128, "COLUMNS": 128, "INNER": 32, "num_warps": 8, "num_stages": 4}


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str | None = None) -> torch.Tensor:
    if (a.dim(), b.dim()) != (2, 2):
        raise ValueError(f"matmul: takes two matrices, not {a.dim()} and {b.dim()} dimensions")
    check_agree("matmul", dtypes=(a.dtype, b.dtype), devices=(a.device, b.device), inner_sizes=(a.shape[1], b.shape[0]))
    check_dtype("matmul", a)
    if activation not in (None, "relu", "gelu"):
        raise ValueError(f"matmul: the activation is {activation!r}, not None, 'relu' or 'gelu'")
    rows, columns = a.shape[0], b.shape[1]
    out = torch.empty(rows, columns, dtype=a.dtype, device=a.device)
    if out.numel() == 0:
        return out
    tile = choose_tile(a)
    matmul_kernel[(triton.cdiv(rows, tile["ROWS"]) * triton.cdiv(columns, tile["COLUMNS"]),)](
        a, b, out, rows, columns, a.shape[1], *a.stride(), *b.stride(),
        GROUP=GROUP_ROWS, ACTIVATION=activation, **tile,
    )  # fmt: skip
    return out
