"""
``jaxmon exporter`` as a process: pages, signals, ports, absences.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from click.testing import CliRunner
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from jaxmon.catalog import BY_NAME, METRICS
from jaxmon.cli.main import main
from jaxmon.exposition.parse import parse
from jaxmon.exposition.server import Response, Server
from tests.support import clean_environ, http_get, run_python, until


JAXMON = str(Path(sys.executable).with_name("jaxmon"))
STOP_SECONDS = 15.0
PAGE = b"""\
# HELP jaxmon_jit_calls_total Calls.
# TYPE jaxmon_jit_calls_total counter
jaxmon_jit_calls_total{function="f"} 7
"""


class Exporter:
    """
    A running sidecar.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stderr is not None
        self.url = ""
        self.log: list[str] = []
        for line in process.stderr:
            self.log.append(line)
            if match := re.fullmatch(
                r"jaxmon exporter: http://localhost:(\d+)/\n", line
            ):
                self.url = f"http://127.0.0.1:{match[1]}"
                break
        self._reader = threading.Thread(target=self._read, args=(process.stderr,))
        self._reader.start()

    def get(self, path: str = "/metrics", *, accept: str = "text/plain") -> str:
        return http_get(f"{self.url}{path}", Accept=accept)

    def summary(self) -> Any:
        return json.loads(self.get("/api/summary"))

    def until_ready(self) -> None:
        until(self._ready, "the first poll of each collector")

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            self.process.kill()
            self._reader.join()

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def _ready(self) -> bool:
        try:
            return self.get("/-/ready") == "ready\n"
        except HTTPError as error:
            error.close()
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
                return False
            raise

    def _read(self, stream: Any) -> None:
        self.log += stream


