"""The two text formats, and which client gets which."""

import math
import subprocess
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from jaxmon.catalog import METRICS, Metric
from jaxmon.exposition.encode import (
    OPENMETRICS,
    TEXT,
    Format,
    encode,
    negotiate,
)
from jaxmon.exposition.families import Family, Histogram, gauge, series
from tests.helpers.processes import each, require_program


CALLS = Metric("t_calls_total", "counter", "Calls.", labels=("function",))
SECONDS = Metric("t_seconds_total", "counter", "Time.", unit="seconds")
BUILD = Metric("t_build_info", "info", "Version.", labels=("version",))
UP = Metric("t_up", "gauge", 'Is "up" \\ not\ndown.')


def family_of(metric: Metric) -> Family:
    """Return a family with two series of *metric*, labels hard to escape."""
    labels = [
        tuple(f'{name} "1"' for name in metric.labels),
        tuple("2\\\n" for _ in metric.labels),
    ][: 2 if metric.labels else 1]
    if metric.kind == "histogram":
        samples = []
        for one in labels:
            histogram = Histogram(metric, *one)
            for value in (0.0005, 0.5, 1e4):
                histogram.observe(value)
            samples += histogram.samples()
        return Family(metric, samples)
    value = 1 if metric.kind == "info" else 12.5
    return Family(metric, [(series(metric, *one), value) for one in labels])


def page(families: Iterable[Family], fmt: Format = TEXT) -> list[str]:
    """Return the lines of the page of *families*."""
    return encode(families, fmt).decode().splitlines()


def test_text_page_shows_help_type_and_samples() -> None:
    """The whole of a small page in text 0.0.4; an info metric is a gauge there."""
    families = [gauge(CALLS, 3, "step"), gauge(BUILD, 1, "1.0"), gauge(UP, 1)]

    assert page(families) == [
        "# HELP t_calls_total Calls.",
        "# TYPE t_calls_total counter",
        't_calls_total{function="step"} 3',
        "# HELP t_build_info Version.",
        "# TYPE t_build_info gauge",
        't_build_info{version="1.0"} 1',
        '# HELP t_up Is "up" \\\\ not\\ndown.',
        "# TYPE t_up gauge",
        "t_up 1",
    ]


def test_openmetrics_page_names_families_without_suffix() -> None:
    """The whole of a small page in OpenMetrics: units, suffixes, escapes, the end."""
    families = [gauge(SECONDS, 0.5), gauge(BUILD, 1, "1.0"), gauge(UP, 1)]

    assert page(families, OPENMETRICS) == [
        "# TYPE t_seconds counter",
        "# UNIT t_seconds seconds",
        "# HELP t_seconds Time.",
        "t_seconds_total 0.5",
        "# TYPE t_build info",
        "# HELP t_build Version.",
        't_build_info{version="1.0"} 1',
        "# TYPE t_up gauge",
        '# HELP t_up Is \\"up\\" \\\\ not\\ndown.',
        "t_up 1",
        "# EOF",
    ]


def test_foreign_kinds_are_unknown_to_openmetrics() -> None:
    """What OpenMetrics would refuse, a counter by another name, is relayed as it is."""
    families = [
        Family(Metric("t_odd", "counter", "Odd."), [("t_odd", 1)]),
        Family(Metric("t_plain", "untyped", "Plain."), [("t_plain", 1)]),
    ]
    text = encode(families, OPENMETRICS).decode()

    parsed = openmetrics.text_string_to_metric_families(text)
    kinds = {family.name: family.type for family in parsed}
    assert kinds == {"t_odd": "unknown", "t_plain": "unknown"}
    assert "# TYPE t_odd counter" in page(families)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (10**15, "1000000000000000"),
        (0.1, "0.1"),
        (1e300, "1e+300"),
        (-2.5, "-2.5"),
        (True, "1"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
    ],
)
def test_values_are_exact(value: float, text: str) -> None:
    """Integers stay integers, floats keep every digit, infinity has a sign."""
    assert page([gauge(UP, value)])[-1] == f"t_up {text}"


def test_numpy_values_are_plain_numbers() -> None:
    """A NumPy scalar does not show its type on the page."""
    numpy = pytest.importorskip("numpy")
    values = [numpy.float32(0.5), numpy.float64(0.1), numpy.int64(3)]

    lines = page([Family(UP, [("t_up", value) for value in values])])

    assert lines[2:] == ["t_up 0.5", "t_up 0.1", "t_up 3"]


@pytest.mark.parametrize("fmt", Format)
def test_nan_and_empty_families_are_left_out(fmt: Format) -> None:
    """NaN never; neither a header that no sample follows."""
    families = [Family(UP, []), gauge(CALLS, math.nan, "a"), gauge(SECONDS, 1)]

    assert page(families, fmt) == page([gauge(SECONDS, 1)], fmt)


