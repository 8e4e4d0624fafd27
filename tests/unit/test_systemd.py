"""The unit for hosts without containers."""

import shlex
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from tests.helpers.processes import ROOT, require_program


UNIT = ROOT / "exporters/systemd/jaxmon-exporter.service"


def settings(text: str) -> dict[str, list[str]]:
    """Return the values of each key; some keys stand several times."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.fixture(scope="module")
def unit() -> dict[str, list[str]]:
    return settings(UNIT.read_text())


def test_the_command_is_one_that_the_exporter_takes(unit: dict[str, list[str]]) -> None:
    """Program and options of ExecStart exist."""
    program, *options = shlex.split(unit["ExecStart"][0])
    assert Path(program).name == "jaxmon-exporter"
    told = CliRunner().invoke(main, ["exporter", "--help"]).output
    assert all(one in told for one in options if one.startswith("--"))
    directory = unit["RuntimeDirectory"][0]
    assert options[options.index("--run-dir") + 1] == f"/run/{directory}"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
        ("User", "jaxmon"),
        ("RuntimeDirectoryMode", "2770"),
        ("RestartPreventExitStatus", "2"),
        ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX"),
    ],
)
def test_it_runs_without_rights(unit, key, value):
    """No root, no capability, nothing to write; and a wrong option ends it for good."""
    assert unit[key] == [value]


def test_systemd_understands_every_line(tmp_path: Path) -> None:
    """No key is unknown and no value malformed; the program need not be there."""
    text = UNIT.read_text().replace("/opt/jaxmon/bin/jaxmon-exporter", "/bin/true")
    copy = tmp_path / UNIT.name
    copy.write_text(text)
    assert UNIT.name not in analyze("verify", "--man=no", str(copy)).stderr

    copy.write_text(text.replace("ProtectHome=", "ProtectHomes="))
    assert UNIT.name in analyze("verify", "--man=no", str(copy)).stderr


def test_systemd_finds_little_exposed(tmp_path: Path) -> None:
    """
    By systemd's own judgement the service is exposed to no more than 2 of 10: what is
    left are the network and devices that it reads.
    """
    most = ("security", "--offline=yes", "--threshold=20")
    done = analyze(*most, str(UNIT))
    assert done.returncode == 0, done.stdout

    copy = tmp_path / UNIT.name
    lines = UNIT.read_text().splitlines(keepends=True)
    copy.write_text("".join(one for one in lines if "CapabilityBounding" not in one))
    assert analyze(*most, str(copy)).returncode != 0


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [require_program("systemd-analyze"), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
