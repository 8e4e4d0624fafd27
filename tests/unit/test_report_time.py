"""Findings on where the time goes, and on programs that do not get on."""

from typing import Any

import pytest

from jaxmon.facts.process import read
from jaxmon.screens import text
from jaxmon.screens.time_table import stacks, time_table
from jaxmon.symptoms.findings import about, verdict
from tests.helpers.findings import (
    NO_MORE,
    compiled,
    computing,
    findings,
    found,
    function,
    ledger,
)


@pytest.mark.parametrize(
    ("state", "topic"),
    [
        ("eager", "eager"),
        ("data_wait", "data_wait"),
        ("blocked", "blocked"),
        ("transfer", "copies"),
    ],
)
def test_a_tenth_of_the_time_is_worth_a_finding(state, topic):
    """It says how much, where, and what it would win; a little less is silence."""
    (much,) = found({state: 0.11, "device": 0.05})

    assert (much.topic, much.where) == (topic, f"{state}.py:7")
    assert much.seconds == pytest.approx(66.0)
    assert "11 %" in much.verdict
    assert found({state: 0.09, "device": 0.05}) == []


def test_a_wait_that_has_not_ended_is_no_loop_that_loses_time():
    """A program that has done its work, and waits for input, is not accused."""
    waits = {"state": "blocked", "place": "blocked.py:7", "seconds": 200.0}

    assert findings(time=ledger({"blocked": 0.35}, **waits), **NO_MORE) == []
    (rest,) = findings(time=ledger({"blocked": 0.5}, **waits), **NO_MORE)
    assert rest.seconds == pytest.approx(100.0)


def test_waiting_in_an_activity_that_the_program_marks_is_expected():
    """
    A loop that rests on purpose is not accused, nor are threads that wait at once; a
    loop that also waits elsewhere is, with the line that calls that.
    """
    time = ledger({"blocked": 0.9})
    waits = {"state": "blocked", "place": "b.py:2"}
    time["since_start"]["places"] = [
        {"activity": "rest", "state": "blocked", "place": "a.py:1", "seconds": 174.0},
        {**waits, "place": "d.py:4", "seconds": 300.0, "divided": True},
        {**waits, "seconds": 66.0, "caller": "c.py:3"},
    ]
    (only,) = findings(time=time, **NO_MORE)

    assert (only.topic, only.where, only.seconds) == ("blocked", "b.py:2", 66.0)
    assert only.evidence == ("called from c.py:3",)
    assert "asyncio" not in only.action

    time["since_start"]["places"][2]["event_loop"] = True
    (only,) = findings(time=time, **NO_MORE)
    assert "asyncio.to_thread" in only.action


@pytest.mark.parametrize(
    ("started", "at_once", "is_found"),
    [(20, 2, True), (20, 8, False), (0, 0, False)],
)
def test_processes_that_are_started_anew(started, at_once, is_found):
    """As by a pool for each batch: what waits for them is not expected."""
    time = ledger({"blocked": 0.5})
    waits = {"state": "blocked", "place": "d.py:4", "divided": True}
    time["since_start"]["places"] = [{**waits, "seconds": 300.0}]
    time |= {"processes": started, "processes_at_once": at_once}

    got = [(of.topic, of.where) for of in findings(time=time, **NO_MORE)]
    assert got == [("processes", "d.py:4")] * is_found


@pytest.mark.parametrize(
    ("marked", "topics"),
    [
        ({}, ["blocked", "sleeps"]),
        ({"requests": {"/": {"in_progress": 0}}}, ["blocked", "sleeps"]),
        ({"requests": {"/": {"in_progress": 1}}}, ["blocked"]),
        ({"queues": {"jobs": {"depth": 2}}}, ["blocked"]),
        ({"steps": {"train": {"steps": 9}}}, ["blocked"]),
    ],
)
def test_a_program_that_sleeps_is_accused_only_if_work_waits(marked, topics):
    """It may rest on purpose: no gain is promised, but of what waits otherwise."""
    time, waits = ledger({"blocked": 0.9}), {"state": "blocked", "seconds": 240.0}
    time["since_start"]["places"] = [
        {**waits, "place": "a.py:1", "seconds": 300.0, "sleeps": True},
        {**waits, "place": "b.py:2"},
    ]
    blocked, *rest = got = findings(time=time, **{**NO_MORE, **marked})

    assert [one.topic for one in got] == topics
    assert blocked.seconds == pytest.approx(240.0)
    assert blocked.verdict.startswith("The program slept for 9 min") is (not rest)
    assert blocked.where == ("b.py:2" if rest else "a.py:1")
    for note in rest:
        assert note.verdict.startswith("The program slept for 5 min")
        assert (note.where, note.seconds) == ("a.py:1", 0.0)
        assert 'jaxmon.activity("rest")' in note.action

    time["since_start"]["places"][1]["sleeps"] = True
    (only,) = findings(time=time, **{**NO_MORE, **marked})
    assert (only.topic, round(only.seconds)) == (topics[-1], 0)


