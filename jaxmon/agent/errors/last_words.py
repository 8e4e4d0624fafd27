"""
The last words of a process: how it ended, where, how far it had come, and when.

Written as soon as an uncaught exception is reported: what follows may take minutes, as
JAX's wait for the other processes of a job does, or end by a signal. Otherwise written
as the process exits. Before that, only calls of `sys.exit` are noted. Signals are not
observed: that would take a handler, and change the program.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FrameType
from typing import Any

from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function
from jaxmon.agent.inspection import module_of, name_of
from jaxmon.agent.jaxlink import failures
from jaxmon.agent.jaxlink.cluster import cluster
from jaxmon.agent.jaxlink.probe import Probe
from jaxmon.agent.jaxlink.source_lines import SourceLine, SourceLineFinder, stack_of
from jaxmon.clocks import wall_time
from jaxmon.indicators.loops import Loops
from jaxmon.report.secrets import anywhere
from jaxmon.sources import display_path


SITE = "last_words"

_LONGEST = 300
# Processes of the smallest job.
_JOB = 2
# Of an exception: those that it was raised from, or while handling.
_MOST_CAUSES = 4


class LastWords:
    """
    Args:
        context: shared state of the agent.
        loops: the loops that the program marks.
        spanning: returns the functions that run on devices of other processes, too.

    Attributes:
        say: writes the words.
    """

    def __init__(
        self,
        context: Context,
        loops: Loops,
        spanning: Callable[[], Collection[Function]],
    ) -> None:
        self._context = context
        self._loops = loops
        self._spanning = spanning
        self._lines = SourceLineFinder(context.jax)
        self._of_exit: Mapping[str, Any] = {}
        self._done_at_exit = 0
        self._of_error = False
        self.say: Callable[[Mapping[str, Any]], None] | None = None

    def exiting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """
        Return `sys.exit` that notes its code and caller in a process of a job. There
        its traceback has a line of ours, which hardly anything prints.
        """

        @functools.wraps(original)
        def noted(status: object = None, /) -> None:
            with self._contained():
                # In other threads, it ends these.
                if threading.get_ident() == threading.main_thread().ident:
                    self._of_exit = self._exit(status, sys._getframe(1))  # noqa: SLF001 - the caller
                    self._done_at_exit = self._done()
            original(status)

        def observe(_: FrameType, __: Callable[..., Any]) -> Callable[..., Any] | None:
            place = cluster(self._context.jax)
            return None if place is None or place.size < _JOB else noted

        return Probe(original, observe, guard=self._context.guard, site=SITE)

    def on_uncaught(self, error: BaseException) -> None:
        """Leave the words that *error* ends the program."""
        if sys.flags.interactive or hasattr(sys, "ps1"):
            return
        with self._contained():
            self._leave(self._error(error))
            self._of_error = True

    def on_exit(self) -> None:
        """Leave words, unless an uncaught exception has."""
        if self._of_error and getattr(sys, "last_value", None) is not None:
            return
        with self._contained():
            known = self._of_exit
            # A `sys.exit` that the program caught, and got on after, was not the end.
            # The step that it left counts as one.
            if self._done() > self._done_at_exit + 1:
                known = {}
            self._leave({"kind": "finished", **self._position(), **known})

    def _leave(self, words: Mapping[str, Any]) -> None:
        if self.say is not None:
            self.say(
                {
                    **words,
                    "time": wall_time(),
                    "boottime": time.clock_gettime(time.CLOCK_BOOTTIME),
                }
            )

    def _error(self, error: BaseException) -> dict[str, Any]:
        line = self._lines.line_of(error)
        return {
            "kind": "exception",
            **_described(error),
            "oom": failures.is_from_jax(error) and failures.kind_of(error) == "oom",
            **_place(line),
            **self._position(),
            "causes": [_described(one) for one in _causes(error)],
        }

    def _exit(self, status: object, frame: FrameType) -> dict[str, Any]:
        code = status if isinstance(status, int) else int(status is not None)
        text = anywhere(status) if isinstance(status, str) else ""
        return {
            "kind": "exit" if code & 0xFF else "finished",
            "code": code & 0xFF,
            "message": text.partition("\n")[0][:_LONGEST],
            **_place(self._lines.of(stack_of(frame))),
            **self._position(),
        }

    def _position(self) -> dict[str, Any]:
        """Return how far the program has come."""
        running = self._loops.running()
        loops = [(one.name == running, one.steps, one.name) for one in self._loops]
        _, steps, loop = max(loops, default=(False, 0, ""))
        calls, called = max(self._calls(), default=(0, ""))
        return {
            "loop": loop[:_LONGEST],
            "steps": steps,
            "calls": calls,
            "called": called[:_LONGEST],
        }

    def _calls(self) -> list[tuple[int, str]]:
        return [(one.calls_and_hits()[0], one.name) for one in self._spanning()]

    def _done(self) -> int:
        """Return a number that rises with the work that is done."""
        calls = sum([number for number, _ in self._calls()])
        return calls + sum([one.steps for one in self._loops])

    @contextlib.contextmanager
    def _contained(self) -> Iterator[None]:
        """Contain failures in the block: the program is ending."""
        try:
            yield
        except Exception:  # noqa: BLE001 - contained and counted
            self._context.guard.failed(SITE, stays_on=True)


def _described(error: BaseException) -> dict[str, Any]:
    kind = type(error)
    module = module_of(kind)
    name = name_of(kind)
    message = failures.message_of(error, limit=2 * _LONGEST, lines=1)
    if not message and isinstance(error, OSError):
        # Without the file, which may be anything.
        message = str(error.strerror or "")
    return {
        "type": name if module in ("", "builtins") else f"{module}.{name}",
        "message": anywhere(message)[:_LONGEST],
    }


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield what *error* was raised from, or while handling, the latest first."""
    seen = {id(error)}
    for _ in range(_MOST_CAUSES):
        one = error.__cause__
        if one is None and not error.__suppress_context__:
            one = error.__context__
        if one is None or id(one) in seen:
            return
        seen.add(id(one))
        yield one
        error = one


def _place(line: SourceLine) -> dict[str, str]:
    if not line.file:
        return {"where": "", "function": ""}
    place = f"{display_path(line.file)}:{line.line}"
    return {"where": place[-_LONGEST:], "function": line.function[:_LONGEST]}
