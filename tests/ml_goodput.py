"""
Figures of ml-goodput-measurement for a run of `tests.goodput_runs`.

It reads events from Google Cloud Logging; here they come from a list. Of Google's
packages, which it imports and does not use then, there are empty ones.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jaxmon.catalog import RUN_ACTIVITIES
from jaxmon.facts.run import RunRecord
from tests.goodput_runs import Supervised


_NOT_INSTALLED = ("google", "tensorboardX")
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Anything(type):
    """A class whose attributes are all classes."""

    @staticmethod
    def of(name: str) -> Anything:
        """Return one; none is special to Python."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (Exception,), {})

    def __getattr__(cls, name: str) -> Anything:
        """Return another one."""
        return cls.of(name)


class Missing(MetaPathFinder, Loader):
    """Finds an empty module for each one that it imports and that is not installed."""

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        """Return what makes the module *name*."""
        if name.partition(".")[0] in _NOT_INSTALLED:
            return ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return a module that has everything."""
        found = ModuleType(spec.name)
        found.__getattr__ = Anything.of  # type: ignore[method-assign]
        return found

    def exec_module(self, _: ModuleType) -> None:
        """Nothing is in it."""


class ListLogger:
    """Stands for the connection to Cloud Logging."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def write_cloud_logging_entry(self, entry: dict[str, Any]) -> None:
        """Keep *entry*."""
        self.entries.append(entry)

    def read_cloud_logging_entries(self, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Return all entries, and which was the last."""
        return list(self.entries), (_EPOCH, "last")

    def flush(self) -> None:
        """Nothing is in flight."""


def as_theirs(record: RunRecord) -> dict[str, float]:
    """Return the same of *record*."""
    seconds = {name: record.seconds.get(name, 0.0) for name in RUN_ACTIVITIES}
    return {
        "total": record.wall,
        "productive": sum(seconds[one] for one in ("step", "data_wait", "checkpoint")),
        "startup": seconds["compile"],
        "lost": seconds["lost_progress"] + seconds["waiting"],
        "other": seconds["startup"] + seconds["recovery"],
        "interruptions": record.interrupted,
    }


def figures(
    run: Supervised, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    """Return what it says of *run*, in seconds; *directory* is for its files."""
    known = set(sys.modules)
    try:
        return _figures(run, directory, monkeypatch)
    finally:
        for name in set(sys.modules) - known:
            if name.partition(".")[0] in {*_NOT_INSTALLED, "ml_goodput_measurement"}:
                del sys.modules[name]


def _figures(
    run: Supervised, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, float]:
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Missing()])
    goodput = pytest.importorskip(
        "ml_goodput_measurement.src.goodput",
        reason="needs `pip install --no-deps ml-goodput-measurement`",
    )
    logger = ListLogger()
    recorder = goodput.GoodputRecorder(
        "run", "log", logging_enabled=True, cloud_logger=logger
    )
    for attempt in run.attempts:
        recorder.record_job_start_time(_time(attempt.began))
        for event in attempt.events:
            # The last is asked for when there are no more.
            if event["what"] == "step" and event["number"] <= run.steps:
                recorder.record_step_start_time(event["number"], _time(event["at"]))
    recorder.record_job_end_time(_time(run.attempts[-1].ended))
    calculator = goodput.GoodputCalculator(
        "run", "log", logger, cache_dir=str(directory)
    )
    percent, badput, _ = calculator.get_job_goodput(include_badput_breakdown=True)
    total = run.attempts[-1].ended - run.attempts[0].began
    parts = {kind.name: part for kind, part in badput.items()}
    seconds = {
        name: part * total / 100 for name, part in parts.items() if _is_number(part)
    }
    return {
        "total": total,
        "productive": percent * total / 100,
        "startup": seconds["PROGRAM_STARTUP"],
        "lost": seconds["WASTED_PROGRESS_FROM_DISRUPTION"]
        + seconds["INFRASTRUCTURE_RECOVERY_FROM_DISRUPTION"],
        "other": seconds["OTHER"],
        "interruptions": calculator._number_of_interruptions,
    }


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float))


def _time(boottime: float) -> datetime:
    return _EPOCH + timedelta(seconds=boottime)