@pytest.mark.parametrize(("error", "topics"), [(5.0, ["blocked"]), (7.0, [])])
def test_what_may_be_less_than_a_tenth_is_no_finding(error, topics):
    """Of few looks, 11 % may as well be 9 %."""
    time = ledger({"blocked": 0.11})
    time["since_start"]["states"]["blocked"]["error_seconds"] = error

    assert [one.topic for one in findings(time=time, **NO_MORE)] == topics


def test_waiting_for_checkpoints_is_no_riddle():
    """Orbax says how long its saves block, and wait for each other."""

    def advice(seconds: float) -> str:
        saves = {
            "wait": {"count": 7, "mean_seconds": seconds / 7},
            "save": {"count": 7},
        }
        (only,) = found({"blocked": 0.5}, checkpoints=saves)
        return only.action

    assert "checkpoints" in advice(240.0)
    assert "checkpoints" not in advice(60.0)


def test_garbage_is_told_with_its_line():
    """Time in the collector is not taken for Python of that line."""
    (only,) = found({"gc": 0.4})

    assert (only.topic, only.where) == ("garbage", "gc.py:7")
    assert "gc.freeze" in only.action


def test_starting_up_is_not_work_that_could_wait():
    """It is told with its line; reads do not keep the host from importing."""
    line = {"place": "fetch.py:7", "direction": "device_to_host", "count": 9_000}
    (only, rest) = found(
        {"startup": 0.4, "fetch": 0.5},
        functions=computing(300.0),
        transfers={"lines": [line]},
    )

    assert (only.topic, rest.topic) == ("device", "startup")
    assert rest.where == "startup.py:7"
    assert about(rest).urgency.name == "NOTE"


def test_waiting_for_a_busy_device_is_no_fault():
    """Whoever reads the loss at each step is told that the device computes."""
    (only,) = found({"fetch": 0.9, "python": 0.05}, functions=computing(540.0))

    assert only.topic == "device"
    assert about(only).urgency.name == "NOTE"
    _, lead, first, *_ = text.finding_lines(
        [only], read({"process": {"observed_seconds": 600.0}}), 88
    )
    assert lead == "  Nothing to fix stands out. What takes the time:"
    assert first.startswith("  1. ")


@pytest.mark.parametrize(
    ("calls", "execution", "doubts"),
    [(300, None, True), (300, 1.8, False), (90_000, None, False), (None, None, False)],
)
def test_what_calls_compute_is_known_or_said_not_to_be(calls, execution, doubts):
    """Of calls long enough to be measured, it must be before all is well."""
    samples = {"execution_mean": execution, "samples": 9}
    step = function(calls=calls, samples=samples)
    (only,) = found({"fetch": 0.9}, functions=step)

    assert only.topic == ("unmeasured" if doubts else "device")
    assert verdict([only]) == ("" if doubts else "Nothing to fix stands out.")
    end = " How much of that the device computed is not known."
    assert only.verdict.endswith(end) == doubts


@pytest.mark.parametrize(("calls", "is_found"), [(10_000, False), (100, True)])
def test_what_was_not_measured_may_be_what_the_device_computes(calls, is_found):
    """If that is most of the calls, a read may well wait for one of them."""
    other = {**function()["train.step"], "calls": calls, "samples": {}}
    both = {**computing(60.0), "train.decode": other}
    all_ = found({"fetch": 0.5}, functions=both)

    assert ("fetch" in [of.topic for of in all_]) is is_found


def test_waiting_for_a_processor_is_no_idle_device():
    """While others hold the processors, nothing is won by reading later, or ahead."""

    def won(state: str, waiting: float) -> list[Any]:
        figures = {"functions": computing(60.0), "usual": {"waiting": waiting}}
        return [one.seconds for one in found({state: 0.5}, **figures)]

    assert won("fetch", 0.1) == [pytest.approx(210.0)]
    assert won("data_wait", 0.1) == [pytest.approx(270.0)]
    assert won("fetch", 0.6) == []
    assert won("data_wait", 0.9) == []


