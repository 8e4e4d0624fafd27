"""
Published schemas of Kubernetes and of the controllers whose resources we have, as a
server holds them that is asked to be strict: unknown fields are refused.
"""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import jsonschema
import pytest
import yaml

from tests.support import ROOT


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


def validate(document: Document, release: str) -> None:
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
    for key in ("properties", "$defs"):
        for one in schema.get(key, {}).values():
            _close(one)
    for key in ("items", "additionalProperties"):
        _close(schema.get(key))
