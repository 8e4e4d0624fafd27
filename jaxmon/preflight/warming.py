"""
Compiles what a signatures file lists into JAX's persistent cache, in processes.

The modules of a program may hang or end their process when they are imported. Such a
signature fails, and another process does the rest.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmon.facts.signatures import FAILED, Document, RecordedFunction, parts
from jaxmon.host.files import whole as scratch
from jaxmon.settings import PREFIX


_COMMAND = (sys.executable, "-m", "jaxmon.agent.warm.compiling")
_CHUNK = 1 << 16
_LONGEST = 300
# Written whatever its compile took: the next process waits for it.
_STORE_ALL = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the signature at *place* of those of its function."""

    function: str
    place: int
    status: str
    reason: str
    seconds: float


_At = tuple[int, int]


def warm(  # noqa: PLR0913 - a loop, and one for each option of the command
    document: Document,
    environ: Mapping[str, str],
    *,
    jobs: int,
    main: str,
    seconds: float,
    check: bool = False,
    progress: Callable[[Result], object],
) -> list[Result]:
    """Compile every signature, or *check* that it is cached; return the results."""
    variables = {**_STORE_ALL, **environ, f"{PREFIX}ENABLED": "false"}
    shares = _shares(document, jobs)
    places = set[_At]().union(*shares)
    results: dict[_At, Result] = {}
    running: list[_Process] = []

    def take(at: _At, status: str, reason: str, took: float) -> None:
        name = document.functions[at[0]].function
        results[at] = Result(name, at[1], status, reason, took)
        progress(results[at])

    def start(left: set[_At]) -> None:
        file = directory / f"job-{time.monotonic_ns()}.json"
        done = sorted(places - left)
        text = document.as_json()
        job = {"main": main, "done": done, "document": text, "check": check}
        file.write_text(json.dumps(job))
        process = _Process(file, left, variables)
        running.append(process)
        selector.register(process.results, selectors.EVENT_READ, process)

    with (
        scratch.directory("jaxmon-warmup-") as directory,
        selectors.DefaultSelector() as selector,
    ):
        try:
            for share in shares:
                start(share)
            while running:
                ready = {key.data for key, _ in selector.select(0.1)}
                for process in list(running):
                    ended = process in ready and process.read(take)
                    late = process.silent_for() > seconds
                    if not (ended or late):
                        continue
                    selector.unregister(process.results)
                    running.remove(process)
                    process.end()
                    if not process.left:
                        continue
                    at = process.current or min(process.left)
                    take(at, FAILED, process.why(seconds, late=late), 0.0)
                    process.left.discard(at)
                    if process.left:
                        start(process.left)
        finally:
            for process in running:
                process.end()
    return [results[at] for at in sorted(results)]


def _shares(document: Document, jobs: int) -> list[set[_At]]:
    shares: dict[int, set[_At]] = defaultdict(set)
    for number, function in enumerate(document.functions):
        places = {(number, place) for place in range(len(function.signatures))}
        shares[number % jobs] |= places
    return [share for share in shares.values() if share]


_Take = Callable[[_At, str, str, float], None]


