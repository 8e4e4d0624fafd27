"""What `jaxmon compare` says of two runs: whom it accuses, and whom it does not."""

from typing import Any

import pytest

from jaxmon.agent.history.times import ENOUGH, RecentTimes
from jaxmon.errors import BaselineError
from jaxmon.host.formats import layout
from jaxmon.limits import Limits
from jaxmon.preflight.baseline import summaries
from jaxmon.preflight.baseline.changes import TIMES, RunChange
from jaxmon.preflight.baseline.record import RUN_SECONDS, tolerances
from jaxmon.preflight.baseline.summaries import RunComparison, as_json, lines
from tests.helpers.adversaries import HOSTILE, harmful
from tests.helpers.runs import VERSIONS, function, run, spread


CPU = {**VERSIONS, "platform": "cpu", "device": "cpu"}
MANY = {f"layer_{n}": function(place=f"model.py:{n}") for n in range(64)}
BUSY = {"usual": {"waiting": 0.7, "work": spread(0.0002)}}


def times(execution: float, dispatch: float = 0.0001, **options: Any) -> dict[str, Any]:
    """Return a function that takes so long."""
    found = spread(execution, **options), spread(dispatch, **options)
    return function(spreads=dict(zip(("execution", "dispatch"), found, strict=True)))


def compare(before: Any, after: Any, **limits: float) -> RunComparison:
    """Compare two runs by the default limits, but for *limits*."""
    return summaries.compare(before, after, Limits(**limits))


def changes(before: Any, after: Any, verdict: str = "worse") -> list[RunChange]:
    """Return the changes with *verdict*."""
    return [one for one in compare(before, after).changes if one.verdict == verdict]


def test_the_slower_function_is_named_among_many() -> None:
    """With its line, by how much, of how many samples, and what else changed."""
    slow = function(
        place="model.py:7",
        program={"programs": 1, "fingerprint": "b", "flops": 1e6},
        spreads={"execution": spread(0.03), "dispatch": spread(0.0001)},
    )
    after = run({**MANY, "layer_7": slow}, versions={**VERSIONS, "jax": "0.11.0"})
    (one,) = changes(run(MANY), after)

    assert (one.name, one.place, one.measure) == (
        "layer_7",
        "model.py:7",
        "execution_seconds",
    )
    assert one.samples == (50, 50)
    assert one.lost == pytest.approx(0.02 * 1000)
    text = "\n".join(lines(compare(run(MANY), after), width=100))
    assert "layer_7 (model.py:7): executing it takes 3.0 times as long" in text
    assert "50 and 50 samples" in text
    assert "changed: jax: 0.10.2 → 0.11.0" in text
    assert text.endswith("worse than before: layer_7")


def test_what_was_won_comes_first() -> None:
    """The largest gain is the first line, and the first of what is better."""
    faster = {"layer_7": times(0.002), "layer_8": times(0.005)}
    found = compare(run(MANY), run({**MANY, **faster}))
    text = list(lines(found, width=100))

    won = [change.name for change in found.of("better")]
    assert won == ["layer_7", "layer_8"]
    assert text[0].startswith("won: layer_7: executing it takes 0.2 times as long: 10 ")
    assert text[0].endswith(", and 1 more")
    assert text[-1].startswith("nothing worse among")


@pytest.mark.parametrize(
    "after",
    [
        MANY,
        {name: times(0.0125) for name in MANY},
        {name: times(0.02, noise=0.6) for name in MANY},
    ],
    ids=["the same", "within the margin", "noise"],
)
def test_noise_accuses_no_one(after: Any) -> None:
    """The same run, a quarter more, or times that vary more than they differ."""
    assert changes(run(MANY), run(after)) == []
    assert changes(run(MANY), run(after), "unclear") == []


def test_few_samples_are_unclear() -> None:
    """Seven on one side show nothing, however slow; the text says so."""
    found = compare(run({"f": function()}), run({"f": times(0.1, count=7)}))
    (one,) = found.of("unclear")

    assert one.reason == "fewer than 16 samples"
    assert found.of("worse") == []
    text = "\n".join(lines(found, width=100))
    assert "50 and 7 samples" in text
    assert "cannot tell: fewer than 16 samples, one a second" in text
    assert "nothing worse among 1 thing compared; 1 measure unclear" in text


def test_what_is_not_judged_is_said_and_why() -> None:
    """Of ten samples there is an estimate with bounds; what is counted is judged."""
    short = {name: times(0.01, count=10) for name in ("f", "g")}
    longer = {**short, "f": times(0.0104, count=9), "g": function(spreads={})}
    failing = {**longer, "f": {**longer["f"], "errors": {"trace_error": 3}}}
    quiet, failed = compare(run(short), run(longer)), compare(run(short), run(failing))

    assert [one.verdict for one in quiet.changes if one.measure in TIMES] == [
        "unjudged",
        "unjudged",
    ]
    assert quiet.untimed == ("g",)
    text = " ".join("\n".join(lines(quiet, width=100)).split())
    assert "NOT JUDGED fewer than 16 samples, one a second: f: dispatching it" in text
    assert (
        "f: executing it takes 10 ms (9 ms to 11 ms) → 10 ms (9.4 ms to 11 ms), 10"
        in text
    )
    assert "without times in one of the runs: g" in text
    assert text.endswith(
        "2 things compared; 2 times not judged; 1 function without times"
    )
    (one,) = failed.of("worse")
    assert (one.measure, one.before, one.after) == ("errors", 0, 3)
    assert one.evidence == ("trace_error 3",)
    assert as_json(quiet)["unjudged"] == 2


