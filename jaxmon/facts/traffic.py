"""Requests, queues and batches, by route and queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from jaxmon import catalog
from jaxmon.facts.distributions import Observations, total
from jaxmon.facts.reading import Key, Reading, in_order
from jaxmon.facts.recent import Recent
from jaxmon.facts.status import BatchSummary, Latency, QueueSummary, RequestSummary


_WARM = "warm"


def requests(now: Reading, recent: Recent) -> list[RequestSummary]:
    """Return the routes, those that fail most first, then the most frequent."""
    every = _by_route(now.distributions(catalog.REQUEST_SECONDS))
    lately = _by_route(recent.distributions(catalog.REQUEST_SECONDS))
    usual = _by_route(recent.usual(catalog.REQUEST_SECONDS))
    waiting = _by_label(now.of(catalog.REQUESTS_IN_PROGRESS))
    oldest = _by_label(now.of(catalog.REQUEST_OLDEST_SECONDS))
    found = []
    for route in every.keys() | waiting.keys():
        all_of, new, before = (of.get(route, {}) for of in (every, lately, usual))
        one = _request(route, all_of, new, before, recent)
        in_progress = waiting.get(route)
        if in_progress is not None:
            workers = in_order({*one.workers, *in_progress})
            one = one.replace(workers=workers, in_progress=sum(in_progress.values()))
        ages = oldest.get(route)
        if ages and one.in_progress:
            worker = max(ages, key=lambda worker: ages[worker])
            one = one.replace(oldest=ages[worker], oldest_worker=worker)
        found.append(one)
    return sorted(
        found,
        key=lambda one: (-(one.recent_failed or 0), -one.total, one.route),
    )


def slowest_p95(found: Mapping[Key, Observations]) -> float | None:
    """
    Return the p95 of the route whose is highest, of all its successful requests, warm
    or not; `None` without any.
    """
    routes = _by_route(found).values()
    times = [_latency(_of(of, "success")) for of in routes]
    return max((one.p95 for one in times if one and one.p95), default=None)


def queues(now: Reading) -> list[QueueSummary]:
    """Return the queues, the deepest first."""
    return sorted(
        (
            QueueSummary(
                queue=name,
                workers=in_order(depths),
                depth=sum(depths.values()),
            )
            for name, depths in _by_label(now.of(catalog.QUEUE_DEPTH)).items()
        ),
        key=lambda one: (-one.depth, one.queue),
    )


def batches(now: Reading, recent: Recent) -> list[BatchSummary]:
    """Return the batches of each route, the most frequent first."""
    every = _by_route(now.distributions(catalog.BATCH_FILL_RATIO))
    lately = _by_route(recent.distributions(catalog.BATCH_FILL_RATIO))
    found = []
    for route, of in every.items():
        new = total(lately.get(route, {}).values())
        found.append(
            BatchSummary(
                route=route,
                workers=_workers(of),
                total=_count(of.values()),
                rate=_rate(lately.get(route, {}), recent),
                fill=new.mean if new is not None else None,
            )
        )
    return sorted(found, key=lambda one: (-one.total, one.route))


def _request(
    route: str,
    every: Mapping[Key, Observations],
    lately: Mapping[Key, Observations],
    usual: Mapping[Key, Observations],
    recent: Recent,
) -> RequestSummary:
    known = bool(lately) or not every
    finished, failed = _count(lately.values()), _count(_of(lately, "error"))
    waited = finished - _count(_of(lately, None, warm=True))
    before = total(_of(usual, "success", warm=True))
    times = [one for key in lately if (one := recent.seconds(key[0])) is not None]
    return RequestSummary(
        route=route,
        workers=_workers(every),
        total=_count(every.values()),
        failed=_count(_of(every, "error")),
        client_errors=_count(_of(every, "client_error")),
        cold_total=_count(_of(every, None, warm=False)),
        recent_seconds=max(times, default=None),
        recent=finished if known else None,
        recent_failed=failed if known else None,
        rate=_rate(lately, recent),
        error_ratio=failed / finished if finished else None,
        cold_ratio=waited / finished if finished else None,
        latency=_latency(_of(lately, "success")),
        warm=_latency(_of(lately, "success", warm=True)),
        cold=_latency(_of(lately, "success", warm=False)),
        usual_p50=before.quantile(0.5) if before is not None else None,
        usual_p95=before.quantile(0.95) if before is not None else None,
        in_progress=None,
        oldest=None,
        oldest_worker="",
    )


def _of(
    found: Mapping[Key, Observations], outcome: str | None, *, warm: bool | None = None
) -> list[Observations]:
    """Return the histograms of *outcome*, and of the requests that were *warm*."""
    return [
        one
        for (_, _, its, start), one in found.items()
        if outcome in (None, its) and warm in (None, start == _WARM)
    ]


def _latency(found: Iterable[Observations]) -> Latency | None:
    every = total(found)
    if every is None or every.observed <= 0:
        return None
    return Latency(
        count=every.observed,
        p50=every.quantile(0.5),
        p95=every.quantile(0.95),
        p99=every.quantile(0.99),
    )


def _rate(lately: Mapping[Key, Observations], recent: Recent) -> float | None:
    """Return how many a second there were, in all processes; `None` if unknown."""
    if not lately:
        return None
    counts: dict[str, float] = defaultdict(float)
    for key, one in lately.items():
        counts[key[0]] += one.observed
    times = {worker: recent.seconds(worker) for worker in counts}
    return sum(counts[worker] / seconds for worker, seconds in times.items() if seconds)


def _count(found: Iterable[Observations]) -> float:
    return sum(one.observed for one in found)


def _by_route(
    found: Mapping[Key, Observations],
) -> dict[str, dict[Key, Observations]]:
    routes: dict[str, dict[Key, Observations]] = defaultdict(dict)
    for key, one in found.items():
        routes[key[1]][key] = one
    return routes


def _by_label(found: Mapping[Key, float]) -> dict[str, dict[str, float]]:
    """Return the values by the metric's only label, then by process."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for (worker, label), value in found.items():
        values[label][worker] = value
    return values


def _workers(keys: Iterable[Key]) -> tuple[str, ...]:
    return in_order({key[0] for key in keys})
