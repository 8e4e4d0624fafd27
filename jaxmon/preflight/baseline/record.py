"""Baseline files: measures by function, times by run, versions; and allowed growth."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jaxmon.errors import BaselineError, ConfigFileError, raised
from jaxmon.facts.functions import LEAST_SECONDS
from jaxmon.host.files import bounded as bounded_file
from jaxmon.host.files import whole as whole_file
from jaxmon.host.formats import json_text
from jaxmon.host.formats.json_text import require_object
from jaxmon.limits import LIMITS, Limits


SCHEMA = 1

VERSIONS = ("jax", "jaxlib", "python", "platform", "device")
"""
Names of the versions that identify a record; ``device`` is the kind of the first one.
"""

_MOST_BYTES = 64 << 20
_DIGITS = 4

# Programs have these; where processes compile the same function, the largest counts.
_SUMMED = ("compiles", "recompiles", "compile_seconds")

COMPILE_SECONDS = "compile_seconds"
"""The one of these measures that differs from run to run."""


_LIST = r"\[[^][{}]*\]"
_QUANTILES = 5
_QUARTER, _HALF = 1, 2
# The wall time of a run of a program is only lengthened by others, so a low quantile
# is closest to its own. Its processor time is not.
_OF_WALL, _OF_PROCESSOR, _OF_CALIBRATION = _QUARTER, _HALF, _QUARTER
_TOLERANCE = re.compile(r"(?:(\d+(?:\.\d+)?)%)?(?:\+?(\d+(?:\.\d+)?))?", re.ASCII)
_MOST = 1e15


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A measure may grow by *share* of itself, plus *amount*."""

    share: float = 0
    amount: float = 0

    def __str__(self) -> str:
        parts = [f"{100 * self.share:g}%"] if self.share else []
        if self.amount or not parts:
            digits = f"{self.amount:.9f}".rstrip("0").rstrip(".")
            parts += [digits if self.amount < 1 else f"{self.amount:g}"]
        return "+".join(parts)

    def allows(self, before: float, after: float) -> bool:
        """Return whether a measure may grow from *before* to *after*."""
        # What was computed in another order may differ in the last digit.
        return after <= before * (1 + self.share + 1e-12) + self.amount


RUN_SECONDS = "run_seconds"
"""The one measure that several runs are needed for; see `compare`."""

# XLA's numbers are the same for each run of one jaxlib; some room is left for padding
# and constants. What follows from the shapes of arguments and results needs none.
TOLERANCES = {
    "compiles": Tolerance(),
    "recompiles": Tolerance(),
    "programs": Tolerance(),
    # Measured, possibly on a shared machine.
    COMPILE_SECONDS: Tolerance(0.5, 0.5),
    "flops": Tolerance(0.01),
    "model_flops": Tolerance(),
    "accessed_bytes": Tolerance(0.01),
    "argument_bytes": Tolerance(),
    "output_bytes": Tolerance(),
    "temporary_bytes": Tolerance(0.01),
    "peak_bytes": Tolerance(0.01),
    "code_bytes": Tolerance(0.05),
    "fusions": Tolerance(),
    "instructions": Tolerance(0.05),
    # Measured in several runs; what differs less may be the machine.
    RUN_SECONDS: Tolerance(LIMITS["slower"].default, LEAST_SECONDS),
}
"""Every measure by name, in display order, with its tolerance by default."""


def tolerances(given: Iterable[str], limits: Limits) -> dict[str, Tolerance | None]:
    """Return the allowed growth by measure: ``flops=5%``, ``code_bytes=off``."""
    found: dict[str, Tolerance | None] = {
        **TOLERANCES,
        RUN_SECONDS: Tolerance(limits.slower, LEAST_SECONDS),
    }
    for text in given:
        name, _, value = text.partition("=")
        if name not in TOLERANCES:
            names = ", ".join(TOLERANCES)
            msg = f"{text!r}: unknown measure {name!r}; measures are {names}"
            raise BaselineError(msg)
        found[name] = None if value == "off" else _tolerance(text, value)
    return found