class _Process:
    """A process that compiles, with the signatures *left* and the *current* one."""

    def __init__(self, file: Path, left: set[_At], environ: Mapping[str, str]) -> None:
        self.left = set(left)
        self.current: _At | None = None
        self._text = b""
        self._heard = time.monotonic()
        self._errors = file.with_suffix(".err")
        self.results, written = os.pipe()
        try:
            with self._errors.open("wb") as errors:
                self._process = subprocess.Popen(  # noqa: S603 - our own module
                    [*_COMMAND, str(file), str(written)],
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    pass_fds=(written,),
                    start_new_session=True,
                )
        except BaseException:
            os.close(self.results)
            raise
        finally:
            os.close(written)

    def silent_for(self) -> float:
        """Return the seconds since its last line."""
        return time.monotonic() - self._heard

    def read(self, take: _Take) -> bool:
        """Read what is there; return whether that was its end."""
        data = os.read(self.results, _CHUNK)
        self._text += data
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            self._heard = time.monotonic()
            self._take(json.loads(line), take)
        return not data

    def _take(self, line: dict[str, Any], take: _Take) -> None:
        if "begins" in line:
            self.current = tuple(line["begins"])
            return
        at = tuple(line["at"])
        take(at, line["status"], line["reason"][:_LONGEST], line["seconds"])
        self.left.discard(at)

    def end(self) -> None:
        """Kill it and what it started, if they are still there."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self.results)

    def why(self, seconds: float, *, late: bool) -> str:
        """Return why it ended without a result."""
        if late:
            return f"importing or compiling it took longer than {seconds:g} s"
        text = self._errors.read_bytes()[-_CHUNK:].decode("utf-8", "replace")
        last = (text.strip().splitlines() or ["no message"])[-1]
        return f"the process ended while importing or compiling it: {last}"[:_LONGEST]


COUNTS = (1, 2, 4, 8, 16)
"""Numbers of buckets per dimension that are proposed."""

_MOST_SIZES = 256


@dataclass(frozen=True, slots=True)
class Proposal:
    """
    Buckets for one function: so many programs, and *waste*, the part of elements that
    would be padding, weighted by calls; *sizes* are by dimension.
    """

    programs: int
    waste: float
    sizes: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Buckets:
    """
    What could be done for signatures that differ only in sizes: ever more programs,
    ever less waste, from so many without; *weighted* if calls are known.
    """

    function: str
    programs: int
    weighted: bool
    proposals: tuple[Proposal, ...]


def proposals(document: Document) -> list[Buckets]:
    """Return proposals for each function with signatures that differ in sizes."""
    return [found for function in document.functions for found in _of(function)]


def _of(function: RecordedFunction) -> Iterable[Buckets]:
    groups: dict[str, list[tuple[tuple[_Shape, ...], float | None]]] = defaultdict(list)
    for signature in function.signatures:
        found, rest = [], []
        for where, node in parts(signature):
            rest.append((where, node))
            if node and "shape" in node:
                found.append(_Shape(where, tuple(node["shape"])))
                rest[-1] = where, {**node, "shape": len(node["shape"])}
        key = json.dumps(rest, sort_keys=True)
        groups[key].append((tuple(found), signature.calls))
    for group in groups.values():
        weighted = all(calls is not None for _, calls in group)
        # One that was compiled was called, whatever the samples say.
        calls = [max(count or 0.0, 1.0) if weighted else 1.0 for _, count in group]
        shapes = [shape for shape, _ in group]
        dimensions = _varying(shapes)
        if dimensions:
            made = _proposed(shapes, calls, dimensions)
            yield Buckets(function.function, len(group), weighted, made)


@dataclass(frozen=True, slots=True)
class _Shape:
    where: str
    sizes: tuple[int, ...]


_Place = tuple[int, int]
"""Number of the array, and of its dimension."""


def _varying(shapes: Sequence[tuple[_Shape, ...]]) -> list[list[_Place]]:
    """Return the dimensions that vary; those that vary together are one."""
    together: dict[tuple[int, ...], list[_Place]] = defaultdict(list)
    for number, shape in enumerate(shapes[0]):
        for axis in range(len(shape.sizes)):
            sizes = tuple(signature[number].sizes[axis] for signature in shapes)
            if len(set(sizes)) > 1:
                together[sizes].append((number, axis))
    return list(together.values())


def _proposed(
    shapes: Sequence[tuple[_Shape, ...]],
    calls: Sequence[float],
    dimensions: Sequence[list[_Place]],
) -> tuple[Proposal, ...]:
    found: list[Proposal] = []
    for count in COUNTS:
        chosen: dict[str, tuple[int, ...]] = {}
        padded = [[list(shape.sizes) for shape in signature] for signature in shapes]
        for places in dimensions:
            number, axis = places[0]
            sizes = [signature[number].sizes[axis] for signature in shapes]
            buckets = best(sizes, calls, count)
            chosen[f"{shapes[0][number].where}.shape[{axis}]"] = buckets
            for row, size in zip(padded, sizes, strict=True):
                bucket = min(fit for fit in buckets if fit >= size)
                for at, dimension in places:
                    row[at][dimension] = bucket
        affected = sorted({number for places in dimensions for number, _ in places})
        before = after = 0.0
        for signature, new, weight in zip(shapes, padded, calls, strict=True):
            for number in affected:
                before += weight * math.prod(signature[number].sizes)
                after += weight * math.prod(new[number])
        programs = len({tuple(map(tuple, new)) for new in padded})
        waste = 1 - before / after if after else 0.0
        proposal = Proposal(programs, waste, chosen)
        if not found or programs > found[-1].programs:
            found.append(proposal)
    return tuple(found)


_Way = tuple[float, tuple[int, ...]]


def best(sizes: Sequence[int], weights: Sequence[float], count: int) -> tuple[int, ...]:
    """Return at most *count* buckets for *sizes* with the least padding; quadratic."""
    total: dict[int, float] = defaultdict(float)
    for size, weight in zip(sizes, weights, strict=True):
        total[size] += weight
    distinct = sorted(total)
    if len(distinct) > _MOST_SIZES:
        step = len(distinct) / _MOST_SIZES
        chosen = [distinct[int(n * step) - 1] for n in range(1, _MOST_SIZES)]
        distinct = [*chosen, distinct[-1]]
    count = min(count, len(distinct))
    # What is passed without padding is the same for all choices.
    below = [0.0]
    for low, high in zip([-1, *distinct], distinct, strict=False):
        below.append(
            below[-1] + sum(w for size, w in total.items() if low < size <= high)
        )
    ways: list[list[_Way]] = [[(0.0, ())]]
    for end, size in enumerate(distinct, 1):
        row: list[_Way] = [(math.inf, ())]
        row += [
            min(
                (
                    ways[start][used - 1][0] + size * (below[end] - below[start]),
                    (*ways[start][used - 1][1], size),
                )
                for start in range(end)
                if used - 1 < len(ways[start])
            )
            for used in range(1, min(count, end) + 1)
        ]
        ways.append(row)
    return min(ways[-1][1:])[1]
