"""Queries are right by construction."""

import json
import subprocess
from pathlib import Path

import pytest

from jaxmon.catalog import (
    COMPILE_SECONDS,
    DEVICE_INFO,
    JIT_CACHE_HITS,
    JIT_CALLS,
    LIVE_ARRAYS,
    REQUESTS,
)
from jaxmon.promql import (
    alerts,
    alerts_since,
    counter,
    eq,
    gauge,
    gauge_changes,
    gauge_over,
    gauge_slope,
    histogram,
    ne,
    number,
    ratio,
    re,
    recorded,
    recorded_over,
    records,
    time,
    up,
)
from tests.helpers.processes import require_program


CALLS = counter(JIT_CALLS).rate("5m")
HITS = counter(JIT_CACHE_HITS).rate("5m")

PROCESS = "job, instance, worker"
# Processes that are older than they have been known.
RETURNED = "worker:jaxmon_uptime_seconds:unseen10m_1h"
CASES = {
    str(expression): expected
    for expression, expected in (
        (CALLS, "rate(jaxmon_jit_calls_total[5m])"),
        (
            counter(JIT_CALLS, re("job", "$job"), eq("function", 'a"b')).increase("1h"),
            'increase(jaxmon_jit_calls_total{job=~"$job",function="a\\"b"}[1h])',
        ),
        (CALLS.sum("job"), "sum by (job) (rate(jaxmon_jit_calls_total[5m]))"),
        (
            ratio(HITS.sum(), CALLS.sum()),
            (
                "sum(rate(jaxmon_jit_cache_hits_total[5m])) / "
                "(sum(rate(jaxmon_jit_calls_total[5m])) > 0)"
            ),
        ),
        (
            (number(1) - CALLS / HITS) * 100,
            (
                "(1 - rate(jaxmon_jit_calls_total[5m]) / "
                "rate(jaxmon_jit_cache_hits_total[5m])) * 100"
            ),
        ),
        (
            histogram(COMPILE_SECONDS).quantile(0.95, "function", window="5m"),
            (
                "histogram_quantile(0.95, sum by (le, function) "
                "(rate(jaxmon_compile_seconds_bucket[5m])))"
            ),
        ),
        (
            histogram(COMPILE_SECONDS, eq("phase", "trace")).at_most(1).rate("5m"),
            'rate(jaxmon_compile_seconds_bucket{phase="trace",le=~"1|1\\\\.0"}[5m])',
        ),
        ((time() - gauge(LIVE_ARRAYS)).max(), "max(time() - jaxmon_live_arrays)"),
        (
            (CALLS > 3).and_(HITS > 0, "job").unless(up().equals(0)),
            (
                "(rate(jaxmon_jit_calls_total[5m]) > 3 and on (job) "
                "rate(jaxmon_jit_cache_hits_total[5m]) > 0) unless up == 0"
            ),
        ),
        (
            gauge(LIVE_ARRAYS).count_values("arrays", "job", "instance"),
            'count_values by (job, instance) ("arrays", jaxmon_live_arrays)',
        ),
        (
            gauge(DEVICE_INFO).max("uuid").relabelled("gpu", "uuid").max("gpu"),
            (
                "max by (gpu) (label_replace(max by (uuid) (jaxmon_device_info), "
                '"gpu", "$1", "uuid", "(.+)"))'
            ),
        ),
        (
            gauge(LIVE_ARRAYS).joined(
                gauge(DEVICE_INFO), ("instance", "device"), take=("device_kind",)
            ),
            (
                "jaxmon_live_arrays * on (instance, device) group_left (device_kind) "
                "jaxmon_device_info"
            ),
        ),
        (gauge_over(LIVE_ARRAYS, "max", "1h"), "max_over_time(jaxmon_live_arrays[1h])"),
        (gauge_slope(LIVE_ARRAYS, "30m"), "deriv(jaxmon_live_arrays[30m])"),
        (gauge_changes(LIVE_ARRAYS, "5m"), "changes(jaxmon_live_arrays[5m])"),
        (CALLS.sum("job").bottomk(3), f"bottomk(3, {CALLS.sum('job')})"),
        (
            (time() - alerts_since()).and_(alerts(eq("severity", "page")), "job"),
            'time() - ALERTS_FOR_STATE and on (job) ALERTS{severity="page"}',
        ),
        (recorded("job:x:rate5m", eq("job", "a")), 'job:x:rate5m{job="a"}'),
        (
            recorded_over("sum", recorded("a:b"), 30 * 86400),
            "sum_over_time(a:b[29d23h59m59s999ms])",
        ),
        (recorded_over("min", recorded("a:b"), 1), "min_over_time(a:b[999ms])"),
        (
            (time() - gauge(LIVE_ARRAYS)).above(300).over("sum", "1h", "1m"),
            "sum_over_time((time() - jaxmon_live_arrays > bool 300)[1h:1m])",
        ),
        (
            counter(JIT_CALLS).mishaps("10m").sum("job"),
            (
                "sum by (job) (((jaxmon_jit_calls_total > 0 unless "
                "last_over_time(jaxmon_jit_calls_total[1h] offset 10m) > 0) "
                f"unless on ({PROCESS}) {RETURNED}) or "
                "increase(jaxmon_jit_calls_total[10m]) > 0)"
            ),
        ),
        (
            records([counter(JIT_CALLS).rise("10m")])[RETURNED].expr,
            (
                f"jaxmon_uptime_seconds > 600 unless on ({PROCESS}) "
                "last_over_time(jaxmon_uptime_seconds[1h] offset 10m)"
            ),
        ),
        (
            counter(JIT_CALLS).rise("10m").sum("job"),
            (
                "sum by (job) (((jaxmon_jit_calls_total unless "
                "last_over_time(jaxmon_jit_calls_total[1h] offset 10m)) "
                f"unless on ({PROCESS}) {RETURNED}) or "
                "increase(jaxmon_jit_calls_total[10m]))"
            ),
        ),
        (
            counter(JIT_CALLS).rise("$__rate_interval").sum("job"),
            (
                "sum by (job) ((jaxmon_jit_calls_total unless last_over_time("
                "jaxmon_jit_calls_total[1h] offset $__rate_interval)) or "
                "increase(jaxmon_jit_calls_total[$__rate_interval]))"
            ),
        ),
    )
}


