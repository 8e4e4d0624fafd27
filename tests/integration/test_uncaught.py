"""Errors on every way out: seen where they surface, each counted once."""

import asyncio
import gc
import logging
import sys
import threading
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jaxmon
from jaxmon.agent import Agent
from jaxmon.agent.context import CountedError
from tests.helpers import inside
from tests.helpers.agents import FULL, fail, kinds


pytestmark = pytest.mark.ground_truth

CACHED = "INTERNAL: from a cached call"
RuntimeError_ = jax.errors.JaxRuntimeError


def makes_much() -> Any:
    return jnp.zeros(10**14)


def raises(_: Any) -> Any:
    error = ValueError("the user's")
    raise error


def identity(x: Any) -> Any:
    return x


def test_an_error_is_counted_once_however_often_it_is_seen(agent: Agent) -> None:
    """On its way out of a call, of a request, of an activity, and at the top."""

    def program() -> None:
        with jaxmon.request("predict"), jaxmon.activity("evaluation"):
            jax.jit(makes_much)()

    error = fail(program)
    sys.excepthook(type(error), error, error.__traceback__)

    assert kinds(agent) == {("makes_much", "oom"): 1}


def test_a_builtin_error_is_counted_once_and_its_like_again(agent: Agent) -> None:
    """A ValueError cannot be referred to weakly; its address is soon reused."""
    for _ in range(20):
        error = ValueError("INTERNAL: from a cached call")
        for _ in range(3):
            inside.see_error(agent, error)
        del error

    assert kinds(agent) == {("unknown", "internal"): 20}


def test_seeing_an_error_keeps_nothing_alive(agent: Agent) -> None:
    """Its traceback holds the program's arrays, of which there are too many already."""
    import weakref

    class Kept:
        pass

    def throw(_: Kept) -> None:
        raise RuntimeError_(FULL)

    def program() -> weakref.ref[Kept]:
        held = Kept()
        inside.see_error(agent, fail(throw, held))
        return weakref.ref(held)

    found = program()
    gc.collect()

    assert found() is None
    assert inside.errors(agent)._seen_weakly == {}


@pytest.mark.parametrize("made", [RuntimeError_, ValueError])
def test_what_ends_a_thread_is_counted(agent: Agent, made: type[Exception]) -> None:
    """`threading.excepthook` sees it."""

    def work() -> None:
        error = made("UNAVAILABLE: the peer left")
        raise error

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert kinds(agent) == {("unknown", "unavailable"): 1}


def test_what_a_finaliser_raises_is_counted(agent: Agent) -> None:
    """`sys.unraisablehook` sees it."""

    class Failing:
        def __del__(self) -> None:
            error = RuntimeError_("DEADLINE_EXCEEDED: too late")
            raise error

    failing = Failing()
    del failing

    assert kinds(agent) == {("unknown", "deadline"): 1}


def test_what_a_forgotten_task_raised_is_counted(agent, caplog):
    """The logger of asyncio receives it, and logs it as before."""

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


@pytest.mark.parametrize("found", [True, (), (None, None, None), "a text"])
def test_a_record_without_an_error_is_let_pass(agent, caplog, found):
    """Whatever a hand-made record contains, it is logged."""
    record = logging.makeLogRecord(
        {"name": "asyncio", "msg": "by hand", "levelno": logging.ERROR}
    )
    record.exc_info = found

    assert logging.getLogger("asyncio").filter(record)
    assert kinds(agent) == {}


def test_errors_that_are_not_jaxs_are_nobodys(agent: Agent) -> None:
    """The program's own failures are its own business."""
    for error in (ValueError("mine"), RuntimeError("mine"), OSError(), MemoryError()):
        sys.excepthook(type(error), error, None)

    assert kinds(agent) == {}


