"""Manifests for Kubernetes: valid, of one piece with the sidecar, and hardened."""

import json
from typing import Any

import jsonschema
import pytest
import yaml

from jaxmon.otel import resource as identity
from jaxmon.otel.environment import is_asked, plan
from jaxmon.settings import DEFAULT_PORT
from jaxmon.settings import load as load_settings
from tests.helpers import manifests
from tests.helpers.manifests import (
    IMAGE,
    RELEASES,
    assert_hardened,
    assert_known,
    environ,
)
from tests.helpers.processes import ROOT


MANIFESTS = manifests.manifests()
WORKLOADS = {
    name: document
    for name, document in MANIFESTS.items()
    if list(manifests.pod_templates(document))
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_meets_its_published_schema(name: str, release: str) -> None:
    """It is valid on the oldest and newest release."""
    manifests.validate(MANIFESTS[name], release)


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
    """A misspelt field and a wrong value are found."""
    text = json.dumps(MANIFESTS[name])
    assert old in text
    broken = json.loads(text.replace(old, new))
    with pytest.raises(jsonschema.ValidationError):
        manifests.validate(broken, RELEASES[-1])


def test_every_kind_has_a_schema_of_its_own() -> None:
    """No manifest passes for want of a schema."""
    mute = {
        document["kind"]
        for document in MANIFESTS.values()
        if manifests.is_custom(document)
        and manifests.custom(manifests.kind_of(document)) is None
    }
    assert mute <= {"RayCluster"}


def test_a_definition_is_closed_and_used(tmp_path, monkeypatch):
    """An unknown field of a custom resource is an error."""
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

    manifests.validate({**thing, "metadata": {}, "spec": {"size": 1}}, RELEASES[0])
    for wrong in ({"size": "1"}, {"sise": 1}):
        with pytest.raises(jsonschema.ValidationError):
            manifests.validate({**thing, "spec": wrong}, RELEASES[0])


@pytest.mark.parametrize(
    "name", [one for one in WORKLOADS if list(manifests.sidecars(WORKLOADS[one]))]
)
def test_sidecar_is_hardened(name: str) -> None:
    """It runs without root, capabilities or a token, in bounds."""
    assert_hardened(WORKLOADS[name])


@pytest.mark.parametrize("name", [one for one in WORKLOADS if "raycluster" not in one])
def test_pods_meet_the_restricted_standard(name: str) -> None:
    """Only Ray brings rights of its own."""
    for template in manifests.pod_templates(WORKLOADS[name]):
        spec = template["spec"]
        pod = spec["securityContext"]
        assert not {"hostNetwork", "hostPID", "hostIPC"} & {*spec}
        for volume in spec.get("volumes", ()):
            assert {*volume} & {
                *("configMap", "emptyDir", "persistentVolumeClaim", "secret")
            }
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            context = {**pod, **container["securityContext"]}
            assert context["runAsNonRoot"] is True
            assert context.get("runAsUser") != 0
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["seccompProfile"]["type"] == "RuntimeDefault"
            assert not any("hostPort" in one for one in container.get("ports", ()))


@pytest.mark.parametrize("name", WORKLOADS)
def test_sidecar_is_what_the_command_takes(name: str) -> None:
    """Variables, port and probes are those of ``jaxmon exporter``; the image is one."""
    assert_known(WORKLOADS[name])
    for container in manifests.sidecars(WORKLOADS[name]):
        assert container["image"] == f"{IMAGE}:VERSION@sha256:DIGEST"


@pytest.mark.parametrize(
    "name", [one for one in WORKLOADS if "daemonset" not in one and "#0" in one]
)
def test_native_sidecar_shares_sockets_with_the_program(name: str) -> None:
    """They meet in a volume of memory."""
    for template in manifests.observed(WORKLOADS[name]):
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


def test_a_pushing_server_says_where_it_runs_and_is_ready_when_warm() -> None:
    """Its probe is the agent's."""
    document = MANIFESTS["exporters/kubernetes/otlp.yaml#0"]
    [template] = manifests.pod_templates(document)
    [server] = template["spec"]["containers"]
    found = environ(server)
    attributes = identity.attributes(
        {name: value or "x" for name, value in found.items()}
    )
    assert {"k8s.pod.name", "k8s.node.name", "k8s.namespace.name"} <= set(attributes)
    assert is_asked(found)
    assert plan(found).problems == ()
    port = server["readinessProbe"]["httpGet"]["port"]
    assert server["readinessProbe"]["httpGet"]["path"] == "/-/ready"
    assert {"name": port, "containerPort": DEFAULT_PORT} in server["ports"]
    assert load_settings({}, found).expect_warmup is True
    mounted = {one["mountPath"] for one in server["volumeMounts"]}
    assert found["JAX_COMPILATION_CACHE_DIR"] in mounted


def test_the_receiver_lets_those_in_that_push() -> None:
    """Its policy selects the pods of the manifests that push, and OTLP's ports."""
    policy = MANIFESTS["exporters/kubernetes/otlp.yaml#3"]
    [rule] = policy["spec"]["ingress"]
    wanted = [one["podSelector"]["matchLabels"] for one in rule["from"]]
    for name in ("otlp", "daemonset"):
        document = MANIFESTS[f"exporters/kubernetes/{name}.yaml#0"]
        [template] = manifests.pod_templates(document)
        assert any(labels(template).items() >= one.items() for one in wanted)
    assert {one["port"] for one in rule["ports"]} == {4317, 4318}


def test_whatever_pushes_may_reach_the_receiver() -> None:
    """A policy opens its ports and DNS."""
    receiver = MANIFESTS["exporters/kubernetes/otlp.yaml#3"]
    place = receiver["metadata"]["namespace"]
    [allowed] = receiver["spec"]["ingress"]
    policies = [
        one
        for one in MANIFESTS.values()
        if one["kind"] == "NetworkPolicy" and "Egress" in one["spec"]["policyTypes"]
    ]
    for name in ("otlp", "daemonset"):
        [template] = manifests.pod_templates(
            MANIFESTS[f"exporters/kubernetes/{name}.yaml#0"]
        )
        theirs = [
            one["spec"].get("egress", [])
            for one in policies
            if labels(template).items()
            >= one["spec"]["podSelector"]["matchLabels"].items()
        ]
        rules = [rule for found in theirs for rule in found]
        if not theirs:
            continue
        reaching = {
            port["port"]
            for rule in rules
            for port in rule["ports"]
            for peer in rule.get("to", ())
            if peer["podSelector"] == receiver["spec"]["podSelector"]
            and place in peer["namespaceSelector"]["matchLabels"].values()
        }
        assert reaching == {one["port"] for one in allowed["ports"]}
        dns = [rule["ports"] for rule in rules if "to" not in rule]
        assert dns == [[{"port": 53, "protocol": one} for one in ("UDP", "TCP")]]


def test_every_image_needs_a_digest() -> None:
    """A placeholder that no node accepts stands where the site's digest belongs."""
    images = [
        line.partition("image: ")[2]
        for folder in ("exporters/kubernetes", "examples")
        for path in sorted((ROOT / folder).rglob("*.yaml"))
        for line in path.read_text().splitlines()
        if line.strip().startswith("image: ")
    ]
    assert images
    assert {one.partition(":")[2] for one in images} == {"VERSION@sha256:DIGEST"}


def test_monitors_and_policies_select_pods_and_name_their_port() -> None:
    """Each finds pods of a manifest."""
    templates = [
        template
        for document in WORKLOADS.values()
        for template in manifests.pod_templates(document)
    ]
    for document in MANIFESTS.values():
        if document["kind"] not in ("PodMonitor", "NetworkPolicy"):
            continue
        if document["metadata"].get("namespace") == "observability":
            continue  # of the receiver, which is the site's
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


def test_every_series_names_its_node() -> None:
    """Each monitor has Prometheus add the node, which jaxmon cannot know."""
    monitors = [one for one in MANIFESTS.values() if one["kind"] == "PodMonitor"]
    assert len(monitors) == 2
    for monitor in monitors:
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            assert "node" in {one["targetLabel"] for one in endpoint["relabelings"]}


def test_a_selector_of_a_workload_finds_its_own_pods() -> None:
    """A Deployment's or DaemonSet's selector is a part of its pods' labels."""
    for document in WORKLOADS.values():
        if selector := document["spec"].get("selector"):
            for template in manifests.pod_templates(document):
                assert labels(template).items() >= selector["matchLabels"].items()


def test_kustomization_names_what_is_there() -> None:
    """Its resources exist, and it sets the digest of the image of the manifests."""
    directory = ROOT / "exporters/kubernetes"
    text = (directory / "kustomization.yaml").read_text()
    kustomization = yaml.load(text, Loader=yaml.CSafeLoader)

    assert kustomization["images"] == [{"name": IMAGE, "digest": "sha256:DIGEST"}]
    for name in kustomization["resources"]:
        assert (directory / name).is_file()


def labels(template: dict[str, Any]) -> dict[str, str]:
    return dict(template.get("metadata", {}).get("labels", {}))


def ports(spec: dict[str, Any]) -> set[str]:
    containers = (*spec.get("initContainers", ()), *spec["containers"])
    return {port["name"] for one in containers for port in one.get("ports", ())}
