"""
Manifests as documents, the chart's among them, and the published schemas of Kubernetes
and of the controllers whose resources we have, as a server holds them that is asked to
be strict: unknown fields are refused.
"""

import copy
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema
import pytest
import yaml

from jaxmon.cli.main import load
from jaxmon.settings import Settings
from jaxmon_exporter.collectors.registry import NAMES
from jaxmon_exporter.options import SidecarOptions
from tests.helpers.processes import ROOT


Document: TypeAlias = dict[str, Any]

# The oldest with native sidecars, and the newest that there are schemas for.
RELEASES = ("1.29", "1.37")

Kind: TypeAlias = "tuple[str, str, str]"
"""Group, version and kind of a resource."""

# Classes that are made from the controllers' definitions, by module and name. Their
# packages bring a plugin for pytest, so they are in a directory of their own.
PACKAGES = Path(sys.prefix) / "schemas"
MODELS: dict[Kind, tuple[str, str]] = {
    ("monitoring.coreos.com", "v1", "PodMonitor"): (
        "cloudcoil.models.prometheus_operator.v1",
        "PodMonitor",
    ),
    ("monitoring.coreos.com", "v1", "PrometheusRule"): (
        "cloudcoil.models.prometheus_operator.v1",
        "PrometheusRule",
    ),
    ("monitoring.coreos.com", "v1alpha1", "AlertmanagerConfig"): (
        "cloudcoil.models.prometheus_operator.v1alpha1",
        "AlertmanagerConfig",
    ),
    ("keda.sh", "v1alpha1", "ScaledObject"): (
        "cloudcoil.models.keda.v1alpha1",
        "ScaledObject",
    ),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet"): (
        "kubeflow_trainer_api.models.jobset_v1alpha2_job_set",
        "JobsetV1alpha2JobSet",
    ),
}
_DESCRIBE = """
import json, sys
from importlib import import_module
sys.path.append(sys.argv[1])
for module, name in json.loads(sys.argv[2]):
    model = getattr(import_module(module), name)
    print(json.dumps(model.model_json_schema(by_alias=True)))
"""


def kind_of(document: Document) -> Kind:
    """Return what *document* is; its group is empty for what Kubernetes began with."""
    group, _, version = document["apiVersion"].rpartition("/")
    return group, version, document["kind"]


def is_custom(document: Document) -> bool:
    """Return whether a controller defines *document*, not Kubernetes."""
    group = kind_of(document)[0]
    return "." in group and not group.endswith(".k8s.io")


def validate_alone(document: Document, release: str) -> None:
    """
    Hold *document* against the schema that *release* of Kubernetes publishes, or that
    of its controller, as far as there is one.

    Raises:
        jsonschema.ValidationError: it breaks the schema.
    """
    if not is_custom(document):
        builtin(document, release)
        return
    head = {"apiVersion": "v1", "kind": "ConfigMap"}
    builtin({**head, "metadata": document.get("metadata", {})}, release)
    if (schema := custom(kind_of(document))) is not None:
        jsonschema.Draft202012Validator(schema).validate(document)


def builtin(document: Document, release: str) -> None:
    """
    Hold a resource of Kubernetes itself against the schema of *release*.

    Raises:
        jsonschema.ValidationError: it breaks the schema.
    """
    import kubernetes_validate

    kubernetes_validate.validate(document, release, strict=True)


def custom(kind: Kind) -> Document | None:
    """
    Return the schema of a custom resource: from the directory that ``KUBERNETES_CRDS``
    names, or else from a package; `None` without either.
    """
    found = defined(os.environ.get("KUBERNETES_CRDS"))
    if kind not in found and kind in MODELS:
        found = modelled()
    return found.get(kind)


@lru_cache(maxsize=4)
def defined(directory: str | None) -> dict[Kind, Document]:
    """Return the schemas of the custom resources in *directory*."""
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


@lru_cache
def modelled() -> dict[Kind, Document]:
    """Return the schemas of the custom resources that packages describe."""
    found = [json.loads(line) for line in described().read_text().splitlines()]
    for schema in found:
        for one in schema["$defs"].values():
            # A generated union, such as of text and number, describes its own Python
            # object, not what is written in a manifest.
            if "actual_instance" in one.get("properties", {}):
                one.clear()
    return dict(zip(MODELS, map(closed, found), strict=True))


def described() -> Path:
    """
    Return a file with a schema on each line: made once for each set of versions, since
    importing the packages takes seconds.
    """
    if not PACKAGES.is_dir():
        pytest.fail(f"no schemas in {PACKAGES}: run `make setup`", pytrace=False)
    models = json.dumps(list(MODELS.values()))
    versions = (ROOT / "constraints.txt").read_bytes()
    name = hashlib.sha256(versions + models.encode()).hexdigest()[:16]
    kept = ROOT / ".cache" / f"schemas-{name}.jsonl"
    if not kept.exists():
        done = subprocess.run(
            [sys.executable, "-c", _DESCRIBE, str(PACKAGES), models],
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        )
        kept.parent.mkdir(exist_ok=True)
        new = kept.with_suffix(f".{os.getpid()}")
        new.write_text(done.stdout)
        new.replace(kept)
    return kept


def closed(schema: Document) -> Document:
    """Return *schema* with objects that allow their own properties only."""
    result = copy.deepcopy(schema)
    # Held against the schema of Kubernetes instead.
    result["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
    _close(result)
    return result


def _close(schema: Any) -> None:
    if not isinstance(schema, dict):
        return
    keeps = schema.get("x-kubernetes-preserve-unknown-fields")
    if isinstance(schema.get("properties"), dict) and not keeps:
        schema.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        schema.pop("type", None)
    if "pattern" in schema:
        # Go's regular expressions may ignore case from the middle on; we write lower.
        schema["pattern"] = schema["pattern"].replace("(?i)", "")
    for key in ("properties", "$defs"):
        for one in schema.get(key, {}).values():
            _close(one)
    for key in ("items", "additionalProperties"):
        _close(schema.get(key))


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
    return [
        one for one in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader) if one
    ]


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
        for document in yaml.load_all(text, Loader=yaml.CSafeLoader)
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
    validate_alone(document, release)
    for template in pod_templates(document):
        pod = {"apiVersion": "v1", "kind": "Pod", **template}
        builtin(pod, release)


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
    """Assert that sidecars in *document* have few rights and bounded memory."""
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
    """Assert that variables, port and probes are those of sidecar and agent."""
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
