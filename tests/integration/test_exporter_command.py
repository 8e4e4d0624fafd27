"""``jaxmon exporter`` as a process: options, ports, pages."""

import re
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from jaxmon.cli.main import main
from jaxmon_exporter.collectors.registry import NAMES
from tests.helpers.processes import clean_environ, run_python
from tests.helpers.sidecars import JAXMON, STOP_SECONDS, Exporter


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
    assert "Address already in use; stop the program that uses it" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--port", "70000"),
        ("--port", "\u0661\u0662\u0663\u0664"),
        ("--nvml-interval", "\u0665"),
        ("--host", "nonsense"),
        ("--host", "\x1b[31m"),
        ("--price", "H100"),
        ("--price", "H100=\u0663"),
        ("--allowed-host", "*."),
        ("--agents-interval", "0"),
        ("--disable", "gpu"),
        ("--log-level", "loud"),
        ("surplus",),
    ],
)
def test_wrong_options_end_with_code_two(arguments: tuple[str, ...]) -> None:
    """A command line that cannot be used is refused before anything starts."""
    assert CliRunner().invoke(main, ["exporter", *arguments]).exit_code == 2


def test_settings_come_from_the_environment(exporter: Callable[..., Exporter]) -> None:
    """Every option has a variable; several collectors are separated by spaces."""
    disabled = " ".join(name for name in NAMES if name != "host")
    running = exporter(JAXMON_EXPORTER_DISABLE=disabled, JAXMON_EXPORTER_DEMO="1")
    running.until_ready()
    assert [one["name"] for one in running.summary()["collectors"]] == ["host", "demo"]


@pytest.mark.parametrize(
    "scrapes", [0, pytest.param(100, marks=pytest.mark.exhaustive)]
)
def test_memory_stays_small(exporter: Callable[..., Exporter], scrapes: int) -> None:
    """The sidecar needs less than 60 MB, and a hundred scrapes add next to nothing."""
    running = exporter("--demo")
    running.until_ready()
    for _ in range(20):
        running.get()
        running.get("/api/summary")
    before = running.resident_bytes()
    for _ in range(scrapes):
        running.get()
        running.get("/api/summary")
    assert running.resident_bytes() < 60 << 20
    assert running.resident_bytes() - before < 4 << 20


def test_it_never_loads_jax(run_dir: Path) -> None:
    """Building the service imports neither JAX nor NVML's bindings."""
    source = (
        "import sys; from pathlib import Path\n"
        "from jaxmon_exporter.options import SidecarOptions\n"
        "from jaxmon_exporter.service import Service\n"
        "Service(SidecarOptions(run_dir=Path('/nowhere'), demo=True))\n"
        "print([m for m in ('jax', 'jaxlib', 'pynvml', 'numpy') if m in sys.modules])\n"
    )
    assert run_python("-c", source, run_dir=run_dir).ok().out == "[]\n"


def test_pages_are_encrypted_by_a_web_configuration(run_dir, tmp_path):
    """The command says https, serves TLS only, and stops as ever."""
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
            with urlopen(f"{url}/metrics", context=trust, timeout=60) as page:
                assert b"jaxmon_build_info" in page.read()
            process.terminate()
            process.communicate(timeout=STOP_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0


def test_a_web_configuration_that_cannot_be_used_stops_the_start(run_dir, tmp_path):
    """The command ends with the reason; nothing is served unprotected."""
    config = tmp_path / "web.yml"
    config.write_text("tls_server_config: {cert_file: cert.pem, key: key.pem}\n")
    result = run_python(
        "-m", "jaxmon", "exporter", "--web-config", str(config), run_dir=run_dir
    )
    assert result.code == 1
    assert (
        f"web configuration {config}: tls_server_config has an unknown key;"
        in result.err
    )
