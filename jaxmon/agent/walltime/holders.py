"""Which thread has had the interpreter, when several of them want it."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.agent.walltime.tasks import Tasks, program_threads


# Of the processor time that threads of the program have used.
_MOST_OF_IT = 0.5


class Holders:
    """
    Compares the processor time of the program's threads over a moment.

    Only a thread that has the interpreter runs Python, so the one that used most
    processor time in a moment at which the interpreter was taken had it. Threads that
    Python does not know, such as those of XLA, need none.
    """

    def __init__(self) -> None:
        self._tasks = Tasks()

    def mark(self) -> None:
        """Begin a moment; a microsecond per thread."""
        for ident in program_threads():
            if (task := self._tasks.get(ident)) is not None:
                task.cpu()

    def used(self) -> dict[int, float]:
        """Return the processor seconds of each thread since the moment began."""
        return {
            ident: task.cpu()
            for ident in program_threads()
            if (task := self._tasks.get(ident)) is not None
        }

    def close(self) -> None:
        """Release what is open."""
        self._tasks.close()


def holder(used: Mapping[int, float]) -> int | None:
    """Return the thread that had it for most of a moment, `None` if none had."""
    most = max(used, key=used.__getitem__, default=None)
    return most if most and used[most] > _MOST_OF_IT * sum(used.values()) else None
