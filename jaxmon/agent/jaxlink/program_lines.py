"""
Finds the line of the program that jits or calls a function.

Who calls `jax.jit` decides whose function it is: a program may jit a function of JAX,
and JAX jits functions of its own while it runs the program's.
"""

from __future__ import annotations

import os
from types import FrameType
from typing import NamedTuple

from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.sources import display_path


# Functions of JAX between the line that jits and the one that creates the object.
_MAKERS = frozenset(
    ("make_jit", "_make_jit_wrapper", "jit", "pjit", "wrapped", "<lambda>")
)
_FILES = tuple(
    [os.path.join("jax", "_src", name) for name in ("pjit.py", "api.py")]  # noqa: PTH118 - ends of paths
)
_BOUNDARY = "reraise_with_filtered_traceback"
_MAX_FRAMES = 100


class ProgramLine(NamedTuple):
    """
    A line of the program.

    Attributes:
        file: path as the interpreter knows it.
        line: number of the line.
        module: name of its module.
        function: qualified name of the function that contains it, ``<module>`` if none.
    """

    file: str
    line: int
    module: str
    function: str

    @property
    def place(self) -> str:
        """The line as ``path/file.py:12``."""
        return f"{display_path(self.file)}:{self.line}"


class ProgramLineFinder:
    """
    Finds lines of the program on the stack. Costs a microsecond or two.

    If a library calls JAX, this is the line that calls the library.

    Args:
        lines: knows whose files are whose.
    """

    def __init__(self, lines: SourceLineFinder) -> None:
        self._lines = lines

    def that_jits(self, frame: FrameType | None) -> ProgramLine | None:
        """
        Return the line that jits, `None` if it is one of JAX's own.

        Args:
            frame: the caller of the function that creates jitted objects.
        """
        while frame is not None and _makes(frame):
            frame = frame.f_back
        if frame is None or self._lines.is_jax(frame.f_code.co_filename):
            return None
        return self.that_calls(frame)

    def that_calls(self, frame: FrameType) -> ProgramLine | None:
        """Return the nearest line of the program from *frame* up, if there is one."""
        nearest, least = frame, self._lines.tier(frame.f_code.co_filename)
        above, steps = frame.f_back, 0
        while least and above is not None and steps < _MAX_FRAMES:
            tier = self._lines.tier(above.f_code.co_filename)
            if tier < least:
                nearest, least = above, tier
            above, steps = above.f_back, steps + 1
        code = nearest.f_code
        if self._lines.is_jax(code.co_filename):
            return None
        module = dict.get(nearest.f_globals, "__name__")
        return ProgramLine(
            code.co_filename,
            nearest.f_lineno,
            module if type(module) is str else "?",
            code.co_qualname,
        )


def _makes(frame: FrameType) -> bool:
    code = frame.f_code
    if code.co_name in _MAKERS:
        return code.co_filename.endswith(_FILES)
    return code.co_name == _BOUNDARY
