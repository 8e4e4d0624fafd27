"""Objectives: what the file may say, what is refused and how, which queries follow."""

import re

import pytest

from jaxmon.errors import JaxmonError, SloError
from jaxmon.limits import LIMITS, Limits
from jaxmon.promql import records
from jaxmon.promql.events import Evaluation
from jaxmon_alerts import slo


VALID = """\
slos:
  - name: request-error
    title: Requests succeed
    description: Most requests succeed.
    objective: 99.9%
    indicator:
      bad: jaxmon_requests_total{outcome="error"}
      total: jaxmon_requests_total
"""


@pytest.fixture
def load(tmp_path):
    """Return a function that loads text as a file named slo.yaml."""

    def load_text(text):
        path = tmp_path / "slo.yaml"
        path.write_text(text)
        return slo.load(path)

    return load_text


def changed(old, new):
    """Return the valid file with *old* replaced by *new*."""
    assert old in VALID
    return VALID.replace(old, new)


LATENCY = """indicator:
      histogram: jaxmon_request_seconds{start="warm"}
      above: 0.4
"""


RATIO = VALID[VALID.index("indicator:") :]


REFUSED = {
    "empty file": ("", 1, "empty file; the key 'slos' is required"),
    "not YAML": ("slos: [\n", 2, "not YAML"),
    "a list at the top": ("- 1\n", 1, "expected a mapping, found a list"),
    "no SLOs": ("service: x\n", 1, "key 'slos' is missing"),
    "an empty list of SLOs": ("slos: []\n", 1, "no SLOs; at least one is required"),
    "unknown key at the top": (
        VALID + "slo: 1\n",
        9,
        "unknown key 'slo'; allowed are slos, service, owner, period, site, metrics",
    ),
    "unknown key of an SLO": (
        changed("title:", "titel:"),
        3,
        "unknown key 'titel'; allowed are name, title, description",
    ),
    "missing key of an SLO": (
        changed("    title: Requests succeed\n", ""),
        2,
        "key 'title' is missing",
    ),
    "key twice": (
        changed("    objective: 99.9%\n", "    objective: 99.9%\n" * 2),
        6,
        "duplicate key 'objective'",
    ),
    "name with capitals": (
        changed("request-error", "RequestError"),
        2,
        "'RequestError' is not a name in kebab case, such as warm-latency",
    ),
    "name twice": (
        VALID + VALID.removeprefix("slos:\n"),
        9,
        "duplicate SLO name 'request-error'",
    ),
    "title that is nothing": (
        changed("title: Requests succeed", "title:"),
        3,
        "expected a string, found nothing",
    ),
    "title that is a list": (
        changed("title: Requests succeed", "title: [a]"),
        3,
        "expected a string, found a list",
    ),
    "objective of everything": (
        changed("99.9%", "100%"),
        5,
        "expected a ratio such as 99.9% or 0.999, found '100%'",
    ),
    "objective of one": (
        changed("99.9%", "1"),
        5,
        "expected a ratio such as 99.9% or 0.999, found '1'",
    ),
    "objective below nothing": (
        changed("99.9%", "-1"),
        5,
        "expected a ratio such as 99.9% or 0.999, found '-1'",
    ),
    "objective in words": (changed("99.9%", "most"), 5, "0.999, found 'most'"),
    "objective that is no number": (changed("99.9%", ".nan"), 5, "0.999, found '.nan'"),
    "objective that no outage can miss fast enough": (
        changed("99.9%", "93%"),
        5,
        (
            "an objective of 0.93 over 30d can never alert: a burn rate of 14.4 "
            "(1h window) would need an error ratio of 100.8%; use an objective "
            "above 93.06 %"
        ),
    ),
    "objective that a longer period makes unreachable": (
        "period: 90d\n" + changed("99.9%", "97%"),
        6,
        "a burn rate of 43.2",
    ),
    "period of a week": (
        VALID + "period: 7d\n",
        9,
        "found 7d, expected a period from 28d to 90d",
    ),
    "period in words": (
        VALID + "period: a month\n",
        9,
        "'a month' is not a duration such as 30s, 5m, 6h or 30d",
    ),
    "no indicator": (
        changed(RATIO, "indicator: {}\n"),
        6,
        (
            "found the keys (none); expected bad and total; bad and left and total; "
            "good and total; above "
            "and histogram; age and within; timestamp and within; at_least and rate"
        ),
    ),
    "half an indicator": (
        changed('      bad: jaxmon_requests_total{outcome="error"}\n', ""),
        7,
        "found the keys total; expected",
    ),
    "unknown metric": (
        changed("total: jaxmon_requests_total", "total: jaxmon_request_total"),
        8,
        (
            "the catalogue has no metric 'jaxmon_request_total'; did you mean "
            "jaxmon_requests_total,"
        ),
    ),
    "metric that is like no other": (
        changed("total: jaxmon_requests_total", "total: http_5xx"),
        8,
        "the catalogue has no metric 'http_5xx'; see docs/metrics.md",
    ),
    "metric of another kind": (
        changed("total: jaxmon_requests_total", "total: jaxmon_live_arrays"),
        8,
        "jaxmon_live_arrays is a gauge; expected a counter or histogram",
    ),
    "not a selector": (
        changed("total: jaxmon_requests_total", "total: rate(x[5m])"),
        8,
        "'rate(x[5m])' is not a selector such as name{label=\"value\"}",
    ),
    "matchers without quotes": (
        changed('outcome="error"', "outcome=error"),
        7,
        "'outcome=error' is not a list of matchers",
    ),
    "unknown label": (
        changed('outcome="error"', 'status="error"'),
        7,
        (
            "jaxmon_requests_total has no label 'status'; it has route, outcome, "
            "start, cluster, namespace, pod, job, instance, worker"
        ),
    ),
    "value that never comes": (
        changed('outcome="error"', 'outcome="failure"'),
        7,
        (
            "outcome='failure' never occurs on jaxmon_requests_total; values are "
            "success, client_error, error"
        ),
    ),
    "broken expression": (
        changed('outcome="error"', 'outcome=~"("'),
        7,
        "'(' is not a regular expression",
    ),
    "backslash that PromQL does not take": (
        changed('outcome="error"', r'outcome=~"\d"'),
        7,
        r"backslashes of regular expressions must be doubled: \\d",
    ),
    "bound that is none": (
        changed(RATIO, LATENCY),
        8,
        (
            "jaxmon_request_seconds has no bucket bound 0.4; the nearest are 0.3 and "
            "0.5: use one of them, or set interpolate: true"
        ),
    ),
    "bound in words": (
        changed(RATIO, LATENCY.replace("0.4", "200ms")),
        8,
        "expected a number above 0, found '200ms'",
    ),
    "label that the metrics do not share": (
        changed("    indicator", "    by: [job, function]\n    indicator"),
        6,
        (
            "found 'function'; the metrics share job, instance, worker, route, "
            "outcome, start"
        ),
    ),
    "labels without job": (
        changed("    indicator", "    by: [route]\n    indicator"),
        6,
        "'job' is required; alerts are routed and inhibited by it",
    ),
    "page that is no truth value": (
        changed("    indicator", "    page: maybe\n    indicator"),
        6,
        "expected true or false, found 'maybe'",
    ),
    "minimum of nothing": (
        changed("    indicator", "    minimum_events: 0\n    indicator"),
        6,
        "expected a number above 0, found '0'",
    ),
    "unknown threshold": (
        VALID + "limits:\n  recompile: 3\n",
        10,
        "unknown key 'recompile'; allowed are recompiles, ",
    ),
    "threshold of another form": (
        VALID + "limits:\n  recompiles: 3\n  device_memory: 90\n  stuck_after: soon\n",
        12,
        "'soon' is not a duration",
    ),
    "unknown severity": (
        VALID + "burn:\n- {long: 1h, short: 5m, rate: 3, severity: critical}\n",
        10,
        "found 'critical'; allowed are page, ticket, info",
    ),
}


