"""Which exceptions are the program's own, and go on."""

import ctypes
import functools
import gc
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from weakref import ref

import pytest

import jaxmon
from jaxmon import interrupts
from jaxmon.agent.guard import Guard
from jaxmon.indicators import batches, queues
from tests.helpers.indicators import Recorded, recording
from tests.helpers.processes import require_module


pytestmark = pytest.mark.contained


class Limit(Exception):  # noqa: N818 - a time limit
    """What a handler of the program raises."""


def raises(signum: int, frame: object) -> None:
    raise Limit(signum, frame)


def drops_its_arguments(signum: int, frame: object) -> None:
    del signum, frame
    raise TimeoutError


def takes_any(*_: object) -> None:
    raise Limit


def raises_deeper(signum: int, frame: object) -> None:
    drops_its_arguments(signum, frame)


class Handler:
    """Handlers that are no functions."""

    def method(self, signum: int, _: object) -> None:
        signal.signal(signum, signal.SIG_DFL)  # as libraries do, first of all
        raise Limit

    def __call__(self, signum: int, frame: object) -> None:
        del signum, frame
        raise Limit


HANDLERS = [
    raises,
    drops_its_arguments,
    takes_any,
    raises_deeper,
    Handler().method,
    Handler(),
    functools.partial(lambda _, signum, frame: raises(signum, frame), 1),
]


@pytest.fixture
def restored() -> Iterator[None]:
    """Put back the handler of SIGUSR1."""
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.signal(signal.SIGUSR1, before)


class Interrupted(Recorded):
    """Figures, in the middle of which a signal comes."""

    def __init__(self) -> None:
        super().__init__(200)
        self.routes.of = lambda _: signal.raise_signal(signal.SIGUSR1)  # type: ignore[method-assign,assignment,return-value]


@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_signal_handler_raises_goes_on(restored, handler):
    """Whatever it is, however it is written; it is no failure, and nothing is open."""
    from jaxmon.indicators import recorder

    signal.signal(signal.SIGUSR1, handler)
    recorded = Interrupted()
    recorder.attach(recorded)
    try:
        with pytest.raises((Limit, TimeoutError)), jaxmon.request("predict"):
            pytest.fail("the block is not entered")
    finally:
        recorder.detach(recorded)

    assert recorded.failures.failures() == {}


THROWN = [Limit, TimeoutError, KeyError, AttributeError, Exception]


def throwing(kind: type[BaseException]) -> Callable[..., int]:
    """
    Return what throws a *kind* into this thread, as libraries for time limits do where
    there are no signals; and returns 1. In C alone, so that it lands where that is
    called.
    """
    throw = ctypes.pythonapi.PyThreadState_SetAsyncExc
    ident = ctypes.c_ulong(threading.get_ident())
    return functools.partial(throw, ident, ctypes.py_object(kind))


@pytest.mark.parametrize("kind", THROWN)
def test_what_is_thrown_into_a_thread_goes_on(kind: type[Exception]) -> None:
    """Whatever its class, also where we call code of the program on purpose."""
    guard = Guard()
    for block in (None, interrupts.expected(Exception)):
        with pytest.raises(kind):
            guarded(guard, throwing(kind), block)
    assert guard.failures() == {}

    size = type("Size", (), {"__index__": staticmethod(throwing(kind))})()
    with recording() as recorded:
        with pytest.raises(kind):
            jaxmon.batch("predict", size=size, capacity=1)
        with pytest.raises(kind):
            list(jaxmon.steps([1, 2], items=throwing(kind)))
        with pytest.raises(kind):
            list(jaxmon.steps([1, 2], items=lambda _: throwing(kind)() + 1))

    assert recorded.failures.failures() == {}


def test_failures_without_an_argument_are_ours() -> None:
    """Those that a statement raises, and those of C that the interpreter's code has."""
    guard = Guard()

    def fail() -> None:
        raise KeyError

    for work in (fail, [].pop, iter(()).__next__):
        guarded(guard, work)
        guarded(guard, work, interrupts.expected(Exception))

    assert guard.failures() == {"here": 3}


def test_time_limits_of_libraries_go_on() -> None:
    """Of func_timeout, and of what throws an `Exception` from a timer, all over us."""
    func_timeout = require_module("func_timeout")
    waiting = jaxmon.queue("waiting")

    def mark(timer: threading.Timer | None = None) -> None:
        if timer is not None:
            timer.start()
        for _ in range(30_000):
            with jaxmon.request("predict"), jaxmon.activity("work"):
                jaxmon.batch("predict", size=1, capacity=2)
            for number in jaxmon.steps([1, 2], items=int):
                waiting.set(number)
            jaxmon.log_values({"loss": 0.5})

    with recording() as recorded:
        for n in range(25):
            with pytest.raises(func_timeout.FunctionTimedOut):
                func_timeout.func_timeout(0.01 + n * 1e-4, mark)
            kind = (Limit, TimeoutError, KeyError)[n % 3]
            with pytest.raises(kind):
                mark(threading.Timer(0.01 + n * 1e-4, throwing(kind)))

    waiting.close()
    assert recorded.failures.failures() == {}


