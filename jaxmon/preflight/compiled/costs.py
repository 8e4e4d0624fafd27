"""
What each line of source costs in a compiled program: equations, as JAX traced them, and
what XLA made of them, by the text of its HLO.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from jaxmon.errors import WireError
from jaxmon.facts.programs import CompiledProgram
from jaxmon.host import sources
from jaxmon.host.formats.layout import clean, counted, size
from jaxmon.preflight.compiled.held import at_peak, donated_in_vain, moves, written
from jaxmon.preflight.compiled.hlo_text import HloText, Shape
from jaxmon.preflight.profile.origins import CodePlace, Origins
from jaxmon.preflight.profile.xspace import Instruction


_CONTROL = frozenset(("async-start", "call", "conditional", "while"))
_COLLECTIVES = (
    *("all-gather", "all-reduce", "all-to-all", "collective-broadcast"),
    *("collective-permute", "ragged-all-to-all", "reduce-scatter"),
)
# Primitives of JAX by which a program asks for collectives, at the end of a path.
_ASKED = (
    r"/(?:all_gather|all_to_all|p(?:broadcast|gather|max|min|permute|sum)"
    r"|ragged_all_to_all|reduce_scatter|reshard|sharding_constraint|unreduced_psum)"
    r"\w*\)*(?:[:;]|$)"
)
_TRIPS = r'"known_trip_count":\{"n":"(\d{1,18})"'
_CONTRACTED = (
    r'(?:lhs_contracting_dims=\{|"lhs_contracting_dimensions":\[)([\d,"]*)[\]}]'
)
_LABELS = r"dim_labels=\w+_(\w+)->"
_LIBRARY = r'custom_call_target="[^"]*(?:gemm|matmul|dot|conv)'
# No device does more in its life.
_MOST = 1e30


class LinePlace(NamedTuple):
    """A line of source; no *file* if none is known."""

    file: str
    line: int

    def __str__(self) -> str:
        if not self.file:
            return "no line known"
        return f"{clean(sources.display_path(self.file))}:{self.line}"


NOWHERE = LinePlace("", 0)


def place_of(found: CodePlace | None) -> LinePlace:
    """Return the line that was *found* for an instruction, if any."""
    return LinePlace(found.file, found.line) if found else NOWHERE


@dataclass(slots=True)
class Collective:
    """
    What a line has of collectives of a *kind*, per call: their *number*, and bytes of
    results on one device. XLA's partitioner *inserted* them, or the program has asked
    for them; `None` if that is not known.
    """

    kind: str
    inserted: bool | None
    number: float = 0.0
    bytes: float = 0.0


@dataclass(slots=True)
class LineCost:
    """
    What a line costs; bytes and FLOPs per call, on one device.

    Attributes:
        function: that it is in.
        equations: their number by primitive, and *instructions* by opcode.
        flops: of products of matrices and convolutions.
        written_bytes: what its operations write to memory, and *moved_bytes*, what
            copies and transposes do of that.
        collective_bytes: the results of all *collectives*.
        held_bytes: what the program holds of it, besides arguments and results, when it
            holds most; *saved_bytes*, of that, what its forward pass made. At most.
    """

    function: str = ""
    equations: Counter[str] = field(default_factory=Counter)
    instructions: Counter[str] = field(default_factory=Counter)
    flops: float = 0.0
    written_bytes: float = 0.0
    moved_bytes: float = 0.0
    collective_bytes: float = 0.0
    held_bytes: float = 0.0
    saved_bytes: float = 0.0
    collectives: dict[Any, Collective] = field(default_factory=dict)

    def write(
        self, instruction: Instruction, times: float, size: float, *, moves: bool
    ) -> None:
        """Count what an operation writes, so many *times*, or just *moves*."""
        opcode, size = instruction.opcode, min(times * size, _MOST)
        self.written_bytes += size
        if moves:
            self.moved_bytes += size
        if (kind := opcode.removesuffix("-start")) in _COLLECTIVES:
            self.collective_bytes += size
            path = instruction.path
            key = kind, re.search(_ASKED, path) is None if path else None
            found = self.collectives.setdefault(key, Collective(*key))
            found.number = min(found.number + times, _MOST)
            found.bytes = min(found.bytes + size, _MOST)

    def __bool__(self) -> bool:
        return bool(self.equations or self.instructions)


Calls: TypeAlias = tuple[LinePlace, ...]


class ProgramCosts:
    """
    The costs of a program.

    Attributes:
        program: what its process says of it, and *hlo*, its text.
        lines: what each line costs.
        traced: number of equations by the lines that called for them, outermost first,
            and *made*, of instructions; *equations* and *instructions* are their sums,
            0 if they are not known.
        notes: what is not known, and why.
    """

    def __init__(self, program: CompiledProgram, hlo: str, missing: str) -> None:
        self.program, self.hlo = program, hlo
        self.lines = defaultdict[LinePlace, LineCost](LineCost)
        self.traced, self.made = Counter[Calls](), Counter[Calls]()
        self.notes = list[str]()
        self._name = program.function.rpartition(".")[2]
        self._stacks: dict[int, Calls] = {}
        self.equations = program.equations or 0
        self._add_equations()
        try:
            if hlo:
                self._add_instructions(HloText(hlo))
            else:
                self.notes.append(f"Its HLO is missing: {clean(missing)}.")
        except WireError as error:
            self.notes.append(f"Its HLO cannot be read: {error}.")
        self.instructions = self.made.total()

    def _add_equations(self) -> None:
        program = self.program
        if program.equations is None:
            self.notes.append(f"Its equations are unknown: {program.unknown}.")
        for stack in program.stacks:
            calls = tuple(LinePlace(call.file, call.line) for call in stack.calls)
            self.traced[calls] += stack.count
            for place, call in zip(calls, stack.calls, strict=True):
                self.lines[place].function = call.function.replace("<locals>.", "")
            place = calls[-1] if calls else NOWHERE
            self.lines[place].equations.update(stack.primitives)
        if program.uncounted:
            self.notes.append(f"It has more than {self.equations:,} equations.")
        if rest := self.equations - self.traced.total():
            self.notes.append(f"{rest:,} equations are of smaller stacks of calls.")

    # --- HLO -----------------------------------------------------------------------

    def _add_instructions(self, text: HloText) -> None:
        origins, inferred = Origins(text), Counter[LinePlace]()
        runs, running, endless = _runs(text)
        libraries = 0
        for computation in text.computations():
            times = runs.get(computation.id, 0.0)
            for key, instruction in computation.instructions.items():
                found = origins.at(computation, key).place
                place = place_of(found)
                line = self.lines[place]
                if found and not line.function:
                    line.function = found.function
                line.instructions[instruction.opcode] += 1
                calls = self._calls(text, instruction)
                if calls and calls[-1] == place:
                    self.made[calls] += 1
                else:
                    inferred[place] += 1
                flops = _flops(text, instruction, key)
                libraries += flops is None
                line.flops += min(times * (flops or 0.0), _MOST)
                if computation.id in running:
                    size_of = written(text, key, instruction)
                    line.write(
                        instruction, times, size_of, moves=moves(text, instruction)
                    )
        self._place_inferred(inferred)
        self._add_memory(text, origins)
        if not text.has_stacks:
            self.notes.append(
                "This JAX keeps one line of each instruction, of a library if that is "
                "between the program and JAX."
            )
        if endless:
            loops = counted(endless, "loop")
            self.notes.append(f"{loops} of unknown length: what is in it counts once.")
        if libraries:
            calls_of = counted(libraries, "call")
            self.notes.append(f"FLOPs of {calls_of} of a library are unknown.")

    def _add_memory(self, text: HloText, origins: Origins) -> None:
        for array in at_peak(text):
            origin = origins.at(array.computation, array.key)
            line = self.lines[place_of(origin.place)]
            line.held_bytes += array.bytes
            path = array.computation.instructions[array.key].path
            if "jvp(" in path and "transpose(" not in path:
                line.saved_bytes += array.bytes
        if vain := donated_in_vain(text):
            arguments = f"{size(vain)} of arguments are donated in vain"
            self.notes.append(f"{arguments}: no result has their shape and type.")

    def _place_inferred(self, inferred: Counter[LinePlace]) -> None:
        """Add instructions without a line to the stack that most of their line have."""
        stacks: dict[LinePlace, Calls] = {}
        for calls, _ in self.made.most_common():
            stacks.setdefault(calls[-1], calls)
        for place, count in inferred.items():
            self.made[stacks.get(place, (place,) if place.file else ())] += count

    def _calls(self, text: HloText, instruction: Instruction) -> Calls:
        """Return the user's lines that *instruction* comes from, outermost first."""
        key = instruction.stack
        if (cached := self._stacks.get(key)) is not None:
            return cached
        frames = [
            frame
            for frame in reversed(text.stack(instruction))
            if sources.tier(frame.file) == sources.USER
        ]
        names = [frame.function.rpartition(".")[2] for frame in frames]
        begin = names.index(self._name) if self._name in names else 0
        found = (LinePlace(frame.file, frame.line) for frame in frames[begin:])
        # JAX's own frames between them are left out.
        calls = tuple(dict.fromkeys(found))
        if key:
            self._stacks[key] = calls
        return calls


