"""The loops in the user's code, found in its bytecode."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from itertools import pairwise
from types import CodeType
from typing import TypeAlias

from jaxmon.agent.jaxlink.source_lines import SourceLine


# Its first and last offset, and its line.
_Loop: TypeAlias = tuple[int, int, int]
_MOST = 10_000
_LONGEST = 50_000
# After which nothing follows in the code.
_LAST = ("RETURN", "RAISE", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD")
# What waits for a coroutine jumps without an interrupt.
_BACK = frozenset(
    code
    for name, code in dis.opmap.items()
    if "JUMP_BACKWARD" in name and not name.endswith("NO_INTERRUPT")
)


class CodeLoops:
    """Remembers the loops of functions, at most 10,000 of these."""

    def __init__(self) -> None:
        # The code object keeps its id from being reused.
        self._found: dict[int, tuple[CodeType, list[_Loop]]] = {}

    def at(self, code: CodeType, offset: int) -> SourceLine | None:
        """
        Return the line of the outermost loop of *code* around *offset*, `None` if there
        is none. Takes some microseconds for each instruction, the first time.
        """
        found = self._found.get(id(code))
        if found is None:
            if len(self._found) >= _MOST or len(code.co_code) > _LONGEST:
                return None
            self._found[id(code)] = found = code, [*_loops(code)]
        around = [loop for loop in found[1] if loop[0] <= offset <= loop[1]]
        if not around:
            return None
        _, _, line = max(around, key=lambda loop: loop[1] - loop[0])
        return SourceLine(code.co_filename, line, code.co_name)


def _loops(code: CodeType) -> Iterator[_Loop]:
    """
    Yield the loops of *code*: jumps back to where the jump can be reached from. It
    cannot if it ends what handles an exception, and goes on after that.
    """
    if _BACK.isdisjoint(code.co_code[::2]):
        return
    instructions = list(dis.get_instructions(code))
    follows: dict[int, list[int]] = {}
    for here, following in pairwise(instructions):
        is_last = here.opname.startswith(_LAST)
        follows[here.offset] = [] if is_last else [following.offset]
        if here.opcode in dis.hasjrel:
            follows[here.offset].append(here.argval)
    lines = {of.offset: (of.positions and of.positions.lineno) for of in instructions}
    for jump in instructions:
        if jump.opcode in _BACK:
            first, last = jump.argval, jump.offset
            if _reaches(first, last, follows):
                # A `while` ends with its condition, a `for` begins with its items.
                numbers = filter(None, (lines[first], lines[last]))
                yield first, last, min(numbers, default=code.co_firstlineno)


def _reaches(first: int, last: int, follows: dict[int, list[int]]) -> bool:
    """Return whether *last* follows from *first*, by what lies between them."""
    seen, to_see = set[int](), [first]
    while to_see:
        if (offset := to_see.pop()) == last:
            return True
        if first <= offset < last and offset not in seen:
            seen.add(offset)
            to_see += follows.get(offset, ())
    return False
