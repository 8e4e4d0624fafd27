"""Steps, by loop."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from jaxmon import catalog
from jaxmon.facts.distributions import Observations, total
from jaxmon.facts.reading import Key, Reading, in_order
from jaxmon.facts.recent import Recent
from jaxmon.facts.status import LoopSummary


_STEP = "step"


def loops(now: Reading, recent: Recent) -> list[LoopSummary]:
    """Return the loops, those that run first, then those with most steps."""
    lately = recent.distributions(catalog.STEP_SECONDS)
    usual = recent.usual(catalog.STEP_SECONDS)
    waits = recent.values(catalog.DATA_WAIT_SECONDS)
    goodput = _goodput(recent)
    ages = now.of(catalog.STEP_AGE_SECONDS)
    every = now.distributions(catalog.STEP_SECONDS)
    keys: dict[str, set[Key]] = defaultdict(set)
    for key in (*every, *ages):
        keys[key[1]].add(key)
    found = []
    for loop, of in keys.items():
        new = total(lately[key] for key in of if key in lately)
        before = total(usual[key] for key in of if key in usual)
        rates = [
            lately[key].observed / seconds
            for key in of
            if key in lately and (seconds := recent.seconds(key[0]))
        ]
        running = {key[0]: ages[key] for key in of if key in ages}
        oldest = max(running, key=lambda worker: running[worker], default="")
        parts = [goodput[key[0]] for key in of if key[0] in goodput]
        waited = sum(waits.get(key, 0.0) for key in of)
        found.append(
            LoopSummary(
                loop=loop,
                workers=in_order({key[0] for key in of}),
                steps=sum(every[key].observed for key in of if key in every),
                rate=min(rates, default=None),
                p50=new.quantile(0.5) if new is not None else None,
                p95=new.quantile(0.95) if new is not None else None,
                mean=new.mean if new is not None else None,
                usual=before.mean if before is not None else None,
                data_wait_ratio=_ratio(waited, new),
                goodput=sum(parts) / len(parts) if parts and running else None,
                age=running.get(oldest),
                age_worker=oldest,
            )
        )
    return sorted(found, key=lambda one: (one.age is None, -one.steps, one.loop))


def _ratio(waited: float, steps: Observations | None) -> float | None:
    """Return what part of the *steps* was spent waiting."""
    if steps is None or steps.observed <= 0 or steps.sum <= 0:
        return None
    return min(waited / steps.sum, 1.0)


def _goodput(recent: Recent) -> Mapping[str, float]:
    """Return what part of each process's wall time was spent in steps."""
    whole: dict[str, float] = defaultdict(float)
    steps: dict[str, float] = defaultdict(float)
    for (worker, activity), seconds in recent.values(catalog.TIME_SECONDS).items():
        whole[worker] += seconds
        if activity == _STEP:
            steps[worker] += seconds
    return {worker: steps[worker] / of for worker, of in whole.items() if of > 0}
