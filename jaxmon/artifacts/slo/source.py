"""
YAML whose every value knows its line, so that a complaint can name it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml

from jaxmon.artifacts.slo import durations
from jaxmon.errors import SloError


@dataclass(frozen=True, slots=True)
class Source:
    """
    One value of a document, and where it stands.
    """

    file: str
    node: yaml.Node

    def fail(self, problem: str) -> NoReturn:
        """
        Complain about this value.

        Raises:
            SloError: always; file, line and *problem*.
        """
        line = self.node.start_mark.line + 1
        msg = f"{self.file}:{line}: {problem}"
        raise SloError(msg)

    def mapping(
        self, required: Iterable[str] = (), optional: Iterable[str] = ()
    ) -> dict[str, Source]:
        """
        Return the values by key; keys must be known, unique, and the required there.
        """
        if not isinstance(self.node, yaml.MappingNode):
            self.fail(f"found {self._kind}, wants a mapping")
        allowed = (*required, *optional)
        found: dict[str, Source] = {}
        for key_node, value in self.node.value:
            key = Source(self.file, key_node)
            name = key.text()
            if name not in allowed:
                key.fail(f"unknown key {name!r}; allowed are {', '.join(allowed)}")
            if name in found:
                key.fail(f"key {name!r} stands here for the second time")
            found[name] = Source(self.file, value)
        for name in required:
            if name not in found:
                self.fail(f"key {name!r} is missing")
        return found

    def items(self) -> list[Source]:
        """
        Return the values of a list.
        """
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail(f"found {self._kind}, wants a list")
        return [Source(self.file, node) for node in self.node.value]

    def text(self) -> str:
        """
        Return a text that says something.
        """
        if not isinstance(self.node, yaml.ScalarNode) or self._tag == "null":
            self.fail(f"found {self._kind}, wants a text")
        if not (text := self.node.value.strip()):
            self.fail("found an empty text")
        return str(text)

    def choice(self, allowed: Iterable[str]) -> str:
        """
        Return a text that is one of *allowed*.
        """
        if (text := self.text()) not in (choices := tuple(allowed)):
            self.fail(f"found {text!r}; allowed are {', '.join(choices)}")
        return text

    def flag(self) -> bool:
        """
        Return a truth value.
        """
        if self._tag != "bool":
            self.fail(f"found {self._found}, wants true or false")
        return self.text().lower() in {"true", "yes", "on"}

    def count(self) -> float:
        """
        Return a number above 0.
        """
        if self._tag not in {"int", "float"} or not (number := self._number()) > 0:
            self.fail(f"found {self._found}, wants a number above 0")
        return number

    def ratio(self) -> float:
        """
        Return a share strictly between 0 and 1, written as such or as per cent.
        """
        written = self.text()
        share = written.removesuffix("%")
        try:
            value = float(share)
        except ValueError:
            value = 0.0
        if share != written or value > 1:
            # Through decimals: 99.9 / 100 is not 0.999 in binary.
            value = round(value / 100, 12)
        if not 0 < value < 1:
            self.fail(f"found {self._found}, wants a share such as 99.9% or 0.999")
        return value

    def duration(self) -> str:
        """
        Return a duration as Prometheus writes it, in one unit.
        """
        try:
            return durations.text(durations.seconds(self.text()))
        except ValueError as error:
            self.fail(str(error))

    def _number(self) -> float:
        try:
            return float(self.text().replace("_", ""))
        except ValueError:
            self.fail(f"found {self._found}, wants a decimal number")

    @property
    def _tag(self) -> str:
        return str(self.node.tag).rpartition(":")[2]

    @property
    def _kind(self) -> str:
        kinds = {
            "map": "a mapping",
            "seq": "a list",
            "null": "nothing",
            "str": "a text",
        }
        return kinds.get(self._tag, f"a value of type {self._tag}")

    @property
    def _found(self) -> str:
        if isinstance(self.node, yaml.ScalarNode) and self._tag != "null":
            return repr(self.node.value)
        return self._kind


def read(path: Path) -> Source:
    """
    Return the document in the file *path*.

    Raises:
        SloError: the file cannot be read, or is not YAML.
    """
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        msg = f"{path}: cannot be read: {reason}"
        raise SloError(msg) from error
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        msg = f"{path}{line}: not YAML: {error.problem}"
        raise SloError(msg) from error
    except yaml.YAMLError as error:
        msg = f"{path}: not YAML: {error}"
        raise SloError(msg) from error
    if node is None:
        msg = f"{path}:1: empty; wants at least the key 'slos'"
        raise SloError(msg)
    return Source(str(path), node)
