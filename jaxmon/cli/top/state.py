"""What was read, what is shown of it, and what keys do to that."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, TypeAlias

from jaxmon.cli.host import HostReader, ProcessView
from jaxmon.errors import JaxmonError
from jaxmon.facts.status import Summary
from jaxmon.threads import DaemonThread


Order: TypeAlias = Callable[[ProcessView], Any]

_FINDINGS_EVERY = 10.0
_MOST_OF_A_CORE = 0.1


def _most(value: float | None) -> tuple[bool, float]:
    """Sort the highest first, the unknown last."""
    return value is None, -(value or 0.0)


ORDERS: Mapping[str, Order] = {
    "worst first": lambda process: process.rank,
    "worker": lambda process: process.order,
    "requests": lambda process: _most(process.requests),
    "steps": lambda process: _most(process.steps),
    "errors": lambda process: _most(process.error_ratio),
    "p95": lambda process: _most(process.p95),
    "compiles": lambda process: _most(process.compiles),
    "memory": lambda process: _most(process.memory[0]),
    "age": lambda process: _most(process.agent.age),
}
"""What processes are sorted by, in the order of the key ``s``."""

KEYS = (
    ("↑ ↓  k j", "choose a process; scroll, when one is open"),
    ("PgUp PgDn  Home End", "a page; to the first, to the last"),
    ("Enter  →  l", "open the process: findings, requests, steps, functions"),
    ("Esc  ←  h  Backspace", "back"),
    ("n  p", "the next or previous process, when one is open"),
    ("s  S", "sort by the next or previous column"),
    ("r", "reverse the order"),
    ("Space", "pause, and continue"),
    ("Ctrl-L", "draw the screen anew"),
    ("?", "this help"),
    ("q  Ctrl-C", "quit"),
)
"""All keys, and what they do."""

HELP = (
    "Rates, errors, P95 and compiles are of the last minute. P95 is that of the "
    "slowest route, or else of the slowest loop. Memory is that of the devices, or "
    "else of the process on its host. A process that is stuck does not respond, or "
    "its loop or a compile makes no progress."
)
"""What the columns say."""

_UP, _DOWN = ("up", "k"), ("down", "j")
_MOVES = {"pageup": -1, "pagedown": 1}
_BACK = ("esc", "left", "h", "backspace")


@dataclass
class State:
    """
    What keys change: the process *chosen*, or *opened*; drawing sets the lines of a
    *page* and the *most* that can be scrolled.
    """

    order: str = "worst first"
    reverse: bool = False
    chosen: str | None = None
    opened: bool = False
    helped: bool = False
    scrolled: int = 0
    paused: bool = False
    page: int = 10
    most: int = 0

    def sorted(self, processes: Sequence[ProcessView]) -> list[ProcessView]:
        """Return *processes* in the order that was chosen."""
        found = sorted(processes, key=ORDERS[self.order])
        return found[::-1] if self.reverse else found

    def place(self, processes: Sequence[ProcessView]) -> int:
        """Return the index of the chosen one in the sorted *processes*, the first."""
        numbers = [process.number for process in processes]
        return numbers.index(self.chosen) if self.chosen in numbers else 0

    def fit(self, lines: int, room: int) -> None:
        """Scroll no farther than *lines* need; what is at the end stays there."""
        follows = 0 < self.most == self.scrolled
        self.page, self.most = max(room - 1, 1), max(lines - room, 0)
        self.scrolled = self.most if follows else min(self.scrolled, self.most)

    def press(self, key: str, processes: Sequence[ProcessView]) -> bool:
        """Do what *key* is for; return whether to go on."""
        if key == "q":
            return False
        if self.helped:
            self.helped = False
        elif key == "?":
            self.helped = True
        elif key == " ":
            self.paused = not self.paused
        elif self.opened:
            self._press_opened(key, processes)
        else:
            self._press_list(key, processes)
        return True

    def _press_list(self, key: str, processes: Sequence[ProcessView]) -> None:
        orders = list(ORDERS)
        if key in ("s", "S"):
            step = 1 if key == "s" else -1
            place = orders.index(self.order) + step
            self.order = orders[place % len(orders)]
        elif key == "r":
            self.reverse = not self.reverse
        elif processes:
            found = self.sorted(processes)
            place = self._moved(key, self.place(found), len(found) - 1)
            self.chosen = found[place].number
            if key in ("enter", "right", "l"):
                self._open(found[place])

    def _press_opened(self, key: str, processes: Sequence[ProcessView]) -> None:
        if key in _BACK:
            self.opened = False
        elif key in ("n", "p") and processes:
            found = self.sorted(processes)
            step = 1 if key == "n" else -1
            place = (self.place(found) + step) % len(found)
            self._open(found[place])
        else:
            self.scrolled = self._moved(key, self.scrolled, self.most)

    def _open(self, process: ProcessView) -> None:
        self.chosen = process.number
        self.opened, self.scrolled = True, 0

    def _moved(self, key: str, place: int, last: int) -> int:
        if key in _UP:
            place -= 1
        elif key in _DOWN:
            place += 1
        elif key in _MOVES:
            place += _MOVES[key] * self.page
        elif key == "home":
            place = 0
        elif key == "end":
            place = last
        return min(max(place, 0), max(last, 0))


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read last, at Unix *time*, 0 if never; *trouble* is why not since."""

    summary: Summary
    processes: Sequence[ProcessView]
    time: float = 0.0
    trouble: str = ""
    hints: Sequence[str] = ()


class Reader:
    """
    Reads *host* every few seconds, and calls *changed* after each reading; on a thread,
    since a process that hangs must not hold up the keys. Findings are read every ten
    seconds, or less often if that would take a tenth of a core.
    """

    def __init__(
        self,
        host: HostReader,
        changed: Callable[[], None],
        *,
        every: float,
        hints: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._host = host
        self._hints = hints
        self._changed = changed
        self._every = every
        self._stopped = Event()
        self.seen = Seen(host.summary(), ())

    def start(self) -> None:
        """Start to read."""
        DaemonThread("jaxmon-top", self._run).start()

    def stop(self) -> None:
        """Read no more; a reading that hangs may last some seconds."""
        self._stopped.set()

    def _run(self) -> None:
        judged, pause = 0.0, 0.0
        while not self._stopped.is_set():
            began = time.monotonic()
            try:
                self._host.poll()
                self._show()
                if began - judged >= pause:
                    used = time.thread_time()
                    self._host.judge()
                    used = time.thread_time() - used
                    judged, pause = began, max(_FINDINGS_EVERY, used / _MOST_OF_A_CORE)
                    self._show()
            except JaxmonError as error:
                self._trouble(str(error))
            except Exception as error:  # noqa: BLE001 - shown, and tried again
                self._trouble(f"{type(error).__name__}: {error}")
            left = self._every - (time.monotonic() - began)
            self._stopped.wait(max(left, self._every / 2))

    def _show(self) -> None:
        found = self._host.processes()
        hints = () if found else self._hints()
        self.seen = Seen(self._host.summary(), found, time.time(), hints=hints)
        self._changed()

    def _trouble(self, text: str) -> None:
        self.seen = replace(self.seen, trouble=text)
        self._changed()
