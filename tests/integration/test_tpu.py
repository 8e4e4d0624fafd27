"""
The TPU collector, against processes that serve what libtpu serves.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.tpu import shapes
from tests.fakes.tpu.hosts import Host, of, pci
from tests.support import run_python


pytest.importorskip("grpc")
pytest.importorskip("h2")

PAGES = Path(__file__).parents[1] / "fakes" / "tpu" / "pages"
UUID = "TPU-0000:00:{:02x}.0"
NOTHING = "0a000000"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Return a function that puts a host together."""
    with ExitStack() as stack:
        yield lambda generation=None: stack.enter_context(Host(tmp_path, generation))


def chip(index: int) -> str:
    return f'uuid="{UUID.format(index + 4)}"'


def core(number: int, per_chip: int = 1) -> str:
    return f'{chip(number // per_chip)},core="{number % per_chip}"'


def up(state: Any) -> list[float]:
    return list(of(state["page"], "jaxmon_tpu_runtime_up").values())


def failures(state: Any) -> dict[str, float]:
    return of(state["page"], "jaxmon_collector_errors_total")


@pytest.mark.parametrize("generation", shapes.GENERATIONS)
def test_page_of_each_generation(host: Callable[..., Host], generation: str) -> None:
    """The whole page of a busy host, byte for byte."""
    here = host(generation)
    _, port = here.serve(shapes.multislice(shapes.host(generation)))
    text = here.poll()["text"].replace(port, "PORT")
    assert text == (PAGES / f"{generation}.txt").read_text()


@pytest.mark.parametrize("generation", shapes.GENERATIONS)
def test_figures_are_those_of_the_runtime(
    host: Callable[..., Host], generation: str
) -> None:
    """Memory adds up over a chip's cores; percents are ratios; each core is itself."""
    _, _, per_chip, chips, size = shapes.GENERATIONS[generation]
    here = host(generation)
    here.serve(shapes.host(generation))
    state = here.poll()
    page = state["page"]
    assert (state["success"], up(state), failures(state)) == (True, [1], {})
    used = of(page, "jaxmon_accelerator_memory_used_bytes")
    total = of(page, "jaxmon_accelerator_memory_size_bytes")
    duty = of(page, "jaxmon_tpu_duty_cycle_ratio")
    assert of(page, "jaxmon_accelerator_utilization_ratio") == duty
    for index in range(chips):
        cores = range(index * per_chip, (index + 1) * per_chip)
        assert total[chip(index)] == size * per_chip
        assert used[chip(index)] == sum((one + 1) << 28 for one in cores)
        assert duty[chip(index)] == 0.125 * index
    cores = range(chips * per_chip)
    for name, factor in (("hlo_queue_size", 1), ("core_idle_seconds", 0.25)):
        assert of(page, f"jaxmon_tpu_{name}") == {
            core(one, per_chip): factor * one for one in cores
        }
    assert of(page, "jaxmon_tpu_core_run_id") == {
        core(one, per_chip): 1000 + one for one in cores
    }
    assert of(page, "jaxmon_tpu_core_queued_programs") == {
        core(one, per_chip): one % 3 for one in cores
    }


def test_distribution_is_a_histogram_with_exact_counts(
    host: Callable[..., Host],
) -> None:
    """Bounds are the runtime's own, few of them; sum and count are the runtime's."""
    here = host("v4")
    here.serve(shapes.host("v4"))
    page = here.poll()["page"]
    name = "jaxmon_tpu_hlo_execution_seconds"
    assert of(page, f"{name}_count")[core(3)] == 4
    assert of(page, f"{name}_sum")[core(3)] == pytest.approx(3 * 0.005 + 1.5)
    buckets = {
        float(labels.partition("le=")[2].strip('"')): value
        for labels, value in of(page, f"{name}_bucket").items()
        if labels.startswith(core(3))
    }
    bounds = [2.0**step / 1e6 for step in range(29)]
    assert len(buckets) == 13
    for bound, below in buckets.items():
        true = 3 * (bound >= 0.008192) + (bound >= 2.097152)
        assert below == true
        assert bound == float("inf") or any(
            bound == pytest.approx(one, rel=1e-5) for one in bounds
        )


