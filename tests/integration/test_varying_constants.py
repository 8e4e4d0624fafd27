"""
A cache that hits nothing because a constant of the program is another one in each run,
and caches that miss for a good reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.processes import JAXMON, Program, execute


TIME = "(time.time() % 1000)"
SEED = "jax.random.uniform(jax.random.key(int.from_bytes(os.urandom(3))))"
SOURCE = """
import os, time
import jax, jax.numpy as jnp, numpy as np
@jax.jit
def step(w, x, value):
    for _ in range(90):
        w = w + jnp.sort(jnp.tanh(x @ w), axis=-1)
    return w * {used}  # fault

ones = np.ones((32, 32), np.float32)
value = {value}
for _ in range(3):
    step(ones, ones, value).block_until_ready()
"""


def findings(
    directory: Path, used: str, value: str = "0.0", program: str = "main"
) -> list[dict[str, Any]]:
    """
    Run a program that has the expression *used*; return what is said of the cache in
    *directory*.
    """
    here, kept = directory / program, directory / "kept"
    here.mkdir(exist_ok=True)
    file, text = here / "main.py", SOURCE.format(used=used, value=value)
    if not file.exists() or file.read_text() != text:
        file.write_text(text)
    environ = {
        "JAX_COMPILATION_CACHE_DIR": str(directory / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    options = "--no-tcp", "--summary-dir", str(kept), "--run-dir", str(directory / "r")
    command = [*JAXMON, "run", *options]
    status, _, errors = execute(command, Program(environ=environ), here)
    assert status == 0, errors
    (summary,) = kept.glob("*.json")
    found = json.loads(summary.read_text())["findings"]
    summary.unlink()
    return [finding for finding in found if finding["topic"] == "cache"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("used", [TIME, SEED])
def test_a_constant_of_each_run_is_named_with_its_line(tmp_path, used):
    """From the second run on; the first one finds an empty cache."""
    lines = SOURCE.splitlines()
    line = next(n for n, text in enumerate(lines, 1) if text.endswith("# fault"))

    assert findings(tmp_path, used) == []
    (found,) = findings(tmp_path, used)

    assert found["subject"] == "varying_constant"
    assert found["where"].endswith(f"main.py:{line}")
    assert "__main__.step" in found["verdict"]
    assert "pass it as an argument" in found["action"]


@pytest.mark.exhaustive
def test_a_cache_that_misses_for_a_good_reason_has_no_obstacle(tmp_path):
    """
    What varies is an argument, which is the advice; the program was edited between the
    runs; another program has a function of that name.
    """
    assert findings(tmp_path, "value", TIME) == []
    assert findings(tmp_path, "value", TIME) == []
    assert findings(tmp_path, "0.5") == []
    assert findings(tmp_path, "0.25") == []
    assert findings(tmp_path, "0.75", program="other") == []
