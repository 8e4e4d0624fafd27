"""
Finds the user's line in a stack: the innermost one outside of libraries.

Who calls `jax.jit` decides whose function it is: a program may jit a function of JAX,
and JAX jits functions of its own while it runs the program's.
"""

from __future__ import annotations

import dis
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from traceback import walk_tb
from types import CodeType, FrameType, ModuleType
from typing import Any, TypeAlias

from jaxmon import interrupts
from jaxmon.agent.jaxlink.jit import directories, stack_from
from jaxmon.host import sources
from jaxmon.host.sources import OURS, display_path
from jaxmon.tuples import NamedTuple


AGENT = os.path.join(OURS, "agent", "")  # noqa: PTH118 - a prefix of files
"""Path prefix of the parts of jaxmon that run inside programs."""

_MAX_FILES = 10_000
_INSTRUCTION = 2


class SourceLine(NamedTuple):
    """A source line, with the interpreter's path of the file; ``""`` and 0 if none."""

    file: str
    line: int
    function: str


UNKNOWN = SourceLine("", 0, "")


@lru_cache(1)
def _standard_library() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    return tuple(f"{path}{os.sep}" for path in paths if path)


def stack_of(frame: FrameType | None, *, most: int = 200) -> list[SourceLine]:
    """Return the source locations from *frame* up, at most so many, innermost first."""
    return [_line(at.f_code, at.f_lineno) for at in stack_from(frame, most)]


def raised(error: BaseException, *, most: int = 200) -> list[SourceLine]:
    """Return what *error* passed so far, at most so many lines, innermost first."""
    passed = list(walk_tb(error.__traceback__))[::-1][:most]
    return [_line(frame.f_code, line) for frame, line in passed]


def _line(code: CodeType, line: int | None) -> SourceLine:
    return SourceLine(code.co_filename, line or 0, code.co_name)


# Functions of JAX between the line that jits and the one that creates the object.
_MAKERS = frozenset(
    ("make_jit", "_make_jit_wrapper", "jit", "pjit", "wrapped", "<lambda>")
)
JIT_FILES = tuple(
    [os.path.join("jax", "_src", name) for name in ("pjit.py", "api.py")]  # noqa: PTH118 - ends of paths
)
"""Ends of the paths of JAX's files that jit, and serve calls of what is jitted."""
_BOUNDARY = "reraise_with_filtered_traceback"
_MAX_FRAMES = 100


class ProgramLine(NamedTuple):
    """A line of the program; its module and qualified function, or ``<module>``."""

    file: str
    line: int
    module: str
    function: str

    @property
    def place(self) -> str:
        """The line as ``path/file.py:12``."""
        return f"{display_path(self.file)}:{self.line}"


class SourceLineFinder:
    """
    Finds the user's line in stacks. Costs about 0.2 µs per frame.

    Attributes:
        tier: returns how far a file is from the user's own: 0 if it is one of these.
    """

    def __init__(self, jax: ModuleType) -> None:
        self._jax = (OURS, *directories(jax))
        self._standard = _standard_library()
        self.tier: Callable[[str], int] = lru_cache(_MAX_FILES)(self._tier)

    def of(self, stack: Sequence[SourceLine]) -> SourceLine:
        """Return the user's line in *stack*, else one of no file, library or JAX."""
        if not stack:
            return UNKNOWN
        # Among equals the first, which is the innermost.
        return min(stack, key=lambda frame: self.tier(frame.file))

    def place_of(self, traceback: Any) -> str:
        """Return the program's line in a *traceback* of JAX, empty if unknown."""
        at = getattr(traceback, "frames", ())
        line = self.of(
            [SourceLine(f.file_name, f.line_num, f.function_name) for f in at]
        )
        is_located = line.file and not self.is_jax(line.file)
        return f"{sources.display_path(line.file)}:{line.line}" if is_located else ""

    def place_of_output(self, jaxpr: Any, index: int, number: int) -> str:
        """Return the line of an output of *jaxpr*, which should have that *number*."""
        if len(jaxpr.outvars) != number:
            return ""
        output = jaxpr.outvars[index]
        made = (of.source_info.traceback for of in jaxpr.eqns if output in of.outvars)
        return next(map(self.place_of, made), "")

    def place_that_calls(
        self, function: str, places: Iterable[tuple[str, CodeType, int]]
    ) -> str:
        """Return the first of *places* of the user's that calls *function*, if any."""
        for name, code, offset in places:
            if name == function and self.is_user(code.co_filename):
                file = sources.display_path(code.co_filename)
                return f"{file}:{line_at(code, offset)}"
        return ""

    def raised_at(self, error: BaseException) -> str:
        """Return the line that *error* came from, of the program if any is known."""
        line = self.line_of(error)
        return f"{sources.display_path(line.file)}:{line.line}" if line.file else ""

    def line_of(self, error: BaseException) -> SourceLine:
        """Return the line that *error* came from, as `raised_at` does."""
        stack = raised(error)
        users = [frame for frame in stack if self.is_user(frame.file)]
        program = [frame for frame in users if sources.package_of(frame.file) is None]
        return self.of(program or stack)

    def that_jits(self, frame: FrameType | None) -> ProgramLine | None:
        """Return the line that has JAX's *frame* make a jitted object, unless JAX's."""
        while frame is not None:
            code = frame.f_code
            makes = code.co_name in _MAKERS and code.co_filename.endswith(JIT_FILES)
            if not makes and code.co_name != _BOUNDARY:
                is_jax = self.tier(code.co_filename) == sources.JAX
                return None if is_jax else self.that_calls(frame)
            frame = frame.f_back
        return None

    def that_calls(self, frame: FrameType) -> ProgramLine | None:
        """Return the nearest line of the program, or of a library, from *frame* up."""
        nearest, least = frame, self.tier(frame.f_code.co_filename)
        above, steps = frame.f_back, 0
        while least and above is not None and steps < _MAX_FRAMES:
            tier = self.tier(above.f_code.co_filename)
            if tier < least:
                nearest, least = above, tier
            above, steps = above.f_back, steps + 1
        if least == sources.JAX:
            return None
        code = nearest.f_code
        module = dict.get(nearest.f_globals, "__name__")
        return ProgramLine(
            code.co_filename,
            nearest.f_lineno,
            module if type(module) is str else "?",
            code.co_qualname,
        )

    def is_library(self, file: str) -> bool:
        """Return whether *file* belongs to a library between programs and JAX."""
        return self.tier(file) == sources.LIBRARY

    def is_package(self, file: str) -> bool:
        """Return whether *file* belongs to one that is not of the standard library."""
        standard = file.startswith(("<", *self._standard))
        return self.is_library(file) and (
            not standard or sources.package_of(file) is not None
        )

    def is_user(self, file: str) -> bool:
        """Return whether *file* belongs to the program."""
        return self.tier(file) == sources.USER

    def is_jax(self, file: str) -> bool:
        """Return whether *file* belongs to JAX, or to us."""
        return self.tier(file) == sources.JAX

    def _tier(self, file: str) -> int:
        if file.startswith(self._jax):
            return sources.JAX
        found = sources.tier(file)
        package = sources.package_of(file)
        if found == sources.USER and package:
            return found if _may_be_program(package) else sources.LIBRARY
        if found != sources.USER:
            return found
        standard = file.startswith(self._standard)
        return sources.LIBRARY if standard or _is_of_library(file) else found


