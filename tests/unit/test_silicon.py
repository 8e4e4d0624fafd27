"""What checks on an accelerator conclude from what they measure."""

import signal
from typing import Any

import pytest

from tests.helpers.processes import each
from tools.silicon import report
from tools.silicon.checks import CHECKS
from tools.silicon.findings import Finding, near
from tools.silicon.running import FAILED, IMPOSSIBLE, PASSED, Result, judged


GIB = 1 << 30
ROW = {
    "name": "a call",
    "value": 900.0,
    "unit": "ns",
    "at_most": 1000,
    "at_least": None,
}

# What each check measures if all is right.
RIGHT: dict[str, dict[str, Any]] = {
    "smi": {"code": 0, "compared": 38, "complaints": "all agree"},
    "execution": {
        "device": "NVIDIA H200",
        "samples": 20,
        "seconds": 0.0155,
        "seconds, blocked": 0.016,
        "calls": 241,
        "calls, made": 241,
        "flops": 241 * 10 * 2.0 * 8192**3,
        "flops, by hand": 241 * 10 * 2.0 * 8192**3,
        "ideal seconds": 241 * 10 * 2.0 * 8192**3 / 989.4e12,
        "peak": 989.4e12,
        "peak, data sheet": 989.4e12,
    },
    "memory": {
        **dict.fromkeys(("in use", "in use, JAX"), 2 * GIB + 4096),
        **dict.fromkeys(("peak", "peak, JAX"), 2 * GIB + 8192),
        **dict.fromkeys(("limit", "limit, JAX"), 60 * GIB),
        **dict.fromkeys(("allocations", "allocations, JAX"), 3000),
        "live": 2 * GIB,
        "array": 2 * GIB,
        "driver": 2 * GIB + (64 << 20),
    },
    "oom": {
        "error": "RESOURCE_EXHAUSTED: Out of memory",
        "counted": 1,
        "reports": 1,
        "holder": "memory.py:80",
        "truth": "memory.py:80",
        "advice": ["memory.py:80 (measure_oom) holds 4.8 GiB"],
    },
    "profile": {
        "code": 0,
        "recorded": 2.0,
        "busy": 0.95,
        "located": 1.0,
        "line": "timing.py:34",
        "truth": "timing.py:34",
        "seconds per product": 0.0015,
        "blocked": 0.0016,
    },
    "load": {
        "SM active": 0.98,
        "tensor active": 0.8,
        "DRAM active": 0.3,
        "FP64 active": 0.0,
        "SM active, idle": 0.0,
        "utilization": 1.0,
        "watts": 650.0,
        "joules per second": 640.0,
        "clock events": ["sw_power_cap"],
    },
    "join": {
        "agent": ["GPU-1"],
        "sidecar": ["GPU-0", "GPU-1"],
        "nvidia-smi": ["GPU-0", "GPU-1"],
        "process memory": 1536 << 20,
        "process memory, nvidia-smi": 1536 << 20,
        "pids": ["17"],
    },
    "ras": {
        "version": "2.28.9",
        "truth": 22809,
        **dict.fromkeys(("gpus", "nodes", "responding", "communicators"), 1),
        "faulty": 0,
        "inspector": [],
    },
    "hang": {"state": "hung", "ranks": [1], "where": "a.py:5", "truth": "a.py:5"},
    "limit": {"code": -signal.SIGABRT, "seconds": 12.0, "said": "timed out"},
    "transfers": {
        "right": True,
        "host_to_device, count": 3,
        "host_to_device, bytes": 3 * (64 << 20),
        "device_to_host, count": 2,
        "device_to_host, bytes": 2 * (64 << 20),
    },
    "replay": {"steps": 500, "checks": {"passed": 3}, "equal": True},
    "doctor": {"code": 0, "statuses": {"ok": 9}, "failures": [], "warnings": []},
    "demo": {"code": 0, "end": ""},
    "overhead": {"platform": "gpu", "rows": [{**ROW, "met": True}]},
}

