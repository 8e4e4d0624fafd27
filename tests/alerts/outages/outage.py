"""Outages: what happens, what on-call engineers must get, and by when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tests.alerts.outages.world import World


START = 30.0
"""Minutes for which every world is healthy, unless it says otherwise."""


class Build(Protocol):
    """Builds a world, broken or healthy."""

    __name__: str

    def __call__(self, world: World, *, broken: bool) -> None: ...


@dataclass(frozen=True)
class Notice:
    """
    A notification that must arrive.

    Args:
        severity: of the alert.
        within: minutes after the outage begins.
        labels: that it must have, and their values, which may be regular expressions.
        lasting: whether it must still fire in the end.
    """

    severity: str
    within: float
    labels: dict[str, str] = field(default_factory=dict)
    lasting: bool = False


@dataclass(frozen=True, eq=False)
class Outage:
    """
    An outage, and its healthy twin.

    Args:
        name: what happens.
        build: builds the world, broken or healthy.
        due: what must arrive.
        minutes: how long the world lasts.
        start: minute at which the outage begins.
        source: address of the report that it is from.
        loops: of the world, by job.
        runs: how many processes are expected, by job.
        objectives: of the site, besides ours.
        pages: how many page notifications it may make.
        tickets: alerts whose tickets may arrive besides those that are due.
        slow: whether it takes long to evaluate.
    """

    name: str
    build: Build
    due: tuple[Notice, ...]
    minutes: float = 75.0
    start: float = START
    source: str = ""
    loops: dict[str, str] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    objectives: tuple[str, ...] = ()
    pages: int = 0
    tickets: str = ""
    slow: bool = False

    @property
    def key(self) -> str:
        """Its short name."""
        return self.build.__name__.replace("_", "-")

    def world(self, *, broken: bool) -> World:
        """Return its world, or that of its twin."""
        cluster = f"{self.key}-{'broken' if broken else 'healthy'}"
        world = World(cluster, self.minutes, dict(self.loops))
        self.build(world, broken=broken)
        return world


def page(within: float, **labels: str) -> Notice:
    """Return a page that must arrive within so many minutes."""
    return Notice("page", within, labels)


def ticket(within: float, **labels: str) -> Notice:
    """Return a ticket, likewise."""
    return Notice("ticket", within, labels)


def lasting_ticket(within: float, **labels: str) -> Notice:
    """Return a ticket that must still fire in the end."""
    return Notice("ticket", within, labels, lasting=True)


@dataclass
class Collection:
    """Outages in order; `outage` adds one."""

    outages: list[Outage] = field(default_factory=list)

    def outage(
        self, name: str, *due: Notice, **how: object
    ) -> Callable[[Build], Build]:
        """Add the outage that a function builds."""

        def add(build: Build) -> Build:
            pages = any(notice.severity == "page" for notice in due)
            options = {"pages": int(pages), **how}
            self.outages.append(Outage(name, build, due, **options))  # type: ignore[arg-type]
            return build

        return add
