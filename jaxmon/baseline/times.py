"""How long the programs of one run took, as far as a file keeps it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


_QUANTILES = 5
_QUARTER, _HALF = 1, 2
# The wall time of a run of a program is only lengthened by others, so a low quantile
# is closest to its own. Its processor time is not.
_OF_WALL, _OF_PROCESSOR, _OF_CALIBRATION = _QUARTER, _HALF, _QUARTER


@dataclass(frozen=True, slots=True)
class Times:
    """
    The calls of one program in one run: quantiles 0.1, 0.25, 0.5, 0.75 and 0.9.

    Args:
        calls: how many were timed.
        wall: seconds until the outputs were ready, the device being idle before.
        processor: processor seconds of the process meanwhile.
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
class Run:
    """
    One run of the command.

    Args:
        waited: fraction of the time in which its threads could run that they waited for
            a processor; `None` if unknown.
        calibration: quantiles of the processor seconds of the same piece of work in
            every run, on every machine; empty if no call was timed.
        functions: times by function, then by the shapes of its arguments.
    """

    waited: float | None
    calibration: tuple[float, ...]
    functions: Mapping[str, Mapping[str, Times]]

    @property
    def work_seconds(self) -> float | None:
        """Seconds of that piece of work, `None` if unknown."""
        return self.calibration[_OF_CALIBRATION] if self.calibration else None

    def as_json(self) -> dict[str, Any]:
        """Return it in JSON types, in an order that does not depend on the run."""
        return {
            "waited": self.waited,
            "calibration": list(self.calibration),
            "functions": {
                name: {
                    shapes: {
                        "calls": times.calls,
                        "wall": list(times.wall),
                        "processor": list(times.processor),
                    }
                    for shapes, times in sorted(programs.items())
                }
                for name, programs in sorted(self.functions.items())
            },
        }


def of_processes(runs: list[Run]) -> Run | None:
    """
    Combine the processes of one run: of each program, those that called it most count.
    """
    if not runs:
        return None
    functions: dict[str, dict[str, Times]] = {}
    for run in runs:
        for name, programs in run.functions.items():
            known = functions.setdefault(name, {})
            for shapes, times in programs.items():
                if shapes not in known or known[shapes].calls < times.calls:
                    known[shapes] = times
    waited = [run.waited for run in runs if run.waited is not None]
    calibrated = [run.calibration for run in runs if run.calibration]
    return Run(
        max(waited, default=None),
        min(calibrated, default=()),
        functions,
    )


def checked(document: Any) -> Run:
    """
    Return the run in *document*.

    Raises:
        ValueError: there is none.
    """
    try:
        waited = document["waited"]
        return Run(
            None if waited is None else _number(waited),
            _numbers(document["calibration"], empty=True),
            {
                name: {
                    shapes: Times(
                        int(_number(found["calls"])),
                        _numbers(found["wall"]),
                        _numbers(found["processor"]),
                    )
                    for shapes, found in programs.items()
                }
                for name, programs in document["functions"].items()
            },
        )
    except (AttributeError, KeyError, TypeError) as error:
        msg = f"the times of a run are not what they should be: {error!r:.80}"
        raise ValueError(msg) from error


def _numbers(values: Any, *, empty: bool = False) -> tuple[float, ...]:
    allowed = (_QUANTILES, 0) if empty else (_QUANTILES,)
    if not isinstance(values, list) or len(values) not in allowed:
        msg = f"{values!r:.40} are not {_QUANTILES} quantiles"
        raise ValueError(msg)
    return tuple(map(_number, values))


def _number(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        msg = f"{value!r:.40} is not a number from 0"
        raise ValueError(msg)
    return float(value)
