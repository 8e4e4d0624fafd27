"""What is said of programs equals what JAX says of them when it is asked directly."""

import gc
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from jaxmon.agent.compiles.hlo import read_hlo
from jaxmon.agent.jaxlink import executables
from jaxmon.agent.scheduler import WorkBudget
from jaxmon.facts.contents import Copied
from tests.helpers import inside
from tests.helpers.agents import instrumented, samples, value
from tests.helpers.preloaded import run_preloaded
from tests.helpers.processes import until


pytestmark = [pytest.mark.ground_truth, pytest.mark.optimised]

INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = ", re.MULTILINE)
FUSION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = .*? fusion\(", re.MULTILINE)


def matmul(a: Any, b: Any) -> Any:
    return a @ b


def step(weights: Any, batch: Any) -> Any:
    import jax

    def loss(weights: Any) -> Any:
        found = batch
        for weight in weights:
            found = jax.nn.relu(found @ weight)
        return (found**2).mean()

    return [w - 0.1 * s for w, s in zip(weights, jax.grad(loss)(weights), strict=True)]


def repeated(x: Any) -> Any:
    import jax

    return jax.lax.fori_loop(0, 100, lambda _, y: y @ y, x)


def unrolled(x: Any) -> Any:
    for _ in range(200):
        x = x * x + 1
    return x


def ordered(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.sort(x), jnp.cumsum(x), x.at[0].set(1.5)


def ones(*shape: int) -> Any:
    import numpy as np

    return np.ones(shape, np.float32)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "matmul": (matmul, (ones(64, 32), ones(32, 16))),
    "training step": (step, ([ones(32, 32)] * 6, ones(16, 32))),
    "loop": (repeated, (ones(8, 8),)),
    "sort, scan and scatter": (ordered, (ones(50),)),
}


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    """Forget what earlier tests compiled."""
    import jax

    jax.clear_caches()


# Others show the same.
ALIKE = {"matmul", "loop"}


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.exhaustive] if name in ALIKE else [])
        for name in PROGRAMS
    ]
)
def program(request: pytest.FixtureRequest) -> Iterator[tuple[dict[str, float], Any]]:
    """Return what is exported of a program, and what JAX compiled for it."""
    import jax

    function, arguments = PROGRAMS[request.param]
    label = f"{__name__}.{function.__qualname__}"
    with instrumented() as agent:
        jitted = jax.jit(function)
        jitted(*arguments)
        until(
            lambda: value(agent, "jaxmon_programs_total", function=label), "a program"
        )
        found = {
            name.partition("{")[0].removeprefix("jaxmon_program_"): number
            for name, number in samples(agent).items()
            if name.startswith("jaxmon_program") and label in name
        }
        yield found, jitted.lower(*arguments).compile()


def test_memory_equals_the_memory_analysis_of_jax(program: Any) -> None:
    """Argument, output, temporary, peak and code bytes, those that this JAX knows."""
    found, compiled = program
    memory = compiled.memory_analysis()

    assert found["argument_bytes"] == memory.argument_size_in_bytes
    assert found["output_bytes"] == memory.output_size_in_bytes
    assert found["temporary_bytes"] == memory.temp_size_in_bytes
    peak = getattr(memory, "peak_memory_in_bytes", 0)
    assert found.get("peak_bytes", 0) == peak
    code = memory.generated_code_size_in_bytes
    assert found.get("code_bytes", 0) == code
    assert 0 not in (found.get("code_bytes"), found.get("peak_bytes"))


def test_cost_equals_the_cost_analysis_of_jax(program: Any) -> None:
    """FLOPs and accessed bytes."""
    found, compiled = program
    cost = compiled.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost

    assert found["flops"] == cost["flops"]
    assert found["accessed_bytes"] == cost["bytes accessed"]


