"""GPUs reported by agents, for a sidecar whose container has no driver."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxmon.host.http.server import Response, Server
from tests.faults.stage import Sidecar, Stage, up
from tests.helpers.processes import clean_environ


UUID = "GPU-5f0c9d2e-1a2b-3c4d-5e6f-{:012d}"
POWER = "jaxmon_accelerator_power_watts"

# JAX is on the CPU here; two devices with the names of fake GPUs stand for its own.
PROGRAM = """
import sys, time
import jax, jaxmon
from jaxmon.agent.devices import driver_metrics
from jaxmon.agent.devices import part as identity
named = dict(enumerate(sys.argv[1:]))
identity.hardware = lambda device: (named.get(device.id, ""), "0000:1a:00.0")
driver_metrics.EVERY = 0.1
original = driver_metrics.DeviceMetrics.__init__
def faster(self, context):
    original(self, context, every=0.1)
driver_metrics.DeviceMetrics.__init__ = faster
agent = jaxmon.instrument(port=None, device_figures=True)
jax.jit(lambda x: x + 1)(1.0)
print("ready", flush=True)
for line in sys.stdin:
    jax.jit(lambda x: x + 1)(1.0)
    print("alive", flush=True)
print("end", flush=True)
"""


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Stage() as stage:
        yield stage


def program(stage: Stage, *uuids: str) -> subprocess.Popen[str]:
    stage.order()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *uuids],
        env=clean_environ(
            stage.run_dir,
            LD_LIBRARY_PATH=str(stage.driver()),
            FAKE_NVML_GPUS="2",
            XLA_FLAGS="--xla_force_host_platform_device_count=2",
            FAKE_NVML_CONTROL=str(stage.directory / "control"),
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        process.kill()
        process.communicate()

    stage.later(end)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def blind(stage: Stage) -> Sidecar:
    empty = stage.directory / "empty"
    empty.mkdir()
    variables = {"LD_LIBRARY_PATH": str(empty)}
    return stage.sidecar("--disable", "host", environ=variables)


def power(sidecar: Sidecar, device: int) -> float | None:
    return sidecar.page().get(f'{POWER}{{uuid="{UUID.format(device)}"}}')


def test_agents_tell_what_a_blind_sidecar_cannot(stage: Stage) -> None:
    """The figures are the driver's, by uuid alone, as if the sidecar had asked."""
    program(stage, UUID.format(0))
    sidecar = blind(stage)
    stage.until(lambda: power(sidecar, 0), "the figures")
    found = {
        name: value
        for name, value in sidecar.page().items()
        if name.startswith("jaxmon_accelerator_")
    }
    uuid = f'uuid="{UUID.format(0)}"'
    assert found == {
        f'jaxmon_accelerator_info{{{uuid},index="0",vendor="nvidia",'
        'model="NVIDIA H100 80GB HBM3",driver="580.65.06",'
        'pci_bus_id="0000:1a:00.0"}': 1,
        f"jaxmon_accelerator_up{{{uuid}}}": 1,
        f"jaxmon_accelerator_utilization_ratio{{{uuid}}}": 0.37,
        f"jaxmon_accelerator_memory_used_bytes{{{uuid}}}": 3 << 30,
        f"jaxmon_accelerator_memory_size_bytes{{{uuid}}}": 80 << 30,
        f'jaxmon_accelerator_temperature_celsius{{{uuid},sensor="gpu"}}': 40,
        f"jaxmon_accelerator_power_watts{{{uuid}}}": 123.5,
        f"jaxmon_accelerator_power_limit_watts{{{uuid}}}": 700,
        f"jaxmon_accelerator_energy_joules_total{{{uuid}}}": 1234567,
    }
    stage.order("device 0 15")
    stage.until(lambda: up(sidecar.page(), 0) == 0, "the loss")
    assert power(sidecar, 0) is None
    stage.order()
    stage.until(lambda: power(sidecar, 0), "recovery")


@pytest.mark.exhaustive
def test_several_agents_share_a_device(stage: Stage) -> None:
    """A device that two processes use is there once: `page` refuses it twice."""
    program(stage, UUID.format(0))
    program(stage, UUID.format(0), UUID.format(1))
    sidecar = blind(stage)
    stage.until(lambda: power(sidecar, 0) and power(sidecar, 1), "both")
    assert sidecar.page()['jaxmon_agent_up{worker="1"}'] == 1


@pytest.mark.exhaustive
def test_the_sidecars_own_driver_comes_first(stage: Stage) -> None:
    """With it, the sidecar reports all about a device."""
    program(stage, UUID.format(0))
    sidecar = stage.with_gpus(2)
    stage.until(lambda: power(sidecar, 0), "the figures")
    for _ in range(20):
        sidecar.page()
    # The agent still has power, our driver says that it is lost: no mixture.
    stage.order("call nvmlDeviceGetMemoryInfo_v2 0 15")
    stage.until(lambda: up(sidecar.page(), 0) == 0, "the loss")
    assert power(sidecar, 0) is None


def test_a_hanging_driver_costs_the_program_nothing(stage: Stage) -> None:
    """Calls, scrapes and the end of the program do not wait for it."""
    process = program(stage, UUID.format(0))
    sidecar = blind(stage)
    stage.until(lambda: power(sidecar, 0), "the figures")
    stage.order("hang nvmlDeviceGetPowerUsage")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("call\n")
    process.stdin.flush()
    assert process.stdout.readline() == "alive\n"
    assert sidecar.page()['jaxmon_agent_up{worker="0"}'] == 1
    out, _ = process.communicate(timeout=240)
    assert out == "end\n"
    assert process.returncode == 0


@pytest.mark.parametrize(
    "sample", ["jaxmon_accelerator_up 1", 'jaxmon_accelerator_up{a="b",uuid="c"} 1']
)
def test_a_device_without_name_is_no_device(stage: Stage, sample: str) -> None:
    """An agent cannot put a series on the page that two agents might share."""
    body = f"# TYPE jaxmon_accelerator_up gauge\n{sample}\n".encode()
    server = Server({"/metrics": lambda _: Response(body)})
    server.listen_unix(Path(stage.run_dir, "agent-0.sock"))
    server.start()
    try:
        page = blind(stage).page()
        assert page['jaxmon_agent_up{worker="0"}'] == 0
        assert not any(name.startswith("jaxmon_accelerator_up") for name in page)
    finally:
        server.stop()
