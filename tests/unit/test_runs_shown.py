"""What a run's restarts cost, in the report, as JSON and on a dashboard."""

import pytest

from jaxmon import catalog
from jaxmon.exposition.families import series
from jaxmon.facts.process import read
from jaxmon.facts.record import encoded
from jaxmon.facts.run import RunRecord, saving
from jaxmon.screens.tables import goodput_document as document
from jaxmon.screens.text import explanation
from tests.alerts.promtool import evaluate, shipped
from tests.helpers.dashboards import expression
from tests.helpers.findings import HEALTHY as OVERVIEW
from tests.helpers.runs import HOUR, RECORD
from tests.helpers.runs import long_run as run


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        # Orderly ends are no failures.
        RECORD.replace(interruptions={"killed": 10, "crashed": 2, "stopped": 30}),
        # In these, no interval is known to be best.
        RECORD.replace(interruptions={"killed": 1, "stopped": 11}),
        run({"checkpoint": 0.0}),
        run({"checkpoint": 30 * HOUR}, saves=2),
    ],
)
def test_the_panel_shows_what_the_finding_says(record, tmp_path):
    """Prometheus has the same time between the saves of a run."""
    known = saving(record)
    assert known is not None
    counts = {
        **{
            series(catalog.RUN_SECONDS, "llama", name): value
            for name, value in record.seconds.items()
        },
        **{
            series(catalog.RUN_INTERRUPTIONS, "llama", how): value
            for how, value in {"stopped": 0, **record.interruptions}.items()
        },
        series(catalog.RUN_SAVES, "llama"): record.saves,
    }
    evaluate(
        tmp_path,
        [one for one in shipped().recording if one["name"] == "jaxmon-overviews"],
        {
            name.replace("{", '{job="web",instance="a",', 1): f"{value}+0x10"
            for name, value in counts.items()
        },
        promql_expr_test=[
            {
                "expr": f"round({expression('Time between saves', over='5m')})",
                "eval_time": "5m",
                "exp_samples": [
                    {"labels": '{job="web", run="llama"}', "value": round(known.every)}
                ],
            }
        ],
    )


def test_the_report_has_the_time_of_all_attempts() -> None:
    """As a section of its own; a process that keeps no record has none."""

    def report(run: RunRecord) -> list[str]:
        snapshot = read({**OVERVIEW, "run": encoded(run.filled())})
        return explanation(snapshot, [], worker="0")

    title = "GOODPUT ACROSS RESTARTS: "
    lines = report(RECORD)
    at = lines.index(f"{title}84 % of 2 d 2 h, attempt 13 of run llama")
    assert " ".join(lines[at + 2].split()) == "steps, each once 1 d 18 h 84 %"
    assert lines[at + 10 : at + 16] == [
        "  43,000 steps done; 1,300 had to be done again",
        "  interrupted 12 times (2 crashed, 10 killed), every 4 h on average; the next",
        "    step was done 20 min later",
        "  96 checkpoints saved, every 28 min 26 s on average; every 15 min 30 s loses",
        "    least",
        "",
    ]
    assert not [one for one in report(RunRecord()) if title in one]


def test_figures_of_saves_are_in_the_json() -> None:
    """As `jaxmon job goodput --json` prints them; unknown is null."""
    figures = document(RECORD)
    known = saving(RECORD)
    assert known is not None
    assert figures["seconds_between_saves"] == known.every
    assert figures["best_seconds_between_saves"] == known.best
    assert document(RECORD.replace(saves=0))["seconds_between_saves"] is None
