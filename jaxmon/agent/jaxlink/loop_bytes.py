"""
Bytes that a program with loops accesses.

XLA's analysis has the body of a loop once. Each body is analysed by itself, as a
program of its own, and added as often as XLA knows that it runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from jaxmon.agent.jaxlink import executables


_COMPUTATION = r"(?:ENTRY )?%([\w.\-]+) \(.*\{$"
_NAME = r"%([\w.\-]+)"
_WHILE = r" while\(.*body=%([\w.\-]+)"
_TRIPS = r'"known_trip_count":\{"n":"(\d+)"'

# Each body takes as long to analyse as reading its text.
_LONGEST = 4_000_000
_MOST_LOOPS = 64


def accessed_bytes(jax: Any, executable: Any) -> float | None:
    """
    Return the bytes that *executable* accesses on one device; `None` if a loop runs an
    unknown number of times. Takes some milliseconds per 100 kB of HLO.
    """
    options = executables.printing(jax, configured=True)
    texts = list(executables.texts(executable, options))
    if len(texts) != 1 or len(texts[0]) > _LONGEST:
        return None
    module = _Module(jax, jax.local_devices()[0].client, texts[0])
    if module.loops > _MOST_LOOPS:
        return None
    return module.total(module.entry)


class _Module:
    """
    The computations of a module.

    Attributes:
        entry: the name of the one that is the program.
        loops: number of its loops.
    """

    def __init__(self, jax: Any, client: Any, text: str) -> None:
        self._client = client
        self._parse = _function(jax, "hlo_module_from_text")
        self._analyse = _function(jax, "hlo_module_cost_analysis")
        self._texts = dict(_computations(text))
        self.entry = next(
            name for name, one in self._texts.items() if one.startswith("ENTRY ")
        )
        self.loops = text.count(" while(")
        self._totals: dict[str, float | None] = {}

    def total(self, name: str) -> float | None:
        """Return the bytes of a computation, with those of each trip of its loops."""
        if name not in self._totals:
            self._totals[name] = self._total(name)
        return self._totals[name]

    def _total(self, name: str) -> float | None:
        found = self._once(name)
        for body, trips in self._loops(name):
            inside = self.total(body)
            if inside is None or trips is None:
                return None
            found += trips * inside - self._once(body)
        return found

    def _once(self, name: str) -> float:
        """Return XLA's analysis of a computation and all that it calls."""
        needed = self._called(name, {})
        texts = [self._texts[one].removeprefix("ENTRY ") for one in needed]
        text = "\n\n".join(["HloModule part", *texts[:-1], f"ENTRY {texts[-1]}"])
        cost = self._analyse(self._client, self._parse(text))
        return float(cost.get("bytes accessed", 0.0))

    def _called(self, name: str, known: dict[str, None]) -> Mapping[str, None]:
        """Return what *name* calls, and itself last: each after what it calls."""
        body = self._texts[name].partition("\n")[2]
        for one in re.findall(_NAME, body):
            if one in self._texts and one not in known:
                self._called(one, known)
        known[name] = None
        return known

    def _loops(self, name: str) -> Iterator[tuple[str, int | None]]:
        """Yield body and trips of the loops of a computation, not of those inside."""
        for line in self._texts[name].splitlines()[1:]:
            loop = re.search(_WHILE, line)
            if loop is not None:
                trips = re.search(_TRIPS, line)
                yield loop[1], None if trips is None else int(trips[1])
                continue
            for one in re.findall(_NAME, line):
                if one in self._texts:
                    yield from self._loops(one)


def _function(jax: Any, name: str) -> Any:
    """Return a function of jaxlib; some moved to ``hlo`` in 0.9, from ``_xla``."""
    client = jax._src.lib.xla_client  # noqa: SLF001 - no public way to the analysis
    homes = (getattr(client, home, None) for home in ("hlo", "_xla"))
    found = next((home for home in homes if hasattr(home, name)), None)
    if found is None:
        msg = f"this jaxlib has no {name}"
        raise NotImplementedError(msg)
    return getattr(found, name)


def _computations(text: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each computation."""
    name, lines = "", list[str]()
    for line in text.splitlines():
        if not name:
            head = re.match(_COMPUTATION, line)
            if head is None:
                continue
            name = head[1]
        lines.append(line)
        if line == "}":
            yield name, "\n".join(lines)
            name, lines = "", []