@pytest.fixture
def exporter(run_dir: Path) -> Iterator[Callable[..., Exporter]]:
    """
    Return a function that starts ``jaxmon exporter`` on a free port.
    """
    with ExitStack() as stack:

        def start(*arguments: str, **environ: str) -> Exporter:
            process = stack.enter_context(
                subprocess.Popen(
                    [JAXMON, "exporter", "--port", "0", *arguments],
                    env=clean_environ(run_dir, **environ),
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            running = Exporter(process)
            stack.callback(running.stop)
            return running

        yield start


def values(text: str) -> dict[str, float]:
    return {
        f"{name}{{{labels}}}" if labels else name: value
        for family in parse(text)
        for name, labels, value in family.samples
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_with_code_zero(
    exporter: Callable[..., Exporter], number: int
) -> None:
    """SIGTERM and SIGINT are the normal end: exit code 0, no traceback."""
    running = exporter()
    running.until_ready()
    assert running.stop(number) == 0
    assert not any("Traceback" in line for line in running.log)


def test_response_under_way_is_finished(exporter: Callable[..., Exporter]) -> None:
    """A client that is still reading its page at SIGTERM gets all of it."""
    running = exporter("--demo")
    running.until_ready()
    port = int(running.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        received = client.recv(1024)
        running.process.send_signal(signal.SIGTERM)
        while chunk := client.recv(65536):
            received += chunk
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    assert length is not None
    assert len(body) == int(length[1])
    assert running.stop() == 0


def test_hanging_agent_does_not_delay_the_end(
    exporter: Callable[..., Exporter], run_dir: Path
) -> None:
    """A poll in progress does not keep the process from stopping."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(run_dir / "agent-0.sock"))
        listener.listen()
        listener.settimeout(20)
        running = exporter()
        client, _ = listener.accept()
        with client:
            assert running.stop() == 0


def test_busy_port_is_a_clear_error(run_dir: Path) -> None:
    """A port in use ends the command with code 1 and advice, no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        result = run_python(
            "-c",
            "from jaxmon.cli.main import main; main()",
            *("exporter", "--host", "127.0.0.1", "--port", str(port)),
            run_dir=run_dir,
        )
    assert result.code == 1
    assert f"cannot listen on 127.0.0.1 port {port}" in result.err
    assert "--port" in result.err
    assert "Traceback" not in result.err


def test_stand_alone_script_reports_errors_the_same_way(run_dir: Path) -> None:
    """``jaxmon-exporter`` ends with the same code and message."""
    result = run_python(
        "-c",
        "from jaxmon.cli.sidecar import main; main()",
        *("--host", "no-such-address"),
        run_dir=run_dir,
    )
    assert result.code == 1
    assert "Error: cannot listen on no-such-address" in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--port", "70000"),
        ("--agents-interval", "0"),
        ("--disable", "gpu"),
        ("--log-level", "loud"),
        ("surplus",),
    ],
)
def test_wrong_options_end_with_code_two(arguments: tuple[str, ...]) -> None:
    """A command line that cannot be used is refused before anything starts."""
    assert CliRunner().invoke(main, ["exporter", *arguments]).exit_code == 2


def test_help_lists_pages_exit_codes_and_variables() -> None:
    """The help says what a reader of a unit file needs."""
    text = CliRunner().invoke(main, ["exporter", "--help"]).output
    for word in ("/metrics", "/-/ready", "Exit codes", "JAXMON_EXPORTER_PORT", "9467"):
        assert word in text


def test_settings_come_from_the_environment(
    exporter: Callable[..., Exporter],
) -> None:
    """Every option has a variable; several collectors are separated by spaces."""
    running = exporter(
        JAXMON_EXPORTER_DISABLE="nvml gpm tpu agents", JAXMON_EXPORTER_DEMO="1"
    )
    running.until_ready()
    assert [one["name"] for one in running.summary()["collectors"]] == ["host", "demo"]


def test_host_without_gpu_agents_or_run_directory(
    exporter: Callable[..., Exporter], tmp_path: Path
) -> None:
    """On a bare host it serves, is ready, and says why there is no GPU."""
    running = exporter("--run-dir", str(tmp_path / "not yet there"))
    running.until_ready()
    assert running.get("/-/healthy") == "healthy\n"
    page = values(running.get())
    assert page['jaxmon_collector_success{collector="agents"}'] == 1
    assert page['jaxmon_collector_success{collector="host"}'] == 1
    assert page['jaxmon_collector_success{collector="nvml"}'] == 0
    (nvml,) = (one for one in running.summary()["collectors"] if one["name"] == "nvml")
    assert nvml["reason"] in ("library_not_found", "not_installed", "init_failed")
    assert not (tmp_path / "not yet there").exists()


def test_agent_that_starts_later_is_found(
    exporter: Callable[..., Exporter], run_dir: Path
) -> None:
    """A process that is instrumented after the sidecar started shows up by itself."""
    running = exporter("--agents-interval", "0.2")
    running.until_ready()
    assert running.summary()["agents"] == []
    server = Server({"/metrics": lambda _: Response(PAGE)})
    server.listen_unix(run_dir / "agent-0.sock")
    server.start()
    try:
        until(lambda: running.summary()["agents"], "the agent")
        page = values(running.get())
        assert page['jaxmon_jit_calls_total{worker="0",function="f"}'] == 7
        assert running.summary()["functions"][0]["calls"] == 7
    finally:
        server.stop()
    until(lambda: not running.summary()["agents"][0]["up"], "the agent to be down")
    assert 'jaxmon_jit_calls_total{worker="0"' not in running.get()


def test_openmetrics_page_passes_a_strict_parser(
    exporter: Callable[..., Exporter],
) -> None:
    """The page with the whole demo fleet is OpenMetrics 1.0 to the letter."""
    running = exporter("--demo")
    running.until_ready()
    text = running.get(accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")
    assert list(text_string_to_metric_families(text))


def test_page_and_catalogue_agree(exporter: Callable[..., Exporter]) -> None:
    """All sidecar metrics are on the page or explained, and nothing else is."""
    running = exporter("--demo", "--disk", ".", "--price", "H100=2.5")
    running.until_ready()
    running.get()
    names = {family.name for family in parse(running.get())}
    assert names <= BY_NAME.keys()
    # Where this test runs there may be a control group, or none; the demo has GPUs.
    expected = {
        metric.name
        for metric in METRICS
        if "sidecar" in metric.sources and metric.group not in ("Container", "TPUs")
    }
    # They appear with the first failure, and there was none.
    mishaps = {"jaxmon_internal_errors_total", "jaxmon_gpu_xid_last_timestamp_seconds"}
    # The demo's GPUs are whole, young and real, and nobody asked for processes.
    others = {name for name in expected if "_mig_" in name or "_retired_" in name}
    others |= {"jaxmon_gpu_process_memory_bytes", "jaxmon_gpu_vgpu_licensed"}
    # Rates beside counters are for --compat dcgm.
    others |= {name for name in expected if name.endswith("_per_second")}
    # Its GPUs are divided into no MIG devices, but that is a figure.
    others.remove("jaxmon_gpu_mig_mode")
    assert expected - names == mishaps | others


def test_accelerators_have_a_price(
    exporter: Callable[..., Exporter], tmp_path: Path
) -> None:
    """The price comes from the table, a price on the command line wins."""
    table = tmp_path / "prices.yaml"
    table.write_text("H100: 9.9\nA100: 1.5\n")
    running = exporter("--demo", "--prices", str(table), "--price", "H100=2.5")
    running.until_ready()
    cost = "jaxmon_accelerator_cost_dollars_per_hour{"
    page = values(running.get())
    assert [page[name] for name in page if name.startswith(cost)] == [2.5] * 8


def test_price_table_that_cannot_be_used(run_dir: Path, tmp_path: Path) -> None:
    """The sidecar does not start with prices that nobody meant."""
    table = tmp_path / "prices.yaml"
    table.write_text("H100: cheap\n")
    result = run_python(
        *("-m", "jaxmon", "exporter", "--port", "0", "--prices", str(table)),
        run_dir=run_dir,
    )
    assert result.code == 1
    assert "'H100' = 'cheap' is no price" in result.err


def test_scrapes_are_measured(exporter: Callable[..., Exporter]) -> None:
    """Each scrape counts in the histogram that the next one shows."""
    running = exporter("--disable", "nvml")
    before = values(running.get())["jaxmon_scrape_seconds_count"]
    assert values(running.get())["jaxmon_scrape_seconds_count"] == before + 1


def test_landing_page_allows_only_itself(exporter: Callable[..., Exporter]) -> None:
    """The page is one self-contained document with a policy that nothing widens."""
    running = exporter()
    with urlopen(Request(running.url)) as response:
        html = response.read().decode()
        policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert len(html.encode()) < 20_000
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", html)


def test_unknown_page_is_not_found(exporter: Callable[..., Exporter]) -> None:
    """Other paths are 404, with the pages that there are."""
    with pytest.raises(HTTPError) as caught:
        exporter().get("/nothing")
    with caught.value as error:
        assert error.code == 404
        assert b"/api/summary" in error.read()


def test_memory_stays_small(exporter: Callable[..., Exporter]) -> None:
    """The sidecar needs less than 60 MB, and a hundred scrapes add next to nothing."""
    running = exporter("--demo")
    running.until_ready()
    for _ in range(20):
        running.get()
    before = running.resident_bytes()
    for _ in range(100):
        running.get()
        running.get("/api/summary")
    assert running.resident_bytes() < 60 << 20
    assert running.resident_bytes() - before < 4 << 20


def test_it_never_loads_jax(run_dir: Path) -> None:
    """Building the service imports neither JAX nor NVML's bindings."""
    source = (
        "import sys; from pathlib import Path\n"
        "from jaxmon_exporter.options import Options\n"
        "from jaxmon_exporter.service import Service\n"
        "Service(Options(run_dir=Path('/nowhere'), demo=True))\n"
        "print([m for m in ('jax', 'jaxlib', 'pynvml', 'numpy') if m in sys.modules])\n"
    )
    assert run_python("-c", source, run_dir=run_dir).ok().out == "[]\n"


def test_pages_are_encrypted_by_a_web_configuration(
    run_dir: Path, tmp_path: Path
) -> None:
    """
    The command says https, serves TLS only, and stops as ever.
    """
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n")
    command = [JAXMON, "exporter", "--port", "0", "--web-config", str(config)]
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=clean_environ(run_dir)
    ) as process:
        try:
            assert process.stderr is not None
            told = (
                re.fullmatch(r"jaxmon exporter: (https?://.*)/\n", line)
                for line in process.stderr
            )
            url = next(match[1] for match in told if match)
            assert url.startswith("https://localhost:")
            with urlopen(f"{url}/metrics", context=trust, timeout=20) as page:
                assert b"jaxmon_build_info" in page.read()
            process.terminate()
            process.communicate(timeout=STOP_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0


def test_a_web_configuration_that_cannot_be_used_stops_the_start(
    run_dir: Path, tmp_path: Path
) -> None:
    """
    The command ends with the reason; nothing is served unprotected.
    """
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config: {cert_file: cert.pem, key: key.pem}\n")
    result = run_python(
        "-m", "jaxmon", "exporter", "--web-config", str(config), run_dir=run_dir
    )
    assert result.code == 1
    assert f"web configuration {config}: tls_server_config has key;" in result.err
