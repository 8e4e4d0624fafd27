"""A trace taken on request: its content, and what takes precedence over it."""

import http.client
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from jaxmon.agent import Agent
from jaxmon.agent.jaxlink import profiler
from jaxmon.agent.reports import profile
from jaxmon.agent.reports.profile import Recording
from jaxmon.host.http import client
from jaxmon.preflight.profile import operations, xspace
from jaxmon.preflight.profile.operations import Profile
from tests.helpers import inside
from tests.helpers.agents import instrumented, value
from tests.helpers.processes import refuse_threads, require_module, until


CUT_SHORT = profile.CUT_SHORT.lower()


def get(agent: Agent, target: str) -> tuple[int, bytes, Mapping[str, str]]:
    assert agent.socket is not None
    answer = client.get(Path(agent.socket), target, seconds=60, max_bytes=1 << 30)
    return answer.status, answer.body, answer.headers


@pytest.fixture
def agent(run_dir: Path) -> Iterator[Agent]:
    with instrumented(socket=True) as running:
        yield running


@pytest.fixture
def busy() -> Iterator[None]:
    """Keep a jitted function running on a thread."""

    def chain(x: Any) -> Any:
        return jnp.tanh(x @ x) / x.shape[0]

    over = threading.Event()
    step, x = jax.jit(chain), jnp.ones((200, 200))
    step(x).block_until_ready()

    def work() -> None:
        while not over.is_set():
            step(x).block_until_ready()

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over.set()
    thread.join()


def test_a_trace_names_program_and_operations(agent: Agent, busy: None) -> None:
    """Its busiest program is the function that runs."""
    status, body, headers = get(agent, "/debug/profile?seconds=0.5")

    assert status == 200, body
    assert CUT_SHORT not in headers
    found = operations.read(xspace.parse(body))
    assert found.operations[0].program == "jit_chain"
    assert found.operations[0].count > 1
    assert 0 < found.operations[0].seconds < 0.5 * 16


@pytest.mark.contained
def test_without_threads_a_trace_is_refused(agent, monkeypatch):
    """What was begun ends, so that the next one can be taken."""
    jnp.ones(1).block_until_ready()

    refuse_threads(monkeypatch)
    status, body, _ = get(agent, "/debug/profile?seconds=60")

    assert (status, b"no thread was available" in body) == (503, True)
    assert inside.profiler(agent)._running is None
    monkeypatch.undo()
    status, _, _ = get(agent, "/debug/profile?seconds=0.1")
    assert status == 200