def test_transfers_of_all_sizes_add_up(host: Callable[..., Host]) -> None:
    """Sizes of buffers are no label; counters of several connections are one."""
    here = host("v5e")
    _, port = here.serve(shapes.multislice(shapes.host("v5e")))
    page = here.poll()["page"]
    runtime = f'runtime="{port}"'
    directions = ("dcn_transmit", "dcn_receive", "device_to_host", "host_to_device")
    assert of(page, "jaxmon_tpu_transfer_seconds_count") == {
        f'{runtime},direction="{one}"': 20 for one in directions
    }
    sums = of(page, "jaxmon_tpu_collective_seconds_sum")
    assert sums == {runtime: pytest.approx(20 * 5e-6)}
    assert of(page, "jaxmon_tpu_dcn_transmit_bytes_total") == {runtime: 2**40 + 2}
    assert of(page, "jaxmon_tpu_megascale_errors_total") == {runtime: 3}
    # The server never heard of it, so there is no series.
    assert of(page, "jaxmon_tpu_dcn_retransmit_bytes_total") == {}
    assert of(page, "jaxmon_tpu_ici_link_health") == {runtime: 7}
    assert of(page, "jaxmon_tpu_throttle_score") == {runtime: 2}


def test_older_runtime_numbers_devices_with_integers(
    host: Callable[..., Host],
) -> None:
    """The same page, whether a device's number is spelled or a number."""
    here = host("v4")
    runtime, _ = here.serve(shapes.host("v4"))
    new = here.poll()["text"]
    runtime.tell(shapes.host("v4", old=True))
    assert here.poll()["text"] == new


@pytest.mark.parametrize("first", [0, 8])
def test_processes_of_a_host_are_put_together(
    host: Callable[..., Host], first: int
) -> None:
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


def test_processes_that_each_count_from_zero_follow_their_ports(
    host: Callable[..., Host],
) -> None:
    """Where numbers collide and the host is complete, the order of ports decides."""
    here = host("v4")
    for one in range(4):
        told = shapes.host("v4", cores=range(1))
        told["metrics"][shapes.MEMORY_USED] = [shapes.of_device(0, int=one + 10)]
        here.serve(told)
    page = here.poll()["page"]
    assert of(page, "jaxmon_accelerator_memory_used_bytes") == {
        chip(one): one + 10 for one in range(4)
    }


def test_what_cannot_be_placed_is_left_out(host: Callable[..., Host]) -> None:
    """Two processes that count from zero hold some two of four chips."""
    here = host("v4")
    for _ in range(2):
        here.serve(shapes.host("v4", cores=range(1)))
    state = here.poll()
    assert state["success"]
    assert of(state["page"], "jaxmon_accelerator_memory_used_bytes") == {}
    assert len(of(state["page"], "jaxmon_tpu_runtime_uptime_seconds")) == 2
    assert failures(state)['collector="tpu",reason="device_unplaced"'] > 0


@pytest.mark.parametrize("generation", ["v4", "7x"])
def test_hidden_bus_is_made_up_for(host: Callable[..., Host], generation: str) -> None:
    """Chips of a runtime whose hardware is not visible are numbered."""
    here = host()
    here.serve(shapes.host(generation))
    page = here.poll()["page"]
    assert of(page, "jaxmon_accelerator_info") == {}
    assert list(of(page, "jaxmon_tpu_duty_cycle_ratio")) == [
        f'uuid="TPU-{one}"' for one in range(4)
    ]


def test_host_without_tpus_says_so(host: Callable[..., Host]) -> None:
    """No chip: a reason and no figures; h2 is not even loaded."""
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
    assert not state["loaded"], "h2 takes memory that an idle host keeps"
    assert len(of(state["page"], "jaxmon_accelerator_info")) == 8
    assert set(of(state["page"], "jaxmon_accelerator_up").values()) == {1}
    assert of(state["page"], "jaxmon_accelerator_memory_used_bytes") == {}
    here.serve(shapes.host("v5e"), f"127.0.0.1:{port}")
    state = here.poll()
    assert up(state) == [1]
    assert len(of(state["page"], "jaxmon_accelerator_memory_used_bytes")) == 8


