"""
Starts the program of `jaxmon run`: without options, also before click is loaded, which
takes half of the start.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from jaxmon.errors import CommandError, SettingsError
from jaxmon.host.bootstrap import environment
from jaxmon.settings import load


def launch_plain(words: Sequence[str]) -> None:
    """
    Replace this process by the program that *words* name, with its arguments, or ``-m``
    and its module; return if they are anything that `jaxmon run` must judge.
    """
    named = words[1:] if words[:1] == ["-m"] else words
    if not named or named[0].startswith("-") or is_python(named[0]):
        return
    try:
        launch(words, {})
    except (CommandError, SettingsError):
        return  # the command says so


def launch(
    words: Sequence[str], settings: Mapping[str, Any], *, children: bool = False
) -> None:
    """
    Replace this process by Python with *words*, instrumented with *settings*, and with
    *children* by those that it starts.

    Raises:
        SettingsError: a setting or a variable is invalid.
        CommandError: this interpreter's options keep jaxmon from loading.
    """
    chosen = dict(settings)
    if "JAXMON_FRAMEWORKS" not in os.environ:
        chosen.setdefault("frameworks", True)
    load(chosen)
    environ = environment(os.environ, chosen, children=children)
    # The user's program is what we are asked to run.
    os.execve(sys.executable, interpreted(words), environ)  # noqa: S606 - see above


def is_python(program: str) -> bool:
    """Return whether *program* is an interpreter by its name, and no directory."""
    name = os.path.basename(program)  # noqa: PTH119 - pathlib would be loaded for it
    named = re.fullmatch(r"python[\d.]*", name) is not None
    return named and not os.path.isdir(program)  # noqa: PTH112 - likewise


def interpreted(words: Sequence[str] = ()) -> list[str]:
    """Return what runs *words* as Python does here; `CommandError` if it cannot."""
    if sys.flags.isolated or sys.flags.ignore_environment or sys.flags.no_site:
        msg = (
            "python -I, -E and -S prevent jaxmon from loading; run jaxmon without "
            "them, or call jaxmon.instrument() in the program"
        )
        raise CommandError(msg)
    options = interpreter_options(sys.orig_argv, sys.argv)
    return [sys.executable, *options, *words]


def interpreter_options(original: Sequence[str], seen: Sequence[str]) -> list[str]:
    """Return the options that Python got: of ``python -u -m jaxmon``, ``-u``."""
    options = list(original[1 : len(original) - len(seen)])
    # `-m`, alone or at the end of a cluster such as `-um`.
    if not options or not re.fullmatch("-[A-Za-z]*m", options[-1]):
        return options
    *options, last = options
    return [*options, last[:-1]] if last != "-m" else options
