"""
From facts to advice, in exact words.
"""

from __future__ import annotations

from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.report.advice import advise
from jaxmon.report.compiling import STORM
from jaxmon.report.model import Advice
from jaxmon.report.read import read
from jaxmon.report.words import ERRORS, WHAT_TO_DO, WHY


HEALTHY: dict[str, Any] = {
    "process": {"observed_seconds": 600.0, "now": 1000.0},
    "functions": {
        "train.step": {
            "calls": 9_000,
            "hits": 8_998,
            "misses": 2,
            "compiles": {"compiled": 2},
            "recompiles": {"shape": 1},
            "phases": {"backend_compile": {"seconds": 4.0, "count": 2}},
        }
    },
    "memory": {"devices": [{"device": 0, "in_use": 40e9, "peak": 70e9, "limit": 80e9}]},
    "allocations": {"lines": [{"file": "train.py", "line": 9, "bytes": 40e9}]},
    "transfers": {
        "lines": [
            {"file": "log.py", "line": 3, "direction": "device_to_host", "count": 600}
        ]
    },
    "cache": {"enabled": True, "directory": "/cache", "requests": {"hit": 2}},
}


def advice(events: list[dict[str, Any]] | None = None, **parts: Any) -> list[Advice]:
    """
    Return the advice on a healthy program of which *parts* are different.
    """
    return advise(read({**HEALTHY, **parts}, {"events": events or []}))


def function(**figures: Any) -> dict[str, Any]:
    return {"train.step": {**HEALTHY["functions"]["train.step"], **figures}}


def recompile(text: str, **details: Any) -> dict[str, Any]:
    return {
        "kind": "recompile",
        "function": "train.step",
        "details": {"cause": "shape", "differences": [{"text": text}], **details},
    }


def test_a_healthy_program_gets_no_advice():
    """
    A few compiles, fetches and a well-filled device are nothing to talk about.
    """
    assert advice() == []
    assert advise(read({})) == []


def test_recompiles_are_explained_with_their_latest_differences():
    """
    How often, why, what differed, and what to do; equal differences are told once.
    """
    texts = [f"argument x: float32[{n}] → float32[{n + 1}]" for n in (1, 2, 3, 3, 4)]
    found = advice(
        list(map(recompile, texts)),
        functions=function(recompiles={"shape": 37, "dtype": 2}),
    )

    assert found == [
        Advice(
            "recompile",
            "train.step",
            "train.step was compiled again 37 times because the shape of an argument "
            "changed. Its compiles took 4.0 s.",
            (texts[4], texts[3], texts[1]),
            "Pad to a few fixed sizes (buckets), or drop the last, smaller batch.",
        )
    ]


@pytest.mark.parametrize("cause", catalog.CAUSES)
def test_every_cause_has_its_words(cause):
    """
    No cause of the catalogue is without a reason and without advice.
    """
    (found,) = advice(functions=function(recompiles={cause: STORM}))

    assert found.finding.startswith("train.step was compiled again 5 times")
    if cause == "unknown":
        assert "; JAX does not tell why. Its" in found.finding
        assert "JAX_EXPLAIN_CACHE_MISSES=1" in found.action
    else:
        assert f" because {WHY[cause]}. Its" in found.finding
        assert found.action == WHAT_TO_DO[cause]


def test_words_are_for_what_exists():
    """
    Causes and kinds of errors are spelled as in the catalogue.
    """
    assert {*WHY} == {*WHAT_TO_DO} == {*catalog.CAUSES} - {"unknown"}
    assert {*ERRORS} <= {*catalog.ERROR_KINDS}


