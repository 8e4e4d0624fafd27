"""The text of a summary: the same for the same facts, and readable."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from jaxmon.report.runs import MOST_BYTES


_DIGITS = 6
# Beyond it, a number is a time, or of bytes.
_LARGE = 1e6
_LIST = r"\[[^][{}\"]*\]"


def plain(value: Any, text: Callable[[str], str]) -> Any:
    """
    Return *value* in JSON types, numbers rounded and each text passed to *text*: fields
    of dataclasses as they are declared, other keys sorted.
    """
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float):
        return _rounded(value)
    if is_dataclass(value):
        return {
            one.name: plain(getattr(value, one.name), text) for one in fields(value)
        }
    if isinstance(value, Mapping):
        return {text(str(key)): plain(value[key], text) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [plain(one, text) for one in value]
    return value


def as_text(document: Mapping[str, Any]) -> str:
    """Return *document* as text, each list of numbers on a line; "" if too large."""
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    text = re.sub(_LIST, lambda found: " ".join(found[0].split()), text) + "\n"
    return text if len(text.encode("utf-8", "backslashreplace")) <= MOST_BYTES else ""


def _rounded(value: float) -> float:
    if abs(value) >= _LARGE:
        return round(value, 3)
    return float(f"{value:.{_DIGITS}g}")
