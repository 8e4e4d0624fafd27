"""An agent or a hook that fails while it starts takes everything off again."""

import threading
from typing import Any

import jax
import pytest

import jaxmon
from jaxmon.agent.agent import running
from jaxmon.agent.context import context_of
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.own_metrics import Markers
from jaxmon.agent.part import LatePart
from jaxmon.agent.parts import AgentParts
from jaxmon.agent.serving import Serving
from jaxmon.agent.transfers import TransferPart
from jaxmon.agent.walltime.part import WallTimePart
from jaxmon.host.http.server import Server
from jaxmon.indicators.figures import Indicators
from jaxmon.otel.pusher import Pusher
from jaxmon.threads import running as our_threads
from tests.helpers import inside, session
from tests.helpers.adversaries import ACTIVE, Alarm, Bomb, InjectedError, alarms, run
from tests.helpers.agents import SILENT, samples
from tests.helpers.processes import files, http_get


pytestmark = pytest.mark.contained


def places() -> list[tuple[Any, str]]:
    """Return what is called while an agent starts."""
    parts_ = AgentParts(CONTEXT, Indicators(1, CONTEXT.guard, on_error=print))
    kinds = {type(part) for part in parts_ if not isinstance(part, LatePart)}
    parts = [
        (kind, name)
        for kind in sorted(kinds, key=lambda one: one.__name__)
        for name in ("attach", "start")
        if name in vars(kind)
    ]
    return [
        (Hooks, "attach"),
        (Markers, "attach"),
        *parts,
        (Serving, "start"),
        (Serving, "_listen_unix"),
    ]


CONTEXT: Any = context_of(jax, jaxmon.instrument(enabled=False).settings)


@pytest.mark.parametrize(
    ("owner", "name", "error"),
    [
        *((*place, InjectedError) for place in places()),
        *((Hooks, "attach", error) for error in (MemoryError, TypeError, SystemExit)),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_a_failure_at_any_step_takes_everything_off_again(  # noqa: PLR0917 - fixtures and a case
    monkeypatch, caplog, run_dir, owner, name, error
):
    """Hooks, listeners, threads, sockets and files; the program runs without it."""
    jax.jit(lambda x: x + 1)(1.0)  # backends and their threads are up
    before = session.snapshot()
    monkeypatch.setattr(owner, name, Bomb(error))

    agent = jaxmon.instrument(port=0)
    assert not agent.running
    assert float(jax.jit(lambda x: x + 2)(1.0)) == 3
    assert session.leaked(before) == []
    assert files(run_dir) == []
    assert running() is None
    jaxmon.uninstrument()

    assert session.leaked(before) == []
    [record] = caplog.records
    assert record.exc_info is None
    monkeypatch.undo()
    again = jaxmon.instrument(**SILENT)
    assert again.running
    jaxmon.uninstrument()


def no_threads(*_: object) -> None:
    """Refuse what needs a thread."""
    msg = "can't start new thread"
    raise RuntimeError(msg)


@pytest.mark.parametrize(
    ("owner", "lost"),
    [(Pusher, "export metrics"), (WallTimePart, "start wall_time"), (Server, "serve")],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_what_cannot_start_leaves_the_rest(monkeypatch, caplog, owner, lost):
    """Without threads for one of them the others serve, look and export."""
    jax.jit(lambda x: x + 1)(1.0)
    before = session.snapshot()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(owner, "start", no_threads)

    agent = jaxmon.instrument(port=0, otlp=True)
    try:
        found = {
            Server: agent.url is not None and bool(http_get(agent.url)),
            WallTimePart: "jaxmon-wall-time" in threads(),
            Pusher: "jaxmon-otlp" in threads(),
        }
    finally:
        jaxmon.uninstrument()
    assert found == {kind: kind is not owner for kind in found}
    first = caplog.records[0].getMessage()
    assert first.startswith(f"jaxmon is observing but cannot {lost}")
    assert session.leaked(before) == []


def threads() -> set[str]:
    listed = {one.name for one in threading.enumerate()}
    return listed | {one.name for one in our_threads()}


# Those that have a place in JAX of their own.
HOOKS = [
    "monitoring",
    "compiles",
    "persistent_cache",
    "misses",
    "errors",
    "uncaught",
    "runtime_errors",
    "deleted_arrays",
    "warnings",
    "handoffs",
    "transfers",
    "calls",
    "sampling",
]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_attaches_half_is_taken_off(monkeypatch, caplog, hook):
    """What it replaced is JAX's own again, which one sentence says."""
    jax.jit(lambda x: x + 1)(1.0)
    before = session.snapshot()
    whole = Hooks.attach

    def attach(self: Hooks, name: str, take: Any, **needs: Any) -> None:
        def half(at: Any) -> None:
            take(at)
            raise InjectedError

        whole(self, name, half if name == hook else take, **needs)

    monkeypatch.setattr(Hooks, "attach", attach)
    agent = jaxmon.instrument(port=0)
    try:
        inside.sampling(agent)  # else it attaches with the first call
        during = samples(agent)
        active = {s.split('"')[1]: n for s, n in during.items() if s.startswith(ACTIVE)}
        assert float(jax.jit(lambda x: x + 2)(1.0)) == 3
    finally:
        jaxmon.uninstrument()
    # Causes need two hooks besides themselves.
    lost = {hook, "causes"} if hook in {"misses", "compiles"} else {hook}
    assert {*active} == {*HOOKS, "causes"}
    assert {name for name, on in active.items() if not on} == lost
    assert session.leaked(before) == []
    [record] = caplog.records
    assert record.exc_info is None
    assert f"{hook!r} cannot attach" in record.getMessage()


def test_what_a_hook_replaced_is_put_back_when_it_fails(monkeypatch):
    """It is JAX's own while the agent runs without that hook."""
    before = session.snapshot()
    whole = TransferPart._take

    def half(self: TransferPart, at: Any) -> None:
        whole(self, at)
        raise InjectedError

    monkeypatch.setattr(TransferPart, "_take", half)
    agent = jaxmon.instrument(**SILENT)
    try:
        during = session.snapshot().attributes
        place = "jax._src.interpreters.pxla.xc.batched_device_put"
        assert during[place] is before.attributes[place]
        assert samples(agent)[f'{ACTIVE}{{hook="transfers"}}'] == 0
        assert samples(agent)[f'{ACTIVE}{{hook="misses"}}'] == 1
    finally:
        jaxmon.uninstrument()
    assert session.leaked(before) == []


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("most", [4, pytest.param(40, marks=pytest.mark.exhaustive)])
def test_an_alarm_while_it_starts_or_stops_leaves_nothing(run_dir, most):
    """
    The program gets it, and nothing is left behind. A socket that was made and is not
    kept yet goes with the exception.
    """
    jax.jit(lambda x: x + 1)(1.0)

    def program() -> None:
        try:
            jaxmon.instrument(port=0)
        finally:
            jaxmon.uninstrument()

    program()
    before = session.snapshot()
    points, problem = run(program)
    assert problem is None
    with alarms(Alarm) as raised:
        for number in range(1, points.passed, points.passed // most):
            points, caught = run(program, number)
            assert not raised or caught is raised[0], points.where
            jaxmon.uninstrument()
            del caught
            raised.clear()
            assert session.leaked(before) == [], points.where
            assert files(run_dir) == [], points.where
