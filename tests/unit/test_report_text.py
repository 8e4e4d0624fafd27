"""Reports as people see them, character by character."""

import copy
import random
from collections.abc import Sequence
from typing import Any

import pytest

from jaxmon.facts.process import Snapshot, read
from jaxmon.host.formats import layout
from jaxmon.screens import text
from jaxmon.symptoms.findings import find
from jaxmon.symptoms.symptom import Finding


MIB, GIB = 1 << 20, 1 << 30


def recompile(cause: str, difference: str, seconds: float, time: float) -> Any:
    return {
        "number": 1,
        "time": time,
        "kind": "recompile",
        "function": "train.step",
        "message": "",
        "details": {
            "cause": cause,
            "differences": [{"text": difference}],
            "seconds": seconds,
        },
    }


OVERVIEW: dict[str, Any] = {
    "process": {
        "pid": 4711,
        "program": "python train.py --config configs/large.yaml",
        "observed_seconds": 7980.0,
        "now": 10_000.0,
        "jax": "0.10.2",
        "python": "3.11.7",
    },
    "compiling": {"count": 1, "oldest_seconds": 2.5},
    "functions": {
        "train.step": {
            "calls": 71_234,
            "hits": 71_196,
            "misses": 38,
            "compiles": {"compiled": 38},
            "recompiles": {"shape": 36, "dtype": 1},
            "errors": {"oom": 1},
            "phases": {
                "trace": {"seconds": 3.0, "count": 38},
                "backend_compile": {"seconds": 71.0, "count": 38},
            },
            "program": {
                "programs": 38,
                "flops": 4.5e11,
                "model_flops": 1.23e12,
                "temporary_bytes": 3.2 * GIB,
                "fingerprint": "abc",
            },
            "flops": {"achieved": 1e14, "of_peak": 0.1011},
            "samples": {
                "samples": 70,
                "dispatch_seconds": 0.00021,
                "execution_seconds": 0.0123,
            },
        },
        "train.evaluate.<locals>.the_metrics_of_one_batch": {
            "calls": 600,
            "hits": 599,
            "compiles": {"compiled": 2},
            "recompiles": {"static_argument": 1},
            "phases": {"backend_compile": {"seconds": 1.25, "count": 2}},
            "flops": {
                "unknown": {"reason": "loop", "what": "while", "where": "train.py:31"}
            },
        },
        "jax._src.dispatch.add": {
            "internal": True,
            "calls": None,
            "compiles": {"compiled": 12},
            "phases": {"backend_compile": {"seconds": 0.6, "count": 12}},
        },
    },
    "memory": {
        "devices": [
            {
                "device": 0,
                "kind": "NVIDIA H100 80GB HBM3",
                "in_use": 61.5 * GIB,
                "peak": 66 * GIB,
                "limit": 80 * GIB,
                "live_arrays": 1234,
                "live_bytes": 60.1 * GIB,
            }
        ]
    },
    "allocations": {
        "time": 9955.0,
        "seconds": 7920.0,
        "lines": [
            {
                "file": "/srv/models/train.py",
                "line": 57,
                "function": "init",
                "bytes": 48 * GIB,
                "arrays": 310,
                "growth_bytes": 0,
            },
            {
                "file": "/srv/models/a/rather/long/path/to/some/package/metrics.py",
                "line": 31,
                "function": "keep",
                "bytes": 1.2 * GIB,
                "arrays": 900,
                "growth_bytes": 3 * MIB,
            },
        ],
        "peaks": [
            {
                "device": 0,
                "bytes": 64 * GIB,
                "lines": [
                    {"file": "/srv/models/train.py", "line": 57, "bytes": 48 * GIB}
                ],
            }
        ],
    },
    "transfers": {
        "lines": [
            {
                "file": "train.py",
                "line": 80,
                "direction": "device_to_host",
                "how": "float()",
                "count": 71_234,
                "bytes": 278 << 10,
                "seconds": 410.0,
            }
        ]
    },
    "cache": {
        "enabled": True,
        "directory": "/var/cache/jax",
        "requests": {"hit": 1, "miss": 51},
        "writes": 40,
        "saved_seconds": 2.0,
        "size_bytes": 420 * MIB,
        "entries": 120,
        "obstacles": [
            {
                "reason": "path_in_key",
                "message": "The directory's path is part of the key.",
                "advice": "Mount it at the same path everywhere.",
            }
        ],
    },
    "errors": {"oom_reports": ["/var/lib/jaxmon/oom-4711-1.txt"]},
    "hooks": {"calls": True, "errors": False},
    "internal_errors": {"memory": 1},
}
EVENTS = {
    "events": [
        recompile("dtype", "argument x: float32[64] → bfloat16[64]", 1.9, 9000.0),
        recompile(
            "shape",
            "argument batch['tokens']: int32[64,1023] → int32[64,1024]",
            2.0,
            9988.0,
        ),
        recompile(
            "shape",
            "argument batch['tokens']: int32[64,1023] → int32[64,1024]",
            2.0,
            9990.0,
        ),
    ]
}
EXPLANATION = """\
worker 0 · pid 4711 · python train.py --config configs/large.yaml
observed for 2 h 13 min · JAX 0.10.2 · Python 3.11.7 · compiling now, for 2.5 s

FINDINGS
  1. The device ran out of memory once.
       report: /var/lib/jaxmon/oom-4711-1.txt
     Advice: The report names the program that requested memory and the lines
     that held it: free those first, donate arguments, or reduce the batch size.
     panel Debug: JAX errors over time · jaxmon runbook show JaxmonOutOfMemory
  2. train.py:80 read from the device 71,234 times (float()), 278 KiB in total,
     blocking for 6 min 50 s.
     Advice: Each read waits for all preceding device work. If the value is not
     needed immediately, read it one step later, or every hundredth step.
     To win back: up to 5.1 % of the time · panel Debug: Time blocked on
     transfers
  3. train.step was recompiled 36 times (2 of them in the last 10 min) because
     an argument's shape changed. This took 1 min 10 s of the 1 min 14 s that
     its compiles took.
       argument batch['tokens']: int32[64,1023] → int32[64,1024]
     Advice: Pad to a few fixed sizes (buckets), or drop the smaller last batch.
     To win back: up to 0.9 % of the time · panel Debug: Recompiles over time ·
     jaxmon runbook show JaxmonRecompileStorm
  4. The directory's path is part of the key.
     Advice: Mount it at the same path everywhere.
     panel Debug: Persistent cache hit rate · jaxmon runbook show
     JaxmonThunderingCompilation

COMPILE TIME: 1 min 16 s, 1.0 % of 2 h 13 min; 1 min 13 s for recompiles
  FUNCTION                   CALLS  HIT RATE  COMPILES  RECOMPILES  COMPILE TIME
  train.step                71,234    99.9 %        38          37    1 min 14 s
  train.eval…_one_batch        600    99.8 %         2           1         1.2 s
  eager operations (1)           -         -        12           0        0.60 s

RECOMPILES (latest first)
  train.step: shape 36, dtype 1
    argument batch['tokens']: int32[64,1023] → int32[64,1024] (2 identical,
        2.0 s, 10 s ago)
    argument x: float32[64] → bfloat16[64] (1.9 s, 16 min 40 s ago)
  train.evaluate.<locals>.the_metrics_of_one_batch: static_argument 1
    Advice: Make it an ordinary argument, or limit it to a few values; objects
    need value-based __eq__ and __hash__.

PROGRAMS (latest per function; median times of sampled calls)
  FUNCTION                            PROGRAMS  TEMP MEMORY  DISPATCH  EXECUTION
  train.step                                38      3.2 GiB    210 µs      12 ms

ARITHMETIC (FLOPs of the model: matrix products and convolutions, each once)
  FUNCTION                        FLOP  RECOMPUTED   FLOP/S  OF PEAK    BOUND BY
  train.step                    1.23 T           -    100 T   10.1 %           -
  FLOPs of train.evaluate.<locals>.the_metrics_of_one_batch are unknown: a while
    loop whose number of trips is unknown, at train.py:31.

PERSISTENT CACHE: 1 hit, 51 misses, 2.0 s saved
  /var/cache/jax, 120 entries, 420 MiB, 40 writes
  - The directory's path is part of the key. Mount it at the same path
    everywhere.

DEVICE MEMORY
  DEVICE                    IN USE       PEAK      LIMIT  LIVE ARRAYS       SIZE
  0 NVIDIA … 80GB HBM3    61.5 GiB     66 GiB     80 GiB        1,234   60.1 GiB

MEMORY BY SOURCE LINE (snapshot 45 s ago; growth over the preceding 2 h 12 min)
       SIZE    ARRAYS      GROWTH  SOURCE LINE
     48 GiB       310           0  /srv/models/train.py:57 init
    1.2 GiB       900      +3 MiB  …ong/path/to/some/package/metrics.py:31 keep

TRANSFERS BETWEEN HOST AND DEVICE
      COUNT       SIZE     BLOCKED  TRANSFER             SOURCE LINE
     71,234    278 KiB  6 min 50 s  to host, float()     train.py:80

ERRORS
  train.step: oom 1
  report: /var/lib/jaxmon/oom-4711-1.txt

NOTES
  Inactive hooks, whose data is missing: errors.
  jaxmon, or what the program passed to it, had errors, so some data may be
    missing: memory 1.
"""
SUMMARY = """\
── jaxmon: python train.py --config configs/large.yaml ─────────────────────────

COMPILE TIME: 1 min 16 s, 1.0 % of 2 h 13 min; 1 min 13 s for recompiles
  FUNCTION                   CALLS  HIT RATE  COMPILES  RECOMPILES  COMPILE TIME
  train.step                71,234    99.9 %        38          37    1 min 14 s
  train.eval…_one_batch        600    99.8 %         2           1         1.2 s
  eager operations (1)           -         -        12           0        0.60 s

DEVICE MEMORY: peak 66 GiB of 80 GiB, on device 0
  largest of 64 GiB in a snapshot: 48 GiB from /srv/models/train.py:57

FINDINGS
  1. The device ran out of memory once.
       report: /var/lib/jaxmon/oom-4711-1.txt
     Advice: The report names the program that requested memory and the lines
     that held it: free those first, donate arguments, or reduce the batch size.
  2. train.py:80 read from the device 71,234 times (float()), 278 KiB in total,
     blocking for 6 min 50 s.
     Advice: Each read waits for all preceding device work. If the value is not
     needed immediately, read it one step later, or every hundredth step.
  3. train.step was recompiled 36 times (2 of them in the last 10 min) because
     an argument's shape changed. This took 1 min 10 s of the 1 min 14 s that
     its compiles took.
       argument batch['tokens']: int32[64,1023] → int32[64,1024]
     Advice: Pad to a few fixed sizes (buckets), or drop the smaller last batch.
  4. The directory's path is part of the key.
     Advice: Mount it at the same path everywhere.
────────────────────────────────────────────────────────────────────────────────
"""


