"""What all commands have in common: options, exit codes, hints, completion."""

import json
import re
import stat
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result

from jaxmon.cli import output
from jaxmon.cli.main import COMMANDS, GROUPS, load, main
from jaxmon.cli.options import OF_PROCESS, subcommand
from jaxmon.errors import CommandError
from tests.helpers.processes import run_python
from tools.reference import commands


# What they print is not a result, or not only; these have an --out of their own.
SERVE = {"run", "exporter", "top", "demo"}
WRITE = {
    *("report", "profile", "bundle", "alerts build", "dashboards build"),
    *("baseline record", "completion"),
}
# Without a process, a server or a file.
ALONE = (
    ["alerts", "slo"],
    ["runbook", "list"],
    ["runbook", "show", "triage"],
    ["gameday", "--list"],
)


def leaves(group: click.Group = main, above: str = "") -> dict[str, click.Command]:
    """Return all commands that do something, by how they are typed."""
    context, found = click.Context(group), dict[str, click.Command]()
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found |= leaves(command, f"{above}{name} ")
        else:
            found[f"{above}{name}"] = command
    return found


def flags(command: click.Command) -> dict[str, click.Parameter]:
    return {flag: of for of in command.params for flag in of.opts}


def jaxmon(*words: str, **environ: str) -> Result:
    return CliRunner().invoke(main, words, env=environ)


def test_results_are_printed_alike():
    """Each command that prints a result has `--json` and `--out`, with one meaning."""
    every = leaves()
    lacking = {
        name for name, of in every.items() if not {"--json", "--out"} <= {*flags(of)}
    }
    assert lacking - SERVE - WRITE == set()
    assert (SERVE | WRITE) - every.keys() == set()
    for name, command in every.items():
        found = flags(command)
        assert "--output" not in found, name
        if name not in SERVE | WRITE:
            assert isinstance(found["--json"], click.Option)
            assert found["--json"].is_flag, name
            assert not getattr(found["--out"].type, "dir_okay", True), name
        if "--format" in found:
            kind = found["--format"].type
            assert isinstance(kind, click.Choice)
            assert {"json", "text", "markdown"}.isdisjoint(kind.choices), name


@pytest.mark.parametrize("words", ALONE, ids=" ".join)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["text", "json"])
def test_a_file_has_what_would_be_printed(words, form, tmp_path):
    """`--out` writes the same text or JSON, prints nothing, and `-` is the output."""
    file = tmp_path / "result"
    shown = jaxmon(*words, *form)
    written = jaxmon(*words, *form, "--out", str(file))

    assert (shown.exit_code, written.exit_code) == (0, 0)
    assert written.stdout == ""
    assert file.read_text() == shown.stdout
    assert shown.stdout == jaxmon(*words, *form, "--out", "-").stdout
    if form:
        assert json.loads(shown.stdout)


def test_limits_that_were_printed_are_accepted(tmp_path):
    """`alerts slo --json` is what `--limits` reads."""
    file = str(tmp_path / "limits.json")
    assert jaxmon("alerts", "slo", "--json", "--out", file).exit_code == 0
    found = jaxmon("ps", "--limits", file, "--run-dir", str(tmp_path))
    assert "no instrumented process" in found.stderr


RED = "\\x1b[31mred\n"


def printing(act: Callable[[], int | None]) -> click.Command:
    @subcommand(name="command")
    def command(*, as_json: bool = OF_PROCESS) -> int | None:
        """Print something."""
        assert not as_json
        output.line("\x1b[31mred", colour="red")
        return act()

    return command


def failed() -> int:
    msg = "no"
    raise CommandError(msg, exit_code=3)


def interrupted() -> int:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("act", "code", "left"),
    [
        (lambda: None, 0, RED),
        (lambda: 5, 5, RED),
        (failed, 3, RED),
        (interrupted, 130, "before"),
    ],
    ids=["done", "exit code", "failed", "interrupted"],
)
def test_a_file_is_whole_and_private(act, code, left, tmp_path, monkeypatch):
    """One that is interrupted leaves the old file; one that fails had a result."""
    file = tmp_path / "result"
    file.write_text("before")
    monkeypatch.setattr("jaxmon.cli.main.load", lambda _: printing(act))
    found = jaxmon("ps", "--out", str(file))

    assert found.exit_code == code
    assert file.read_text() == left
    assert list(tmp_path.iterdir()) == [file]
    if left != "before":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_what_cannot_be_written_is_known_before(tmp_path, monkeypatch):
    """A directory that is missing ends the command before it works for an hour."""
    monkeypatch.setattr("jaxmon.cli.main.load", lambda _: printing(interrupted))
    found = jaxmon("ps", "--out", str(tmp_path / "none" / "file"))
    assert found.exit_code == 1
    assert found.stderr.endswith("its directory does not exist\n")