def _tolerance(text: str, value: str) -> Tolerance:
    match = _TOLERANCE.fullmatch(value)
    share, amount = match.groups() if match is not None and value else (None, None)
    if share is None and amount is None:
        msg = (
            f"{text!r}: {value!r} is not a valid tolerance; use a percentage (5%), "
            "an amount (2), both (50%+0.5), or off"
        )
        raise BaselineError(msg)
    found = Tolerance(float(share or 0) / 100, float(amount or 0))
    if max(found.share, found.amount) > _MOST:
        msg = f"{text!r} allows everything; use off"
        raise BaselineError(msg)
    return found


@dataclass(frozen=True, slots=True)
class RunTimes:
    """
    The calls of a program in a run, quantiles 0.1, 0.25, 0.5, 0.75 and 0.9: seconds
    until outputs were ready from an idle device, and *processor* seconds meanwhile.
    """

    calls: int
    wall: tuple[float, ...]
    processor: tuple[float, ...]

    @property
    def wall_seconds(self) -> float:
        """What stands for the run: the lower quartile of the wall times."""
        return self.wall[_OF_WALL]

    @property
    def processor_seconds(self) -> float:
        """What stands for the run: the median of the processor times."""
        return self.processor[_OF_PROCESSOR]


@dataclass(frozen=True, slots=True)
class TimedRun:
    """
    A run: threads *waited* for a processor for that part of the time; *calibration* has
    quantiles of the processor seconds of the same work in every run, on every machine;
    *functions* has times by function and shapes of arguments.
    """

    waited: float | None
    calibration: tuple[float, ...]
    functions: Mapping[str, Mapping[str, RunTimes]]

    @property
    def work_seconds(self) -> float | None:
        """Seconds of that piece of work, `None` if unknown."""
        return self.calibration[_OF_CALIBRATION] if self.calibration else None

    def as_json(self) -> dict[str, Any]:
        """Return it in JSON types, in an order that does not depend on the run."""
        return {
            **asdict(self),
            "functions": {
                name: {shapes: asdict(times) for shapes, times in sorted(of.items())}
                for name, of in sorted(self.functions.items())
            },
        }


def of_processes(runs: list[TimedRun]) -> TimedRun | None:
    """Combine processes of a run: of each program, those that called it most."""
    if not runs:
        return None
    functions: dict[str, dict[str, RunTimes]] = {}
    for run in runs:
        for name, programs in run.functions.items():
            longest = functions.setdefault(name, {})
            for shapes, times in programs.items():
                if shapes not in longest or longest[shapes].calls < times.calls:
                    longest[shapes] = times
    waited = [run.waited for run in runs if run.waited is not None]
    calibrated = [run.calibration for run in runs if run.calibration]
    return TimedRun(max(waited, default=None), min(calibrated, default=()), functions)


def timed_run(document: Any) -> TimedRun:
    """Return the run in *document*."""
    waited, calibration = document["waited"], document["calibration"]
    return TimedRun(
        None if waited is None else _number(waited),
        _quantiles(calibration) if calibration else (),
        {
            name: {
                shapes: RunTimes(
                    int(_number(found["calls"])),
                    _quantiles(found["wall"]),
                    _quantiles(found["processor"]),
                )
                for shapes, found in programs.items()
            }
            for name, programs in document["functions"].items()
        },
    )


def _quantiles(values: Any) -> tuple[float, ...]:
    found = tuple(map(_number, values))
    if len(found) != _QUANTILES:
        msg = f"{values!r:.40} are not {_QUANTILES} quantiles"
        raise ValueError(msg)
    return found


def _number(value: Any) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        msg = f"{value!r:.40} is not a number from 0"
        raise ValueError(msg)
    return value


