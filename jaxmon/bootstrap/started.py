"""
Notes whether the program starts Python processes, for one line at its end: a program
that does not import JAX, but starts others that do, would be observed in vain.

The standard library starts processes by a function of C. An object takes its place
whose ``__call__`` is a property, which has returned before that function is called: no
frame of ours is on the stack (`jaxmon.agent.jaxlink.probe` has more). It steps aside
with the first Python process, and once JAX is imported.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any


HINT = (
    "jaxmon: the program did not import JAX, but started other Python processes; "
    "`jaxmon run --children` observes these as well\n"
)
# Starts with it whatever uses shared memory, and is no part of the program.
_TRACKER = "multiprocessing.resource_tracker"
_HEAD = 256


class Started:
    """What the program has started so far."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._python = False

    def watch(self) -> None:
        """Begin to watch; the first to register is the last to run at exit."""
        try:
            import _posixsubprocess  # noqa: PLC0415 - not on every system
        except ImportError:
            return
        self._module: Any = _posixsubprocess
        self._original: Callable[..., Any] = self._module.fork_exec
        self._watching = _Watching(self._original, self._note)
        self._replace(self._original, self._watching)
        atexit.register(self._end)

    def _note(self) -> None:
        """Note what is started by the caller of the caller."""
        if "jax" in sys.modules:
            self._replace(self._watching, self._original)
            return
        # Below this function and the property.
        values = sys._getframe(2).f_locals  # noqa: SLF001 - as in a probe
        words = [_text(one) for one in values.get("args") or ()]
        candidates = values.get("executable_list") or [values.get("path")]
        if _runs_python(map(_text, candidates)) and not any(
            _TRACKER in one for one in words
        ):
            self._python = True
            self._replace(self._watching, self._original)

    def _replace(self, present: object, other: object) -> None:
        for module, name in (
            (self._module, "fork_exec"),
            (sys.modules.get("subprocess"), "_fork_exec"),
        ):
            if getattr(module, name, None) is present:
                setattr(module, name, other)

    def _end(self) -> None:
        if os.getpid() != self._pid or not self._python or "jax" in sys.modules:
            return
        with suppress(Exception):  # closed, a full disk
            sys.stderr.write(HINT)


class _Watching:
    def __init__(self, original: Callable[..., Any], note: Callable[[], None]) -> None:
        self._original = original
        self._note = note

    @property
    def __call__(self) -> Callable[..., Any]:
        with suppress(Exception):  # the program comes first
            self._note()
        return self._original


def _text(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, (str, bytes, os.PathLike)) else ""


def _runs_python(candidates: Iterable[str]) -> bool:
    """
    Return whether the first of *candidates* that exists is an interpreter of Python or
    a script for one.
    """
    for path in candidates:
        if path and os.path.exists(path):  # noqa: PTH110 - no pathlib before the program
            if os.path.basename(path).startswith("python"):  # noqa: PTH119
                return True
            with open(path, "rb") as file:  # noqa: PTH123
                head = file.read(_HEAD)
            return head.startswith(b"#!") and b"python" in head
    return False
