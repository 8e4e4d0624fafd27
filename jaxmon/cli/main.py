"""Entry points: find the subcommand, load it, turn its errors into messages."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, NoReturn, TextIO

import click

from jaxmon.errors import CommandError, JaxmonError
from jaxmon.version import version


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# What a shell tells of programs that the signal ends: by Ctrl-C, or because `head` has
# had enough.
_INTERRUPTED = 128 + signal.SIGINT
_ENDED_UNREAD = 128 + signal.SIGPIPE

COMMANDS = {
    "run": "jaxmon.cli.run",
    "explain": "jaxmon.cli.explain",
    "exporter": "jaxmon.cli.exporter.command",
    "demo": "jaxmon.cli.demo.command",
    "profile": "jaxmon.cli.profile",
    "doctor": "jaxmon.cli.doctor",
    "alerts": "jaxmon.cli.alerts",
    "baseline": "jaxmon.cli.baseline",
    "runbook": "jaxmon.cli.runbook",
    "dashboards": "jaxmon.cli.dashboards.command",
    "generate": "jaxmon.cli.generate",
}


def load(name: str) -> click.Command:
    """Return the subcommand *name*, a key of `COMMANDS`."""
    command: click.Command = import_module(COMMANDS[name]).command
    return command


class _Commands(click.Group):
    """Subcommands that are imported when they are looked up."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        return load(cmd_name) if cmd_name in COMMANDS else None

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        _accept_any_text()
        with _ending_well():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> object:
        with _ending_well(), _ended_in_order():
            return super().invoke(ctx)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
\b
Exit codes of all commands, besides their own:
  74   what they print cannot be written, as where a disk is full
  130  ended by Ctrl-C
  143  ended by SIGTERM
  141  the reader of their output has gone
""",
)
@click.version_option(version(), "-V", "--version", prog_name="jaxmon")
def main() -> None:
    """
    Observability for JAX: compiles, cache hits, recompiles, device memory.

    \b
    In a program:         import jaxmon; jaxmon.instrument()
    Without touching it:  jaxmon run train.py
    Beside it:            jaxmon exporter
    Ask one that runs:    jaxmon explain
    """


def exporter() -> None:
    """Run ``jaxmon exporter`` under its own name, ``jaxmon-exporter``."""
    main(["exporter", *sys.argv[1:]], prog_name="jaxmon")


@contextmanager
def _ending_well() -> Iterator[None]:
    """
    Have a command that fails in the block say why and exit; one that is interrupted, or
    that nobody reads any more, exits in silence, before click exits with another code.
    """
    try:
        try:
            yield
        except JaxmonError as error:
            _fail(error)
        except OSError as error:
            if _settle():  # of the help, which click prints
                from jaxmon.cli import output

                _fail(output.unprintable(error.strerror or str(error)))
            if (found := _about_file(error)) is None:
                raise
            _fail(CommandError(found))
        except click.UsageError as error:
            if type(error).__name__ == "NoArgsIsHelpError":  # the help; since click 8.2
                raise
            from jaxmon.cli import output

            # What click quotes of a command line is printed by click.
            shown = output.short(error.format_message())
            with suppress(OSError):  # the code tells as well
                click.UsageError(shown, error.ctx).show()
            sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError as error:
        if _unread():
            sys.exit(_ENDED_UNREAD)
        # click would take that for the same, and say nothing.
        _fail(CommandError(f"another process hung up: {error.strerror}"))
    finally:
        _settle()


@contextmanager
def _ended_in_order() -> Iterator[None]:
    """
    Have SIGTERM and SIGHUP raise `SystemExit` in the block: what was made for a while
    is taken away. A second one ends it at once.
    """

    def end(number: int, _: object) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        sys.exit(128 + number)

    ours = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if threading.current_thread() is threading.main_thread()
        and signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _about_file(error: OSError) -> str | None:
    """Say what is the matter with a file; `None` where *error* is about none."""
    if error.errno in _DISK_FULL:
        return f"cannot write: {error.strerror}"
    if error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return None


def _unread() -> bool:
    """
    Tell whether nobody reads what is printed. The rest of it goes nowhere, or else
    Python would complain of it at its end.
    """
    import select

    found = False
    for stream in filter(None, (sys.stdout, sys.stderr)):
        ends = select.poll()
        ends.register(stream.fileno(), 0)
        if ends.poll(0):
            found = True
            _to_nowhere(stream)
    return found


def _settle() -> bool:
    """
    Tell whether something that was printed cannot be written. It goes nowhere, or else
    Python would try again at its end, complain, and exit with a code of its own.
    """
    found = False
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            found = True
            _to_nowhere(stream)
    return found


def _to_nowhere(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _accept_any_text() -> None:
    """
    Have a question mark written for what the terminal's encoding lacks: a report
    with a few of them is better than none.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(error: JaxmonError) -> NoReturn:
    """Say what went wrong and exit, with the code that a `CommandError` asks for."""
    from jaxmon.cli import output

    if not isinstance(error, CommandError):
        error = CommandError(str(error))
    output.line(f"Error: {output.short(error.message)}", err=True)
    output.lines((f"  {output.short(one)}" for one in error.details), err=True)
    sys.exit(error.exit_code)
