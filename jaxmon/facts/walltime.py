"""The ledger of time: what the wall time of a process went into."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.facts.ending import ProcessEnd
from jaxmon.facts.record import NOTHING, Fact, summed


PROPAGATE_ADVICE = (
    "Let helpers pass their exceptions on to who waits for them, through the queue or "
    "as futures."
)
HELPER_ADVICE = (
    "What it waits for may be gone; the log of the program, or of the kernel, shows "
    f"why. {PROPAGATE_ADVICE}"
)
FILLER_ADVICE = (
    "If such a thread fills the queue, look at the line that it is in. `jaxmon explain "
    "--stacks` shows all threads."
)


class FailedHelper(Fact):
    """
    A helper of the program that has failed.

    Attributes:
        kind: ``thread``, which an exception has ended, ``task`` of a thread of a pool,
            whose exception nothing has read, or ``process``, a child.
        name: of it; empty if unknown.
        type: class of the exception.
        message: first line of its message.
        where: ``file:line`` of the program that it came from.
        function: in which function that is.
        age_seconds: how long ago.
        pid: of the process.
        code: with which it exited; negative for a signal.
        pooled: whether it was a worker of a `multiprocessing.Pool`, which has started
            another one: what that worker ran returns no result.
        handled: whether a hook of the program got the exception that ended a thread.
    """

    kind: str = ""
    name: str = ""
    type: str = ""
    message: str = ""
    where: str = ""
    function: str = ""
    age_seconds: float | None = None
    pid: int = 0
    code: int = 0
    pooled: bool = False
    handled: bool = False

    def __str__(self) -> str:
        """Return what it was, and how it ended."""
        from jaxmon.host.formats.layout import ago  # noqa: PLC0415 - agents load it seldom

        name = f" {self.name}" if self.name else ""
        when = "" if self.age_seconds is None else f" {ago(max(self.age_seconds, 0.0))}"
        if self.kind == "process":
            return f"process{name} (pid {self.pid}) {_exited(self.code)}{when}"
        message = f"{self.type}: {self.message}" if self.message else self.type
        place = f", {self.where}" if self.where else ""
        place += f" in {self.function}" if self.function else ""
        if self.kind == "task":
            return (
                f"a task of thread{name} failed{when}, and nothing has read its "
                f"exception: {message}{place}"
            )
        return f"thread{name} ended{when} by {message}{place}"


def _exited(code: int) -> str:
    end = ProcessEnd(status=code) if code >= 0 else ProcessEnd(signal=-code)
    return str(end).removesuffix(" without a word")


_LONG_SECONDS = 900.0
ENOUGH_LOOKS = 100
"""What so many looks at a program say is judged."""

SHORT_SECONDS = 5.0
"""Of a shorter time, only what is certain is judged."""

IDLE_SECONDS = 15.0
"""From so long a wait for work on, the program is idle, unless it marks its loop."""

_FEWEST_LOOKS = 20
_OF_HOST = frozenset(("python", "transfer", "data_wait"))
_OF_JAX = frozenset(("device", "fetch", "eager", "compile"))


class StateTime(Fact):
    """Seconds of one state, and half the width of their 95 % confidence interval."""

    seconds: float = 0.0
    error_seconds: float = 0.0


class PlaceTime(Fact):
    """
    Seconds of one state on one line.

    Attributes:
        activity: that the program marks.
        state: of the program.
        place: the line.
        function: the jitted function that was being called or traced, if known; of a
            read, whose outputs JAX itself read to check them.
        event_loop: whether an event loop waited meanwhile: one that serves requests,
            or for a coroutine that is blocked.
        caller: the line of the loop that had called that, empty if it is that itself;
            in a function that was being traced, of the outermost loop of Python there;
            of an operation outside of jit, in a function that a loop calls, that call.
        divided: whether it waited for work that is divided: other threads waited there,
            too, for no lock, or other processes worked for it.
        loop: the line of the outermost loop of the program that this was in, if any;
            not in an event loop.
        sleeps: whether it called `time.sleep` there, if it was blocked.
        once: whether the program came there only once, for certain: from its module, in
            no loop of its own, and no library had called it.
        seconds: how long.
    """

    activity: str = ""
    state: str = ""
    place: str = ""
    function: str = ""
    event_loop: bool = False
    caller: str = ""
    divided: bool = False
    loop: str = ""
    sleeps: bool = False
    once: bool = False
    seconds: float = 0.0

    @property
    def is_expected(self) -> bool:
        """Whether the program does so on purpose, if it waits."""
        return bool(self.activity) or self.divided


class Period(Fact):
    """
    What a period went into.

    Attributes:
        seconds: its length.
        looks: how often the program was looked at.
        states: seconds by state; together the whole period.
        activities: seconds by activity that the program marks.
        places: the lines that took most.
    """

    seconds: float = 0.0
    looks: int = 0
    states: Mapping[str, StateTime] = NOTHING
    activities: Mapping[str, float] = NOTHING
    places: tuple[PlaceTime, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether there are enough looks to judge."""
        return self.looks >= ENOUGH_LOOKS and self.seconds >= SHORT_SECONDS

    @property
    def certain(self) -> Period:
        """What it went into at least: the lower ends of the confidence intervals."""
        if self.looks < _FEWEST_LOOKS:
            return self.replace(states={}, places=())
        least = {
            name: state.replace(seconds=max(state.seconds - state.error_seconds, 0.0))
            for name, state in self.states.items()
        }
        part = {
            name: least[name].seconds / state.seconds if state.seconds else 0.0
            for name, state in self.states.items()
        }
        places = (
            place.replace(seconds=place.seconds * part.get(place.state, 0.0))
            for place in self.places
        )
        return self.replace(states=least, places=tuple(places))

    @property
    def once(self) -> tuple[PlaceTime, ...]:
        """
        What the host did once. Not on lines that call JAX, too: what they call may have
        the loop of the program.
        """
        calls = {place.place for place in self.places if place.state in _OF_JAX}
        found = (of for of in self.places if of.once and of.state in _OF_HOST)
        return tuple([of for of in found if of.place and of.place not in calls])

    @property
    def again(self) -> Period:
        """What it went into without what the host did once."""
        once, states = self.once, dict(self.states)
        for of in once:
            left = max(states[of.state].seconds - of.seconds, 0.0)
            states[of.state] = states[of.state].replace(seconds=left)
        places = tuple([of for of in self.places if of not in once])
        return self.replace(states=states, places=places) if once else self

    def of(self, *states: str) -> float:
        """Return the seconds of *states* together."""
        return sum(self.states[s].seconds for s in states if s in self.states)

    @property
    def checks(self) -> dict[str, float]:
        """The seconds by line in which JAX itself checked outputs of calls there."""
        waits = (of for of in self.places if of.state == "fetch" and of.function)
        return summed((of.place, of.seconds) for of in waits)

    def is_worth(self, seconds: float, state: str, ratio: float) -> bool:
        """Return whether *seconds* of *state* are that *ratio* of it, for certain."""
        error = self.states[state].error_seconds if state in self.states else 0.0
        return seconds - error >= ratio * self.seconds

    def share(self, *states: str) -> float:
        """Return the share of *states* together, from 0 to 1."""
        return self.of(*states) / self.seconds if self.seconds > 0 else 0.0

    def event_loops(self, state: str) -> float:
        """Return the seconds of *state* that kept an event loop waiting."""
        found = (p for p in self.places if p.event_loop and not p.is_expected)
        return sum(p.seconds for p in found if p.state == state)

    @property
    def slept(self) -> dict[str, float]:
        """
        The seconds in `time.sleep`, by line, that are not expected, and kept no event
        loop.
        """
        found = (p for p in self.places if not (p.is_expected or p.event_loop))
        slept = (p for p in found if p.sleeps and p.state == "blocked")
        return summed((p.place, p.seconds) for p in slept)

    def expected(self, state: str) -> float:
        """
        Return the seconds of *state* in activities that the program marks, or
        for work that it has divided.
        """
        return sum(p.seconds for p in self.places if p.state == state and p.is_expected)

    def lines(
        self,
        *states: str,
        expected: bool = True,
        calls: bool = False,
        caller: str | None = None,
    ) -> list[tuple[str, float]]:
        """
        Return the lines of *states* and their seconds, most first.

        Args:
            states: which ones.
            expected: whether time that is expected counts.
            calls: whether a line is the one that called it, if that is known.
            caller: the only line whose calls count, if it is not `None`.
        """
        found = summed(
            ((calls and place.caller) or place.place, place.seconds)
            for place in self.places
            if place.state in states and (expected or not place.is_expected)
            if caller in {None, place.caller}
        )
        found.pop("", None)
        return sorted(found.items(), key=lambda item: -item[1])

    def caller(self, line: str) -> str:
        """Return the line of the loop that calls *line* most of the time, if any."""
        places = (place for place in self.places if place.place == line != "")
        spent = summed((place.caller, place.seconds) for place in places)
        most = max(spent, key=spent.__getitem__, default="")
        return most if 2 * spent.get(most, 0.0) >= sum(spent.values()) else ""

    def calls(self, function: str) -> str:
        """Return the line that calls *function* most of the time, empty if unknown."""
        # While it was traced, the line was one of its own.
        found = [p for p in self.places if p.place and p.state != "compile"]
        places = [p for p in found if p.function == function]
        return max(places, key=lambda place: place.seconds).place if places else ""

    def compiled(self) -> dict[str, float]:
        """Return for how long calls were traced and compiled, by jitted function."""
        found = (p for p in self.places if p.state == "compile" and p.function)
        return summed((place.function, place.seconds) for place in found)


