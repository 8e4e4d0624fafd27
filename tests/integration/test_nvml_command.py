"""``jaxmon exporter`` over a fake driver: what a site gets from it."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from jaxmon.host.http.messages import Request, Response
from jaxmon.host.http.server import Server
from tests.fakes.nvml.gpus import UUID
from tests.helpers.processes import clean_environ, http_get, until
from tests.helpers.prometheus import Prometheus


pytest.importorskip("pynvml")

JAXMON = str(Path(sys.executable).with_name("jaxmon"))
# Two processes that share a host of three GPUs; the second has one of them.
AGENTS = {
    "agent-0.sock": f"""\
# TYPE jaxmon_device_info gauge
jaxmon_device_info{{device="0",platform="gpu",device_kind="NVIDIA H100 80GB HBM3",\
process_index="0",uuid="{UUID.format(2)}",pci_bus_id="0000:1c:00.0"}} 1
jaxmon_device_info{{device="1",platform="gpu",device_kind="NVIDIA H100 80GB HBM3",\
process_index="0",uuid="{UUID.format(0)}",pci_bus_id="0000:1a:00.0"}} 1
# TYPE jaxmon_jit_calls_total counter
jaxmon_jit_calls_total{{function="trainer.step"}} 7
""",
    "agent-1.sock": f"""\
