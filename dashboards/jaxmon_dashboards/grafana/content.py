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
from typing import Any, Literal, TypeAlias

from jaxmon.errors import ConfigFileError, JaxmonError, raised
from jaxmon.host.files.bounded import read_text
from jaxmon.host.formats import json_text
from jaxmon.version import version


Body: TypeAlias = Mapping[str, Any]

Model: TypeAlias = Literal["classic", "v2"]

GROUP = "dashboard.grafana.app"
VERSION = "v2"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "Dashboard"

# Written by Grafana, or a number that differs from one installation to the next.
_ASSIGNED = frozenset({"id", "iteration", "schemaVersion", "uid", "version"})

# Members that a server adds to each resource that has none, with these values.
_ADDED: Mapping[str, object] = {
    **dict.fromkeys(("allowCustomValue", "asDropdown", "enable", "hidden"), False),
    **dict.fromkeys(("hide", "hideTimepicker", "includeAll", "includeVars"), False),
    **dict.fromkeys(("keepTime", "multi", "preload", "skipUrlSync"), False),
    **dict.fromkeys(("autoRefresh", "icon", "iconColor", "regex", "tooltip"), ""),
    "fiscalYearStartMonth": 0,
    "targetBlank": False,
}


def model_of(body: Body) -> Model:
    """Return the model that *body* is of."""
    return "v2" if "apiVersion" in body and "spec" in body else "classic"


def shown(body: Body) -> Body:
    """Return the object with title and tags: the body, or the spec of a resource."""
    spec = body["spec"] if model_of(body) == "v2" else body
    return spec if isinstance(spec, Mapping) else {}


def content(body: Body) -> dict[str, Any]:
    """
    Return *body* without what Grafana assigns, keeps as state (the current value of a
    variable), or treats as absent: ``null``, ``[]``, ``{}``. Of a resource, only the
    spec.
    """
    if model_of(body) == "v2":
        spec = {**shown(body)}
        if isinstance(variables := spec.get("variables"), list):
            spec["variables"] = [
                {**variable, "spec": _stateless(variable.get("spec"))}
                if isinstance(variable, dict)
                else variable
                for variable in variables
            ]
        return {"kind": KIND, "spec": _without_added(_compact(spec))}
    kept = {key: value for key, value in body.items() if key not in _ASSIGNED}
    if isinstance(templating := kept.get("templating"), dict):
        variables = templating.get("list")
        if isinstance(variables, list):
            variables = [*map(_stateless, variables)]
        kept["templating"] = {**templating, "list": variables}
    compact: dict[str, Any] = _compact(kept)
    return compact


def _stateless(variable: Any) -> Any:
    if not isinstance(variable, dict):
        return variable
    return {key: value for key, value in variable.items() if key != "current"}


def _without_added(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_added(item)
            for key, item in value.items()
            # In Python, false equals 0.
            if (type(item), item) != (type(_ADDED.get(key)), _ADDED.get(key))
        }
    if isinstance(value, list):
        return [_without_added(item) for item in value]
    return value


def _compact(value: Any) -> Any:
    """Return *value* without absent members, and 1.0 as 1; lists keep places."""
    if isinstance(value, Mapping):
        members = {key: _compact(item) for key, item in value.items()}
        return {
            key: item
            for key, item in members.items()
            if item is not None and item not in ([], {})
        }
    if isinstance(value, list):
        return [_compact(item) for item in value]
    # Go writes 1.0 as 1, so both are the same number to Grafana.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


ROOT_FOLDER = "general"
"""The folder UID in Grafana's search for dashboards outside of all folders."""


@dataclass(frozen=True)
class Stored:
    """
    A dashboard as Grafana has it: of a v2 dashboard, the body is the whole resource,
    the version its generation. *message* is of the last push or of the current version,
    `None` if Grafana does not return it; *later* says that it was saved after that
    push. *resource*, as it was before the rest was read, locks a save in the v2 model.
    A *manager* keeps it and allows no edits.
    """

    body: Body
    version: int
    folder: str
    provisioned: bool
    message: str | None
    author: str
    updated: str
    resource: Body | None = None
    later: bool = False
    manager: str = ""

    @property
    def model(self) -> Model:
        """The model in which it is stored."""
        return model_of(self.body)