def test_families_of_one_name_become_one_block() -> None:
    """A name has one header and its samples together, wherever they came from."""
    families = [gauge(CALLS, 1, "a"), gauge(UP, 1), gauge(CALLS, 2, "b")]

    assert page(families) == page(
        [Family(CALLS, [*families[0].samples, *families[2].samples]), gauge(UP, 1)]
    )


def test_a_family_of_another_kind_does_not_spoil_the_block() -> None:
    """A name has one kind on a page: the first."""
    other = Family(Metric("t_up", "counter", "Else."), [("t_up", 5)])

    assert page([gauge(UP, 1), other]) == page([gauge(UP, 1)])


@pytest.mark.parametrize("fmt", Format)
def test_a_family_that_is_no_number_costs_itself(fmt: Format) -> None:
    """It is left out and reported to a listener; without one, the mistake is raised."""
    told: list[tuple[Metric, Exception]] = []
    bad: list[Any] = ["many", None, [1]]
    families = [
        gauge(UP, 1),
        *(gauge(CALLS, value, "f") for value in bad),
        gauge(SECONDS, 2),
    ]
    text = encode(families, fmt, failed=lambda *one: told.append(one)).decode()

    assert "t_up 1\n" in text
    assert "t_seconds_total 2\n" in text
    assert "t_calls" not in text
    assert [metric for metric, _ in told] == [CALLS] * len(bad)
    with pytest.raises(ValueError, match="many"):
        encode(families, fmt)


def test_text_that_is_not_unicode_is_replaced() -> None:
    """A lone surrogate in a label costs its character, not the page."""
    assert rb'{function="\\udcff"} 1' in encode([gauge(CALLS, 1, "\udcff")])


@each({metric.name: (metric,) for metric in METRICS})
def test_strict_parsers_read_every_metric_of_the_catalogue(metric: Metric) -> None:
    """prometheus_client's parsers give back each sample, label, kind and unit."""
    family = family_of(metric)
    (text,) = text_string_to_metric_families(encode([family]).decode())
    (strict,) = openmetrics.text_string_to_metric_families(
        encode([family], OPENMETRICS).decode()
    )

    assert len(text.samples) == len(strict.samples) == len(family.samples)
    assert (strict.type, strict.unit) == (metric.kind, metric.unit)
    assert strict.documentation == metric.help
    for sample in strict.samples:
        own = {key: sample.labels[key] for key in metric.labels}
        assert list(own.values()) in (
            [f'{name} "1"' for name in metric.labels],
            ["2\\\n" for _ in metric.labels],
        )


def test_promtool_finds_nothing_to_say_about_the_catalogue() -> None:
    """Names, suffixes, units and help texts follow the Prometheus conventions."""
    done = subprocess.run(
        [require_program("promtool"), "check", "metrics"],
        input=encode(map(family_of, METRICS)),
        capture_output=True,
        timeout=240,
        check=False,
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,"
    "application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
PROMETHEUS_3_TEXT = (
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "text/plain;version=0.0.4;q=0.4,"
    "application/openmetrics-text;version=1.0.0;q=0.3,*/*;q=0.1"
)
PROTOBUF = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;"
    "encoding=delimited;q=0.7,"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "fmt"),
    [
        (PROMETHEUS_2, OPENMETRICS),
        (PROMETHEUS_3, OPENMETRICS),
        (PROTOBUF + PROMETHEUS_3, OPENMETRICS),
        (PROMETHEUS_3_TEXT, TEXT),
        (BROWSER, TEXT),
        ("", TEXT),
        ("*/*", TEXT),
        ("application/openmetrics-text", OPENMETRICS),
        ('Application/OpenMetrics-Text; Version="1.0.0" ; Q=1', OPENMETRICS),
        ("application/openmetrics-text;version=0.0.1", TEXT),
        ("application/openmetrics-text;version=2.0.0", TEXT),
        ("application/openmetrics-text;q=0", TEXT),
        ("application/openmetrics-text;q=zero", TEXT),
        ("application/openmetrics-text;q=nan", TEXT),
        ("application/openmetrics-text;q=0.3,text/plain;q=0.4", TEXT),
        ("text/plain,application/openmetrics-text", TEXT),
        ("application/openmetrics-text,text/plain", OPENMETRICS),
        ("application/json", TEXT),
        (";;;,,,=;q", TEXT),
    ],
)
def test_negotiation(accept: str, fmt: Format) -> None:
    """OpenMetrics goes to who asks for 1.0.0 and likes it best; text to the rest."""
    assert negotiate(accept) is fmt


def test_catalogue_names_do_not_collide_in_openmetrics() -> None:
    """Without their suffixes the families still have different names."""
    lines = page(map(family_of, METRICS), OPENMETRICS)
    names = [line.split()[2] for line in lines if line.startswith("# TYPE")]

    assert sorted(names) == sorted(set(names))
    for name, suffix in product(names, ("_total", "_info", "_bucket", "_count")):
        assert name + suffix not in names