@dataclass(frozen=True, slots=True)
class Baseline:
    """
    Measures by function, without JAX's own, as far as JAX reports them; versions by
    name, machine and flags among them; and how long programs took, run by run.
    """

    versions: Mapping[str, str]
    functions: Mapping[str, Mapping[str, float]]
    runs: tuple[TimedRun, ...] = ()

    def __str__(self) -> str:
        document = {
            "schema": SCHEMA,
            "versions": dict(self.versions),
            "functions": {
                name: {key: measures[key] for key in TOLERANCES if key in measures}
                for name, measures in sorted(self.functions.items())
            },
            "runs": [run.as_json() for run in self.runs],
        }
        text = json.dumps(document, indent=2, ensure_ascii=False)
        # Each list of numbers on a line.
        return re.sub(_LIST, lambda found: " ".join(found[0].split()), text) + "\n"


def from_processes(documents: Iterable[Mapping[str, Any]]) -> Baseline:
    """Combine the files of a run's agents: sums, and of sizes the largest."""
    versions: dict[str, str] = {}
    functions: dict[str, dict[str, float]] = {}
    runs = []
    for document in documents:
        if "times" in document:
            runs.append(timed_run(document["times"]))
        versions = {**document["versions"], **versions}
        for name, measures in document["functions"].items():
            sums = functions.setdefault(name, {})
            for key, value in measures.items():
                sums[key] = (
                    round(sums.get(key, 0) + value, _DIGITS)
                    if key in _SUMMED
                    else max(sums.get(key, 0), value)
                )
    run = of_processes(runs)
    return Baseline(versions, functions, () if run is None else (run,))


def from_runs(records: Sequence[Baseline]) -> Baseline:
    """Combine runs of one command: counts of the first, and the least of seconds."""
    first = records[0]
    functions = {name: dict(measures) for name, measures in first.functions.items()}
    for record in records:
        for name, measures in functions.items():
            seconds = record.functions.get(name, {}).get(COMPILE_SECONDS)
            if seconds is not None and seconds < measures.get(COMPILE_SECONDS, seconds):
                measures[COMPILE_SECONDS] = seconds
    runs = tuple(run for record in records for run in record.runs)
    return Baseline(first.versions, functions, runs)


def write(record: Baseline, path: Path) -> None:
    """Write *record* to *path*, whole or not at all."""
    try:
        # Of a lone surrogate that is the escape that JSON has for it.
        whole_file.write(path, str(record).encode("utf-8", "backslashreplace"))
    except OSError as error:
        msg = f"cannot write {path}: {error.strerror or error}"
        raise BaselineError(msg) from error


def check_writable(path: Path) -> None:
    """Check that *path* is writable."""
    if reason := whole_file.unwritable(path):
        msg = f"cannot write {path}: {reason}"
        raise BaselineError(msg)


def read(path: Path) -> Baseline:
    """Return the record in *path*. Raises `BaselineError`: it is damaged, or newer."""
    with raised(BaselineError, path, ConfigFileError):
        data = bounded_file.read(path, most=_MOST_BYTES, pipe=True)
    try:
        document = require_object("the file", json_text.parse(data))
        json_text.require_schema(document, SCHEMA)
        return _checked(document)
    except (ValueError, OverflowError) as error:
        msg = (
            f"{path} is not a baseline: {error}; create one with `jaxmon baseline "
            "record`"
        )
        raise BaselineError(msg) from error


def _checked(document: dict[str, Any]) -> Baseline:
    """Return the record in *document*, without measures of a later jaxmon."""
    try:
        versions = dict(document["versions"])
        functions = {
            name: {key: _number(measures[key]) for key in TOLERANCES if key in measures}
            for name, measures in document["functions"].items()
        }
        runs = tuple(map(timed_run, document.get("runs", ())))
    except (AttributeError, KeyError, TypeError) as error:
        msg = f"its content is not what it should be: {error!r:.80}"
        raise ValueError(msg) from error
    if not all(isinstance(value, str) for value in versions.values()):
        msg = "a version is not a string"
        raise ValueError(msg)
    return Baseline(versions, functions, runs)
