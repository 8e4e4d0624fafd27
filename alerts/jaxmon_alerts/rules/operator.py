"""What the Prometheus operator takes: PrometheusRule and AlertmanagerConfig."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any, TypeAlias

from jaxmon_alerts.slo.receivers import AlertReceiver, AlertRoute, MuteHours
from jaxmon_alerts.slo.site import RESOURCE_NAME, Site


Document: TypeAlias = dict[str, Any]

# kubectl keeps a resource in an annotation of its own, and all of these have at most
# 262,144 bytes. As JSON, a resource is smaller than here.
_MOST_BYTES = 250_000
_MATCHER = re.compile(r'^(\w+)(=~|!~|!=|=)"(.*)"$', re.DOTALL)
_FILE = "_file"
# What the operator spells in other ways than by capitals.
_SPELLINGS = {
    "source_matchers": "sourceMatch",
    "target_matchers": "targetMatch",
    "api_url": "apiURL",
}


def resources(
    groups: list[Document], site: Site, text: Callable[[Document], str]
) -> Iterator[str]:
    """Yield the *text* of a PrometheusRule with *groups*, of several if it is big."""
    parts: list[list[Document]] = [[]]
    size = 0
    for group in groups:
        more = len(text(_rule([group], site, 1)).encode())
        if parts[-1] and size + more > _MOST_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(group)
        size += more
    for number, part in enumerate(parts, 1):
        yield text(_rule(part, site, number))


def _rule(groups: list[Document], site: Site, number: int) -> Document:
    name = site.resource.name if number == 1 else f"{site.resource.name}-{number}"
    head = _head("v1", "PrometheusRule", name, site)
    return {**head, "spec": {"groups": groups}}


def _head(version: str, kind: str, name: str, site: Site) -> Document:
    resource = site.resource
    namespace = {"namespace": resource.namespace} if resource.namespace else {}
    labels = {"labels": dict(resource.labels)} if kind == "PrometheusRule" else {}
    return {
        "apiVersion": f"monitoring.coreos.com/{version}",
        "kind": kind,
        "metadata": {"name": name, **namespace, **labels},
    }


def notifications(routing: Document, site: Site) -> Document:
    """
    Return *routing*, a configuration of Alertmanager, as an AlertmanagerConfig. Raises
    `SloError`: hours have a time zone, or no Secret has the name of a secret's file.
    """
    ours = AlertRoute((), receivers=site.receivers, mute=site.mute)
    for team in (ours, *site.routes):
        for hours in team.mute or ():
            _check_zone(hours)
        for _, receivers in team.receivers:
            for receiver in receivers:
                _check_secret(receiver)
    # Without a webhook that converts, the operator serves this version alone.
    head = _head("v1alpha1", "AlertmanagerConfig", site.resource.name, site)
    spec = {_camel(key): _converted(value) for key, value in routing.items()}
    if "timeIntervals" in spec:
        spec["muteTimeIntervals"] = spec.pop("timeIntervals")
    return {**head, "spec": spec}


def _check_zone(hours: MuteHours) -> None:
    if hours.zone != "UTC":
        hours.source.fail(
            f"found zone {hours.zone}, but an AlertmanagerConfig has hours in UTC; "
            "give them so, or use Alertmanager's own file (--format prometheusrule)"
        )


def _check_secret(receiver: AlertReceiver) -> None:
    for key, value in receiver.options.items():
        name, _ = _secret(value)
        wrong = key.endswith(_FILE) and not RESOURCE_NAME.fullmatch(name)
        if wrong and receiver.source:
            receiver.source.fail(
                f"{name!r} is no name of a Secret; the operator mounts the key KEY of "
                "the Secret NAME as /etc/alertmanager/secrets/NAME/KEY"
            )


def _secret(path: str) -> tuple[str, str]:
    """Return name and key of the Secret that the operator mounts as *path*."""
    file = PurePosixPath(path)
    return file.parent.name, file.name


def _converted(found: Any) -> Any:
    """Return a part of a configuration of Alertmanager as the operator spells it."""
    if isinstance(found, list):
        return [_converted(item) for item in found]
    if not isinstance(found, dict):
        return found
    made: Document = {}
    for key, value in found.items():
        bare = key.removesuffix(_FILE)
        if key.endswith("matchers"):
            made[_camel(key)] = [_matcher(text) for text in value]
        elif key != bare:
            made[_camel(bare)] = dict(zip(("name", "key"), _secret(value), strict=True))
        else:
            made[_camel(key)] = _converted(value)
    return made


def _camel(key: str) -> str:
    first, *others = key.split("_")
    return _SPELLINGS.get(key) or first + "".join(map(str.capitalize, others))


def _matcher(text: str) -> Document:
    [(name, operator, value)] = _MATCHER.findall(text)
    plain = re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value)
    return {"name": name, "matchType": operator, "value": plain}
