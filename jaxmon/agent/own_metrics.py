"""Small parts: the agent itself, its timer, and families of other packages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from jaxmon import catalog
from jaxmon.agent.context import Context
from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.part import Explanation, Part
from jaxmon.agent.serving import Serving
from jaxmon.agent.worker import Worker
from jaxmon.catalog import Metric
from jaxmon.clocks import monotonic
from jaxmon.exposition.families import (
    Family,
    Histogram,
    Sample,
    family_of,
    gauge,
    histograms,
    labels_text,
)
from jaxmon.indicators import recorder
from jaxmon.indicators.figures import Indicators
from jaxmon.settings import Settings, words
from jaxmon.tuples import NamedTuple


if TYPE_CHECKING:
    from jaxmon.facts.process import Exports
    from jaxmon.otel.pusher import Pusher


class Markers(Part):
    """The program's own markers. The last part to attach, the first to detach."""

    name = "indicators"

    def __init__(self, figures: Indicators) -> None:
        self.figures = figures

    def attach(self, _: Hooks) -> None:
        """Connect the markers to the statistics."""
        recorder.attach(self.figures)

    def collect(self) -> Iterable[Family]:
        """Return requests, steps and other markers."""
        return self.figures.collect()

    def explain(self) -> Explanation:
        """Return requests by route, steps by loop, and queues."""
        figures = self.figures
        return Explanation(
            {
                "requests": figures.explain_requests,
                "steps": figures.loops.explain,
                "queues": figures.explain_queues,
            }
        )

    def stop(self) -> None:
        """Disconnect the markers."""
        recorder.detach(self.figures)

    abandon = stop


class ProcessPart(Part):
    """Metrics of the process."""

    name = "process"

    def __init__(self) -> None:
        from jaxmon.host.resources.process import ProcessFamilies  # noqa: PLC0415 - late

        self._families: Callable[[], Iterable[Family]] = ProcessFamilies().collect

    def collect(self) -> Iterable[Family]:
        """Return the current values."""
        return self._families()


class Container(ProcessPart):
    """Metrics of the process's container."""

    name = "container"

    def __init__(self) -> None:
        from jaxmon.host.resources import container  # noqa: PLC0415 - late

        self._families = container.families


# Exported from the start, even if the part is disabled by settings.
_DROPPED = ("event", "figure", "program", "sample", "span", "tracker", "value")


class OwnMetrics(NamedTuple):
    """The metrics of an agent that are about itself, *began* by `monotonic`."""

    context: Context
    parts: Iterable[Part]
    markers: Markers
    serving: Serving
    pusher: Pusher | None
    scrapes: Histogram
    began: float

    def collect(self) -> list[Family]:
        """Return their families."""
        overflows = {
            "function": self.context.table.overflow.value,
            **self.markers.figures.overflow(),
        }
        return [
            family_of(catalog.INTERNAL_ERRORS, self.context.guard.failures().items()),
            family_of(catalog.LABEL_OVERFLOW, overflows.items()),
            family_of(catalog.DROPPED, self._dropped().items()),
            histograms(catalog.SCRAPE_SECONDS, [self.scrapes]),
            # Whatever the program does to its clocks.
            gauge(catalog.COUNTING_SECONDS, max(0.0, monotonic() - self.began)),
            *(() if self.pusher is None else self.pusher.families()),
        ]

    def exports(self) -> Exports:
        """Return what did not arrive at receivers of OTLP, for the debug overview."""
        from jaxmon.facts.process import Exports  # noqa: PLC0415 - on request

        pushed = {} if self.pusher is None else self.pusher.explain()
        return Exports(**pushed, spans_dropped=self._dropped()["span"])

    def _dropped(self) -> dict[str, int]:
        dropped = {"connection": self.serving.dropped(), **dict.fromkeys(_DROPPED, 0)}
        for part in self.parts:
            dropped.update(part.dropped())
        return dropped


# The minimum interval of the timer, which limits the sampling rate.
_INTERVAL = 0.01
# So that samples do not synchronise with periodic work of the program.
_SPREAD = 0.2
# A program that ends within seconds is sampled more often: first, as a fraction of the
# interval, and later, of its age, or that of its latest loop, if it has few.
_YOUNG, _OF_AGE, _MOST_YOUNG = 0.1, 0.1, 8