@pytest.mark.parametrize(
    ("text", "line", "problem"), REFUSED.values(), ids=REFUSED.keys()
)
def test_what_cannot_be_used_is_refused(text, line, problem, load, tmp_path):
    """The message names file and line, what was found, and what is allowed."""
    with pytest.raises(SloError, match=re.escape(problem)) as caught:
        load(text)

    assert str(caught.value).startswith(f"{tmp_path}/slo.yaml:{line}: ")


@pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "binary"])
def test_a_file_that_cannot_be_read_is_named(content, tmp_path):
    """A missing file, and one that is no text, are refused like a wrong line."""
    path = tmp_path / "slo.yaml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(JaxmonError, match=re.escape(f"{path}: cannot be read")) as told:
        slo.load(path)

    assert str(told.value).count(str(path)) == 1


def test_a_file_needs_little(load):
    """Owner, period, service, labels and minimums have defaults."""
    [only] = load(VALID)

    assert only.owner == "on-call"
    assert only.window == "30d"
    assert only.service == "jaxmon"
    assert only.by == ("job",)
    assert only.page
    assert (only.minimum_events, only.minimum_errors) == (100, 5)


@pytest.mark.parametrize("written", ["99.9%", "99.9 %", "99.9", "0.999"])
def test_objectives_may_be_written_in_several_ways(written, load):
    """Per cent and share mean the same, exactly."""
    [only] = load(changed("99.9%", written))

    assert only.objective == 0.999
    assert only.budget == 0.001


