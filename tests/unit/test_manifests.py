"""
Manifests for Kubernetes: valid, of one piece with the sidecar, and hardened.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from jaxmon.cli.main import load
from jaxmon.settings import Settings
from jaxmon.version import version
from jaxmon_exporter.options import COLLECTORS, Options
from tests import deployment, schemas
from tests.deployment import CHART, chart_documents
from tests.schemas import RELEASES
from tests.support import ROOT


MANIFESTS = deployment.manifests()
WORKLOADS = {
    name: document
    for name, document in MANIFESTS.items()
    if list(deployment.pod_templates(document))
}
IMAGE = "ghcr.io/jaxmon/jaxmon-exporter"


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_meets_its_published_schema(name: str, release: str) -> None:
    """
    Each manifest is valid on the oldest and the newest release, without unknown fields.
    """
    deployment.validate(MANIFESTS[name], release)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("exporters/kubernetes/daemonset.yaml#0", "maxUnavailable", "maxUnavailible"),
        ("exporters/kubernetes/daemonset.yaml#0", "9467", '"9467"'),
        ("exporters/kubernetes/podmonitor.yaml#0", '"interval"', '"intervall"'),
        ("exporters/kubernetes/podmonitor.yaml#0", "15s", "15 seconds"),
        ("exporters/kubernetes/podmonitor.yaml#0", '"labels"', '"label"'),
        ("exporters/kubernetes/autoscaling/keda.yaml#0", "600", '"600"'),
        ("exporters/kubernetes/autoscaling/keda.yaml#0", "scaleDown", "scaledown"),
        ("examples/cluster/jobset.yaml#0", '"replicas": 1', '"replica": 1'),
        ("examples/cluster/jobset.yaml#0", "completionMode", "completionmode"),
        ("examples/cluster/jobset.yaml#0", "startupProbe", "startUpProbe"),
        ("examples/cluster/raycluster.yaml#0", "containerPort", "containersPort"),
    ],
)
def test_schemas_find_what_is_wrong(name: str, old: str, new: str) -> None:
    """
    A misspelt field and a wrong value are found, in resources of Kubernetes and of
    controllers, in their metadata and pods: what the test above says means something.
    """
    text = json.dumps(MANIFESTS[name])
    assert old in text
    broken = json.loads(text.replace(old, new))
    with pytest.raises(jsonschema.ValidationError):
        deployment.validate(broken, RELEASES[-1])


def test_every_kind_has_a_schema_of_its_own() -> None:
    """
    No manifest passes for want of a schema; Ray's is in no package, and of it only the
    pods are held against one where ``KUBERNETES_CRDS`` names none.
    """
    mute = {
        document["kind"]
        for document in MANIFESTS.values()
        if schemas.is_custom(document)
        and schemas.custom(schemas.kind_of(document)) is None
    }
    assert mute <= {"RayCluster"}


def test_a_definition_is_closed_and_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    With ``KUBERNETES_CRDS`` a custom resource meets its controller's schema, and a
    field that this does not know is an error.
    """
    spec = {"type": "object", "properties": {"size": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"spec": spec}}
    definition = {
        "spec": {
            "group": "example.com",
            "names": {"kind": "Thing"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}],
        }
    }
    (tmp_path / "things.yaml").write_text(yaml.safe_dump(definition))
    monkeypatch.setenv("KUBERNETES_CRDS", str(tmp_path))
    thing: dict[str, Any] = {"apiVersion": "example.com/v1", "kind": "Thing"}

    deployment.validate({**thing, "metadata": {}, "spec": {"size": 1}}, RELEASES[0])
    for wrong in ({"size": "1"}, {"sise": 1}):
        with pytest.raises(jsonschema.ValidationError):
            deployment.validate({**thing, "spec": wrong}, RELEASES[0])


@pytest.mark.parametrize("name", WORKLOADS)
def test_sidecar_is_hardened(name: str) -> None:
    """
    Every sidecar runs as a number that is not root's, on a read-only root, without
    capabilities or a token, within bounds of memory.
    """
    assert_hardened(WORKLOADS[name])


@pytest.mark.parametrize("name", WORKLOADS)
def test_sidecar_is_what_the_command_takes(name: str) -> None:
    """
    Variables, port and probes are those of ``jaxmon exporter``; the image is one.
    """
    assert_known(WORKLOADS[name])
    for container in deployment.sidecars(WORKLOADS[name]):
        assert container["image"] == f"{IMAGE}:VERSION"


