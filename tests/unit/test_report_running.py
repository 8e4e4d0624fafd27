"""Advice on what happens when programs run, in exact words."""

from typing import Any

import jax.errors
import pytest

from jaxmon import catalog
from jaxmon.symptoms.errors import ERROR_TYPES, ERRORS, FROZEN_NONFINITE, WARNINGS
from jaxmon.symptoms.requests import REQUESTS
from tests.helpers.findings import GIB, Case, findings, function, told


def requests(**finished: int) -> dict[str, Any]:
    """Return the requests of one route, by outcome."""
    found = [
        {"outcome": outcome, "start": "warm", "count": count}
        for outcome, count in finished.items()
    ]
    return {"/predict": {"finished": found}}


def device(number: int, **figures: float) -> dict[str, Any]:
    """Return the memory of a device."""
    return {"memory": {"devices": [{"device": number, **figures}]}}


def leak(**figures: Any) -> dict[str, Any]:
    """Return a leak on the first device."""
    return {"allocations": {"leaks": [{"device": 0, **figures}]}}


def transfers(
    direction: str, count: int, seconds: float, **figures: Any
) -> dict[str, Any]:
    """Return that a line of ``train.py`` transfers."""
    line = {"file": "train.py", "direction": direction, "count": count, **figures}
    return {"transfers": {"lines": [{**line, "seconds": seconds}]}}


def warned(kind: str, count: int, text: str, **where: str) -> dict[str, Any]:
    """Return that JAX has warned."""
    return {"warnings": [{"kind": kind, "count": count, "text": text, **where}]}


def event(kind: str, message: str, time: float = 0.0, **details: Any) -> dict[str, Any]:
    """Return an event of ``train.step``."""
    event = {"kind": kind, "function": "train.step", "message": message, "time": time}
    return {**event, "details": details}


