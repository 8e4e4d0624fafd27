"""
Objectives: their indicators, conditions of their alerts, and the queries that follow.

An indicator yields, per combination of some labels, the events and the bad events since
the previous evaluation of the rule; see `jaxmon.promql.events`. Events are requests,
calls or observations, which are counted, or time: then, each evaluation is an event,
and what has stopped reporting is not evaluated, so neither late nor slow.

An alert fires while the error ratio of a long and a short window is above a limit: the
long one keeps a short spike from firing it, the short one ends it soon after the errors
do. Most limits are a multiple of the budget, the burn rate. It follows from the
fraction of the budget that may be spent when the alert fires: 2 % of a 30-day budget
within an hour is a burn rate of 14.4. With little traffic too few events happen in such
windows, so there are also limits on the ratio itself. Of the conditions in
``objectives.yaml``, the first two and the last two are the SRE workbook's; the third is
the operators' rule of thumb, three times the pace for an hour, which ignores bursts of
less than five minutes.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import ClassVar, Literal, Self

from jaxmon import catalog, promql
from jaxmon.catalog import Metric
from jaxmon.host.formats import durations
from jaxmon.limits import Limits
from jaxmon.promql import Counter, Expr, HistogramQuery, Matcher
from jaxmon.promql.events import Evaluation, counted
from jaxmon.promql.expressions import SCRAPED_LABELS
from jaxmon.symptoms.alert import PAGE, TICKET, Severity
from jaxmon.symptoms.recorded import busy
from jaxmon.symptoms.steps import patience


# Pairs of three days need a period of several weeks.
MINIMUM_PERIOD, MAXIMUM_PERIOD = "28d", "90d"

BurnLimit = Literal["budget", "rate", "ratio"]
BURN_LIMITS: tuple[BurnLimit, ...] = ("budget", "rate", "ratio")
"""How a condition states its limit; see `Condition`."""

WINDOW = "5m"
"""The shortest window, of the current burn rate; recorded in any case."""


@dataclass(frozen=True, slots=True)
class Condition:
    """
    One condition, as ``slo.yaml`` states it: both windows must exceed a limit, *for_*
    so long. The *value* is a fraction of the *budget* spent within the long window, a
    burn *rate*, or a *ratio* of bad events.
    """

    long: str
    short: str
    limit: BurnLimit
    value: float
    severity: Severity
    for_: str

    def over(self, period: str) -> Pair:
        """Return what it means for objectives over *period*."""
        factor = None if self.limit == "ratio" else self.value
        if self.limit == "budget":
            share = Decimal(str(self.value)) * durations.seconds(period)
            factor = float(round(share / durations.seconds(self.long), 4))
        return Pair(**asdict(self), factor=factor)


@dataclass(frozen=True, slots=True)
class Pair(Condition):
    """A condition over one period: *factor* is the burn rate, `None` of a ratio."""

    factor: float | None = None

    def least(self, budget: float) -> float:
        """Return the error ratio above which it fires, for this *budget*."""
        return self.value if self.factor is None else round(self.factor * budget, 12)


_RATE_WINDOW = "5m"


@dataclass(frozen=True, slots=True)
class Selector:
    """Series of one metric."""

    metric: Metric
    matchers: tuple[Matcher, ...] = ()

    @property
    def counter(self) -> Counter:
        """What is counted: a counter, or the observations of a histogram."""
        if self.metric.kind == "histogram":
            return self.histogram.count
        return promql.counter(self.metric, *self.matchers)

    @property
    def histogram(self) -> HistogramQuery:
        """The histogram."""
        return promql.histogram(self.metric, *self.matchers)

    @property
    def gauge(self) -> Expr:
        """The current values of a gauge."""
        return promql.gauge(self.metric, *self.matchers)


class Indicator(ABC):
    """Counts events and errors between evaluations, per combination of labels."""

    timed: ClassVar[bool] = False
    """Whether an event is an evaluation, so that events are time."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics that it reads."""
        fields = vars(self).values()
        return tuple(field.metric for field in fields if isinstance(field, Selector))

    @staticmethod
    def counted(counter: Counter, when: Evaluation, what: str) -> Expr:
        """Return how much *counter* rose; *what* it counts, for names."""
        return counted(counter, when, f"{when.group}_{what}")

    @abstractmethod
    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return the number of events."""

    @abstractmethod
    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return the number of bad events of these *events*, 0 if none."""

    def scaled(self, scale: float) -> Self:
        """Return it with its own durations, if it has any, divided by *scale*."""
        del scale
        return self


