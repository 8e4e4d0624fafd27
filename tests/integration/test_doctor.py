"""`jaxmon doctor` as a user runs it."""

import json
import re
from pathlib import Path

import pytest

from tests.helpers.processes import run_python


def test_this_environment_is_in_order(run_dir: Path) -> None:
    """On a supported JAX all hooks attach and the known calls are counted."""
    result = run_python("-m", "jaxmon", "doctor", "--json", run_dir=run_dir)

    findings = json.loads(result.ok().out)
    hooks = [one for one in findings if one["area"] == "hooks"]
    assert [one["status"] for one in hooks] == ["ok"]
    assert {one["status"] for one in findings} <= {"ok", "note"}


def test_a_cache_that_cannot_be_written_is_told(run_dir: Path, tmp_path: Path) -> None:
    """The persistent cache is looked at as the program would see it."""
    blocked = tmp_path / "file"
    blocked.touch()
    env = {"JAX_COMPILATION_CACHE_DIR": str(blocked / "cache")}
    result = run_python("-m", "jaxmon", "doctor", "--json", run_dir=run_dir, env=env)

    found = [one for one in json.loads(result.out) if one["area"] == "cache"]
    assert "warning" in {one["status"] for one in found}
    assert all(one["advice"] for one in found if one["status"] == "warning")


def test_text_fits_a_terminal_and_the_exit_code_tells(run_dir: Path) -> None:
    """Warnings are listed within 80 columns; they fail only a strict check."""
    env = {"JAX_DEBUG_NANS": "1", "JAXMON_PROT": "1"}
    args = ("-m", "jaxmon", "doctor", "--skip-jax")
    result = run_python(*args, run_dir=run_dir, env=env).ok()

    assert "did you mean JAXMON_PORT?" in result.out
    assert re.fullmatch(
        r"\d+ checks passed, \d needs? attention\.", result.out.splitlines()[-1]
    )
    assert max(map(len, result.out.splitlines())) <= 80
    assert run_python(*args, "--strict", run_dir=run_dir, env=env).code == 1


@pytest.mark.parametrize("name", ["JAXMON_PORT", "JAXMON_CALLS"])
def test_a_setting_that_cannot_be_used_fails(name: str, run_dir: Path) -> None:
    """What would make `jaxmon.instrument` raise is a failure here."""
    args = ("-m", "jaxmon", "doctor", "--skip-jax")
    result = run_python(*args, run_dir=run_dir, env={name: "perhaps"})

    assert result.code == 1
    assert f"{name}='perhaps'" in result.out
