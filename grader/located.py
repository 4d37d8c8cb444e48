"""YAML files read into typed records, where every mistake is one sentence with the file and the line."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, NoReturn, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from grader.closest import did_you_mean

Parsed = TypeVar("Parsed", bound=BaseModel)
Place = tuple[str | int, ...]  # the keys from the top to a value


class Mistake(Exception):
    """A mistake in a file: `rubric.yaml, line 12: ...`."""


class Located(Generic[Parsed]):
    """A file's content, and on which line each key stands."""

    def __init__(self, path: Path, kind: type[Parsed]) -> None:
        """Read and validate. Raises `Mistake`."""
        self.name = f"{path.parent.name}/{path.name}"
        self.lines: dict[Place, int] = {}
        try:
            node = yaml.compose(path.read_text(), Loader=yaml.SafeLoader)
            self._walk(node, ())
            content = yaml.safe_load(path.read_text())
        except yaml.MarkedYAMLError as error:
            mark = error.context_mark or error.problem_mark
            raise Mistake(f"{self.name}, line {mark.line + 1 if mark else 1}: {error.problem}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise Mistake(f"{self.name} is not YAML: {error}") from None
        try:
            self.content = kind.model_validate(content)
        except ValidationError as error:
            first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")  # a typo misses a key, too
            self.refuse(first["loc"], _sentence(first, _keys(kind)))

    def refuse(self, place: Place, sentence: str) -> NoReturn:
        """Raise `Mistake` about what stands at a place."""
        while place and place not in self.lines:
            place = place[:-1]
        raise Mistake(f"{self.name}, line {self.lines.get(place, 1)}: {sentence}")

    def _walk(self, node: yaml.Node | None, place: Place) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                below = (*place, key.value)
                line = key.start_mark.line + 1
                if below in self.lines:
                    self.lines[below] = line
                    self.refuse(below, f"`{key.value}` stands there twice")
                self.lines[below] = line
                self._walk(value, below)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self.lines[*place, index] = value.start_mark.line + 1
                self._walk(value, (*place, index))


def _sentence(error: ErrorDetails, keys: set[str]) -> str:
    """What pydantic found, in terms of the file."""
    *above, key = error["loc"] or ("the file",)
    within = f" in `{'.'.join(map(str, above))}`" if above else ""
    found, context = error["input"], error.get("ctx", {})
    match error["type"]:
        case "missing":
            return f"`{key}` is missing{within}"
        case "extra_forbidden":
            return f"there is no key `{key}`{within}{did_you_mean(str(key), keys)}"
        case "greater_than":
            return f"`{key}` is {found}{within}, and must be more than {context['gt']}"
        case "greater_than_equal":
            return f"`{key}` is {found}{within}, and must be {context['ge']} or more"
        case "less_than_equal":
            return f"`{key}` is {found}{within}, and must be {context['le']} or less"
        case "value_error":
            return f"`{key}`{within}: {context['error']}"
        case _:
            return f"`{key}`{within}: {error['msg'][:1].lower()}{error['msg'][1:]}, got {found!r}"


def _keys(kind: type[BaseModel]) -> set[str]:
    """The names of all fields of a record and of the records in it."""
    found: set[str] = set()
    waiting: list[object] = [kind]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, type) and issubclass(thing, BaseModel):
            found |= set(thing.model_fields)
            waiting += [field.annotation for field in thing.model_fields.values()]
        waiting += getattr(thing, "__args__", ())
    return found