FREE = (
    "Free what these lines hold, donate arguments (donate_argnums) or reduce the batch "
    "size before memory runs out."
)
KEEPS = (
    "Find what keeps references to the arrays allocated on that line. Of losses and "
    "metrics, store numbers, as of float(x), instead of arrays. A cache that is still "
    "filling looks the same."
)
NEW_KEY = (
    "Pass a new key to each call: key, subkey = jax.random.split(key); or fold the "
    "number of the step in: jax.random.fold_in(key, step)."
)
GREW = {"file": "train.py", "line": 31, "growth_bytes": 1.1 * GIB, "arrays": 1100}
BLOCKS = {"largest_free_block": 2 * GIB, "largest_allocation": 8 * GIB}
FROZEN = {
    "outputs": ["[0]", "[1].mu"],
    "counts": {"[1].notfinite_count": 600},
    "where": "train.py:4",
    "call": 301,
    "calls": 599,
    "samples": 9,
}
ONE_DEVICE = "output['w'] on device 2 only: 1 of 64 elements differ"
DONATED = "Some donated buffers were not usable: float32[5]"
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
            "The report names the program that requested memory and the lines "
            "that held it: free those first, donate arguments, or reduce the "
            "batch size."
        ),
    ),
    "memory nearly full": (
        device(3, in_use=76 * GIB, limit=80 * GIB),
        [],
        "Device 3 uses 95 % of its 80 GiB.",
        ("train.py:9 held 30 GiB of it",),
        FREE,
    ),
    "memory was nearly full": (
        device(0, peak=79 * GIB, limit=80 * GIB),
        [],
        "Device 0 has used 99 % of its 80 GiB.",
        ("train.py:9 held 40 GiB of it",),
        FREE,
    ),
    "leak": (
        leak(growth_bytes=1.2 * GIB, seconds=720, lines=[GREW]),
        [],
        "Memory of device 0 grew steadily by 1.2 GiB in 12 min.",
        ("train.py:31 grew by 1.1 GiB, to 1,100 arrays",),
        KEEPS,
    ),
    "leak that fills the device": (
        leak(growth_bytes=9 * GIB, seconds=60, full_in_seconds=110),
        [],
        (
            "Memory of device 0 grew steadily by 9 GiB in 1 min. At that pace it is "
            "full in 1 min 50 s."
        ),
        (),
        KEEPS,
    ),
    "fragmented memory": (
        device(1, in_use=40 * GIB, limit=60 * GIB, pool=60 * GIB, **BLOCKS),
        [],
        "20 GiB of device 1 are free, but in blocks of 2 GiB at most.",
        ("the largest allocation so far took 8 GiB",),
        (
            "Allocate the large arrays first and keep them, donate arguments, and use "
            "few shapes. XLA_PYTHON_CLIENT_PREALLOCATE=false fragments more."
        ),
    ),
    "fetches in a loop": (
        transfers("device_to_host", 12_345, 32.1, line=57, how="float()", bytes=49_380),
        [],
        (
            "train.py:57 read from the device 12,345 times (float()), 48.2 "
            "KiB in total, blocking for 32.1 s."
        ),
        (),
        (
            "Each read waits for all preceding device work. If the value is not "
            "needed immediately, read it one step later, or every hundredth step."
        ),
    ),
    "copies in a loop": (
        transfers("host_to_device", 500, 8.0, line=8, bytes=1 * GIB),
        [],
        (
            "train.py:8 copied to the device 500 times, 1 GiB in total, blocking for "
            "8.0 s."
        ),
        (),
        ("Transfer constant data once with jax.device_put, and prefetch the rest."),
    ),
    "numbers in a loop": (
        transfers("host_to_device", 50_000, 8.0, line=9, how="fold_in", bytes=200_000),
        [],
        (
            "train.py:9 copied to the device 50,000 times (fold_in), 195 KiB in "
            "total, blocking for 8.0 s."
        ),
        (),
        (
            "These are numbers or small arrays: pass them to a jitted function as "
            "NumPy values and compute with them there."
        ),
    ),
    "errors": (
        {"functions": function(errors={"nan": 3, "other": 1})},
        [event("error", "invalid value (nan) in mul. Because ...", time=990.0)],
        "train.step failed 4 times: nan 3, other 1.",
        ("10 s ago: invalid value (nan) in mul",),
        ERRORS["nan"],
    ),
    "failing requests": (
        {"requests": requests(success=1840, client_error=20, error=160)},
        [],
        "160 requests to /predict failed, 7.9 % of 2,020.",
        (),
        REQUESTS,
    ),
    "donated in vain": (
        warned("donation", 2, DONATED, function="train.step", where="train.py:9"),
        [],
        f"JAX warned in train.step, twice: {DONATED}.",
        ("at train.py:9",),
        WARNINGS["donation"],
    ),
    "no accelerator": (
        warned("backend", 1, "A GPU may be present. Falling back to cpu."),
        [],
        "JAX warned: A GPU may be present. Falling back to cpu.",
        (),
        WARNINGS["backend"],
    ),
    "float64": (
        {"functions": function(numerics={"float64_programs": 1})},
        [],
        "train.step computes in float64 in 1 program, although no argument is float64.",
        (),
        "Look for NumPy values, Python floats converted to arrays, and missing dtypes.",
    ),
    "double": (
        {"functions": function(program={"double": True})},
        [],
        "train.step multiplies matrices in float64: jax_enable_x64 is on.",
        (),
        (
            "If that is not meant, look for the code that enables it, perhaps in a "
            "library, and convert the data. float32 takes half the memory, and on "
            "most accelerators a small part of the time."
        ),
    ),
    "frozen state": (
        {"functions": function(numerics={"frozen": FROZEN})},
        [],
        (
            "The state that train.step returns has not changed since call 301 at the "
            "latest, for 599 calls, although other outputs do: its updates are "
            "skipped, or zero."
        ),
        (
            "unchanged in 9 sampled calls: output [0], [1].mu",
            "[1].notfinite_count is 600",
        ),
        FROZEN_NONFINITE,
    ),
    "debugging": (
        {"process": {"debugging": {"jax_debug_nans": "train.py:2"}}},
        [],
        (
            "jax_debug_nans is on: each call waits for its outputs, and has them "
            "searched for NaN on the host. There were 9,000 calls."
        ),
        (),
        (
            "Turn it off, and set JAX_DEBUG_NANS=1 for a run that is to find an error. "
            "It is slow."
        ),
    ),
    "a line that draws from one key": (
        {"draws": [{"place": "a.py:7", "draws": 900, "samples": 9, "same": 800}]},
        [],
        (
            "a.py:7 drew from the same PRNG key 800 times, as far as 9 samples show: "
            "the same random numbers each time."
        ),
        (),
        NEW_KEY,
    ),
    "same key": (
        {"functions": function(keys={"samples": 5, "calls": 400})},
        [],
        (
            "train.step got the same PRNG key in 400 calls, as far as 5 samples show, "
            "and draws from it: the same random numbers each time."
        ),
        (),
        NEW_KEY,
    ),
    "deviation": (
        {"functions": function(determinism={"checks": {"passed": 3, "failed": 2}})},
        [event("determinism", "output 0 deviates by 1e-3", deviations=[])],
        "train.step returned different outputs for the same inputs twice.",
        ("output 0 deviates by 1e-3",),
        (
            "Look for numbers that are drawn without a key, as by "
            "`jax.lax.rng_uniform`, and, on GPUs, for non-deterministic reductions "
            "(try --xla_gpu_deterministic_ops=true). If there is neither, suspect the "
            "device."
        ),
    ),
    "device": (
        {
            "functions": function(
                determinism={"checks": {"passed": 3, "failed": 2}, "devices": {"2": 2}}
            )
        },
        [event("determinism", ONE_DEVICE, deviations=[], devices=[2])],
        "Outputs of train.step differed twice on device 2, and on no other.",
        (ONE_DEVICE,),
        (
            "Suspect that device: take its host out of service and test it. Results "
            "since the first failure are suspect too; restart from a checkpoint before "
            "it."
        ),
    ),
    "gradients": (
        {"functions": function(determinism={"gradient_checks": {"failed": 1}})},
        [event("determinism", "wrong gradients: not equal to tolerance")],
        "Gradient checks of train.step failed once.",
        ("wrong gradients: not equal to tolerance",),
        (
            "Check its custom derivative, if any; rounding and comparisons have "
            "no gradient."
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_mistake_is_told_in_these_words(case):
    """One mistake makes one finding: verdict, evidence, what to do."""
    assert told(CASES[case]) == CASES[case][2:]


@pytest.mark.parametrize(
    "parts",
    [
        device(0, in_use=79 * GIB),
        transfers("device_to_host", 99, 99.0),
        # The device computes meanwhile.
        {
            **transfers("device_to_host", 800, 20.0),
            "functions": function(
                calls=900, recompiles={}, samples={"execution_mean": 0.02}
            ),
        },
        transfers("sync", 9000, 500.0),
        warned("deprecated", 9, "Use that."),
        {"draws": [{"place": "a.py:7", "draws": 900, "samples": 2, "same": 800}]},
        {"draws": [{"place": "a.py:7", "draws": 900, "samples": 9, "same": 50}]},
        {
            "process": {"debugging": {"jax_debug_nans": "train.py:2"}},
            "functions": function(calls=900),
        },
        {"requests": requests(success=10_000, error=30)},
        {"requests": requests(success=3, error=4)},
        {"requests": requests(success=3, client_error=900)},
    ],
)
def test_what_is_below_the_limits_is_not_worth_a_word(parts):
    """A finding that everyone gets is ignored."""
    assert findings(**parts) == []


def test_advice_fits_the_commonest_error():
    """The last error of that kind is quoted; its type may decide the advice."""

    def error(kind: str, exception: str, where: str) -> dict[str, object]:
        details = {"error_kind": kind, "type": exception, "where": where}
        return event("error", f"{exception}: something. And so on", 1000.0, **details)

    events = [
        error("trace_error", "ValueError", "train.py:7"),
        error("trace_error", "TracerBoolConversionError", "train.py:8\x1b[2J"),
        error("nan", "FloatingPointError", "train.py:9"),
    ]
    failed = function(errors={"trace_error": 2, "nan": 1})
    (concrete,), (plain,) = (
        findings(events, functions=failed),
        findings(events[:1], functions=failed),
    )

    assert concrete.evidence == (
        "just now, at train.py:8\\x1b[2J: TracerBoolConversionError: something",
    )
    assert concrete.action == ERROR_TYPES["TracerBoolConversionError"]
    assert plain.evidence == ("just now, at train.py:7: ValueError: something",)
    assert plain.action == ERRORS["trace_error"]
    (single,) = findings(functions=function(errors={"nan": 3}))
    assert single.verdict == "train.step failed 3 times: nan."


def test_words_are_for_errors_that_exist():
    """Kinds of errors are spelled as in the catalogue, types as in JAX."""
    assert {*ERRORS} <= {*catalog.ERROR_KINDS}
    assert {*ERROR_TYPES} <= {*dir(jax.errors)}
    assert {*WARNINGS} <= {*catalog.WARNING_KINDS}
