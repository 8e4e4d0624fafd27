"""What is wrong has one order, whatever shows it."""

from typing import Any

import pytest

from jaxmon.facts.status import HostVerdict, ProcessVerdict
from jaxmon.symptoms.findings import as_fact
from tests.helpers.findings import GIB, findings, ledger
from tests.helpers.sidecars import START, Worker, reading, status


STUCK = {"state": "fetch", "place": "a.py:7", "seconds": 400.0}
LEAK = {"device": "0", "growth_bytes": GIB, "seconds": 60.0}
LEAKS = {"leaks": [{**LEAK, "lines": [{"place": "a:3", "arrays": 9}]}]}
FAULTS: dict[str, dict[str, Any]] = {
    "a hang and a leak": {
        "allocations": LEAKS,
        "time": ledger({"fetch": 0.3, "data_wait": 0.5}, **STUCK),
    },
    "a leak and waits": {
        "allocations": LEAKS,
        "time": ledger({"data_wait": 0.5, "eager": 0.3}),
        "steps": {"train": {"running": 1}},
    },
}


@pytest.mark.parametrize("fault", FAULTS)
def test_reasons_come_in_the_order_of_findings(fault: str) -> None:
    """``ps`` and ``explain`` say the same first."""
    judged = [as_fact(one) for one in findings(**FAULTS[fault])]
    process = ProcessVerdict(findings=tuple(judged))
    reasons = status(Worker(), verdict=HostVerdict({"0": process})).answer.reasons
    kinds = [one.kind for one in reasons]

    assert kinds
    assert kinds == [one.topic for one in judged if one.topic in kinds]
    assert judged[0].topic == kinds[0]


def test_what_users_notice_is_no_more_urgent_than_a_failure() -> None:
    """Of requests that wait for compiles, and a device without memory."""
    worker = Worker()
    before = reading(worker, at=START + 100.0)
    worker.requests(30)
    worker.requests(70, start="cold", took=2.0)
    judged = [as_fact(one) for one in findings(None, allocations=LEAKS)]
    verdict = HostVerdict({"0": ProcessVerdict(findings=tuple(judged))})
    reasons = status(worker, before=before, verdict=verdict).answer.reasons

    assert [one.kind for one in reasons] == ["leak", "cold_requests"]