@dataclass(frozen=True)
class Ratio(Indicator):
    """
    Events that count as errors, given as the *bad* ones or as the *good* ones. Those
    that *left* are observations that are bad if they are above its threshold, and no
    events otherwise.
    """

    total: Selector
    bad: Selector | None = None
    good: Selector | None = None
    left: LatencyIndicator | None = None

    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return the number of events."""
        total = self.counted(self.total.counter, when, "events").sum(*by)
        if self.left is None:
            return total
        total = _recorded(total, when, "finished")
        left = self._abandoned(self.left, by, when)
        return (total + left).or_(total).or_(left)

    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return the number of bad events, 0 if none."""
        if self.bad:
            bad = self.counted(self.bad.counter, when, "bad").sum(*by)
            bad = _recorded(bad, when, "bad").or_(events * 0)
            if self.left is None:
                return bad
            return (bad + self._abandoned(self.left, by, when)).or_(bad)
        assert self.good is not None  # noqa: S101 - the loader takes one of the two
        good = self.counted(self.good.counter, when, "good").sum(*by)
        good = _recorded(good, when, "good")
        return _slower(events, good.or_(events * 0))

    def _abandoned(
        self, left: LatencyIndicator, by: tuple[str, ...], when: Evaluation
    ) -> Expr:
        asked = left.histogram.histogram

        def callers(counter: Counter, what: str) -> Expr:
            number = self.counted(counter, when, what).sum(*by)
            who = f"Callers who {what.replace('_', ' ')}, since the last evaluation."
            return number.record("slo", f"{when.group}_{what}", "delta", who)

        every = callers(asked.count, "left")
        soon = callers(asked.at_most(left.threshold), "left_soon")
        return _recorded(_slower(every, soon), when, "abandoned")


@dataclass(frozen=True)
class LatencyIndicator(Indicator):
    """
    Observations of a histogram above *threshold*, in the unit of the metric. If that is
    no bucket bound, those *between* the bounds next to it count as evenly distributed.
    """

    histogram: Selector
    threshold: float
    between: tuple[float, float] | None = None

    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return the number of observations."""
        return self.counted(self.histogram.counter, when, "events").sum(*by)

    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return the number of observations that took longer."""

        def within(bound: float, what: str) -> Expr:
            buckets = self.histogram.histogram.at_most(bound)
            return _recorded(self.counted(buckets, when, what).sum(*by), when, what)

        if self.between is None:
            return _slower(events, within(self.threshold, "good"))
        low, high = self.between
        share = round((self.threshold - low) / (high - low), 6)
        above = within(high, "below_next") * share
        below = within(low, "below_last") * round(1 - share, 6)
        return _slower(events, below + above)

    @property
    def bounds(self) -> tuple[float, ...]:
        """The bounds of the buckets that it reads."""
        return self.between or (self.threshold,)

    def missing(self, bound: float, window: str, slo: Slo) -> Expr:
        """Return what *slo* counts within *window* without the bucket of a *bound*."""
        histogram, by = self.histogram.histogram, slo.by
        observed = histogram.count.increase(window).sum(*by) > 0
        found = observed.unless(histogram.at_most(bound).total().count(*by)).record(
            *("slo", slo.series),
            f"without_bucket{bound:g}".replace(".", "_"),
            f"Observations within {window} without the bucket {bound:g}.",
        )
        return found.labelled("le", f"{bound:g}")


def _recorded(number: Expr, when: Evaluation, what: str) -> Expr:
    sentence = (
        f"Events that are {what.replace('_', ' the ')}, since the last evaluation."
    )
    return number.record("slo", f"{when.group}_{what}", "delta", sentence)


def _slower(events: Expr, good: Expr) -> Expr:
    # Of metrics of others, one may be scraped with a count that the other still lacks.
    # Without a bucket, nothing is known.
    return promql.call("clamp_min", events - good, 0)


