"""Draw the handout's pictures: which memory a program touches, and what runs when.

uv run python docs/draw_handout.py [FOLDER]     by default docs/handout
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from picture import BLUE, GREEN, GREY, INK, LINE, MASKED, MUTED, ORANGE, PURPLE, RED, WARNING, WHITE, Picture


def timing() -> Picture:
    """The host runs ahead of the device."""
    picture = Picture(
        "The host launches kernels and runs ahead; the clock has to be read after the device is done", 232
    )
    left, scale = 108, 62
    for y, name in ((62, "host"), (118, "GPU")):
        picture.words(20, y + 20, name, bold=True)
    for call in range(4):
        picture.box(left + call * 36, 62, 34, 30, BLUE, label=str(call + 1))
        picture.box(left + 22 + call * 2.4 * scale, 118, 2.4 * scale - 3, 30, GREEN, label=f"kernel {call + 1}")
    wrong, right = left + 4 * 36 + 6, left + 22 + 4 * 2.4 * scale
    picture.box(wrong, 62, right - wrong, 30, WHITE, dashed=True, label="synchronize(): wait", color=MUTED)
    picture.arrow(wrong, 48, wrong, 160, dashed=True, head=False)
    picture.words(wrong, 40, "read here: 11 µs", anchor="middle", color=MUTED)
    picture.arrow(right, 48, right, 160, dashed=True, head=False)
    picture.words(right, 40, "read here: 5 ms", anchor="middle")
    picture.arrow(left, 176, 800, 176, thick=1)
    picture.note(800, 194, "time", "end")
    picture.note(
        left, 216, "A launch only puts a kernel into a queue. Without synchronize() a timer measures the queueing."
    )
    return picture


def gelu() -> Picture:
    """Blocks over a vector, the last one masked."""
    picture = Picture("GeLU: four programs, each with a block of 256 of 1000 elements; the last block is masked", 252)
    left, width, last = 50, 182, 165  # last: 232 of 256
    for y, name in ((52, "x"), (202, "y")):
        picture.words(22, y, name, size=15, bold=True)
    for program in range(4):
        x, filled = left + program * (width + 8), last if program == 3 else width
        first, end = 256 * program, min(256 * program + 255, 999)
        for y, fill, label in ((28, BLUE, f"{first} … {end}"), (178, GREEN, "")):
            picture.box(x, y, filled, 36, fill, label=label)
            if program == 3:
                picture.box(x + filled, y, width - filled, 36, MASKED, dashed=True)
        picture.box(x + 20, 98, width - 40, 46, WHITE, line=INK)
        picture.words(x + width / 2, 118, f"program {program}", anchor="middle")
        picture.note(x + width / 2, 135, "256 lanes", "middle")
        picture.arrow(x + width / 2, 66, x + width / 2, 96)
        picture.arrow(x + width / 2, 146, x + width / 2, 176)
    picture.note(left + width / 2 + 8, 85, "load")
    picture.note(left + width / 2 + 8, 165, "store")
    picture.box(left, 228, 22, 13, MASKED)
    picture.note(left + 30, 239, "24 lanes have no element: the mask switches them off in the load and in the store")
    return picture


def softmax() -> Picture:
    """A row for each program, and the lanes that pad it."""
    picture = Picture("Softmax: one program per row; the lanes that pad the row hold minus infinity", 258)
    side, columns, left, x = 17, 13, 24, 478
    picture.words(left, 28, "x: rows of 13, one row stride apart", bold=True)
    for row in range(5):
        for column in range(16):
            inside = GREY if column >= columns else ORANGE if row == 2 else BLUE
            picture.box(left + column * side, 44 + row * 26, side, side, inside)
        picture.words(left + 16 * side + 8, 57 + row * 26, f"program {row}", size=12, color=INK if row == 2 else MUTED)
    picture.arrow(left + 16 * side + 76, 105, x - 8, 105)
    picture.box(left, 192, side, side, GREY)
    picture.note(left + 26, 205, "between two rows: it belongs to somebody else")
    picture.note(left, 234, "Read once, written once: in between, the row stays in registers.")
    picture.words(x, 28, "program 2: 16 lanes, a power of two", bold=True)
    picture.note(x, 84, "load, with other = −∞")
    for lane in range(16):
        picture.box(x + lane * 20, 93, 20, 24, ORANGE if lane < columns else MASKED)
    picture.box(x + columns * 20 + 14, 97, 32, 16, WHITE, line=WHITE, label="−∞", size=13)
    steps = (
        ("maximum", "m: −∞ never wins"),
        ("sum of exp(x − m)", "l: exp(−∞) adds 0"),
        ("exp(x − m) / l", "stored, 13 lanes"),
    )
    for step, (words, result) in enumerate(steps):
        y = 132 + step * 38
        picture.box(x, y, 146, 28, WHITE, line=INK, label=words)
        picture.arrow(x + 148, y + 14, x + 172, y + 14)
        picture.words(x + 180, y + 19, result)
    return picture


def softmax_long() -> Picture:
    """Two loops over a row that is longer than a block."""
    picture = Picture("A row longer than a block: one loop keeps m and l, a second one stores", 236)
    left, width = 24, 150
    for loop, (y, words) in enumerate(
        ((44, "first loop: find m and l"), (154, "second loop: load again, store exp(x − m) / l"))
    ):
        picture.words(left, y - 14, words, bold=True)
        for block in range(5):
            x, filled = left + block * (width + 8), 96 if block == 4 else width
            picture.box(x, y, filled, 30, GREEN if loop else BLUE, label=f"block {block}")
            if block == 4:
                picture.box(x + filled, y, width - filled, 30, MASKED, dashed=True, label="")
                picture.box(x + filled + 13, y + 7, 28, 16, WHITE, line=WHITE, label="−∞", size=12)
            if not loop:
                picture.box(x + 30, 88, width - 60, 26, WHITE, line=INK, label="m, l")
                picture.arrow(x + width / 2, 75, x + width / 2, 87)
                if block < 4:
                    picture.arrow(x + width - 29, 101, x + width + 37, 101)
    picture.note(
        left,
        218,
        "A new maximum n shrinks what was summed with the old one: l becomes l · exp(m − n) + the block's sum.",
    )
    return picture


def matmul() -> Picture:
    """Tiles of a, b and c, and the loop along k."""
    picture = Picture("Matmul: a program computes one tile of c, and walks along k through a and b", 432)
    bm, bn, bk = 62, 104, 56  # pixels of a tile
    a_x, c_x, b_y, c_y = 84, 376, 50, 232
    rows, columns, inner = 158, 340, 146  # of the matrices: 2.5, 3.3 and 2.6 tiles
    picture.box(a_x, c_y, inner, rows, BLUE)
    picture.box(c_x, b_y, columns, inner, GREEN)
    picture.box(c_x, c_y, columns, rows, GREY)
    for step in range(3):  # the band of a, and that of b
        picture.box(a_x + step * bk, c_y + bm, bk, bm, "#7fb5f5" if step == 1 else "none", line=INK, dashed=step != 1)
        picture.box(c_x + bn, b_y + step * bk, bn, bk, "#6fca86" if step == 1 else "none", line=INK, dashed=step != 1)
    over = 3 * bk - inner
    picture.box(a_x + inner, c_y + bm, over, bm, MASKED, dashed=True)
    picture.box(c_x + bn, b_y + inner, bn, over, MASKED, dashed=True)
    picture.box(c_x + bn, c_y + bm, bn, bm, ORANGE, line=INK, thick=1.6, label="c, float32")
    picture.box(c_x + 3 * bn, c_y + 2 * bm, bn, bm, "none", line=LINE, dashed=True)
    picture.box(c_x + columns, c_y + 2 * bm, 4 * bn - columns, bm, MASKED, dashed=True)
    picture.box(c_x + 3 * bn, c_y + rows, columns - 3 * bn, 3 * bm - rows, MASKED, dashed=True)
    for x, y, words in ((a_x, c_y - 10, "a: M × K"), (c_x, b_y - 10, "b: K × N"), (c_x, c_y + rows + 34, "c: M × N")):
        picture.words(x, y, words, bold=True)
    picture.arrow(a_x, c_y + bm + 82, a_x + inner, c_y + bm + 82)
    picture.words(a_x + inner / 2, c_y + bm + 78, "k", anchor="middle")
    picture.arrow(c_x + bn - 18, b_y + 4, c_x + bn - 18, b_y + inner)
    picture.words(c_x + bn - 32, b_y + inner / 2, "k")
    picture.words(a_x - 12, c_y + bm + 36, "BM", anchor="end")
    picture.words(c_x + 1.5 * bn, b_y - 10, "BN", anchor="middle")
    picture.words(a_x + 1.5 * bk, c_y + bm - 6, "BK", anchor="middle", size=12)
    notes = ("In each step: one tile of a,", "one of b, and", "c = c + (tile of a) · (tile of b)")
    for line, words in enumerate(notes):
        picture.words(84, 84 + 19 * line, words)
    picture.box(84, 146, 22, 13, MASKED)
    picture.note(114, 157, "outside: loaded as 0,")
    picture.note(114, 173, "never stored")
    return picture


def matmul_order() -> Picture:
    """Which tiles of a and b nine programs need together."""
    picture = Picture(
        "Nine programs at a time: row by row they need 90 tiles of a and b, in groups of three rows 54", 306
    )
    side = 11
    for panel, (title, chosen, note) in enumerate((
        ("row by row", [(0, column) for column in range(9)], "9 tiles of a + 81 of b = 90 to load"),
        (
            "in groups of 3 rows", [(row, column) for column in range(3) for row in range(3)],
            "27 tiles of a + 27 of b = 54 to load",
        ),
    )):  # fmt: skip
        x, y = 40 + panel * 400, 60
        rows, columns = {row for row, _ in chosen}, {column for _, column in chosen}
        picture.words(x, 30, title, bold=True)
        for line in range(9):
            for other in range(9):
                picture.box(x + other * side, y + 110 + line * side, side, side, BLUE if line in rows else WHITE)
                picture.box(x + 130 + other * side, y + line * side, side, side, GREEN if other in columns else WHITE)
                picture.box(x + 130 + other * side, y + 110 + line * side, side, side,
                            ORANGE if (line, other) in chosen else WHITE)  # fmt: skip
        picture.words(x, y + 100, "a", bold=True)
        picture.words(x + 112, y + 12, "b", bold=True)
        picture.words(x + 242, y + 122, "c", bold=True)
        picture.words(x, y + 234, note)
    return picture


def attention_forward() -> Picture:
    """A tile of queries meets the keys, tile by tile."""
    picture = Picture(
        "Flash attention, forward: a tile of queries goes over the keys; only one tile of scores exists", 400
    )
    scores_with_borders(picture, 250, 112)
    what_a_program_keeps(picture, 306)
    return picture


def scores_with_borders(picture: Picture, x: float, y: float) -> None:
    """Tiles of scores from (x, y) on, k and v above them, q to the left, o and lse to the right."""
    width, high, left, right = 76, 44, 110, 680
    picture.words(x, 26, "k and v: n_k × d, tile by tile", bold=True)
    for name, above, fill in (("k", 36, GREEN), ("v", 64, PURPLE)):
        picture.words(x - 10, above + 17, name, anchor="end")
        for tile in range(5):
            picture.box(x + tile * width, above, 48 if tile == 4 else width, 24, fill)
        picture.box(x + 4 * width + 48, above, 28, 24, MASKED, dashed=True)
        picture.frame(x + 2 * width, above, width, 24)
    for row in range(3):
        top = y + row * high
        picture.box(left, top, 76, high, BLUE, label="q" if row == 1 else "")
        picture.box(right, top, 76, high, ORANGE, label="o" if row == 1 else "")
        picture.box(right + 84, top, 16, high, ORANGE)
        for tile in range(5):
            picture.box(x + tile * width, top, width, high, WHITE, dashed=True)
    top = y + high
    for tile in range(2):
        picture.box(x + tile * width, top, width, high, GREY, label="done", color=MUTED)
    picture.box(x + 2 * width, top, width, high, ORANGE, label="s, p")
    picture.box(x + 4 * width + 48, top, 28, high, MASKED, dashed=True)
    for at, wide in ((left, 76), (x + 2 * width, width), (right, 76), (right + 84, 16)):
        picture.frame(at, top, wide, high)
    picture.arrow(x + 2.5 * width, 89, x + 2.5 * width, top - 2)
    picture.arrow(left + 78, top + high / 2, x - 4, top + high / 2)
    picture.words(left - 12, top + high / 2 + 5, "program 1", anchor="end")
    below = y + 3 * high + 18
    picture.note(left, below, "n_q × d")
    picture.note(right, below, "n_q × d, lse")
    picture.note(x + 2.5 * width, below, "n_q × n_k scores: never in memory, one tile in registers", "middle")


def what_a_program_keeps(picture: Picture, y: float) -> None:
    """m, l and a, and what becomes of them."""
    picture.words(24, y - 14, "what a program keeps for its rows while it goes on:", bold=True)
    kept = (("m", "largest score so far"), ("l", "sum of exp(s − m)"), ("a", "sum of exp(s − m) · v"))
    for place, (name, words) in enumerate(kept):
        picture.box(24 + place * 262, y, 30, 30, BLUE, line=INK, label=name, size=15)
        picture.words(64 + place * 262, y + 20, words)
    notes = (
        "A tile with a larger score n shrinks what was summed before: l and a, both times exp(m − n).",
        "At the end o = a / l and lse = m + log l. Hatched: keys that do not exist. Their score is −∞, not 0.",
    )
    for line, words in enumerate(notes):
        picture.note(24, y + 58 + 18 * line, words)


def causal_panel(picture: Picture, x: float, y: float, queries: int, keys: int, shift: int) -> None:
    """Tiles of scores under a causal mask that begins `shift` tiles to the right of the top left corner."""
    side = 30
    for row in range(queries):
        for column in range(keys):
            seen = column - row - shift
            fill = GREEN if seen < 0 else ORANGE if seen == 0 else WHITE
            picture.box(x + column * side, y + row * side, side, side, fill, dashed=seen > 0)
    for row in range(queries):  # the stairs of the mask
        column = row + shift
        if column < keys:
            picture.arrow(x + column * side, y + row * side, x + (column + 1) * side, y + (row + 1) * side, head=False)
    picture.note(x, y - 8, "keys →")


def attention_causal() -> Picture:
    """Which tiles a causal mask skips, masks and leaves alone."""
    picture = Picture(
        "Causal: tiles below the diagonal are whole, those on it are masked, those above it are skipped", 306
    )
    panels = (
        ("n_q = n_k", 5, 5, 0),
        ("n_q < n_k", 3, 5, 0),
        ("n_q > n_k", 5, 3, 0),
        ("not this: bottom right", 3, 5, 2),
    )
    for (title, queries, keys, shift), x in zip(panels, (24, 230, 436, 626), strict=True):
        picture.words(x, 30, title, bold=True)
        causal_panel(picture, x, 66, queries, keys, shift)
        if shift:
            picture.arrow(x, 66, x + 30 * keys, 66 + 30 * queries, color=WARNING, thick=3, head=False)
            picture.arrow(x, 66 + 30 * queries, x + 30 * keys, 66, color=WARNING, thick=3, head=False)
    legend = (
        (GREEN, "every query sees every key: no mask"),
        (ORANGE, "on the diagonal: mask j > i"),
        (WHITE, "nobody sees any: skip"),
    )
    for place, (fill, words) in enumerate(legend):
        x = (24, 300, 530)[place]
        picture.box(x, 250, 22, 15, fill, dashed=fill == WHITE)
        picture.words(x + 30, 262, words, size=12)
    picture.note(
        24, 290, "Top left, whatever the sizes: query i sees the keys j ≤ i. Queries go down, keys go to the right."
    )
    return picture


def attention_backward() -> Picture:
    """Two kernels: along a row of tiles, and down a column."""
    picture = Picture(
        "Flash attention, backward: one kernel goes along the keys for dq, another down the queries for dk and dv", 370
    )
    side, high, y = 50, 38, 106
    row, column = 94, 514  # where the scores of each panel begin
    for x, title, mine in (
        (row, "one program per tile of queries: dq", lambda i, j: i == 2),
        (column, "one program per tile of keys: dk, dv", lambda i, j: j == 1),
    ):
        picture.words(x - 70, 28, title, bold=True)
        for i in range(4):
            picture.box(x - 66, y + i * high, 56, high, BLUE)
            picture.box(x + i * side, y - 50, side, 40, GREEN)
            for j in range(4):
                fill = WHITE if j > i else ORANGE if mine(i, j) else GREY
                picture.box(x + j * side, y + i * high, side, high, fill, dashed=j > i)
        picture.words(x - 38, y - 24, "q, do", size=12, anchor="middle")
        picture.words(x - 38, y - 10, "lse, D", size=12, anchor="middle")
        picture.words(x + 4 * side + 8, y - 25, "k, v", size=12)
    picture.frame(row - 66, y + 2 * high, 56, high)
    picture.arrow(row + 4, y + 2.5 * high, row + 3 * side - 4, y + 2.5 * high)
    picture.arrow(row + 3 * side + 4, y + 2.5 * high, row + 4 * side + 32, y + 2.5 * high, dashed=True)
    picture.box(row + 4 * side + 34, y + 2 * high, 56, high, ORANGE, line=INK, label="dq")
    picture.frame(column + side, y - 50, side, 40)
    picture.arrow(column + 1.5 * side, y + high + 4, column + 1.5 * side, y + 4 * high - 4)
    picture.arrow(column + 1.5 * side, y + 4 * high, column + 1.5 * side, y + 4 * high + 24, dashed=True)
    for place, name in enumerate(("dk", "dv")):
        picture.box(column + side + place * 58 - 32, y + 4 * high + 26, 54, 30, ORANGE, line=INK, label=name)
    for x, held, step, causal in ((24, "q, do, lse, D", "k, v", "end"), (444, "k, v", "q, do, lse, D", "begin")):
        picture.note(x, 338, f"held: {held} of one tile. Loaded in each step: {step}.")
        picture.note(x, 355, f"causal: {causal} at the diagonal")
    return picture


def ddp_overlap() -> Picture:
    """One call after the backward, and buckets during it."""
    picture = Picture("Gradients of late layers travel while the backward of early layers still runs", 326)
    left, unit = 120, 86
    for y, title in ((56, "one all-reduce after the backward"), (196, "a bucket as soon as it is complete")):
        picture.words(24, y - 18, title, bold=True)
        picture.words(left - 12, y + 20, "backward", anchor="end", size=12)
        picture.words(left - 12, y + 56, "network", anchor="end", size=12)
        for place, layer in enumerate((4, 3, 2, 1)):
            picture.box(left + place * unit, y, unit - 2, 30, BLUE, label=f"layer {layer}")
    picture.box(left + 4 * unit, 92, 3.5 * unit, 30, ORANGE, label="all gradients")
    for place, layer in enumerate((4, 3, 2, 1)):
        picture.box(left + (place + 1) * unit, 232, 0.94 * unit, 30, ORANGE, label=f"bucket {layer}")
    picture.box(left + 4.94 * unit + 2, 232, 0.5 * unit, 30, GREY, label="flags", size=12)
    for y, end in ((140, 7.5), (280, 5.46)):
        picture.arrow(left + 4 * unit, y, left + end * unit, y, color=WARNING, thick=3, head=False)
        picture.note(left + 4 * unit + 8, y + 17, "exposed: nothing is left to hide it")
    picture.arrow(left, 312, 806, 312, thick=1)
    picture.note(806, 304, "time", "end")
    return picture


def ddp_order() -> Picture:
    """Collectives have no names: a rank's nth call meets the others' nth call."""
    picture = Picture("Two ranks whose calls do not match: the nth call of one meets the nth call of the other", 212)
    calls = (("rank 0, went left", ("left", "first"), 44), ("rank 1, went right", ("right", "first"), 130))
    for name, layers, y in calls:
        picture.words(24, y + 22, name, bold=True)
        for call, layer in enumerate(layers):
            fill = (RED if call == 0 else ORANGE) if layer != "first" else ORANGE
            picture.box(180 + call * 196, y, 172, 34, fill, label=f"all_reduce({layer}.grad)")
    for call in range(2):
        x = 266 + call * 196
        picture.note(x, 32, f"call {call + 1}", "middle")
        picture.arrow(x, 80, x, 128, head=False, dashed=True)
    notes = (
        "Call 1 of each: other sizes, and both",
        "hang or fail; one size, and both get",
        "left + right, in silence.",
        "So both send both: zeros for a",
        "gradient that never came.",
    )
    for line, words in enumerate(notes):
        picture.words(572, 62 + 20 * line, words)
    picture.note(180, 192, "A call says neither which parameter it is for, nor who else should take part.")
    return picture


def sharded_optimizer() -> Picture:
    """Who holds whose state, and who sends what."""
    picture = Picture(
        "Sharded optimizer: weights and gradients on all ranks, state on the owner, then a broadcast", 372
    )
    names, owner = ("a", "b", "c", "d"), (0, 1, 1, 0)
    left, width, gap = 116, 64, 8
    for rank in range(2):
        y = 56 + rank * 164
        picture.words(24, y - 18, f"rank {rank}", bold=True)
        for line, what in enumerate(("weights", "gradients", "state: 2 ×")):
            picture.words(left - 14, y + 18 + line * 36, what, anchor="end", size=12)
            for place, name in enumerate(names):
                x, mine = left + place * (width + gap), owner[place] == rank
                if line < 2:
                    picture.box(x, y + line * 36, width, 26, (BLUE, PURPLE)[line], label=name)
                elif mine:
                    picture.box(x, y + 72, width, 26, ORANGE, label=f"m, v of {name}", size=12)
                else:
                    picture.box(x, y + 72, width, 26, MASKED, dashed=True)
    for place, rank in enumerate(owner):
        x = left + place * (width + gap) + width / 2
        start, end = (156, 218) if rank == 0 else (218, 156)
        picture.arrow(x, start, x, end, thick=2)
    picture.words(left + 4 * (width + gap) + 8, 184, "broadcast of each parameter", size=12)
    picture.words(left + 4 * (width + gap) + 8, 200, "from its owner, after the step", size=12)
    x = 440
    steps = (
        "1  gradients are averaged before: equal on both",
        "2  the inner optimizer steps the owned parameters",
        "3  each owner broadcasts its new weights",
        "4  all ranks have the same weights, to the bit",
    )
    for line, words in enumerate(steps):
        picture.words(x, 60 + 22 * line, words)
    picture.box(x, 240, 22, 15, MASKED, dashed=True)
    picture.note(x + 30, 252, "no state here: this is what is saved")
    picture.note(
        24,
        354,
        "Owners are balanced by bytes, the largest parameter first. All ranks compute the same owners, without asking.",
    )
    return picture


PICTURES: tuple[Callable[[], Picture], ...] = (
    timing, gelu, softmax, softmax_long, matmul, matmul_order, attention_forward, attention_causal, attention_backward,
    ddp_overlap, ddp_order, sharded_optimizer,
)  # fmt: skip


def main() -> None:
    """Write each picture under its function's name."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "handout"
    folder.mkdir(exist_ok=True)
    for draw in PICTURES:
        draw().write(folder / f"{draw.__name__}.svg")


if __name__ == "__main__":
    main()
