"""All findings together: none where nothing is wrong, the most urgent first."""

from __future__ import annotations

from typing import Any

from jaxmon import catalog
from jaxmon.report.findings import find
from jaxmon.report.findings.words import WHAT_TO_DO, WHY
from jaxmon.report.model import read
from tests.reports import GIB, findings, function


def test_a_healthy_program_gets_no_findings():
    """A few compiles, fetches and a well-filled device are nothing to talk about."""
    assert findings() == []
    assert find(read({})) == []


def test_words_are_for_causes_that_exist():
    """Causes are spelled as in the catalogue."""
    assert {*WHY} == {*WHAT_TO_DO} == {*catalog.CAUSES} - {"unknown"}


def test_the_most_urgent_comes_first():
    """
    What has failed stands before what is slow, and that before what might be faster.
    """
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