@pytest.mark.parametrize(
    "name", [one for one in WORKLOADS if "daemonset" not in one and "#0" in one]
)
def test_native_sidecar_shares_sockets_with_the_program(name: str) -> None:
    """
    The sidecar starts before the program, restarts always, and meets it in a volume of
    memory that belongs to a group of its own.
    """
    for template in deployment.observed(WORKLOADS[name]):
        spec = template["spec"]
        sidecar, program = spec["initContainers"][0], spec["containers"][0]
        run_dirs = {environ(one)["JAXMON_RUN_DIR"] for one in (sidecar, program)}
        mounts = [
            {mount["mountPath"]: mount["name"] for mount in one["volumeMounts"]}
            for one in (sidecar, program)
        ]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}

        assert sidecar["restartPolicy"] == "Always"
        assert run_dirs == {"/run/jaxmon"}
        assert mounts[0]["/run/jaxmon"] == mounts[1]["/run/jaxmon"]
        assert volumes[mounts[0]["/run/jaxmon"]]["emptyDir"]["medium"] == "Memory"
        assert spec["securityContext"]["fsGroup"] == 10001
        assert sidecar["securityContext"]["runAsGroup"] == 10001
        assert template["metadata"]["labels"]["jaxmon"] == "sidecar"


def test_monitors_and_policies_select_pods_and_name_their_port() -> None:
    """
    Each PodMonitor and NetworkPolicy finds pods of a manifest here, and a port of them.
    """
    templates = [
        template
        for document in WORKLOADS.values()
        for template in deployment.pod_templates(document)
    ]
    for document in MANIFESTS.values():
        if document["kind"] not in ("PodMonitor", "NetworkPolicy"):
            continue
        spec = document["spec"]
        wanted = (spec.get("podSelector") or spec.get("selector"))["matchLabels"]
        chosen = [one for one in templates if labels(one).items() >= wanted.items()]
        assert chosen, document["metadata"]["name"]
        asked = {
            one["port"]
            for one in (
                *spec.get("podMetricsEndpoints", ()),
                *(port for rule in spec.get("ingress", ()) for port in rule["ports"]),
            )
        }
        for template in chosen:
            assert asked <= ports(template["spec"])


def test_a_selector_of_a_workload_finds_its_own_pods() -> None:
    """
    A Deployment's or DaemonSet's selector is a part of its pods' labels.
    """
    for document in WORKLOADS.values():
        if selector := document["spec"].get("selector"):
            for template in deployment.pod_templates(document):
                assert labels(template).items() >= selector["matchLabels"].items()


def test_kustomization_names_what_is_there() -> None:
    """
    Its resources exist, and the image whose tag it sets is that of the manifests.
    """
    directory = ROOT / "exporters/kubernetes"
    text = (directory / "kustomization.yaml").read_text()
    kustomization = yaml.safe_load(text)

    assert [one["name"] for one in kustomization["images"]] == [IMAGE]
    for name in kustomization["resources"]:
        assert (directory / name).is_file()


