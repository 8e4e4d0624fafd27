"""Whose a source file is by its path, and how it is displayed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from jaxmon.host.sources import GENERATED, JAX, LIBRARY, USER, display_path, tier
from jaxmon_alerts.gameday import programs as demo


if TYPE_CHECKING:
    import pytest


PACKAGES = "/opt/env/lib/python3.11/site-packages"

FILES = {
    "/app/train.py": USER,
    "/people/me/jax/train.py": USER,
    f"{PACKAGES}/trainer/loop.py": USER,
    demo.__file__: USER,
    "<stdin>": USER,
    "<ipython-input-1-abc>": USER,
    "<string>": GENERATED,
    "<frozen runpy>": GENERATED,
    f"{PACKAGES}/flax/nnx/nn/linear.py": LIBRARY,
    f"{PACKAGES}/einops/einops.py": LIBRARY,
    f"{PACKAGES}/uvicorn/config.py": LIBRARY,
    f"{PACKAGES}/absl/app.py": LIBRARY,
    f"{PACKAGES}/jraph/_src/models.py": LIBRARY,
    "/usr/lib/python3.12/contextlib.py": LIBRARY,
    "/opt/env/lib64/python3/functools.py": LIBRARY,
    f"{PACKAGES}/jax/_src/pjit.py": JAX,
    f"{PACKAGES}/jaxmon/indicators/decorate.py": JAX,
    "": JAX,
}


def test_whose_a_file_is() -> None:
    """Files of another machine are told apart, although none of them exists here."""
    assert {file: tier(file) for file in FILES} == FILES


def test_paths_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are relative to the working, package or home directory."""
    monkeypatch.setenv("HOME", "/people/me")
    monkeypatch.chdir(tmp_path)

    assert display_path(f"{tmp_path}/src/train.py") == "src/train.py"
    assert display_path(f"{tmp_path}x/train.py") == f"{tmp_path}x/train.py"
    assert display_path(f"{PACKAGES}/trainer/loop.py") == "trainer/loop.py"
    assert display_path(f"{PACKAGES}/single.py") == "single.py"
    assert display_path("/people/me/train.py") == "~/train.py"
    assert display_path("<stdin>") == "<stdin>"
    assert display_path("") == ""


def test_a_deleted_working_directory_is_no_obstacle(tmp_path, monkeypatch):
    """A program may run in a directory that is gone."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    try:
        assert display_path("/app/train.py") == "/app/train.py"
    finally:
        os.chdir(tmp_path)