def test_python_is_no_fault_while_the_device_computes():
    """What the host does meanwhile costs nothing."""
    busy = found({"fetch": 0.2, "python": 0.8}, functions=computing(590.0))
    idle = found({"fetch": 0.2, "python": 0.8}, functions=computing(120.0))

    assert [one.topic for one in busy if about(one).urgency.name == "TIME"] == []
    assert [one.topic for one in idle][:1] == ["host"]


@pytest.mark.parametrize(("flops", "is_short"), [(2e2, True), (2e6, False)])
def test_a_short_call_is_no_work_of_the_device(flops, is_short):
    """What is measured of one is the call: several steps in one would save that."""
    calls = computing(590.0)
    calls["train.step"] |= {
        "calls": 20_000_000,
        "samples": dict.fromkeys(("dispatch_seconds", "execution_seconds"), 2e-5)
        | {"execution_mean": 3e-5, "samples": 500},
        "program": {"flops": flops, "accessed_bytes": 1e3},
    }
    time = ledger({"device": 0.5, "python": 0.4})
    time["since_start"]["places"][1]["function"] = "train.step"
    said = findings(time=time, transfers={}, functions=calls)

    assert [of.topic for of in said] == ["host" if is_short else "device"]
    assert ("do several steps in one" in said[0].action) is is_short
    assert (said[0].where == "python.py:7") is is_short


def test_operations_are_blamed_for_what_the_device_computes_of_them():
    """Without jitted functions, waiting for results is waiting for operations."""
    (only,) = findings(
        time=ledger({"eager": 0.05, "fetch": 0.9}), functions={}, transfers={}
    )

    assert only.topic == "eager"
    assert only.seconds == pytest.approx(570.0)
    assert only.verdict.endswith(" 95 % of it at fetch.py:7.")


@pytest.mark.parametrize("caller", ["loop.py:4", ""])
def test_operations_have_the_line_that_a_loop_calls_them_at_first(caller):
    """Their own lines follow, which are those of a model; without one, they lead."""
    time, place = ledger({"eager": 0.9}), {"state": "eager", "caller": caller}
    time["since_start"]["places"] = [
        {**place, "place": "model.py:9", "seconds": 300.0},
        {**place, "place": "model.py:7", "seconds": 240.0},
    ]
    (only,) = findings(time=time, **NO_MORE)

    assert only.where == (caller or "model.py:9")
    assert (only.evidence[0] == "in model.py:9: 5 min") is bool(caller)
    assert ("100 % of it at loop.py:4" in only.verdict) is bool(caller)
    assert only.evidence[-1].endswith("model.py:7: 4 min")


def test_samples_are_no_sum():
    """Times of a few calls, times all of them, may be more than the clock had."""
    many = {
        f"train.{name}": {"calls": calls, "samples": {"execution_mean": 1.0}}
        for name, calls in (("step", 6_000), ("evaluate", 2_000))
    }
    (only,) = found({"fetch": 0.5}, functions=many)

    assert (only.topic, only.evidence) == (
        "device",
        (
            "train.step: about 75 % of it, in 6,000 calls",
            "train.evaluate: about 25 % of it, in 2,000 calls",
        ),
    )


def test_who_runs_on_devices_of_others_may_wait_for_them():
    """Waiting for a slower rank is no computing."""
    (step,) = computing(60.0).values()
    alone, together = (
        found({"fetch": 0.5}, functions={"step": {**step, "program": {"devices": n}}})
        for n in (1, 8)
    )

    assert "the device was computing for about 1 min: " in alone[0].verdict
    assert "for about 1 min, or waiting for other processes: " in together[0].verdict


def test_tracing_without_a_compile_belongs_to_the_operations():
    """Outside of jit, a gradient is traced on each call, and nothing is compiled."""
    functions = function(phases={"backend_compile": {"seconds": 6.0}}, recompiles={})
    (only,) = found({"eager": 0.3, "compile": 0.6}, functions=functions)

    assert only.topic == "eager"
    assert only.seconds == pytest.approx(180 + 360 - 6)


