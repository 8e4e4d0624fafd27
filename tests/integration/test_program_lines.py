"""What programs of real JAX cost by line, against counts made by hand."""

from __future__ import annotations

import functools
import inspect
import json
import runpy
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from click.testing import CliRunner

from jaxmon.agent import Agent
from jaxmon.agent.jaxlink.equations import EquationReader
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.cli.main import main
from jaxmon.clocks import monotonic
from jaxmon.facts.programs import read
from jaxmon.host.http import client
from jaxmon.host.sources import display_path
from jaxmon.preflight.compiled.costs import LineCost, LinePlace, ProgramCosts
from jaxmon.preflight.compiled.view import ProcessPrograms, render, text
from tests.helpers import inside
from tests.helpers.agents import instrumented
from tests.helpers.jaxprs import primitives


M, K = 8, 16
PRODUCT = 2 * M * K * K
WEIGHTS = np.ones((K, 1 << 18), np.float32) * 0.5


@pytest.fixture
def agent(run_dir: Path) -> Iterator[Agent]:
    jax.clear_caches()
    with instrumented(socket=True) as running:
        yield running


def get(agent: Agent, target: str) -> Any:
    """Return what the agent responds, once it has analysed all programs."""
    assert agent.socket is not None
    inside.programs(agent).finish(60)
    answer = client.get(Path(agent.socket), target, seconds=60, max_bytes=1 << 27)
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


def costs_of(agent: Agent, name: str) -> list[ProgramCosts]:
    """Return what the programs of the function *name* cost, the newest first."""
    programs = read(get(agent, "/debug/programs")).programs
    found = [p for p in programs if p.function.rpartition(".")[2] == name]
    target = f"/debug/hlo?newest=9&function={found[0].function}"
    texts = {one["finished"]: one["hlo"] for one in get(agent, target)["programs"]}
    return [ProgramCosts(p, texts[p.finished], "") for p in found]


