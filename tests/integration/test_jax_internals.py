"""The names of JAX that jaxmon uses, asked of the JAX that is installed."""

import json
from pathlib import Path

import jax
import pytest

from jaxmon.agent.jaxlink.names import NAMES, RELEASES, missing, present
from tests.helpers.processes import run_python


pytestmark = pytest.mark.ground_truth

AT = [
    at for at, one in enumerate(RELEASES) if f"{jax.__version__}.".startswith(f"{one}.")
]


@pytest.mark.skipif(not AT, reason="the table has no column for this JAX")
def test_the_table_is_right() -> None:
    """A name is there where its row says so, and nowhere else."""
    found = {name.path: (present(name), name.seen[AT[0]] == "y") for name in NAMES}

    assert {
        path: (present, said)
        for path, (present, said) in found.items()
        if present is not None and present != said
    } == {}


def test_nothing_is_missing() -> None:
    """Of this JAX, nothing is reported."""
    assert list(missing(jax.__version__)) == []


HEAR = """
import sys
import jax

heard = set()
jax.monitoring.register_event_listener(lambda event, **_: heard.add(event))
jax.monitoring.register_event_duration_secs_listener(
    lambda event, seconds, **_: heard.add(event)
)
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
triple = jax.jit(lambda x: x * 3)
triple(1.0)
jax.clear_caches()
triple(1.0)
print("\\n".join(heard))
"""


def test_every_event_is_heard(preloaded_script, tmp_path):
    """A compile, and a hit in the persistent cache, report all events of the table."""
    heard = preloaded_script(HEAR, str(tmp_path / "cache")).ok().out.split()

    assert {name.path for name in NAMES if name.path.startswith("/")} <= set(heard)


def test_the_doctor_says_what_is_missing(tmp_path: Path, run_dir: Path) -> None:
    """`jaxmon doctor` names it, and the figures that are lost."""
    site = "import jax._src.monitoring as m\ndel m.get_event_listeners\n"
    (tmp_path / "sitecustomize.py").write_text(site)
    doctor = ("-m", "jaxmon", "doctor", "--json")
    result = run_python(*doctor, run_dir=run_dir, env={"PYTHONPATH": str(tmp_path)})

    found = [one for one in json.loads(result.out) if one["area"] == "internals"]
    assert [one["status"] for one in found] == ["failure"]
    assert "jax._src.monitoring.get_event_listeners" in found[0]["text"]
    assert "jaxmon_compile_seconds" in found[0]["text"]
    assert result.code == 1
