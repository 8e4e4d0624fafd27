"""
Who pushes: attributes of the OpenTelemetry resource, from the process's surroundings.

Names are those of the semantic conventions 1.30. What the standard variables or the
program say takes precedence; see `jaxmon.otel.pipes`.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path


SERVICE_NAME = "service.name"
INSTANCE = "service.instance.id"

# As in manifests that use the downward API, and as OpenTelemetry's operator sets them.
_KUBERNETES = {
    "k8s.cluster.name": ("K8S_CLUSTER_NAME",),
    "k8s.namespace.name": ("K8S_NAMESPACE_NAME", "K8S_NAMESPACE", "POD_NAMESPACE"),
    "k8s.node.name": (
        "K8S_NODE_NAME",
        "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME",
        "NODE_NAME",
    ),
    "k8s.pod.name": (
        "K8S_POD_NAME",
        "OTEL_RESOURCE_ATTRIBUTES_POD_NAME",
        "POD_NAME",
    ),
    "k8s.pod.uid": ("K8S_POD_UID", "OTEL_RESOURCE_ATTRIBUTES_POD_UID", "POD_UID"),
    "k8s.container.name": ("K8S_CONTAINER_NAME",),
    "k8s.deployment.name": ("K8S_DEPLOYMENT_NAME",),
    "k8s.statefulset.name": ("K8S_STATEFULSET_NAME",),
    "k8s.daemonset.name": ("K8S_DAEMONSET_NAME",),
    "k8s.job.name": ("K8S_JOB_NAME",),
    "k8s.cronjob.name": ("K8S_CRONJOB_NAME",),
}
# What names a service, in the order of the conventions for Kubernetes.
_WORKLOADS = (
    "k8s.deployment.name",
    "k8s.statefulset.name",
    "k8s.daemonset.name",
    "k8s.cronjob.name",
    "k8s.job.name",
    "k8s.container.name",
)
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
    """
    Return what is known of this process, as attributes of a resource.

    Takes about a millisecond. The command's arguments are left out, for they may
    contain secrets.

    Args:
        environ: the environment.
        proc: of this process.
    """
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
        found[name] = next(filter(None, map(environ.get, variables)), "")
    for name, variable in _SLURM.items():
        found[name] = environ.get(variable, "")
    container = found["container.id"] = container_id(proc)
    found[SERVICE_NAME] = (
        next((found[one] for one in _WORKLOADS if found[one]), "")
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
    """Return the name of the module or script that runs."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if spec is not None and spec.name:
        return str(spec.name).removesuffix(".__main__")
    script = Path(sys.argv[0]).stem if sys.argv else ""
    return script if script not in ("", "-", "-c", "-m") else "python"
