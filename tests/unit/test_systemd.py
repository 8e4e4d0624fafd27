"""
The unit for hosts without containers.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from tests.support import ROOT


UNIT = ROOT / "exporters/systemd/jaxmon-exporter.service"


def settings(text: str) -> dict[str, list[str]]:
    """
    Return the values of each key; some keys stand several times.
    """
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


@pytest.fixture(scope="module")
def unit() -> dict[str, list[str]]:
    return settings(UNIT.read_text())


def test_the_command_is_one_that_the_exporter_takes(
    unit: dict[str, list[str]],
) -> None:
    """
    Program and options of ExecStart exist.
    """
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
        ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX"),
    ],
)
def test_it_runs_without_rights(
    unit: dict[str, list[str]], key: str, value: str
) -> None:
    """
    No root, no capability, nothing to write.
    """
    assert unit[key] == [value]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    """
    No key is unknown and no value malformed; the program need not be there.
    """
    text = UNIT.read_text().replace("/opt/jaxmon/bin/jaxmon-exporter", "/bin/true")
    copy = tmp_path / UNIT.name
    copy.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert UNIT.name not in done.stderr, done.stderr
