"""The dcgm collector, and a dcgm-exporter that is well, ill, or none."""

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxmon.exposition.encode import encode
from jaxmon_exporter.collectors.dcgm import Dcgm
from jaxmon_exporter.polling import Poller
from tests.fakes.dcgm import BLANKS, DcgmExporter, dcgm_exporter, labels, page
from tests.fakes.nvml.gpus import UUID, failures
from tests.helpers.processes import require_program, until


INFO = (
    "jaxmon_accelerator_info{{uuid="
    '"{}",index="{}",vendor="nvidia",model="NVIDIA H100 80GB HBM3",'
    'driver="580.65.06",pci_bus_id="0000:{:02x}:00.0"}}'
)
NO_FAILURES = {"broken_line": 0, "too_many_gpus": 0}
CLEAN = """\
# HELP jaxmon_accelerator_info Accelerators of this host.
# TYPE jaxmon_accelerator_info gauge
jaxmon_accelerator_info{uuid="$",index="0",vendor="nvidia",\
model="NVIDIA H100 80GB HBM3",driver="580.65.06",pci_bus_id="0000:1a:00.0"} 1.0
jaxmon_accelerator_clock_hertz{uuid="$",clock="sm"} 1980000000.0
jaxmon_accelerator_clock_hertz{uuid="$",clock="memory"} 2619000000.0
jaxmon_accelerator_temperature_celsius{uuid="$",sensor="memory"} 58.0
jaxmon_accelerator_temperature_celsius{uuid="$",sensor="gpu"} 44.0
jaxmon_accelerator_power_watts{uuid="$"} 412.25
jaxmon_accelerator_energy_joules_total{uuid="$"} 987654.321
jaxmon_gpu_pcie_replays_total{uuid="$"} 3.0
jaxmon_accelerator_utilization_ratio{uuid="$"} 0.87
jaxmon_gpu_memory_controller_utilization_ratio{uuid="$"} 0.31
jaxmon_gpu_engine_utilization_ratio{uuid="$",engine="encoder"} 0.0
jaxmon_gpu_engine_utilization_ratio{uuid="$",engine="decoder"} 0.02
jaxmon_accelerator_memory_free_bytes{uuid="$"} 20971520000.0
jaxmon_accelerator_memory_used_bytes{uuid="$"} 63963136000.0
jaxmon_accelerator_memory_reserved_bytes{uuid="$"} 536870912.0
jaxmon_gpu_remapped_rows_total{uuid="$",cause="uncorrected"} 1.0
jaxmon_gpu_remapped_rows_total{uuid="$",cause="corrected"} 5.0
jaxmon_gpu_row_remap_failure{uuid="$"} 0.0
jaxmon_gpu_graphics_active_ratio{uuid="$"} 0.91
jaxmon_gpu_sm_active_ratio{uuid="$"} 0.82
jaxmon_gpu_sm_occupancy_ratio{uuid="$"} 0.41
jaxmon_gpu_tensor_active_ratio{uuid="$"} 0.53
jaxmon_gpu_dram_active_ratio{uuid="$"} 0.64
jaxmon_gpu_fp64_active_ratio{uuid="$"} 0.01
jaxmon_gpu_fp32_active_ratio{uuid="$"} 0.12
jaxmon_gpu_fp16_active_ratio{uuid="$"} 0.02
jaxmon_gpu_pcie_transmit_bytes_per_second{uuid="$"} 1048576.0
jaxmon_gpu_pcie_receive_bytes_per_second{uuid="$"} 2097152.0
jaxmon_collector_errors_total{collector="dcgm",reason="broken_line"} 0
jaxmon_collector_errors_total{collector="dcgm",reason="too_many_gpus"} 0
""".replace("$", UUID.format(0))


@pytest.fixture
def exporter() -> Iterator[DcgmExporter]:
    with dcgm_exporter() as served:
        yield served


def polled(url: str, **options: float) -> Poller:
    """Return the poller of a collector after one poll."""
    poller = Poller(Dcgm(url, **options))  # type: ignore[arg-type] # numbers
    poller.poll()
    return poller


def series(poller: Poller) -> dict[str, float]:
    """Return what a poller serves, after checking that no series comes twice."""
    samples = [sample for family in poller.families() for sample in family.samples]
    assert len({name for name, _ in samples}) == len(samples)
    return dict(samples)


def body(poller: Poller) -> str:
    """Return the page of a poller without help and types, except the first."""
    lines = encode(poller.families()).decode().splitlines(keepends=True)
    return "".join([*lines[:2], *(line for line in lines if line[0] != "#")])


