"""What changes, on a terminal: lines that rich, if installed, redraws in place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from jaxmon.cli import output


if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

BOLD, QUIET, WARNING = "bold", "dim", "yellow"

Line = Sequence[tuple[str, str]]
"""The parts of a line, each with its style."""

Shown = TypeVar("Shown")
Viewed_contra = TypeVar("Viewed_contra", contravariant=True)

Draw = Callable[[Shown, tuple[int, int]], Iterable[Line]]
"""Returns the lines of a state, for a width and a height."""


class StateView(Protocol[Viewed_contra]):
    """Shows states, one after the other."""

    def show(self, state: Viewed_contra, /) -> None:
        """Show what is now."""


class Screen(Generic[Shown]):
    """
    Draws in place.

    Args:
        draw: what to draw.
        alternate: whether to draw on the alternate screen, which restores the
            terminal's previous content; otherwise below it, where the last state stays.
        console: to draw on.
    """

    def __init__(
        self,
        draw: Draw[Shown],
        *,
        alternate: bool = False,
        console: Console | None = None,
    ) -> None:
        from rich.console import Console
        from rich.live import Live

        self._draw = draw
        self._console = console or Console()
        # Only `show` draws, and the output of other code is not redirected.
        self._live = Live(
            console=self._console,
            screen=alternate,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="visible",
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, state: Shown, /) -> None:
        """Draw the current state."""
        from rich.console import Group

        lines = self._draw(state, self._console.size)
        self._live.update(Group(*map(_drawn, lines)), refresh=True)


def view(
    draw: Draw[Shown], log: Callable[[], StateView[Shown]], *, alternate: bool = False
) -> AbstractContextManager[StateView[Shown]]:
    """Return what suits stdout: a screen, or a *log* if that is impossible."""
    if output.is_terminal(sys.stdout) and find_spec("rich") is not None:
        return Screen(draw, alternate=alternate)
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
