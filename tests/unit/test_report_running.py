"""Advice on what happens when programs run, in exact words."""

from __future__ import annotations

import jax.errors
import pytest

from jaxmon import catalog
from jaxmon.report.advice.words import ERROR_TYPES, ERRORS
from tests.reports import GIB, Case, advice, function


CASES: dict[str, Case] = {
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
        {"memory": {"devices": [{"device": 3, "in_use": 72 * GIB, "limit": 80 * GIB}]}},
        [],
        "Device 3 uses 90 % of its 80 GiB.",
        ("train.py:9 holds 40 GiB",),
        (
            "Free what these lines hold, donate arguments (donate_argnums), or make "
            "the batch smaller, before it runs out."
        ),
    ),
    "memory was nearly full": (
        {"memory": {"devices": [{"device": 0, "peak": 79 * GIB, "limit": 80 * GIB}]}},
        [],
        "Device 0 has used 99 % of its 80 GiB.",
        ("train.py:9 holds 40 GiB",),
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
                        "growth_bytes": 1.2 * GIB,
                        "seconds": 720,
                        "lines": [
                            {
                                "file": "train.py",
                                "line": 31,
                                "growth_bytes": 1.1 * GIB,
                                "arrays": 1100,
                            }
                        ],
                    }
                ]
            }
        },
        [],
        "Memory of device 0 grew by 1.2 GiB in 12 min without a pause.",
        ("train.py:31 grew by 1.1 GiB, to 1,100 arrays",),
        (
            "Look who keeps what that line makes: a list of losses or metrics is the "
            "usual one; store float(x) instead of the array. A cache that fills looks "
            "the same until it is full."
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
            "train.py:57 fetched from the device 12,345 times by float(), 48.2 KiB in "
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
                        "bytes": 1 * GIB,
                        "seconds": 8.0,
                    }
                ]
            }
        },
        [],
        "train.py:8 copied to the device 500 times, 1 GiB in all, and waited 8.0 s.",
        (),
        (
            "Put constant data on the device once, with jax.device_put, and prefetch "
            "the rest."
        ),
    ),
    "numbers in a loop": (
        {
            "transfers": {
                "lines": [
                    {
                        "file": "train.py",
                        "line": 9,
                        "direction": "host_to_device",
                        "how": "fold_in",
                        "count": 50_000,
                        "bytes": 200_000,
                        "seconds": 8.0,
                    }
                ]
            }
        },
        [],
        (
            "train.py:9 copied to the device 50,000 times by fold_in, 195 KiB in all, "
            "and waited 8.0 s."
        ),
        (),
        (
            "These are single numbers: give them to a jitted function as arguments, "
            "and compute with them there."
        ),
    ),
    "errors": (
        {"functions": function(errors={"nan": 3, "other": 1})},
        [
            {
                "kind": "error",
                "function": "train.step",
                "message": "invalid value (nan) in mul. Because ...",
                "time": 990.0,
            }
        ],
        "train.step failed 4 times: nan 3, other 1.",
        ("10 s ago: invalid value (nan) in mul",),
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
}


@pytest.mark.parametrize("case", CASES)
def test_each_mistake_is_told_in_these_words(case):
    """One mistake makes one piece of advice: finding, evidence, what to do."""
    parts, events, finding, evidence, action = CASES[case]
    (found,) = advice(events, **parts)

    assert (found.finding, found.evidence, found.action) == (finding, evidence, action)


@pytest.mark.parametrize(
    "parts",
    [
        {"memory": {"devices": [{"device": 0, "in_use": 79 * GIB}]}},
        {
            "transfers": {
                "lines": [{"direction": "device_to_host", "count": 99, "seconds": 99.0}]
            }
        },
        {
            "transfers": {
                "lines": [{"direction": "sync", "count": 9000, "seconds": 500.0}]
            }
        },
    ],
)
def test_what_is_below_the_limits_is_not_worth_a_word(parts):
    """Advice that everybody gets is read by nobody."""
    assert advice(**parts) == []


def test_advice_fits_the_commonest_error():
    """
    The last error of that kind is quoted, with its place; where its type tells what
    to do, that is said, and the type of another kind is not listened to.
    """

    def error(kind: str, exception: str, where: str | None) -> dict[str, object]:
        return {
            "kind": "error",
            "function": "train.step",
            "message": f"{exception}: something. And so on",
            "time": 1000.0,
            "details": {"error_kind": kind, "type": exception, "where": where},
        }

    events = [
        error("trace_error", "ValueError", "train.py:7"),
        error("trace_error", "TracerBoolConversionError", "train.py:8\x1b[2J"),
        error("nan", "FloatingPointError", "train.py:9"),
    ]
    failed = function(errors={"trace_error": 2, "nan": 1})
    (concrete,), (plain,) = (
        advice(events, functions=failed),
        advice(events[:1], functions=failed),
    )

    assert concrete.evidence == (
        "just now, at train.py:8\\x1b[2J: TracerBoolConversionError: something",
    )
    assert concrete.action == ERROR_TYPES["TracerBoolConversionError"]
    assert plain.evidence == ("just now, at train.py:7: ValueError: something",)
    assert plain.action == ERRORS["trace_error"]
    (single,) = advice(functions=function(errors={"nan": 3}))
    assert single.finding == "train.step failed 3 times: nan."


def test_words_are_for_errors_that_exist():
    """Kinds of errors are spelled as in the catalogue, types as in JAX."""
    assert {*ERRORS} <= {*catalog.ERROR_KINDS}
    assert {*ERROR_TYPES} <= {*dir(jax.errors)}
