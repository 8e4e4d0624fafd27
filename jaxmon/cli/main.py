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
from importlib.util import find_spec
from typing import Any, NoReturn

import click

from jaxmon.errors import CommandError, JaxmonError
from jaxmon.version import version


_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
# A shell's exit codes for programs terminated by a signal: Ctrl-C, or because `head`
# has had enough.
_INTERRUPTED = 128 + signal.SIGINT
_ENDED_UNREAD = 128 + signal.SIGPIPE
# Longer than any sentence of a help.
_WHOLE = 1000

GROUPS = {
    "Look": (
        *("ps", "top", "explain", "job", "compiles", "profile", "report", "compare"),
    ),
    "Operate": ("run", "exporter", "bundle", "runbook", "deploy"),
    "Alert": ("alerts", "slo", "dashboards", "gameday"),
    "Prepare": ("demo", "doctor", "signatures", "warmup", "completion"),
    "Develop": ("baseline",),
}
"""What help lists, by the time when it is wanted."""

_PLACES = {"demo": "gameday.demo", "gameday": "gameday.command", "top": "top.command"}
COMMANDS = {
    name: f"jaxmon.cli.{_PLACES.get(name, name)}"
    for names in GROUPS.values()
    for name in names
}


def load(name: str) -> click.Command:
    """Return the subcommand *name*, a key of `COMMANDS`."""
    command: click.Command = import_module(COMMANDS[name]).command
    return command


def _paths() -> Iterator[str]:
    for name in COMMANDS:
        yield name
        yield from (f"{name} {below}" for below in getattr(load(name), "commands", ()))


class _Commands(click.Group):
    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each command with the first sentence of its help, never cut."""
        longest = max(map(len, COMMANDS))
        for title, names in GROUPS.items():
            with formatter.section(title):
                texts = (load(name).get_short_help_str(_WHOLE) for name in names)
                padded = (f"{name:{longest}}" for name in names)
                formatter.write_dl(list(zip(padded, texts, strict=True)))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that *args* begin with, or suggest those alike."""
        name = args[0]
        if not name.startswith("-") and name not in COMMANDS:
            from difflib import get_close_matches

            # By their last word: of commands below others, too.
            paths = {f"jaxmon {path}": path.rpartition(" ")[2] for path in _paths()}
            close = get_close_matches(name, paths.values())
            alike = [repr(path) for path, word in paths.items() if word in close]
            hint = f" Did you mean {' or '.join(alike)}?" if alike else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def list_commands(self, _: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        return load(cmd_name) if cmd_name in COMMANDS else None

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        _accept_any_text()
        with _handle_errors():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> object:
        with _handle_errors(), _exit_on_signals():
            return super().invoke(ctx)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""
\b
Exit codes of all commands, besides their own:
  0 done
  1 an error, which is on standard error
  2 usage error: invalid command, option, argument or variable
  74 output could not be written, for example because the disk is full
  130 interrupted by Ctrl-C
  141 output pipe closed
  143 terminated by SIGTERM

What you see, what it is and what to do: jaxmon runbook show symptoms
""",
)
@click.version_option(version(), "-V", "--version", prog_name="jaxmon")
def main() -> None:
    """
    Observability for JAX: compiles, cache hits, recompiles, device memory.

    \b
    In a program:      import jaxmon; jaxmon.instrument()
    From outside:      jaxmon run train.py
    As a sidecar:      jaxmon exporter
    On a running one:  jaxmon explain
    """


@contextmanager
def _handle_errors() -> Iterator[None]:
    """Report errors of the block and exit, silently on interrupts and broken pipes."""
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
            with suppress(OSError):  # the exit code reports it as well
                click.UsageError(shown, error.ctx).show()
            sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    except BrokenPipeError:
        sys.exit(_ENDED_UNREAD)
    finally:
        _settle()


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Have SIGTERM and SIGHUP raise `SystemExit`, for cleaning up; the second exits."""

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
    if error.errno in _DISK_FULL:
        return f"cannot write: {error.strerror}"
    if error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return None


def _settle() -> bool:
    """
    Return whether buffered output cannot be written. It is discarded then: Python would
    print an error at exit, or try again and change the exit code.
    """
    failed = False
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            failed = True
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
    return failed


def _accept_any_text() -> None:
    """Replace characters the terminal cannot encode with question marks."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _fail(error: JaxmonError) -> NoReturn:
    from jaxmon.cli import output

    if not isinstance(error, CommandError):
        error = CommandError(str(error))
    output.line(f"Error: {output.short(error.message)}", err=True)
    output.lines((f"  {output.short(detail)}" for detail in error.details), err=True)
    sys.exit(error.exit_code)


EXTRAS = {
    "flax": "demo",
    "grafana_foundation_sdk": "dashboards",
    "jax": "jax",
    "jaxlib": "jax",
    "optax": "demo",
    "pynvml": "nvidia",
}


def require(command: str, *modules: str) -> None:
    """
    Check, without importing them, that *modules* (keys of `EXTRAS`) are installed: no
    command module imports them at its top, so that ``--help`` works without. Raises
    `CommandError`, which names the extra.
    """
    for module in modules:
        if find_spec(module) is None:
            msg = (
                f"jaxmon {command} needs {module}, which is not installed; "
                f"run: pip install 'jaxmon[{EXTRAS[module]}]'"
            )
            raise CommandError(msg)
