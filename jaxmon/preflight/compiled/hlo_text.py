"""
The text of a module of HLO, as ``/debug/hlo`` has it.

Newer releases of XLA print the calls that traced an instruction as a number of a table
at the head of the module, whose parents are shown one too high; older ones only the
innermost line.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from jaxmon.errors import WireError
from jaxmon.preflight.profile.xspace import Computation, Frame, HloProgram, Instruction


_MOST_TEXT, _MOST_ELEMENTS = 64 << 20, 1 << 62
_HEAD = r"(ENTRY )?%?([\w.\-]+) \(.*\{$"
_LINE = r"  (ROOT )?%?([^\s=]+) = (?:(\w+\[[\d,<=]*\]\S*) ([a-z][\w\-]*)\()?"
_NAMES = r"%([\w.\-]+)"
_OPCODE = r"([a-z][\w\-]*)\("
_CALLED = (
    r"(?:calls|to_apply|body|condition|called_computations|branch_computations"
    r"|true_computation|false_computation)=\{?(%[\w.\-]+(?:, %[\w.\-]+)*)"
)
_METADATA = (
    r'metadata=\{(?:op_type="[^"]*" )?(?:op_name="((?:[^"\\]|\\.)*)")?'
    r'(?: ?source_file="((?:[^"\\]|\\.)*)" source_line=(\d+))?'
    r"(?:[^{}]*?stack_frame_id=(\d+))?"
)
_ARRAY = r"([a-z]+)(\d*)\w*\[([\d,<=]*)\]"
_TABLE = r'(\d+) (?:"(.*)"|\{(.*)\})'
_FIELD = r"(\w+)=(\d+)"
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")


class Shape(NamedTuple):
    """An array: its *lengths*, their product, and *bytes* without padding."""

    lengths: tuple[int, ...]
    elements: int
    bytes: int


class HloText(HloProgram):
    """
    A module in text; some ten microseconds for each instruction.

    Attributes:
        entry: the computation that is the program.
        shapes: the arrays that each instruction makes, by its number.
        rests: what follows the operands of each.
        has_stacks: whether it has more than the innermost lines.
        head: its first line.

    Raises:
        WireError: it is no module.
    """

    def __init__(self, text: str) -> None:
        if not text.startswith("HloModule ") or len(text) > _MOST_TEXT:
            msg = "it is not the text of an HLO module"
            raise WireError(msg)
        self.head = text.partition("\n")[0]
        self.name = self.head[10:].partition(",")[0].strip()
        self.shapes: dict[int, tuple[Shape, ...]] = {}
        self.rests: dict[int, str] = {}
        self.entry: Computation | None = None
        self._computations = {}
        self._tables: dict[str, dict[int, str]] = {name: {} for name in _TABLES}
        self._ids: dict[str, int] = {}
        self._read(text)
        self._frames = self._stacks()
        self.has_stacks = bool(self._frames[1])

    def _read(self, text: str) -> None:
        table, computation = "", None
        self._line, self._metadata = re.compile(_LINE), re.compile(_METADATA)
        # Ids of instructions, by their names: a name is unique in its computation.
        names: dict[str, int] = {}
        for line in text.split("\n"):
            if line.startswith("  ") and computation is not None:
                self._add(line, computation, names)
            elif line in _TABLES:
                table = line
            elif (row := re.match(_TABLE, line)) and table:
                self._tables[table][int(row[1][:9])] = row[2] or row[3] or ""
            elif head := re.match(_HEAD, line):
                computation, names = Computation(memoryview(b"")), {}
                computation.id = self._number(head[2])
                self._computations[computation.id] = computation
                self.entry = computation if head[1] else self.entry

    def _number(self, computation: str) -> int:
        return self._ids.setdefault(computation, len(self._ids) + 1)

    def _add(self, line: str, computation: Computation, names: dict[str, int]) -> None:
        head = self._line.match(line)
        if head is None:
            return
        root, name, kind, opcode = head.groups(default="")
        begin = head.end()
        if not opcode:  # a tuple, or a layout with brackets of its own
            after = _closed(line, begin) if line[begin : begin + 1] == "(" else begin
            made = re.compile(_OPCODE).search(line, line.find(" ", after) + 1)
            if made is None:
                return
            kind, opcode, begin = line[begin : made.start()], made[1], made.end()
        end = _closed(line, begin - 1)
        operands, rest = line[begin : end - 1], line[end:]
        metadata = self._metadata.search(rest)
        path, file, number, stack = metadata.groups("") if metadata else ("",) * 4
        key = len(self.shapes) + 1
        names[name] = key
        self.shapes[key] = shapes = _shapes(kind)
        self.rests[key] = rest
        is_parameter = opcode == "parameter"
        computation.instructions[key] = Instruction(
            name,
            opcode,
            sum([shape.elements for shape in shapes]),
            path,
            int(stack or 0),
            Frame(file, int(number[:9]), "") if file else None,
            tuple([names[of] for of in re.findall(_NAMES, operands) if of in names]),
            self._called(rest) if "=%" in rest or "={%" in rest else (),
            int(operands) if is_parameter and operands.isdecimal() else 0,
        )
        if root:
            computation.root = key

    def _called(self, rest: str) -> tuple[int, ...]:
        return tuple(
            self._number(name)
            for several in re.findall(_CALLED, rest)
            for name in re.findall(_NAMES, several)
        )

    def _stacks(self) -> tuple[list[Frame], list[tuple[int, int]]]:
        """Return the locations, and location and parent of each frame."""
        files, functions, places, frames = self._tables.values()
        locations = [
            Frame(
                files.get(at["file_name_id"], ""),
                at["line"],
                functions.get(at["function_name_id"], ""),
            )
            for at in _fields(places, "file_name_id", "function_name_id", "line")
        ]
        found = list(_fields(frames, "file_location_id", "parent_frame_id"))
        # The first has no parent.
        shift = found[0]["parent_frame_id"] if found else 0
        return locations, [
            (frame["file_location_id"], frame["parent_frame_id"] - shift)
            for frame in found
        ]


def _closed(line: str, begin: int) -> int:
    """Return where the bracket at *begin* is closed, and past that."""
    end, depth = begin, 0
    while True:
        closing = line.find(")", end)
        if closing < 0:
            return len(line)
        depth += line.count("(", end, closing) - 1
        end = closing + 1
        if depth <= 0:
            return end


@lru_cache(4096)
def _shapes(kind: str) -> tuple[Shape, ...]:
    """Return the arrays of a type, such as ``(f32[8,16]{1,0}, s32[])``."""
    found = []
    for name, bits, lengths in re.findall(_ARRAY, kind):
        width = int(bits[:4]) if bits else 8 if name == "pred" else 0
        several = filter(None, lengths.split(","))
        sizes = [int(length.lstrip("<=")[:18] or 0) for length in several]
        elements = min(math.prod(sizes), _MOST_ELEMENTS)
        found.append(Shape(tuple(sizes), elements, (elements * width + 7) // 8))
    return tuple(found)


def _fields(rows: dict[int, str], *names: str) -> Iterator[dict[str, int]]:
    """Yield the numbers *names* of each row, from 1; 0 where there are none."""
    for number in range(1, len(rows) + 1):
        found = dict(re.findall(_FIELD, rows.get(number, "")))
        yield {name: int(found.get(name, "0")[:9]) for name in names}
