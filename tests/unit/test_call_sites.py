"""Places that call, as they are found in the code of a function."""

import asyncio
import dis
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from jaxmon.agent.jaxlink.activity import ActivityReader
from jaxmon.agent.jaxlink.call_sites import DEVICE, EAGER, NUMPY, CallSite, CallSites
from jaxmon.agent.jaxlink.other_threads import Position
from jaxmon.agent.jaxlink.source_lines import CodeLoops


class Seen:
    """What is called: remembers where from, and where that is known, by turns."""

    def __init__(self, sites: CallSites, state: str = DEVICE) -> None:
        self.sites, self.state, self.learns = sites, state, True
        # Called from C, as jitted functions are.
        self.step = partial(self._step)

    def _step(self, *_: object) -> CallSite | None:
        """Return what is known of the place that calls; learn the first."""
        frame = sys._getframe(1)
        if self.learns:
            self.learns = False
            self.sites.add(frame, self.state, "__main__.step")
        return self.sites.at(frame.f_code, frame.f_lasti)


Found = list[CallSite | None]


def local(seen: Seen) -> Found:
    """Call it by a local variable."""
    step = seen.step
    return [step(), step(1), step(step(2), 3)]


def enclosed(seen: Seen) -> Found:
    """Call it by a variable of the function around."""
    step = seen.step

    def train() -> Found:
        return [step(), step(1)]

    return train()


def attribute(seen: Seen) -> Found:
    """Call it as a method, on different lines."""
    first = seen.step(1)
    second = seen.step(2)
    return [first, second]


@pytest.mark.parametrize("caller", [local, enclosed, attribute])
def test_what_is_called_by_the_same_name_is_known(caller):
    """A cached call on a line of its own has never been seen, and may last."""
    found = caller(Seen(CallSites()))

    assert len(found) >= 2
    for one in found:
        assert one is not None
        assert (one.state, one.function) == (DEVICE, "__main__.step")


@pytest.mark.parametrize("state", [DEVICE, EAGER])
def test_what_is_called_by_another_name_is_not_known(state: str) -> None:
    """Nor is the name of an operation, which another place may give to anything."""
    seen = Seen(CallSites(), state)
    step, other = seen.step, seen.step

    assert step() is not None
    assert other() is None
    assert (step(1) is None) == (state == EAGER)


def test_what_a_module_imports_after_the_first_look_is_known() -> None:
    """A look may find it while it imports JAX; what it calls has no value yet."""
    code = compile("import numpy\nnumpy.asarray(len(()))", "late.py", "exec")
    sites, names = CallSites(), dict[str, Any]()
    calls = [of.offset for of in dis.get_instructions(code) if of.opname == "CALL"]

    def states() -> set[str]:
        sites.study(code, names)
        return {site.state for at in calls if (site := sites.at(code, at))}

    assert states() == set()
    names["numpy"] = np
    assert states() == {NUMPY}


def test_an_operation_is_not_known_beside_a_jitted_function() -> None:
    """Only what is known to be jitted keeps the meaning of its name."""
    sites = CallSites()
    jitted, operation = Seen(sites), Seen(sites, EAGER)
    step, add = jitted.step, operation.step

    assert step() is not None
    first = add()
    assert first is not None
    assert first.state == EAGER
    assert add(1) is None
    again = step(1)
    assert again is not None
    assert again.state == DEVICE


@pytest.mark.parametrize(
    ("state", "names", "called"),
    [
        (DEVICE, ["step", "step"], "step"),
        (DEVICE, ["step", "evaluate", "step"], ""),
        (EAGER, ["add"], None),
    ],
)
def test_a_place_that_calls_several_functions_names_none(state, names, called):
    """A result of its calls may be of any of them; an operation's is of none."""
    sites, places = CallSites(), set()

    def call(frame, name):
        sites.add(frame, state, name)
        places.add((frame.f_code, frame.f_lasti))

    for name in names:
        call(sys._getframe(), name)
    ((code, offset),) = places
    traceback = SimpleNamespace(raw_frames=lambda: ([code], [offset]))

    assert sites.called(traceback) == called


def loops(items: list[int], going: Iterator[bool]) -> list[int]:
    """Return lines of loops around calls, and around none."""
    found = [line_of_loop()]
    for _ in items:
        with suppress(KeyError):
            found.append(line_of_loop())
        for _ in items:
            found.append(line_of_loop())
            break
    while next(going):
        found.append(line_of_loop())
    while True:
        found.append(line_of_loop())
        if items:
            break
    return [*found, line_of_loop()]


async def waits() -> int:
    """Wait, and handle exceptions: to the interpreter, both jump back."""
    await asyncio.sleep(0)
    number = 1
    try:
        number = int("x")
    except ValueError:
        number += 1
    with suppress(ValueError):
        number = int("x")
    return line_of_loop()


def line_of_loop() -> int:
    """Return the line of the outermost loop of the caller."""
    frame = sys._getframe(1)
    found = CodeLoops().at(frame.f_code, frame.f_lasti)
    return 0 if found is None else found.line


def test_a_call_through_a_library_has_the_line_that_calls_the_library() -> None:
    """Of the latest call that was seen, whichever frames of the library lie between."""
    sites, names = CallSites(), dict[str, Any]()
    library = "/x/lib/python3.11/site-packages/equinox/_jit.py"
    exec(compile("def call(f):\n    f()", library, "exec"), names)  # noqa: S102 - of a library

    def step() -> None:
        sites.call_from(sys._getframe(1), "equinox.step")

    names["call"](step)
    names["call"](step)
    here = sys._getframe().f_lineno - 1
    stack = [Position(*place, {}) for place in sites.callers["equinox.step"]]
    line = ActivityReader(jax, sites).user_line(stack)

    assert (line.file, line.line) == (__file__, here)


def test_the_outermost_loop_around_a_call_is_found() -> None:
    """By its first line; that of `while True` is in no bytecode, but its block is."""
    first = loops.__code__.co_firstlineno
    found = loops([1], iter([True, False]))

    assert [line and line - first for line in found] == [0, 3, 3, 9, 11, 0]
    assert asyncio.run(waits()) == 0


def test_long_code_takes_time_in_proportion():
    """Four times as many loops take four times as many steps, not sixteen."""

    def steps_for(number: int) -> int:
        names = dict[str, Any]()
        text = "    for _ in x:\n        x = x\n" * number
        exec(f"def function(x):\n{text}", names)  # noqa: S102 - of our own
        steps = 0

        def trace(*_: object) -> Any:
            nonlocal steps
            steps += 1
            return trace

        code = names["function"].__code__
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            CodeLoops().at(code, 0)
        finally:
            sys.settrace(before)
        return steps

    assert steps_for(400) < 5 * steps_for(100)