@pytest.fixture
def call(agent: Agent) -> Callable[..., None]:
    """Return what jits and calls a function: its program lives as long as the test."""
    kept = []

    def called(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        kept.append(jax.jit(function, **options))
        kept[-1](*arguments)

    return called


def at(costs: ProgramCosts, mark: str) -> LineCost:
    """Return what the line of this file with a comment *mark* costs."""
    return costs.lines[LinePlace(__file__, line_of(mark))]


def line_of(mark: str) -> int:
    source = Path(__file__).read_text().splitlines()
    (found,) = [n for n, line in enumerate(source, 1) if line.endswith(f"  # {mark}")]
    return found


def layer(x: Any, w: Any) -> Any:
    y = x @ w  # product
    return jnp.tanh(y)  # tanh


def stacked(x: Any, w: Any, times: int) -> Any:
    for _ in range(times):
        x = layer(x, w)  # unrolled
    return x.sum()  # sum


def scanned(x: Any, w: Any) -> Any:
    def body(carry: Any, _: None) -> Any:
        return jnp.sin(carry) @ w, None  # body

    return jax.lax.scan(body, x, None, length=5)[0].sum()


def chosen(x: Any) -> Any:
    return jax.lax.cond(
        x.sum() > 0,  # condition
        lambda x: -jnp.cos(x),  # one branch
        lambda x: x * 3,  # other branch
        x,
    )


def shared(x: Any) -> Any:
    return jnp.exp(x) * 2  # inner


SHARED: Any = jax.jit(shared)


def twice(x: Any) -> Any:
    x = SHARED(x)  # first call
    return SHARED(x) + x  # second call


INPUT, MATRIX = np.ones((M, K), np.float32), np.ones((K, K), np.float32)


@pytest.mark.ground_truth
def test_a_loop_of_python_is_counted_by_its_lines(agent, call):
    """Equations and FLOPs are those of all its turns; the caller is above them."""
    call(stacked, INPUT, MATRIX, 9, static_argnums=2)
    (costs,) = costs_of(agent, "stacked")
    expected = primitives(jax.make_jaxpr(stacked, static_argnums=2)(INPUT, MATRIX, 9))

    assert costs.program.equations == sum(expected.values()) == 19
    assert at(costs, "product").equations == {"dot_general": 9}
    assert at(costs, "tanh").equations == {"tanh": 9}
    assert at(costs, "sum").equations == {"reduce_sum": 1}
    assert at(costs, "product").flops == 9 * PRODUCT
    assert at(costs, "tanh").instructions["tanh"] == 9
    assert at(costs, "tanh").flops == at(costs, "sum").flops == 0
    loop, product = line_of("unrolled"), line_of("product")
    calls = (LinePlace(__file__, loop), LinePlace(__file__, product))
    assert costs.traced[calls] == 9
    assert costs.program.unrolled is not None
    assert costs.program.unrolled.times == 9
    # Each array once, 4 bytes for each number.
    assert at(costs, "product").written_bytes + at(
        costs, "tanh"
    ).written_bytes in range(9 * M * K * 4, 18 * M * K * 4 + 1)


@pytest.mark.ground_truth
def test_instructions_are_all_of_the_text_each_at_a_line(agent, call):
    """Their sum is that of the lines of the text, and what the agent counted."""
    call(jax.grad(stacked), INPUT, MATRIX, 4, static_argnums=2)
    (costs,) = costs_of(agent, "stacked")
    hlo = get(agent, "/debug/hlo?newest=1")["programs"][0]["hlo"]

    assert costs.instructions == hlo.count("\n  ") == costs.made.total()
    assert costs.instructions == costs.program.analysis.instructions
    assert LinePlace("", 0) not in costs.lines
    assert [note for note in costs.notes if "keeps one line" not in note] == []


@pytest.mark.ground_truth
def test_the_body_of_a_scan_is_one_line_and_its_flops_those_of_all_turns(agent, call):
    """Its equations are counted once."""
    call(scanned, INPUT, MATRIX)
    (costs,) = costs_of(agent, "scanned")

    assert at(costs, "body").equations == {"sin": 1, "dot_general": 1}
    assert at(costs, "body").flops == 5 * PRODUCT
    assert (
        costs.program.equations
        == primitives(jax.make_jaxpr(scanned)(INPUT, MATRIX).jaxpr).total()
    )


@pytest.mark.ground_truth
def test_the_backward_pass_is_at_the_lines_of_the_forward_pass(agent, call):
    """A product has two more in it, less that of an argument without a gradient."""
    call(jax.grad(stacked, argnums=(0, 1)), INPUT, MATRIX, 3, static_argnums=2)
    (costs,) = costs_of(agent, "stacked")

    assert at(costs, "product").equations["dot_general"] == 9
    assert at(costs, "product").flops == 9 * PRODUCT
    assert set(costs.lines) >= {LinePlace(__file__, line_of("tanh"))}


def wide(x: Any, w: Any) -> Any:
    def body(carry: Any, _: None) -> Any:
        return jnp.sin(jnp.tanh(carry @ w)) + carry, None  # kept

    return jax.lax.scan(body, x, None, length=50)[0].sum()


def test_what_is_kept_for_the_backward_pass_is_held_at_its_line(agent, call):
    """Of each turn, all that the pass reads; nothing of it once it is recomputed."""
    given = np.ones((64, K), np.float32), MATRIX
    for function, name in ((wide, "wide"), (jax.checkpoint(wide), "wide")):
        call(jax.grad(function, argnums=1), *given)
        costs = costs_of(agent, name)[0]
        held = sum(line.held_bytes for line in costs.lines.values())
        temporary = costs.program.analysis.temporary_bytes or 0
        assert temporary <= 1.05 * held + 1024
        saved = sum(line.saved_bytes for line in costs.lines.values())
        if function is wide:
            assert at(costs, "kept").saved_bytes >= 50 * 64 * K * 4
            assert saved == pytest.approx(held, rel=0.1)
    assert saved < 0.1 * held


@pytest.mark.ground_truth
def test_a_cond_under_vmap_computes_both_branches(agent, call):
    """As equations of their lines, and a select beside them."""
    call(jax.vmap(chosen), INPUT)
    (costs,) = costs_of(agent, "chosen")
    expected = primitives(jax.make_jaxpr(jax.vmap(chosen))(INPUT).jaxpr)

    assert at(costs, "one branch").equations == {"cos": 1, "neg": 1}
    assert at(costs, "other branch").equations["mul"] == 1
    found = sum((line.equations for line in costs.lines.values()), Counter[str]())
    assert found == expected
    assert found["select_n"] > 0
    assert found["cond"] == 0


@pytest.mark.ground_truth
def test_what_a_jitted_function_calls_is_counted_for_each_call(agent, call):
    """JAX traces it once; its lines are below both calls, also of a later program."""
    call(twice, INPUT)
    call(lambda x: twice(x) * 2, INPUT)  # later
    for costs, above in (
        (costs_of(agent, "twice")[0], ()),
        (costs_of(agent, "<lambda>")[0], ("later",)),
    ):
        assert at(costs, "inner").equations == {"exp": 2, "mul": 2}
        places = [LinePlace(__file__, line_of(mark)) for mark in above]
        for mark in ("first call", "second call"):
            calls = (LinePlace(__file__, line_of(m)) for m in (mark, "inner"))
            assert costs.traced[*places, *calls] == 2


def test_layers_of_a_library_are_at_the_users_line(agent, call):
    """Equations of Equinox count where the program calls it."""
    equinox = pytest.importorskip("equinox")
    linear = equinox.nn.Linear(K, 3, key=jax.random.PRNGKey(0))

    def model(x: Any) -> Any:
        return jax.vmap(linear)(x)  # library

    call(model, INPUT)
    (costs,) = costs_of(agent, "model")

    assert at(costs, "library").equations["dot_general"] == 1
    # Others keep one line of each instruction, here that of Equinox.
    if jax.__version_info__ >= (0, 8):
        assert at(costs, "library").flops == 2 * M * K * 3
    assert at(costs, "library").equations.total() == costs.equations


@pytest.mark.ground_truth
def test_the_line_that_grew_since_the_program_before_is_first(agent: Agent) -> None:
    """Phases of each compile are kept with it."""
    jitted = jax.jit(stacked, static_argnums=2)
    jitted(INPUT, MATRIX, 2)
    jitted(INPUT, MATRIX, 12)
    latest, before = costs_of(agent, "stacked")
    found = ProcessPrograms([latest.program, before.program], latest, before)

    (place, now, then), *_ = found.changed
    assert place.line in (line_of("product"), line_of("tanh"))
    assert (now.equations.total(), then.equations.total()) == (12, 2)
    assert latest.program.finished > before.program.finished
    for costs in (latest, before):
        program = costs.program
        assert (program.trace_seconds or 0) > 0 < (program.lower_seconds or 0)
        assert (program.xla_seconds or 0) > 0
        assert program.loaded is False
    assert program.place == f"{display_path(__file__)}:{first_line(stacked)}"
    shown = "\n".join(text(found, 100))
    assert "SINCE THE PROGRAM BEFORE" in shown
    assert "test_program_lines.py:" in render(found, "python serve.py")


def first_line(function: Callable[..., Any]) -> int:
    return inspect.getsourcelines(function)[1]


def test_a_program_of_40_000_equations_is_bounded_and_quick() -> None:
    """It is read in a second or two; with less time, it says that there are more."""

    def large(x: Any) -> Any:
        for _ in range(20_000):
            x = x * 2 + 1  # many
        return x

    jaxpr = jax.make_jaxpr(large)(1.0).jaxpr
    finder = SourceLineFinder(jax)
    began = monotonic()
    found = EquationReader(finder, began + 60).read(jaxpr, "")
    assert monotonic() - began < 5
    assert (found.equations, found.uncounted) == (40_000, False)
    assert found.stacks[0].primitives == {"mul": 20_000, "add": 20_000}
    assert found.stacks[0].calls[-1].line == line_of("many")

    found = EquationReader(finder, began).read(jaxpr, "")
    assert found.uncounted
    assert 0 < (found.equations or 0) < 40_000


def test_no_more_than_the_largest_stacks_are_sent(tmp_path: Path) -> None:
    """The others are counted, and said to be."""
    source = tmp_path / "many.py"
    lines = ["    x = x + 1"] * 1500 + ["    return -(-x)"]
    source.write_text("\n".join(["def many(x):", *lines]))
    jaxpr = jax.make_jaxpr(runpy.run_path(str(source))["many"])(1.0).jaxpr
    found = EquationReader(SourceLineFinder(jax), monotonic() + 60).read(jaxpr, "")

    assert found.equations == 1502
    assert found.stacks[0].primitives == {"neg": 2}
    assert len(found.stacks) in range(100, 501)
    costs = ProgramCosts(found, "", "gone")
    left = 1502 - sum(stack.count for stack in found.stacks)
    assert f"{left:,} equations are of smaller stacks of calls." in costs.notes


def test_a_program_whose_jaxpr_is_gone_says_so() -> None:
    """Nothing is guessed."""
    reader = EquationReader(SourceLineFinder(jax), monotonic() + 9)
    found = reader.read(None, "")
    assert found.equations is None
    costs = ProgramCosts(found, "", "it was deleted")
    assert costs.notes == [
        "Its equations are unknown: JAX has let go of its jaxpr.",
        "Its HLO is missing: it was deleted.",
    ]
    other = reader.read(SimpleNamespace(constvars=[], eqns=[SimpleNamespace()]), "")
    assert other.equations is None
    assert other.unknown.startswith("this JAX is another: ")


def test_only_the_function_asked_for_is_printed(agent, call):
    """A name that no function has is none."""
    call(functools.partial(scanned), INPUT, MATRIX)
    call(chosen, INPUT)
    (one,) = get(agent, f"/debug/hlo?function={__name__}.chosen")["programs"]

    assert one["function"] == f"{__name__}.chosen"
    assert get(agent, "/debug/hlo?function=other")["programs"] == []


def test_the_command_prints_programs_and_lines_and_writes_a_page(
    agent: Agent, call: Callable[..., None], run_dir: Path, tmp_path: Path
) -> None:
    """Of the costliest function, or the one given by the end of its name."""
    call(scanned, INPUT, MATRIX)
    call(stacked, INPUT, MATRIX, 60, static_argnums=2)
    inside.programs(agent).finish(60)
    page, where = tmp_path / "page.html", ("--run-dir", str(run_dir))
    command = ["compiles", *where, "--function", "stacked", "--page", str(page)]
    shown = CliRunner().invoke(main, command)

    assert shown.exit_code == 0, shown.output
    row = f"_lines.py:{line_of('product')} "
    (line,) = [line for line in shown.output.splitlines() if row in line]
    assert line.split()[1] == "60"
    loop = f"test_program_lines.py:{line_of('unrolled')} is there at least 60 times"
    assert loop in " ".join(shown.output.split())
    assert "<svg" in page.read_text()
    assert page.stat().st_mode & 0o077 == 0

    found = json.loads(CliRunner().invoke(main, ["compiles", *where, "--json"]).output)
    names = {one["function"].rpartition(".")[2] for one in found["programs"]}
    assert names == {"scanned", "stacked"}
    first, _ = found["programs"]
    assert found["latest"]["function"] == first["function"]
    for kind, row in (("jaxpr", ":float32[8,16] = tanh "), ("hlo", " tanh(")):
        shown = CliRunner().invoke(main, [*command, "--text", kind])
        assert shown.exit_code == 0, shown.output
        at_line = f"test_program_lines.py:{line_of('tanh')} "
        rows = [line for line in shown.output.splitlines() if row in line]
        assert len(rows) == 60
        assert all(at_line in line for line in rows)
        assert row in page.read_text()

    other = CliRunner().invoke(main, ["compiles", *where, "--function", "other"])
    assert other.exit_code == 2
    assert "'other' is not one function with a loaded program" in other.output
