"""
Keeps failures of our code from the user's program.

Everything jaxmon does inside a user's call runs under a `Guard`: a failure is counted
and logged once, and a site that keeps failing is disabled. The user's own call is never
made inside it. An exception of the program that arrives while our code runs is not a
failure and propagates: see `jaxmon.interrupts`.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from jaxmon import interrupts
from jaxmon.clocks import monotonic
from jaxmon.exposition.families import Tally
from jaxmon.host import disclosure
from jaxmon.host.files.descriptor import NONE_LEFT
from jaxmon.threads import DaemonThread, Deadline, RLock, current


_FACTOR, _SHIFT, _MODULUS = 25_173, 13_849, 65_536
# A pause grows by so much at a time, as two events in a row say little about the pace.
_GROWTH = 8
# No pause takes so long, unless the program has become slower meanwhile.
_STALE_SECONDS = 1.0


class Allowance:
    """
    Chooses the events to examine: all, except in loops that make very many. There one
    stands for those that passed before it, so that sums are right. Thread-safe.

    At most *burst* are examined at once, after a pause, and *rate* in a second, on
    average. `passing` of the next events pass in any case; `latest` is what the latest
    examined was, for those that passed after it.
    """

    def __init__(self, *, burst: int, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = burst
        # How many events the clock is read for, 1 unless some pass.
        self._span = 1
        self._passed = self._turn = 0
        self._since = monotonic()
        self.latest: Any = None
        self.passing = 0

    def take(self) -> int:
        """Return how many events the present one stands for, 0 if it passes."""
        # No thread loses count: there is no call in here, up to the clock.
        if self.passing:
            self.passing -= 1
            return 0
        passed = self._passed - self.passing
        self._passed = self.passing
        self.latest = None
        if self._left:
            self._left -= 1
            return passed + 1
        now = monotonic()
        earned = (now - self._since) * self._rate
        self._since = now
        if earned >= self._span:
            self._left, self._span = int(min(earned, self._burst)) - 1, 1
            return passed + 1
        # Not evenly: in a loop over a few arrays it would always be the same of them.
        self._turn = turn = (_FACTOR * self._turn + _SHIFT) % _MODULUS
        pause = self._span / max(earned, 1 / _GROWTH)
        pause = int(pause * (0.5 + turn / _MODULUS) + 0.5)
        self._span = pause + 1
        # Another thread may have come here, too.
        self._passed += pause
        self.passing += pause
        return passed + 1

    def passed(self) -> int:
        """Return how many events have passed that no other stands for yet, once."""
        stale = monotonic() - self._since >= _STALE_SECONDS
        # As above.
        passed = self._passed - self.passing
        if stale:
            self.passing, self._span = 0, 1
        self._passed = self.passing
        return passed


log = logging.getLogger("jaxmon")

LIMIT = 10
"""Failures within `WITHIN_SECONDS` after which a site is disabled."""

WITHIN_SECONDS = 3600.0
"""
A site that fails less often stays enabled: a program that runs for months must not lose
metrics over ten transient failures.
"""


class Guard:
    """
    Counts the failures of our own code by site. Thread-safe. Sites that are `off` are
    disabled; the `deadline` is of all that waits when the agent stops. If *strict*,
    failures are raised instead, for jaxmon's own tests.
    """

    strict = False

    def __init__(self, *, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, Tally] = {}
        # Times of the latest failures that count against a site.
        self._lately: dict[str, deque[float]] = {}
        self.off: set[str] = set()
        self.deadline = Deadline(clock=clock)
        # Reentrant: logging a failure may cause another.
        self._lock = RLock()

    def start(self, thread: DaemonThread, site: str) -> bool:
        """Start *thread*; return whether it runs. If not, *site* has failed."""
        try:
            thread.start()
        except RuntimeError:  # no threads left
            self.failed(site, stays_on=True, shown=False)
            return False
        return True

    def join(self, thread: DaemonThread) -> None:
        """Wait for our *thread* to stop, within the deadline."""
        thread.join(self.deadline.portion())

    def on(self, site: str) -> bool:
        """Return whether *site* is enabled."""
        return site not in self.off

    def switch_off(self, sites: Iterable[str], why: str) -> None:
        """Disable *sites*, which are not safe in this program, and log it once."""
        with self._lock:
            new = [site for site in sites if site not in self.off]
            self.off.update(new)
        if new:
            log.warning("jaxmon has disabled %s: %s", ", ".join(new), why)

    def failed(
        self,
        site: str,
        *,
        stays_on: bool = False,
        theirs: bool = False,
        shown: bool = True,
    ) -> None:
        """
        Record the exception being handled at *site*; call this first. If it *stays_on*,
        the site is not disabled, as the work is retried forever; *theirs*: code or a
        value of the program was used on purpose. It is *shown* with its traceback,
        unless it says enough without.

        Raises:
            BaseException: the exception is the program's own, such as a time limit.
        """
        error = sys.exception()
        # None of the program's handlers runs on our threads.
        if error is not None and current() is None:
            try:
                interrupts.pass_on(error, theirs=theirs)
            except BaseException:
                del error  # see there
                raise
        if self.strict:
            raise  # noqa: PLE0704 - called from except blocks only
        # Where it was noticed says nothing.
        shown = shown and not isinstance(error, RecursionError) and _can_open()
        failures = self._failures.setdefault(site, Tally())
        with self._lock:
            failures.add()
            count = failures.value
            goes_off = self._is_often(site) and not stays_on and site not in self.off
            if goes_off:
                self.off.add(site)
        try:
            if count == 1 and theirs:
                log.warning(
                    "jaxmon could not record %s, because of what the program passed "
                    "to it: %s: %s. The program continues; further errors there are "
                    "counted without logging.",
                    site,
                    type(error).__name__,
                    error,
                    exc_info=error,
                    # With the line that passed it, which called none of our threads.
                    stack_info=current() is None,
                )
            elif count == 1:
                log.warning(
                    "jaxmon failed in %s%s. Your program is not affected, but some "
                    "metrics may be missing. Further failures there are counted "
                    "without logging.",
                    site,
                    "" if shown else f": {disclosure.text(str(error))}",
                    exc_info=error if shown else None,
                )
            elif goes_off:
                keeps = "cannot record" if theirs else "keeps failing in"
                log.warning("jaxmon %s %s and has disabled it", keeps, site)
        except Exception as unsaid:  # noqa: BLE001 - a handler of the log is the user's
            interrupts.pass_on(unsaid, theirs=True)

    def contained(self, site: str, *, stays_on: bool = False) -> interrupts.Handled:
        """Have what leaves a block be a failure at *site*, as in `failed`."""
        failed = functools.partial(self.failed, site, stays_on=stays_on)
        return interrupts.Handled((Exception,), failed)

    def run(self, site: str, work: Callable[[], None]) -> None:
        """Run *work*, the body of a thread; an exception is a failure at *site*."""
        try:
            work()
        except BaseException:  # noqa: BLE001 - Python would print it
            self.failed(site, stays_on=True)

    def last(self, *steps: Callable[[], None]) -> None:
        """
        Do *steps* at exit. A second signal ends the step that it interrupts, not those
        that follow: no code of the program is left to catch what its handler raises,
        and Python would print a traceback into our code.
        """
        for step in steps:
            try:
                step()
            except BaseException as error:
                if self.strict and isinstance(error, Exception):
                    raise

    def failures(self) -> dict[str, int]:
        """Return the failures so far by site."""
        return {site: tally.value for site, tally in self._failures.copy().items()}

    def _is_often(self, site: str) -> bool:
        lately = self._lately.setdefault(site, deque(maxlen=LIMIT))
        now = self._clock()
        lately.append(now)
        return len(lately) == LIMIT and now - lately[0] <= WITHIN_SECONDS


def _can_open() -> bool:
    """Return whether a descriptor is left: without, anything fails, in many ways."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        interrupts.pass_on(error)
        return error.errno not in NONE_LEFT
    return True


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """Raise failures instead of containing them; for tests."""
    before, Guard.strict = Guard.strict, True
    try:
        yield
    finally:
        Guard.strict = before
