"""Conditions on labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on a label."""

    label: str
    operator: Literal["=", "!=", "=~", "!~"]
    value: str

    def __str__(self) -> str:
        escaped = self.value.replace("\\", "\\\\").replace('"', '\\"')
        return f'{self.label}{self.operator}"{escaped}"'


def eq(label: str, value: str) -> Matcher:
    """Match series whose *label* is *value*."""
    return Matcher(label, "=", value)


def ne(label: str, value: str) -> Matcher:
    """Match series whose *label* is not *value*."""
    return Matcher(label, "!=", value)


def re(label: str, pattern: str) -> Matcher:
    """Match series whose *label* matches *pattern* in full."""
    return Matcher(label, "=~", pattern)
