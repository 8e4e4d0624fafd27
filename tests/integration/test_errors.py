"""
Errors on every way out: each counted once, told to who asked, and reported if memory
ran out.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.functions import Function
from tests.instrumented import instrumented, samples, value
from tests.support import run_python


pytestmark = pytest.mark.ground_truth

ERRORS = "jaxmon_errors_total"
REPORTS = "jaxmon_oom_reports_total"
RuntimeError_ = jax.errors.JaxRuntimeError
FULL = "RESOURCE_EXHAUSTED: Out of memory allocating 64 bytes."


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """
    Return an agent that reports into a directory of the test.
    """
    monkeypatch.setattr(sys, "excepthook", lambda *_: None)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    with instrumented(report_dir=str(tmp_path / "reports")) as running:
        yield running


def kinds(agent: Agent) -> dict[tuple[str, str], float]:
    """
    Return the errors counted so far by the function's last name and kind.
    """
    found = {}
    for series, count in samples(agent).items():
        if series.startswith(ERRORS) and count:
            function, kind = series.split('"')[1::2]
            found[function.rpartition(".")[2], kind] = count
    return found


def fail(function: Callable[..., object], *args: Any) -> BaseException:
    """
    Return the error that *function* raises.
    """
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return error
    msg = "no error"
    raise AssertionError(msg)


# --- real errors -----------------------------------------------------------------


def as_float(x: Any) -> float:
    return float(x)


def as_bool(x: Any) -> Any:
    return 1 if x else 2


def as_array(x: Any) -> Any:
    return np.asarray(x)


def stops(_: Any) -> Any:
    raise StopIteration


def raises(_: Any) -> Any:
    error = ValueError("the user's")
    raise error


def makes_much() -> Any:
    return jnp.zeros(10**14)


def returns_text(_: Any) -> Any:
    return "text"


def takes_log(x: Any) -> Any:
    return jnp.log(x)


def uses_twice(key: Any) -> Any:
    return jax.random.normal(key) + jax.random.uniform(key)


def identity(x: Any) -> Any:
    return x


def calls_back(x: Any) -> Any:
    shape = jax.ShapeDtypeStruct((), np.float32)
    return jax.pure_callback(refuse, shape, x)


def refuse(_: Any) -> Any:
    error = ValueError("in the callback")
    raise error


@pytest.mark.parametrize(
    ("function", "args", "kind"),
    [
        (as_float, (1.0,), "trace_error"),
        (as_bool, (1.0,), "trace_error"),
        (as_array, (1.0,), "trace_error"),
        (stops, (1.0,), "trace_error"),
        (raises, (1.0,), "trace_error"),
        (returns_text, (1.0,), "trace_error"),
        (makes_much, (), "oom"),
        (calls_back, (1.0,), "internal"),
    ],
)
def test_errors_of_a_call_have_their_kind(
    agent: Agent, function: Callable[..., Any], args: tuple[Any, ...], kind: str
) -> None:
    """
    Provoked for real, on each supported JAX, with a line of the user's.
    """
    fail(lambda: jax.block_until_ready(jax.jit(function)(*args)))

    assert kinds(agent) == {(function.__name__, kind): 1}
    (event,) = agent._context.events.since(kind="error")
    assert event.details["error_kind"] == kind
    assert "test_errors.py:" in str(event.details["where"])


def test_the_check_for_nan_has_its_kind(agent: Agent) -> None:
    """
    On a miss, and on a cached call. That is run again operation by operation to find
    the one to blame, which newer releases then tell, older ones the function.
    """
    jitted = jax.jit(takes_log)
    jitted(1.0)
    with jax.debug_nans(new_val=True):
        fail(jax.jit(lambda x: jnp.log(x) + 1), -1.0)
        error = fail(jitted, -1.0)
    agent._hooks.see_error(error)

    first, second = kinds(agent)
    assert set(kinds(agent).values()) == {1}
    assert {first, second} - {("takes_log", "nan"), ("log", "nan")} == {
        ("<lambda>", "nan")
    }


def test_the_check_for_used_keys_has_its_kind(agent: Agent) -> None:
    """
    It is an error about types to JAX; here it stands for itself.
    """
    with jax.debug_key_reuse(new_val=True):
        fail(jax.jit(uses_twice), jax.random.key(0))

    assert {kind for _, kind in kinds(agent)} == {"key_reuse"}
    assert sum(kinds(agent).values()) == 1


def test_an_argument_that_jax_refuses(agent: Agent) -> None:
    """
    Neither traced nor sent: the caller's fault.
    """
    with jax.transfer_guard("disallow"):
        fail(jax.jit(identity), np.ones(3))

    assert kinds(agent) == {("identity", "invalid_argument"): 1}


def test_an_error_under_a_transformation_is_that_of_the_function(agent: Agent) -> None:
    """
    The outermost jitted function on the way is the one that failed.
    """
    fail(jax.grad(jax.jit(raises)), 1.0)
    fail(jax.vmap(jax.jit(as_float)), np.ones(3))

    expected = {("raises", "trace_error"): 1, ("as_float", "trace_error"): 1}
    assert kinds(agent) == expected


def test_an_interrupt_is_no_error(agent: Agent) -> None:
    """
    Ctrl-C and the end of a program are what the user wants.
    """

    def interrupted(_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jax.jit(interrupted)(1.0)
    sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
    sys.excepthook(SystemExit, SystemExit(1), None)

    assert kinds(agent) == {}


def test_the_users_own_messages_can_be_kept_out(tmp_path: Path) -> None:
    """
    Without values, an event tells the class of the user's exception only.
    """
    with instrumented(report_dir=str(tmp_path), event_values=False) as agent:
        fail(jax.jit(raises), 1.0)
        fail(jax.jit(makes_much))
        own, jaxs = agent._context.events.since(kind="error")

    assert own.message == "ValueError"
    assert "Out of memory" in jaxs.message


# --- where they surface ----------------------------------------------------------


def test_an_error_is_counted_once_however_often_it_is_seen(agent: Agent) -> None:
    """
    On its way out of a call, of a request, of an activity, and at the top.
    """
    import jaxmon

    def program() -> None:
        with jaxmon.request("predict"), jaxmon.activity("evaluation"):
            jax.jit(makes_much)()

    error = fail(program)
    sys.excepthook(type(error), error, error.__traceback__)

    assert kinds(agent) == {("makes_much", "oom"): 1}


def test_a_builtin_error_is_counted_once_and_its_like_again(agent: Agent) -> None:
    """
    A ValueError of a cached call allows no weak reference; its successor often lives
    at the same address.
    """
    for _ in range(20):
        error = ValueError("INTERNAL: from a cached call")
        for _ in range(3):
            agent._hooks.see_error(error)
        del error

    assert kinds(agent) == {("unknown", "internal"): 20}


def test_seeing_an_error_keeps_nothing_alive(agent: Agent) -> None:
    """
    Its traceback holds the program's arrays, of which there are too many already.
    """
    import weakref

    class Kept:
        pass

    def throw(_: Kept) -> None:
        raise RuntimeError_(FULL)

    def program() -> weakref.ref[Kept]:
        held = Kept()
        agent._hooks.see_error(fail(throw, held))
        return weakref.ref(held)

    found = program()
    gc.collect()

    assert found() is None
    assert agent._parts.errors._seen_weakly == {}


@pytest.mark.parametrize("made", [RuntimeError_, ValueError])
def test_what_ends_a_thread_is_counted(agent: Agent, made: type[Exception]) -> None:
    """
    `threading.excepthook` sees it.
    """

    def work() -> None:
        error = made("UNAVAILABLE: the peer left")
        raise error

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert kinds(agent) == {("unknown", "unavailable"): 1}


def test_what_a_finaliser_raises_is_counted(agent: Agent) -> None:
    """
    `sys.unraisablehook` sees it.
    """

    class Failing:
        def __del__(self) -> None:
            error = RuntimeError_("DEADLINE_EXCEEDED: too late")
            raise error

    failing = Failing()
    del failing

    assert kinds(agent) == {("unknown", "deadline"): 1}


def test_what_a_forgotten_task_raised_is_counted(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The logger of asyncio is told of it, and goes on to tell.
    """

    async def work() -> None:
        error = RuntimeError_("CANCELLED: stopped")
        raise error

    async def program() -> None:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        del task
        gc.collect()

    with caplog.at_level(logging.ERROR, "asyncio"):
        asyncio.run(program())

    assert kinds(agent) == {("unknown", "cancelled"): 1}
    assert "Task exception was never retrieved" in caplog.text


