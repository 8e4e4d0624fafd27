"""
The resource of metrics and of our traces, so that they join: what is found out, then
the standard variables, then what the program has given to the SDK's provider.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry.sdk import resources
from opentelemetry.sdk.version import __version__


SERVICE_NAME = "service.name"
INSTANCE = "service.instance.id"

# What names a service, in the order of the conventions for Kubernetes.
_KINDS = ("deployment", "statefulset", "daemonset", "cronjob", "job", "container")
_WORKLOADS = [f"k8s.{kind}.name" for kind in _KINDS]
# As in manifests that use the downward API, and as OpenTelemetry's operator sets them.
_KUBERNETES = {
    "k8s.cluster.name": "K8S_CLUSTER_NAME",
    "k8s.namespace.name": "K8S_NAMESPACE_NAME K8S_NAMESPACE POD_NAMESPACE",
    "k8s.node.name": "K8S_NODE_NAME OTEL_RESOURCE_ATTRIBUTES_NODE_NAME NODE_NAME",
    "k8s.pod.name": "K8S_POD_NAME OTEL_RESOURCE_ATTRIBUTES_POD_NAME POD_NAME",
    "k8s.pod.uid": "K8S_POD_UID OTEL_RESOURCE_ATTRIBUTES_POD_UID POD_UID",
    **{f"k8s.{kind}.name": f"K8S_{kind.upper()}_NAME" for kind in _KINDS},
}
# The conventions know nothing of Slurm.
_SLURM = {
    "slurm.job.id": "SLURM_JOB_ID",
    "slurm.job.name": "SLURM_JOB_NAME",
    "slurm.step.id": "SLURM_STEP_ID",
    "slurm.procid": "SLURM_PROCID",
}
_CONTAINER = r"[/:-]([0-9a-f]{64})(?:[/.\s]|$)"
_SHOWN = 12


def attributes(
    environ: Mapping[str, str], *, proc: Path = Path("/proc/self")
) -> dict[str, str | int]:
    """Return what is known of this process, without arguments, which may be secrets."""
    host, pid = socket.gethostname(), os.getpid()
    found: dict[str, str | int] = {
        "host.name": host,
        "process.pid": pid,
        "process.command": sys.argv[0] if sys.argv else "",
        "process.executable.path": sys.executable or "",
        "process.runtime.name": sys.implementation.name,
        "process.runtime.version": platform.python_version(),
    }
    for name, variables in _KUBERNETES.items():
        found[name] = next(filter(None, map(environ.get, variables.split())), "")
    for name, variable in _SLURM.items():
        found[name] = environ.get(variable, "")
    container = found["container.id"] = container_id(proc)
    found[SERVICE_NAME] = (
        next((found[name] for name in _WORKLOADS if found[name]), "")
        or found["slurm.job.name"]
        or _program()
    )
    # Unique among living processes: containers on the host's network share its name,
    # and their processes have the same numbers.
    place = found["k8s.pod.name"] or container[:_SHOWN] or host
    found[INSTANCE] = f"{place}:{pid}"
    return {name: value for name, value in found.items() if value != ""}


def container_id(proc: Path) -> str:
    """Return the 64 digits by which a container runtime knows us, `""` if unknown."""
    for name in ("cgroup", "mountinfo"):
        try:
            lines = (proc / name).read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            # Other mounts contain digests of images and layers.
            if name == "cgroup" or "/etc/hostname" in line:
                match = re.search(_CONTAINER, line)
                if match is not None:
                    return match[1]
    return ""


def _program() -> str:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name).removesuffix(".__main__")
    script = Path(sys.argv[0]).stem if sys.argv else ""
    return script if script not in ("", "-", "-c", "-m") else "python"


_UNKNOWN = "unknown_service"


def resource(
    environ: Mapping[str, str], *, name: str | None = None
) -> resources.Resource:
    """Return the resource, *name* a default; variables go before what is found."""
    found: dict[str, Any] = {
        **attributes(environ),
        resources.TELEMETRY_SDK_LANGUAGE: "python",
        resources.TELEMETRY_SDK_NAME: "opentelemetry",
        resources.TELEMETRY_SDK_VERSION: __version__,
    }
    if name is not None:
        found[SERVICE_NAME] = name
    for given in (resources.OTELResourceDetector().detect(), _of_program()):
        found |= _named(given)
    return resources.Resource(found)


def _named(described: Any) -> dict[str, Any]:
    """Return the attributes of a resource but for the SDK's default name."""
    found = dict(getattr(described, "attributes", None) or {})
    if str(found.get(SERVICE_NAME, _UNKNOWN)).startswith(_UNKNOWN):
        found.pop(SERVICE_NAME, None)
    return found


def _of_program() -> Any:
    """
    Return the resource of the program's provider, if any. Read where the API keeps it,
    because its functions may create one; not found in another release.
    """
    tracing = getattr(trace, "_TRACER_PROVIDER", None)
    if (found := getattr(tracing, "resource", None)) is not None:
        return found
    metering = getattr(getattr(metrics, "_internal", None), "_METER_PROVIDER", None)
    return getattr(getattr(metering, "_sdk_config", None), "resource", None)
