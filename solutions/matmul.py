"""Matrix product with an optional activation, in two Triton kernels.

`matmul` is the graded function. `matmul_pointer_kernel` takes any sizes and strides.
`matmul_descriptor_kernel` is for half types on Hopper, where hardware copies whole tiles of aligned
matrices; others are copied to aligned memory first. `choose_tile` decides the rest; the launchers take any `Tile`.
"""

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from .gelu import EXPONENT_SCALE

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ACTIVATIONS = (None, "relu", "gelu")


# Kernels. `rows`, `columns` and `inner` are M, N and K of a (M, K) times b (K, N).


@triton.jit
def tile_position(tile, row_tiles, column_tiles, GROUP_ROWS: tl.constexpr):
    """Row and column of a tile, both counted in tiles: GROUP_ROWS rows of tiles at a time, column by column.

    Tiles that are computed at the same time then form a block, not a long row. The more square a block, the
    fewer rows of a and columns of b it reads, and the more often they come from L2.
    """
    tiles_of_group = GROUP_ROWS * column_tiles
    first_row = tile // tiles_of_group * GROUP_ROWS
    rows_of_group = tl.minimum(row_tiles - first_row, GROUP_ROWS)  # the last group can be lower
    place = tile % tiles_of_group
    return first_row + place % rows_of_group, place // rows_of_group


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """The activation of every element of x, float32."""
    if ACTIVATION == "relu":
        x = tl.where(x < 0.0, 0.0, x)  # a NaN stays NaN, as in PyTorch
    elif ACTIVATION == "gelu":
        exponent = EXPONENT_SCALE * (x * (1.0 + 0.044715 * x * x))
        x = x / (1.0 + tl.exp2(exponent))
    return x


@triton.jit
def matmul_pointer_kernel(
    a_pointer,
    b_pointer,
    output_pointer,
    rows,
    columns,
    inner,
    a_row_stride,
    a_inner_stride,
    b_inner_stride,
    b_column_stride,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    GROUP_ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr,
):
    """One program computes one tile of BLOCK_ROWS x BLOCK_COLUMNS, in steps of BLOCK_INNER along K.

    a_pointer: (rows, inner), b_pointer: (inner, columns), any strides, also 0; any sizes, inner also 0.
    output_pointer: (rows, columns), contiguous.
    """
    tile_row, tile_column = tile_position(
        tl.program_id(0), tl.cdiv(rows, BLOCK_ROWS), tl.cdiv(columns, BLOCK_COLUMNS), GROUP_ROWS
    )
    row = tile_row * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    column = tile_column * BLOCK_COLUMNS + tl.arange(0, BLOCK_COLUMNS)[None, :]
    k = tl.arange(0, BLOCK_INNER)

    # int64: an index times a stride passes 2**31 in matrices of over 2**31 elements.
    a_pointers = a_pointer + row.to(tl.int64) * a_row_stride + k[None, :].to(tl.int64) * a_inner_stride
    b_pointers = b_pointer + k[:, None].to(tl.int64) * b_inner_stride + column.to(tl.int64) * b_column_stride
    a_step = tl.cast(BLOCK_INNER, tl.int64) * a_inner_stride
    b_step = tl.cast(BLOCK_INNER, tl.int64) * b_inner_stride

    accumulator = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    for start in range(0, inner, BLOCK_INNER):
        # Past the end along K, a and b must both be 0: if an inf happens to lie there, 0 * inf is NaN.
        left = inner - start
        a = tl.load(a_pointers, mask=(row < rows) & (k[None, :] < left), other=0.0)
        b = tl.load(b_pointers, mask=(k[:, None] < left) & (column < columns), other=0.0)
        # "ieee": otherwise float32 is rounded to TF32, which keeps 10 bits of the fraction instead of 23.
        accumulator = tl.dot(a, b, accumulator, input_precision="ieee")
        # Moving the pointers takes fewer registers than computing them anew from `start`.
        a_pointers += a_step
        b_pointers += b_step

    tl.store(
        output_pointer + row.to(tl.int64) * columns + column,
        activate(accumulator, ACTIVATION).to(output_pointer.dtype.element_ty),
        mask=(row < rows) & (column < columns),
    )