def test_errors_of_a_group_are_counted_each(agent: Agent) -> None:
    """Task groups wrap what their tasks raise, groups in groups."""

    async def fails(text: str) -> None:
        raise RuntimeError_(text)

    async def program() -> None:
        async with asyncio.TaskGroup() as outer:
            outer.create_task(fails("UNAVAILABLE: the peer left"))
            async with asyncio.TaskGroup() as inner:
                inner.create_task(fails("INTERNAL: one"))
                inner.create_task(fails("INTERNAL: two"))

    error = fail(asyncio.run, program())
    for _ in range(2):
        sys.excepthook(type(error), error, error.__traceback__)

    assert kinds(agent) == {("unknown", "unavailable"): 1, ("unknown", "internal"): 2}


def cached_call() -> None:
    """Fail as a cached call does."""
    raise ValueError(CACHED)


def handed_on() -> None:
    """Fail in a cached call, and raise an error of the program from that."""
    try:
        cached_call()
    except ValueError as error:
        raise LookupError from error


def replaced() -> None:
    """The same without saying so."""
    try:
        cached_call()
    except ValueError:
        raise LookupError  # noqa: B904 - as careless programs do


def hidden() -> None:
    """The same, without a report."""
    try:
        cached_call()
    except ValueError:
        raise LookupError from None


@pytest.mark.parametrize(
    ("program", "count"), [(handed_on, 1), (replaced, 1), (hidden, 0)]
)
def test_what_an_error_was_raised_from_is_counted(agent, program, count):
    """Servers hand a failure on as one of their own."""
    with pytest.raises(LookupError), jaxmon.request("predict"):
        program()

    assert sum(kinds(agent).values()) == count
    assert count == 0 or kinds(agent) == {("unknown", "internal"): 1}


def test_what_was_counted_is_not_counted_for_its_reason(agent: Agent) -> None:
    """A function that turns an error of JAX into its own failed once."""

    def careful(x: Any) -> Any:
        try:
            return float(x)
        except TypeError as error:
            msg = "give a number"
            raise ValueError(msg) from error

    error = fail(jax.jit(careful), 1.0)
    sys.excepthook(type(error), error, error.__traceback__)

    assert kinds(agent) == {("careful", "trace_error"): 1}


@pytest.mark.parametrize("mode", ["off", "tracebackhide", "remove_frames", "auto"])
def test_how_jax_shows_a_traceback_is_no_error(agent: Agent, mode: str) -> None:
    """It hangs the whole traceback below the program's own error, as its reason."""
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", mode)
    try:
        error = fail(jax.grad(raises), 1.0)
    finally:
        jax.config.update("jax_traceback_filtering", before)
    sys.excepthook(type(error), error, error.__traceback__)

    assert kinds(agent) == {}


def test_an_endless_chain_ends(agent: Agent) -> None:
    """Programs make circles of errors, and chains by hours of retries."""
    first = LookupError()
    last: BaseException = first
    for _ in range(10_000):
        following = LookupError()
        following.__context__, last = last, following
    first.__context__ = last
    sys.excepthook(LookupError, last, None)

    assert kinds(agent) == {}


def test_a_function_that_the_message_names_is_charged(agent: Agent) -> None:
    """If there is exactly one of that name."""
    jax.jit(identity)(1.0)

    inside.see_error(agent, FloatingPointError("invalid value (nan) in jit(identity)"))
    inside.see_error(agent, FloatingPointError("invalid value (nan) in jit(nobody)"))

    assert kinds(agent) == {("identity", "nan"): 1, ("unknown", "nan"): 1}


def test_observers_are_told_once(agent: Agent) -> None:
    """With function, kind and error; one that fails does not stop the next."""
    told: list[tuple[str, str, str]] = []

    def observe(seen: CountedError) -> None:
        name = seen.function.name.rpartition(".")[2]
        told.append((name, seen.kind, type(seen.error).__name__))

    inside.observers(agent).error.append(observe)
    error = fail(jax.jit(raises), 1.0)
    inside.see_error(agent, error)

    assert told == [("raises", "trace_error", "ValueError")]
