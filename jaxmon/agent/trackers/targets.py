"""
What a tracker is, by the methods that it has. Imports none of them.

Each is called on a thread of ours, and may raise or hang.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxmon.errors import JaxmonError


PREFIX = "jaxmon/"
STEP, FINDINGS = f"{PREFIX}step", f"{PREFIX}findings"
_FINDINGS_FILE = "jaxmon-findings.txt"


class TrackerTarget(NamedTuple):
    """
    Where figures go: *write* takes values by name and the step, *finish* the findings,
    one per line, and the step, and passes on what is buffered.
    """

    write: Callable[[Mapping[str, float], int], None]
    finish: Callable[[str, int], None]


def _wandb(run: Any) -> TrackerTarget:
    """
    Return a run of Weights & Biases. Figures join the row that the program logs next: a
    row of ours would count as a step of the program's. Their own axis is
    ``jaxmon/step``.
    """
    defined: list[str] = []

    def write(values: Mapping[str, float], step: int) -> None:
        if not defined:
            run.define_metric(STEP, hidden=True)
            run.define_metric(f"{PREFIX}*", step_metric=STEP)
            defined.append(STEP)
        run.log({**values, STEP: step}, commit=False)

    def finish(findings: str, _: int) -> None:
        run.summary[FINDINGS] = findings

    return TrackerTarget(write, finish)


def _mlflow(mlflow: Any, run: str) -> TrackerTarget:
    """Return a run of MLflow, by its fluent functions, which take a run's number."""
    return TrackerTarget(
        lambda values, step: mlflow.log_metrics(dict(values), step=step, run_id=run),
        lambda findings, _: mlflow.log_text(findings, _FINDINGS_FILE, run_id=run),
    )


def _scalars(writer: Any, scalar: Callable[..., object]) -> TrackerTarget:
    """Return a writer for TensorBoard: of PyTorch, tensorboardX, Flax or itself."""

    def write(values: Mapping[str, float], step: int) -> None:
        for name, value in values.items():
            scalar(name, value, step)

    def finish(findings: str, step: int) -> None:
        if (text := _method(writer, "add_text", "text")) is not None:
            text(FINDINGS, findings, step)
        if (flush := _method(writer, "flush")) is not None:
            flush()

    return TrackerTarget(write, finish)


def target_of(tracker: Any) -> tuple[str, TrackerTarget]:
    """
    Return the kind of *tracker*, and how to write to it. Raises `JaxmonError`: it is
    none that we know, or MLflow has no active run.
    """
    if _method(tracker, "define_metric") and _method(tracker, "log"):
        return "wandb", _wandb(tracker)
    if _method(tracker, "log_metrics") and _method(tracker, "active_run"):
        active = tracker.active_run()
        if active is None:
            msg = "MLflow has no active run; call mlflow.start_run() before log_to()"
            raise JaxmonError(msg)
        return "mlflow", _mlflow(tracker, active.info.run_id)
    run, mlflow = _mlflow_run(tracker), sys.modules.get("mlflow")
    if run is not None and mlflow is not None:
        return "mlflow", _mlflow(mlflow, run)
    scalar = _method(tracker, "add_scalar", "scalar")
    if scalar is not None:
        return "tensorboard", _scalars(tracker, scalar)
    if callable(tracker):
        return "function", TrackerTarget(
            lambda values, step: tracker(dict(values), step),
            lambda findings, step: tracker({FINDINGS: findings}, step),
        )
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