@triton.jit
def matmul_descriptor_kernel(
    a_descriptor,
    b_descriptor,
    output_descriptor,
    rows,
    columns,
    inner,
    A_TRANSPOSED: tl.constexpr,
    B_TRANSPOSED: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    BLOCK_INNER: tl.constexpr,
    GROUP_ROWS: tl.constexpr,
    ACTIVATION: tl.constexpr,
    STORES: tl.constexpr,
):
    """One program per multiprocessor computes every num_programs-th tile, until none is left.

    a_descriptor: (rows, inner) in tiles of (BLOCK_ROWS, BLOCK_INNER); both swapped if A_TRANSPOSED.
    b_descriptor: (inner, columns) in tiles of (BLOCK_INNER, BLOCK_COLUMNS); both swapped if B_TRANSPOSED.
    output_descriptor: (rows, columns) in tiles of (BLOCK_ROWS, BLOCK_COLUMNS // STORES).

    A descriptor knows the sizes: past them, a load gives 0 and a store does nothing.
    """
    row_tiles = tl.cdiv(rows, BLOCK_ROWS)
    column_tiles = tl.cdiv(columns, BLOCK_COLUMNS)
    # flatten: both loops become one, so that the loads of the next tile start before this one is stored.
    for tile in tl.range(tl.program_id(0), row_tiles * column_tiles, tl.num_programs(0), flatten=True):
        tile_row, tile_column = tile_position(tile, row_tiles, column_tiles, GROUP_ROWS)
        row = tile_row * BLOCK_ROWS
        column = tile_column * BLOCK_COLUMNS

        accumulator = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
        for k in range(0, inner, BLOCK_INNER):
            a = a_descriptor.load([k, row]).T if A_TRANSPOSED else a_descriptor.load([row, k])
            b = b_descriptor.load([column, k]).T if B_TRANSPOSED else b_descriptor.load([k, column])
            accumulator = tl.dot(a, b, accumulator)

        result = activate(accumulator, ACTIVATION).to(output_descriptor.dtype)
        if STORES == 1:
            output_descriptor.store([row, column], result)
        else:  # in halves: a whole tile on its way out needs twice the shared memory
            left, right = result.reshape(BLOCK_ROWS, 2, BLOCK_COLUMNS // 2).permute(0, 2, 1).split()
            output_descriptor.store([row, column], left)
            output_descriptor.store([row, column + BLOCK_COLUMNS // 2], right)


# Launchers


@dataclass(frozen=True)
class Tile:
    """The part of the product that one program computes at a time, and how. Sizes are powers of two."""

    rows: int
    columns: int
    inner: int
    """Steps along K, 16 or more."""
    warps: int
    """Warps that share the tile: 4 or 8, since Hopper's tensor cores are fed by groups of 4."""
    stages: int
    """Steps along K that are in shared memory, or on their way to it, at the same time."""
    stores: int = 1
    """Parts in which the descriptor kernel stores the tile: 1 or 2."""

    def count(self, rows: int, columns: int) -> int:
        """Tiles that cover a (rows, columns) product."""
        return triton.cdiv(rows, self.rows) * triton.cdiv(columns, self.columns)


GROUP_ROWS = 8  # 4 and 16 are as fast, one row of tiles at a time is 6 to 8 % slower

# The tiles of each kernel, with their speed where they fill the GPU. That of the first is 1. Measured on an H200,
# bfloat16 and float32, 4096 x 4096 x 4096 (docs/measurements.md): the first has the speed of cuBLAS in half
# types, 86 % of it in float32.
DESCRIPTOR_TILES = {
    Tile(128, 256, 64, warps=8, stages=3, stores=2): 1.0,
    Tile(128, 128, 64, warps=8, stages=4): 0.88,
    Tile(64, 128, 64, warps=4, stages=4): 0.6,
    Tile(64, 64, 64, warps=4, stages=4): 0.38,
}
HALF_TILES = {
    Tile(128, 128, 32, warps=8, stages=4): 1.0,
    Tile(64, 64, 32, warps=4, stages=3): 0.55,
}
# Larger ones have too many addresses to keep in registers if rows are not aligned: they spill.
FLOAT32_TILES = {
    Tile(64, 128, 32, warps=8, stages=3): 1.0,
    Tile(64, 64, 16, warps=4, stages=3): 0.95,
}


def choose_tile(tiles: dict[Tile, float], rows: int, columns: int, processors: int) -> Tile:
    """Which of `tiles` computes a (rows, columns) product soonest.

    Tiles come in waves of `processors`, and the last wave takes as long as a full one, even for one tile.
    """

    def time(tile: Tile) -> float:
        waves = triton.cdiv(tile.count(rows, columns), processors)
        return waves * tile.rows * tile.columns / tiles[tile]

    return min(tiles, key=time)


@cache
def multiprocessors(device: torch.device) -> int:
    """How many programs run at the same time. The interpreter runs one after the other."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


@cache
def has_copy_hardware(device: torch.device) -> bool:
    """Whether descriptors work there, with the shared memory for DESCRIPTOR_TILES. The interpreter imitates them."""
    # From 11.0 on there are chips with copy hardware, but with less shared memory.
    return device.type != "cuda" or (9, 0) <= torch.cuda.get_device_capability(device) < (11, 0)


def launch_with_pointers(
    a: torch.Tensor, b: torch.Tensor, output: torch.Tensor, activation: str | None, tile: Tile
) -> None:
    """Write activation(a b) to `output`, contiguous, with at least one element. a and b have any strides."""
    matmul_pointer_kernel[(tile.count(*output.shape),)](
        a,
        b,
        output,
        *output.shape,
        a.shape[1],
        *a.stride(),
        *b.stride(),
        BLOCK_ROWS=tile.rows,
        BLOCK_COLUMNS=tile.columns,
        BLOCK_INNER=tile.inner,
        GROUP_ROWS=GROUP_ROWS,
        ACTIVATION=activation,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def launch_with_descriptors(
    a: torch.Tensor, b: torch.Tensor, output: torch.Tensor, activation: str | None, tile: Tile
) -> None:
    """Write activation(a b) to `output`. The copy hardware takes it, a or a.t(), and b or b.t()."""
    a_transposed, b_transposed = not takes_descriptor(a), not takes_descriptor(b)
    a_tile, b_tile = [tile.rows, tile.inner], [tile.inner, tile.columns]
    matmul_descriptor_kernel[(min(tile.count(*output.shape), multiprocessors(output.device)),)](
        TensorDescriptor.from_tensor(a.t(), a_tile[::-1]) if a_transposed else TensorDescriptor.from_tensor(a, a_tile),
        TensorDescriptor.from_tensor(b.t(), b_tile[::-1]) if b_transposed else TensorDescriptor.from_tensor(b, b_tile),
        TensorDescriptor.from_tensor(output, [tile.rows, tile.columns // tile.stores]),
        *output.shape,
        a.shape[1],
        A_TRANSPOSED=a_transposed,
        B_TRANSPOSED=b_transposed,
        BLOCK_ROWS=tile.rows,
        BLOCK_COLUMNS=tile.columns,
        BLOCK_INNER=tile.inner,
        GROUP_ROWS=GROUP_ROWS,
        ACTIVATION=activation,
        STORES=tile.stores,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def takes_descriptor(matrix: torch.Tensor) -> bool:
    """Whether the copy hardware takes a matrix: row-major, not empty, each row at a multiple of 16 bytes."""
    row_stride, column_stride = matrix.stride()
    return (
        matrix.numel() > 0
        and max(matrix.shape) < 2**31
        and column_stride == 1
        and row_stride >= matrix.shape[1]  # rows do not overlap
        and row_stride * matrix.element_size() % 16 == 0
        and matrix.data_ptr() % 16 == 0
    )


def is_aligned(matrix: torch.Tensor) -> bool:
    """Whether a descriptor describes the matrix as it is, or transposed."""
    return takes_descriptor(matrix) or takes_descriptor(matrix.t())


def empty_aligned(rows: int, columns: int, like: torch.Tensor) -> torch.Tensor:
    """A matrix for the copy hardware, uninitialised: each row starts at a multiple of 8 half-precision numbers."""
    pitch = triton.cdiv(columns, 8) * 8
    return torch.empty((rows, pitch), dtype=like.dtype, device=like.device)[:, :columns]


def aligned(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix, or a copy of it that a descriptor describes."""
    return matrix if is_aligned(matrix) else empty_aligned(*matrix.shape, like=matrix).copy_(matrix)


def use_descriptors(a: torch.Tensor, b: torch.Tensor, output: torch.Tensor) -> bool:
    """Whether the descriptor kernel computes this product. In float32 multiply-adds are the limit, not copies."""
    if a.dtype == torch.float32 or a.shape[1] == 0 or not has_copy_hardware(a.device):
        return False
    # What is not aligned is copied first. This gains nothing in the interpreter.
    return a.device.type == "cuda" or (is_aligned(a) and is_aligned(b) and takes_descriptor(output))


def check_arguments(a: torch.Tensor, b: torch.Tensor, activation: str | None) -> None:
    """Raise ValueError, naming both sides, for what `matmul` does not take."""
    if a.dim() != 2 or b.dim() != 2:
        raise ValueError(f"matmul takes two matrices, got {a.dim()} and {b.dim()} dimensions")
    a_dtype, b_dtype = (str(x.dtype).removeprefix("torch.") for x in (a, b))
    if a_dtype != b_dtype:
        raise ValueError(f"matmul takes two matrices of one dtype, got {a_dtype} and {b_dtype}")
    if a.dtype not in DTYPES:
        raise ValueError(f"matmul takes float32, float16 or bfloat16, got {a_dtype}")
    if a.device != b.device:
        raise ValueError(f"matmul takes two matrices on one device, got {a.device} and {b.device}")
    if a.shape[1] != b.shape[0]:
        raise ValueError(f"matmul takes (M, K) and (K, N), got K = {a.shape[1]} and K = {b.shape[0]}")
    if activation not in ACTIVATIONS:
        raise ValueError(f"matmul takes the activations None, 'relu' and 'gelu', got {activation!r}")


def matmul(a: torch.Tensor, b: torch.Tensor, activation: str | None = None) -> torch.Tensor:
    """activation(a b), the activation one of None, "relu" and "gelu" (the tanh form).

    a: (M, K), b: (K, N), any strides, both float32, float16 or bfloat16. Returns a new contiguous (M, N)
    matrix of their dtype. Sums and activation are in float32 (not TF32), and rounded once. K = 0 gives
    zeros. Raises ValueError, naming both sides, for other dtypes and for arguments that do not fit.
    """
    check_arguments(a, b, activation)
    rows, columns = a.shape[0], b.shape[1]
    output = torch.empty((rows, columns), dtype=a.dtype, device=a.device)
    if output.numel() == 0:  # nothing to launch: CUDA itself refuses an empty grid
        return output
    processors = multiprocessors(a.device)
    if not use_descriptors(a, b, output):
        tiles = FLOAT32_TILES if a.dtype == torch.float32 else HALF_TILES
        launch_with_pointers(a, b, output, activation, choose_tile(tiles, rows, columns, processors))
        return output
    # 4095 x 4097 x 4093: copies and all 2.4 times as fast as cuBLAS, and 3.4 times as fast as loads of 2 bytes.
    tile = choose_tile(DESCRIPTOR_TILES, rows, columns, processors)
    target = output if takes_descriptor(output) else empty_aligned(rows, columns, like=a)
    launch_with_descriptors(aligned(a), aligned(b), target, activation, tile)
    return output if target is output else output.copy_(target)