# And what each must not accept.
WRONG: list[tuple[str, str, Any]] = [
    ("smi", "code", 1),
    ("smi", "compared", 3),
    ("execution", "samples", None),
    ("execution", "seconds", 0.012),
    ("execution", "seconds", None),
    ("execution", "calls", 240),
    ("execution", "flops", 241 * 2.0 * 8192**3),
    ("execution", "peak", 1978.9e12),
    ("execution", "ideal seconds", 20.0),
    ("execution", "seconds, blocked", 0.001),
    ("memory", "in use", 2 * GIB - 4096 * 1024),
    ("memory", "peak", None),
    ("memory", "limit", 80 * GIB),
    ("memory", "allocations", 2000),
    ("memory", "live", GIB),
    ("memory", "driver", GIB),
    ("memory", "driver", None),
    ("oom", "error", ""),
    ("oom", "counted", None),
    ("oom", "reports", 0),
    ("oom", "holder", "memory.py:81"),
    ("oom", "advice", ["reduce the batch"]),
    ("profile", "busy", 0.2),
    ("profile", "located", None),
    ("profile", "line", ""),
    ("profile", "seconds per product", 0.003),
    ("load", "SM active", 0.0098),
    ("load", "tensor active", 0.0),
    ("load", "FP64 active", 0.8),
    ("load", "SM active, idle", 0.98),
    ("load", "utilization", 100.0),
    ("load", "joules per second", 0.64),
    ("load", "joules per second", None),
    ("join", "agent", [""]),
    ("join", "agent", ["GPU-2"]),
    ("join", "sidecar", ["GPU-1"]),
    ("join", "process memory", None),
    ("ras", "version", ""),
    ("ras", "gpus", None),
    ("ras", "responding", 0),
    ("ras", "faulty", 1),
    ("hang", "state", "progressing"),
    ("hang", "ranks", [0]),
    ("hang", "where", "a.py:6"),
    ("limit", "code", None),
    ("limit", "code", 0),
    ("limit", "seconds", 3.0),
    ("transfers", "host_to_device, bytes", 64 << 20),
    ("transfers", "device_to_host, count", 3),
    ("transfers", "right", False),
    ("replay", "checks", {}),
    ("replay", "checks", {"passed": 3, "failed": 1}),
    ("replay", "equal", False),
    ("doctor", "code", 1),
    ("doctor", "failures", ["the driver is too old"]),
    ("demo", "code", 1),
    ("overhead", "rows", [{**ROW, "met": False}]),
]


def test_each_check_passes_on_right_figures() -> None:
    """Each check has an example of right figures here, and passes on it."""
    results = [judged(name, RIGHT[name]) for name in CHECKS]
    assert [one for one in results if one.status != PASSED] == []
    assert all(one.findings for one in results)


@each({f"{name}: {key}, {value}": (name, key, value) for name, key, value in WRONG})
def test_each_check_fails_on_a_wrong_figure(name: str, key: str, value: Any) -> None:
    """A check fails if one of its figures is wrong or missing."""
    assert key in RIGHT[name]
    assert judged(name, {**RIGHT[name], key: value}).status == FAILED


def test_a_profile_that_fails_says_why() -> None:
    """A check whose command fails reports the command's message."""
    result = judged("profile", {"code": 1, "error": "the profiler is in use"})
    assert result.status == FAILED
    assert "the profiler is in use" in {one.ours for one in result.findings}


def test_a_hidden_process_is_no_failure() -> None:
    """In a container the driver lists no processes; that is not a failure."""
    hidden = {"process memory": None, "process memory, nvidia-smi": None}
    assert judged("join", {**RIGHT["join"], **hidden}).status == PASSED


@pytest.mark.parametrize("truth", [None, float("nan"), float("inf")])
def test_nothing_agrees_with_an_unknown_value(truth: float | None) -> None:
    """A missing or infinite truth is not agreement."""
    assert near("figure", truth, truth, 0.1).right is False


def test_the_report_has_each_check_with_its_figures() -> None:
    """The report lists statuses, reasons and comparisons, and escapes tables."""
    results = [
        Result("smi", IMPOSSIBLE, why="no GPU: JAX runs on cpu"),
        Result("hang", FAILED, 3, "", [Finding("a|b", "1", "2", right=False)]),
    ]
    text = report.document(results, "1 x cpu")
    assert "1 not possible here, 1 failed." in text
    assert "## smi: not possible here" in text
    assert "no GPU: JAX runs on cpu" in text
    assert r"| a\|b | 1 | 2 | **no** |" in text
