"""
``jaxmon exporter`` in the place of a dcgm-exporter, beside one, and on top of one.
"""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.error import URLError

import pytest

from jaxmon.exposition.parse import parse
from jaxmon_exporter.dcgm_fields import FOREIGN
from tests.fakes.dcgm import DcgmExporter, dcgm_exporter, page
from tests.fakes.nvml.gpus import UUID
from tests.helpers.processes import clean_environ, free_port, http_get, until


pytest.importorskip("pynvml")

JAXMON = str(Path(sys.executable).with_name("jaxmon"))

# What NVIDIA's dashboard 12239 asks for: metric, what it groups by.
DASHBOARD = (
    ("DCGM_FI_DEV_GPU_TEMP", "Hostname, gpu"),
    ("DCGM_FI_DEV_POWER_USAGE", "Hostname, gpu"),
    ("DCGM_FI_DEV_SM_CLOCK", "Hostname, UUID, gpu"),
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Hostname, gpu, GPU_I_ID, GPU_I_PROFILE"),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Hostname, gpu, GPU_I_ID, GPU_I_PROFILE"),
    ("DCGM_FI_DEV_FB_USED", "Hostname, gpu, GPU_I_ID, GPU_I_PROFILE"),
    # Its variables come from this one.
    ("DCGM_FI_DEV_FB_FREE", "Hostname, gpu"),
)


class Sidecar:
    def __init__(self, port: int) -> None:
        self.target = f"127.0.0.1:{port}"

    def samples(self) -> dict[str, float]:
        """Return the page, after checking that it has no series twice."""
        text = http_get(f"http://{self.target}/metrics", Accept="text/plain")
        families = parse(text)
        found = [
            (f"{name}{{{labels}}}", value)
            for family in families
            for name, labels, value in family.samples
        ]
        twice = [
            name for name, n in Counter(name for name, _ in found).items() if n > 1
        ]
        assert twice == []
        return dict(found)

    def until(self, series: str) -> dict[str, float]:
        def page_with() -> dict[str, float]:
            samples = self.samples()
            return samples if series in samples else {}

        return until(page_with, series)

    def ready(self) -> bool:
        """Return whether it responds and all collectors have polled."""
        try:
            return http_get(f"http://{self.target}/-/ready") == "ready\n"
        except (URLError, ConnectionError):
            return False


@pytest.fixture
def sidecar(
    nvml_library: Path, tmp_path: Path, run_dir: Path
) -> Iterator[Callable[..., Sidecar]]:
    with ExitStack() as stack:

        def start(*arguments: str, count: int = 2, profile: str = "h100") -> Sidecar:
            environ = clean_environ(
                run_dir,
                LD_LIBRARY_PATH=str(nvml_library),
                FAKE_NVML_PROFILE=profile,
                FAKE_NVML_GPUS=str(count),
                FAKE_NVML_CONTROL=str(tmp_path / "control"),
                FAKE_NVML_XIDS=str(tmp_path / "xids"),
                JAXMON_EXPORTER_NVML_INTERVAL="0.2",
                JAXMON_EXPORTER_GPM_INTERVAL="0.2",
                JAXMON_EXPORTER_DCGM_INTERVAL="0.2",
                JAXMON_EXPORTER_DISABLE="agents host tpu",
            )
            port = free_port()
            process = stack.enter_context(
                subprocess.Popen(
                    [JAXMON, "exporter", "--port", str(port), *arguments],
                    env=environ,
                    stderr=subprocess.DEVNULL,
                )
            )
            stack.callback(process.wait, 15)
            stack.callback(process.terminate)
            running = Sidecar(port)
            until(running.ready, "the sidecar")
            return running

        yield start


@pytest.fixture
def dcgm() -> Iterator[DcgmExporter]:
    """Return a dcgm-exporter that reports eight GPUs."""
    with dcgm_exporter() as served:
        served.body = page(8)
        yield served


def test_names_are_served_only_when_asked_for(sidecar: Callable[..., Sidecar]) -> None:
    """Without --compat a page has our names alone."""
    assert not [name for name in sidecar().samples() if name.startswith("DCGM_")]


def test_every_query_of_nvidias_dashboard_has_data(sidecar, prometheus):
    """A real Prometheus answers what that dashboard asks, for each of the GPUs."""
    running = sidecar("--compat", "dcgm")
    until(
        lambda: {one.partition("{")[0] for one in running.samples()} >= set(FOREIGN),
        "all names, the second sample of GPM included",
    )
    server = prometheus({"gpu": [running.target]})
    for metric, by in DASHBOARD:
        chosen = f'{metric}{{Hostname=~".+", gpu=~"0|1"}}'
        found = server.until_query(f"max({chosen}) by ({by})")
        assert [labels["gpu"] for labels, _ in found] == ["0", "1"]
        assert all(labels["Hostname"] for labels, _ in found)
    # In Prometheus the units are dcgm-exporter's.
    (clock,) = server.query('DCGM_FI_DEV_SM_CLOCK{gpu="0"} * 1000000')
    assert clock[1] == 1_965_000_000
    (tensor,) = server.query('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="1"}')
    assert tensor[1] == pytest.approx(0.065)


def test_dcgm_fills_the_gaps_of_our_gpus_alone(sidecar, dcgm):
    """Before Hopper the activity comes from DCGM, all else from NVML, both once."""
    running = sidecar("--dcgm", dcgm.url, "--disable", "gpm", profile="a100")
    tensor = f'jaxmon_gpu_tensor_active_ratio{{uuid="{UUID.format(0)}"}}'
    samples = running.until(tensor)
    assert samples[tensor] == 0.53
    # NVML says 123.5 W, DCGM 412.25 W.
    power = f'jaxmon_accelerator_power_watts{{uuid="{UUID.format(0)}"}}'
    assert samples[power] == 123.5
    assert not [name for name in samples if UUID.format(2) in name]


def test_gpm_comes_before_dcgm(sidecar, dcgm):
    """On Hopper the activity is our own, as soon as there are two samples."""
    running = sidecar("--dcgm", dcgm.url)
    tensor = f'jaxmon_gpu_tensor_active_ratio{{uuid="{UUID.format(1)}"}}'
    until(lambda: running.samples().get(tensor) == 0.065, "GPM's figure")


def test_all_gpus_of_the_host_when_asked_for(sidecar, dcgm):
    """A sidecar that sees two of eight GPUs reports the others on demand."""
    running = sidecar("--dcgm", dcgm.url, "--dcgm-all-gpus")
    sm = f'jaxmon_gpu_sm_active_ratio{{uuid="{UUID.format(7)}"}}'
    until(lambda: running.samples().get(sm) == 0.82, "a GPU that is not ours")


def test_dcgm_alone_serves_its_names_again(sidecar, dcgm):
    """Without a driver both names of a figure come from DCGM, in the units of each."""
    running = sidecar(
        "--dcgm", dcgm.url, "--compat", "dcgm", "--disable", "nvml", "--disable", "gpm"
    )
    samples = until(
        lambda: [one for one in running.samples().items() if "DCGM_FI_" in one[0]],
        "DCGM's figures",
    )
    found = {
        name.partition("{")[0]: value for name, value in samples if 'gpu="0"' in name
    }
    assert found["DCGM_FI_DEV_FB_USED"] == 61000
    assert found["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == 987654321
    assert found["DCGM_FI_DEV_GPU_UTIL"] == 87
    assert found["DCGM_FI_PROF_PCIE_RX_BYTES"] == 2097152
