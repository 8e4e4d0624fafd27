"""
What a process says of its end (`jaxmon.facts.ending`): how it ended, where, how far it
had come, and when; and how far it has come before that, as it may be killed.

Written as soon as an uncaught exception is reported: what follows may take minutes, as
JAX's wait for the other processes of a job does, or end by a signal. Otherwise written
as the process exits. Before that, only calls of `sys.exit` and `signal.raise_signal`
are noted: many servers handle SIGTERM, finish their requests, restore what was its
handler, and send it to themselves. Signals are not observed otherwise: that would take
a handler, and change the program.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import functools
import os
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from types import FrameType
from typing import Any

from jaxmon import interrupts
from jaxmon.agent.context import Context
from jaxmon.agent.functions import Function
from jaxmon.agent.inspection import AnyCall, module_of, name_of
from jaxmon.agent.jaxlink import failures
from jaxmon.agent.jaxlink.backends import cluster
from jaxmon.agent.jaxlink.listeners import Observer, Probe
from jaxmon.agent.jaxlink.source_lines import SourceLine, SourceLineFinder, stack_of
from jaxmon.clocks import monotonic
from jaxmon.facts import endings
from jaxmon.facts.ending import STOPS, Underlying
from jaxmon.host import disclosure
from jaxmon.host.sources import display_path
from jaxmon.indicators.endings import SingleUse, noting_python
from jaxmon.indicators.loops import Loops


LONGEST = 300
# Of an exception: those that it was raised from, or while handling.
_MOST_CAUSES = 4


def is_oom(error: BaseException) -> bool:
    """Return whether *error* is about memory of devices."""
    return failures.is_from_jax(error) and failures.kind_of(error) == "oom"


def described(error: BaseException) -> dict[str, str]:
    """Return class and first line of the message, as far as it may be shown."""
    kind = type(error)
    module = module_of(kind)
    name = name_of(kind)
    message = failures.message_of(error, limit=2 * LONGEST, lines=1)
    if not message and isinstance(error, OSError):
        # Without the file, which may be anything.
        message = str(error.strerror or "")
    return {
        "type": name if module in ("", "builtins") else f"{module}.{name}",
        "message": message[:LONGEST],
    }


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield what *error* was raised from, or while handling, the latest first."""
    seen = {id(error)}
    for _ in range(_MOST_CAUSES):
        cause = error.__cause__
        if cause is None and not error.__suppress_context__:
            cause = error.__context__
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause
        error = cause


def place(line: SourceLine) -> dict[str, str]:
    """Return file and line, and the function that it is in; empty if unknown."""
    if not line.file:
        return {"where": "", "function": ""}
    where = f"{display_path(line.file)}:{line.line}"
    return {"where": where[-LONGEST:], "function": line.function[:LONGEST]}


SITE = "last_words"

# Processes of the smallest job.
_JOB = 2
# A program that raised a signal to stop has ended within so many seconds.
_STOPPING_SECONDS = 10.0
_SIGINT, _SIGABRT = 2, 6