@dataclass(frozen=True)
class Unreadable:
    """A dashboard in a model that Grafana does not return to us; *reason* says why."""

    reason: str


Observed: TypeAlias = Stored | Unreadable | None


@dataclass(frozen=True)
class SaveResult:
    """The result of a save; a *pending* one needs approval, and is not stored yet."""

    version: int | None
    url: str
    pending: bool = False


TAG = "jaxmon"
"""Tag of the dashboards that `push` may replace."""

MAX_TITLE = 5000

_MAX_BYTES = 32 << 20

_UID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_MESSAGE = re.compile(r"jaxmon push \S+ sha256:([0-9a-f]{64})")


class ContentError(JaxmonError, ValueError):
    """A file that is not a dashboard, or one that cannot be pushed."""


@dataclass(frozen=True)
class Board:
    """A desired dashboard with the tag `TAG`; *twin* is it in the v2 model."""

    uid: str
    title: str
    body: Body
    twin: Board | None = None

    @property
    def model(self) -> Model:
        """The model that its body is of."""
        return model_of(self.body)

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


def is_tagged(body: Body) -> bool:
    """Return whether *body* has the tag `TAG`."""
    tags = shown(body).get("tags")
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


def parse(text: str, source: str) -> Board:
    """Return the dashboard in *text*, or raise a `ContentError` that names *source*."""
    with raised(ContentError, source, ValueError):
        body = json_text.parse(text)
    if not isinstance(body, dict):
        msg = f"{source}: not a dashboard: a JSON object is needed"
        raise ContentError(msg)
    if reason := _unusable(body):
        msg = f"{source}: {reason}"
        raise ContentError(msg)
    inner: dict[str, Any] = body["spec"] if model_of(body) == "v2" else body
    if not is_tagged(body):
        inner["tags"] = [*(inner.get("tags") or ()), TAG]
    uid = body["metadata"]["name"] if inner is not body else body["uid"]
    return Board(uid, inner["title"], body)


def load(paths: Iterable[Path]) -> list[Board]:
    """Return the dashboards in files, and in the ``*.json`` files of directories."""
    files = [
        file
        for path in paths
        for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])
    ]
    texts = {}
    for file in files:
        with raised(ContentError, file, ConfigFileError):
            text = read_text(file, most=_MAX_BYTES, pipe=True)
        texts[str(file)] = text
    return parse_all(texts)


def parse_all(texts: Mapping[str, str]) -> list[Board]:
    """Return the dashboards in *texts*, by source; uids and titles are unique."""
    found: list[Board] = []
    seen: dict[str, str] = {}
    for source, text in texts.items():
        board = parse(text, source)
        for key in (f"uid={board.uid!r}", f"title={board.title!r}"):
            if key in seen:
                msg = f"{seen[key]} and {source} both have {key}; it must be unique"
                raise ContentError(msg)
            seen[key] = source
        found.append(board)
    return found


def _unusable(body: Body) -> str:
    if body.get("__inputs"):
        return (
            "exported for manual import (__inputs); use a datasource variable instead"
        )
    uid, name = body.get("uid"), "uid"
    inner = shown(body)
    if model_of(body) == "v2":
        kind = (body["apiVersion"], body.get("kind"))
        if kind != (API_VERSION, KIND):
            return f"{kind} is not supported; give {(API_VERSION, KIND)}"
        metadata = body.get("metadata")
        uid = metadata.get("name") if isinstance(metadata, dict) else None
        name = "metadata.name"
    title = inner.get("title")
    if not isinstance(uid, str) or not is_uid(uid):
        return f"{name}={uid!r} is invalid; give 1 to 40 letters, digits, - or _"
    if not isinstance(title, str) or not title.strip() or len(title) > MAX_TITLE:
        return f"a title of 1 to {MAX_TITLE} characters is needed"
    if not isinstance(inner.get("tags") or [], list):
        return f"tags={inner['tags']!r} is invalid; give a list"
    return ""