def test_errors_that_are_not_jaxs_are_nobodys(agent: Agent) -> None:
    """
    The program's own failures are its own business.
    """
    for error in (ValueError("mine"), RuntimeError("mine"), OSError(), MemoryError()):
        sys.excepthook(type(error), error, None)

    assert kinds(agent) == {}


def test_a_function_that_the_message_names_is_charged(agent: Agent) -> None:
    """
    If there is exactly one of that name.
    """
    jax.jit(identity)(1.0)

    agent._hooks.see_error(FloatingPointError("invalid value (nan) in jit(identity)"))
    agent._hooks.see_error(FloatingPointError("invalid value (nan) in jit(nobody)"))

    assert kinds(agent) == {("identity", "nan"): 1, ("unknown", "nan"): 1}


def test_observers_are_told_once(agent: Agent) -> None:
    """
    With the function, the kind and the error; one that fails does not stop the next.
    """
    told: list[tuple[str, str, str]] = []

    def observe(function: Function, kind: str, error: BaseException) -> None:
        told.append((function.name.rpartition(".")[2], kind, type(error).__name__))

    agent._parts.errors.observers.append(observe)
    error = fail(jax.jit(raises), 1.0)
    agent._hooks.see_error(error)

    assert told == [("raises", "trace_error", "ValueError")]