# TYPE jaxmon_device_info gauge
jaxmon_device_info{{device="0",platform="gpu",device_kind="NVIDIA H100 80GB HBM3",\
process_index="1",uuid="{UUID.format(1)}",pci_bus_id="0000:1b:00.0"}} 1
# TYPE jaxmon_jit_calls_total counter
jaxmon_jit_calls_total{{function="server.reply"}} 9
""",
}
DOC = Path(__file__).parents[2] / "docs" / "accelerators.md"


class Sidecar:
    def __init__(self, process: subprocess.Popen[str], control: Path) -> None:
        assert process.stderr is not None
        self.process = process
        self._control = control
        self._stderr = process.stderr
        self.port = 0
        for line in self._stderr:
            if found := re.search(r"http://localhost:(\d+)/", line):
                self.port = int(found[1])
                break

    def page(self) -> str:
        return http_get(f"http://127.0.0.1:{self.port}/metrics")

    def order(self, line: str) -> None:
        scratch = self._control.with_suffix(".new")
        scratch.write_text(f"{line}\n")
        scratch.rename(self._control)

    def end(self) -> tuple[int, str]:
        _, rest = self.process.communicate(timeout=240)
        return self.process.returncode, rest


@pytest.fixture
def sidecar(
    nvml_library: Path, run_dir: Path, tmp_path: Path
) -> Iterator[Callable[..., Sidecar]]:
    """Return a function that starts ``jaxmon exporter`` on three fake GPUs."""
    with ExitStack() as stack:

        def start(*arguments: str) -> Sidecar:
            process = stack.enter_context(
                subprocess.Popen(
                    [
                        JAXMON,
                        "exporter",
                        "--port=0",
                        "--nvml-interval=0.2",
                        "--agents-interval=0.2",
                        *arguments,
                    ],
                    env=clean_environ(
                        run_dir,
                        LD_LIBRARY_PATH=str(nvml_library),
                        FAKE_NVML_GPUS="3",
                        FAKE_NVML_CONTROL=str(tmp_path / "control"),
                    ),
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            stack.callback(process.kill)
            return Sidecar(process, tmp_path / "control")

        yield start


@pytest.mark.parametrize(
    ("orders", "why"),
    [
        ("all 18", "driver was upgraded under this process"),
        ("init 999\nall 1", "if the container lost its devices"),
    ],
)
def test_it_ends_when_only_a_new_process_helps(
    sidecar: Callable[..., Sidecar], orders: str, why: str
) -> None:
    """A driver that was upgraded or removed ends it."""
    running = sidecar("--exit-on-driver-mismatch")
    until(lambda: UUID.format(2) in running.page(), "the GPUs")
    running.order(orders)
    code, rest = running.end()
    assert code == 1
    assert why in rest
    assert "Traceback" not in rest


@pytest.mark.parametrize("code", [18, 999])
def test_it_stays_when_the_driver_never_worked(sidecar, tmp_path, code):
    """A new process that meets the same failure does not end again and again."""
    (tmp_path / "control").write_text(f"init {code}\n")
    running = sidecar("--exit-on-driver-mismatch")
    counted = 'jaxmon_collector_errors_total{collector="nvml",reason="error"} 0'
    down = 'jaxmon_collector_success{collector="nvml"} 0'
    until(lambda: down in running.page(), "the failure")
    assert counted in running.page()
    assert running.process.poll() is None
    running.order("")
    until(lambda: UUID.format(2) in running.page(), "the GPUs")


def test_it_stays_unless_asked_to_end(sidecar: Callable[..., Sidecar]) -> None:
    """Without the option, a mismatch is a failure like others, and can heal."""
    running = sidecar()
    until(lambda: UUID.format(2) in running.page(), "the GPUs")
    running.order("all 18")
    lost = f'jaxmon_accelerator_up{{uuid="{UUID.format(0)}"}} 0'
    until(lambda: lost in running.page(), "the failure")
    running.order("")
    until(lambda: lost not in running.page(), "the driver to be back")
    assert running.process.poll() is None


def test_processes_are_told_on_request(sidecar, tmp_path):
    """The option says how many processes have a series of their own."""
    lines = [f"process 1 {pid} {pid}00" for pid in (11, 12, 13)]
    (tmp_path / "control").write_text("\n".join(lines) + "\n")
    running = sidecar("--gpu-processes=1")
    until(lambda: "process_memory" in running.page(), "processes")
    page = running.page()
    found = re.findall(r'_process_memory_bytes\{.*pid="(\w+)"\} (\S+)', page)
    assert found == [("13", "1300"), ("other", "2300")]


def _always(response: Response, _: Request) -> Response:
    return response


@pytest.fixture
def joined(
    sidecar: Callable[..., Sidecar], run_dir: Path, tmp_path: Path
) -> Iterator[Prometheus]:
    """Return a Prometheus that scraped a sidecar with three GPUs and two processes."""
    with ExitStack() as stack:
        for name, text in AGENTS.items():
            response = Response(text.encode())
            server = Server({"/metrics": partial(_always, response)})
            server.listen_unix(run_dir / name)
            server.start()
            stack.callback(server.stop)
        running = sidecar()
        until(lambda: "server.reply" in running.page(), "both processes")
        until(lambda: UUID.format(2) in running.page(), "the GPUs")
        directory = tmp_path / "prometheus"
        directory.mkdir()
        targets = {"hosts": [f"127.0.0.1:{running.port}"]}
        prometheus = stack.enter_context(Prometheus(directory, targets))
        prometheus.until_up()
        yield prometheus


def test_power_joins_with_the_process_that_uses_it(joined: Prometheus) -> None:
    """Each query of the documentation yields the watts that the fake driver gives."""
    queries = re.findall(r"```promql\n(.*?)```", DOC.read_text(), re.DOTALL)
    by_gpu, by_process, by_function = queries[:3]
    found = {
        (labels["worker"], labels["process_index"], labels["device"]): value
        for labels, value in joined.until_query(by_gpu)
    }
    assert found == {
        ("0", "0", "0"): 123.502,
        ("0", "0", "1"): 123.5,
        ("1", "1", "0"): 123.501,
    }
    watts = {
        labels["worker"]: round(value, 3)
        for labels, value in joined.until_query(by_process)
    }
    assert watts == {"0": 247.002, "1": 123.501}
    functions = {
        labels["function"]: round(value, 3)
        for labels, value in joined.until_query(by_function)
    }
    assert functions == {"trainer.step": 247.002, "server.reply": 123.501}


def test_every_query_of_the_documentation_is_valid(joined: Prometheus) -> None:
    """What the page offers to copy is PromQL that Prometheus evaluates."""
    queries = re.findall(r"```promql\n(.*?)```", DOC.read_text(), re.DOTALL)
    assert len(queries) >= 6
    for query in queries:
        joined.query(query)
