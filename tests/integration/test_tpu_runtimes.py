"""Processes that hold TPUs: where they serve, and what they may do to the collector."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.http2 import Http2Server, page
from tests.fakes.tpu import shapes
from tests.fakes.tpu.hosts import Host, chip, failures, of, up
from tests.helpers.processes import some


pytest.importorskip("grpc")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Return a function that puts a host together."""
    with ExitStack() as stack:
        yield lambda generation=None: stack.enter_context(Host(tmp_path, generation))


@pytest.mark.parametrize("first", [0, 8])
def test_processes_of_a_host_are_put_together(host, first):
    """Each process is asked for its own chips; numbers may go on from host to host."""
    here = host("v4")
    runtimes = [
        here.serve(shapes.host("v4", cores=range(one, one + 1), first=first))[0]
        for one in range(4)
    ]
    state = here.poll()
    assert up(state) == [1, 1, 1, 1]
    assert of(state["page"], "jaxmon_accelerator_memory_used_bytes") == {
        chip(one): (one + 1) << 28 for one in range(4)
    }
    assert len(of(state["page"], "jaxmon_tpu_duty_cycle_ratio")) == 4
    assert len(of(state["page"], "jaxmon_tpu_core_run_id")) == 4
    assert runtimes[3].calls("GetRuntimeMetric", shapes.MEMORY_USED) == [True]
    for runtime in runtimes[1:]:
        runtime.end()
    here.poll()
    # Alone, it may know of others that have no server.
    here.poll()
    assert runtimes[0].calls("GetRuntimeMetric", shapes.MEMORY_USED)[-1] is False


def test_host_without_tpus_says_so(host: Callable[..., Host]) -> None:
    """No chip: a reason and no figures; grpcio is not even loaded."""
    state = host().poll()
    assert (state["success"], state["reason"]) == (False, "no_devices")
    assert state["page"] == {}
    assert not state["loaded"]


def test_idle_chips_are_no_failure(host: Callable[..., Host]) -> None:
    """Chips that no program uses are up, their runtime is not; it may come later."""
    here = host("v5e")
    runtime, port = here.serve(shapes.host("v5e"))
    runtime.end()
    state = here.poll()
    assert (state["success"], up(state)) == (True, [0])
    assert not state["loaded"], "grpcio takes memory that an idle host keeps"
    assert len(of(state["page"], "jaxmon_accelerator_info")) == 8
    assert set(of(state["page"], "jaxmon_accelerator_up").values()) == {1}
    assert of(state["page"], "jaxmon_accelerator_memory_used_bytes") == {}
    here.serve(shapes.host("v5e"), f"127.0.0.1:{port}")
    state = here.poll()
    assert up(state) == [1]
    assert len(of(state["page"], "jaxmon_accelerator_memory_used_bytes")) == 8


def test_usual_ports_are_tried_where_none_is_given(host: Callable[..., Host]) -> None:
    """A host with chips and without variables shows the usual port as down."""
    state = host("v4").poll()
    assert state["success"]
    # Whether anybody listens there is not up to this test.
    assert 'runtime="8431"' in of(state["page"], "jaxmon_tpu_runtime_up")


def test_switched_off_runtimes_are_not_asked(host: Callable[..., Host]) -> None:
    """An empty list of ports is how libtpu's service is switched off."""
    here = host("v4")
    here.environ["TPU_RUNTIME_METRICS_PORTS"] = ""
    state = here.poll()
    assert state["success"]
    assert up(state) == []
    assert len(of(state["page"], "jaxmon_accelerator_up")) == 4


@pytest.mark.parametrize("secured", ["local", "insecure"])
def test_unix_socket(host: Callable[..., Host], run_dir: Path, secured: str) -> None:
    """A socket's file is an address as well, with either kind of credentials."""
    here = host("v4")
    path = run_dir / "tpu.sock"
    here.serve(shapes.host("v4"), f"unix:{path}", secured=secured)
    here.environ["TPU_RUNTIME_METRICS_ADDRESS"] = str(path)
    state = here.poll()
    assert of(state["page"], "jaxmon_tpu_runtime_up") == {'runtime="tpu.sock"': 1}
    assert len(of(state["page"], "jaxmon_accelerator_memory_used_bytes")) == 4