@pytest.mark.parametrize(("compiled", "is_found"), [(20.0, True), (200.0, False)])
def test_tracing_is_what_no_error_explains(compiled, is_found):
    """What was measured and what looks found may differ by as much."""
    phases = {"backend_compile": {"seconds": compiled}}
    functions = function(phases=phases, recompiles={})
    got = found({"compile": 0.5}, functions=functions)

    assert ("eager" in {of.topic for of in got}) == is_found


def test_a_line_that_rests_keeps_no_device_waiting():
    """Looks find a thread there awake that was just woken up; another line counts."""
    states = {"python": 0.35, "blocked": 0.4}
    time = ledger(states)
    slept = {**time["since_start"]["places"][0], "place": "blocked.py:7"}
    time["since_start"]["places"][0] = slept
    topics = [one.topic for one in findings(time=time, **NO_MORE)]
    assert topics == ["blocked"]
    topics = [one.topic for one in findings(time=ledger(states), **NO_MORE)]
    assert topics == ["blocked", "host"]


@pytest.mark.parametrize("state", ["python", "transfer", "data_wait"])
def test_what_is_done_once_before_a_loop_is_no_fault(state):
    """Unless that line calls JAX, too: a library there may have the loop."""
    time = ledger({state: 0.75, "device": 0.2})
    once, call = time["since_start"]["places"]
    again = {"state": state, "place": "loop.py:9", "seconds": 180.0}
    time["since_start"]["places"] = [{**once, "seconds": 270.0, "once": True}, again]

    def topics(*more: dict[str, Any]) -> dict[str, tuple[str, float]]:
        time["since_start"]["places"][2:] = more
        found = findings(time=time, **NO_MORE)
        return {of.topic: (of.where, round(of.seconds)) for of in found}

    (fault,) = topics(call).keys() - {"once", "device"}
    assert topics(call)[fault] == ("loop.py:9", 180)
    assert topics(call)["once"] == (f"{state}.py:7", 0)
    found = topics({**call, "place": f"{state}.py:7"})
    assert (found[fault], "once" in found) == ((f"{state}.py:7", 450), False)
    time["since_start"]["places"][1]["seconds"] = 0.0
    time["since_start"]["states"][state]["seconds"] = 270.0
    assert topics(call).keys() - {"device"} == {"once"}


def test_a_program_that_is_compiled_ahead_of_time_waits_for_no_operations():
    """Its calls are not counted; without any, operations are what it waits for."""
    states = {"fetch": 0.6, "eager": 0.01}

    def topics(**functions: Any) -> set[str]:
        return {of.topic for of in found(states, functions=functions)}

    assert "eager" in topics()
    assert "eager" not in topics(**compiled(3, 1.0, calls=None, hits=None, misses=0))


def test_a_server_with_time_to_spare_does_not_lose_it_in_python():
    """Its device waits for requests, not for the code that reads them."""
    some: dict[str, Any] = {"requests": {"predict": {}}}

    def topics(idle: float, **parts: Any) -> list[str]:
        all_ = found({"python": 0.3, "idle": idle}, **parts)
        return [one.topic for one in all_]

    assert topics(0.6, **some) == ["idle"]
    assert topics(0.2, **some) == ["host", "idle"]
    assert "when the service starts" in found({"python": 0.3}, **some)[0].action
    assert topics(0.6) == ["host", "idle"]


def test_operations_are_no_fault_while_the_device_is_busy():
    """A key that is split while the device computes the step before costs nothing."""
    states = {"eager": 0.2, "device": 0.7}

    def topics(busy: float) -> list[str]:
        return [one.topic for one in found(states, functions=computing(busy))]

    assert topics(430.0) == ["eager", "device"]
    assert topics(590.0) == ["device"]


def test_of_few_looks_only_what_is_certain_is_judged():
    """Of what may be chance, nothing is said, nor that nothing is to fix."""

    def told(looks: int, share: float, error: float) -> list[Any]:
        few = ledger({"eager": share, "startup": 1 - share})
        period = few["since_start"]
        period.update(seconds=4.0, looks=looks)
        period["states"]["eager"] = {"seconds": 4 * share, "error_seconds": 4 * error}
        period["places"][0]["seconds"] = 4 * share
        process = {"observed_seconds": 4.0, "now": 1000.0}
        return findings(time=few, process=process, transfers={})

    short = "Too short to judge where the time goes (4.0 s observed; from 5 s on)."
    (much, rest) = told(60, 0.8, 0.1)
    assert much.verdict == (
        "Operations outside of jit took at least 2.8 s, 70 % of 4.0 s: 99.9 % of it at "
        "eager.py:7."
    )
    assert (much.seconds, rest.verdict) == (pytest.approx(2.8), short)
    for looks, share, error in ((60, 0.3, 0.2), (10, 0.9, 0.1), (60, 0.25, 0.1)):
        (only,) = told(looks, share, error)
        assert only.verdict == short
    assert not verdict([only])
    lines = text.finding_lines([only], read({"process": {"observed_seconds": 4.0}}), 88)
    assert lines == ["FINDINGS", f"  {short}"]