def test_counts_equal_those_of_the_text_that_jax_prints(program: Any) -> None:
    """Instructions and fusions, however wide the program."""
    found, compiled = program
    text = compiled.as_text()

    assert found["instructions"] == len(INSTRUCTION.findall(text)) > 0
    assert found["fusions"] == len(FUSION.findall(text))


SPREAD = """
import json, sys, time
import jax, numpy as np, jaxmon
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tests.helpers import inside
agent = jaxmon.instrument(port=None, socket=False)
devices = jax.devices()
def spread(x, count):
    mesh = Mesh(np.array(devices[:count]), ("data",))
    return jax.device_put(x, NamedSharding(mesh, PartitionSpec("data")))
@jax.jit
def one(x): return x * 2
@jax.jit
def some(x): return (x @ x.T).sum()
@jax.jit
def every(x): return (x @ x.T).sum()
replicas = jax.pmap(lambda x: x + 1)
x = np.ones((8, 4), np.float32)
for call, argument in ((one, x), (some, spread(x, 2)), (every, spread(x, 4))):
    jax.block_until_ready(call(argument))
jax.block_until_ready(replicas(x[:4]))
deadline = time.monotonic() + 90
programs = inside.programs(agent)
while len(found := programs.snapshot()) < 4 and time.monotonic() < deadline:
    time.sleep(0.02)
print(json.dumps({k.rpartition(".")[2]: v.devices for k, v in found.items()}))
jaxmon.uninstrument()
"""


def test_devices_are_those_of_the_mesh() -> None:
    """One, some or all of those that there are, by partitions as by replicas."""
    flag = "--xla_force_host_platform_device_count=4"
    found = run_preloaded("-c", SPREAD, env={"XLA_FLAGS": flag}, optimised=True).json()

    assert found == {"one": 1, "some": 2, "every": 4, "<lambda>": 4}


def test_asking_jax_directly_makes_no_program_more(program: Any) -> None:
    """The same program compiled ahead of time is the same program."""
    found, _ = program

    assert found["jaxmon_programs_total"] == 1


def test_different_programs_are_counted_once_each() -> None:
    """New shapes are new programs; compiling one again is not."""
    import jax

    label = f"{__name__}.matmul"
    with instrumented() as agent:

        def programs() -> float:
            return value(agent, "jaxmon_programs_total", function=label)

        jitted = jax.jit(matmul)
        for size in (3, 4, 5):
            jitted(ones(size, size), ones(size, size))
        until(lambda: programs() == 3, "three programs")
        jax.clear_caches()
        for size in (3, 4, 5, 6):
            jitted(ones(size, size), ones(size, size))
        until(lambda: programs() == 4, "a fourth program")

        assert value(agent, "jaxmon_compiles_total", function=label) == 7
        assert value(agent, "jaxmon_program_info", function=label) == 1
        # The newest.
        assert value(agent, "jaxmon_program_flops", function=label) == 2 * 6**3


