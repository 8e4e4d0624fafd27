"""What the TPU collector makes of the figures that libtpu serves."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fakes.tpu import shapes
from tests.fakes.tpu.hosts import UUID, Host, chip, core, failures, of, up
from tests.helpers.processes import some


pytest.importorskip("grpc")

PAGES = Path(__file__).parents[1] / "fakes" / "tpu" / "pages"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    """Return a function that puts a host together."""
    with ExitStack() as stack:
        yield lambda generation=None: stack.enter_context(Host(tmp_path, generation))


@pytest.mark.parametrize("generation", some(shapes.GENERATIONS, 3))
def test_page_of_each_generation(host: Callable[..., Host], generation: str) -> None:
    """The whole page of a busy host, byte for byte."""
    here = host(generation)
    _, port = here.serve(shapes.multislice(shapes.host(generation)))
    text = here.poll()["text"].replace(port, "PORT")
    assert text == (PAGES / f"{generation}.txt").read_text()


@pytest.mark.parametrize("generation", some(shapes.GENERATIONS, 3))
def test_figures_are_those_of_the_runtime(host, generation):
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


def test_distribution_is_a_histogram_with_exact_counts(host):
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


def test_older_runtime_numbers_devices_with_integers(host: Callable[..., Host]) -> None:
    """The same page, whether a device's number is spelled or a number."""
    here = host("v4")
    runtime, _ = here.serve(shapes.host("v4"))
    new = here.poll()["text"]
    runtime.tell(shapes.host("v4", old=True))
    assert here.poll()["text"] == new


def test_runtime_without_a_program_tells_nothing(host: Callable[..., Host]) -> None:
    """Empty lists are no figures, not zeros."""
    here = host("v4")
    told = shapes.host("v4")
    here.serve({"metrics": {name: [] for name in told["metrics"]}, "states": []})
    state = here.poll()
    assert (state["success"], up(state), failures(state)) == (True, [1], {})
    assert of(state["page"], "jaxmon_accelerator_memory_used_bytes") == {}
    assert of(state["page"], "jaxmon_tpu_hlo_execution_seconds_count") == {}


def test_core_that_stands_still_is_told_once_in_words(host):
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
        timeout=240,
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