def test_windows_are_those_of_the_shipped_file_unless_a_file_has_its_own(load):
    """What `objectives.yaml` shows is what holds without it."""
    assert slo.load().slos[0].policy == load(VALID).slos[0].policy != ()


def test_an_slo_may_differ_from_the_file(load):
    """Owner and period of one SLO win over those of the file."""
    own = "    owner: search\n    period: 28d\n    indicator"
    [only] = load("owner: all\nperiod: 30d\n" + changed("    indicator", own))

    assert (only.owner, only.window) == ("search", "28d")


def test_selectors_may_have_several_matchers(load):
    """Operators, escapes, spaces, a trailing comma, and all that Prometheus reads."""
    wanted = '{ outcome != "success" , route=~"/a|/\\\\pL+[[:alpha:]]", job="x",}'
    [only] = load(changed('{outcome="error"}', wanted))

    expected = (
        'jaxmon_requests_total{outcome!="success",route=~"/a|/\\\\pL+[[:alpha:]]",job="x"}'
        "[30s] offset 15s"
    )
    counted = records([only.errors(Evaluation())]).values()
    assert expected in " ".join(str(series.expr) for series in counted)


def test_defaults_promise_what_the_field_guide_asks():
    """The shipped file has these objectives, with these targets."""
    found = {one.name: one.objective for one in slo.load()}

    assert found == {
        "request-error": 0.999,
        "warm-latency": 0.95,
        "cold-start": 0.99,
        "step-freshness": 0.99,
    }
    seconds = {of.name: of.threshold_seconds for of in slo.load()}
    assert (seconds["warm-latency"], seconds["cold-start"]) == (0.2, None)


def test_the_example_of_the_default_file_is_an_objective(load):
    """What was one until alerts were merged: without its comment signs."""
    lines = slo.default().splitlines()
    start = lines.index("  # - name: cache-hit-rate")
    example = [line.replace("  # ", "  ") for line in lines[start : start + 9]]
    (found,) = load("\n".join(["slos:", *example]))

    assert (found.alert, found.budget) == ("JaxmonCacheHitRateBudgetBurn", 0.05)


def test_the_default_file_lists_every_limit(load):
    """Each limit is in the file, with its meaning above it and its default."""
    text = slo.default()

    assert load(text).limits == slo.load().limits == Limits()
    section = text[text.index("\nlimits:\n") :]
    written = re.findall(r"((?:  # .*\n)+)  (\w+): ", section)
    assert {
        name: " ".join(text.replace("# ", "").split()) for text, name in written
    } == {one.name: one.meaning for one in LIMITS.values()}


def test_screens_judge_failed_requests_by_the_objective_on_them(load):
    """Three budgets page, and the budget is a ticket, unless limits are set."""
    whole = slo.default().replace("objective: 99.9%", "objective: 99%")
    assert load(whole).limits == Limits(failed_share=0.03, budget_share=0.01)
    text = whole.partition("\nlimits:\n")[0]
    assert load(text).limits == Limits(failed_share=0.03, budget_share=0.01)
    own = f"{text}\nlimits: {{failed_share: 5%}}"
    assert load(own).limits == Limits(failed_share=0.05, budget_share=0.01)


def test_limits_can_be_set(load):
    """Counts, durations and shares arrive; the rest keeps its default."""
    text = "limits:\n  recompiles: 5\n  stuck_after: 1h30m\n  device_memory: 95%\n"
    limits = load(VALID + text).limits

    assert limits == Limits(recompiles=5, stuck_after="90m", device_memory=0.95)


def test_the_steps_before_a_loop_is_late_are_those_of_its_alert(load):
    """An objective on the age of steps has the limit of ``slo.yaml``, too."""
    text = slo.default().replace("stalled_step_times: 3", "stalled_step_times: 7")
    late = load(text).get("step-freshness").indicator
    events = late.events(("job",), Evaluation())

    assert " * 7" in str(late.errors(("job",), Evaluation(), events))