def recorded(agent: Agent, work: Callable[[], None]) -> tuple[Profile, float]:
    """Return a profile of *work*, and the seconds that it took in the recording."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, agent, "/debug/profile?seconds=60")
        until(lambda: inside.profiler(agent)._running is not None, "a trace")
        began = time.perf_counter()
        work()
        seconds = time.perf_counter() - began
        running = inside.profiler(agent)._running
        assert isinstance(running, Recording)
        running.end(None)
        status, body, headers = answer.result(timeout=90)
    assert status == 200, body
    told = float(headers[profile.SECONDS.lower()])
    assert told >= seconds - 0.001
    return operations.read(xspace.parse(body), seconds=told), seconds


def line_of(word: str) -> int:
    """Return the line of this file that ends with the comment *word*."""
    lines = Path(__file__).read_text().splitlines()
    return next(at for at, one in enumerate(lines, 1) if one.endswith(f"  # {word}"))


def light(x: Any) -> Any:
    with jax.named_scope("first"):
        return jnp.tanh(x @ x)  # light


def heavy(x: Any) -> Any:
    with jax.named_scope("second"):
        return jnp.tanh(x @ x)  # heavy


def by_line(found: Profile, program: str) -> dict[tuple[str, int, str], float]:
    """Return the seconds of each line of a program, with its scope."""
    seconds = defaultdict[tuple[str, int, str], float](float)
    for one in found.operations:
        if one.program == program:
            place = one.origin.place
            assert place is not None
            seconds[place.file, place.line, one.origin.path.scope] += one.seconds
    return seconds


def cpu_seconds(function: Callable[[Any], Any], x: Any) -> float:
    """Return the CPU time of a call, on all threads; other processes add none to it."""
    function(x).block_until_ready()
    began, calls = time.process_time(), 8
    for _ in range(calls):
        function(x).block_until_ready()
    return (time.process_time() - began) / calls


@pytest.mark.ground_truth
def test_time_goes_to_the_lines_that_take_it(agent: Agent) -> None:
    """
    Two lines of one program have the ratio that they have alone, where one takes
    several times as long as the other. Their scopes are named, and devices are busy for
    no longer than the program waits for them.
    """
    inputs = {light: jnp.ones((320, 320)), heavy: jnp.ones((640, 640))}
    alone = [(jax.jit(one), x) for one, x in inputs.items()]

    def both(small: Any, large: Any) -> Any:
        first = light(small)
        # One after the other, without an operation that takes time itself.
        first, large = jax.lax.optimization_barrier((first, large))
        return first, heavy(large)

    together = jax.jit(both)
    jax.block_until_ready(together(*inputs.values()))

    def work() -> None:
        for _ in range(50):  # so that waits for a processor concern both alike
            jax.block_until_ready(together(*inputs.values()))

    for _ in range(8):  # other processes may take the processors from one of the two
        less, more = (cpu_seconds(jitted, x) for jitted, x in alone)
        found, seconds = recorded(agent, work)
        assert found.without_programs == 0
        assert 0 < found.busy <= seconds
        assert found.located > 0.99 * found.seconds
        shares = by_line(found, "jit_both")
        first = shares[__file__, line_of("light"), "first"]
        second = shares[__file__, line_of("heavy"), "second"]
        assert first + second > 0.9 * sum(shares.values())
        if is_like := 1 / 3 < (second / first) / (more / less) < 3:
            break
    assert is_like


@pytest.mark.ground_truth
def test_layers_of_a_library_are_named_beside_the_line_that_calls_them(agent):
    """A Flax layer, forward and backward, belongs to the line of the program."""
    nnx = require_module("flax.nnx")
    graph, weights = nnx.split(nnx.Linear(256, 256, rngs=nnx.Rngs(0)))

    def loss(weights: Any, x: Any) -> Any:
        with jax.named_scope("model"):  # JAX 0.6 marks no backward pass without one
            y = nnx.merge(graph, weights)(x)  # layer
            return (y**2).mean()

    step, x = jax.jit(jax.grad(loss)), jnp.ones((256, 256))
    jax.block_until_ready(step(weights, x))

    def work() -> None:
        for _ in range(20):
            jax.block_until_ready(step(weights, x))

    found, _ = recorded(agent, work)
    ours = [one for one in found.operations if one.program == "jit_loss"]
    products = [one for one in ours if one.origin.path.primitive == "dot_general"]
    places = {one.origin.place for one in products}
    assert len(places) == 1
    (place,) = places
    assert place is not None
    assert (place.line, place.library) == (line_of("layer"), "flax Linear")
    assert {one.origin.path.backward for one in products} >= {False}
    assert any(one.origin.path.backward for one in ours)


def test_programs_that_are_too_large_are_left_out(agent, busy, monkeypatch):
    """The trace is there, and the response says why the programs are not."""
    monkeypatch.setattr(profile, "_MOST_COPIED", 100)
    status, body, headers = get(agent, "/debug/profile?seconds=0.2")

    assert status == 200
    space = xspace.parse(body)
    assert space.planes
    assert not space.programs
    reason = headers[profile.WITHOUT_PROGRAMS.lower()]
    assert reason.startswith("copying the loaded XLA programs would take")


def test_calls_are_counted_as_usual_meanwhile(agent: Agent) -> None:
    """A trace changes nothing about the program's calls and compiles."""
    step = jax.jit(lambda x: x + 1)
    step(jnp.ones(3))
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, agent, "/debug/profile?seconds=0.5")
        until(lambda: inside.profiler(agent)._running is not None, "a trace")
        for _ in range(10):
            step(jnp.ones(3))
        assert answer.result()[0] == 200

    assert (
        value(
            agent, "jaxmon_jit_calls_total", function=f"{__name__}.{step.__qualname__}"
        )
        == 11
    )
    assert value(agent, "jaxmon_internal_errors_total") == 0


