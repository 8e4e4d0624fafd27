"""What is shown, and what keys do to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jaxmon.cli.host import ProcessView


Order: TypeAlias = Callable[[ProcessView], Any]


def _most(value: float | None) -> tuple[bool, float]:
    """Sort the highest first, the unknown last."""
    return value is None, -(value or 0.0)


ORDERS: Mapping[str, Order] = {
    "worst first": lambda one: one.rank,
    "worker": lambda one: one.order,
    "requests": lambda one: _most(one.requests),
    "steps": lambda one: _most(one.steps),
    "errors": lambda one: _most(one.error_ratio),
    "p95": lambda one: _most(one.p95),
    "compiles": lambda one: _most(one.compiles),
    "memory": lambda one: _most(one.memory[0]),
    "age": lambda one: _most(one.agent.age),
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

_UP, _DOWN = ("up", "k"), ("down", "j")
_MOVES = {"pageup": -1, "pagedown": 1}
_BACK = ("esc", "left", "h", "backspace")


@dataclass
class State:
    """
    Attributes:
        order: key of `ORDERS`.
        reverse: whether the order is reversed.
        chosen: slot of the process that is marked, or open.
        opened: whether it is open.
        pid: of the process there when it was opened, if that was known.
        began: when that was started, in Unix time, likewise.
        helped: whether the help is shown.
        scrolled: lines that are above the screen, of an open process.
        paused: whether the screen stands still.
        page: lines that a page has; set by what draws.
        most: how far can be scrolled; likewise.
    """

    order: str = "worst first"
    reverse: bool = False
    chosen: str | None = None
    opened: bool = False
    pid: int | None = None
    began: float | None = None
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
        numbers = [one.number for one in processes]
        return numbers.index(self.chosen) if self.chosen in numbers else 0

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
        agent = process.agent
        self.chosen = process.number
        self.pid, self.began = agent.pid, agent.started
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