class Standing(Fact):
    """
    A thread: lines of its *stack*, innermost first, and the *place* of the program
    among them.
    """

    name: str = ""
    stack: tuple[str, ...] = ()
    place: str = ""

    @property
    def filling(self) -> str:
        """Where it is, if it may fill a queue that another thread waits for."""
        lines = ", ".join(from_place(self.stack, self.place)[:2])
        return f"thread {self.name}, which may fill the queue, is at {lines}"


class Now(Fact):
    """
    What the program is doing.

    Attributes:
        seconds: how long it has been doing that without a pause.
        longest_before: how long it has been in that state before, at most.
        longest_there: the same on that line.
        changes: how often it has begun to do something else.
        stack: lines of its stack, innermost first.
        lock: whether it waits for a lock.
        barrier: in what of JAX it waits for all processes of its job, if it does.
        callback: whether it runs a function that a running XLA program has called.
        others: if so, the other threads that do.
        gone: threads and child processes of the program that have failed.
        work: whether it waits for what may come at any time or never, as an item of a
            queue, in a program that marks no loop.
        alone: whether it waits for a queue that only threads of the program fill, or
            empty, and it has no others, or only such that wait for threads themselves.
        fillers: threads that may fill the queue for which it waits: those in a line of
            the program that do not wait for threads themselves.
        full: threads that wait for room in a queue, or for a thread to end, if it does
            so, too, and no thread of the program has done anything for a while.
        asleep: the processes of multiprocessing, if they have done nothing lately.
        called: the jitted functions that were called latest, within a second.
        repeats: how often each of them, at least, had run the same program before.
    """

    activity: str = ""
    state: str = ""
    place: str = ""
    function: str = ""
    event_loop: bool = False
    seconds: float = 0.0
    longest_before: float = 0.0
    longest_there: float = 0.0
    changes: int = 0
    stack: tuple[str, ...] = ()
    lock: bool = False
    barrier: str = ""
    callback: bool = False
    others: tuple[Standing, ...] = ()
    gone: tuple[FailedHelper, ...] = ()
    work: bool = False
    alone: bool = False
    fillers: tuple[Standing, ...] = ()
    full: tuple[Standing, ...] = ()
    asleep: int = 0
    called: tuple[str, ...] = ()
    repeats: int = 0