def explained(
    overview: object = OVERVIEW, events: object = EVENTS, **options: Any
) -> str:
    """Return the explanation of a process."""
    snapshot = read(overview, events)
    return explanation(snapshot, find(snapshot), **options)


def explanation(snapshot: Snapshot, findings: Sequence[Finding], **options: Any) -> str:
    lines = text.explanation(snapshot, findings, worker="0", **options)
    return "\n".join(lines) + "\n"


def ended(overview: object = OVERVIEW, events: object = EVENTS) -> str:
    """Return the report of a program that ends."""
    snapshot = read(overview, events)
    return "\n".join(text.summary(snapshot, find(snapshot))) + "\n"


def test_an_explanation_reads_like_this():
    """The full report on a program with many problems."""
    assert explained() == EXPLANATION


def test_a_report_at_the_end_reads_like_this():
    """One screen, the most urgent first."""
    assert ended() == SUMMARY


def test_the_rank_stands_beside_the_slot():
    """They may differ; a process that is in no job has no rank."""
    process = {"pid": 7, "program": "python a.py", "rank": {"index": 1, "count": 2}}

    first = explained({"process": process}, {}).partition("\n")[0]
    assert first == "worker 0 · rank 1 of 2 · pid 7 · python a.py"


def test_a_program_without_trouble_has_no_findings():
    """That nothing was found is stated, and empty sections are omitted."""
    address = "http://127.0.0.1:9469/metrics"
    process = {"pid": 7, "program": "python a.py", "observed_seconds": 30.0}

    assert explained({"process": {**process, "url": address}}, {}) == (
        "worker 0 · pid 7 · python a.py\n"
        f"observed for 30.0 s · {address}\n"
        "\n"
        "FINDINGS\n"
        "  Nothing to fix stands out.\n"
    )