def test_the_programs_own_profile_is_not_disturbed(agent, busy, tmp_path):
    """A profile that the program begins while ours runs works; ours ends before."""
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, agent, "/debug/profile?seconds=60")
        until(lambda: inside.profiler(agent)._running is not None, "a trace")
        with jax.profiler.trace(str(tmp_path)):
            jnp.ones(3).block_until_ready()
        status, body, headers = answer.result(timeout=90)

    assert status == 200
    assert headers[CUT_SHORT] == "the program started its own profile"
    assert xspace.parse(body).planes
    assert list(tmp_path.rglob("*.xplane.pb"))


@pytest.mark.ground_truth
def test_refused_while_the_program_profiles(agent: Agent, tmp_path: Path) -> None:
    """A program that profiles itself is left alone, and its profile is complete."""
    jnp.ones(3).block_until_ready()
    with jax.profiler.trace(str(tmp_path)):
        status, body, _ = get(agent, "/debug/profile?seconds=0.1")

    assert status == 409
    assert b"the program is profiling itself" in body
    assert list(tmp_path.rglob("*.xplane.pb"))


def test_one_trace_at_a_time(agent: Agent, tmp_path: Path) -> None:
    """A second request is refused while the first records, and works after it."""
    jnp.ones(3).block_until_ready()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(get, agent, "/debug/profile?seconds=60")
        until(lambda: inside.profiler(agent)._running is not None, "a trace")
        status, body, _ = get(agent, "/debug/profile?seconds=60")
        with jax.profiler.trace(str(tmp_path)):  # ends ours
            pass
        assert (status, first.result()[0]) == (409, 200)
        assert b"another trace" in body

    assert get(agent, "/debug/profile?seconds=0.1")[0] == 200


def test_who_patches_the_profiler_after_us_is_left_alone(agent: Agent) -> None:
    """Another tool keeps its wrapper."""
    module = profiler.module_of(jax)
    original = module.ProfilerSession
    jnp.ones(3).block_until_ready()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(get, agent, "/debug/profile?seconds=60")
        until(lambda: inside.profiler(agent)._running is not None, "a trace")
        wrapped = module.ProfilerSession

        def theirs(*args: object) -> object:
            return wrapped(*args)

        try:
            module.ProfilerSession = theirs
            assert isinstance(theirs(), original)  # ends ours
            assert answer.result(timeout=90)[0] == 200
            assert module.ProfilerSession is theirs
        finally:
            # Not by monkeypatch, which would put back what was there: ours.
            module.ProfilerSession = original
    assert isinstance(theirs(), original)


def test_seconds_are_checked(agent: Agent) -> None:
    """A length that cannot be used is refused, with what is allowed."""
    jnp.ones(3).block_until_ready()
    for seconds in ("0", "-1", "61", "nan", "inf", "much", ""):
        status, body, _ = get(agent, f"/debug/profile?seconds={seconds}")
        assert (status, b"give more than 0, at most 60" in body) == (400, True), seconds


def test_stopping_the_agent_ends_the_trace(run_dir: Path) -> None:
    """Nothing of a trace is left when the agent stops: session, patch, thread."""
    module = profiler.module_of(jax)
    original = module.ProfilerSession
    with ThreadPoolExecutor(1) as pool:
        with instrumented(socket=True) as agent:
            jnp.ones(3).block_until_ready()
            answer = pool.submit(get, agent, "/debug/profile?seconds=60")
            until(lambda: inside.profiler(agent)._running is not None, "a trace")
            assert module.ProfilerSession is not original
        answer.exception(timeout=90)

    assert module.ProfilerSession is original


def test_a_gpu_is_not_profiled_unasked(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused with the reason and the setting."""
    jnp.ones(3).block_until_ready()

    class Gpu:
        platform = "gpu"

    monkeypatch.setattr(jax, "local_devices", lambda: [Gpu()])
    status, body, _ = get(agent, "/debug/profile")

    assert status == 403
    assert b"JAXMON_PROFILE_GPU=1" in body


def test_not_over_tcp(run_dir: Path) -> None:
    """The page is on the Unix socket only."""
    with instrumented(socket=True, port=0) as agent:
        assert agent.url is not None
        host, _, port = agent.url.split("/")[2].partition(":")
        tcp = http.client.HTTPConnection(host, int(port), timeout=60)
        tcp.request("GET", "/debug/profile")
        assert tcp.getresponse().status == 404
        tcp.close()
