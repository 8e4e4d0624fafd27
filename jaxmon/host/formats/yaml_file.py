"""
Safe parsing of YAML configuration files.

A malformed file costs an error message and nothing else: no long parsing, no stack
overflow, no excessive memory. PyYAML is loaded only when a file is parsed.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, Any

from jaxmon.errors import ConfigFileError


if TYPE_CHECKING:
    import yaml


MAX_DEPTH = 32
"""Maximum nesting of lists and mappings; none of our files needs more than six."""

MAX_VALUES = 100_000
"""Maximum number of values in a document; each use of an alias counts its values."""


def compose(text: str, *, secret: bool = False) -> yaml.Node | None:
    """
    Return the document in *text* as PyYAML's nodes, which know their position, `None`
    if it is empty. What looks like a date, or has a tag, stays text. Of a *secret*,
    errors quote nothing. Raises `ConfigFileError`: not YAML, too deep, or too many
    values.
    """
    import yaml  # noqa: PLC0415 - most programs have no such file

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _require_bounds(yaml.parse(text, Loader=loader))
        node: yaml.Node | None = yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as error:
        msg = "not YAML" if secret else f"not YAML: {error.problem or error.context}"
        mark = error.problem_mark or error.context_mark
        raise _placed(msg, mark) from (None if secret else error)
    except (yaml.YAMLError, UnicodeError):
        found = yaml.reader.Reader.NON_PRINTABLE.search(text)
        line = text.count("\n", 0, found.start()) + 1 if found else None
        msg = "not YAML: contains non-printable characters"
        raise ConfigFileError(msg, line=line) from None
    return node


def _require_bounds(events: Iterable[Any]) -> None:
    """Reject what nests too deep or holds too much: later code follows every alias."""
    import yaml  # noqa: PLC0415 - see compose()

    values: dict[str | None, float] = {}
    # Anchor, and values so far, of each collection that is open.
    within: list[tuple[str | None, float]] = [(None, 0)]
    for event in events:
        count = 0.0
        if isinstance(event, yaml.CollectionStartEvent):
            # An alias of an enclosing node never ends.
            values[event.anchor] = inf
            within.append((event.anchor, 1))
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, count = within.pop()
            values[anchor] = count
        elif isinstance(event, yaml.AliasEvent):
            count = values.get(event.anchor, 0)
        elif isinstance(event, yaml.ScalarEvent):
            values[event.anchor] = count = 1
        anchor, before = within[-1]
        within[-1] = anchor, before + count
        if len(within) > MAX_DEPTH + 1:
            msg = f"nested too deeply (limit {MAX_DEPTH} levels)"
            raise _placed(msg, event.start_mark)
        if before + count > MAX_VALUES:
            msg = f"too many values (limit {MAX_VALUES})"
            raise _placed(msg, event.start_mark)


def _placed(problem: str, mark: Any) -> ConfigFileError:
    if mark is None:
        return ConfigFileError(problem)
    return ConfigFileError(problem, line=mark.line + 1, column=mark.column + 1)
