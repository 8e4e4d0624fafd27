"""
The XLA programs that are loaded.

XLA lists them, and JAX decides how long they live. What is known of each is kept by the
identity of the executable, and an executable itself never.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink import executables
from jaxmon.clocks import monotonic


# What a copy of a program takes in memory while it is made, measured: per byte of its
# text and of its constants, which the text omits.
_PER_TEXT, _PER_CONSTANT = 20, 2
_OMITTED = " constant({...})"
_SHAPE = r"= [a-z]+(\d*)\w*\[([\d,]*)\]"

_MOST_KNOWN = 4096
# For reading programs of which nothing is known: those compiled before jaxmon started.
_SECONDS = 0.5


class LoadedProgram(NamedTuple):
    """
    What is known of a program.

    Attributes:
        function: that it was compiled for, `None` if that was not seen.
        finished: Unix time at which it was compiled or loaded, 0 if not seen.
        text: length of its HLO, without metadata.
        copy: bytes that a copy of it takes in memory while it is made.
    """

    function: Function | None
    finished: float
    text: int
    copy: int


class LoadedPrograms:
    """
    The loaded programs. Thread-safe.

    Attributes:
        records: what is known of each, by identity of the executable.
    """

    def __init__(self, jax: Any) -> None:
        self._jax = jax
        self.records: dict[int, LoadedProgram] = {}

    def note(self, executable: Any, known: LoadedProgram) -> None:
        """Keep what is *known* of *executable* while it is loaded."""
        if len(self.records) >= _MOST_KNOWN:
            alive = set(map(id, executables.loaded(self._jax)))
            known_alive = self.records.copy().items()
            self.records = {k: one for k, one in known_alive if k in alive}
        if len(self.records) < _MOST_KNOWN:
            self.records[id(executable)] = known

    def now(self) -> list[tuple[Any, LoadedProgram | None]]:
        """Return those loaded now, which must not be kept."""
        return [
            (one, self.records.get(id(one))) for one in executables.loaded(self._jax)
        ]

    def copy_bytes(self) -> int | None:
        """
        Return the memory that copying them all takes; `None` if that is not known.
        Takes milliseconds; half a second if many are unknown, which are known then.
        """
        total, until = 0, monotonic() + _SECONDS
        options = executables.printing(self._jax)
        for executable, known in self.now():
            if known is not None:
                total += known.copy
                continue
            if monotonic() > until:
                return None
            found = _read(executable, options)
            self.note(executable, found)
            total += found.copy
        return total


def _read(executable: Any, options: Any) -> LoadedProgram:
    try:
        texts = list(executables.texts(executable, options))
    except RuntimeError:  # deleted since, or its backend shows no HLO
        texts = []
    return LoadedProgram(None, 0.0, sum(map(len, texts)), copy_bytes(texts))


def copy_bytes(texts: Iterable[str]) -> int:
    """Return the memory that copying a program with these HLO *texts* takes."""
    found = 0
    for text in texts:
        found += _PER_TEXT * len(text)
        at = text.find(_OMITTED)
        while at >= 0:
            shape = re.search(_SHAPE, text[text.rfind("\n", 0, at) + 1 : at])
            if shape is not None:
                found += _PER_CONSTANT * _bytes(*shape.groups())
            at = text.find(_OMITTED, at + 1)
    return found


def _bytes(bits: str, dimensions: str) -> int:
    size = max(int(bits or 8) // 8, 1)
    for dimension in filter(None, dimensions.split(",")):
        size *= int(dimension)
    return size