# --- the exception itself --------------------------------------------------------


def test_an_error_being_made_is_as_always(agent: Agent) -> None:
    """
    Arguments, keywords and complaints about them are those of the class.
    """
    error = RuntimeError_(FULL)

    assert str(error) == FULL
    assert isinstance(error, RuntimeError)
    with pytest.raises(TypeError) as caught:
        RuntimeError_(FULL, nonsense=1)
    frames = [entry.path for entry in caught.traceback]
    assert all("jaxmon" not in Path(path).parts[-2:] for path in frames)
    assert kinds(agent) == {("unknown", "oom"): 1} or kinds(agent) == {
        ("unknown", "oom"): 2
    }


def test_the_class_is_as_found_afterwards(tmp_path: Path) -> None:
    """
    Its constructor is its own again, or inherited again.
    """
    before = dict(RuntimeError_.__dict__)
    filters = list(logging.getLogger("asyncio").filters)

    with instrumented(report_dir=str(tmp_path)):
        assert dict(RuntimeError_.__dict__) != before
        assert logging.getLogger("asyncio").filters != filters

    assert dict(RuntimeError_.__dict__) == before
    assert logging.getLogger("asyncio").filters == filters


def test_an_error_counts_when_there_is_no_memory_to_place_it(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Memory that is not there is no failure of ours, and no reason not to count.
    """

    def exhausted(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(agent._parts.errors, "_where", exhausted)
    monkeypatch.setattr(agent._context.events, "add", exhausted)
    agent._parts.errors.observers.insert(0, exhausted)
    fail(jax.jit(raises), 1.0)

    assert kinds(agent) == {("raises", "trace_error"): 1}
    assert value(agent, "jaxmon_internal_errors_total") == 0


# --- reports ---------------------------------------------------------------------


def test_of_many_failures_at_once_one_is_reported(agent: Agent, tmp_path: Path) -> None:
    """
    Eight threads run out of memory together: eight errors, one report, no waiting.
    """
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        raise RuntimeError_(FULL)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert kinds(agent) == {("unknown", "oom"): 8}
    assert value(agent, REPORTS) == 1
    assert len(list((tmp_path / "reports").iterdir())) == 2


def test_a_report_is_strict_json_whatever_parts_say(agent: Agent) -> None:
    """
    Infinity, odd keys and objects become what any reader of JSON takes.
    """

    class Odd:
        def snapshot(self) -> dict[str, Any]:
            return {"f": {"peak_bytes": 7, "flops": float("nan"), "x": object()}}

    agent._parts.errors.reports.facts.parts = {"programs": Odd()}  # type: ignore[dict-item]
    agent._hooks.see_error(RuntimeError_(FULL))

    (path,) = agent._parts.errors.snapshot()["oom_reports"]
    report = json.loads(Path(path).read_text(), parse_constant=pytest.fail)
    assert report["programs"][0]["flops"] is None


@pytest.mark.contained
def test_a_part_that_fails_costs_its_section_only(agent: Agent) -> None:
    """
    The report says what is missing, and the failure is counted.
    """

    class Broken:
        def snapshot(self) -> dict[str, Any]:
            error = LookupError("broken")
            raise error

        lines = snapshot

    broken: Any = Broken()
    agent._parts.errors.reports.facts.parts = {
        "programs": broken,
        "allocations": broken,
    }
    agent._hooks.see_error(RuntimeError_(FULL))

    (path,) = agent._parts.errors.snapshot()["oom_reports"]
    report = json.loads(Path(path).read_text())
    assert "LookupError" in report["programs"]["unavailable"]
    assert report["failure"]["message"] == FULL
    assert value(agent, "jaxmon_internal_errors_total", site="oom") >= 1


def test_a_report_stays_within_its_bounds(agent: Agent) -> None:
    """
    However much there is to tell, and however long the runtime's text.
    """

    class Large:
        def snapshot(self) -> dict[str, Any]:
            return {f"f{n}": {"peak_bytes": n, "x": "y" * 2000} for n in range(500)}

    agent._parts.errors.reports.facts.parts = {"programs": Large()}  # type: ignore[dict-item]
    for number in range(300):
        agent._context.events.add("compile", "f" * 2000, "m" * 2000, n=number)
    agent._hooks.see_error(RuntimeError_(FULL + "\n" + "buffer\n" * 100_000))

    (path,) = agent._parts.errors.snapshot()["oom_reports"]
    for suffix in (".json", ".txt"):
        assert 0 < Path(path).with_suffix(suffix).stat().st_size <= 256 * 1024
    assert json.loads(Path(path).read_text())["failure"]["text"].startswith(FULL)


def test_without_a_directory_the_log_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """
    The error is counted, the program goes on, nothing is a failure of ours.
    """
    taken = tmp_path / "taken"
    taken.touch()
    with instrumented(report_dir=str(taken)) as agent:
        with caplog.at_level(logging.WARNING, "jaxmon"):
            agent._hooks.see_error(RuntimeError_(FULL))

        assert kinds(agent) == {("unknown", "oom"): 1}
        assert value(agent, REPORTS) == 0
        assert agent._parts.errors.snapshot() == {"oom_reports": []}
    assert "cannot write its report" in caplog.text
    assert "JAXMON_REPORT_DIR" in caplog.text


def test_reports_never_start_the_backends(tmp_path: Path) -> None:
    """
    A program that failed before it used JAX may still configure it.
    """
    program = """
import sys, jax, jaxmon
from jax._src import xla_bridge
agent = jaxmon.instrument(port=None, socket=False, report_dir=sys.argv[1])
agent._hooks.see_error(jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: x"))
assert agent._parts.errors.reports.count == 1
assert not xla_bridge.backends_are_initialized()
"""
    run_python("-c", program, str(tmp_path)).ok()


def test_a_forked_child_reports_for_itself(tmp_path: Path) -> None:
    """
    It has no agent until it asks for one, and its reports carry its own number.
    """
    program = """
import os, sys, warnings
warnings.simplefilter("ignore")
import jax, jaxmon
full = jax.errors.JaxRuntimeError
agent = jaxmon.instrument(port=None, socket=False, report_dir=sys.argv[1])
agent._hooks.see_error(full("RESOURCE_EXHAUSTED: parent"))
pid = os.fork()
if pid == 0:
    agent._hooks.see_error(full("RESOURCE_EXHAUSTED: orphan"))
    own = jaxmon.instrument(port=None, socket=False, report_dir=sys.argv[1])
    own._hooks.see_error(full("RESOURCE_EXHAUSTED: child"))
    os._exit(own._parts.errors.reports.count)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1
assert agent._parts.errors.reports.count == 1
"""
    run_python("-c", program, str(tmp_path)).ok()

    reports = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    messages = {report["failure"]["message"] for report in reports}
    assert messages == {"RESOURCE_EXHAUSTED: parent", "RESOURCE_EXHAUSTED: child"}
    assert len({report["pid"] for report in reports}) == 2