@pytest.mark.parametrize("new", [False, True])
def test_page_in_our_names_and_units(exporter: DcgmExporter, *, new: bool) -> None:
    """Both spellings give one page, byte for byte; what has no name here is out."""
    exporter.body = page(1, new=new)
    poller = polled(exporter.url)
    assert poller.status().success
    assert body(poller) == CLEAN


def test_both_spellings_on_one_page_are_one_series(exporter: DcgmExporter) -> None:
    """A page with a figure under two names, or once per job, gives it once."""
    exporter.body = page(1) + page(1, new=True) + page(1, more=',hpc_job="17"')
    assert body(polled(exporter.url)) == CLEAN


@pytest.mark.parametrize("blank", BLANKS)
def test_blanks_are_dropped(exporter: DcgmExporter, blank: str) -> None:
    """A blank is no figure: neither a gigantic one nor a failure."""
    exporter.body = page(1).replace(" 412.250000\n", f" {blank}\n")
    poller = polled(exporter.url)
    expected = [
        line for line in CLEAN.splitlines(keepends=True) if "_watts" not in line
    ]
    assert poller.status().success
    assert body(poller) == "".join(expected)


def test_page_of_blanks_is_no_failure(exporter: DcgmExporter) -> None:
    """A GPU that DCGM knows nothing about is there, without figures."""
    exporter.body = f"DCGM_FI_DEV_GPU_UTIL{{{labels(0)}}} {BLANKS[0]}\n"
    poller = polled(exporter.url)
    assert poller.status().success
    assert set(series(poller)) - {INFO.format(UUID.format(0), 0, 0x1A)} == {
        f'jaxmon_collector_errors_total{{collector="dcgm",reason="{reason}"}}'
        for reason in NO_FAILURES
    }


def test_broken_lines_cost_themselves(exporter: DcgmExporter) -> None:
    """A line that is cut, wrong or endless is counted; the rest of the page holds."""
    good = page(1)
    exporter.body = (
        "DCGM_FI_DEV_FB_USED{gpu=\n"
        f"{good}"
        f"DCGM_FI_DEV_GPU_TEMP{{{labels(0)}}}\n"
        f"DCGM_FI_DEV_GPU_TEMP{{{labels(0)}}} warm\n"
        f"DCGM_FI_DEV_GPU_TEMP{{{labels(0, more=',x=' + 'y' * 9000)}}} 1\n"
        "node_load1 0.5\n"
        'go_gc_duration_seconds{quantile="0"} 1\n'
        f"DCGM_FI_DEV_GPU_TEMP{{{labels(0)}"
    )
    poller = polled(exporter.url)
    assert poller.status().success
    assert failures(series(poller)) == {**NO_FAILURES, "broken_line": 5}
    assert body(poller).replace('broken_line"} 5', 'broken_line"} 0') == CLEAN


@pytest.mark.parametrize(
    "more",
    [
        ',hpc_job="a"b"',
        ',hpc_job="a,b"',
        ',hpc_job="c\\"',
        ',hpc_job="}",pod="p q"',
        ',hpc_job="x",UUID="GPU-00000000-0000-0000-0000-000000000000"',
        ',hpc_job="x",GPU_I_ID',
    ],
)
def test_unescaped_labels_are_endured(exporter: DcgmExporter, more: str) -> None:
    """What users may name freely comes unescaped, and cannot pose as another GPU."""
    exporter.body = page(1, more=more)
    assert body(polled(exporter.url)) == CLEAN


def test_unescaped_model_is_escaped_here(exporter: DcgmExporter) -> None:
    """A quote in a label value that we pass on does not break our page."""
    exporter.body = page(1, model='the "big" one')
    assert 'model="the \\"big\\" one",driver=' in body(polled(exporter.url))


@pytest.mark.parametrize("uuid", ["", "GPU-1", "MIG-GPU"])
def test_line_without_a_gpu_is_left_out(exporter: DcgmExporter, uuid: str) -> None:
    """Links, virtual GPUs, and whatever has no UUID of a GPU are left out."""
    exporter.body = page(1).replace(UUID.format(0), uuid)
    poller = polled(exporter.url)
    assert poller.status().success
    assert not any("uuid=" in name for name in series(poller))


def test_fields_of_no_use_here_are_not_looked_into(exporter: DcgmExporter) -> None:
    """What is wrong with them is no failure, and a page of them is still DCGM's."""
    exporter.body = page(1) + "DCGM_FI_DEV_UNHEARD_OF{gpu=broken 1\n" * 3
    assert body(polled(exporter.url)) == CLEAN
    exporter.body = f"DCGM_FI_DEV_UNHEARD_OF{{{labels(0)}}} 1\n"
    assert polled(exporter.url).status().success


