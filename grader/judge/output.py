"""What a submission prints: read to the end, counted, kept by head and tail, cleaned before it is shown."""

from __future__ import annotations

import os
import re
import threading
import unicodedata
from collections.abc import Mapping
from typing import Any

KEPT_BYTES = 32 * 1024  # of the head, and again of the tail

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode's categories of control, format, surrogate, line and paragraph


class OutputPipe:
    """The reading end of a pipe. A thread empties it, so that a talkative submission never blocks."""

    def __init__(self) -> None:
        self._read, self.write = os.pipe()
        self._head, self._tail, self.count = bytearray(), bytearray(), 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._drain, daemon=True)
        self._thread.start()

    def close_write(self) -> None:
        """Close our copy of the writing end; the pipe ends when the submission's copies are gone."""
        os.close(self.write)

    def forget(self) -> None:
        """Drop what has arrived so far."""
        with self._lock:
            self._head, self._tail, self.count = bytearray(), bytearray(), 0

    def text(self, patience_s: float = 0.2) -> str:
        """What was written, head and tail, cleaned. Waits a little for the end of the pipe."""
        self._thread.join(patience_s)
        with self._lock:
            head, tail = bytes(self._head), bytes(self._tail)
            dropped = self.count - len(head) - len(tail)
        gap = f"\n[{dropped} bytes left out]\n".encode() if dropped > 0 else b""
        return clean((head + gap + tail).decode("utf-8", errors="replace"), limit=3 * KEPT_BYTES)

    def _drain(self) -> None:
        while chunk := os.read(self._read, 1 << 16):
            with self._lock:
                self.count += len(chunk)
                room = KEPT_BYTES - len(self._head)
                self._head += chunk[:room]
                self._tail = (self._tail + chunk[max(room, 0) :])[-KEPT_BYTES:]
        os.close(self._read)


def clean(text: str, limit: int = 8192) -> str:
    """Text of a submission made harmless for a terminal: no control sequences, no more than `limit` characters."""
    text = _ANSI.sub("", text.replace("\r\n", "\n"))
    text = "".join(letter for letter in text if letter in "\n\t" or unicodedata.category(letter) not in _UNSAFE)
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"


class Room:
    """How many bytes of text are left for a submission."""

    def __init__(self, left: int) -> None:
        self.left = left

    def fit(self, texts: Mapping[str, str | None], most: int) -> dict[str, Any]:
        """Texts that together take no more than `most` bytes, nor than what is left."""
        most, fitted = min(most, self.left), dict(texts)
        for name, text in texts.items():
            if text:
                fitted[name], taken = capped(text, most)
                most, self.left = most - taken, self.left - taken
        return fitted


def capped(text: str, most: int) -> tuple[str, int]:
    """Text made harmless, its head and tail in `most` bytes of UTF-8 with the gap counted; and how many it takes."""
    content = clean(text, limit=len(text)).encode()
    if len(content) <= most:
        return content.decode(), len(content)
    half = most // 2
    head = content[:half].decode(errors="ignore")
    tail = content[len(content) - half :].decode(errors="ignore")
    kept = len(head.encode()) + len(tail.encode())
    return f"{head}\n[{len(content) - kept} bytes left out]\n{tail}".strip("\n"), kept
