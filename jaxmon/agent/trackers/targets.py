"""
What a tracker is, by the methods that it has. Imports none of them.

Each is called on a thread of ours, and may raise or hang.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from jaxmon.errors import JaxmonError


PREFIX = "jaxmon/"
STEP, FINDINGS = f"{PREFIX}step", f"{PREFIX}findings"
_FINDINGS_FILE = "jaxmon-findings.txt"


class TrackerTarget(Protocol):
    """Where figures go."""

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Write *values* by name."""
        ...

    def finish(self, findings: str, step: int) -> None:
        """Write *findings*, one per line, and pass on what is buffered."""
        ...


class WandbRun:
    """
    A run of Weights & Biases. Figures join the row that the program logs next: a row of
    ours would count as a step of the program's. Their own axis is ``jaxmon/step``.
    """

    def __init__(self, run: Any) -> None:
        self._run = run
        self._defined = False

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Add *values* to the row in progress."""
        if not self._defined:
            self._run.define_metric(STEP, hidden=True)
            self._run.define_metric(f"{PREFIX}*", step_metric=STEP)
            self._defined = True
        self._run.log({**values, STEP: step}, commit=False)

    def finish(self, findings: str, step: int) -> None:
        """Put *findings* into the summary."""
        del step
        self._run.summary[FINDINGS] = findings


class MlflowRun:
    """A run of MLflow, by its fluent functions, which take a run's number."""

    def __init__(self, mlflow: Any, run: str) -> None:
        self._mlflow = mlflow
        self._run = run

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Log *values* as metrics."""
        self._mlflow.log_metrics(dict(values), step=step, run_id=self._run)

    def finish(self, findings: str, step: int) -> None:
        """Store *findings* as a text file among the artifacts."""
        del step
        self._mlflow.log_text(findings, _FINDINGS_FILE, run_id=self._run)


class ScalarWriter:
    """A writer for TensorBoard: of PyTorch, tensorboardX, Flax or TensorBoard."""

    def __init__(self, writer: Any, scalar: Callable[..., object]) -> None:
        self._writer = writer
        self._scalar = scalar

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Write each of *values*."""
        for name, value in values.items():
            self._scalar(name, value, step)

    def finish(self, findings: str, step: int) -> None:
        """Write *findings*, if it takes text, and flush."""
        text = _method(self._writer, "add_text", "text")
        if text is not None:
            text(FINDINGS, findings, step)
        flush = _method(self._writer, "flush")
        if flush is not None:
            flush()


class TargetFunction:
    """A function of a dictionary and a step."""

    def __init__(self, function: Callable[[dict[str, Any], int], object]) -> None:
        self._function = function

    def write(self, values: Mapping[str, float], step: int) -> None:
        """Pass *values* on."""
        self._function(dict(values), step)

    def finish(self, findings: str, step: int) -> None:
        """Pass *findings* on, as text."""
        self._function({FINDINGS: findings}, step)


def target_of(tracker: Any) -> tuple[str, TrackerTarget]:
    """
    Return the kind of *tracker*, and how to write to it.

    Raises:
        JaxmonError: it is none that we know, or MLflow has no active run.
    """
    if _method(tracker, "define_metric") and _method(tracker, "log"):
        return "wandb", WandbRun(tracker)
    if _method(tracker, "log_metrics") and _method(tracker, "active_run"):
        active = tracker.active_run()
        if active is None:
            msg = "MLflow has no active run; call mlflow.start_run() before log_to()"
            raise JaxmonError(msg)
        return "mlflow", MlflowRun(tracker, active.info.run_id)
    run, mlflow = _mlflow_run(tracker), sys.modules.get("mlflow")
    if run is not None and mlflow is not None:
        return "mlflow", MlflowRun(mlflow, run)
    scalar = _method(tracker, "add_scalar", "scalar")
    if scalar is not None:
        return "tensorboard", ScalarWriter(tracker, scalar)
    if callable(tracker):
        return "function", TargetFunction(tracker)
    msg = (
        f"log_to() cannot write to {type(tracker).__name__}: give it a W&B run, mlflow "
        "or an MLflow run, a TensorBoard writer, or a function of a dictionary and a "
        "step"
    )
    raise JaxmonError(msg)


def _mlflow_run(tracker: Any) -> str | None:
    found = getattr(getattr(tracker, "info", None), "run_id", None)
    return found if isinstance(found, str) else None


def _method(owner: Any, *names: str) -> Callable[..., Any] | None:
    """Return the first method of *owner* that is called one of *names*."""
    for name in names:
        found = getattr(owner, name, None)
        if callable(found):
            method: Callable[..., Any] = found
            return method
    return None
