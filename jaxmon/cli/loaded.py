"""Rules that a running Prometheus, Thanos or Mimir has loaded, compared with ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.parse import quote, urlsplit

from jaxmon.errors import CommandError
from jaxmon.http import client
from jaxmon.http.urls import place_of, target_of


_OURS = "jaxmon-"
_SECONDS = 30.0
_MAX_BYTES = 64 << 20

Document = Mapping[str, Any]


def differences(url: str, groups: list[dict[str, Any]]) -> Iterator[str]:
    """
    Yield what differs between *groups*, as in a rule file, and what runs at *url*.

    Groups of others are left alone. Expressions are compared as the server formats
    them.

    Args:
        url: of the server, with the path prefix of its API if it has one.
        groups: all rules that should be there.

    Raises:
        CommandError: the server does not answer, or not like a Prometheus.
    """
    server = _Server(url.rstrip("/"))
    loaded = {
        one["name"]: one for one in server.groups() if one["name"].startswith(_OURS)
    }
    wanted = {one["name"]: one for one in groups}
    for name in loaded.keys() - wanted.keys():
        yield f"group {name} is loaded, but not generated"
    for name, group in wanted.items():
        if name not in loaded:
            yield f"group {name} is not loaded"
        else:
            for problem in _differences(server, group, loaded[name]):
                yield f"group {name}: {problem}"


def _differences(server: _Server, wanted: Document, loaded: Document) -> Iterator[str]:
    interval = _seconds(wanted["interval"])
    if loaded["interval"] != interval:
        yield f"its interval is {loaded['interval']:g} s, expected {interval:g} s"
    rules = [_identified(_described(one)) for one in wanted["rules"]]
    others = [_identified(_loaded(one)) for one in loaded["rules"]]
    found = dict(others)
    for name, rule in rules:
        if name not in found:
            yield f"{_shown(name)} is not loaded"
            continue
        other = found[name]
        for key, value in rule.items():
            same = other[key] == value or (
                key == "query"
                and server.formatted(value) == server.formatted(other[key])
            )
            if not same:
                yield f"{_shown(name)}: {key} is {other[key]!r}, expected {value!r}"
    for name in found.keys() - dict(rules).keys():
        yield f"{_shown(name)} is loaded, but not generated"


class _Server:
    def __init__(self, url: str) -> None:
        self._url = url
        self._formatted: dict[str, str] = {}

    def groups(self) -> list[dict[str, Any]]:
        try:
            groups: list[dict[str, Any]] = self._get("rules")["groups"]
        except (KeyError, TypeError) as error:
            msg = f"{self._url} returned no rules; is it really a Prometheus?"
            raise CommandError(msg) from error
        return groups

    def formatted(self, query: str) -> str:
        """Return *query* as the server writes it."""
        if query not in self._formatted:
            found = self._get(f"format_query?query={quote(query, safe='')}")
            self._formatted[query] = str(found)
        return self._formatted[query]

    def _get(self, path: str) -> Any:
        url = f"{self._url}/api/v1/{path}"
        parts = urlsplit(url)
        try:
            response = client.get(
                place_of(parts),
                target_of(parts),
                seconds=_SECONDS,
                max_bytes=_MAX_BYTES,
            )
            if response.status == HTTPStatus.OK:
                return response.json()["data"]
        except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
            msg = f"{self._url} does not respond like a Prometheus: {error}"
            raise CommandError(msg) from error
        msg = f"{self._url} returned HTTP status {response.status} for {path[:40]}"
        raise CommandError(msg)


def _described(rule: Document) -> dict[str, Any]:
    """Return what matters of a rule of a rule file."""
    return {
        "name": rule.get("alert") or rule["record"],
        "query": rule["expr"],
        "for": _seconds(rule.get("for", "0s")),
        "labels": dict(rule.get("labels", {})),
        "annotations": dict(rule.get("annotations", {})),
    }


def _loaded(rule: Document) -> dict[str, Any]:
    """Return what matters of a rule of the API."""
    return {
        "name": rule["name"],
        "query": rule["query"],
        "for": float(rule.get("duration", 0)),
        "labels": dict(rule.get("labels", {})),
        "annotations": dict(rule.get("annotations", {})),
    }


def _identified(rule: dict[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
    labels = (f"{key}={value}" for key, value in sorted(rule["labels"].items()))
    return (rule["name"], *labels), rule


def _shown(name: tuple[str, ...]) -> str:
    return f"{name[0]}{{{', '.join(name[1:])}}}"


def _seconds(duration: str) -> float:
    from jaxmon.formats import durations

    return 0.0 if duration == "0s" else float(durations.seconds(duration))
