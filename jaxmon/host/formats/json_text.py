"""Safe parsing of untrusted JSON, and of documents that other releases wrote."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from math import isfinite
from typing import Any, NoReturn, TypeVar


class NewerSchemaError(ValueError):
    """The document is of a later release."""


def require_schema(
    document: Mapping[str, Any], newest: int, *, oldest: int = 1
) -> None:
    """
    Check the schema of *document*: from the *oldest* that this release reads, 0 if it
    need not have one, to the *newest*, which it writes. Raises `NewerSchemaError`, or
    `ValueError`: it has none.
    """
    schema = document.get("schema", 0)
    if type(schema) is int and oldest <= schema <= newest:
        return
    msg = f"its schema is {schema!r:.20}; this jaxmon reads up to {newest}"
    if type(schema) is int and schema > newest:
        msg += ": upgrade it"
        raise NewerSchemaError(msg)
    raise ValueError(msg)


MAX_DEPTH = 100
"""Maximum nesting of lists and objects; no dashboard needs a third of it."""

_SHOWN = 40

T = TypeVar("T")


def parse(
    text: str | bytes, *, odd_numbers: bool = False, depth: int = MAX_DEPTH
) -> Any:
    """
    Return the value of *text*, not trusted, whose size the caller limits; non-finite
    numbers are `None` if *odd_numbers* are allowed. Raises `ValueError`: it is no JSON
    in UTF-8, deeper than *depth*, or has a duplicate key or a non-finite number.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            msg = f"not JSON: byte {error.start} is not UTF-8"
            raise ValueError(msg) from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=(lambda _: None) if odd_numbers else _refuse,
            parse_float=_finite if odd_numbers else float,
            parse_int=_finite if odd_numbers else _integer,
        )
    except json.JSONDecodeError as error:
        msg = f"not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        raise ValueError(msg) from None
    except RecursionError:
        raise _too_deep(depth) from None
    _require_bounds(value, depth)
    return value


def require_object(what: str, value: Any) -> dict[str, Any]:
    """Return *value*, or raise a `ValueError` that says of *what* it is no object."""
    return _require(what, value, dict, "an object")


def require_list(what: str, value: Any) -> list[Any]:
    """Return *value*, or raise a `ValueError` that says of *what* it is no list."""
    return _require(what, value, list, "a list")


def _require(what: str, value: Any, kind: type[T], named: str) -> T:
    if not isinstance(value, kind):
        msg = f"{what} is {value!r:.40}, not {named}"
        raise ValueError(msg)  # noqa: TRY004 - the file is wrong, not the program
    return value


def _require_bounds(value: Any, most: int) -> None:
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if isinstance(item, (dict, list)):
            if depth > most:
                raise _too_deep(most)
            inner = item.values() if isinstance(item, dict) else item
            waiting += [(part, depth + 1) for part in inner if type(part) is not str]
        elif isinstance(item, float) and not isfinite(item):
            msg = "not JSON: a number is too large"
            raise ValueError(msg)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        [(twice, _)] = Counter(key for key, _ in pairs).most_common(1)
        msg = f"not JSON: an object has a duplicate key {twice[:_SHOWN]!r}"
        raise ValueError(msg)
    return found


def _integer(text: str) -> int:
    if len(text) > sys.float_info.max_10_exp:
        msg = f"not JSON: a number has {len(text)} digits"
        raise ValueError(msg)
    return int(text)


def _finite(text: str) -> float | None:
    if len(text) > sys.float_info.max_10_exp or not isfinite(number := float(text)):
        return None
    return int(text) if text.lstrip("-").isdecimal() else number


def _refuse(name: str) -> NoReturn:
    msg = f"invalid JSON: {name} is not a number"
    raise ValueError(msg)


def _too_deep(most: int) -> ValueError:
    return ValueError(f"JSON nested deeper than {most} levels")