class LastWords:
    """
    Knows what ends the program, to `say` it, by field of the record; `leave` does what
    is done at exit, which a signal that nothing handles skips. *spanning* returns the
    functions that run on devices of other processes, too, *doing* what the program does
    now, by field.
    """

    def __init__(
        self,
        context: Context,
        loops: Loops,
        spanning: Callable[[], Collection[Function]],
        doing: Callable[[], Mapping[str, str]],
    ) -> None:
        self._context = context
        self._loops = loops
        self._spanning = spanning
        self._lines = SourceLineFinder(context.jax)
        self._of_exit: Mapping[str, Any] = {}
        self._done_at_exit = 0
        # Whether that `SystemExit` was dropped while the program ran.
        self._caught: list[bool] = []
        self._of_error = False
        # Whether a handler of SIGABRT did so: of gunicorn's worker that takes too long.
        self._aborted = False
        self._began = context.began
        self._program = ""
        # The signal that the program has raised, and when.
        self._raised = 0, 0.0
        self.say: Callable[[Mapping[str, Any]], None] | None = None
        self.leave: Callable[[], None] | None = None
        self._doing = doing

    def exiting(self, original: AnyCall) -> AnyCall:
        """
        Return `sys.exit` that notes its code, and its caller or the exception that the
        caller handles: in a process of a job, in the handler of a signal, or if there
        is such an exception. Then its traceback has a line of ours, which hardly
        anything prints.
        """

        @functools.wraps(original)
        def noted(status: object = None, /) -> None:
            _held = None
            with self._context.guard.contained(SITE, stays_on=True):
                self._of_exit = self._exit(status, sys._getframe(1))  # noqa: SLF001 - the caller
                self._done_at_exit = self._done()
                # The traceback of the `SystemExit` refers to this frame.
                _held = SingleUse()
                _held.__del__ = noting_python(self._caught, main).__next__
            original(status)

        main = threading.main_thread().ident or 0

        def observe(frame: FrameType, _: AnyCall) -> AnyCall | None:
            # In other threads, it ends these.
            if threading.get_ident() != main or self._aborted:
                return None
            self._of_exit, self._caught = {}, []
            here = cluster(self._context.jax)
            in_job = here is not None and here.size >= _JOB
            if in_job or isinstance(sys.exception(), Exception):
                return noted
            self._aborted = bool(interrupts.handled(frame, (_SIGABRT,)))
            return noted if self._aborted or interrupts.handled(frame, STOPS) else None

        return Probe(original, observe, guard=self._context.guard, site=SITE)

    def raising(self, original: Callable[[int], None]) -> Observer:
        """Return what notes first that the program stops, for `signal.raise_signal`."""

        @functools.wraps(original)
        def noted(signalnum: int, /) -> None:
            with self._context.guard.contained(SITE, stays_on=True):
                self._note_raised(signalnum)
            original(signalnum)

        return lambda _, __: noted

    def _note_raised(self, number: int) -> None:
        main = threading.get_ident() == threading.main_thread().ident
        if number not in STOPS or not main:
            return
        self._raised = int(number), monotonic()
        # The first process of a container ignores what it does not handle.
        ends = _signal.getsignal(number) == _signal.SIG_DFL and os.getpid() != 1
        blocked = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        if ends and number not in blocked and self.leave is not None:
            self.leave()

    def on_uncaught(self, error: BaseException) -> None:
        """Leave the words that *error* ends the program."""
        if _is_interactive():
            return
        with self._context.guard.contained(SITE, stays_on=True):
            self._leave(self._error(error))
            self._of_error = True

    def on_exit(self) -> None:
        """Leave words, unless an uncaught exception has."""
        if self._of_error and getattr(sys, "last_value", None) is not None:
            return
        with self._context.guard.contained(SITE, stays_on=True):
            ended = self._known_exit()
            number, at = self._raised
            if ended.get("kind") != "exit" and monotonic() - at < _STOPPING_SECONDS:
                ended = {"kind": "stop", "signal": number} if number else ended
            self._leave({"kind": "finished", **self._reached(), **ended})

    def position(self) -> dict[str, Any]:
        """Return fields of the record; takes 50 µs, the first time milliseconds."""
        with self._context.guard.contained(SITE, stays_on=True):
            doing = {name: value[:LONGEST] for name, value in self._doing().items()}
            running = self._loops.running()
            return {**self._reached(), **self._here(), **doing, "running": running}
        return {}

    def crashed(self) -> bool:
        """
        Return whether an exception ends the program, uncaught or turned into the exit
        code 1, as by Hydra; called at exit.

        Not Ctrl-C, which is a user's decision, nor what went wrong in an interactive
        session. Other codes may mean that the program is to be started again.
        """
        if _is_interactive():
            return False
        error = getattr(sys, "last_value", None)
        if error is not None:
            return not isinstance(error, KeyboardInterrupt)
        ended: Mapping[str, Any] = {}
        with self._context.guard.contained(SITE, stays_on=True):
            ended = self._known_exit()
        return ended.get("code") == 1 and bool(ended["causes"])

    def _known_exit(self) -> Mapping[str, Any]:
        if self._aborted:
            return self._of_exit
        # One that the program caught, and got on after, was not the end, even if it
        # kept the exception. The step that it left counts as one.
        if not self._of_exit or any(self._caught):
            return {}
        return self._of_exit if self._done() <= self._done_at_exit + 1 else {}

    def _leave(self, words: Mapping[str, Any]) -> None:
        if self.say is not None:
            underlying = [Underlying(**cause) for cause in words.get("causes", ())]
            self.say({**words, "causes": tuple(underlying), **self._here()})

    def _here(self) -> dict[str, Any]:
        # Of texts that are not needed at the start.
        self._program = self._program or disclosure.own_command()[:LONGEST]
        return {
            "program": self._program,
            **self._place_in_job(),
            "observed_seconds": max(monotonic() - self._began, 0.0),
            **endings.now(),
        }

    def _error(self, error: BaseException) -> dict[str, Any]:
        line = self._lines.line_of(error)
        if isinstance(error, KeyboardInterrupt):
            stop = {"kind": "stop", "signal": _SIGINT}
            return {**stop, **place(line), **self._reached()}
        return {
            "kind": "exception",
            **described(error),
            "oom": is_oom(error),
            **place(line),
            **self._reached(),
            "causes": [described(cause) for cause in causes(error)],
        }

    def _exit(self, status: object, frame: FrameType) -> dict[str, Any]:
        code = status if isinstance(status, int) else int(status is not None)
        code &= 0xFF
        text = disclosure.text(status) if isinstance(status, str) else ""
        text = text or "in the handler of SIGABRT" * self._aborted
        error = sys.exception() if code else None
        chain = [error, *causes(error)] if isinstance(error, Exception) else []
        handled = [(described(cause), cause) for cause in chain]
        # Some are raised to exit, and say nothing else: `click.exceptions.Exit`.
        handled.sort(key=lambda pair: not pair[0]["message"])
        cause = handled[0][1] if handled else None
        lines = self._lines
        if number := interrupts.handled(frame, STOPS):
            line, stop = lines.of(stack_of(frame)), {"kind": "stop", "signal": number}
            return {**stop, **place(line), **self._reached(), "causes": []}
        return {
            "kind": "exit" if code else "finished",
            "code": code,
            "message": text.partition("\n")[0][:LONGEST],
            "oom": cause is not None and is_oom(cause),
            **place(lines.line_of(cause) if cause else lines.of(stack_of(frame))),
            **self._reached(),
            "causes": [words for words, _ in handled],
        }

    def _place_in_job(self) -> dict[str, Any]:
        """Return its rank: the sidecar may not have read that before the end."""
        here = cluster(self._context.jax)
        if here is None or here.size < _JOB:
            return {}
        return {
            "rank": here.rank,
            "ranks": here.size,
            "coordinator": here.coordinator[:LONGEST],
        }

    def _reached(self) -> dict[str, Any]:
        running = self._loops.running()
        loops = [(loop.name == running, loop.steps, loop.name) for loop in self._loops]
        _, steps, loop = max(loops, default=(False, 0, ""))
        calls, called = max(self._calls(), default=(0, ""))
        return {
            "loop": loop[:LONGEST],
            "steps": steps,
            "calls": calls,
            "called": called[:LONGEST],
        }

    def _calls(self) -> list[tuple[int, str]]:
        return [(f.calls_and_hits()[0], f.name) for f in self._spanning()]

    def _done(self) -> int:
        # A number that rises with the work that is done.
        calls = sum([number for number, _ in self._calls()])
        return calls + sum([loop.steps for loop in self._loops])


def _is_interactive() -> bool:
    return bool(sys.flags.interactive) or hasattr(sys, "ps1")