def _runs(text: HloText) -> tuple[dict[int, float], set[int], int]:
    """Return runs by computation, which are no part of an operation, endless loops."""
    runs, running, endless = defaultdict[int, float](float), set[int](), 0
    if text.entry is not None:
        runs[text.entry.id] = 1.0
        running.add(text.entry.id)
    # Each is printed before those that call it.
    for computation in reversed(list(text.computations())):
        for key, instruction in computation.instructions.items():
            times = runs[computation.id]
            if instruction.opcode == "while":
                trips = re.search(_TRIPS, text.rests[key])
                times *= int(trips[1]) if trips else 1
                endless += trips is None
            for called in instruction.called:
                runs[called] = min(runs[called] + times, _MOST)
                if instruction.opcode in _CONTROL and computation.id in running:
                    running.add(called)
    return runs, running, endless


def _flops(text: HloText, instruction: Instruction, key: int) -> float | None:
    """Return the FLOPs of one run; `None` if a library has them, and how many."""
    opcode, rest = instruction.opcode, text.rests[key]
    is_call = opcode == "custom-call" and re.search(_LIBRARY, rest) is not None
    if not (is_call or opcode in ("dot", "convolution")):
        return 0.0
    shapes = [text.shapes[operand] for operand in instruction.operands[:2]]
    if not (text.shapes[key] and len(shapes) > 1 and all(shapes)):
        return None
    result, (left, right) = text.shapes[key][0], (shape[0] for shape in shapes)
    if labels := re.search(_LABELS, rest):
        outputs = _length(right, labels[1].find("o"))
        return 2.0 * result.elements * right.elements / max(outputs, 1)
    if contracted := re.search(_CONTRACTED, rest):
        numbers = re.findall(r"\d+", contracted[1])
        depth = math.prod(_length(left, int(number[:9])) for number in numbers[:9])
        return 2.0 * result.elements * depth
    return None


def _length(shape: Shape, number: int) -> int:
    return shape.lengths[number] if 0 <= number < len(shape.lengths) else 1