def test_proxy_is_not_used(host: Callable[..., Host]) -> None:
    """A proxy for the web is no way to a runtime of this host."""
    here = host("v4")
    here.serve(shapes.host("v4"))
    proxy = "http://127.0.0.1:9"
    state = here.poll(http_proxy=proxy, https_proxy=proxy, grpc_proxy=proxy)
    assert up(state) == [1]


def test_missing_metric_is_learned_once(host: Callable[..., Host]) -> None:
    """What a runtime does not have is asked for once, and is no failure."""
    here = host("v4")
    told = shapes.host("v4")
    del told["metrics"][shapes.BANDWIDTH]
    runtime, _ = here.serve(told)
    for _ in range(3):
        state = here.poll()
    assert of(state["page"], "jaxmon_accelerator_memory_bandwidth_ratio") == {}
    assert failures(state) == {}
    assert len(runtime.calls("GetRuntimeMetric", shapes.BANDWIDTH)) == 1
    assert len(runtime.calls("GetRuntimeMetric", shapes.QUEUE)) == 3


def test_old_runtime_without_status_or_list(host: Callable[..., Host]) -> None:
    """Calls that an old libtpu lacks cost their own figures alone."""
    here = host("v4")
    calls = ("GetTpuRuntimeStatus", "ListSupportedMetrics")
    fail = dict.fromkeys(calls, "UNIMPLEMENTED")
    runtime, _ = here.serve({**shapes.host("v4"), "fail": fail})
    for _ in range(3):
        state = here.poll()
    assert (up(state), failures(state)) == ([1], {})
    assert of(state["page"], "jaxmon_tpu_core_run_id") == {}
    assert len(of(state["page"], "jaxmon_tpu_hlo_queue_size")) == 4
    assert len(runtime.calls("GetTpuRuntimeStatus")) == 1


def test_slow_runtime_costs_one_deadline(host: Callable[..., Host]) -> None:
    """All requests wait at the same time: one that answers is served all the same."""
    here = host("v4")
    slow, _ = here.serve(shapes.host("v4", cores=range(2)))
    well, _ = here.serve(shapes.host("v4", cores=range(2, 4)))
    here.poll()
    slow.tell({**shapes.host("v4", cores=range(2)), "delay": 4})
    state = here.poll()
    assert state["success"], "within the deadline of the collector"
    assert up(state) == [0, 1]
    assert list(of(state["page"], "jaxmon_accelerator_memory_used_bytes")) == [
        chip(2),
        chip(3),
    ]
    assert failures(state)['collector="tpu",reason="runtime_slow"'] > 0
    # The other one is not asked for all: it would ask the slow one.
    here.poll()
    assert all(well.calls("GetRuntimeMetric", shapes.MEMORY_USED))
    slow.tell(shapes.host("v4", cores=range(2)))
    assert up(here.poll()) == [1, 1]


def test_one_slow_metric_leaves_the_others(host: Callable[..., Host]) -> None:
    """A runtime that answers most requests is up, and reports what it can."""
    here = host("v4")
    told = shapes.host("v4")
    here.serve({**told, "delays": {shapes.QUEUE: 4}})
    state = here.poll()
    assert (state["success"], up(state)) == (True, [1])
    assert of(state["page"], "jaxmon_tpu_hlo_queue_size") == {}
    assert len(of(state["page"], "jaxmon_accelerator_memory_used_bytes")) == 4
    assert failures(state) == {'collector="tpu",reason="runtime_slow"': 1}


