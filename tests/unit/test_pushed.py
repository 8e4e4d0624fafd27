"""The output of a push, and its exit code."""

from pathlib import Path

import pytest

from jaxmon.cli.pushed import PushReport
from jaxmon_dashboards.grafana.push import Folder, Outcome, PushResult, Relation


def result(outcome, state=Relation.UPDATE, **more):
    """Return a result of *outcome*."""
    return PushResult("jaxmon-oncall", "On-call", state, outcome, **more)


def pushed(*results, dry_run=False, makes_folder=False):
    """Return a push with *results*."""
    folder = Folder("jaxmon", "jaxmon")
    return PushReport("https://g", "11.4.0", folder, makes_folder, dry_run, results)


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        (["created", "updated", "unchanged"], 0),
        (["unchanged", "planned"], 5),
        (["planned", "refused"], 3),
        (["updated", "refused"], 3),
        (["updated", "pending"], 3),
        (["failed", "refused"], 4),
        (["failed", "created"], 4),
        (["failed", "failed"], 1),
    ],
)
def test_exit_code(outcomes, code):
    """The worst outcome decides, as the help of the command says."""
    assert pushed(*(result(Outcome(one)) for one in outcomes)).exit_code() == code


def test_text_is_calm_and_narrow():
    """A line for each dashboard, reasons wrapped below it, addresses whole."""
    long = "word " * 30
    told = pushed(
        result(Outcome.CREATED, Relation.CREATE, url="https://g/d/jaxmon-oncall/x"),
        result(Outcome.REFUSED, Relation.DRIFTED, reason=long),
        result(Outcome.UPDATED, Relation.DRIFTED, backup=Path("b/oncall-v2.json")),
        makes_folder=True,
    )
    lines = told.lines()
    assert lines[:4] == [
        "Grafana 11.4.0 at https://g, folder jaxmon (new)",
        "",
        "  created  jaxmon-oncall  On-call",
        "           https://g/d/jaxmon-oncall/x",
    ]
    assert "           drifted: word word" in "\n".join(lines)
    assert "           backup: b/oncall-v2.json" in lines
    assert lines[-1] == "1 created, 1 refused, 1 updated."
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize(
    ("state", "outcome", "advised"),
    [
        (Relation.DRIFTED, Outcome.REFUSED, True),
        (Relation.DRIFTED, Outcome.UPDATED, False),
        (Relation.FOREIGN, Outcome.REFUSED, False),
        (Relation.UPDATE, Outcome.FAILED, False),
    ],
)
def test_advice_is_for_edits_only(state, outcome, advised):
    """--force is mentioned only if there is an edit that it would replace."""
    advice = pushed(result(outcome, state)).advice()
    assert bool(advice) == advised
    assert max(map(len, advice.splitlines()), default=0) <= 80
