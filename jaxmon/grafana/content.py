"""
Dashboard content, without the parts assigned by Grafana.

Two bodies with the same *content* look the same to users of the dashboard. `push`
stores its hash in the message of each saved version, to detect later whether a
dashboard has changed since the push.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from jaxmon.errors import ConfigFileError, JaxmonError
from jaxmon.files.bounded import read_text
from jaxmon.formats import json_text
from jaxmon.version import version


Body: TypeAlias = Mapping[str, Any]

TAG = "jaxmon"
"""Tag of the dashboards that `push` may replace."""

MAX_TITLE = 5000

_MAX_BYTES = 32 << 20

# Written by Grafana, or a number that differs from one installation to the next.
_ASSIGNED = frozenset({"id", "iteration", "schemaVersion", "uid", "version"})

_UID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_MESSAGE = re.compile(r"jaxmon push \S+ sha256:([0-9a-f]{64})")


class ContentError(JaxmonError, ValueError):
    """A file that is not a dashboard, or one that cannot be pushed."""


@dataclass(frozen=True)
class Dashboard:
    """
    A desired dashboard.

    Args:
        body: from a file or a renderer, plus the tag `TAG`.
    """

    uid: str
    title: str
    body: Body

    @cached_property
    def digest(self) -> str:
        """The hash of its content."""
        return digest(self.body)

    @property
    def message(self) -> str:
        """The message for this version in Grafana's history."""
        return f"jaxmon push {version()} sha256:{self.digest}"


def pushed_digest(message: str) -> str | None:
    """Return the hash in a version's *message*, `None` if no push wrote it."""
    found = _MESSAGE.fullmatch(message)
    return found and found[1]


def content(body: Body) -> dict[str, Any]:
    """
    Return *body* without what Grafana assigns, keeps as state, or treats as absent.

    The current value of a variable is state; ``null``, ``[]`` and ``{}`` count as
    absent.
    """
    kept = {key: value for key, value in body.items() if key not in _ASSIGNED}
    if isinstance(templating := kept.get("templating"), dict):
        variables = templating.get("list")
        if isinstance(variables, list):
            stateless = [_stateless(one) for one in variables]
            kept["templating"] = {**templating, "list": stateless}
    compact: dict[str, Any] = _compact(kept)
    return compact


def is_tagged(body: Body) -> bool:
    """Return whether *body* has the tag `TAG`."""
    tags = body.get("tags")
    return isinstance(tags, list) and TAG in tags


def digest(body: Body) -> str:
    """Return the SHA-256 of the content of *body*, in hexadecimal."""
    text = json.dumps(
        content(body), sort_keys=True, separators=(",", ":"), ensure_ascii=True
    )
    return hashlib.sha256(text.encode()).hexdigest()


def lines(body: Body) -> list[str]:
    """Return the content of *body* as lines to compare."""
    text = json.dumps(content(body), sort_keys=True, indent=2, ensure_ascii=False)
    # What others wrote must not control the terminal that shows it.
    return [
        line if line.isprintable() else line.encode("unicode_escape").decode()
        for line in text.split("\n")
    ]


def is_uid(text: str) -> bool:
    """Return whether *text* is a valid uid of a dashboard or folder."""
    return _UID.fullmatch(text) is not None


def parse(text: str, source: str) -> Dashboard:
    """
    Return the dashboard that *text* describes, in Grafana's classic JSON.

    Raises:
        ContentError: it cannot be pushed; the message names *source*.
    """
    try:
        body = json_text.parse(text)
    except ValueError as error:
        msg = f"{source}: {error}"
        raise ContentError(msg) from error
    if not isinstance(body, dict):
        msg = f"{source}: not a dashboard: a JSON object is needed"
        raise ContentError(msg)
    if reason := _unusable(body):
        msg = f"{source}: {reason}"
        raise ContentError(msg)
    if not is_tagged(body):
        body["tags"] = [*(body.get("tags") or ()), TAG]
    return Dashboard(body["uid"], body["title"], body)


def load(paths: Iterable[Path]) -> list[Dashboard]:
    """
    Return the dashboards in files, and in the ``*.json`` files of directories.

    Raises:
        ContentError: a file cannot be read or pushed.
    """
    files = [
        file
        for path in paths
        for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])
    ]
    texts = {}
    for file in files:
        try:
            text = read_text(file, most=_MAX_BYTES, pipe=True)
        except ConfigFileError as error:
            msg = f"{file}: {error}"
            raise ContentError(msg) from error
        texts[str(file)] = text
    return parse_all(texts)


def parse_all(texts: Mapping[str, str]) -> list[Dashboard]:
    """
    Return the dashboards in *texts*, which are by source; uids and titles are unique.

    Raises:
        ContentError: one cannot be pushed, or two share a uid or title.
    """
    found: list[Dashboard] = []
    seen: dict[str, str] = {}
    for source, text in texts.items():
        one = parse(text, source)
        for key in (f"uid={one.uid!r}", f"title={one.title!r}"):
            if key in seen:
                msg = f"{seen[key]} and {source} both have {key}; it must be unique"
                raise ContentError(msg)
            seen[key] = source
        found.append(one)
    return found


def _unusable(body: Body) -> str:
    """
    Return why Grafana would not take *body*, or not as it is meant; ``""`` if it will.
    """
    uid, title = body.get("uid"), body.get("title")
    if "apiVersion" in body and "spec" in body:
        return "in the format of Grafana's new API; save it in the classic format"
    if body.get("__inputs"):
        return (
            "exported for manual import (__inputs); use a datasource variable instead"
        )
    if not isinstance(uid, str) or not is_uid(uid):
        return f"uid={uid!r} is invalid; give 1 to 40 letters, digits, - or _"
    if not isinstance(title, str) or not title.strip() or len(title) > MAX_TITLE:
        return f"a title of 1 to {MAX_TITLE} characters is needed"
    if not isinstance(body.get("tags") or [], list):
        return f"tags={body['tags']!r} is invalid; give a list"
    return ""


def _stateless(variable: Any) -> Any:
    if not isinstance(variable, dict):
        return variable
    return {key: value for key, value in variable.items() if key != "current"}


def _compact(value: Any) -> Any:
    """
    Return *value* without members that are as good as absent; 1.0 becomes 1.

    The items of a list stay: their places mean something.
    """
    if isinstance(value, Mapping):
        members = {key: _compact(item) for key, item in value.items()}
        return {key: item for key, item in members.items() if not _absent(item)}
    if isinstance(value, list):
        return [_compact(item) for item in value]
    # Go writes 1.0 as 1, so both are the same number to Grafana.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _absent(value: Any) -> bool:
    return value is None or value in ([], {})