def test_runtime_that_dies_and_comes_back(host: Callable[..., Host]) -> None:
    """A dead runtime is down with its figures; a new one is asked for everything."""
    here = host("v4")
    told = shapes.host("v4")
    del told["metrics"][shapes.IDLE]
    runtime, port = here.serve(told)
    here.poll()
    runtime.end()
    state = here.poll()
    assert (state["success"], up(state)) == (True, [0])
    assert of(state["page"], "jaxmon_tpu_core_run_id") == {}
    here.serve(shapes.host("v4"), f"127.0.0.1:{port}")
    state = here.poll()
    assert up(state) == [1]
    assert len(of(state["page"], "jaxmon_tpu_core_idle_seconds")) == 4


def test_restart_between_two_polls_is_noticed(host: Callable[..., Host]) -> None:
    """An uptime that fell is a new process, which may know more."""
    here = host("v4")
    told = shapes.host("v4")
    del told["metrics"][shapes.IDLE]
    runtime, _ = here.serve(told)
    here.poll()
    new = shapes.host("v4")
    new["metrics"][shapes.UPTIME] = [shapes.of_device(0, int=1)]
    runtime.tell(new)
    here.poll()
    assert len(of(here.poll()["page"], "jaxmon_tpu_core_idle_seconds")) == 4


@pytest.mark.parametrize(
    "garbage",
    some(["ffffffff", "0a05", "0a021a7f", "1b", "0a041a022a7f", "0a081a062a04120201"]),
)
def test_garbage_costs_its_own_figure(host: Callable[..., Host], garbage: str) -> None:
    """A reply that is none is counted; the rest of the page is there."""
    here = host("v4")
    told = shapes.host("v4")
    told["metrics"][shapes.QUEUE] = garbage
    told["states"] = garbage
    here.serve(told)
    state = here.poll()
    assert state["success"]
    assert of(state["page"], "jaxmon_tpu_hlo_queue_size") == {}
    assert len(of(state["page"], "jaxmon_accelerator_memory_used_bytes")) == 4
    assert failures(state)['collector="tpu",reason="bad_reply"'] >= 1


def test_stranger_on_the_port(host: Callable[..., Host]) -> None:
    """What listens there and speaks something else is not a runtime."""
    here = host("v4")
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        here.environ["TPU_RUNTIME_METRICS_PORTS"] = str(stranger.getsockname()[1])
        state = here.poll()
    assert (state["success"], up(state)) == (True, [0])
    assert len(of(state["page"], "jaxmon_accelerator_up")) == 4


def test_web_server_is_not_taken_for_an_old_runtime(host: Callable[..., Host]) -> None:
    """A 404 looks like the reply of an old runtime; one without figures is none."""
    here = host("v4")
    with Http2Server(page) as server:
        here.environ["TPU_RUNTIME_METRICS_PORTS"] = str(server.target[1])
        for _ in range(2):
            state = here.poll()
            assert (state["success"], up(state), failures(state)) == (True, [0], {})
    assert state["log"] == []


def test_internal_failure_of_a_runtime_is_counted(host: Callable[..., Host]) -> None:
    """A request that fails otherwise is asked again, and counted."""
    here = host("v4")
    runtime, _ = here.serve({**shapes.host("v4"), "fail": {shapes.QUEUE: "INTERNAL"}})
    here.poll()
    state = here.poll()
    assert up(state) == [1]
    assert failures(state) == {'collector="tpu",reason="request_failed"': 2}
    assert len(runtime.calls("GetRuntimeMetric", shapes.QUEUE)) == 2


def test_without_grpcio_chips_are_shown(host: Callable[..., Host]) -> None:
    """The kernel's data needs no package; the reason says what is missing."""
    here = host("v4")
    here.serve(shapes.host("v4"))
    state = here.poll(PYTHONPATH=str(_without_grpcio(here.root)))
    assert (state["success"], state["reason"]) == (False, "not_installed")
    assert "pip install 'jaxmon[tpu]'" in state["message"]
    assert len(of(state["page"], "jaxmon_accelerator_up")) == 4


def _without_grpcio(root: Path) -> Path:
    folder = root / "modules"
    folder.mkdir()
    (folder / "grpc.py").write_text("raise ImportError('none here')\n")
    return folder
