"""
Panels about what is rare show the first of its kind, with which its series begin: the
compile of a function, the request that waited for it, an error.
"""

import pytest

from jaxmon import catalog
from tests.alerts.promtool import evaluate, shipped
from tests.helpers.dashboards import expression


PROCESS = 'job="web",instance="a:1",worker="0"'
OWN = f'{PROCESS},function="step"'
PHASE = f'{{{OWN},phase="backend_compile"}}'
SECONDS = catalog.COMPILE_SECONDS.name
BORN = "_x10 {}+0x50"
COLD = (
    f'{catalog.REQUEST_SECONDS.name}_bucket{{job="web",route="/gen",outcome="success",'
    'start="cold"'
)
SERIES = {
    f"{catalog.JIT_CALLS.name}{{{OWN}}}": BORN.format(1),
    f'{catalog.REQUESTS.name}{{job="web",route="/gen",start="cold"}}': BORN.format(1),
    f'{catalog.ERRORS.name}{{{OWN},kind="oom"}}': BORN.format(1),
    f'{catalog.PERSISTENT_CACHE_REQUESTS.name}{{{PROCESS},result="hit"}}': BORN.format(
        9
    ),
    f"{catalog.PERSISTENT_CACHE_WRITES.name}{{{PROCESS}}}": BORN.format(2),
    f'{catalog.NONFINITE.name}{{{PROCESS},name="loss"}}': BORN.format(1),
    f'{catalog.INTERNAL_ERRORS.name}{{{PROCESS},site="calls"}}': BORN.format(1),
    f'{COLD},le="50.0"}}': BORN.format(0),
    f'{COLD},le="100.0"}}': BORN.format(1),
    f'{COLD},le="+Inf"}}': BORN.format(1),
    f"{SECONDS}_sum{PHASE}": BORN.format(40),
    f"{SECONDS}_count{PHASE}": BORN.format(1),
    f'{catalog.COMPILES.name}{{{OWN},outcome="compiled"}}': BORN.format(1),
    **{
        f'{SECONDS}_bucket{PHASE[:-1]},le="{le}"}}': BORN.format(value)
        for le, value in (("30.0", 0), ("60.0", 1), ("+Inf", 1))
    },
}


SHOWN = ("jaxmon-events", "jaxmon-overviews")


def groups(*names: str):
    """Return the rules that record events, and what boards on services show."""
    every = (*shipped().recording, *shipped().alerting)
    return [one for one in every if one["name"].startswith(names)]


@pytest.mark.parametrize(
    ("title", "column", "labels", "value"),
    [
        ("Functions", "Compile time", '{function="step"}', 40),
        ("Functions", "Errors", '{function="step"}', 1),
        ("Compile phases", "", '{phase="backend_compile"}', 40),
        ("Compile time by function", "", '{function="step"}', 40),
        ("Latency of cold and warm requests", "cold p95", "{}", 97.5),
        (
            *("Cold request ratio", ""),
            '{__name__="slo:jaxmon_cold_start:ratio5m_now", job="web", route="/gen"}',
            1,
        ),
        (
            *("JAX errors by function", ""),
            (
                '{__name__="job:jaxmon_errors:increase5m", job="web", function="step", '
                'kind="oom"}'
            ),
            1,
        ),
        ("JAX errors over time", "", '{kind="oom"}', 1),
        ("Persistent cache hit rate", "", '{result="hit"}', 9),
        ("Persistent cache writes and errors", "written", "{}", 2),
        ("Non-finite outputs", "", '{name="loss"}', 1),
        ("Internal errors by process", "", f'{{{PROCESS},site="calls"}}', 1),
        ("Compiles by outcome", "", '{outcome="compiled"}', 1),
    ],
)
def test_the_first_is_shown(title, column, labels, value, tmp_path):
    """The series do not exist before it happened."""
    at = {"Functions": "20m", "Cold request ratio": "12m"}.get(title, "11m")
    names = ("jaxmon-slo-cold-start",) if title == "Cold request ratio" else SHOWN
    sample = {"labels": labels, "value": value}
    test = {
        "expr": expression(title, column, over="30m"),
        "eval_time": at,
        "exp_samples": [sample],
    }

    evaluate(tmp_path, groups(*names), SERIES, promql_expr_test=[test])