@pytest.fixture(scope="module")
def crowded() -> tuple[Snapshot, Sequence[Finding]]:
    """Return a process with a lot of everything, all of it hostile or long."""
    overview, events = copy.deepcopy(OVERVIEW), copy.deepcopy(EVENTS)
    source = random.Random(4)  # noqa: S311 - names, not keys
    nasty = ["\x1b[2J", "\r\n", "変数", "z\u0335", "\u202e", "a" * 500, "\x07", "é"]

    def name() -> str:
        return "".join(source.choices(nasty, k=5))

    step, line = overview["functions"]["train.step"], overview["allocations"]["lines"]
    for number in range(100):
        causes = dict.fromkeys(("shape", "dtype", name()), 10**9 + number)
        overview["functions"][name()] = {**step, "recompiles": causes}
        line.insert(0, {**line[0], "file": name(), "function": name()})
        events["events"].append(recompile(name(), name() * 3, 1e9, -1e9))
        events["events"][-1]["function"] = source.choice([*overview["functions"]])
    overview["errors"]["oom_reports"] = [name() for _ in range(50)]
    overview["cache"]["directory"] = name()
    overview["process"]["program"] = name() * 10
    overview["hooks"] = {name(): False for _ in range(20)}
    transfers = overview["transfers"]["lines"]
    transfers += [{**transfers[0], "file": name(), "how": name()} for _ in range(50)]
    overview["memory"]["devices"] *= 16
    snapshot = read(overview, events)
    return snapshot, find(snapshot)


