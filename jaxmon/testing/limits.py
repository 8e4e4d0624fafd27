"""What a budget allows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxmon.errors import SettingsError


FIGURES = ("compiles", "recompiles", "transfers", "live_bytes_growth")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """
    At most so many of each; `None` is no limit. See `jaxmon.budget`.

    Raises:
        SettingsError: a value that is no limit.
    """

    compiles: int | None = None
    recompiles: int | None = None
    transfers: int | None = None
    live_bytes_growth: int | None = None
    function: Callable[..., Any] | str | None = None
    internal: bool = False

    def __post_init__(self) -> None:
        for name in FIGURES:
            value: object = getattr(self, name)
            if value is None or (type(value) is int and value >= 0):
                continue
            msg = (
                f"{name}={value!r} is no limit; give a whole number from 0, or None "
                "for no limit"
            )
            raise SettingsError(msg)
        internal: object = self.internal
        if not isinstance(internal, bool):
            msg = f"internal={internal!r} is no switch; give True or False"
            raise SettingsError(msg)
        named = isinstance(self.function, str) and self.function
        if not (self.function is None or named or callable(self.function)):
            msg = (
                f"function={self.function!r} is no function; give one, or its name: "
                "'train_step' or 'project.train.train_step'"
            )
            raise SettingsError(msg)
