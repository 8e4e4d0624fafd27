"""YAML values with line numbers for error messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any, NoReturn

import yaml

from jaxmon.errors import ConfigFileError, SloError
from jaxmon.host.files.bounded import read_text
from jaxmon.host.formats import durations
from jaxmon.host.formats.layout import clean, shortened
from jaxmon.host.formats.yaml_file import compose


# In a text, which may have lines.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SHOWN = 1000
# What YAML takes for something else may be meant as a text all the same.
_TEXTS = frozenset({"str", "int", "float", "bool", "timestamp"})
_KINDS = {"map": "a mapping", "seq": "a list", "null": "nothing", "str": "a text"}
_FLAGS = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}
# It is in every rule; anything longer was pasted by mistake.
_LONGEST = 2000
_MOST_NAMES, _MOST_ALIKE = 100, 5


@dataclass(frozen=True, slots=True)
class Source:
    """One value of a document, and its position."""

    file: str
    node: yaml.Node

    def fail(self, problem: str) -> NoReturn:
        """Reject this value: raise a `SloError` with file, line and *problem*."""
        line = self.node.start_mark.line + 1
        msg = f"{self.file}:{line}: {shortened(clean(problem), _SHOWN)}"
        raise SloError(msg)

    def mapping(
        self, required: Iterable[str] = (), optional: Iterable[str] = ()
    ) -> dict[str, Source]:
        """Return the values by key; keys are unique and allowed or required."""
        allowed = (*required, *optional)
        found: dict[str, Source] = {}
        for key, value in self.entries():
            if (name := key.text()) not in allowed:
                key.fail(f"unknown key {name!r}; {_instead(name, allowed)}")
            found[name] = value
        for name in required:
            if name not in found:
                self.fail(f"key {name!r} is missing")
        return found

    def read(self, **readers: Callable[[Source], Any]) -> dict[str, Any]:
        """Return a mapping whose keys are all optional, as `given` does."""
        return given(self.mapping(optional=map(_key, readers)), **readers)

    def entries(self) -> list[tuple[Source, Source]]:
        """Return keys and values of a mapping with any keys, each once."""
        if not isinstance(self.node, yaml.MappingNode):
            self.fail(f"expected a mapping, found {self._kind}")
        found: dict[str, tuple[Source, Source]] = {}
        for key_node, value in self.node.value:
            key = Source(self.file, key_node)
            if (name := key.text()) in found:
                key.fail(f"duplicate key {name!r}")
            found[name] = key, Source(self.file, value)
        return list(found.values())

    def items(self) -> list[Source]:
        """Return the values of a list."""
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail(f"expected a list, found {self._kind}")
        return [Source(self.file, node) for node in self.node.value]

    def text(self) -> str:
        """Return a non-empty string."""
        if not isinstance(self.node, yaml.ScalarNode) or self._tag not in _TEXTS:
            self.fail(f"expected a string, found {self._kind}")
        if not (text := self.node.value.strip()):
            self.fail("expected a non-empty string")
        if len(text) > _LONGEST:
            self.fail(
                f"string of {len(text)} characters is too long (maximum {_LONGEST})"
            )
        if found := _CONTROL.search(text):
            self.fail(f"control character {found[0]!a} is not allowed")
        return str(text)

    def choice(self, allowed: Iterable[str]) -> str:
        """Return a string that is one of *allowed*."""
        if (text := self.text()) not in (choices := tuple(allowed)):
            self.fail(f"found {text!r}; allowed are {', '.join(choices)}")
        return text

    def flag(self) -> bool:
        """Return a Boolean."""
        flag = _FLAGS.get(self.text().lower()) if self._tag == "bool" else None
        if flag is None:
            self.fail(f"expected true or false, found {self._found}")
        return flag

    def count(self) -> float:
        """Return a number above 0."""
        if self._tag not in {"int", "float"}:
            self.fail(f"expected a number above 0, found {self._found}")
        try:
            number = float(self.text().replace("_", ""))
        except ValueError:
            self.fail(f"expected a decimal number, found {self._found}")
        if not 0 < number < inf:
            self.fail(f"expected a number above 0, found {self._found}")
        return number

    def ratio(self) -> float:
        """Return a ratio strictly between 0 and 1, a number or a percentage."""
        written = self.text()
        share = written.removesuffix("%")
        try:
            value = float(share) if share.isascii() else 0.0
        except ValueError:
            value = 0.0
        if share != written or value > 1:
            # Through decimals: 99.9 / 100 is not 0.999 in binary.
            value = round(value / 100, 12)
        if not 0 < value < 1:
            self.fail(f"expected a ratio such as 99.9% or 0.999, found {self._found}")
        return value

    def duration(self) -> str:
        """Return a duration as Prometheus writes it, in one unit."""
        try:
            return durations.text(durations.seconds(self.text()))
        except ValueError as error:
            self.fail(str(error))

    @property
    def _tag(self) -> str:
        return str(self.node.tag).rpartition(":")[2]

    @property
    def _kind(self) -> str:
        return _KINDS.get(self._tag, f"a value of type {self._tag}")

    @property
    def _found(self) -> str:
        if isinstance(self.node, yaml.ScalarNode) and self._tag != "null":
            return repr(self.node.value)
        return self._kind


def given(
    found: Mapping[str, Source], **readers: Callable[[Source], Any]
) -> dict[str, Any]:
    """Return what *readers* make of their keys in *found*; a final ``_`` is none."""
    return {
        name: read(found[_key(name)])
        for name, read in readers.items()
        if _key(name) in found
    }


def listed(read: Callable[[Source], Any]) -> Callable[[Source], tuple[Any, ...]]:
    """Return what reads a list, whose items *read* reads."""
    return lambda source: tuple(map(read, source.items()))


def _key(name: str) -> str:
    return name.rstrip("_")


def read(path: Path) -> Source:
    """Return the document in the file *path*; `SloError` if it cannot be read."""
    try:
        text = read_text(path)
    except ConfigFileError as error:
        problem = str(error).removeprefix("cannot be read: ")
        msg = f"{path}: cannot be read: {problem}"
        raise SloError(msg) from error
    try:
        node = compose(text)
    except ConfigFileError as error:
        line = "" if error.line is None else f":{error.line}"
        msg = f"{path}{line}: {error.problem}"
        raise SloError(msg) from error
    if node is None:
        msg = f"{path}:1: empty file; the key 'slos' is required"
        raise SloError(msg)
    return Source(str(path), node)


def _instead(name: str, allowed: Sequence[str]) -> str:
    if len(allowed) <= _MOST_NAMES:
        return f"allowed are {', '.join(allowed)}"
    alike = get_close_matches(name, allowed, n=_MOST_ALIKE) or allowed[:_MOST_ALIKE]
    return f"allowed are {', '.join(alike)} and {len(allowed) - len(alike)} others"