def test_a_wait_that_goes_on_has_one_time():
    """After a while it is idle time, which the table adds; not at another line."""
    time = ledger({"data_wait": 0.5, "idle": 0.1})
    time["now"] = {"state": "data_wait", "place": "data_wait.py:7", "seconds": 75.0}

    def rows() -> dict[str, str]:
        table = time_table(read({"time": time}))
        return {name: took for name, took, *_ in table.rows}

    assert rows() == {"waiting for data": "5 min", "idle": "1 min"}
    time["since_start"]["places"][1]["place"] = "data_wait.py:7"
    assert rows() == {"waiting for data": "6 min"}


def test_threads_with_equal_stacks_are_shown_once():
    """A pool of workers takes as much room as one."""
    stack = ["queue.py:171 in get", "pool.py:9 in work"]
    main = {"name": "MainThread", "native_id": 7, "state": "device", "stack": ["a:1"]}
    pool = [{"name": f"w{n}", "state": "idle", "stack": stack} for n in range(3)]

    assert stacks({"threads": [main, *pool]}, 80) == [
        "MainThread (7): running jitted functions",
        "  a:1",
        "",
        "w0 and 2 more: idle",
        "  queue.py:171 in get",
        "  pool.py:9 in work",
    ]
    assert stacks({"threads": 3}, 80) == []
    waits = {"name": "w", "state": "idle", "stack": stack, "place": "pool.py:9"}
    assert stacks({"threads": [waits]}, 80)[0] == "w: idle, at pool.py:9"
    sleeps = {**waits, "state": "python"}  # or runs: a stack does not say
    assert stacks({"threads": [sleeps]}, 80)[0] == "w: at pool.py:9"
    locks = {**sleeps, "lock": True}
    assert stacks({"threads": [locks]}, 80)[0] == "w: acquiring a lock, at pool.py:9"


def test_what_threads_may_wait_for_is_listed_below_their_stacks():
    """Workers that are gone have none."""
    waits = {"name": "w", "state": "item", "stack": ["a.py:9 in get"]}
    gone = "process w (pid 7) was ended by SIGKILL"
    assert stacks({"threads": [waits], "failed": [gone]}, 80) == [
        "w: waiting for an item of a queue",
        "  a.py:9 in get",
        "",
        gone,
    ]


def test_checks_of_a_setting_for_debugging_are_no_reads_of_the_program():
    """They cost what its finding says, also of few calls; the first setting has it."""
    settings = {"jax_debug_nans": "train.py:2", "jax_debug_infs": "train.py:3"}
    process = {"observed_seconds": 600.0, "debugging": settings}
    time = ledger({"fetch": 0.5, "python": 0.05})
    at = {"state": "fetch", "place": "train.py:9", "seconds": 300.0}
    time["since_start"]["places"] = [{**at, "function": "train.step"}]
    few = function(calls=20)
    (nans,) = findings(process=process, time=time, functions=few)

    assert (nans.topic, nans.subject, nans.seconds) == (
        "debugging",
        "jax_debug_nans",
        300,
    )
    assert nans.evidence == ("the checks took 5 min of 10 min", "train.py:9")
    time["since_start"]["places"] = [at]
    (waits,) = findings(process=process, time=time, functions=few)
    assert waits.topic == "device"


def test_operations_are_not_blamed_if_jit_is_disabled():
    """They are in jitted functions already: the setting is to blame for their time."""
    process = {"observed_seconds": 600.0, "now": 1000.0}
    off = {**process, "debugging": {"jax_disable_jit": "a.py:3"}}
    (only,) = found({"eager": 0.7}, process=off)

    assert (only.topic, only.where) == ("debugging", "a.py:3")
    assert only.seconds == pytest.approx(420.0)
    assert only.evidence == ("operations took 7 min of 10 min", "eager.py:7")
    (other,) = found({"eager": 0.7}, process=process)
    assert other.topic == "eager"
