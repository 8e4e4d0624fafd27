"""Which line of a stack is the user's."""

import sys
import sysconfig
from types import ModuleType

import jax
import pytest

from jaxmon.agent.jaxlink import source_lines as sites
from jaxmon.agent.jaxlink.source_lines import (
    UNKNOWN,
    SourceLine,
    SourceLineFinder,
    set_at,
)
from jaxmon.host.sources import LIBRARY, USER
from jaxmon.indicators import decorate
from jaxmon_alerts.gameday import programs as demo


JAX = f"{jax.__path__[0]}/_src/pjit.py"
PACKAGES = "/opt/env/lib/python3.11/site-packages"
STANDARD = f"{sysconfig.get_path('stdlib')}/contextlib.py"
AGENT, MARKS, DEMO = sites.__file__, decorate.__file__, demo.__file__

CASES = {
    "a program": ([JAX, "/app/train.py"], "/app/train.py"),
    "the innermost of a program": (
        [JAX, "/app/model.py", "/app/train.py"],
        "/app/model.py",
    ),
    "below libraries": (
        [JAX, f"{PACKAGES}/flax/nnx/module.py", STANDARD, "/app/train.py"],
        "/app/train.py",
    ),
    "an installed program": (
        [JAX, f"{PACKAGES}/optax/_src/base.py", f"{PACKAGES}/trainer/loop.py"],
        f"{PACKAGES}/trainer/loop.py",
    ),
    "another JAX": (
        ["/x/dist-packages/jax/_src/api.py", "/app/train.py"],
        "/app/train.py",
    ),
    "the agent": ([JAX, AGENT, "/app/train.py"], "/app/train.py"),
    "marks of jaxmon": ([JAX, MARKS, "/app/train.py"], "/app/train.py"),
    "the demo": ([JAX, AGENT, DEMO, "<frozen runpy>"], DEMO),
    "a library only": (
        [JAX, f"{PACKAGES}/optax/_src/base.py"],
        f"{PACKAGES}/optax/_src/base.py",
    ),
    "python -c": ([JAX, f"{PACKAGES}/haiku/_src/base.py", "<string>"], "<string>"),
    "generated code of a program": (["<string>", "/app/train.py"], "/app/train.py"),
    "a shell": ([JAX, "<stdin>"], "<stdin>"),
    "JAX alone": ([JAX, JAX], JAX),
}


@pytest.mark.parametrize(("files", "expected"), CASES.values(), ids=CASES)
def test_the_line_is_the_users(files, expected):
    """Of a stack, innermost first, the innermost frame of the program counts."""
    stack = [SourceLine(file, at, f"f{at}") for at, file in enumerate(files)]

    found = SourceLineFinder(jax).of(stack)

    assert found == (expected, files.index(expected), f"f{files.index(expected)}")


def test_no_stack_is_nobodys_line():
    """What was allocated without Python has no line."""
    assert SourceLineFinder(jax).of([]) == UNKNOWN


def test_libraries_may_be_in_any_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be a `--target`, or a clone."""
    monkeypatch.setattr(sys, "path", ["/app", "", "/opt/libs", "/src/optax"])
    finder = SourceLineFinder(jax)
    expected = {
        "/opt/libs/numpyro/infer/util.py": LIBRARY,
        "/src/optax/optax/_src/base.py": LIBRARY,
        "/opt/libs/trainer/loop.py": USER,
        "/src/optax/examples/train.py": USER,
        "/app/train.py": USER,
        "/people/flax/train.py": USER,
    }

    assert {file: finder.tier(file) for file in expected} == expected


def test_the_line_that_sets_a_setting_is_found(tmp_path, monkeypatch):
    """Where its name is given to ``update``, if that is one line."""
    name = "jax_persistent_cache_min_compile_time_secs"
    module = ModuleType("__main__")  # few others come before it
    module.__file__ = str(tmp_path / "trial.py")
    text = f"import jax\n# {name}\njax.config.update(\n    '{name}', 20)\n"
    (tmp_path / "trial.py").write_text(text)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    lines = SourceLineFinder(jax)
    monkeypatch.setattr(lines, "is_user", lambda file: file.startswith(f"{tmp_path}"))

    assert set_at(name, lines).endswith("trial.py:4")
    assert set_at("jax_enable_x64_never", lines) == ""