@dataclass(frozen=True)
class Freshness(Indicator):
    """
    Time during which something was older than *within*: *age* is a gauge in seconds.

    A process that compiles, or is busy with an activity such as an evaluation or a
    checkpoint, makes progress: JaxmonTrainingStalled fires if that takes too long. A
    loop with long steps is late after so many *times* their mean.
    """

    age: Selector
    within: str
    times: float = Limits().stalled_step_times
    timed = True

    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return how many series were evaluated."""
        del when
        return self.age.gauge.count(*by)

    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return how many were late."""
        del when
        return self._late().sum(*by).or_(events * 0)

    def scaled(self, scale: float) -> Self:
        """Return it with *within* divided by *scale*."""
        return replace(self, within=durations.scaled(self.within, scale))

    def _late(self) -> Expr:
        age, limit = self.age.gauge, durations.seconds(self.within)
        if self.age.metric.name == catalog.STEP_AGE_SECONDS.name:
            late = age.above(patience(age, limit, self.times))
            return late.unless(busy(limit), *SCRAPED_LABELS)
        if self.age.metric.name.endswith("_timestamp_seconds"):
            age = promql.time() - age
        return age.above(limit)


@dataclass(frozen=True)
class Throughput(Indicator):
    """Time with fewer than *floor* events a second over five minutes."""

    total: Selector
    floor: float
    timed = True

    def events(self, by: tuple[str, ...], when: Evaluation) -> Expr:
        """Return 1 for each combination of labels that has the counter."""
        del when
        return self._rate(by).above(-1)

    def errors(self, by: tuple[str, ...], when: Evaluation, events: Expr) -> Expr:
        """Return 1 for each whose rate is below the floor."""
        del when, events
        return self._rate(by).below(self.floor)

    def _rate(self, by: tuple[str, ...]) -> Expr:
        return self.total.counter.rate(_RATE_WINDOW).sum(*by)


EVENTS, ERRORS = "slo:events:delta", "slo:errors:delta"
"""Recorded number of events, and of bad ones, since the previous evaluation."""

RATIO = "slo:sli_error:ratio_rate"
"""Recorded error ratio, followed by its nominal window (``5m``, ``30d``)."""

CURRENT_BURN_RATE = "slo:current_burn_rate:ratio"
PERIOD_BURN_RATE = "slo:period_burn_rate:ratio"
BUDGET_REMAINING = "slo:period_error_budget_remaining:ratio"
OBJECTIVE = "slo:objective:ratio"
BUDGET = "slo:error_budget:ratio"
PERIOD_DAYS = "slo:time_period:days"