def test_usual_ports_are_tried_where_none_is_given(
    host: Callable[..., Host],
) -> None:
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


def test_insecure_server(host: Callable[..., Host]) -> None:
    """A server without credentials is read as well."""
    here = host("v4")
    here.serve(shapes.host("v4"), secured="insecure")
    assert up(here.poll()) == [1]


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


def test_runtime_without_a_program_tells_nothing(host: Callable[..., Host]) -> None:
    """Empty lists are no figures, not zeros."""
    here = host("v4")
    told = shapes.host("v4")
    here.serve({"metrics": {name: [] for name in told["metrics"]}, "states": []})
    state = here.poll()
    assert (state["success"], up(state), failures(state)) == (True, [1], {})
    assert of(state["page"], "jaxmon_accelerator_memory_used_bytes") == {}
    assert of(state["page"], "jaxmon_tpu_hlo_execution_seconds_count") == {}


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
    """A runtime that answers most requests is up, and tells what it can."""
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


def test_name_too_long_to_ask_for_is_not_asked_for(host: Callable[..., Host]) -> None:
    """A runtime may list what it likes; the rest of its figures is there."""
    here = host("v4")
    told = shapes.host("v4")
    for name in ("ici_link_health" * 20, "ici_link_health\u00e9" * 8):
        told["metrics"][name] = [shapes.of_device(0, int=7)]
    here.serve(told)
    state = here.poll()
    assert (state["success"], up(state)) == (True, [1])
    assert of(state["page"], "jaxmon_tpu_ici_link_health") == {}
    assert len(of(state["page"], "jaxmon_accelerator_memory_used_bytes")) == 4


