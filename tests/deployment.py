"""
Manifests as documents, the chart's among them, what is in them and what they must be.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from jaxmon.cli.main import load
from jaxmon.settings import Settings
from jaxmon_exporter.collectors.registry import NAMES
from jaxmon_exporter.options import SidecarOptions
from tests import schemas
from tests.schemas import Document
from tests.support import ROOT


CHART = ROOT / "exporters/helm/jaxmon"
IMAGE = "ghcr.io/jaxmon/jaxmon-exporter"
_TEMPLATES = {
    "DaemonSet": ["spec.template"],
    "Deployment": ["spec.template"],
    "JobSet": ["spec.replicatedJobs.*.template.spec.template"],
    "RayCluster": ["spec.headGroupSpec.template", "spec.workerGroupSpecs.*.template"],
}
_RENDER = """
import json, sys
import helm_python as helm
chart, name, request = *sys.argv[1:3], json.loads(sys.argv[3])
loaded = helm.Chart.load(chart)
answers = []
for values in request:
    try:
        loaded.validate_schema(values)
        files = loaded.render(values, name=name, namespace="monitored")
        answers.append({"files": files})
    except helm.HelmError as error:
        answers.append({"error": str(error)})
lint = helm.lint(chart, strict=True)
print(json.dumps({"answers": answers, "lint": lint["errors"]}))
"""


def documents(path: Path) -> list[Document]:
    """Return the documents of a YAML file."""
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def manifests() -> dict[str, Document]:
    """Return every manifest for Kubernetes in this repository, the chart's apart."""
    paths = [
        *sorted((ROOT / "exporters/kubernetes").rglob("*.yaml")),
        *sorted((ROOT / "examples/cluster").glob("*.yaml")),
    ]
    return {
        f"{path.relative_to(ROOT)}#{number}": document
        for path in paths
        for number, document in enumerate(documents(path))
        if "apiVersion" in document and document["kind"] != "Kustomization"
    }


def rendered(*values: Document, name: str = "jaxmon") -> tuple[list[Any], list[str]]:
    """
    Return what Helm makes of the chart with each of *values*, as the release *name*,
    and what its linter says.

    An answer has ``files`` by path, or ``error``. Helm runs in a process of its own,
    for its threads outlive their use.
    """
    if find_spec("helm_python") is None:
        pytest.skip("no Helm for this platform: helm-python-sdk is not installed")
    done = subprocess.run(
        [sys.executable, "-c", _RENDER, str(CHART), name, json.dumps(values)],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    result = json.loads(done.stdout)
    return result["answers"], result["lint"]


def chart_documents(answer: Any) -> dict[str, Document]:
    """Return the manifests of one rendering by kind."""
    found = [
        document
        for path, text in answer["files"].items()
        if path.endswith(".yaml")
        for document in yaml.safe_load_all(text)
        if document
    ]
    return {document["kind"]: document for document in found}


def validate(document: Document, release: str) -> None:
    """
    Hold *document* against its published schema, and its pods against that of
    Kubernetes, which a controller's definition only refers to.

    Raises:
        jsonschema.ValidationError: it breaks one of them.
    """
    schemas.validate(document, release)
    for template in pod_templates(document):
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        schemas.builtin(pod, release)


def pod_templates(document: Document) -> Iterator[Document]:
    """Yield the templates of pods in *document*."""
    for path in _TEMPLATES.get(document["kind"], ()):
        found: list[Any] = [document]
        for key in path.split("."):
            found = (
                [each for one in found for each in one]
                if key == "*"
                else [one[key] for one in found]
            )
        yield from found


def observed(document: Document) -> Iterator[Document]:
    """Yield the templates of pods in *document* that have a sidecar."""
    for template in pod_templates(document):
        if list(_sidecars(template)):
            yield template


def sidecars(document: Document) -> Iterator[Document]:
    """Yield the containers in *document* that run jaxmon's image."""
    for template in pod_templates(document):
        yield from _sidecars(template)


def _sidecars(template: Document) -> Iterator[Document]:
    spec = template["spec"]
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        if "jaxmon-exporter" in container["image"]:
            yield container


def assert_hardened(document: Document) -> None:
    """
    Assert that the sidecars in *document* have no right that they do not need, and
    bounded memory.
    """
    if not list(sidecars(document)):
        return
    [template] = observed(document)
    pod = template["spec"].get("securityContext", {})
    for container in sidecars(document):
        context = {**pod, **container["securityContext"]}
        assert context["runAsNonRoot"] is True
        assert context.get("runAsUser") != 0
        assert context["readOnlyRootFilesystem"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "memory" in container["resources"]["limits"]
        assert "nvidia.com/gpu" not in json.dumps(container["resources"])
    # A Ray worker may have use for its token.
    if document["kind"] != "RayCluster":
        assert template["spec"]["automountServiceAccountToken"] is False
    assert "hostPath" not in json.dumps(template)
    assert "hostNetwork" not in template["spec"]


def assert_known(document: Document) -> None:
    """
    Assert that variables, port and probes of the sidecars in *document* are those of
    ``jaxmon exporter``, and the variables of the programs those of an agent.
    """
    options = {one.envvar for one in load("exporter").params if one.envvar}
    agent = {f"JAXMON_{name.upper()}" for name in Settings.__dataclass_fields__}
    for container in sidecars(document):
        variables = environ(container)
        ours = {name for name in variables if name.startswith("JAXMON_")}
        port = int(
            variables.get("JAXMON_EXPORTER_PORT", SidecarOptions(run_dir=Path()).port)
        )
        assert ours <= options
        assert set(variables.get("JAXMON_EXPORTER_DISABLE", "").split()) <= {*NAMES}
        assert [one["containerPort"] for one in container["ports"]] == [port]
        assert "livenessProbe" in container
        for kind, path in (
            ("startupProbe", "/-/healthy"),
            ("livenessProbe", "/-/healthy"),
            ("readinessProbe", "/-/ready"),
        ):
            if get := container.get(kind, {}).get("httpGet"):
                assert get == {"path": path, "port": "jaxmon"}
    for template in pod_templates(document):
        for container in template["spec"]["containers"]:
            if "jaxmon-exporter" not in container["image"]:
                ours = {one for one in environ(container) if one.startswith("JAXMON_")}
                assert ours <= agent


def environ(container: Document) -> dict[str, str]:
    """Return the variables of *container* with their values."""
    return {one["name"]: one.get("value", "") for one in container.get("env", ())}
