"""
Loads jaxmon into the fresh interpreter started by `jaxmon run`, before the program.

This directory goes first on ``PYTHONPATH``, so that Python imports its
``sitecustomize`` while starting. That module runs the existing ``sitecustomize`` and
waits for the import of JAX. It restores the environment first, unless processes that
the program starts are to be observed as well: these find it in theirs.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any


VARIABLE = "JAXMON_BOOTSTRAP"
"""Settings for one process, which removes the variable."""
OF_CHILDREN = "JAXMON_BOOTSTRAP_CHILDREN"
"""Settings for a process and all that it starts."""


def programs(root: Path = Path("/proc")) -> Iterator[tuple[int, dict[str, str], Any]]:
    """
    Yield the Python processes of this user that `jaxmon run` has started, whether they
    have imported JAX or not: pid, environment at the start, and settings.
    """
    for process in root.glob("[0-9]*"):
        with suppress(OSError, ValueError, AttributeError):  # gone, another user's
            raw = (process / "environ").read_bytes()
            if VARIABLE.encode() not in raw:
                continue
            words = raw.decode(errors="replace").split("\0")
            environ = dict(word.split("=", 1) for word in words if "=" in word)
            text = environ.get(VARIABLE)
            settings = json.loads(text or environ[OF_CHILDREN])
            if (process / "exe").readlink().name.startswith("python"):
                yield (
                    int(process.name),
                    environ,
                    settings["settings"] if text else settings,
                )


def environment(
    environ: Mapping[str, str], settings: Mapping[str, Any], *, children: bool = False
) -> dict[str, str]:
    """
    Return *environ* for an interpreter that starts jaxmon with *settings*, and with
    *children*, for all that it starts. It may be within another `jaxmon run`.
    """
    here = str(Path(__file__).parent)
    given = environ.get("PYTHONPATH")
    original = given and os.pathsep.join(
        entry for entry in given.split(os.pathsep) if entry != here
    )
    # Without its own entry, an inherited path is as if it had not been set.
    original = None if given and not original else original
    found = {
        **environ,
        "PYTHONPATH": f"{here}{os.pathsep}{original}" if original else here,
    }
    for name in (VARIABLE, OF_CHILDREN):
        found.pop(name, None)
    if children:
        found[OF_CHILDREN] = json.dumps(dict(settings))
    else:
        message = {"pythonpath": original, "settings": dict(settings)}
        found[VARIABLE] = json.dumps(message)
    return found


HINT = (
    "jaxmon: the program did not import JAX, but started other Python processes; "
    "`jaxmon run --children` observes these as well\n"
)
# Starts with it whatever uses shared memory, and is no part of the program.
_TRACKER = "multiprocessing.resource_tracker"
_HEAD = 256


class Started:
    """
    Notes whether the program starts Python processes, for one line at its end: a
    program that does not import JAX, but starts others that do, is observed in vain.

    The standard library starts processes by functions of C. An object takes the place
    of each whose ``__call__`` is a property, which has returned before that function is
    called: no frame of ours is on the stack (see `jaxlink.listeners`). They step aside
    with the first Python process, and once JAX is imported.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._python = False
        self._watching: list[_Watching] = []

    def watch(self) -> None:
        """Begin to watch; the first to register is the last to run at exit."""
        try:
            import _posixsubprocess  # noqa: PLC0415 - not on every system
        except ImportError:
            return
        # The second since Python 3.13, if the path of the executable is given.
        for module, name in ((_posixsubprocess, "fork_exec"), (os, "posix_spawn")):
            if (original := getattr(module, name, None)) is not None:
                self._watching.append(_Watching(module, name, original, self._note))
        for watching in self._watching:
            watching.replace(watching.original, watching)
        atexit.register(self._end)

    def _note(self) -> None:
        """Note what is started by the caller of the caller."""
        if "jax" in sys.modules:
            self._step_aside()
            return
        # Below this function and the property.
        values = sys._getframe(2).f_locals  # noqa: SLF001 - as in a probe
        words = [_text(word) for word in values.get("args") or ()]
        program = values.get("path") or values.get("executable")
        candidates = values.get("executable_list") or [program]
        if _runs_python(map(_text, candidates)) and not any(
            _TRACKER in word for word in words
        ):
            self._python = True
            self._step_aside()

    def _step_aside(self) -> None:
        for watching in self._watching:
            watching.replace(watching, watching.original)

    def _end(self) -> None:
        if os.getpid() != self._pid or not self._python or "jax" in sys.modules:
            return
        with suppress(Exception):  # closed, a full disk
            sys.stderr.write(HINT)


class _Watching:
    def __init__(
        self,
        module: ModuleType,
        name: str,
        original: Callable[..., Any],
        note: Callable[[], None],
    ) -> None:
        self._module, self._name = module, name
        self.original = original
        self._note = note

    def replace(self, present: object, other: object) -> None:
        """Put *other* in the place of *present*, also where subprocess keeps it."""
        for module, name in (
            (self._module, self._name),
            (sys.modules.get("subprocess"), f"_{self._name}"),
        ):
            if getattr(module, name, None) is present:
                setattr(module, name, other)

    @property
    def __call__(self) -> Callable[..., Any]:
        try:
            self._note()
        except Exception as error:  # noqa: BLE001 - the program comes first
            from jaxmon import interrupts  # noqa: PLC0415 - few programs need it

            interrupts.pass_on(error)
        return self.original


def _text(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, (str, bytes, os.PathLike)) else ""


def _runs_python(candidates: Iterable[str]) -> bool:
    for path in candidates:
        if path and os.path.exists(path):  # noqa: PTH110 - no pathlib before the program
            if os.path.basename(path).startswith("python"):  # noqa: PTH119
                return True
            with open(path, "rb") as file:  # noqa: PTH123
                head = file.read(_HEAD)
            return head.startswith(b"#!") and b"python" in head
    return False
