"""What each series of a recorded page does over time."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import pairwise
from typing import TypeAlias

from jaxmon import catalog
from jaxmon.exposition.parse import labels, parse
from tools.fleet.recording import Page, Recording


Labels: TypeAlias = tuple[tuple[str, str], ...]
Key: TypeAlias = tuple[str, Labels]

# A gauge within this of one second a second is a clock.
_CLOCK_TOLERANCE = 0.2
_EPOCH = 1e9


class Shape(Enum):
    """How the values of a series move."""

    RISES = auto()  # counter: from its base at the recorded rate
    CONSTANT = auto()
    STARTED = auto()  # moment that moves with the start of the process
    NOW = auto()  # moment that follows the clock
    AGE = auto()  # time since the start of the process
    VARIES = auto()  # any of the recorded values


@dataclass(frozen=True, slots=True)
class Line:
    """
    A series of a template.

    Args:
        name: as in a sample, with ``_bucket`` and the like.
        labels: without those of target, worker and accelerator.
        shape: how it moves.
        family: name and kind of the metric, for pages.
        base: value once warm; an offset for `STARTED`, `NOW` and `AGE`.
        rate: per second, of `RISES`.
        whole: whether all values are integers.
        recorded: what `VARIES` chooses from.
    """

    name: str
    labels: Labels
    shape: Shape
    family: tuple[str, str]
    base: float
    rate: float = 0.0
    whole: bool = True
    recorded: tuple[float, ...] = ()


@dataclass(frozen=True)
class Templates:
    """
    The series of everything that a fleet consists of.

    Args:
        programs: of a process, by program.
        devices: of a process, for each of its accelerators, by their number.
        host: of the sidecar and its host.
        gpus: of an accelerator, one template for each healthy one recorded.
    """

    programs: dict[str, tuple[Line, ...]]
    devices: dict[int, tuple[Line, ...]]
    host: tuple[Line, ...]
    gpus: tuple[tuple[Line, ...], ...]


def templates(recording: Recording) -> Templates:
    """
    Return the templates in *recording*.

    Programs on CPU have no accelerator memory and no uuid; these few series are taken
    from the synthetic workers, with all series of accelerators. The last synthetic
    accelerator is throttled on purpose, and not copied.
    """
    real, synthetic = _lines(recording.host), _lines(recording.devices)
    workers = _by(real, "worker")
    host = workers.pop("")
    # The sidecar's own view of a worker belongs to the process.
    programs = {_program(found): found for found in workers.values()}
    demo = _by(synthetic, "worker")
    gpus = [found for uuid, found in _by(demo.pop(""), "uuid").items() if uuid]
    mine = demo[min(demo)]
    of_device = {line.family[0] for line in mine if dict(line.labels).get("device")}
    devices = {
        int(number): tuple(found)
        for number, found in _by(mine, "device").items()
        if number
    }
    return Templates(
        {
            name: tuple(line for line in found if line.family[0] not in of_device)
            for name, found in programs.items()
        },
        {n: _without_uuid(found) for n, found in devices.items()},
        tuple(host),
        tuple(map(tuple, gpus[:-1])),
    )


def _program(lines: Iterable[Line]) -> str:
    names = {line.family[0] for line in lines}
    return "train" if catalog.STEPS.name in names else "serve"


def _without_uuid(lines: Iterable[Line]) -> tuple[Line, ...]:
    """Return *lines* with ``uuid`` and bus empty where the fleet fills them in."""
    own = {"uuid", "pci_bus_id", "process_index"}
    found = []
    for line in lines:
        kept = tuple((n, "" if n in own else v) for n, v in line.labels)
        found.append(replace(line, labels=kept))
    return tuple(found)


def _by(lines: Iterable[Line], label: str) -> dict[str, list[Line]]:
    """Return *lines* without *label*, by its value; those without under ``""``."""
    found: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        value = dict(line.labels).get(label, "")
        rest = tuple(one for one in line.labels if one[0] != label)
        found[value].append(replace(line, labels=rest))
    return found


def _lines(pages: tuple[Page, ...]) -> list[Line]:
    seen: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    families: dict[Key, tuple[str, str]] = {}
    starts: dict[str, float] = {}
    for page in pages:
        for family in parse(page.text):
            for name, text, value in family.samples:
                own = tuple(labels(text).items())
                key = (name, own)
                families[key] = (family.name, family.kind)
                seen[key].append((page.at, value))
                if name == catalog.PROCESS_START_TIME_SECONDS.name:
                    starts[dict(own).get("worker", "")] = value
    return [
        _line(key, families[key], found, starts.get(dict(key[1]).get("worker", "")))
        for key, found in seen.items()
        # A series that came late has no rate worth copying.
        if len(found) == len(pages)
    ]


def _line(  # noqa: PLR0911 - one for each shape
    key: Key,
    family: tuple[str, str],
    found: list[tuple[float, float]],
    start: float | None,
) -> Line:
    values = tuple(float(value) for _, value in found)
    (first_at, first), (last_at, last) = (
        (found[0][0], values[0]),
        (found[-1][0], values[-1]),
    )
    whole = all(value.is_integer() for value in values)
    span = last_at - first_at or 1.0
    moves = (last - first) / span
    if family[1] in ("counter", "histogram", "summary"):
        return Line(*key, Shape.RISES, family, first, max(0.0, moves), whole)
    if max(values) > _EPOCH and re.search(r"timestamp|start_time|boot_time", key[0]):
        if first == last and start is not None:
            return Line(*key, Shape.STARTED, family, first - start)
        if first == last:
            return Line(*key, Shape.CONSTANT, family, first, whole=whole)
        return Line(*key, Shape.NOW, family, last - last_at)
    if len(set(values)) == 1:
        return Line(*key, Shape.CONSTANT, family, first, whole=whole)
    steps = [b - a for a, b in pairwise(values)]
    clock = abs(moves - 1) < _CLOCK_TOLERANCE and min(steps) > 0
    if clock and start is not None:
        return Line(*key, Shape.AGE, family, last - (last_at - start))
    return Line(*key, Shape.VARIES, family, first, recorded=values, whole=whole)
