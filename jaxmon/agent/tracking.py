"""`jaxmon.log_to`: figures of the training loop in the program's experiment tracker."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

from jaxmon.agent.agent import running, runtime_of
from jaxmon.agent.guard import log
from jaxmon.agent.trackers import Tracker, Trackers, target_of
from jaxmon.errors import JaxmonError


if TYPE_CHECKING:
    from jaxmon.agent.runtime import Runtime


def log_to(  # noqa: PLR0913 - options, each with a default
    tracker: Any,
    *,
    every: int = 100,
    loop: str = "train",
    start: int = 0,
    step_flops: float | None = None,
    peak_flops: float | None = None,
) -> None:
    """
    Write figures of a loop that `jaxmon.steps` marks to *tracker*, until the agent
    stops or the program ends: then also its findings.

    The figures are named ``jaxmon/step_seconds``, ``jaxmon/data_wait_seconds``,
    ``jaxmon/goodput``, ``jaxmon/compiles`` and so on; `docs/reports.md` lists them.

    Never blocks the loop: figures are read at the end of a step, about 5 µs for each
    jitted function, and written on a thread of its own. If *tracker* is too slow, rows
    are dropped and counted in ``jaxmon_dropped_total{what="tracker"}``; if it keeps
    raising, it is given up, with a warning in the log. The end waits for it five
    seconds at most.

    Call it after `jaxmon.instrument`; without an agent, nothing is written.

    Args:
        tracker: a W&B run, ``mlflow`` or one of its runs, a TensorBoard writer (with
            ``add_scalar`` or ``scalar``), or a function of a dictionary and a step.
        every: number of steps from one row to the next.
        loop: name of the loop.
        start: number of the step at which a resumed training starts.
        step_flops: floating-point operations that the model needs for one step, on all
            devices together; with *peak_flops*, ``jaxmon/mfu`` is written.
        peak_flops: what all devices together can do in a second, in that precision.

    Raises:
        JaxmonError: *tracker* is none of these, or a number is out of range.

    Example:
        >>> import jaxmon
        >>> rows = []
        >>> jaxmon.log_to(lambda values, step: rows.append((step, values)), every=10)
    """
    counts: tuple[tuple[str, Any, int], ...] = (
        ("every", every, 1),
        ("start", start, 0),
    )
    for name, number, least in counts:
        if not isinstance(number, int) or number < least:
            msg = f"log_to(): {name} is {number!r}; give a whole number from {least}"
            raise JaxmonError(msg)
    operations = step_flops, peak_flops
    if operations != (None, None) and not all(map(_is_amount, operations)):
        msg = (
            f"log_to(): step_flops is {step_flops!r} and peak_flops {peak_flops!r}; "
            "give two positive numbers, or neither"
        )
        raise JaxmonError(msg)
    kind, target = target_of(tracker)
    agent = running()
    runtime = None if agent is None else runtime_of(agent)
    part = None if runtime is None else runtime.part(Trackers)
    if runtime is None or part is None:
        log.info("jaxmon.log_to() writes nothing: no agent is running")
        return
    part.add(
        Tracker(
            kind,
            target,
            loop=loop,
            every=every,
            start=start,
            ideal_seconds=(step_flops or 0.0) / (peak_flops or 1.0),
            findings=partial(_findings, runtime),
        )
    )


def _is_amount(number: Any) -> bool:
    return isinstance(number, (int, float)) and 0 < number < math.inf


def _findings(runtime: Runtime) -> str:
    from jaxmon.limits.shared import current  # noqa: PLC0415 - once, at the end
    from jaxmon.symptoms.findings import find  # noqa: PLC0415

    limits = current(runtime.context.settings.run_dir)
    found = find(runtime.overview.judged_by(limits))
    return "\n".join(mistake.verdict for mistake in found) or "nothing found"
