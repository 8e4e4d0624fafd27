"""Compares what expressions give for an object and for what stands for it."""

from __future__ import annotations

import re
import traceback
from typing import Any

import jax

from tests.support import ROOT


THEIR_NAME = f"{type(jax.jit(len)).__module__}.PjitFunction"
# Part of messages since Python 3.14, as THEIR_NAME is of others.
OUR_NAME = "jaxmon.agent.counted.PjitFunction"
PAGE = ROOT / "docs" / "decisions" / "0002-hooks-without-a-frame.md"

MODULES = [
    "collections",
    "copy",
    "functools",
    "gc",
    "inspect",
    "numpy",
    "operator",
    "pickle",
    "pydoc",
    "sys",
    "types",
    "unittest.mock",
    "weakref",
]


def text_of(found: Any) -> str:
    return f"{type(found).__name__} {without_addresses(repr(found))}"


def without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def outcome(expression: str, names: dict[str, Any]) -> tuple[str, ...]:
    """
    Return the kind and text of what *expression* gives, or of what it raises and the
    functions that its traceback passes.
    """
    try:
        return "value", text_of(eval(expression, names))  # noqa: S307 - ours
    except Exception as error:  # noqa: BLE001 - compared
        # The interpreter's messages name our type without a module; the page says so.
        text = without_addresses(str(error))
        for name in (THEIR_NAME, OUR_NAME):
            text = text.replace(name, "PjitFunction")
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{frame.name} in {frame.filename}" for frame in frames]
        return "error", type(error).__name__, text, *where