class Hanging(Fact):
    """
    Where the oldest request of a route is: lines of its stack, innermost first, the
    ``place`` of the program among them, and the ``state`` of its thread.
    """

    name: str = ""
    stack: tuple[str, ...] = ()
    place: str = ""
    state: str = ""


def from_place(stack: tuple[str, ...], place: str) -> tuple[str, ...]:
    """
    Return the lines of *stack* from *place* on, a line of the program. Of what it has
    called there, such as the standard library's, only the innermost line follows.
    """
    starts = (at for at, line in enumerate(stack) if line.startswith(f"{place} in "))
    at = next(starts, 0) if place else 0
    inner = (f"innermost: {stack[0]}",) if at else ()
    return (*stack[at : at + 1], *inner, *stack[at + 1 :])


class WallTime(Fact):
    """
    The ledger since the start and of the last minutes, and what goes on now.

    Attributes:
        recent: the last one to two minutes.
        requests: those that have been in progress for long, the oldest of each route.
        failed: the latest threads and child processes of the program that have failed.
        rates: calls a second lately, by jitted function, of those called most.
        rates_seconds: of how many seconds these are, up to about a minute.
        call_age: seconds since the latest call of a jitted function.
        jax_age: seconds since it was last seen to call, compile, read or copy there:
            calls of what is compiled ahead of time are not counted.
        call_pause: the most seconds between two of them.
        loops: by jitted function, the line of the only loop around a place that is
            known to call it.
        called: by jitted function, the line of the latest call of it that was seen: one
            that was sampled, or did not find a program.
        turns: of how many requests that began in the last minute it is known how long
            ago their last data had come, which is how long they waited for their turn.
        turn_seconds: how long that was, on average.
        processes: how many of multiprocessing the program has started, and how many
            *processes_at_once* there were at most.
    """

    since_start: Period = Period()
    lately: Period = Period()
    recent: Period = Period()
    now: Now = Now()
    requests: tuple[Hanging, ...] = ()
    failed: tuple[FailedHelper, ...] = ()
    rates: Mapping[str, float] = NOTHING
    rates_seconds: float | None = None
    call_age: float | None = None
    jax_age: float | None = None
    call_pause: float = 0.0
    loops: Mapping[str, str] = NOTHING
    called: Mapping[str, str] = NOTHING
    turns: int = 0
    turn_seconds: float = 0.0
    processes: int = 0
    processes_at_once: int = 0

    by_name = ("requests",)

    @property
    def period(self) -> Period:
        """The last minutes of a process that has run for long, else its whole life."""
        long = self.since_start.seconds > _LONG_SECONDS
        return self.lately if long else self.since_start

    def calls(self, function: str) -> str:
        """Return a line that calls *function*, empty if unknown."""
        return self.period.calls(function) or self.called.get(function, "")