def test_programs_beyond_the_budget_are_read_when_someone_asks(monkeypatch):
    """Until then there are FLOPs only, and XLA is asked for the latest alone."""
    import jax

    client = jax.devices()[0].client
    label, asked, covers = f"{__name__}.matmul", 0, False
    facts = executables.facts

    def counting(executable: Any) -> dict[str, float]:
        nonlocal asked
        asked += 1
        return facts(executable)

    def figures(agent: Any) -> set[str]:
        return {
            name.partition("{")[0]
            for name in samples(agent)
            if name.startswith("jaxmon_program") and label in name
        }

    monkeypatch.setattr(executables, "facts", counting)
    monkeypatch.setattr(WorkBudget, "covers", lambda _: covers)
    with instrumented() as agent:
        programs = inside.programs(agent)
        jitted = jax.jit(matmul)
        for size in (3, 4, 5):
            jitted(ones(size, size), ones(size, size))
        assert programs._worker.drain(60)
        assert figures(agent) == {"jaxmon_program_matrix_flops"}
        assert value(agent, "jaxmon_program_matrix_flops", function=label) == 2 * 5**3
        looped = jax.jit(unrolled)
        looped(ones(3))
        assert programs._worker.drain(60)
        assert asked == 0
        loop = programs.snapshot()[f"{__name__}.unrolled"].unrolled
        assert loop is not None
        assert (loop.times, loop.operations, loop.programs) == (200, 400, 1)
        programs.explain().functions["program"]()

        assert asked == 2
        assert value(agent, "jaxmon_programs_total", function=label) == 3
        assert value(agent, "jaxmon_program_flops", function=label) == 2 * 5**3

        jitted(ones(6, 6), ones(6, 6))
        assert programs._worker.drain(60)
        gc.collect()
        loaded = len(client.live_executables())
        jitted.clear_cache()
        gc.collect()
        assert len(client.live_executables()) == loaded - 4
        programs.finish(60)
        assert asked == 2
        assert value(agent, "jaxmon_programs_total", function=label) == 3

        covers = True
        jitted(ones(7, 7), ones(7, 7))
        assert programs._worker.drain(60)
        assert value(agent, "jaxmon_program_flops", function=label) == 2 * 7**3


def test_functions_of_jax_itself_are_counted_only() -> None:
    """They would crowd out the user's, who cannot change them."""
    import jax.numpy as jnp

    with instrumented() as agent:
        jnp.flip(jnp.arange(7.0))
        until(lambda: internal(agent), "a program of JAX")

        assert {name.partition("{")[0] for name in internal(agent)} == {
            "jaxmon_programs_total"
        }
        assert inside.programs(agent).snapshot() == {}


def internal(agent: Any) -> list[str]:
    return [s for s in samples(agent) if s.startswith("jaxmon_program") and "jax." in s]


def test_nothing_is_read_when_it_is_not_wanted() -> None:
    """``programs=False`` exports no program."""
    import jax

    with instrumented(programs=False) as agent:
        jax.jit(matmul)(ones(7, 7), ones(7, 7))

        assert value(agent, "jaxmon_compiles_total", function=f"{__name__}.matmul") == 1
        assert not [s for s in samples(agent) if s.startswith("jaxmon_program")]


def test_an_executable_is_let_go_of_once_read() -> None:
    """A program that the user drops is freed as without jaxmon."""
    import jax

    with instrumented() as agent:
        backend = jax.local_devices()[0].client
        gc.collect()
        before = len(backend.live_executables())
        jitted = jax.jit(ordered)
        jitted(ones(9))
        label = f"{__name__}.ordered"
        until(lambda: value(agent, "jaxmon_programs_total", function=label), "reading")
        assert len(backend.live_executables()) > before
        del jitted
        jax.clear_caches()
        gc.collect()

        assert len(backend.live_executables()) <= before


RANK = """
import json, sys
import jax, numpy as np, jaxmon
from jaxmon.agent.guard import Guard
Guard.strict = True
directory = sys.argv[1]
if directory:
    jax.config.update("jax_compilation_cache_dir", directory)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
from jaxmon.facts.record import encoded
from tests.helpers import inside
agent = jaxmon.instrument(port=None, socket=False)
@jax.jit
def model(x):
    return jax.numpy.tanh(x @ x.T).sum(axis=0) + {constant}
model(np.ones((8, 5), np.float32))
inside.programs(agent).finish(90)
hits = inside.cache(agent).snapshot().requests.hit
print(json.dumps([encoded(inside.programs(agent).snapshot()["__main__.model"]), hits]))
jaxmon.uninstrument()
"""


