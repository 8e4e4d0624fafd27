"""
Where an operation comes from: the line of the program, the scope, the primitive.

XLA keeps with most instructions where they come from. An operation that it made of
several instructions, a fusion, belongs to the line on which most of its work was
written, by an estimate from the shapes: what XLA says of a fusion is said of its last
instruction, which may be a mere addition. An operation about which XLA says nothing,
such as a copy, belongs to the line that uses its result.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import NamedTuple

from jaxmon.host import sources
from jaxmon.preflight.profile.xspace import Computation, Frame, HloProgram, Instruction


# JAX names a computation that it calls; scopes with these names are rare enough.
_CONTROL = frozenset(
    (
        *("body", "body_fun", "branch", "checkpoint", "closed_call", "cond"),
        *("cond_fun", "core_call", "custom_jvp_call", "custom_jvp_call_jaxpr"),
        *("custom_lin",),
        *("custom_vjp_call", "custom_vjp_call_jaxpr", "fun", "main", "pallas_call"),
        *("pjit", "rematted_computation", "remat", "remat2", "run_state", "scan"),
        *("shard_map", "shmap_body", "transpose", "while", "xla_call", "xla_pmap"),
    )
)
_BRANCH = r"branch_\d+_fun"
_WRAPPED = r"(\w+)\((.*)\)"
_FUNCTIONS = ("jit", "pjit", "pmap", "xla_call")
# Computed again in the backward pass, to save memory.
_RECOMPUTED = "rematted_computation"
_MOST_PARTS = 100


class Path(NamedTuple):
    """
    Scopes and functions within the outermost, JAX's *primitive*, ``""`` for an
    argument, and whether it is part of a *backward* pass, or *recomputed* by
    `jax.checkpoint`.
    """

    scope: str
    primitive: str
    backward: bool
    recomputed: bool


@lru_cache(4096)
def read(path: str) -> Path:
    """Return what *path* says. Of operations that XLA merged, the first counts."""
    path = path.partition(";")[0].partition(":")[0]
    parts = _split(path)[:_MOST_PARTS]
    if len(parts) < 2:  # noqa: PLR2004 - an argument, such as x['weights']
        return Path("", "", backward=False, recomputed=False)
    recomputed = _RECOMPUTED in parts
    return Path(
        "/".join(scope for part in parts[1:-1] if (scope := _scope(part))),
        "" if "(" in parts[-1] else parts[-1],
        backward="transpose(" in path and not recomputed,
        recomputed=recomputed,
    )


def _split(path: str) -> list[str]:
    """Return the parts of *path*; a slash in parentheses or brackets is part of one."""
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(path):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "/" and depth <= 0:
            parts.append(path[begin:at])
            begin = at + 1
    return [*parts, path[begin:]]


def _scope(part: str) -> str:
    """Return the scope that *part* stands for, ``""`` if it is none."""
    while wrapped := re.fullmatch(_WRAPPED, part):
        if wrapped[1] in _FUNCTIONS and wrapped[2].startswith("_"):
            return ""  # a helper of JAX
        part = wrapped[2]
    if part in _CONTROL or re.fullmatch(_BRANCH, part):
        return ""
    return part


# How far away an operation may be that another is attributed to, and how many are
# inspected.
_MOST_STEPS, _MOST_NEIGHBOURS = 6, 200
_MOST_DEPTH, _MOST_LINES = 4, 20

# Work for each element, roughly: what only names memory is free.
_FREE = frozenset(
    (
        *("after-all", "bitcast", "broadcast", "constant", "get-tuple-element", "iota"),
        *("parameter", "partition-id", "replica-id", "reshape", "tuple"),
    )
)
_TRANSCENDENTAL = frozenset(
    (
        *("atan2", "cbrt", "cosine", "divide", "erf", "exponential"),
        *("exponential-minus-one", "log", "log-plus-one", "logistic", "power"),
        *("remainder", "rsqrt", "sine", "sqrt", "tan", "tanh"),
    )
)
_TRANSCENDENTAL_WORK = 8
_OF_OPERAND = ("gather", "reduce", "reduce-window", "scatter", "sort")
_PRODUCTS = ("convolution", "dot")


class CodePlace(NamedTuple):
    """
    A line from 1 of *file*, its function with the class, the *library* function that it
    calls, and whose it is, as `sources.tier`.
    """

    file: str
    line: int
    function: str
    library: str
    tier: int


class Origin(NamedTuple):
    """
    Where an operation comes from: line, path, and *others* with a smaller part, the
    largest first; *inferred* from a user of the result, or an operand.
    """

    place: CodePlace | None
    path: Path
    others: tuple[CodePlace, ...] = ()
    inferred: bool = False


NOWHERE = Origin(None, read(""))


class Origins:
    """The origins of the operations of a program. Raises `WireError`: malformed."""

    def __init__(self, program: HloProgram) -> None:
        self._program = program
        self._places: dict[int, CodePlace | None] = {}
        self._found: dict[str, Origin] = {}

    def of(self, operation: str) -> Origin:
        """Return where *operation* comes from."""
        if operation not in self._found:
            # Calls in a circle end here.
            self._found[operation] = NOWHERE
            if (found := self._program.find(operation)) is not None:
                self._found[operation] = self.at(*found)
        return self._found[operation]

    def at(self, computation: Computation, key: int) -> Origin:
        """Return where the instruction *key* of *computation* comes from."""
        origin = self._stated(computation.instructions[key])
        if origin.place is None:
            origin = self._of_neighbours(computation, key) or origin
        if origin.place is None and (caller := self._callers.get(computation.id)):
            called_by = self.of(caller)
            if called_by.place is not None:
                return called_by._replace(others=(), inferred=True)
        return origin

    @cached_property
    def _callers(self) -> dict[int, str]:
        """The names of operations by the computations that they call."""
        return {
            called: instruction.name
            for computation in self._program.computations()
            for instruction in computation.instructions.values()
            for called in instruction.called
        }

    def _stated(self, instruction: Instruction) -> Origin:
        """Return what XLA says of *instruction*, or of those that it was made of."""
        work = defaultdict[tuple[str, int], float](float)
        heaviest: dict[tuple[str, int], tuple[float, CodePlace, Instruction]] = {}
        for inner, amount in self._parts(instruction, _MOST_DEPTH):
            place = self._place(inner)
            if place is None:
                continue
            line = place.file, place.line
            work[line] += amount
            if line not in heaviest or amount > heaviest[line][0]:
                heaviest[line] = amount, place, inner
        if not work:
            return Origin(self._place(instruction), read(instruction.path))
        # A line of the program has precedence over one of a library.
        first, *others = sorted(
            work, key=lambda line: (heaviest[line][1].tier, -work[line])
        )
        _, place, inner = heaviest[first]
        return Origin(
            place,
            read(inner.path or instruction.path),
            tuple(heaviest[line][1] for line in others[:_MOST_LINES]),
        )

    def _parts(
        self, instruction: Instruction, depth: int
    ) -> Iterator[tuple[Instruction, float]]:
        """Yield the instructions that *instruction* was made of, with their work."""
        if instruction.opcode not in ("fusion", "call") or not depth:
            return
        for computation in self._program.called(instruction):
            for inner in computation.instructions.values():
                if inner.opcode in ("fusion", "call"):
                    yield from self._parts(inner, depth - 1)
                else:
                    yield inner, _work(computation, inner)

    def _of_neighbours(self, computation: Computation, key: int) -> Origin | None:
        """Return the origin of the nearest user of a result, else of an operand."""
        instructions, users = computation.instructions, computation.users
        for neighbours in (
            lambda at: users.get(at, ()),
            lambda at: instructions[at].operands,
        ):
            seen, edge = {key}, [(key, key)]
            for _ in range(_MOST_STEPS):
                edge = [
                    (at, neighbour)
                    for _, at in edge
                    for neighbour in neighbours(at)
                    if neighbour not in seen and neighbour in instructions
                ][:_MOST_NEIGHBOURS]
                seen.update(neighbour for _, neighbour in edge)
                for at, neighbour in edge:
                    origin = self._used_by(instructions, at, neighbour)
                    if origin.place is not None:
                        return origin._replace(others=(), inferred=True)
        return None

    def _used_by(
        self, instructions: dict[int, Instruction], key: int, user: int
    ) -> Origin:
        """Return the origin of *user*; of a fusion, of the part that uses *key*."""
        instruction = instructions[user]
        if instruction.opcode == "fusion" and key in instruction.operands:
            at = instruction.operands.index(key)
            for computation in self._program.called(instruction):
                for inner in _users_of_parameter(computation, at):
                    if (place := self._place(inner)) is not None:
                        return Origin(place, read(inner.path))
        return self._stated(instruction)

    def _place(self, instruction: Instruction) -> CodePlace | None:
        key = instruction.stack
        if not key:
            return place_in(self._program.stack(instruction))
        if key not in self._places:
            self._places[key] = place_in(self._program.stack(instruction))
        return self._places[key]


def place_in(stack: list[Frame]) -> CodePlace | None:
    """Return the innermost line of the program in *stack*, or else of a library."""
    if not stack:
        return None
    tiers = [sources.tier(frame.file) for frame in stack]
    least = min(tiers)
    at = tiers.index(least)
    frame, library = stack[at], ""
    if at and least == sources.USER:
        called = stack[at - 1]
        package = sources.package_of(called.file) or ""
        function = _short(called.function).removesuffix(".__call__")
        library = f"{package} {function}".strip()
    return CodePlace(frame.file, frame.line, _short(frame.function), library, least)


def _short(function: str) -> str:
    return function.replace("<locals>.", "")


def _users_of_parameter(computation: Computation, at: int) -> Iterator[Instruction]:
    parameters = [
        key
        for key, instruction in computation.instructions.items()
        if instruction.opcode == "parameter" and instruction.parameter == at
    ]
    for instruction in computation.instructions.values():
        if not instruction.operands:
            continue
        if any(key in instruction.operands for key in parameters):
            yield instruction


def _work(computation: Computation, instruction: Instruction) -> float:
    """Return the rough work of *instruction*: operations, or elements moved."""
    opcode = instruction.opcode
    if opcode in _FREE:
        # Not zero: a fusion may consist of nothing else.
        return 1e-9 * instruction.elements
    sizes = [
        operand.elements
        for key in instruction.operands
        if (operand := computation.instructions.get(key)) is not None
    ]
    if opcode in _PRODUCTS and len(sizes) > 1 and instruction.elements:
        # m·k, k·n and m·n elements: k is the root of their ratio.
        depth = math.sqrt(sizes[0] * sizes[1] / instruction.elements)
        return 2.0 * instruction.elements * max(depth, 1.0)
    if opcode == "dynamic-update-slice" and len(sizes) > 1:
        return float(sizes[1])  # the rest stays where it is
    if opcode in _OF_OPERAND and sizes:
        return float(max(sizes[0], instruction.elements))
    if opcode in _TRANSCENDENTAL:
        return float(_TRANSCENDENTAL_WORK * instruction.elements)
    return float(instruction.elements)
