"""Failures to put into jaxmon's own code."""

from __future__ import annotations

from typing import Any


ERRORS = "jaxmon_internal_errors_total"
ACTIVE = "jaxmon_hook_active"


class InjectedError(Exception):
    """What jaxmon's own code raises here."""


class Bomb:
    """A callable that counts its calls and raises."""

    def __init__(self, error: type[BaseException] = InjectedError) -> None:
        self.calls = 0
        self._error = error

    def __call__(self, *_: object, **__: object) -> Any:
        self.calls += 1
        raise self._error
