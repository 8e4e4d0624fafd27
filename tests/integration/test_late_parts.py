"""Parts that are loaded when they first have something to do."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import pytest

import jaxmon
from jaxmon.agent.context import context_of
from jaxmon.agent.guard import Guard
from jaxmon.agent.part import LatePart, Loading, Part, PartRow
from jaxmon.agent.parts import ROWS, AgentParts
from jaxmon.agent.scheduler import Scheduler
from jaxmon.indicators.figures import Indicators
from tests.helpers.processes import ROOT


# What a program prints of late parts: those that are loaded, and what has failed.
SHOWN = """
def loaded():
    late = "flops.part", "compiles.programs", "tracing.part", "checks.keys"
    return [one for one in late if f"jaxmon.agent.{one}" in sys.modules]

def failed():
    return [
        name.partition('"')[2].partition('"')[0]
        for family in agent.collect() for name, number in family.samples
        if family.metric.name == "jaxmon_internal_errors_total" and number
    ]

def compiled():
    wanted = "jaxmon_compiles_total", "jaxmon_programs_total", "jaxmon_flops_total"
    return sorted(
        family.metric.name for family in agent.collect()
        if family.metric.name in wanted and "doubled" in str(family.samples)
    )

@jax.jit
def doubled(x):
    return x @ x * 2
"""
ALL = ["jaxmon_compiles_total", "jaxmon_flops_total", "jaxmon_programs_total"]


def run(source: str, **options: Any) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return [*done.stdout.splitlines(), *done.stderr.splitlines()]


def test_what_a_program_does_loads_its_parts(tmp_path: Path) -> None:
    """
    Neither an agent, nor scrapes, load what compiles do; a compile does, though the
    program has emptied `sys.path`, whose entry was relative, and moved; and nothing of
    ours is imported at exit.
    """
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/jaxmon").symlink_to(ROOT / "jaxmon")
    source = f"""
import atexit, os, sys
sys.path.insert(0, "lib")
import jax, jax.numpy as jnp
import jaxmon
assert jaxmon.__file__.startswith({str(tmp_path)!r})
def ours():
    return {{name for name in sys.modules if name.startswith("jaxmon")}}
atexit.register(lambda: print("at exit:", sorted(ours() - known)))
agent = jaxmon.instrument(port=0, run_dir={str(tmp_path / "run")!r})
{SHOWN}
agent.collect()
print(loaded(), compiled())
sys.path[:] = []
os.chdir("/")
doubled(jnp.ones((4, 4)))
agent.refresh()
print(loaded(), compiled(), failed())
known = ours()
"""
    lines = run(source, cwd=tmp_path)
    names = ["flops.part", "compiles.programs", "tracing.part", "checks.keys"]
    assert lines == ["[] []", f"{names} {ALL} []", "at exit: []"]


def test_time_and_requests_load_what_only_watches() -> None:
    """Memory and time are watched after a second; events load what they need."""
    source = """
import sys, time
import jax, numpy as np
import jaxmon
from jax._src import monitoring
def loaded(*parts):
    return [one for one in parts if f"jaxmon.agent.{one}" in sys.modules]
agent = jaxmon.instrument(port=0, socket=False)
soon = "memory.part", "memory.lines", "walltime.part"
asked = "oom.part", "warm.part", "checkpoints"
print(loaded(*soon, *asked))
while loaded(*soon) != list(soon):
    time.sleep(0.05)
print(loaded(*asked))
import urllib.request
ready = agent.url.replace("metrics", "-/ready")
print(urllib.request.urlopen(ready).read(), loaded(*asked))
monitoring.record_scalar("/jax/orbax/write/gbytes", 2.0)
monitoring.record_event("/jax/orbax/write/start")
print(agent.determinism.name, loaded(*asked))
metrics = {one: n for f in agent.collect() for one, n in f.samples}
print(metrics['jaxmon_checkpoint_failures_total{operation="save"}'], loaded(*asked))
"""
    assert run(source) == [
        "[]",
        "[]",
        "b'ok\\n' ['warm.part']",
        "determinism ['warm.part', 'checkpoints']",
        "1 ['oom.part', 'warm.part', 'checkpoints']",
    ]


def test_a_part_that_cannot_be_loaded_leaves_the_rest() -> None:
    """One line names it, once, and the program and the other parts continue."""
    source = f"""
import sys
import jax, jax.numpy as jnp
import jaxmon
agent = jaxmon.instrument(port=0, socket=False)
sys.modules["jaxmon.agent.tracing.part"] = None
{SHOWN}
for size in 3, 4:
    print(doubled(jnp.ones((size, size))).shape)