@pytest.mark.parametrize(
    "garbage",
    ["ffffffff", "0a05", "0a021a7f", "1b", "0a041a022a7f", "0a081a062a04120201"],
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


def test_internal_failure_of_a_runtime_is_counted(host: Callable[..., Host]) -> None:
    """A request that fails otherwise is asked again, and counted."""
    here = host("v4")
    runtime, _ = here.serve({**shapes.host("v4"), "fail": {shapes.QUEUE: "INTERNAL"}})
    here.poll()
    state = here.poll()
    assert up(state) == [1]
    assert failures(state) == {'collector="tpu",reason="request_failed"': 2}
    assert len(runtime.calls("GetRuntimeMetric", shapes.QUEUE)) == 2


def test_core_that_stands_still_is_told_once_in_words(
    host: Callable[..., Host],
) -> None:
    """A minute without a step while programs wait: the log says where."""
    here = host("v4")
    runtime, _ = here.serve(shapes.host("v4"))
    here.poll()
    assert here.poll(after=59)["log"] == []
    logged = here.poll(after=1)["log"]
    # Cores 0 and 3 have no program that waits.
    assert [line.partition(": ")[2] for line in logged] == [
        f"run {1000 + one} of program 42, at HLO: all-reduce.{one}; HloModule=jit_step"
        for one in (1, 2)
    ]
    assert UUID.format(5) in logged[0]
    assert here.poll(after=600)["log"] == logged
    assert len(runtime.calls("GetTpuRuntimeStatus", "words")) == 1
    moved = shapes.host("v4")
    for state in moved["states"]:
        state["run"] += 1
    runtime.tell(moved)
    here.poll(after=60)
    assert len(here.poll(after=60)["log"]) == 4


def test_error_of_a_core_is_a_flag_and_a_line(host: Callable[..., Host]) -> None:
    """Texts are no labels, and get no second line into the log."""
    here = host("v4")
    told = shapes.host("v4")
    told["states"][2]["error"] = "parity\nERROR forged"
    here.serve(told)
    here.poll()
    state = here.poll()
    assert of(state["page"], "jaxmon_tpu_core_error")[core(2)] == 1
    assert state["log"] == [f"core 0 of {UUID.format(6)}: parity ERROR forged"]
    assert "parity" not in state["text"]


def test_sparse_cores_are_not_mixed_in(host: Callable[..., Host]) -> None:
    """Other cores of a chip have numbers of their own."""
    here = host("v5p")
    told = shapes.host("v5p")
    told["states"].append({**told["states"][0], "kind": 3, "run": 5})
    attributes = {"device_ordinal": "0", "core_type": "SPARSE_CORE"}
    told["metrics"][shapes.QUEUE].append({"of": ["attributes", attributes], "int": 99})
    here.serve(told)
    page = here.poll()["page"]
    assert of(page, "jaxmon_tpu_core_run_id")[core(0)] == 1000
    assert of(page, "jaxmon_tpu_hlo_queue_size")[core(0)] == 0


def test_large_numbers_keep_telling_apart(host: Callable[..., Host]) -> None:
    """A run's number beyond what a float holds still changes with each run."""
    here = host("v4")
    told = shapes.host("v4")
    told["states"][0]["run"] = (1 << 62) + 1
    runtime, _ = here.serve(told)
    before = of(here.poll()["page"], "jaxmon_tpu_core_run_id")[core(0)]
    told["states"][0]["run"] += 1
    runtime.tell(told)
    assert of(here.poll()["page"], "jaxmon_tpu_core_run_id")[core(0)] == before + 1


def test_lost_chip_is_down_and_keeps_its_place(
    host: Callable[..., Host], tmp_path: Path
) -> None:
    """A chip that leaves the bus is up 0, and the others keep their figures."""
    here = host("v5e")
    here.serve(shapes.host("v5e"))
    before = of(here.poll()["page"], "jaxmon_accelerator_memory_used_bytes")
    lost = tmp_path / "sys/bus/pci/devices/0000:00:05.0"
    lost.rename(tmp_path / "lost")
    page = here.poll()["page"]
    assert of(page, "jaxmon_accelerator_up") == {
        chip(one): float(one != 1) for one in range(8)
    }
    assert of(page, "jaxmon_accelerator_memory_used_bytes") == before
    (tmp_path / "lost").rename(lost)
    assert set(of(here.poll()["page"], "jaxmon_accelerator_up").values()) == {1}


def test_program_without_the_lost_chip_has_its_own_chips(
    host: Callable[..., Host], tmp_path: Path
) -> None:
    """
    One that starts after the loss counts those that are left, and they are meant; what
    one from before counts then cannot be told, and is left out.
    """
    here = host("v5e")
    runtime, _ = here.serve(shapes.host("v5e"))
    here.poll()
    (tmp_path / "sys/bus/pci/devices/0000:00:05.0").rename(tmp_path / "lost")
    runtime.tell(shapes.host("v5e", cores=range(7)))
    used = of(here.poll()["page"], "jaxmon_accelerator_memory_used_bytes")
    left = [one for one in range(8) if one != 1]
    assert used == {chip(one): (place + 1) << 28 for place, one in enumerate(left)}
    before = shapes.host("v5e")
    for name, figures in before["metrics"].items():
        if len(figures) == 8:
            before["metrics"][name] = [*figures[:1], *figures[2:]]
    runtime.tell(before)
    state = here.poll()
    assert of(state["page"], "jaxmon_accelerator_memory_used_bytes") == {}
    assert failures(state)['collector="tpu",reason="device_unplaced"'] > 0


def test_chip_that_appears_is_found(host: Callable[..., Host], tmp_path: Path) -> None:
    """Chips may come after the sidecar."""
    here = host()
    assert here.poll()["reason"] == "no_devices"
    pci(tmp_path, "0000:00:04.0", device="0x005e")
    assert len(of(here.poll()["page"], "jaxmon_accelerator_up")) == 1


def test_owner_is_told_where_it_is_visible(
    host: Callable[..., Host], tmp_path: Path
) -> None:
    """The process that has a chip's node open, looked up twice a minute."""
    here = host("v5e")
    here.environ["TPU_RUNTIME_METRICS_PORTS"] = ""
    for pid, node in ((4321, "/dev/vfio/8"), (77, "/dev/null"), (4322, "/dev/vfio/8")):
        folder = tmp_path / f"proc/{pid}/fd"
        folder.mkdir(parents=True)
        (folder / "3").symlink_to(node)
    (tmp_path / "proc/99/fd").mkdir(parents=True)
    (tmp_path / "proc/99/fd").chmod(0)
    (tmp_path / "proc/self").mkdir()
    name = "jaxmon_tpu_owner_pid"
    assert of(here.poll()["page"], name) == {chip(1): 4321}
    (tmp_path / "proc/4321/fd/3").unlink()
    assert of(here.poll(after=10)["page"], name) == {chip(1): 4321}
    assert of(here.poll(after=30)["page"], name) == {chip(1): 4322}


def test_without_h2_chips_are_shown(host: Callable[..., Host]) -> None:
    """What the kernel tells needs no package; the reason says what is missing."""
    here = host("v4")
    here.serve(shapes.host("v4"))
    state = here.poll(PYTHONPATH=str(_without_h2(here.root)))
    assert (state["success"], state["reason"]) == (False, "not_installed")
    assert "pip install 'jaxmon[tpu]'" in state["message"]
    assert len(of(state["page"], "jaxmon_accelerator_up")) == 4


def _without_h2(root: Path) -> Path:
    folder = root / "modules"
    folder.mkdir()
    (folder / "h2.py").write_text("raise ImportError('none here')\n")
    return folder


def test_libtpu_is_never_loaded() -> None:
    """Google's library would hang the sidecar; nothing of ours imports it."""
    result = run_python(
        "-c",
        "import sys, jaxmon_exporter.service\n"
        "print([one for one in ('libtpu', 'grpc', 'h2') if one in sys.modules])",
    )
    assert result.ok().out == "[]\n"


READ_BY_GOOGLE = """
import json
from libtpu import sdk
names = ("duty_cycle_pct", "hbm_capacity_usage", "hlo_queue_size", "idle_duration")
found = {name: sdk.tpumonitoring.get_metric(name).data() for name in names}
timing = sdk.tpumonitoring.get_metric("hlo_execution_timing").data()
found["mean"] = [line.split(", ")[1] for line in timing]
cores = sdk.tpuz.get_core_state_summary(include_hlo_info=True)["core_states"]
found["run"] = [cores[core]["sequencer_info"][1]["run_id"] for core in sorted(cores)]
print(json.dumps(found))
"""


def test_googles_own_client_reads_the_fake(host: Callable[..., Host]) -> None:
    """The client in libtpu, and ours, read the same figures from the same server."""
    python = os.environ.get("JAXMON_LIBTPU_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import libtpu"], check=False).returncode:
        pytest.skip("needs libtpu, here or in the Python of JAXMON_LIBTPU_PYTHON")
    here = host("v6e")
    try:
        here.serve(shapes.host("v6e"), "127.0.0.1:8431")
    except (AssertionError, ValueError):
        pytest.skip("port 8431, which that client insists on, is taken")
    # Without the variable it looks for a metadata server, for minutes.
    environ = {"PATH": os.defpath, "TPU_SKIP_MDS_QUERY": "1"}
    read = subprocess.run(
        [python, "-c", READ_BY_GOOGLE],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    found = json.loads(read.stdout.splitlines()[-1])
    here.environ["TPU_RUNTIME_METRICS_PORTS"] = "8431"
    page = here.poll()["page"]
    used = of(page, "jaxmon_accelerator_memory_used_bytes")
    assert found["hbm_capacity_usage"] == [str(value) for value in used.values()]
    duty = of(page, "jaxmon_tpu_duty_cycle_ratio")
    assert found["duty_cycle_pct"] == [f"{100 * one:.2f}" for one in duty.values()]
    queued = of(page, "jaxmon_tpu_hlo_queue_size")
    assert found["hlo_queue_size"] == [
        f"{core}-TENSOR_CORE: {size}" for core, size in enumerate(queued.values())
    ]
    idle = of(page, "jaxmon_tpu_core_idle_seconds")
    assert found["idle_duration"] == [f"{one:.2f}" for one in idle.values()]
    sums = of(page, "jaxmon_tpu_hlo_execution_seconds_sum")
    counts = of(page, "jaxmon_tpu_hlo_execution_seconds_count")
    assert [float(one) for one in found["mean"]] == [
        pytest.approx(1e6 * total / counts[key], abs=0.01)
        for key, total in sums.items()
    ]
    assert found["run"] == list(of(page, "jaxmon_tpu_core_run_id").values())