def _may_be_program(package: str) -> bool:
    """
    Return whether an installed *package* may be the program: a module of it imports
    JAX, or none is loaded. Takes a tenth of a millisecond.
    """
    is_loaded = False
    for name, module in sys.modules.copy().items():
        if name.partition(".")[0] == package and issubclass(type(module), ModuleType):
            # Without loading a module that waits for its first use.
            names = object.__getattribute__(module, "__dict__")
            if "jax" in names or "jnp" in names:
                return True
            is_loaded = True
    return not is_loaded


_MOST_SOURCES, _MOST_TEXT, _MOST_SEARCHES = 200, 1_000_000, 100
_searched: dict[tuple[str, str], list[str]] = {}


def lines_with(pattern: str, finder: SourceLineFinder, file: str = "") -> list[str]:
    """
    Return the lines of the program's modules, or of one *file*, that match *pattern*,
    as ``path/file.py:12``; milliseconds, so only for what has been found already.
    """
    if kept := _searched.get((pattern, file)):
        return kept
    loaded = [
        # Without loading a module that waits for its first use.
        object.__getattribute__(module, "__dict__").get("__file__")
        for module in list(sys.modules.values())
        if issubclass(type(module), ModuleType)
    ]
    # At the end of a program, what it ran as its main module may be gone.
    files = dict.fromkeys([file] if file else [*sys.argv[:1], *loaded])
    users = [name for name in files if isinstance(name, str) and finder.is_user(name)]
    found = []
    for name in users[:_MOST_SOURCES]:
        try:
            with open(name, encoding="utf-8", errors="replace") as source:  # noqa: PTH123 - a Path takes longer
                text = source.read(_MOST_TEXT)
        except OSError as error:
            interrupts.pass_on(error)
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if re.search(pattern, line.partition("#")[0]):
                found.append(f"{display_path(name)}:{number}")
    if len(_searched) < _MOST_SEARCHES:
        _searched[pattern, file] = found
    return found


def line_at(code: CodeType, offset: int) -> int | None:
    """Return the line of the instruction at an *offset* in bytes."""
    return next(islice(code.co_positions(), offset // _INSTRUCTION, None), (None,))[0]


def set_at(setting: str, finder: SourceLineFinder) -> str:
    """Return the line that sets JAX's *setting*; empty if none or several do."""
    assigned = rf"(?i:\b{setting}\b)['\"]?\]?\s*[,=](?!=)(?!\s*False)"
    lines = lines_with(assigned, finder)
    return lines[0] if len(lines) == 1 else ""


def _is_of_library(file: str) -> bool:
    """Return whether *file* is of a library in a directory of its own, or a clone."""
    for entry in sys.path:
        base = f"{entry}{os.sep}"
        if entry and file.startswith(base):
            name = file[len(base) :].partition(os.sep)[0].removesuffix(".py")
            if name in sources.LIBRARIES:
                return True
    return False


# Its first and last offset, and its line.
_Loop: TypeAlias = tuple[int, int, int]
_LONGEST, _MOST_LOOPED = 50_000, 10_000
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
        """Return the line of the outermost loop around *offset*, if there is one."""
        found = self._found.get(id(code))
        if found is None:
            if len(self._found) >= _MOST_LOOPED or len(code.co_code) > _LONGEST:
                return None
            self._found[id(code)] = found = code, [*_loops(code)]
        around = [loop for loop in found[1] if loop[0] <= offset <= loop[1]]
        if not around:
            return None
        _, _, line = max(around, key=lambda loop: loop[1] - loop[0])
        return SourceLine(code.co_filename, line, code.co_name)


def _loops(code: CodeType) -> Iterator[_Loop]:
    """Yield the loops of *code*: jumps back to where the jump can be reached from."""
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
