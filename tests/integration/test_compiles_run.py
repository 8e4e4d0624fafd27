"""Passes of real programs' compiles, compared with what is known."""

import json
import re
import runpy
from functools import partial
from itertools import count
from pathlib import Path
from textwrap import dedent
from threading import Event, Thread
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner
from jax.interpreters import partial_eval

from jaxmon.cli.main import main
from tests.helpers.agents import instrumented
from tests.helpers.jaxprs import primitives
from tests.helpers.processes import ROOT, Result, run_python
from tests.programs import slow_compiles


reports_passes = pytest.mark.skipif(
    jax.__version_info__ < (0, 5), reason="this XLA reports no passes"
)

DEEP = """
import json, os, sys, threading, time
import jax, jax.numpy as jnp, numpy as np

def deep(x, layers=12):
    for _ in range(layers):
        x = jnp.sin(x) * jnp.cos(x @ x.T)[:, :1] + x
    return x.sum()
"""


SLOW = """
import time
import jax.numpy as jnp

def turned(x):
    time.sleep(0.03)  # traced
    return jnp.sort(x) + x.T

def slow(x):
    for _ in range(20):
        x = turned(x)  # loop
    return x.sum()
"""
SQUARE = np.ones((8, 8), np.float32)


def compiles_run(
    directory: Path, source: str, *args: str, env: dict[str, str] | None = None
) -> Result:
    """Run the command on a program with *source*; XLA optimises as for users."""
    (directory / "train.py").write_text(dedent(source))
    command = ("-m", "jaxmon", "compiles", "run", *args, "train.py")
    return run_python(*command, cwd=directory, env={"XLA_FLAGS": "", **(env or {})})


def measured(directory: Path, source: str, **env: str) -> tuple[Any, Result]:
    """Return the document of a run, and the run."""
    file = directory / "compiles.json"
    result = compiles_run(directory, source, "--json", "--out", str(file), env=env)
    return json.loads(file.read_text()), result


def close(seconds: float) -> Any:
    """Return what is within 5 % of *seconds*, or some milliseconds."""
    return pytest.approx(seconds, rel=0.05, abs=0.015)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Result]:
    """Return the document of a run of two functions, one of them slow, and the run."""
    return measured(
        tmp_path_factory.mktemp("two"),
        f"""{SLOW}{DEEP}
import jaxmon

jax.jit(slow)(np.ones((8, 8), np.float32))
step = jax.jit(deep)
for size in (16, 8):
    step(jnp.ones((size, size)))
found = {{}}
for family in jaxmon.instrument().collect():
    for series, value, *_ in family.samples:
        if series.startswith('jaxmon_compile_seconds_sum{{function="__main__.deep"'):
            found[series.split('"')[3]] = value
sys.stderr.write("heard " + json.dumps(found) + "\\n")
""",
    )


def line_of(source: str, mark: str) -> int:
    """Return the number of the line with a comment *mark* in a program."""
    lines = source.splitlines()
    (found,) = [n for n, of in enumerate(lines, 1) if of.endswith(f"  # {mark}")]
    return found


@reports_passes
def test_seconds_are_those_of_the_agent(two: tuple[Any, Result]) -> None:
    """Parts are all of the time, and have the seconds of the agent's metrics."""
    document, result = two
    heard = json.loads(result.err.partition("heard ")[2].splitlines()[0])
    steps = [of for of in document["programs"] if of["function"] == "__main__.deep"]

    assert len(steps) == 2
    assert close(heard["trace"]) == sum(of["parts"]["trace"] for of in steps)
    assert close(heard["lower"]) == sum(of["parts"]["lower"] for of in steps)
    assert close(heard["backend_compile"]) == sum(of["xla"] for of in steps)
    for program in document["programs"]:
        assert program["untraced"] == ""
        assert close(sum(program["parts"].values())) == program["seconds"]
        assert program["xla"] >= sum(program["passes"].values()) > 0
    # XLA takes most of its time for what it names.
    assert all(of["parts"]["code generation"] > 0.3 * of["xla"] for of in steps)
    assert {"layout", "fusion", "copy insertion"} <= steps[0]["parts"].keys()
    assert any(of["internal"] for of in document["programs"])


def equations(function: Any, *given: Any, **options: Any) -> int:
    """Return how many JAX lowers, with those inside of others."""
    jaxpr = jax.make_jaxpr(partial(function, **options))(*given).jaxpr
    needed, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    return primitives(needed).total()