class Timer(Part):
    """Notifies `Observers.timer` about as often as a function is sampled."""

    name = "timer"

    def __init__(self, context: Context) -> None:
        self._guard = context.guard
        self._began = context.began
        self._table = context.table
        self._repeated = 0
        self._observers = context.observers.timer
        self._interval = max(1 / context.settings.sample_rate, _INTERVAL)
        self._shortest = max(self._interval * _YOUNG, _INTERVAL)
        self._worker = Worker(
            self.name,
            context.scheduler,
            every=self._shortest,
            routine=self._ring,
            is_short=True,
            spread=_SPREAD,
        )

    def start(self) -> None:
        """Start the timer."""
        self._worker.start()

    def stop(self) -> None:
        """Stop it."""
        self._worker.stop()

    def _ring(self) -> None:
        # A loop that begins is young, however long the program took until then.
        repeated = sum([of.counted and of.objects.calls > 1 for of in self._table])
        if self._repeated < repeated <= _MOST_YOUNG:
            self._repeated, self._began = repeated, monotonic()
        young = max(self._shortest, (monotonic() - self._began) * _OF_AGE)
        self._worker.every = min(young, self._interval)
        for notify in self._observers:
            # Others are notified.
            with self._guard.contained("observers", stays_on=True):
                notify()


JAX = "jax"
"""The function of what JAX's own functions add up to; names of others have a dot."""


class Reduction:
    """
    Reduces families: those of JAX's own functions to one, unless these are exported by
    function; histograms of the groups *few*, in lower case, or ``all``, to few buckets.
    """

    def __init__(
        self, table: FunctionTable, *, functions: bool, few: Iterable[str]
    ) -> None:
        self._table = table
        self._functions = functions
        self._few = frozenset(few)
        # By series: the one it is part of, or itself. Only of counters and histograms:
        # each of a function's programs has an info of its own.
        self._folded: dict[str, str] = {}

    def of(self, families: Iterable[Family]) -> list[Family]:
        """Return *families* with fewer series; 0.2 µs per sample."""
        functions = [] if self._functions else [of for of in self._table if of.internal]
        internal = tuple([labels_text(("function",), (of.name,)) for of in functions])
        return [
            f._replace(samples=self._samples(f.metric, f.samples, internal))
            for f in families
        ]

    def _samples(
        self, metric: Metric, samples: list[Sample], internal: tuple[str, ...]
    ) -> list[Sample]:
        if metric.few and not self._few.isdisjoint(("all", metric.group.lower())):
            ends = tuple(
                f'le="{float(bound)}"}}'
                for bound in metric.buckets
                if bound not in metric.few
            )
            samples = [sample for sample in samples if not sample[0].endswith(ends)]
        if internal and metric.labels[:1] == ("function",):
            samples = self._fold(metric, samples, internal)
        return samples

    def _fold(
        self, metric: Metric, samples: list[Sample], internal: tuple[str, ...]
    ) -> list[Sample]:
        if metric.kind not in ("counter", "histogram"):
            # Of a function's latest program there is no sum.
            return [sample for sample in samples if _fold(sample[0], internal) is None]
        values: dict[str, float] = {}
        folded = self._folded
        for series, value in samples:
            name = folded.get(series)
            if name is None:
                name = folded[series] = _fold(series, internal) or series
            values[name] = values.get(name, 0) + value
        return list(values.items())


def reduction_of(settings: Settings, table: FunctionTable) -> Reduction | None:
    """Return what *settings* ask for, `None` if that is nothing."""
    few = words(settings.few_buckets)
    if settings.jax_functions and not few:
        return None
    return Reduction(table, functions=settings.jax_functions, few=few)


def _fold(series: str, internal: tuple[str, ...]) -> str | None:
    """Return *series* as one of all of JAX's functions if it is of one, else `None`."""
    name, _, labels = series.partition("{")
    # A name that another one begins with ends in a quote.
    if not labels.startswith(internal):
        return None
    label = next(text for text in internal if labels.startswith(text))
    folded = labels_text(("function",), (JAX,))
    return f"{name}{{{folded}{labels.removeprefix(label)}"
