"""Take the picture in the README: run a command in a terminal of 80 columns and save what it showed as SVG.

uv run python docs/capture.py
"""

import io
import os
import pty
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "tests/staff/submissions/wrong/gelu_overflow/gelu.py"
COMMAND = [sys.executable, "-m", "grader", "check", "gelu"]
SHOWN = "$ uv run python -m grader check gelu"

# rich's own template fetches fonts from a server; this one uses the reader's.
FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {terminal_height}" xmlns="http://www.w3.org/2000/svg">
    <style>
    .{unique_id}-matrix {{
        font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
        font-size: {char_height}px; line-height: {line_height}px;
    }}
    {styles}
    </style>
    <defs><clipPath id="{unique_id}-clip-terminal">
      <rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
    </clipPath>
    {lines}
    </defs>
    <rect fill="#15181e" width="{width}" height="{terminal_height}" rx="8"/>
    <g transform="translate(9, 10)" clip-path="url(#{unique_id}-clip-terminal)">
    {backgrounds}
    <g class="{unique_id}-matrix">
    {matrix}
    </g>
    </g>
</svg>
"""


def record(command: list[str]) -> str:
    """What a command writes to a terminal, the last state of its live display only."""
    output = bytearray()

    def read(descriptor: int) -> bytes:
        chunk = os.read(descriptor, 1 << 16)
        output.extend(chunk)
        return chunk

    os.environ.update(COLUMNS="80", LINES="60", TERM="xterm-256color")
    pty.spawn(command, read)
    return output.decode().rpartition("\x1b[?25h")[2].lstrip("\r\n")


def main() -> None:
    """Write docs/check.svg: what a student sees whose gelu overflows."""
    with tempfile.TemporaryDirectory() as folder:
        for part in ("assignment", "grader", "tests", "conftest.py", "pyproject.toml"):
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, Path(folder) / part)
        shutil.copy(EXAMPLE, Path(folder) / "assignment")
        os.chdir(folder)
        shown = record(COMMAND).replace("\r\n", "\n")
    console = Console(record=True, width=81, file=io.StringIO(), force_terminal=True)
    console.print(Text(SHOWN, style="bold"))
    console.print(Text.from_ansi(shown))
    (ROOT / "docs" / "check.svg").write_text(console.export_svg(code_format=FORMAT, unique_id="check"))


if __name__ == "__main__":
    main()