def test_a_setting_with_which_nothing_is_timed_is_said() -> None:
    """Longer runs would have no times either; without it, each call can be timed."""
    timed, untimed = run({"f": times(0.01)}), {"f": times(0.01) | {"spreads": {}}}
    checked = run(untimed, versions={**VERSIONS, "jax_debug_nans": "True"})
    text, other = (
        " ".join("\n".join(lines(compare(timed, after), width=100)).split())
        for after in (checked, run(untimed))
    )

    assert "changed: jax_debug_nans: none → True" in text
    assert "runs; with jax_debug_nans, none is measured: f All else" in text
    assert text.endswith(
        "nothing worse among 1 thing compared; 1 function without times"
    )
    assert "without times in one of the runs: f Of calls that take JAX's fast" in other
    assert "Longer runs" not in text + other


def test_few_samples_show_what_is_plainly_slower() -> None:
    """Eight that take twice as long as nine tenths before; not fewer, and not less."""

    def verdict(after: float, count: int) -> str:
        before = run({"f": times(0.01, count=count)})
        found = compare(before, run({"f": times(after, count=count)})).changes
        (one,) = (one for one in found if one.measure == TIMES[0])
        return one.verdict

    assert verdict(0.03, 8) == "worse"
    assert verdict(0.03, 7) == "unclear"
    assert verdict(0.02, 8) == "unclear"
    assert verdict(0.02, 16) == "worse"
    crowded = {"versions": CPU, **BUSY}
    before = run({"f": times(0.001, count=8)}, **crowded)
    assert (
        compare(before, run({"f": times(0.01, count=8)}, **crowded)).of("worse") == []
    )


def test_on_crowded_processors_only_what_is_slower_than_the_rest_is_worse() -> None:
    """All functions take three times as long, one of them ten times."""
    before = run({n: times(0.001, 0.0001) for n in MANY}, versions=CPU, **BUSY)
    slow = {n: times(0.003, 0.0003) for n in MANY} | {"layer_7": times(0.01)}
    found = compare(before, run(slow, versions=CPU, **BUSY))

    assert [one.name for one in found.of("worse")] == ["layer_7"]
    reasons = {one.reason for one in found.of("unclear")}
    assert reasons == {"the machine makes it 3.0 times"}


def test_on_crowded_processors_few_functions_show_nothing() -> None:
    """There is nothing to tell the machine from the program by."""
    before = run({"f": times(0.001)}, versions=CPU, **BUSY)
    found = compare(before, run({"f": times(0.01)}, versions=CPU, **BUSY))

    assert found.of("worse") == []
    assert {one.reason for one in found.of("unclear")} == {"others held the processors"}


def test_a_slower_processor_is_not_the_program() -> None:
    """The same work took twice as long there; an accelerator has no such excuse."""
    slower = {"usual": {"waiting": 0.0, "work": spread(0.0004)}}
    before, after = {"f": times(0.001)}, {"f": times(0.0018)}
    found = compare(run(before, versions=CPU), run(after, versions=CPU, **slower))
    assert found.of("worse") == []
    assert [one.reason for one in found.of("unclear")] == [
        "the machine makes it 2.0 times"
    ]

    unmeasured = {"usual": {"waiting": 0.0, "work": {"count": 5}}}
    odd = run(before, versions=CPU, **unmeasured)  # as in a file made by hand
    assert compare(odd, run(after, versions=CPU, **slower)).of("worse")

    accelerated = compare(run(before), run(after, **slower))
    assert [one.measure for one in accelerated.of("worse")] == ["execution_seconds"]


def test_more_work_needs_no_samples() -> None:
    """FLOPs of the only program are exact; of several, the latest is any of them."""
    more = {"programs": 1, "fingerprint": "b", "flops": 2e6}
    before = run({"f": function(spreads={})})
    (one,) = changes(before, run({"f": function(spreads={}, program=more)}))
    several = function(spreads={}, program={**more, "programs": 2})

    assert (one.measure, one.before, one.after) == ("flops", 1e6, 2e6)
    assert changes(before, run({"f": several})) == []


