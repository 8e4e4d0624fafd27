"""
Alerts that read recorded series see what they would if these were written inline, also
of processes that are born, restart, and are not scraped for a while.

Each alert has cases of its own; these are the worlds: as they are, so that every alert
is reached, and with such troubles at random.
"""

import random
import re

import pytest

from jaxmon.promql import records
from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from tests.alerts.promtool import evaluate, needed, shipped
from tests.alerts.test_causes import CASES
from tests.helpers.processes import some


TERM = re.compile(r"(_|stale|-?[\d.e]+)(?:([+-][\d.e]+))?(?:x(\d+))?")
COUNTER = re.compile(
    r"\w+_(total|sum|count|bucket)\{|jaxmon_(uptime|counting)_seconds\{"
)
EVERY = {f"{one.name}/{one.symptom}/{one.severity}": one for one in alerts.all_alerts()}


def inlined(expr):
    """Return *expr* with each recorded series that is not read over a range inline."""
    identity = slo.load().site.identity
    text = str(expr.at(identity))
    known = {
        name: str(record.expr.at(identity)) for name, record in records([expr]).items()
    }
    plain = "|".join(sorted(map(re.escape, known), key=len, reverse=True))
    name = re.compile(rf"(?<![\w:])(?:{plain})(?![\w:\[{{]| offset)")
    while known and name.search(text):
        text = name.sub(lambda found: f"({known[found[0]]})", text)
    return text


def samples(values):
    """Return what promtool's notation stands for, one string for each sample."""
    found = []
    for term in values.split():
        matched = TERM.fullmatch(term)
        assert matched, term
        first, slope, times = matched.groups()
        count = int(times or 0)
        if first in ("_", "stale"):
            found += [first] * max(count, 1)
        else:
            steps = (float(first) + n * float(slope or 0) for n in range(count + 1))
            found += [f"{value:.12g}" for value in steps]
    return found


def troubled(series, seed):
    """Return *series* with a birth, a restart and a gap of each instance, at random."""
    chance = random.Random(seed)  # noqa: S311 - data, no secret
    length = max(len(samples(values)) for values in series.values())
    found, plans = {}, {}
    for name, values in series.items():
        instance = (re.findall(r'instance="([^"]*)"', name) or [name])[0]
        if instance not in plans:
            plans[instance] = (
                chance.choice((0, 0, chance.randrange(length))),
                chance.choice((length, chance.randrange(length))),
                chance.randrange(length),
                chance.choice((0, 1, 3, 7)),
            )
        birth, restart, gap, lost = plans[instance]
        row = samples(values)
        if COUNTER.match(name) and restart < len(row):
            at = row[restart]
            base = 0.0 if at in ("_", "stale") else float(at)
            row[restart:] = [
                it if it in ("_", "stale") else f"{max(float(it) - base, 0):.12g}"
                for it in row[restart:]
            ]
        row[:birth] = ["_"] * len(row[:birth])
        row[gap : gap + lost] = ["stale", *["_"] * lost][: len(row[gap : gap + lost])]
        found[name] = " ".join(row)
    return found, length


@pytest.mark.parametrize("name", some(CASES, 16))
def test_recorded_is_inline(name, tmp_path):
    """The same series with the same values, when the alert fires and otherwise."""
    case = CASES[name]
    title, *symptom = case.alert.split("/")
    found = [
        one
        for one in EVERY.values()
        if one.name == title and (not symptom or one.symptom == symptom[0])
    ]
    groups = needed((title,), shipped(), *symptom)
    identity = slo.load().site.identity
    for seed in range(3):
        series, length = troubled(case.series, seed)
        if not seed:
            series = case.series
        tests = []
        moments = [f"{at}m" for at in range(2, min(length, 120), 3)]
        for alert in found:
            recorded, inline = str(alert.expr.at(identity)), inlined(alert.expr)
            tests += [
                {"expr": expr, "eval_time": at, "exp_samples": []}
                for expr in (
                    f"({recorded}) unless (({recorded}) == ({inline}))",
                    f"({inline}) unless (({inline}) == ({recorded}))",
                )
                for at in (*moments, *case.firing)
            ]
        evaluate(tmp_path, groups, series, promql_expr_test=tests)


def test_most_alerts_read_what_is_recorded():
    """Of those, something is inlined."""
    found = [one for one in EVERY.values() if inlined(one.expr) != str(one.expr)]
    assert len(found) > len(EVERY) / 2