@dataclass(frozen=True, slots=True)
class Slo:
    """
    One objective.

    Events of an *indicator* are counted for each combination of the labels *by*,
    ``job`` first; *objective* is the fraction that must be good over the *window*, a
    period. A fast burn pages if *page*. With *deploy_noise*, deployments burn the
    budget, and tickets are then inhibited. Below *minimum_events* in the long window no
    burn rate alerts, below *minimum_errors* nothing. *service* is Sloth's label, which
    distinguishes the files of several teams.
    """

    name: str
    title: str
    description: str
    owner: str
    objective: float
    window: str
    service: str
    by: tuple[str, ...]
    indicator: Indicator
    page: bool = True
    deploy_noise: bool = False
    minimum_events: float = 1
    minimum_errors: float = 1
    policy: tuple[Condition, ...] = ()

    @property
    def budget(self) -> float:
        """The fraction of events that may be bad; 0.001 for an objective of 0.999."""
        return float(1 - Decimal(str(self.objective)))

    @property
    def alert(self) -> str:
        """The name of its burn-rate alert, which is that of its runbook."""
        words = "".join(word.capitalize() for word in self.name.split("-"))
        return f"Jaxmon{words}BudgetBurn"

    @property
    def threshold_seconds(self) -> float | None:
        """Maximum latency of an event, `None` for objectives not about latency."""
        if isinstance(self.indicator, LatencyIndicator):
            return self.indicator.threshold
        return None

    @property
    def labels(self) -> dict[str, str]:
        """The labels of its recorded series; Sloth's names."""
        return {
            "sloth_id": f"{self.service}-{self.name}",
            "sloth_service": self.service,
            "sloth_slo": self.name,
        }

    @property
    def series(self) -> str:
        """What is between the colons of what is recorded for it."""
        return re.sub(r"\W", "_", self.labels["sloth_id"])

    def enough(self, pair: Pair) -> Expr:
        """Return the error ratio over the long window of *pair*, of enough errors."""
        window, least = pair.long, f"at least {self.minimum_errors:g} errors"
        ratio = self.recording(window).max(*self.by)
        errors = self.increase(ERRORS, window).max(*self.by)
        events = self.increase(EVENTS, window).max(*self.by)
        found = ratio.and_(errors >= self.minimum_errors)
        name = f"ratio{window}_of_few"
        if pair.factor is not None:
            found = found.and_(events >= self.minimum_events)
            name = f"ratio{window}"
            least = f"{self.minimum_events:g} events and {least}"
        sentence = f"Error ratio over {window}, if there were {least}."
        return found.record("slo", self.series, name, sentence)

    def short(self, pair: Pair) -> Expr:
        """Return the error ratio over the short window of *pair*, however few."""
        ratio = self.recording(pair.short).max(*self.by) > 0
        sentence = f"Error ratio over {pair.short}, if there were errors."
        return ratio.record("slo", self.series, f"ratio{pair.short}_now", sentence)

    def burning(self, pair: Pair, held: int) -> Expr:
        """Return the error ratio of *pair*, if the short one was high for *held* s."""
        least = pair.least(self.budget)
        short, lasting = self.short(pair) > least, ""
        if held:
            # Without errors, what is recorded for alerts is absent, not 0.
            raw = promql.recorded_over("min", self.recording(pair.short), held)
            short, lasting = raw.max(*self.by) > least, f" for {durations.text(held)}"
        pace = "_of_few" if pair.factor is None else f"_{pair.factor:g}"
        return (
            (self.enough(pair) > least)
            .and_(short)
            .record(
                *("slo", self.series),
                f"burning{pair.long}{pace.replace('.', '_')}",
                f"Error ratio over {pair.long}, if it is above {least:g} and that over "
                f"{pair.short} was{lasting}.",
            )
        )

    def severity(self, pair: Pair) -> Severity:
        """Return the severity of *pair*: a ticket at most, unless it pages."""
        return pair.severity if self.page or pair.severity != PAGE else TICKET

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of windows that its alerts compare."""
        found = tuple(condition.over(self.window) for condition in self.policy)
        if self.page and not self.indicator.timed:
            return found
        # What never pages needs no urgency, and what is time has no little traffic.
        return tuple(pair for pair in found if pair.factor is not None)

    @property
    def windows(self) -> tuple[str, ...]:
        """Every window that its rules record, the shortest first, the period last."""
        used = {window for pair in self.policy for window in (pair.long, pair.short)}
        return tuple(sorted({WINDOW, *used, self.window}, key=durations.seconds))

    def events(self, when: Evaluation) -> Expr:
        """Return the number of events since the previous evaluation."""
        return self.indicator.events(self.by, when)

    def errors(self, when: Evaluation) -> Expr:
        """Return the number of bad events of those recorded last, 0 if none."""
        return self.indicator.errors(self.by, when, self.recorded(EVENTS).sum(*self.by))

    def counts(self, name: str, window: str) -> Expr:
        """Return what `EVENTS` or `ERRORS` add up to over the actual *window*."""
        series = self.recorded(name)
        # Across the shards of a sharded Prometheus, too.
        return promql.recorded_over("sum", series, durations.seconds(window)).sum(
            *self.by
        )

    def recorded(self, name: str, *matchers: Matcher) -> Expr:
        """Return the series that the rule *name* records for this objective."""
        of_slo = promql.eq("sloth_id", self.labels["sloth_id"])
        labels = (*self.by, *self.labels, "sloth_window")
        return promql.recorded(name, of_slo, *matchers, labels=labels)

    def recording(self, window: str, *matchers: Matcher) -> Expr:
        """Return the recorded error ratio over *window*, one of the rules' windows."""
        return self.recorded(f"{RATIO}{window}", *matchers)

    def increase(self, name: str, window: str, *matchers: Matcher) -> Expr:
        """Return the recorded sum of `EVENTS` or `ERRORS` over a nominal *window*."""
        return self.recorded(increase(name, window), *matchers)

    def scaled(self, scale: float) -> Self:
        """Return it with the durations of its indicator divided by *scale*."""
        return replace(self, indicator=self.indicator.scaled(scale))


def increase(name: str, window: str) -> str:
    """Return the name of the sum of `EVENTS` or `ERRORS` over a nominal *window*."""
    return f"{name.removesuffix('delta')}increase{window}"