@pytest.mark.parametrize(("text", "expected"), CASES.items(), ids=range(len(CASES)))
def test_expression_reads_as_expected(text: str, expected: str) -> None:
    """Aggregations, windows, precedence and escapes come out as written by hand."""
    assert expected == text


def test_prometheus_accepts_every_expression(tmp_path: Path) -> None:
    """Promtool parses what the helpers build, Grafana's variables filled in."""
    rules = tmp_path / "rules.yaml"
    filled = [
        text.replace("$job", "x").replace("$__rate_interval", "5m") for text in CASES
    ]
    entries = [
        f"- record: a:b:c{n}\n  expr: {json.dumps(text)}"
        for n, text in enumerate(filled)
    ]
    body = "\n".join(f"  {line}" for e in entries for line in e.splitlines())
    rules.write_text(f"groups:\n- name: g\n  rules:\n{body}\n")

    done = subprocess.run(
        [require_program("promtool"), "check", "rules", str(rules)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: gauge(JIT_CALLS), "is a counter, not a gauge or info"),
        (lambda: counter(LIVE_ARRAYS), "is a gauge, not a counter"),
        (lambda: histogram(JIT_CALLS), "is a counter, not a histogram"),
        (lambda: counter(JIT_CALLS, eq("phase", "x")), "has no label 'phase'; it has"),
        (lambda: counter(REQUESTS, ne("start", "hot")), "start='hot' never occurs on"),
        (lambda: histogram(COMPILE_SECONDS).at_most(2), "has no bucket 2; it has 0.1"),
        (lambda: counter(JIT_CALLS).rate("5 minutes"), "is not a window such as"),
        (lambda: histogram(COMPILE_SECONDS).quantile(95), "is not within 0 to 1"),
        (lambda: recorded("up"), "is not a recording rule"),
    ],
)
def test_wrong_query_cannot_be_written(build, message: str) -> None:
    """The wrong kind, label, bucket or window is refused with what is allowed."""
    with pytest.raises(ValueError, match=message):
        build()
