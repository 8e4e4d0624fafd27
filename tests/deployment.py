"""
Manifests as documents, and the schemas that they must meet.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support import ROOT


Document = dict[str, Any]

CHART = ROOT / "exporters/helm/jaxmon"
# The oldest with native sidecars, and the newest that there are schemas for.
RELEASES = ("1.29", "1.37")

_TEMPLATES = {
    "DaemonSet": ["spec", "template"],
    "Deployment": ["spec", "template"],
    "JobSet": ["spec", "replicatedJobs", "*", "template", "spec", "template"],
    "RayCluster": ["spec", "workerGroupSpecs", "*", "template"],
}
_RENDER = """
import json, sys
import helm_python as helm
chart, request = sys.argv[1], json.loads(sys.argv[2])
loaded = helm.Chart.load(chart)
answers = []
for values in request:
    try:
        loaded.validate_schema(values)
        files = loaded.render(values, name="demo", namespace="jaxmon")
        answers.append({"files": files})
    except helm.HelmError as error:
        answers.append({"error": str(error)})
lint = helm.lint(chart, strict=True)
print(json.dumps({"answers": answers, "lint": lint["errors"]}))
"""


def documents(path: Path) -> list[Document]:
    """
    Return the documents of a YAML file.
    """
    return [one for one in yaml.safe_load_all(path.read_text()) if one]


def manifests() -> dict[str, Document]:
    """
    Return every manifest for Kubernetes in this repository, the chart's apart.
    """
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


def rendered(*values: Document) -> tuple[list[Any], list[str]]:
    """
    Return what Helm makes of the chart with each of *values*, and what its linter says.

    An answer has ``files`` by path, or ``error``. Helm runs in a process of its own,
    for its threads outlive their use.
    """
    if find_spec("helm_python") is None:
        pytest.skip("no Helm for this platform: helm-python-sdk is not installed")
    done = subprocess.run(
        [sys.executable, "-c", _RENDER, str(CHART), json.dumps(values)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    result = json.loads(done.stdout)
    return result["answers"], result["lint"]


def chart_documents(answer: Any) -> dict[str, Document]:
    """
    Return the manifests of one rendering by kind.
    """
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
    Hold *document* against the schema that *release* of Kubernetes publishes, unknown
    fields refused; a custom resource against that of its controller where
    ``KUBERNETES_CRDS`` names a directory with it, and its pods in any case.

    Raises:
        jsonschema.ValidationError: it breaks the schema.
    """
    import kubernetes_validate

    for template in pod_templates(document):
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
        kubernetes_validate.validate(pod, release, strict=True)
    if (schema := custom_schema(document)) is not None:
        jsonschema.Draft202012Validator(schema).validate(document)
    elif "." not in document["apiVersion"].partition("/")[0].removesuffix(".k8s.io"):
        kubernetes_validate.validate(document, release, strict=True)


def custom_schema(document: Document) -> Document | None:
    """
    Return the schema of a custom resource, unknown fields refused; `None` without one.
    """
    group, _, version = document["apiVersion"].partition("/")
    directory = os.environ.get("KUBERNETES_CRDS")
    return definitions(directory).get((group, version, document["kind"]))


@lru_cache(maxsize=4)
def definitions(directory: str | None) -> dict[tuple[str, str, str], Document]:
    """
    Return the schemas of the custom resources in *directory*.
    """
    specs = [
        yaml.load(path.read_text(), Loader=yaml.CSafeLoader)["spec"]
        for path in sorted(Path(directory).glob("*.yaml") if directory else ())
    ]
    return {
        (spec["group"], one["name"], spec["names"]["kind"]): closed(
            one["schema"]["openAPIV3Schema"]
        )
        for spec in specs
        for one in spec["versions"]
    }


def closed(schema: Document) -> Document:
    """
    Return *schema* with objects that allow their own properties only, as a server does
    that is asked to be strict.
    """
    result = copy.deepcopy(schema)
    result["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
    _close(result)
    return result


def _close(schema: Any) -> None:
    if isinstance(schema, list):
        for one in schema:
            _close(one)
    if isinstance(schema, dict):
        keeps = schema.get("x-kubernetes-preserve-unknown-fields")
        if isinstance(schema.get("properties"), dict) and not keeps:
            schema.setdefault("additionalProperties", False)
        if schema.get("x-kubernetes-int-or-string"):
            schema.pop("type", None)
        for key in ("properties", "items", "additionalProperties"):
            inner = schema.get(key)
            for one in inner.values() if key == "properties" and inner else [inner]:
                _close(one)


def pod_templates(document: Document) -> Iterator[Document]:
    """
    Yield the templates of pods in *document* that have a sidecar in them or beside.
    """
    found: list[Any] = [document] if document["kind"] in _TEMPLATES else []
    for key in _TEMPLATES.get(document["kind"], []):
        found = (
            [each for one in found for each in one]
            if key == "*"
            else [one[key] for one in found]
        )
    yield from found


def sidecars(document: Document) -> Iterator[Document]:
    """
    Yield the containers in *document* that run jaxmon's image.
    """
    for template in pod_templates(document):
        spec = template["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            if "jaxmon-exporter" in container["image"]:
                yield container
