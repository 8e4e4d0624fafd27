"""
Detects functions that draw the same random numbers on every call.

The keys among the arguments of sampled calls are read once they are ready, by a thread
of ours. Eight bytes each: nothing is computed, and nothing waits. Until a key changes,
so are those of a few calls that follow. Outside of jitted functions, keys are seen
where `jax.random` checks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any

from jaxmon.agent.checks.arrays import Pending, array_of, reading
from jaxmon.agent.context import Context, Sample
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.arrays import underlying_array
from jaxmon.agent.jaxlink.hooks import HookPlaces, Hooks
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import (
    KeyDraws,
    TooManyEquationsError,
    drawn_from,
    is_key,
)
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.worker import Watcher
from jaxmon.clocks import monotonic
from jaxmon.facts import functions as facts
from jaxmon.facts.events import Draws


SITE = "keys"
_MOST_KEYS = 8
_MOST_FUNCTIONS = 1_000
DRAWS = "draws"
_MOST_LINES = 1_000
# Seconds between two draws of a line whose keys are read.
_PAUSE = 0.1


# Calls after a sampled one whose keys are read, too, how many are enough, and how far
# apart they are, at most and as a part of all calls: the slow ones are seldom sampled.
_FOLLOWED, _ENOUGH, _APART, _PART = 4, 5, 30, 4


class KeyCount:
    """A key of a function: its latest value, and how many samples have had it."""

    value = b""
    samples = since = last = first = 0
    # Of the value that most samples have had, before the latest.
    longest = 0, 0

    def add(self, value: bytes, call: int) -> None:
        """Add the *value* in a *call*."""
        if value != self.value:
            if self.samples:
                self.longest = max(self.longest, (self.samples, self.calls))
            self.value, self.samples, self.since = value, 0, call
        self.samples += 1
        self.last, self.first = call, self.first or call

    @property
    def calls(self) -> int:
        """The number of calls from the first with the latest value on."""
        return self.last - self.since + 1

    @property
    def run(self) -> tuple[int, int]:
        """Samples and calls with the latest value, or with that of most of the time."""
        most, calls = self.longest
        is_most = most > self.samples and 2 * calls > self.last - self.first
        return (most, calls) if is_most else (self.samples, self.calls)


class _Line:
    """A line that draws outside of jitted functions, and the keys read there."""

    def __init__(self) -> None:
        self.draws = 0
        self.key = KeyCount()
        self.read = -_PAUSE


class KeyPart(Part):
    """Compares the PRNG keys that a function is called with."""

    name = SITE

    def __init__(self, context: Context, watcher: Watcher) -> None:
        self._jax, self._sites = context.jax, context.sites
        self._guard = context.guard
        self._watcher = watcher
        self._drawn: dict[Function, tuple[bool, ...]] = {}
        self._seen: dict[Function, list[KeyCount]] = {}
        self._lines: dict[str, _Line] = {}
        context.observers.lowered.append(self.lowered)
        context.observers.sample.append(self.sampled)

    def attach(self, hooks: Hooks) -> None:
        """Attach the hook to `jax.random`."""

        def take(at: HookPlaces) -> None:
            draws = KeyDraws(self._jax, self._drew)
            at.probe(*draws.place(), draws.on_check, draws.allowance)

        hooks.attach(DRAWS, take, needs=(SITE,))

    def _drew(self, place: str, key: Any, weight: int) -> None:
        """Note that the line *place* draws from *key*, once or more often."""
        if place not in self._lines and len(self._lines) >= _MOST_LINES:
            return
        line = self._lines.setdefault(place, _Line())
        line.draws += weight
        now = monotonic()
        if now - line.read >= _PAUSE:
            line.read = now
            read = partial(self._read_drawn, line.key, line.draws, key)
            self._watcher.submit(Pending([key], read))

    def _read_drawn(self, count: KeyCount, draws: int, key: Any) -> None:
        for value in self._values([key]):
            count.add(value, draws)

    def _values(self, keys: Sequence[Any]) -> list[bytes]:
        """Return the values of *keys*, none if one cannot be read."""
        try:
            with reading(self._jax):
                return [array_of(key).tobytes() for key in keys]
        except Exception:  # noqa: BLE001 - deleted, or what computed it failed
            return []

    def lowered(self, function: Function, _: FrameType | None, jaxpr: Any) -> None:
        """Note from which keys the program *jaxpr* draws."""
        if SITE in self._guard.off:
            return
        try:
            drawn = drawn_from(jaxpr)
        except TooManyEquationsError:
            drawn = ()
        except Exception:  # noqa: BLE001 - contained: the compile goes on
            self._guard.failed(SITE)
            return
        is_kept = function in self._drawn or len(self._drawn) < _MOST_FUNCTIONS
        if any(drawn) and is_kept:
            self._drawn[function] = drawn

    def sampled(self, sample: Sample, more: int = _FOLLOWED) -> None:
        """
        Have the keys of *sample* read, if its function draws from them, and those of so
        many *more* calls, unless enough of them is known.
        """
        drawn = self._drawn.get(sample.function)
        if drawn is None:
            return
        leaves = self._jax.tree_util.tree_leaves((sample.args, sample.kwargs))
        keys = [leaf for leaf in leaves if is_key(leaf)]
        if len(keys) != len(drawn):  # of another program of the function
            return
        used = [underlying_array(k) for k, d in zip(keys, drawn, strict=True) if d]
        used = used[:_MOST_KEYS]
        if not all([isinstance(key, self._jax.Array) for key in used]):
            return
        call = sample.function.objects.calls
        read = partial(self._read, sample.function, call, used)
        self._watcher.submit(Pending(used, read))
        seen = self._seen.get(sample.function, ())
        is_open = any([key.value and key.samples < _ENOUGH for key in seen])
        is_open &= not any([key.longest[0] for key in seen])
        if more and sample.follow and (is_open or not seen):
            apart = min(call // _PART, _APART)
            sample.follow(partial(self.sampled, more=more - 1), apart)

    def explain(self) -> Explanation:
        """Return the keys that functions and lines draw from."""
        return Explanation({"draws": self.draws}, {"keys": self.snapshot})

    def draws(self) -> tuple[Draws, ...]:
        """Return how long each line has had the same key."""
        return tuple(
            [
                Draws(place, line.draws, *line.key.run)
                for place, line in self._lines.copy().items()
                if line.key.samples
            ]
        )

    def snapshot(self) -> dict[str, facts.Keys]:
        """Return how long each function has had the same key, the longest first."""
        found, lines = {}, SourceLineFinder(self._jax)
        for function, seen in self._seen.copy().items():
            where = lines.place_that_calls(function.name, self._sites.places())
            found[function.name] = facts.Keys(*max(key.run for key in seen), where)
        return found

    def _read(self, function: Function, call: int, keys: Sequence[Any]) -> None:
        if not (values := self._values(keys)):
            return
        seen = self._seen.setdefault(function, [])
        seen.extend(KeyCount() for _ in values[len(seen) :])
        for key, value in zip(seen, values, strict=False):
            key.add(value, call)
