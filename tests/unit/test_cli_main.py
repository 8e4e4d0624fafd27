"""The frame of the command line: finding commands, errors, entry points."""

import errno
import gc
import os
import signal
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import jaxmon
from jaxmon.cli.entry import exporter
from jaxmon.cli.main import COMMANDS, EXTRAS, load, main, require
from jaxmon.cli.options import option, subcommand
from jaxmon.errors import CommandError, SettingsError
from tests.helpers.processes import ROOT, clean_environ, run_python, some


@pytest.fixture
def failing(monkeypatch):
    """Make every subcommand raise a given error."""

    def install(error):
        @click.command
        def command():
            raise error

        monkeypatch.setattr("jaxmon.cli.main.load", lambda _: command)

    return install


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name):
    """Each command loads, says what it does, and describes every option."""
    command = load(name)
    result = CliRunner().invoke(main, [name, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: main {name}")
    for each in (command, *getattr(command, "commands", {}).values()):
        assert each.help
        assert "Options:" not in each.help
        options = [one for one in each.params if isinstance(one, click.Option)]
        assert [one.name for one in options if not one.help] == []


def test_help_is_of_options_that_exist():
    """What a docstring says of an option that the command lacks is an error."""
    with pytest.raises(ValueError, match=r"command has no options \['speed'\]"):

        @subcommand()
        def command(*, pace: int = option(int)):
            """
            Run.

            Options:
                pace: How fast.
                speed: How fast.
            """


def test_help_lists_every_command():
    """`jaxmon --help` shows each command with its first sentence."""
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in result.output


def test_commands_load_without_docstrings():
    """With `python -OO` the help has no texts, and every command still works."""
    result = run_python("-OO", "-m", "jaxmon", "exporter", "--help").ok()
    assert "--nvml-interval" in result.out
    listed = run_python("-OO", "-m", "jaxmon", "--help").ok().out
    assert all(f"\n  {name}" in listed for name in COMMANDS)


def test_module_is_the_command():
    """`python -m jaxmon --version` prints name and version."""
    result = run_python("-m", "jaxmon", "--version").ok()
    assert result.out == f"jaxmon, version {jaxmon.__version__}\n"


def test_unknown_command_is_an_error():
    """A command that does not exist is named, and the exit code is that of misuse."""
    result = CliRunner().invoke(main, ["explode"])
    assert result.exit_code == 2
    assert "No such command 'explode'" in result.stderr


def test_errors_of_ours_become_a_message(failing):
    """A `JaxmonError` is printed to stderr without a traceback; the exit code is 1."""
    failing(SettingsError("port=-1 is out of range; give 0 to 65535"))
    result = CliRunner().invoke(main, ["run"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "Error: port=-1 is out of range; give 0 to 65535\n"


def test_command_error_chooses_its_exit_code(failing):
    """A `CommandError` ends the command with the code that it carries."""
    failing(CommandError("no", exit_code=3))
    assert CliRunner().invoke(main, ["run"]).exit_code == 3


def test_other_errors_keep_their_traceback(failing):
    """What is not ours is a mistake of ours: it is not hidden behind a message."""
    failing(ZeroDivisionError())
    result = CliRunner().invoke(main, ["run"])
    assert isinstance(result.exception, ZeroDivisionError)


@pytest.mark.parametrize("encoding", some(["ascii", "latin-1", "utf-8"], 3))
def test_any_terminal_gets_a_report(encoding, run_dir):
    """Characters that an encoding lacks are replaced; they do not end the command."""
    env = {"PYTHONIOENCODING": encoding, "JAX_DEBUG_NANS": "1"}
    args = ("-m", "jaxmon", "doctor", "--skip-jax")
    result = run_python(*args, run_dir=run_dir, env=env).ok()
    assert "unset JAX_DEBUG_NANS in production" in result.out


def test_full_disk_is_no_traceback(failing):
    """A full disk, which may be the reason for the command, is reported."""
    failing(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    result = CliRunner().invoke(main, ["run"])
    assert result.exit_code == 1
    assert result.stderr == "Error: cannot write: No space left on device\n"


def test_file_that_cannot_be_used_is_no_traceback(tmp_path):
    """What cannot be written is named, with the reason."""
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / "alerts")
    result = CliRunner().invoke(main, ["alerts", "build", "--out", out])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {out}")
    assert result.stderr.endswith(": Not a directory\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "jaxmon", "--help"],
        ["-m", "jaxmon", "runbook", "--help"],
        ["-m", "jaxmon", "runbook", "list"],
        ["-c", "from jaxmon.cli.entry import exporter; exporter()", "--help"],
    ],
    ids=["help", "help of a command", "output", "help of jaxmon-exporter"],
)
def test_reader_that_leaves_ends_a_command_in_silence(arguments):
    """The exit code is a shell's for that."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, *arguments],
            stdout=writing,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            timeout=240,
            check=False,
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, b"")


def in_shell(command):
    """Run ``jaxmon`` with arguments and redirections as a shell takes them."""
    return subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m jaxmon {command}"],
        capture_output=True,
        env=clean_environ(),
        cwd=ROOT,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments", some(["runbook show TargetDown", "--help", "runbook list"], 3)
)
def test_output_that_cannot_be_written_is_an_error(arguments):
    """A full disk is one line, with its exit code."""
    ended = in_shell(f"{arguments} > /dev/full")

    assert ended.stderr == (
        "Error: cannot write to standard output: No space left on device\n"
    )
    assert ended.returncode == 74


def test_output_that_is_closed_is_an_error():
    """As a shell does by ``>&-``; what a command was asked for goes nowhere."""
    ended = in_shell("runbook list >&-")

    assert ended.stderr == "Error: cannot write to standard output: it is closed\n"
    assert ended.returncode == 74


@pytest.mark.parametrize("where", some(["2>&-", "2>/dev/full"], 2))
@pytest.mark.parametrize(
    ("arguments", "code"), [("runbook show nonsense", 1), ("nonsense", 2)]
)
def test_errors_that_cannot_be_written_change_no_exit_code(where, arguments, code):
    """Where stderr cannot be written, the exit code still reports the error."""
    ended = in_shell(f"{arguments} {where}")

    assert ended.returncode == code


ENDED_WHILE_WRITING = """
import os, signal, sys
from jaxmon.cli.entry import main
os.fsync = lambda _: signal.raise_signal(signal.{name})
sys.argv = ["jaxmon", "alerts", "build", "--out", sys.argv[1]]
main()
"""


@pytest.mark.parametrize("name", some(["SIGTERM", "SIGHUP", "SIGINT"], 2))
def test_a_signal_leaves_no_temporary_file(tmp_path, name):
    """What a command was about to write is taken away, without a word."""
    source = ENDED_WHILE_WRITING.format(name=name)
    result = run_python("-c", source, str(tmp_path))

    assert (result.code, result.err) == (128 + signal.Signals[name], "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["baseline", "record", "b.json", "--", "-c", ""], 2),
        (["alerts", "check"], 1),
        (["demo"], 1),
    ],
    ids=["baseline", "alerts", "demo"],
)
def test_without_a_temporary_directory_there_is_one_line(
    monkeypatch, tmp_path, arguments, code
):
    """A full or read-only file system is named, with what to do."""
    reason = "No usable temporary directory found in ['/tmp']"

    def nowhere():
        raise FileNotFoundError(errno.ENOENT, reason)

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    monkeypatch.setattr("jaxmon.cli.alerts.shutil.which", lambda name: name)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == code
    assert result.stderr.endswith(
        f"cannot create a temporary directory: {reason}; free some space, or set "
        "TMPDIR to a directory that can be written to\n"
    )


def test_exporter_entry_point_prints_errors_alike(failing, capsys, monkeypatch):
    """`jaxmon-exporter` handles errors as `jaxmon exporter` does."""
    failing(CommandError("port 9467 is taken", exit_code=4))
    monkeypatch.setattr(sys, "argv", ["jaxmon-exporter"])
    monkeypatch.setattr(gc, "disable", lambda: None)  # for the tests that follow
    with pytest.raises(SystemExit) as ended:
        exporter()
    assert ended.value.code == 4
    assert capsys.readouterr().err == "Error: port 9467 is taken\n"


def test_missing_extra_is_named(monkeypatch):
    """A command that lacks an optional module says which extra brings it."""
    monkeypatch.setitem(EXTRAS, "no_such_module", "toys")
    with pytest.raises(CommandError) as caught:
        require("demo", "json", "no_such_module")
    assert str(caught.value) == (
        "jaxmon demo needs no_such_module, which is not installed; "
        "run: pip install 'jaxmon[toys]'"
    )


@pytest.mark.parametrize("args", some([[], ["baseline"], ["alerts"]], 2))
def test_a_command_without_its_subcommand_is_the_help(args):
    """As text with its lines, not as one line of an error."""
    result = run_python("-m", "jaxmon", *args)

    assert result.code == 2
    assert result.err.startswith("Usage: jaxmon")
    assert f"\n{'Commands' if args else 'Look'}:\n" in result.err
