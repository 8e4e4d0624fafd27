"""
Every name of JAX from inside that jaxmon uses, and what is lost without it.

Data alone, for people and for tools: ``docs/jax-internals.md``, `jaxmon doctor`, the
lint rule and the tests read it. An agent does not: the other modules of this package
have the names where they use them.
"""

from __future__ import annotations

from jaxmon.agent.jaxlink.names import (
    arguments,
    cache,
    calls,
    compiles,
    devices,
    errors,
    transfers,
)
from jaxmon.agent.jaxlink.names.model import RELEASES, Name


SECTIONS: tuple[tuple[str, tuple[Name, ...]], ...] = (
    ("What makes jitted functions", calls.CALLS),
    ("Missed calls", calls.MISSES),
    ("What a call was compiled for", arguments.ARGUMENTS),
    ("The same for pmap", arguments.PMAP),
    ("Configuration", arguments.CONFIGURATION),
    ("Arrays, shardings, devices", arguments.ARRAYS),
    ("Compiles", compiles.COMPILES),
    ("Ahead of time", calls.AHEAD),
    ("Events", compiles.MONITORING),
    ("Programs", compiles.PROGRAMS),
    ("The persistent cache", cache.CACHE),
    ("Sampled calls", calls.SAMPLING),
    ("Transfers", transfers.TRANSFERS),
    ("Errors", errors.ERRORS),
    ("Devices", devices.DEVICES),
    ("The profiler", devices.PROFILER),
)
"""The names by what they serve, in the order of the page."""

NAMES = tuple(name for _, names in SECTIONS for name in names)

__all__ = ["NAMES", "RELEASES", "SECTIONS", "Name"]
