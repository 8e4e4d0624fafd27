"""Whether an agent pushes its metrics by OTLP, and what does."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable

from jaxmon.agent.guard import Guard, log
from jaxmon.errors import OtlpError
from jaxmon.exposition import exponential
from jaxmon.exposition.families import Family
from jaxmon.otel.environment import Plan, is_asked, plan
from jaxmon.otel.pusher import Pusher
from jaxmon.settings import Settings


def planned(settings: Settings) -> Plan | None:
    """
    Return how to push, by the settings and else the environment; `None` if nothing is
    to be pushed. From now on, histograms count what it needs.
    """
    wanted = is_asked(os.environ) if settings.otlp is None else settings.otlp
    found = plan(os.environ) if wanted else None
    exponential.ask(wanted=found is not None and found.exponential)
    return found


def prepared(
    plan: Plan | None,
    collect: Callable[[], Iterable[Family]],
    settings: Settings,
    guard: Guard,
) -> Pusher | None:
    """Return what pushes the families of *collect*, `None` if nothing can."""
    if plan is None:
        return None
    pusher = Pusher(
        collect,
        plan,
        timer=not settings.serverless,
        names=settings.otlp_names,
        failed=functools.partial(guard.failed, stays_on=True),
        run=functools.partial(guard.run, "otlp"),
    )
    try:
        pusher.prepare()
    except OtlpError as error:
        log.warning("jaxmon serves its metrics but does not push them: %s", error)
        return None
    return pusher