agent.refresh()
print(compiled(), failed())
"""
    lines = run(source)
    assert lines[:3] == ["(3, 3)", "(4, 4)", f"{ALL} ['tracing']"]
    assert sum("jaxmon failed in tracing" in line for line in lines[3:]) == 1


def test_a_child_loads_what_its_parent_was_loading() -> None:
    """A fork waits for an import of a part, which the child would never finish."""
    source = f"""
import os, signal, sys, threading, time
import jax, numpy as np
import jaxmon
importing, forking = threading.Event(), threading.Event()

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "jaxmon.agent.flops.roofline" and not forking.is_set():
            importing.set()
            forking.wait(60)
            time.sleep(0.3)  # a fork that does not wait is over by then

agent = jaxmon.instrument(port=0, socket=False)
{SHOWN}
os.register_at_fork(before=forking.set)
sys.meta_path.insert(0, Slow())
other = threading.Thread(target=doubled, args=(np.ones((4, 4)),))
other.start()
assert importing.wait(60)
if not (child := os.fork()):
    signal.alarm(20)
    import jaxmon.agent.flops.part
    os._exit(7)
other.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
agent.refresh()
print(compiled(), failed())
"""
    env = {"PYTHONWARNINGS": "ignore"}
    lines = run(source, env={**os.environ, **env})
    assert lines[:2] == ["7", f"{ALL} []"]


def test_the_table_is_right() -> None:
    """
    Each row names a part by its site, and what it needs; a late part has counted
    nothing when it is loaded, takes the place of what loads it, in each list of
    observers that the table names, and has the endpoints that the table says.
    """
    settings = jaxmon.instrument(
        enabled=False,
        figures_dir="x",
        passes_dir="x",
        run="x",
        device_figures=True,
        log_events=True,
        frameworks=True,
    ).settings
    context = context_of(jax, settings)
    parts = AgentParts(context, Indicators(1, context.guard, on_error=print))
    made = {part.name: part for part in parts}
    assert list(made) == [row.name for row in ROWS]
    for row in ROWS:
        part = made[row.name]
        lists = {one: getattr(context.observers, one) for one in row.late or ()}
        before = {one: len(found) for one, found in lists.items()}
        if isinstance(part, LatePart):
            loaded = part.load()
            assert loaded is not None
            assert row.scraped or not [one for one in loaded.collect() if one.samples]
            assert all(len(found) <= before[n] for n, found in lists.items())
            for one, found in lists.items():
                assert part._wakers[one] not in found, row.name
            assert sorted(loaded.pages()) == sorted(row.pages), row.name
            assert sorted(loaded.public_pages()) == sorted(row.public), row.name
            part = loaded
        assert isinstance(part, Part)
        assert part.name == row.name
        assert type(part).__qualname__ == row.place.partition(":")[2]
    for part in parts:
        part.stop()


@pytest.mark.contained
def test_an_interrupted_load_is_repeated() -> None:
    """An exception within a load propagates, and the next event loads the part."""
    context = context_of(jax, jaxmon.instrument(enabled=False).settings)
    parts = AgentParts(context, Indicators(1, context.guard, on_error=print))
    late = next(one for one in parts if one.name == "keys")
    assert isinstance(late, LatePart)
    make, inner = late._make, []

    def interrupted() -> Part:
        inner.append(late.load())
        make()
        raise KeyboardInterrupt

    late._make = interrupted
    before = {one: list(found) for one, found in late._lists.items()}
    with pytest.raises(KeyboardInterrupt):
        late.load()
    assert inner == [None]
    assert {one: list(found) for one, found in late._lists.items()} == before
    late._make = make
    assert late.load() is late.part is not None


@pytest.mark.contained
@pytest.mark.parametrize("observed", [(), ("first",), ("first", "second")])
def test_an_event_reaches_each_observer_once(observed: tuple[str, ...]) -> None:
    """Whether the part that it loads observes it itself or not."""
    lists: dict[str, list[Any]] = {"first": [], "second": []}
    seen: list[str] = []

    class Counting(Part):
        name = "counting"

        def __init__(self) -> None:
            for one in observed:
                lists[one].append(lambda: seen.append("part"))

    LatePart(PartRow("counting", ""), Counting, Loading(Scheduler(Guard())), lists)
    for one in lists.values():
        one += [lambda: seen.append("second"), lambda: seen.append("third")]
    for _ in range(2):
        seen.clear()
        for observe in lists["first"]:
            observe()
        assert seen == ["part"] * ("first" in observed) + ["second", "third"]
    assert len(lists["second"]) == 2 + ("second" in observed)
