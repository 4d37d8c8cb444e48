"""Why a submission is rejected, and how names of its files are shown."""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Why a submission is rejected; stable, for reports and for programs."""

    UNSAFE_PATH = "unsafe_path"
    LINK = "link"
    TOO_BIG = "too_big"
    DUPLICATE = "duplicate"
    BAD_ARCHIVE = "bad_archive"
    AMBIGUOUS = "ambiguous"
    IO = "io"
    GRADER_ERROR = "grader_error"  # ours


class Rejected(Exception):
    """A submission that cannot be read safely, or not uniquely: what was found where, and what to do."""

    def __init__(self, code: Code, sentence: str, todo: str) -> None:
        super().__init__(f"{sentence}: {todo}")
        self.code, self.sentence, self.todo = code, sentence, todo


def shown(name: str) -> str:
    """A name as it can be printed anywhere: what is not printable is escaped."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape", "replace").decode() for one in name)
