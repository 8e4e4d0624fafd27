"""
What a program writes, and holds when the arrays that are alive take most memory.

XLA's text has the order in which a computation runs, so it is known when each array is
made and last read, what is updated in place, and what loops carry. XLA may let a result
take the place of an operand, too: what is alive is at most that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from jaxmon.preflight.compiled.hlo_text import HloText
from jaxmon.preflight.profile.xspace import Computation, Instruction


# Their results are what they are given, or no memory of the program's own.
_SAME = frozenset(
    (
        *("after-all", "async-done", "bitcast", "constant", "copy-done"),
        *("opt-barrier", "parameter", "partition-id", "replica-id", "while"),
    )
)
_SCHEDULED = ", is_scheduled=true"
_CALLS = ("async-start", "call", "conditional", "while")
_UPDATE, _RENAMED = "dynamic-update-slice", ("bitcast", "copy")
_DONATED = r"\((\d{1,9}), \{"
_INDEX = r"index=(\d{1,9})"

# The instructions that made an array, and those that made each one of a tuple.
_Makers: TypeAlias = frozenset[int]
_Each: TypeAlias = list[_Makers]
_NONE: _Makers = frozenset()


class HeldArray(NamedTuple):
    """An array of so many *bytes*, and which instruction gives it its contents."""

    bytes: float
    computation: Computation
    key: int


# The number of an operand that is updated in place, and what with.
_Update: TypeAlias = tuple[int, Computation, int]


def at_peak(text: HloText) -> list[HeldArray]:
    """Return what *text* holds at its peak, but for arguments and results; if known."""
    if text.entry is None or _SCHEDULED not in text.head:
        return []
    return _Reader(text).peak(text.entry)


def donated_in_vain(text: HloText) -> float:
    """Return the bytes of donated arguments whose memory no result takes."""
    given = text.head.partition("buffer_donor={")[2].partition("}) }")[0]
    numbers = {int(number) for number in re.findall(_DONATED, given)}
    size = 0.0
    for key, of in text.entry.instructions.items() if text.entry else ():
        if of.opcode == "parameter" and of.parameter in numbers:
            size += sum(shape.bytes for shape in text.shapes[key])
    return size


class _Reader:
    def __init__(self, text: HloText) -> None:
        self._text = text
        self._peaks: dict[int, list[HeldArray]] = {}

    def peak(self, computation: Computation) -> list[HeldArray]:
        """Return what it holds at most at once, with what it calls."""
        if (found := self._peaks.get(computation.id)) is not None:
            return found
        self._peaks[computation.id] = []  # calls in a circle end here
        spans = _Spans(self._text, computation)
        live, most, when, called = 0.0, 0.0, 0, list[HeldArray]()
        ends: dict[int, float] = {}
        for at, (key, instruction) in enumerate(computation.instructions.items()):
            if size := spans.sizes.get(key, 0.0):
                live += size
                ends[spans.last[key]] = ends.get(spans.last[key], 0.0) + size
            is_call = instruction.opcode in _CALLS
            several = self._text.called(instruction) if is_call else ()
            inner = max(map(self.peak, several), key=_bytes, default=[])
            if (total := live + _bytes(inner)) > most:
                most, when, called = total, at, inner
            live -= ends.pop(at, 0.0)
        held = [
            HeldArray(size, *spans.contents.get(key, (computation, key)))
            for key, size in spans.sizes.items()
            if size and spans.first[key] <= when <= spans.last[key]
        ]
        self._peaks[computation.id] = held + called
        return held + called


def _bytes(arrays: list[HeldArray]) -> float:
    return sum(array.bytes for array in arrays)


class _Spans:
    """
    The arrays that a computation makes: their *sizes* by the instructions that do, when
    they are *first* and *last* needed, and whence those that a loop fills have their
    *contents*.
    """

    def __init__(self, text: HloText, computation: Computation) -> None:
        self._text, self._computation = text, computation
        self.sizes: dict[int, float] = {}
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.contents: dict[int, tuple[Computation, int]] = {}
        makers: dict[int, _Each] = {}
        for at, (key, instruction) in enumerate(computation.instructions.items()):
            given = [makers.get(operand, [_NONE]) for operand in instruction.operands]
            for several in given:
                self.last.update(dict.fromkeys(_NONE.union(*several), at))
            makers[key] = found = self._makers(key, instruction, given)
            if found == [frozenset((key,))]:
                self.sizes[key] = float(sum(of.bytes for of in text.shapes[key]))
                self.first[key] = self.last[key] = at
        # They are in the memory of results, or of what a loop carries.
        for returned in makers.get(computation.root, ()):
            self.sizes.update(dict.fromkeys(returned, 0.0))

    def _makers(self, key: int, instruction: Instruction, given: list[_Each]) -> _Each:
        opcode = instruction.opcode
        if opcode == "tuple":
            return [_NONE.union(*parts) for parts in given]
        if opcode == "get-tuple-element" and given:
            index = re.search(_INDEX, self._text.rests[key])
            at = int(index[1]) if index else 0
            return [given[0][at]] if at < len(given[0]) else [_NONE.union(*given[0])]
        if opcode == "while" and given:
            for at, content in self._carried(instruction):
                if at < len(given[0]):
                    self.contents.update(dict.fromkeys(given[0][at], content))
        if opcode in _SAME:
            return given[0] if given else [_NONE] * len(self._text.shapes[key])
        update = _update(self._text, self._computation, key)
        if update is not None and update[0] < len(given):
            return given[update[0]]
        return [frozenset((key,))]

    def _carried(
        self, loop: Instruction
    ) -> Iterator[tuple[int, tuple[Computation, int]]]:
        """Yield the number of each array that *loop* fills, and with what."""
        for body in self._text.called(loop):
            root = body.instructions.get(body.root)
            for at, key in enumerate(root.operands if root else ()):
                update = _update(self._text, body, key)
                if update is not None:
                    yield at, update[1:]


def _update(text: HloText, computation: Computation, key: int) -> _Update | None:
    """Return what the instruction *key* updates in place, if it does."""
    instruction = computation.instructions[key]
    if instruction.opcode == _UPDATE and len(instruction.operands) > 1:
        return 0, computation, instruction.operands[1]
    for fused in text.called(instruction) if instruction.opcode == "fusion" else ():
        root = _renamed(fused, fused.root)
        if root is not None and root.opcode == _UPDATE and len(root.operands) > 1:
            target = _renamed(fused, root.operands[0])
            if target is not None and target.opcode == "parameter":
                return target.parameter, fused, root.operands[1]
    return None


def _renamed(computation: Computation, key: int) -> Instruction | None:
    found = computation.instructions.get(key)
    while found is not None and found.opcode in _RENAMED and found.operands:
        found = computation.instructions.get(found.operands[0])
    return found


# What writes nothing of its own.
_NO_WRITE = frozenset(
    (
        *("after-all", "async-done", "async-start", "async-update", "bitcast", "call"),
        *("conditional", "constant", "get-tuple-element", "opt-barrier", "parameter"),
        *("partition-id", "replica-id", "tuple", "while"),
    )
)
_MOVES = frozenset(("copy", "copy-start", "transpose"))
_RENAMES = frozenset(("bitcast", "parameter"))


def moves(text: HloText, instruction: Instruction) -> bool:
    """Return whether all that it does is to copy, or to transpose."""
    if instruction.opcode != "fusion":
        return instruction.opcode in _MOVES
    inner = {
        part.opcode
        for computation in text.called(instruction)
        for part in computation.instructions.values()
    }
    return bool(inner & _MOVES) and inner <= _MOVES | _RENAMES


def written(text: HloText, key: int, instruction: Instruction) -> float:
    """Return the bytes of results that *instruction* writes to memory."""
    opcode = instruction.opcode
    if opcode in _NO_WRITE or opcode.endswith("-done"):
        return 0.0
    if opcode == "fusion":
        # What updates a part of an array in place writes that part.
        for computation in text.called(instruction):
            root = computation.instructions.get(computation.root)
            if root is not None and root.opcode == _UPDATE:
                return written(text, computation.root, root)
    if opcode == _UPDATE and len(instruction.operands) > 1:
        key = instruction.operands[1]
    if opcode.endswith("-start"):
        return float(max((shape.bytes for shape in text.shapes[key]), default=0))
    return float(sum(shape.bytes for shape in text.shapes[key]))