def test_what_is_watched_is_not_written(tmp_path):
    """A report that never ends would never be written."""
    found = jaxmon("explain", "--watch", "--out", str(tmp_path / "file"))
    assert found.exit_code == 2
    assert "omit it or --out" in found.stderr


def test_help_lists_commands_in_groups_and_whole():
    """Each command has one line of 80 columns, a sentence."""
    shown = jaxmon("--help", COLUMNS="80").stdout
    assert [title for title in GROUPS if f"\n{title}:\n" in shown] == list(GROUPS)
    for name, group in {"": main, **{name: load(name) for name in COMMANDS}}.items():
        lines = jaxmon(*name.split(), "--help", COLUMNS="80").stdout.splitlines()
        if not isinstance(group, click.Group):
            continue
        for below in group.list_commands(click.Context(group)):
            [line] = [one for one in lines if one.startswith(f"  {below} ")]
            assert line.endswith("."), line
            assert not line.endswith("..."), line


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["explian"], ["'jaxmon explain'"]),
        (["post-mortm"], ["'jaxmon job post-mortem'"]),
        (["list"], ["'jaxmon runbook list'", "'jaxmon deploy list'"]),
        (["alerts", "biuld"], ["'build'"]),
        (["ps", "--jsn"], ["--json"]),
        (["xyzzy"], []),
    ],
)
def test_a_mistyped_command_gets_a_hint(typed, meant):
    """Of commands below others, too; what is like nothing gets none."""
    result = CliRunner().invoke(main, typed, prog_name="jaxmon")
    last = result.stderr.splitlines()[-1]
    assert result.exit_code == 2
    assert all(word in last for word in meant), last
    assert bool(meant) == ("mean" in last or "Possible" in last)


def test_a_process_among_commands_gets_a_hint():
    """A number is an argument elsewhere."""
    done = CliRunner().invoke(main, ["compiles", "3"])
    assert (done.exit_code, "a process is --worker 3" in done.stderr) == (2, True)


def test_exit_codes_stand_in_one_table():
    """What the help of a command says of its exit codes, and those of all commands."""
    table = commands(main, "jaxmon").partition("\n## Exit codes\n")[2]
    for name, command in leaves().items():
        declared = (command.epilog or "").partition("Exit codes:\n")[2]
        codes = re.findall(r"^  (\w+)", declared.split("\n\n")[0], re.MULTILINE)
        assert all(f"| `jaxmon {name}` | {code} | " in table for code in codes), name
    assert "| `jaxmon` | 74 | output could not be written" in table
    assert "| `jaxmon baseline compare` | otherwise | COMMAND's exit code" in table


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completion_is_installed(shell, tmp_path):
    """One file, where the shell finds it, which asks jaxmon itself."""
    homes = {"HOME": str(tmp_path), "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}
    result = jaxmon("completion", SHELL=f"/bin/{shell}", **homes)

    assert result.exit_code == 0, result.output
    [file] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert result.stdout == f"{file}\n"
    script = file.read_text()
    assert f"_JAXMON_COMPLETE={shell}_complete" in script
    assert jaxmon("completion", shell, "--show").stdout == script
    assert ("fpath" in result.stderr) == (shell == "zsh")


def test_completion_of_an_unknown_shell_is_refused():
    """The message names the shells that there are."""
    result = jaxmon("completion", SHELL="/bin/csh")
    assert result.exit_code == 2
    assert "csh; give one of bash, fish, zsh" in result.stderr


def test_completion_knows_commands_and_options():
    """As a shell asks."""
    asked = {
        "_JAXMON_COMPLETE": "bash_complete",
        "COMP_WORDS": "jaxmon job why --st",
        "COMP_CWORD": "3",
    }
    result = run_python("-c", "from jaxmon.cli.entry import main; main()", env=asked)
    assert result.out.split() == ["plain,--stacks"], result.err
