"""What OpenTelemetry's variables ask for, and who pushes."""

import os
import socket
from pathlib import Path

import pytest

from jaxmon.otel.environment import CONSOLE, GRPC, HTTP, is_asked, plan
from jaxmon.otel.resource import attributes, container_id


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}
CONTAINER = "0123456789abcdef" * 4
MOUNTS = f"""\
1 2 8:1 /image/{"f" * 64}/diff / rw - ext4 x rw
3 2 8:1 /docker/containers/{CONTAINER}/hostname /etc/hostname rw - ext4 x rw
"""


@pytest.mark.parametrize(
    ("environ", "asked"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, False),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://x"}, False),
        (ENDPOINT, True),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://x"}, True),
        ({"OTEL_METRICS_EXPORTER": "console"}, True),
        ({"OTEL_METRICS_EXPORTER": "prometheus, OTLP"}, True),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "none"}, False),
        ({**ENDPOINT, "OTEL_METRICS_EXPORTER": "prometheus"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, False),
        ({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, True),
        ({**ENDPOINT, "OTEL_CONFIG_FILE": "otel.yaml"}, False),
        ({**ENDPOINT, "OTEL_CONFIG_FILE": " "}, True),
    ],
)
def test_variables_ask_for_metrics(environ: dict[str, str], asked: bool) -> None:  # noqa: FBT001 - expected
    """An endpoint or an exporter asks; ``none`` and a disabled SDK forbid."""
    assert is_asked(environ) is asked


def test_defaults_are_those_of_the_sdk() -> None:
    """GRPC each minute, cumulative; the last export may delay the end by 3 s."""
    found = plan({})
    assert (found.routes, found.interval, found.deadline) == ((GRPC,), 60.0, 3.0)
    assert (found.temporality, found.problems) == ("cumulative", ())


def test_variables_for_metrics_take_precedence() -> None:
    """Each variable is read, in milliseconds where the standard says so."""
    found = plan(
        {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "HTTP/protobuf",
            "OTEL_METRICS_EXPORTER": "otlp,console,otlp_proto_grpc,otlp",
            "OTEL_METRIC_EXPORT_INTERVAL": "1500",
            "OTEL_METRIC_EXPORT_TIMEOUT": "250",
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "LowMemory",
        }
    )
    assert found.routes == (HTTP, CONSOLE, GRPC)
    assert (found.interval, found.deadline) == (1.5, 0.25)
    assert found.temporality == "lowmemory"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "soon"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "nan"),
        ("OTEL_METRIC_EXPORT_TIMEOUT", "1e300"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "both"),
        (
            "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",
            "base2_exponential_bucket_histogram",
        ),
    ],
)
def test_what_cannot_be_had_is_named_and_ignored(name: str, value: str) -> None:
    """The default holds, and one sentence names the variable and its value."""
    found = plan({name: value})
    (problem,) = found.problems
    assert f"{name}={value} is ignored" in problem
    assert found._replace(problems=()) == plan({})


@pytest.mark.parametrize(
    ("cgroup", "mountinfo"),
    [
        (f"0::/system.slice/docker-{CONTAINER}.scope\n", ""),
        (f"4:memory:/kubepods/burstable/pod1/{CONTAINER}\n", ""),
        ("0::/\n", MOUNTS),
    ],
    ids=["cgroup 2", "cgroup 1", "cgroup namespace"],
)
def test_a_container_is_known(tmp_path: Path, cgroup: str, mountinfo: str) -> None:
    """The id is found in each runtime's place for it, and images' digests are not."""
    (tmp_path / "cgroup").write_text(cgroup)
    (tmp_path / "mountinfo").write_text(mountinfo)
    assert container_id(tmp_path) == CONTAINER
    found = attributes({}, proc=tmp_path)
    assert found["container.id"] == CONTAINER
    assert found["service.instance.id"] == f"{CONTAINER[:12]}:{os.getpid()}"


def test_without_a_container_the_host_is_the_place(tmp_path: Path) -> None:
    """Nothing is made up: attributes that are not known are absent."""
    found = attributes({}, proc=tmp_path)
    assert found["service.instance.id"] == f"{socket.gethostname()}:{os.getpid()}"
    assert not [name for name in found if name.startswith(("k8s", "slurm", "contain"))]
    assert "" not in found.values()


def test_workloads_name_the_service(tmp_path: Path) -> None:
    """Kubernetes' workload comes before the container, and before Slurm's job."""
    environ = {
        "SLURM_JOB_NAME": "pretrain",
        "SLURM_JOB_ID": "17",
        "POD_NAME": "train-7",
        "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME": "node-1",
    }
    found = attributes(environ, proc=tmp_path)
    assert found["service.name"] == "pretrain"
    assert found["slurm.job.id"] == "17"
    assert found["k8s.pod.name"] == "train-7"
    assert found["k8s.node.name"] == "node-1"
    assert str(found["service.instance.id"]).startswith("train-7:")
    environ |= {"K8S_CONTAINER_NAME": "main", "K8S_JOB_NAME": "train"}
    assert attributes(environ, proc=tmp_path)["service.name"] == "train"