def test_parts_of_a_gpu_do_not_pose_as_the_gpu(exporter: DcgmExporter) -> None:
    """Figures of instances, virtual GPUs and links are not those of the whole."""
    for part in (',GPU_I_PROFILE="1g.10gb",GPU_I_ID="3"', ',vgpu="1"', ',nvlink="0"'):
        exporter.body = page(1, more=part)
        assert f'_sm_active_ratio{{uuid="{UUID.format(0)}"}}' not in body(
            polled(exporter.url)
        )


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ({"status": 500, "body": "failed"}, "http_status"),
        ({"status": 503}, "http_status"),
        ({"status": 302, "headers": {"Location": "/elsewhere"}}, "redirect"),
        ({"body": ""}, "empty"),
        ({"body": "\n"}, "empty"),
        ({"body": "<html></html>", "type": "text/html"}, "not_dcgm"),
        ({"body": "node_load1 0.5\n"}, "not_dcgm"),
        ({"body": "\x00\xff" * 100}, "not_dcgm"),
        ({"body": page(1), "type": "application/json"}, "not_dcgm"),
        ({"body": page(64) * 60}, "too_large"),
        ({"stall_after": 100}, "timeout"),
        ({"stall_after": 0}, "timeout"),
    ],
)
def test_failure_is_a_reason_and_recovers(exporter, answer, reason):
    """A page that does not come, or is none, says why; the next one is read again."""
    good = exporter.body
    for name, value in answer.items():
        setattr(exporter, name, value)
    timeout = 0.5 if reason == "timeout" else 30.0
    poller = Poller(Dcgm(exporter.url, timeout=timeout, max_bytes=4 << 20))
    poller.poll()
    status = poller.status()
    assert (status.success, status.reason) == (False, reason)
    assert status.errors[reason] == 1
    assert not [name for name in series(poller) if "uuid=" in name]
    exporter.body, exporter.status, exporter.type = good, 200, "text/plain"
    exporter.headers, exporter.stall_after = {}, None

    def read_again() -> bool:
        poller.poll()
        return poller.status().success

    until(read_again, "a page in time")
    assert body(poller) == CLEAN


def test_redirect_is_not_followed(exporter: DcgmExporter) -> None:
    """The sidecar cannot be redirected to another address."""
    exporter.status, exporter.headers = 302, {"Location": exporter.url}
    polled(exporter.url)
    assert len(exporter.requests) == 1


def test_nobody_there_is_a_reason(free_port: int) -> None:
    """A refused connection is unreachable, at once."""
    status = polled(f"http://127.0.0.1:{free_port}/metrics").status()
    assert (status.success, status.reason) == (False, "unreachable")


def test_password_is_sent_and_not_told(exporter: DcgmExporter) -> None:
    """User and password of the address are for the server, and for no message."""
    url = exporter.url.replace("http://", "http://me:s%40crt@")
    exporter.status = 401
    status = polled(url).status()
    assert exporter.requests[0]["Authorization"] == "Basic bWU6c0BjcnQ="
    assert status.reason == "http_status"
    assert "crt" not in status.message


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[DcgmExporter]:
    """Return a dcgm-exporter behind TLS, with a certificate in ``tmp_path``."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subprocess.run(
        [
            *(require_program("openssl"), "req", "-x509", "-newkey", "rsa:2048"),
            *("-nodes", "-days", "1", "-subj", "/CN=node-1"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
        timeout=240,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with dcgm_exporter(context) as served:
        yield served


def test_page_over_tls(secure, tmp_path, monkeypatch):
    """Over HTTPS the page is the same, once its authority is trusted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "certificate.pem"))
    assert body(polled(secure.url)) == CLEAN


def test_certificate_that_nobody_vouches_for(secure: DcgmExporter) -> None:
    """An unknown certificate is a reason; the page is not asked for."""
    status = polled(secure.url.replace("://", "://me:secret@")).status()
    assert (status.success, status.reason) == (False, "tls")
    assert "SSL_CERT_FILE" in status.message
    assert secure.requests == []


def test_plain_server_where_tls_is_expected(exporter: DcgmExporter) -> None:
    """A port without TLS is a reason, not a hang."""
    status = polled(exporter.url.replace("http:", "https:")).status()
    assert (status.success, status.reason) == (False, "tls")