def test_ranks_that_run_one_program_agree_and_others_differ(tmp_path: Path) -> None:
    """
    The fingerprint is the same wherever the source lies, on whichever line, compiled
    or loaded from the persistent cache; and another for another program.
    """

    def rank(
        place: str, *, constant: str = "1", lines: int = 0, cache: str = ""
    ) -> tuple[dict[str, Any], int]:
        path = tmp_path / place / "train.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n" * lines + RANK.replace("{constant}", constant))
        found, hits = run_preloaded(str(path), cache, optimised=True).json()
        assert found.pop("finished") > 0
        return found, hits

    cache = str(tmp_path / "cache")
    first, _ = rank("one")
    moved, _ = rank("another", lines=7)
    stored, missed = rank("one", cache=cache)
    loaded, hit = rank("one", cache=cache)
    changed, _ = rank("one", constant="2")

    assert (missed, hit) == (0, 1)
    assert re.fullmatch("[0-9a-f]{16}", first["fingerprint"])
    assert json.dumps(first) == json.dumps(moved)
    assert first["fingerprint"] == stored["fingerprint"] == loaded["fingerprint"]
    assert changed["fingerprint"] != first["fingerprint"]
    assert changed["programs"] == loaded["programs"] == 1


@pytest.mark.parametrize(("dtype", "double"), [("float64", True), ("float32", False)])
def test_matrix_products_in_float64_are_seen(dtype: str, double: object) -> None:
    """In XLA's own text, however the backend calls them; a sum in float64 is none."""
    import jax
    import jax.numpy as jnp

    x64 = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", val=True)
    try:
        x = jnp.ones((64, 64), dtype)
        product = jax.jit(lambda x: (x @ x).sum(dtype="float64"))
        compiled = product.lower(x).compile()
    finally:
        jax.config.update("jax_enable_x64", x64)
    texts = executables.texts(compiled.runtime_executable(), None)

    assert read_hlo(texts, comparable=False).double is double


@pytest.mark.optimised
@pytest.mark.ground_truth
def test_arguments_that_are_copied_in_each_call_are_found() -> None:
    """
    Those that the caller drops, with their bytes and the donation that has no effect;
    not what the caller keeps, nor what is donated.
    """
    import jax

    @partial(jax.jit, donate_argnums=0)
    def put(buffer: Any, at: Any) -> Any:
        return buffer.at[at].set(1.0)

    def inner(buffer: Any, at: Any) -> Any:
        return put(buffer, at), at + 1  # inside

    def kept(buffer: Any, at: Any) -> Any:
        return buffer.at[at].set(2.0), at + 1

    def donated(buffer: Any, at: Any) -> Any:
        return buffer.at[at].set(3.0), at + 1

    buffers = [jax.numpy.zeros(1 << 19) for _ in range(3)]
    first = buffers[1]
    with instrumented(sample_rate=0.001) as agent:
        programs, at = inside.programs(agent), jax.numpy.int32(0)
        plain = [jax.jit(inner), jax.jit(kept)]
        functions = [*plain, jax.jit(donated, donate_argnums=0)]
        for index, function in enumerate(functions):
            function(buffers[index].copy(), at)
        assert programs._worker.drain(60)

        def sampled() -> dict[str, Copied]:
            inside.sampling(agent).arm()
            for index, function in enumerate(functions):
                buffers[index], _ = function(buffers[index], at)
            buffers[1] = first
            return {
                name.rpartition(".")[2]: program.copied
                for name, program in programs.snapshot().items()
            }

        def done() -> bool:
            copied = sampled()
            return bool(copied["inner"].dropped and copied["kept"].kept)

        until(done, "sampled calls", seconds=60)
        found = sampled()
    assert found["donated"] == Copied()
    assert found["inner"].bytes == found["kept"].bytes == 4 << 19
    # XLA's text of a program names no arguments before.
    names = ("buffer",) if jax.__version_info__ >= (0, 8) else ()
    assert found["inner"].arguments == names
    assert found["inner"].fraction > 0.9
    assert (found["inner"].dropped >= 1, found["inner"].kept) == (True, 0)
    assert (found["kept"].kept >= 1, found["kept"].dropped) == (True, 0)
    line = inner.__code__.co_firstlineno + 1
    assert found["inner"].donated_inside.endswith(f"test_programs.py:{line}")