def test_chart_renders_valid_manifests() -> None:
    """
    With its defaults and with everything switched on, Helm's own engine and linter
    accept the chart, and what comes out is valid, hardened and known to the sidecar.
    """
    everything = {
        "image": {"tag": "9.9"},
        "imagePullSecrets": [{"name": "registry"}],
        "env": {"JAXMON_EXPORTER_DISABLE": "agents host", "JAXMON_EXPORTER_DEMO": True},
        "port": 9999,
        "nvidia": {"runtimeClassName": "nvidia"},
        "affinity": {"nodeAffinity": {}},
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "priorityClassName": "system-node-critical",
        "serviceAccount": {"name": "mine"},
        "webConfig": {"content": "basic_auth_users:\n  a: $2b$10$x\n"},
        "podMonitor": {"labels": {"release": "x"}, "endpoint": {"scheme": "https"}},
        "networkPolicy": {
            "fromNamespaces": ["a", "b"],
            "egress": [{"ports": [{"port": 9400, "protocol": "TCP"}]}],
        },
    }
    answers, lint = deployment.rendered({}, everything)

    assert lint == []
    for answer in answers:
        for document in chart_documents(answer).values():
            for release in RELEASES:
                deployment.validate(document, release)
        daemonset = chart_documents(answer)["DaemonSet"]
        assert_hardened(daemonset)
        assert_known(daemonset)

    full = chart_documents(answers[1])
    [container] = deployment.sidecars(full["DaemonSet"])
    assert container["image"] == f"{IMAGE}:9.9"
    assert "tcpSocket" in container["readinessProbe"]
    assert environ(container)["JAXMON_EXPORTER_WEB_CONFIG"] == "/etc/jaxmon/web.yml"
    assert full["Secret"]["stringData"] == {
        "web.yml": everything["webConfig"]["content"]  # type: ignore[index]
    }
    assert full["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["scheme"] == "https"
    default = chart_documents(answers[0])
    assert "Secret" not in default
    assert "volumes" not in default["DaemonSet"]["spec"]["template"]["spec"]


def test_chart_switches_off_what_is_not_wanted() -> None:
    """
    Without monitor, policy and account, and with a Secret of the site's, only the
    DaemonSet is left, and it uses what is there.
    """
    values = {
        "serviceAccount": {"create": False},
        "podMonitor": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "webConfig": {"existingSecret": "ours", "content": "ignored"},
    }
    [answer], _ = deployment.rendered(values)
    found = chart_documents(answer)
    spec = found["DaemonSet"]["spec"]["template"]["spec"]

    assert set(found) == {"DaemonSet"}
    assert spec["serviceAccountName"] == "default"
    assert [one["secret"]["secretName"] for one in spec["volumes"]] == ["ours"]


@pytest.mark.parametrize(
    "values",
    [
        {"prot": 9467},
        {"port": "9467"},
        {"port": 80},
        {"podMonitor": {"interval": "often"}},
        {"networkPolicy": {"fromNamespaces": []}},
        {"env": {"JAXMON_EXPORTER_PORT": "1"}},
        {"image": {"pullPolicy": "Sometimes"}},
    ],
)
def test_values_schema_refuses(values: dict[str, Any]) -> None:
    """
    A misspelt or impossible value is an error before anything is installed.
    """
    schema = json.loads((CHART / "values.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, schema)


def test_values_schema_knows_every_value() -> None:
    """
    The defaults meet the schema, and each of its properties has a default.
    """
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(values, schema)

    assert set(schema["properties"]) - {"global"} == set(values)


def test_chart_is_of_this_release() -> None:
    """
    The chart installs the image of the version that it comes with.
    """
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    release = re.match(r"[\d.]+\d", version())
    assert release is not None
    assert chart["appVersion"] == chart["version"] == release[0]


def assert_hardened(document: dict[str, Any]) -> None:
    found = list(deployment.sidecars(document))
    assert found
    [template] = deployment.observed(document)
    pod = template["spec"].get("securityContext", {})
    for container in found:
        context = {**pod, **container["securityContext"]}
        assert context["runAsNonRoot"] is True
        assert context["runAsUser"] > 0
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


def assert_known(document: dict[str, Any]) -> None:
    options = {one.envvar for one in load("exporter").params if one.envvar}
    agent = {f"JAXMON_{name.upper()}" for name in Settings.__dataclass_fields__}
    for container in deployment.sidecars(document):
        variables = environ(container)
        ours = {name for name in variables if name.startswith("JAXMON_")}
        port = int(variables.get("JAXMON_EXPORTER_PORT", Options(run_dir=Path()).port))
        assert ours <= options
        assert set(variables.get("JAXMON_EXPORTER_DISABLE", "").split()) <= {
            *COLLECTORS
        }
        assert [one["containerPort"] for one in container["ports"]] == [port]
        for kind, path in (
            ("startupProbe", "/-/healthy"),
            ("livenessProbe", "/-/healthy"),
            ("readinessProbe", "/-/ready"),
        ):
            if get := container.get(kind, {}).get("httpGet"):
                assert get == {"path": path, "port": "jaxmon"}
    for template in deployment.pod_templates(document):
        for container in template["spec"]["containers"]:
            if "jaxmon-exporter" not in container["image"]:
                ours = {one for one in environ(container) if one.startswith("JAXMON_")}
                assert ours <= agent


def environ(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container.get("env", ())}


def labels(template: dict[str, Any]) -> dict[str, str]:
    return dict(template.get("metadata", {}).get("labels", {}))


def ports(spec: dict[str, Any]) -> set[str]:
    containers = (*spec.get("initContainers", ()), *spec["containers"])
    return {port["name"] for one in containers for port in one.get("ports", ())}
