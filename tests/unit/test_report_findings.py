"""All findings together: none where nothing is wrong, the most urgent first."""

from typing import Any

from jaxmon import catalog
from jaxmon.facts.process import read
from jaxmon.symptoms.findings import find
from jaxmon.symptoms.recompiles import WHAT_TO_DO, WHY
from tests.helpers.findings import GIB, findings, function


def test_a_healthy_program_gets_no_findings():
    """A few compiles, fetches and a well-filled device are nothing to talk about."""
    assert findings() == []
    assert find(read({})) == []


def test_words_are_for_causes_that_exist():
    """Causes are spelled as in the catalogue."""
    assert {*WHY} == {*WHAT_TO_DO} == {*catalog.CAUSES} - {"unknown"}


def test_the_most_urgent_comes_first():
    """Failures come before slowness, and that before possible gains."""
    fetches = {"file": "a.py", "line": 1, "direction": "device_to_host"}
    parts: dict[str, Any] = {
        "allocations": {"leaks": [{"device": 0, "growth_bytes": GIB, "seconds": 720}]},
        "transfers": {"lines": [{**fetches, "count": 500, "seconds": 32.0}]},
        "functions": function(
            errors={"oom": 1},
            recompiles={"shape": 5},
            phases={"backend_compile": {"seconds": 150.0}},
        ),
    }

    assert [one.topic for one in findings(None, **parts)] == [
        "oom",
        "leak",
        "recompile",
        "transfer",
        "compile_share",
    ]


def test_exports_that_all_fail_are_found():
    """Only if that lasts: a receiver that is restarted, or slow once, is no finding."""
    failing = {"failed_in_a_row": 4, "failing_seconds": 240.0}
    for brief in ({"failed_in_a_row": 2}, {"failing_seconds": 100.0}, {}):
        once = {**failing, **brief} if brief else {}
        assert findings(None, exports=once) == []
    (one,) = findings(None, exports=failing)
    assert one.topic == "export"
    assert "for 4 min: the last 4 failed" in one.verdict
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in one.action


def test_spans_that_are_dropped_again_and_again_are_found():
    """Those of one outage long ago are no finding."""
    long, short = ({"observed_seconds": one} for one in (86400.0, 1200.0))
    dropped = {"spans_dropped": 2048}
    assert findings(None, process=long, exports=dropped) == []
    assert findings(None, process=short, exports={"spans_dropped": 150}) == []
    (one,) = findings(None, process=short, exports=dropped)
    assert (one.topic, one.verdict[:12]) == ("spans", "2,048 spans ")
