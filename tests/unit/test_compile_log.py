"""Which requests a compile delayed, as far as their times say it."""

import asyncio
import threading

import pytest

from jaxmon.indicators.endings import End
from jaxmon.indicators.work import CompileLog


HOME = 1


def log(*spans: tuple[float, float | None]) -> CompileLog:
    """Return a log of compiles on this thread, each from one time to another."""
    found = CompileLog()
    for began, ended in spans:
        end: End = [] if ended is None else [ended]
        found.begin(began, end)
    return found


@pytest.mark.parametrize(
    ("spans", "lasted", "usual", "delayed"),
    [
        # It waited for most of its time.
        ([(0, 10)], (1, 10.1), [0.1, 0.2], True),
        # It took as long as ever while another thread compiled.
        ([(0, 100)], (1, 1.2), [0.1, 0.2], False),
        ([(0, None)], (1, 1.2), [0.1, 0.2], False),
        # It was slow, but not because of that short compile.
        ([(1, 1.1)], (1, 5), [0.1, 0.2], False),
        # Several short ones together delayed it, but not if they ran at once.
        ([(1, 2), (2.5, 3.5), (4, 5)], (1, 5), [0.1, 0.2], True),
        ([(1, 1.9), (1, 1.8), (1, 1.7)], (1, 5), [0.1, 0.2], False),
        # The first of its route: it outlasted the compile, or it did not.
        ([(0, 10)], (1, 10.1), [], True),
        ([(0, 10)], (1, 9), [], False),
        ([(0, None)], (1, 9), [], False),
    ],
)
def test_a_delay_is_an_excess_that_compiles_explain(spans, lasted, usual, delayed):
    """Neither each slow request nor each that overlaps a compile is delayed."""
    assert log(*spans).delayed(HOME, lasted[0], lasted[1], usual) is delayed


def test_a_loop_that_compiles_holds_its_requests():
    """However short that was, but only those that live in it."""
    found: list[CompileLog] = []

    async def compiles():
        found.append(log((1, 1.1)))

    asyncio.run(compiles())
    usual = [10.0]

    assert found[0].delayed(threading.get_ident(), 0, 5, usual)
    assert not found[0].delayed(HOME, 0, 5, usual)
    assert not found[0].delayed(threading.get_ident(), 2, 5, usual)


def test_quiet_is_what_no_compile_overlapped():
    """Compiles in progress are never quiet."""
    compiling: End = []
    found = CompileLog()
    assert found.quiet_since(0)
    found.begin(1, compiling)
    assert not found.quiet_since(5)
    compiling.append(6)
    assert not found.quiet_since(5)
    assert found.quiet_since(7)


def test_the_log_is_bounded():
    """A program that compiles without end keeps the latest."""
    found = log(*[(float(n), n + 0.5) for n in range(10_000)])
    assert found.delayed(HOME, 9_999, 9_999.5, [])
    assert not found.delayed(HOME, 1, 1.5, [])
    assert len(found._open) <= 1