CASES: dict[str, tuple[dict[str, Any], list[Any], str, tuple[str, ...], str]] = {
    "out of memory": (
        {
            "functions": function(errors={"oom": 2}),
            "errors": {"oom_reports": ["/var/r/oom-1.json"]},
        },
        [],
        "The device ran out of memory twice.",
        ("report: /var/r/oom-1.txt",),
        (
            "The report names the program that asked and the lines that held memory: "
            "free those first, donate arguments, or make the batch smaller."
        ),
    ),
    "memory nearly full": (
        {"memory": {"devices": [{"device": 3, "in_use": 72e9, "limit": 80e9}]}},
        [],
        "Device 3 uses 90 % of its 80 GB.",
        ("train.py:9 holds 40 GB",),
        (
            "Free what these lines hold, donate arguments (donate_argnums), or make "
            "the batch smaller, before it runs out."
        ),
    ),
    "memory was nearly full": (
        {"memory": {"devices": [{"device": 0, "peak": 79e9, "limit": 80e9}]}},
        [],
        "Device 0 has used 99 % of its 80 GB.",
        ("train.py:9 holds 40 GB",),
        (
            "Free what these lines hold, donate arguments (donate_argnums), or make "
            "the batch smaller, before it runs out."
        ),
    ),
    "leak": (
        {
            "allocations": {
                "leaks": [
                    {
                        "device": 0,
                        "growth_bytes": 1.2e9,
                        "seconds": 720,
                        "lines": [
                            {
                                "file": "train.py",
                                "line": 31,
                                "growth_bytes": 1.1e9,
                                "arrays": 1100,
                            }
                        ],
                    }
                ]
            }
        },
        [],
        "Memory of device 0 grew by 1.2 GB in 12 min without a pause.",
        ("train.py:31 grew by 1.1 GB, to 1,100 arrays",),
        (
            "Look who keeps what that line makes: a list of losses or metrics is the "
            "usual one; store float(x) instead of the array."
        ),
    ),
    "compile stuck": (
        {"compiling": {"count": 1, "oldest_seconds": 400}},
        [],
        "A compile has been running for 6 min 40 s.",
        (),
        (
            "Large unrolled loops compile for long: use jax.lax.scan. If other "
            "processes wait too, look which rank runs a program of its own."
        ),
    ),
    "scattered": (
        {
            "functions": {
                f"m.f{n}": {
                    "calls": 9000,
                    "recompiles": {"shape": 2, "dtype": 1},
                    "phases": {"lower": {"seconds": 4.0, "count": 4}},
                }
                for n in range(10)
            }
        },
        [],
        (
            "10 functions were compiled again, 30 times in all, mostly because the "
            "shape of an argument changed. Their compiles took 40.0 s."
        ),
        (),
        "Pad to a few fixed sizes (buckets), or drop the last, smaller batch.",
    ),
    "operations": (
        {
            "functions": {
                f"jax.numpy.{name}": {
                    "internal": True,
                    "compiles": {"compiled": n},
                    "phases": {"lower": {"seconds": n / 40, "count": n}},
                }
                for name, n in (("add", 200), ("dot", 50))
            }
        },
        [],
        "Operations outside of jit were compiled one by one: 250 programs in 6.2 s.",
        ("add 200, dot 50",),
        (
            "Put them into a jitted function; for set-up code and for the values of a "
            "result, numpy does as well."
        ),
    ),
    "operations again": (
        {
            "process": {"observed_seconds": 20.0, "now": 1000.0},
            "functions": {
                "jax._src.dispatch.unstack": {
                    "internal": True,
                    "compiles": {"compiled": 23},
                    "recompiles": {"shape": 22},
                    "phases": {"lower": {"seconds": 2.5, "count": 23}},
                }
            },
        },
        [],
        (
            "Operations outside of jit were compiled one by one: 23 programs in 2.5 s, "
            "22 of them again, mostly because the shape of an argument changed."
        ),
        ("unstack 23",),
        (
            "Put them into a jitted function; for set-up code and for the values of a "
            "result, numpy does as well."
        ),
    ),
    "fetches in a loop": (
        {
            "transfers": {
                "lines": [
                    {
                        "file": "train.py",
                        "line": 57,
                        "direction": "device_to_host",
                        "how": "float()",
                        "count": 12_345,
                        "bytes": 49_380,
                        "seconds": 32.1,
                    }
                ]
            }
        },
        [],
        (
            "train.py:57 fetched from the device 12,345 times by float(), 49.4 kB in "
            "all, and waited 32.1 s."
        ),
        (),
        (
            "Each fetch waits for all work before it. Where the value is not needed "
            "at once, fetch it a step later, or every hundredth step."
        ),
    ),
    "copies in a loop": (
        {
            "transfers": {
                "lines": [
                    {
                        "file": "train.py",
                        "line": 8,
                        "direction": "host_to_device",
                        "count": 500,
                        "bytes": 1e9,
                        "seconds": 8.0,
                    }
                ]
            }
        },
        [],
        "train.py:8 copied to the device 500 times, 1 GB in all, and waited 8.0 s.",
        (),
        (
            "Put constant data on the device once, with jax.device_put, and prefetch "
            "the rest."
        ),
    ),
    "errors": (
        {"functions": function(errors={"nan": 3, "other": 1})},
        [
            {
                "kind": "error",
                "function": "train.step",
                "message": "invalid value (nan) in mul. Because ...",
            }
        ],
        "train.step failed 4 times: nan 3, other 1.",
        ("invalid value (nan) in mul",),
        "Run a few steps with JAX_DEBUG_NANS=1, which names the operation.",
    ),
    "non-finite": (
        {"functions": function(numerics={"values": 4096, "nonfinite": 7})},
        [],
        "train.step returned 7 values that are not finite, of 4,096 looked at.",
        (),
        "Run a few steps with JAX_DEBUG_NANS=1, which names the operation.",
    ),
    "float64": (
        {"functions": function(numerics={"float64_programs": 1})},
        [],
        "train.step computes in float64 in 1 program, though no argument is float64.",
        (),
        "Look for NumPy values, Python floats made into arrays, and dtypes left out.",
    ),
    "deviation": (
        {"functions": function(determinism={"checks": {"passed": 3, "failed": 2}})},
        [
            {
                "kind": "determinism",
                "function": "train.step",
                "message": "output 0 deviates by 1e-3",
                "details": {"deviations": []},
            }
        ],
        "train.step gave other outputs for the same inputs twice.",
        ("output 0 deviates by 1e-3",),
        (
            "Look for PRNG keys used twice and, on a GPU, for reductions that "
            "--xla_gpu_deterministic_ops=true makes repeatable."
        ),
    ),
    "gradients": (
        {"functions": function(determinism={"gradient_checks": {"failed": 1}})},
        [
            {
                "kind": "determinism",
                "function": "train.step",
                "message": "wrong gradients: not equal to tolerance",
            }
        ],
        "A check of the gradients of train.step failed once.",
        ("wrong gradients: not equal to tolerance",),
        (
            "Compare its custom derivative, if it has one, with the function; what it "
            "rounds or compares has no gradient."
        ),
    ),
    "effects": (
        {"functions": function(misses=5000)},
        [{"kind": "miss", "function": "train.step", "details": {"reason": "effects"}}],
        (
            "train.step left the fast path 5,000 times, because it has an effect, "
            "such as an ordered print or callback."
        ),
        (),
        (
            "Each such call costs about half a millisecond on the host: leave the "
            "effect out where time matters."
        ),
    ),
    "cache obstacle": (
        {
            "cache": {
                "obstacles": [
                    {
                        "reason": "check_contents",
                        "message": "It compiles each program once",
                        "advice": "Switch it off.",
                    }
                ]
            }
        },
        [],
        "It compiles each program once.",
        (),
        "Switch it off.",
    ),
    "cache errors": (
        {"cache": {"directory": "/cache", "errors": {"read": 1, "write": 2}}},
        [
            {
                "kind": "cache",
                "message": "No space left on device",
                "details": {"operation": "write"},
            },
            {"kind": "cache", "message": "An obstacle", "details": {}},
        ],
        "The persistent cache had 1 read error and 2 write errors.",
        ("No space left on device",),
        "Check space and permissions of /cache.",
    ),
    "compile share": (
        {"functions": function(phases={"backend_compile": {"seconds": 150.0}})},
        [],
        "Compiles took 25 % of the time: 2 min 30 s of 10 min.",
        (),
        (
            "Compile before the work begins, or keep programs between runs: set "
            "JAX_COMPILATION_CACHE_DIR."
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_mistake_is_told_in_these_words(case):
    """
    One mistake makes one piece of advice: finding, evidence, what to do.
    """
    parts, events, finding, evidence, action = CASES[case]
    (found,) = advice(events, **parts)

    assert (found.finding, found.evidence, found.action) == (finding, evidence, action)


@pytest.mark.parametrize(
    "parts",
    [
        {"functions": function(recompiles={"shape": STORM - 1, "dtype": STORM - 1})},
        {"functions": function(recompiles={"shape": 8}, phases={})},
        {"memory": {"devices": [{"device": 0, "in_use": 79e9}]}},
        {"compiling": {"count": 1, "oldest_seconds": 200}},
        {"functions": {"jax.f": {"internal": True, "recompiles": {"shape": 99}}}},
        {
            "transfers": {
                "lines": [{"direction": "device_to_host", "count": 99, "seconds": 99.0}]
            }
        },
        {"cache": {"obstacles": [{"reason": "no_directory", "message": "not set"}]}},
        {
            "transfers": {
                "lines": [{"direction": "sync", "count": 9000, "seconds": 500.0}]
            }
        },
    ],
)
def test_what_is_below_the_limits_is_not_worth_a_word(parts):
    """
    Advice that everybody gets is read by nobody.
    """
    assert advice(**parts) == []


def test_the_most_urgent_comes_first():
    """
    What has failed stands before what is slow, and that before what might be faster.
    """
    parts: dict[str, Any] = {}
    for case in ("compile share", "leak", "fetches in a loop"):
        parts.update(CASES[case][0])
    parts["functions"] = function(
        errors={"oom": 1},
        recompiles={"shape": 5},
        phases={"backend_compile": {"seconds": 150.0}},
    )

    assert [one.topic for one in advice(None, **parts)] == [
        "oom",
        "leak",
        "recompile",
        "transfer",
        "compile_share",
    ]