def test_the_line_of_a_slow_compile_is_named(
    two: tuple[Any, Result], tmp_path: Path
) -> None:
    """
    The loop that is unrolled, and where the trace waits; with figures that are those of
    the program. Of one that took little, nothing is said.
    """
    found = {of["function"].rpartition(".")[2]: of for of in two[0]["programs"]}
    (tmp_path / "slow.py").write_text(SLOW)
    slow = runpy.run_path(str(tmp_path / "slow.py"))["slow"]
    total = equations(slow, SQUARE)
    first, *others = found["slow"]["lines"]

    assert found["slow"]["equations"] == total
    assert first["where"] == f"train.py:{line_of(SLOW, 'loop')}"
    times = f"unrolled at least 20 times, {total - 1} of {total} equations"
    assert first["text"].startswith(f"a Python loop, {times}")
    assert "sort 20" in first["text"]
    for line in others:  # unless the machine is so busy that little else counts
        assert line["where"] == f"train.py:{line_of(SLOW, 'traced')}"
        assert 0 < line["seconds"] <= found["slow"]["parts"]["trace"]
    quick = [of for of in two[0]["programs"] if of["seconds"] < 0.25]
    assert all(of["lines"] == [] for of in quick)
    assert any(not of["internal"] for of in two[0]["programs"])


TIMES = {"forward": 700, "trajectory": 60, "net": 300, "train": 30}


@reports_passes
@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_lines_of_six_slow_compiles_are_first(options: tuple[str, ...]) -> None:
    """With numbers of turns and equations that are those of the programs."""
    file = ROOT / "tests" / "programs" / "slow_compiles.py"
    command = ("-m", "jaxmon", "compiles", "run", *options)
    names = ("-m", "tests.programs.slow_compiles")
    shown = run_python(*command, *names, cwd=ROOT, env={"XLA_FLAGS": ""}).ok()
    for function, given in slow_compiles.PROGRAMS.items():
        name = function.__name__
        place = f"tests/programs/slow_compiles.py:{line_of(file.read_text(), name)}"
        if options:
            programs = json.loads(shown.out)["programs"]
            [of] = [of for of in programs if of["function"] == f"__main__.{name}"]
            where, text = of["lines"][0]["where"], of["lines"][0]["text"]
        else:
            row = re.search(rf"__main__.{name}: .*\n  (.*): (.*)", shown.out)
            assert row, shown.out
            where, text = re.findall(r"(\S+:\d+): (.*)", row[0])[0]
        total = equations(function, *given)
        assert where == place, text
        if name in TIMES:
            rest = (
                total - 4 * 700
                if name == "forward"
                else equations(function, *given, turns=0)
            )
            turns = f"at least {TIMES[name]} times"
            assert f"{turns}, {total - rest:,} of {total:,} equations" in text
    assert "sort 300" in shown.out


@reports_passes
def test_constant_folding_takes_what_xla_says(tmp_path: Path) -> None:
    """XLA prints how long the folding of a slow instruction took."""
    result = compiles_run(
        tmp_path,
        """
import jax, jax.numpy as jnp, numpy as np
table = np.random.default_rng(0).normal(size=(150, 150)).astype(np.float32)

@jax.jit
def smooth(x):
    window = jax.lax.reduce_window(table, 0., jax.lax.add, (9, 9), (1, 1), "SAME")
    return x + window.sum()

smooth(1.)
""",
    ).ok()
    said = re.findall(r"The operation took (?:(\d+)m)?([\d.]+)(m?s)\b", result.err)
    if not said and jax.__version_info__ >= (0, 12):
        pytest.skip("this XLA folds it in no time")
    seconds = sum(
        60 * float(minutes or 0) + float(value) / (1000 if unit == "ms" else 1)
        for minutes, value, unit in said
    )
    [row] = re.findall(r" constant folding +([\d.]+) m?s ", result.out)
    [lines] = re.findall(r"__main__.smooth: .*\n((?:  train.py.*\n)+)", result.out)

    # XLA does not say what takes less than a second.
    assert not said or pytest.approx(seconds, rel=0.05) == float(row)
    because = "reduce_window_sum of float32[150,150]"
    first, *others = lines.splitlines()
    assert first == f"  train.py:7: most likely what is folded: {because}"
    # Where a busy machine traces for as long as XLA folds.
    traced = (
        "  train.py:8: 3 of 4 equations: reduce_sum 1, convert_element_type 1, add 1"
    )
    assert others in ([], [traced])
    assert "\nall:" not in result.out


