"""The chart: what Helm makes of it, with usual and unusual values."""

import json
import re
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
import yaml

from jaxmon.version import version
from tests.helpers import manifests
from tests.helpers.manifests import (
    CHART,
    IMAGE,
    RELEASES,
    Document,
    assert_hardened,
    assert_known,
    chart_documents,
    environ,
)


EVERYTHING: Document = {
    "image": {
        "repository": f"{IMAGE}",
        "tag": "9.9",
        "pullPolicy": "Always",
        "digest": f"sha256:{'0' * 64}",
    },
    "imagePullSecrets": [{"name": "registry"}],
    "env": {"JAXMON_EXPORTER_DISABLE": "agents host", "JAXMON_EXPORTER_DEMO": True},
    "port": 9999,
    "user": 1_000_680_000,
    "nvidia": {"visibleDevices": "0,1", "runtimeClassName": "nvidia"},
    "nodeSelector": {"pool": "gpus"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "podAnnotations": {"a": "b"},
    "podLabels": {"c": "d"},
    "priorityClassName": "system-node-critical",
    "resources": {"requests": {"cpu": 1}, "limits": {"memory": "1Gi"}},
    "serviceAccount": {"create": True, "name": "mine"},
    "webConfig": {"content": "basic_auth_users:\n  a: $2b$10$x\n"},
    "otlp": {
        "enabled": True,
        "endpoint": "http://$(HOST_IP):4317",
        "protocol": "grpc",
        "resourceAttributes": {"team": "a b", "deployment.environment.name": "prod"},
        "headersSecret": "token",
    },
    "podMonitor": {
        "enabled": True,
        "interval": "1m30s",
        "labels": {"release": "x"},
        "endpoint": {"scheme": "https", "tlsConfig": {"serverName": "jaxmon"}},
    },
    "networkPolicy": {
        "enabled": True,
        "fromNamespaces": ["a", "b"],
        "egress": [{"ports": [{"port": 9400, "protocol": "TCP"}]}],
    },
}


def test_chart_renders_valid_manifests() -> None:
    """Helm accepts the chart, and what comes out is valid."""
    answers, lint = manifests.rendered({}, EVERYTHING)

    assert lint == []
    for answer in answers:
        assert_valid(answer)
        daemonset = chart_documents(answer)["DaemonSet"]
        assert_hardened(daemonset)
        assert_known(daemonset)

    # A number is a float to Helm, and a large one would be written as one.
    text = answers[1]["files"]["jaxmon/templates/daemonset.yaml"]
    assert "runAsUser: 1000680000\n" in text
    full = chart_documents(answers[1])
    [container] = manifests.sidecars(full["DaemonSet"])
    assert container["image"] == f"{IMAGE}:9.9@sha256:{'0' * 64}"
    assert "tcpSocket" in container["readinessProbe"]
    assert environ(container)["JAXMON_EXPORTER_WEB_CONFIG"] == "/etc/jaxmon/web.yml"
    assert full["Secret"]["stringData"] == {
        "web.yml": EVERYTHING["webConfig"]["content"]
    }
    assert full["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["scheme"] == "https"
    default = chart_documents(answers[0])
    assert "Secret" not in default
    assert "volumes" not in default["DaemonSet"]["spec"]["template"]["spec"]


def test_chart_pushes_by_otlp() -> None:
    """With otlp, the sidecar knows receiver and pod."""
    secure = {"otlp": {"enabled": True, "endpoint": "https://collector.example/x"}}
    answers, _ = manifests.rendered(EVERYTHING, secure, {"otlp": {"enabled": True}})
    full, usual = map(chart_documents, answers[:2])
    [container] = manifests.sidecars(full["DaemonSet"])
    names = [one["name"] for one in container["env"]]
    found = environ(container)
    assert found["JAXMON_EXPORTER_OTLP"] == "true"
    assert names.index("HOST_IP") < names.index("OTEL_EXPORTER_OTLP_ENDPOINT")
    pairs = [one.split("=") for one in found["OTEL_RESOURCE_ATTRIBUTES"].split(",")]
    attributes = {key: unquote(value) for key, value in pairs}
    assert attributes == EVERYTHING["otlp"]["resourceAttributes"]
    sources = {one["name"]: one.get("valueFrom") for one in container["env"]}
    assert sources["K8S_NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert sources["OTEL_EXPORTER_OTLP_HEADERS"] == {
        "secretKeyRef": {"name": "token", "key": "headers"}
    }

    def reached(documents: dict[str, Document]) -> list[int]:
        rules = documents["NetworkPolicy"]["spec"]["egress"]
        return [port["port"] for rule in rules for port in rule["ports"]]

    assert reached(full) == [9400, 53, 53, 4317]
    assert reached(usual) == [53, 53, 443]
    assert "otlp.endpoint" in answers[2]["error"]


def test_chart_switches_off_what_is_not_wanted() -> None:
    """Only the DaemonSet is left then."""
    values = {
        "serviceAccount": {"create": False},
        "podMonitor": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "webConfig": {"existingSecret": "ours", "content": "ignored"},
    }
    [answer], _ = manifests.rendered(values)
    found = chart_documents(answer)
    spec = found["DaemonSet"]["spec"]["template"]["spec"]

    assert set(found) == {"DaemonSet"}
    assert spec["serviceAccountName"] == "default"
    assert [one["secret"]["secretName"] for one in spec["volumes"]] == ["ours"]


def test_text_stays_text() -> None:
    """Names like numbers or truth values arrive as they were given."""
    values: Document = {
        "env": {"Y": "off", "LARGE": 12_345_678, "HALF": 0.5, "WORD": "1e6"},
        "nvidia": {"runtimeClassName": "on"},
        "priorityClassName": "1",
        "serviceAccount": {"name": "007"},
        "webConfig": {"existingSecret": "1.5"},
        "networkPolicy": {"fromNamespaces": ["123", "true"]},
    }
    [answer], _ = manifests.rendered(values, name="42")
    assert_valid(answer)
    found = chart_documents(answer)
    [container] = manifests.sidecars(found["DaemonSet"])
    variables = environ(container)

    assert {name: variables[name] for name in values["env"]} == {
        "Y": "off",
        "LARGE": "12345678",
        "HALF": "0.5",
        "WORD": "1e6",
    }


def test_objects_of_another_chart_keep_their_names() -> None:
    """No object takes the release's own name."""
    for name, expected in (("jaxmon", "jaxmon"), ("shop", "shop-jaxmon")):
        [answer], _ = manifests.rendered(EVERYTHING | {"serviceAccount": {}}, name=name)
        found = chart_documents(answer)
        names = {kind: one["metadata"]["name"] for kind, one in found.items()}
        assert set(names.values()) == {expected, f"{expected}-web"}
        labels = found["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
        for kind in ("DaemonSet", "PodMonitor"):
            wanted = found[kind]["spec"]["selector"]["matchLabels"]
            assert labels.items() >= wanted.items()
        policy = found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]
        assert labels.items() >= policy.items()


def test_null_takes_a_default_out() -> None:
    """The cluster may choose user, nodes and collectors."""
    values = {
        "user": None,
        "nodeSelector": {"nvidia.com/gpu.present": None, "pool": "gpus"},
        "env": {"JAXMON_EXPORTER_DISABLE": None},
    }
    [answer], _ = manifests.rendered(values)
    assert_valid(answer)
    daemonset = chart_documents(answer)["DaemonSet"]
    spec = daemonset["spec"]["template"]["spec"]
    [container] = manifests.sidecars(daemonset)

    assert_hardened(daemonset)
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & {*spec["securityContext"]}
    assert spec["nodeSelector"] == {"pool": "gpus"}
    assert "JAXMON_EXPORTER_DISABLE" not in environ(container)


def test_notes_say_what_was_chosen() -> None:
    """Helm says how to look at a sidecar."""
    unmonitored = EVERYTHING | {"podMonitor": {"enabled": False}}
    answers, _ = manifests.rendered({}, unmonitored, name="shop")
    default, told = (one["files"]["jaxmon/templates/NOTES.txt"] for one in answers)

    for text, port in ((default, 9467), (told, 9999)):
        command = f"kubectl -n monitored port-forward daemonset/shop-jaxmon {port}"
        assert command in text
    assert "namespaces may scrape them: monitoring." in default
    assert "namespaces may scrape them: a, b." in told
    assert "https" in told
    assert "podMonitor.enabled is false" in told
    assert not {"https", "podMonitor"} & {*re.findall(r"\w+", default)}


@pytest.mark.parametrize(
    "values",
    [
        {"prot": 9467},
        {"port": "9467"},
        {"port": 80},
        {"podMonitor": {"interval": "often"}},
        {"networkPolicy": {"fromNamespaces": []}},
        {"env": {"JAXMON_EXPORTER_PORT": "1"}},
        {"env": {"not a name": "1"}},
        {"user": 0},
        {"podLabels": {"app.kubernetes.io/name": "mine"}},
        {"podMonitor": {"endpoint": {"port": "http"}}},
        {"image": {"pullPolicy": "Sometimes"}},
        {"image": {"digest": "latest"}},
    ],
)
def test_values_schema_refuses(values: dict[str, Any]) -> None:
    """A misspelt or impossible value is an error before anything is installed."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, schema)


def test_helm_says_what_to_do_about_a_value() -> None:
    """Helm refuses it with its path and a hint."""
    values = {"env": {"JAXMON_EXPORTER_PORT": "1"}}
    [answer], _ = manifests.rendered(values)

    assert "/env/JAXMON_EXPORTER_PORT" in answer["error"]
    assert "set by the value port" in answer["error"]


def test_values_schema_knows_every_value() -> None:
    """The defaults meet the schema, and cover it."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.load((CHART / "values.yaml").read_text(), Loader=yaml.CSafeLoader)
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(values, schema)

    assert set(schema["properties"]) - {"global"} == set(values) == set(EVERYTHING)


def test_chart_is_of_this_release() -> None:
    """The chart installs the image of the version that it comes with."""
    chart = yaml.load((CHART / "Chart.yaml").read_text(), Loader=yaml.CSafeLoader)
    release = re.match(r"[\d.]+\d", version())
    assert release is not None
    assert chart["appVersion"] == chart["version"] == release[0]


def assert_valid(answer: Any) -> None:
    for document in chart_documents(answer).values():
        for release in RELEASES:
            manifests.validate(document, release)
