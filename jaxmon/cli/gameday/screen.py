"""What changes, on a terminal: lines that rich, if installed, redraws in place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from jaxmon.cli import output


if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

BOLD, QUIET, WARNING = "bold", "dim", "yellow"

Line = Sequence[tuple[str, str]]
"""The parts of a line, each with its style."""

State = TypeVar("State")

Draw = Callable[[State, tuple[int, int]], Iterable[Line]]
"""Returns the lines of a state, for a width and a height."""


@contextmanager
def screen(
    draw: Draw[State], *, alternate: bool = False, console: Console | None = None
) -> Iterator[Callable[[State], None]]:
    """Yield what shows a state in place: below, or on the *alternate* screen."""
    from rich.console import Console, Group
    from rich.live import Live

    console = console or Console()
    # Only `show` draws, and the output of other code is not redirected.
    with Live(
        console=console,
        screen=alternate,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
        vertical_overflow="visible",
    ) as live:

        def show(state: State) -> None:
            lines = draw(state, console.size)
            live.update(Group(*map(_drawn, lines)), refresh=True)

        yield show


def view(
    draw: Draw[State],
    log: Callable[[], Callable[[State], None]],
    *,
    alternate: bool = False,
) -> AbstractContextManager[Callable[[State], None]]:
    """Return what shows states on stdout: a screen, or a *log* if there can be none."""
    if output.is_terminal(sys.stdout) and find_spec("rich") is not None:
        return screen(draw, alternate=alternate)
    return nullcontext(log())


def plain(lines: Iterable[Line]) -> list[str]:
    """Return *lines* without styles."""
    return ["".join(text for text, _ in line) for line in lines]


def clock(seconds: float) -> str:
    """Return *seconds* as hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def _drawn(line: Line) -> Text:
    """Return *line*, harmless: rich lets control characters through."""
    from rich.text import Text

    parts = ((output.safe(text), style) for text, style in line)
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")
