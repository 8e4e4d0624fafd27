"""The stacks of a process's threads as text."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxmon.facts.reader import from_json
from jaxmon.host.formats.layout import INDENT, shortened
from jaxmon.screens.time_table import STATES


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread: what it is doing, and its stack, innermost line first."""

    name: str = ""
    ident: int = 0
    native_id: int | None = None
    main: bool = False
    daemon: bool = False
    state: str = ""
    lock: bool = False
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stacks:
    """The content of ``/debug/stacks``."""

    threads: tuple[Thread, ...] = ()
    left_out: int = field(default=0)


def stacks(document: object, width: int) -> list[str]:
    """Return the stacks in *document*; threads with equal stacks are shown once."""
    found = from_json(Stacks, document)
    groups: dict[tuple[str, ...], list[Thread]] = {}
    for thread in found.threads:
        groups.setdefault(thread.stack, []).append(thread)
    lines = []
    for stack, threads in groups.items():
        lines += ["", shortened(_heading(threads), width)]
        lines += [shortened(f"{INDENT}{line}", width) for line in stack]
    if found.left_out:
        lines += ["", f"and {found.left_out} further threads"]
    return lines[1:]


def _heading(threads: list[Thread]) -> str:
    first = threads[0]
    number = f" ({first.native_id})" if first.native_id is not None else ""
    name = f"{first.name or 'a thread of native code'}{number}"
    more = f" and {len(threads) - 1} more" if len(threads) > 1 else ""
    state = STATES.get(first.state, first.state)
    doing = "acquiring a lock" if first.lock and first.state == "python" else state
    return f"{name}{more}: {doing}"