def test_recompiles_are_exact_for_the_same_calls() -> None:
    """One more is worse, with what differed; a longer run may have more of them."""
    event = {
        "kind": "recompile",
        "function": "f",
        "details": {"cause": "shape", "differences": [{"text": "argument x: a → b"}]},
    }
    before = run({"f": function(recompiles={"shape": 4}, compiles={"compiled": 5})})
    more = function(recompiles={"shape": 5}, compiles={"compiled": 6})
    (one,) = changes(before, run({"f": more}, events=[event]))
    longer = {**more, "recompiles": {"shape": 9}, "calls": 2000}

    assert (one.measure, one.before, one.after) == ("recompiles", 4, 5)
    assert one.evidence == ("causes: shape 5", "argument x: a → b")
    assert changes(before, run({"f": longer})) == []
    storm = {**longer, "recompiles": {"shape": 90}}
    assert [o.measure for o in changes(before, run({"f": storm}))] == ["recompiles"]


def test_compile_times_are_those_of_one_program() -> None:
    """Neither a crowded machine nor a cold persistent cache is the function."""
    slow = function(phases={"backend_compile": {"seconds": 3.0}})
    before = run({"f": function()})
    loaded = function(compiles={"cache_hit": 1})

    assert [o.measure for o in changes(before, run({"f": slow}))] == ["compile_seconds"]
    assert changes(before, run({"f": slow}, **BUSY)) == []
    (one,) = changes(run({"f": loaded}), run({"f": slow}), "unclear")
    assert one.reason == "loaded from the persistent cache: 1 → 0"


def test_steps_requests_and_memory_are_compared_too() -> None:
    """Each is named, as what it is."""

    def overview(factor: float, failed: int, peak: float) -> dict[str, Any]:
        usual = {
            "waiting": 0.0,
            "steps": {"train": spread(0.1 * factor)},
            "requests": {"predict": spread(0.05 * factor)},
            "peak_resident_bytes": 1e9,
        }
        finished = [
            {"outcome": "success", "start": "warm", "count": 900},
            {"outcome": "error", "start": "warm", "count": failed},
        ]
        lines = [{"file": "train.py", "line": 9, "bytes": peak / 2}]
        return {
            "usual": usual,
            "requests": {"predict": {"finished": finished}},
            "steps": {"train": {"steps": 500}},
            "memory": {"devices": [{"device": "0", "peak": peak}]},
            "allocations": {"lines": lines},
        }

    before, after = run({}, **overview(1, 0, 4e9)), run({}, **overview(2, 90, 8e9))
    found = {(one.what, one.measure): one for one in changes(before, after)}

    assert found.keys() == {
        ("loop", "step_seconds"),
        ("route", "request_seconds"),
        ("route", "failed_requests"),
        ("device", "peak_bytes"),
    }
    assert found["device", "peak_bytes"].evidence[0].startswith("train.py:9 holds ")
    assert changes(after, before) == []
    text = "\n".join(lines(compare(before, after), width=100))
    assert "loop train: a step takes 2.0 times as long: 0.10 s → 0.20 s" in text
    assert "requests to predict: 0 % → 9.1 % failed" in text
    assert "device 0: it needs 3.73 GiB → 7.45 GiB of memory at its peak" in text


def test_other_hardware_is_not_compared() -> None:
    """The error names both."""
    with pytest.raises(BaselineError, match="'H100' and 'A100' cannot be compared"):
        compare(run({}), run({}, versions={**VERSIONS, "device": "A100"}))


def test_functions_that_come_and_go_are_named() -> None:
    """They are no regression, and so is nothing in common."""
    found = compare(run({"old": function()}), run({"new": function()}))

    assert (found.new, found.vanished) == (("new",), ("old",))
    text = "\n".join(lines(found, width=80))
    assert "new: new" in text
    assert "vanished: old" in text
    assert "nothing to compare" in text


@pytest.mark.parametrize("width", [80, 120])
def test_hostile_names_fit_and_harm_nothing(width: int) -> None:
    """Neither in text, nor is the JSON anything but plain types."""
    names = {f"{HOSTILE}{n}" * 9: function() for n in range(30)}
    slow = {name: times(1.0) for name in names}
    versions = {**VERSIONS, HOSTILE: HOSTILE}
    found = compare(run(names), run(slow, versions=versions))
    text = list(lines(found, width=width))

    assert len(found.of("worse")) == 30
    assert harmful("\n".join(text)) == []
    assert all(layout.columns(line) <= width for line in text)
    assert "  and 10 more" in text
    assert as_json(found)["worse"] == 30


def test_one_limit_says_what_is_slower() -> None:
    """Of two runs, of one against its own past, and of the runs of a baseline."""
    before, after = run({"f": times(0.01)}), run({"f": times(0.015)})
    assert compare(before, after, slower=0.2).of("worse")
    assert not compare(before, after, slower=0.9).of("worse")
    for margin in (0.2, 0.9):
        followed = RecentTimes(0.0)
        for number in range(10 * ENOUGH):
            followed.add(float(number), 0.01 if number < 5 * ENOUGH else 0.015)
        assert (followed.judge(margin) is not None) == (margin < 0.5)
        allowed = tolerances((), Limits(slower=margin))[RUN_SECONDS]
        assert allowed is not None
        assert allowed.allows(0.01, 0.015) == (margin > 0.5)
