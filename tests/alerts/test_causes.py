"""Each cause alert stays silent, fires with exactly its labels, and resolves."""

from dataclasses import replace

import pytest

from jaxmon_alerts import rules as alerts
from jaxmon_alerts import slo
from tests.alerts.cases import (
    compiles,
    hardware,
    memory,
    monitoring,
    progress,
    requests,
    results,
    starts,
)
from tests.alerts.promtool import run, run_each


CASES = {
    name: case
    for part in (
        compiles,
        hardware,
        memory,
        monitoring,
        progress,
        requests,
        results,
        starts,
    )
    for name, case in part.CASES.items()
}


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    return run_each(CASES, tmp_path_factory.mktemp("causes"))


@pytest.mark.parametrize("name", CASES)
def test_alert(printed, name):
    """The alert fires when it should, with exactly these labels, and only then."""
    assert printed[name].strip() == "SUCCESS"


def test_every_cause_has_a_case():
    """No alert but those on budgets, which have tests of their own, goes without."""
    burning = {one.alert for one in slo.load()}
    conditions = {
        (one.name, dict(one.labels).get("symptom", "")) for one in alerts.all_alerts()
    }
    fired = {
        (case.alert.partition("/")[0], firing.labels.get("symptom", ""))
        for case in CASES.values()
        for found in case.firing.values()
        for firing in found
    }

    assert conditions - {(name, "") for name in burning} == fired


def test_a_wrong_expectation_is_noticed(tmp_path):
    """The comparison with promtool can fail: on labels, summaries, and silence."""
    case = CASES["the only gpu of a host lost"]
    firing, *others = case.firing["7m"]
    wrong = (
        replace(case, firing={"7m": [replace(firing, summary="GPU lost."), *others]}),
        replace(
            case,
            firing={
                "7m": [
                    replace(firing, labels={**firing.labels, "uuid": "GPU-9"}),
                    *others,
                ]
            },
        ),
        replace(case, quiet=("7m",)),
    )
    for one in wrong:
        with pytest.raises(AssertionError, match="FAILED"):
            run(one, tmp_path)
