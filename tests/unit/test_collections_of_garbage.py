"""Collections of garbage: their time, and the frames that they leave whole."""

import gc
import signal
import sys
import threading
from pathlib import Path

import jax
import pytest

from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.walltime.tasks import (
    GarbageCollections,
)
from jaxmon.clocks import perf_counter
from tests.helpers.processes import run_python


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="looks find their lines")
def test_collections_are_measured_and_belong_to_their_line():
    """Looks cannot find them; those of compiling are compile time."""
    kept = [{"number": number} for number in range(300_000)]
    garbage = GarbageCollections(SourceLineFinder(jax), {threading.get_ident()})
    garbage.begin()
    try:
        gc.collect()
        garbage.take(60.0, 0.0, "compile")
        began = perf_counter()
        gc.collect()
        ended = perf_counter()
        line = sys._getframe().f_lineno - 2
        took, during = garbage.take(60.0, (began + ended) / 2, "python")
        trace_to_jaxpr()
        compiled, _ = garbage.take(60.0, 0.0, "compile")
        gc.collect()
        first, after = garbage.take(1e-4, perf_counter(), "python")
        rest, _ = garbage.take(60.0, 0.0, "python")
    finally:
        garbage.end()
        kept.clear()
    ((where, seconds),) = [item for item in took.items() if item[0].file]

    assert (where.file, where.line) == (__file__, line)
    assert 0.001 <= seconds < ended - began
    assert during
    assert not after
    assert not any(found.file for found in compiled)
    assert sum(first.values()) == pytest.approx(1e-4)
    assert sum(rest.values()) > 0.001
    assert not garbage.measures


def trace_to_jaxpr() -> None:
    """Collect garbage as JAX may while it traces, in a function of that name."""
    gc.collect()


def test_a_signal_during_a_collection_reaches_the_program():
    """Python drops what is raised in a callback of the collector."""
    kept = [{"number": number} for number in range(300_000)]
    garbage = GarbageCollections(SourceLineFinder(jax), set())

    def end(*_: object) -> None:
        raise TimeoutError

    others = gc.callbacks.copy()
    gc.callbacks.clear()  # JAX's, in Python, has what is raised there dropped
    before = signal.signal(signal.SIGALRM, end)
    garbage.begin()
    try:
        for _ in range(10):
            with pytest.raises(TimeoutError):  # noqa: PT012 - wherever it comes
                signal.setitimer(signal.ITIMER_REAL, 0.005)
                gc.collect()
                threading.Event().wait(30.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        garbage.end()
        gc.callbacks[:] = others
        signal.signal(signal.SIGALRM, before)
        kept.clear()


def test_a_collection_anywhere_leaves_frames_whole():
    """Also one that interrupts a function about to become a generator."""
    program = Path(__file__).parents[1] / "programs" / "collected.py"
    assert run_python(str(program)).ok().out == "ended\n"