def guarded(
    guard: Guard, work: Callable[[], object], block: interrupts.Handled | None = None
) -> None:
    """Do *work* in a *block* as our code does, under the name of our code."""
    source = """
def run(block, work):
    with block:
        work()
        for _ in range(1000):
            pass
"""
    ours = {"__name__": "jaxmon.agent.test"}
    exec(source, ours)  # noqa: S102 - a frame of ours
    ours["run"](block or guard.contained("here"), work)  # type: ignore[operator]


def test_a_block_keeps_nothing_of_what_left_it() -> None:
    """Neither what is dropped, nor what another kind leaves it as usual."""

    class Variable:
        """Of a frame that the exception refers to."""

    def divide(by: object) -> ref[Variable]:
        variable = Variable()
        with suppress(TypeError), interrupts.expected(ArithmeticError):
            1 / by  # type: ignore[operator]
        return ref(variable)

    gc.collect()
    gc.disable()
    try:
        assert [variable() for variable in map(divide, (0, ""))] == [None, None]
    finally:
        gc.enable()


def test_code_of_the_program_that_we_call_is_contained(caplog):
    """A class of its own makes no time limit of a failure."""

    def fail(*_: object) -> int:
        raise Limit

    class Odd:
        __int__ = __index__ = __str__ = fail  # type: ignore[assignment]

    with recording() as recorded:
        jaxmon.batch("predict", size=Odd(), capacity=1)  # type: ignore[arg-type]
        waiting = jaxmon.queue("waiting", fail)
        recorded.collect()
        waiting.close()
        assert list(jaxmon.steps([1, 2], items=fail)) == [1, 2]
        with jaxmon.request(Odd()), jaxmon.activity(Odd()):  # type: ignore[arg-type]
            pass

    assert recorded.failures.failures() == {
        batches.SITE: 1,
        queues.SITE: 1,
        "items": 2,
        "requests": 1,
        "activities": 1,
    }
    # None is logged as ours; the first of each, with the line that passed it.
    assert len(caplog.records) == 5
    for record in caplog.records:
        assert "because of what the program passed to it" in record.getMessage()
        assert "Limit" in record.getMessage()
    assert [__file__ in str(record.stack_info) for record in caplog.records].count(
        True
    ) == 5


def test_a_batch_above_its_capacity_is_said_to_be_the_programs(caplog):
    """And not counted; one within it is."""
    with recording() as recorded:
        for size in (9, 9, 8):
            jaxmon.batch("predict", size=size, capacity=8)
        (fill,) = recorded.batches.explain().values()

    assert fill.count == 1
    assert recorded.failures.failures() == {batches.SITE: 2}
    (record,) = caplog.records
    assert "jaxmon failed" not in record.getMessage()
    assert "passed to it: ValueError: invalid batch: size 9" in record.getMessage()
    assert "jaxmon.batch(" in str(record.stack_info)


def test_an_alarm_while_a_failure_is_logged_goes_on(restored: None) -> None:
    """A log handler's failure is contained, no alarm."""
    signal.signal(signal.SIGUSR1, raises)

    class Slow(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            signal.raise_signal(signal.SIGUSR1)

    def fail() -> None:
        raise KeyError

    handler = Slow()
    logging.getLogger("jaxmon").addHandler(handler)
    try:
        guard = Guard()
        with pytest.raises(Limit):
            guarded(guard, fail)
    finally:
        logging.getLogger("jaxmon").removeHandler(handler)

    assert guard.failures() == {"here": 1}


def test_a_failure_while_an_alarm_passes_gives_way_to_it(restored: None) -> None:
    """What cleans up may fail in its turn; the program gets its own exception."""
    signal.signal(signal.SIGUSR1, raises)
    guard = Guard()
    ours = {"__name__": "jaxmon.agent.test", "signal": signal, "guard": guard}
    source = """
def run():
    try:
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            {}["gone"]
    except Exception:
        guard.failed("here")
"""
    exec(source, ours)  # noqa: S102 - a frame of ours

    with pytest.raises(Limit):
        ours["run"]()  # type: ignore[operator]
    assert guard.failures() == {}


def test_an_alarm_that_the_program_handles_is_none_of_ours(restored: None) -> None:
    """A failure of ours within its ``except`` block is counted as any other."""
    signal.signal(signal.SIGUSR1, raises)
    guard = Guard()

    def fail() -> None:
        raise KeyError

    try:
        guarded(guard, lambda: signal.raise_signal(signal.SIGUSR1))
    except Limit:
        guarded(guard, fail)

    assert guard.failures() == {"here": 1}


def test_a_thread_of_ours_ends_without_a_word_of_python(caplog, capsys):
    """Whatever leaves it is logged once."""
    from jaxmon.threads import DaemonThread

    def fail() -> None:
        raise SystemExit

    guard = Guard()
    thread = DaemonThread("jaxmon-test", lambda: guard.run("test", fail))
    thread.start()
    thread.join()

    assert guard.failures() == {"test": 1}
    assert len(caplog.records) == 1
    assert capsys.readouterr().err == ""