@reports_passes
def test_compiles_on_several_threads_are_told_apart(tmp_path: Path) -> None:
    """Each program has the passes of its own thread of XLA."""
    document, _ = measured(
        tmp_path,
        f"""{DEEP}
def train(number):
    def step(x):
        return deep(x, 12 + 8 * number)
    step.__qualname__ = step.__name__ = f"step{{number}}"
    return jax.jit(step)

x = jnp.ones((16, 16))
busy = jax.jit(lambda x: x + 1)
busy(x)
done = threading.Event()

def call():
    while not done.is_set():
        busy(x)
        time.sleep(0.001)

caller = threading.Thread(target=call)
caller.start()  # is no thread that compiles
steps = [threading.Thread(target=train(number), args=(x,)) for number in range(3)]
for thread in steps: thread.start()
for thread in steps: thread.join()
done.set()
""",
    )
    steps = {
        of["function"].partition(".")[2]: of
        for of in document["programs"]
        if "step" in of["function"]
    }

    assert {"step0", "step1", "step2"} == steps.keys()
    for program in steps.values():
        assert program["untraced"] == ""
        assert 1 >= sum(program["passes"].values()) / program["xla"] > 0.5


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    """A program may profile itself, fail to compile, and raise."""
    result = compiles_run(
        tmp_path,
        f"""{DEEP}
jax.profiler.start_trace("trace")
jax.jit(lambda x: jnp.sin(x))(1.)
jax.profiler.stop_trace()
try:
    lowered = jax.jit(deep).lower(jnp.ones((4, 4)))
    lowered.compile(compiler_options={{"xla_no_such_option": 1}})
except Exception as error:
    print(type(error).__name__)
jax.jit(lambda x: jnp.cos(x))(1.)
print("here", *sorted(os.listdir("trace")))
raise SystemExit(5)
""",
    )

    assert result.code == 5
    assert "here plugins\n" in result.out
    assert "the program failed with exit code 5; until then:\n" in result.out
    assert re.search(
        r"without XLA's passes: \d programs?, since the program is profiling itself",
        result.out,
    )
    assert "__main__.deep: 1 compile did not finish\n" in result.out
    assert re.search(r"<lambda>, program \d: [\d.]+ m?s", result.out)
    assert re.search(r"XLA, not recorded +[\d.]+ m?s", result.out)


def test_a_program_without_compiles(tmp_path: Path) -> None:
    """It ends as it would, and one line says what there is to see."""
    result = compiles_run(tmp_path, "print('done')").ok()

    assert "done\nnothing was compiled in the process" in result.out


def test_loading_is_not_compiling(tmp_path: Path) -> None:
    """A program from the persistent cache has neither passes nor XLA's time."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    }
    source = f"{DEEP}\njax.jit(deep)(np.ones((4, 4), np.float32))\nprint('seen')"
    first, _ = measured(tmp_path, source, **cache)
    second, result = measured(tmp_path, source, **cache)
    [before], [after] = (
        [of for of in found["programs"] if of["function"] == "__main__.deep"]
        for found in (first, second)
    )

    assert "load" not in before["parts"]
    assert close(after["xla"]) == after["parts"]["load"]
    assert after["passes"] == {}
    # The document is alone on standard output.
    assert "seen" in result.err


def test_modules_and_source_run_too(tmp_path: Path) -> None:
    """PROGRAM is what `jaxmon run` accepts."""
    command = ("-m", "jaxmon", "compiles", "run")
    both = run_python(*command, "-m", "-c", "x", cwd=tmp_path)
    code = run_python(*command, "-c", "import sys; sys.exit(3)", cwd=tmp_path)

    assert (both.code, code.code) == (2, 3)
    assert "mutually exclusive" in both.err


@reports_passes
def test_a_running_process_is_recorded_for_some_seconds(
    run_dir: Path, tmp_path: Path
) -> None:
    """What it compiles meanwhile, and no more; not while it is profiling itself."""

    def deep(x: Any) -> Any:
        for _ in range(12):
            x = jnp.sin(x) * jnp.cos(x @ x.T)[:, :1] + x
        return x.sum()

    def compiles(*options: str) -> Any:
        command = ["compiles", "--passes", "0.2", "--run-dir", str(run_dir), *options]
        return CliRunner().invoke(main, command)

    step, over, sizes = jax.jit(deep), Event(), count(2)

    def call() -> None:
        while not over.is_set():
            size = next(sizes)
            step(jnp.ones((size, size)))

    with instrumented(socket=True):
        for _ in range(5):
            step(jnp.ones((next(sizes), 1)))
        thread = Thread(target=call)
        thread.start()
        programs: list[Any] = []
        while not programs:  # a compile may last longer than the window
            found = compiles("--json")
            assert found.exit_code == 0, found.output
            programs = json.loads(found.output)["programs"]
        over.set()
        thread.join()
        idle = compiles()
        jax.profiler.start_trace(tmp_path)
        busy = compiles()
        jax.profiler.stop_trace()

    steps = [of for of in programs if of["function"].endswith(".deep")]
    assert len(steps) < next(sizes) - 6
    for program in programs:
        assert program["untraced"] == ""
        assert close(sum(program["parts"].values())) == program["seconds"]
        assert program["xla"] >= sum(program["passes"].values()) > 0
    assert idle.output == "nothing was compiled in 0.20 s\n"
    assert busy.exit_code == 1
    assert "cannot be profiled: the program is profiling itself" in busy.output
