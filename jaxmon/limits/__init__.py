"""
Every limit by which something is judged, once: screens, alerts and documents use them.

``slo.yaml`` sets them for all; `shared` is how they reach processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from jaxmon.host.formats import durations
from jaxmon.limits.limit import Limit
from jaxmon.limits.table import FleetLimits, ProcessLimits


class Limits(ProcessLimits, FleetLimits):
    """The limits, with their defaults unless *changed*."""

    def __init__(self, **changed: Any) -> None:
        if unknown := sorted(changed.keys() - LIMITS.keys()):
            msg = f"no limits: {', '.join(unknown)}"
            raise TypeError(msg)
        self.changed: Mapping[str, Any] = {
            name: value if isinstance(value, str) else float(value)
            for name, value in changed.items()
        }

    def __eq__(self, other: object) -> bool:
        """Return whether *other* has the same limits."""
        return isinstance(other, Limits) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(tuple(self._values().items()))

    def __repr__(self) -> str:
        return f"Limits({', '.join(f'{k}={v!r}' for k, v in self.changed.items())})"

    def replaced(self, **changed: Any) -> Self:
        """Return these limits with others *changed*."""
        return type(self)(**{**self.changed, **changed})

    def scaled(self, scale: float) -> Self:
        """Return them with every duration divided by *scale*."""
        return self.replaced(
            **{
                name: durations.scaled(value, scale)
                for name, value in self._values().items()
                if isinstance(value, str)
            }
        )

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in LIMITS}


LIMITS: Mapping[str, Limit[Any]] = {
    limit.name: limit
    for home in (ProcessLimits, FleetLimits)
    for limit in vars(home).values()
    if isinstance(limit, Limit)
}
"""All limits by name."""
