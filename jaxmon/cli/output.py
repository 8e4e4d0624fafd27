"""
The one place where commands print.

Printed text may be untrusted (a server, an agent, a file name). It can neither move the
cursor nor start a new line, and known secrets are redacted.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, TextIO

import click

from jaxmon.errors import CommandError, JaxmonError
from jaxmon.host.formats.layout import clean, shortened
from jaxmon.host.http.urls import Secrets


RUN_DIR = "jaxmon.run_dir"
"""In the command's context: the directory that it reads in place of the user's own."""

_SECRETS = "jaxmon.secrets"
# Anything shorter is not a secret, and occurs in ordinary words.
_LEAST_SECRET = 8
_LONGEST = 1000
# What sysexits.h calls EX_IOERR.
_UNPRINTABLE = 74
_LEAST_WIDTH, _MOST_WIDTH = 80, 120


def hide(*secrets: str) -> None:
    """Redact *secrets* in everything the running command prints from now on."""
    long = (secret for secret in secrets if len(secret) >= _LEAST_SECRET)
    click.get_current_context().meta[_SECRETS] = Secrets(*long)


@contextmanager
def written(path: Path | None, *, private: bool = False) -> Iterator[None]:
    """
    Write the block's output to the file *path*, whole, once the block has ended, also
    with an exit code or an error of ours after it printed something; *private* is for
    the owner only. `None` and ``-`` are standard output. Raises `CommandError`: the
    file cannot be written, which is known before the block runs.
    """
    if path is None or str(path) == "-":
        yield
        return
    from jaxmon.host.files import whole

    if reason := whole.unwritable(path):
        msg = f"cannot write {path}: {reason}"
        raise CommandError(msg)
    kept, error = StringIO(), None
    try:
        with redirect_stdout(kept):
            yield
    except (JaxmonError, click.exceptions.Exit) as raised:
        error = raised
    if (text := kept.getvalue()) or error is None:
        whole.write(path, text.encode("utf-8", "replace"), private=private)
    if error is not None:
        raise error


def line(
    text: object = "",
    *,
    err: bool = False,
    colour: str | None = None,
    bold: bool = False,
) -> None:
    """
    Print *text* as one line, to standard error if *err*; in a *colour* that click
    knows, unless the user or the terminal wants none. Raises `CommandError`: it cannot
    be written; `BrokenPipeError`: the output pipe is closed.
    """
    shown = safe(str(text))
    context = click.get_current_context(silent=True)
    wanted = context is not None and context.color is True  # by ``--color``
    styled = (colour or bold) and (wanted or has_colours(os.environ))
    # Without a style there is none to reset.
    shown = click.style(shown, fg=colour, bold=bold or None) if styled else shown
    _echo(shown, err=err)


def lines(text: str | Iterable[str], *, err: bool = False) -> None:
    """Print several lines, or a text of several."""
    several = text.removesuffix("\n").split("\n") if isinstance(text, str) else text
    for text_line in several:
        line(text_line, err=err)


def clear() -> None:
    """Clear the terminal from its top: nothing scrolls, no longer report is left."""
    _echo("\x1b[H\x1b[2J", newline=False)


def document(data: Any) -> None:
    """Print *data* as JSON, in ASCII."""
    import json

    context = click.get_current_context(silent=True)
    if context is not None and RUN_DIR in context.meta and isinstance(data, Mapping):
        data = {**data, "run_dir": str(context.meta[RUN_DIR])}
    text = json.dumps(_redacted(data), indent=2)
    # The one control character that JSON does not escape.
    _echo(text.replace("\x7f", "\\u007f"))


def result(data: Any, text: str | Iterable[str], *, as_json: bool) -> None:
    """Print a result: *data*, or the *text* that is made of it."""
    if as_json:
        document(data)
    else:
        lines(text)


def binary(data: bytes) -> None:
    """Write *data* to standard output as it is."""
    if is_terminal(sys.stdout):
        reason = "it is a terminal; redirect it to a file"
        raise unprintable(reason)
    _echo(data, newline=False)


def safe(text: str) -> str:
    """Return *text* as a sanitised line without secrets."""
    return clean(_secrets().redacted(text))


def short(text: str) -> str:
    """Return *text* as part of an error: sanitised, shortened in the middle."""
    return shortened(safe(text), _LONGEST)


def has_colours(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal of *environ* has colours that its user wants."""
    term = environ.get("TERM", "")
    mono = term.startswith(("vt", "dumb")) or term.endswith(("-m", "-mono"))
    return not environ.get("NO_COLOR") and not mono


def is_terminal(
    stream: TextIO | None, environ: Mapping[str, str] | None = None
) -> bool:
    """Return whether *stream*, `None` if closed, is a terminal that can be drawn on."""
    environ = os.environ if environ is None else environ
    if stream is None or not stream.isatty():
        return False
    return environ.get("TERM", "dumb") != "dumb"


def report_width() -> int:
    """Return the width of reports: that of the terminal, within what tables fit in."""
    return min(max(shutil.get_terminal_size().columns, _LEAST_WIDTH), _MOST_WIDTH)


def unprintable(reason: str) -> CommandError:
    """Return the error of a command that cannot print, for *reason*."""
    msg = f"cannot write to standard output: {reason}"
    return CommandError(msg, exit_code=_UNPRINTABLE)


def _echo(text: str | bytes, *, err: bool = False, newline: bool = True) -> None:
    if sys.stdout is None and not err:
        reason = "it is closed"
        raise unprintable(reason)
    try:
        click.echo(text, err=err, nl=newline)
    except BrokenPipeError:  # no process reads it, which is not an error
        raise
    except OSError as error:
        # An error that cannot be written to stderr cannot be reported.
        if not err:
            raise unprintable(error.strerror or str(error)) from error


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return _secrets().redacted(value)
    if isinstance(value, Mapping):
        return {_redacted(key): _redacted(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(item) for item in value]
    return value


def _secrets() -> Secrets:
    context = click.get_current_context(silent=True)
    found = None if context is None else context.meta.get(_SECRETS)
    return found if isinstance(found, Secrets) else Secrets()