@pytest.mark.parametrize("width", [80, 100])
def test_no_line_is_wider_than_the_terminal(crowded, width):
    """Whatever a program calls its functions, each line fits."""
    for line in explanation(*crowded, width=width).splitlines():
        assert layout.columns(line) <= width, line


def test_the_terminal_gets_no_control_characters(crowded):
    """Names cannot move the cursor, change colours or reverse the text."""
    for report in (explanation(*crowded), "\n".join(text.summary(*crowded))):
        assert all(line.isprintable() for line in report.split("\n"))
        assert "\\x1b[2J" in report


def test_the_end_fits_a_screen(crowded):
    """However much there is to report, 40 lines of 80 columns are the maximum."""
    lines = "\n".join(text.summary(*crowded)).splitlines()

    assert len(lines) <= text.MOST_LINES
    assert all(layout.columns(line) <= 80 for line in lines)
    hint = "further findings: JAXMON_SUMMARY_DIR=DIRECTORY keeps a whole report."
    assert any(line.endswith(hint) for line in lines)
    kept = text.summary(*crowded, kept="reports/run-1.html")
    assert any(
        line.endswith("further findings: see the whole report.") for line in kept
    )
    assert kept[-2] == "Whole report: reports/run-1.html"
    assert len("\n".join(kept).splitlines()) <= text.MOST_LINES
