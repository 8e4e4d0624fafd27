"""
Grafana's two models of a dashboard, as JSON, and what Grafana has under a uid.

A classic dashboard is one object. A dashboard of the v2 model is a resource, whose spec
says what it shows and whose metadata say where it is and who saved it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias


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
        variables = shown(body).get("variables")
        spec = {**shown(body), "variables": _changed(variables, _stateless_v2)}
        return {"kind": KIND, "spec": _without_added(_compact(spec))}
    kept = {key: value for key, value in body.items() if key not in _ASSIGNED}
    if isinstance(templating := kept.get("templating"), dict):
        stateless = _changed(templating.get("list"), _stateless)
        kept["templating"] = {**templating, "list": stateless}
    compact: dict[str, Any] = _compact(kept)
    return compact


def _changed(variables: Any, change: Any) -> Any:
    if not isinstance(variables, list):
        return variables
    return [change(variable) for variable in variables]


def _stateless(variable: Any) -> Any:
    if not isinstance(variable, dict):
        return variable
    return {key: value for key, value in variable.items() if key != "current"}


def _stateless_v2(variable: Any) -> Any:
    if not isinstance(variable, dict):
        return variable
    return {**variable, "spec": _stateless(variable.get("spec"))}


def _without_added(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_added(item)
            for key, item in value.items()
            if not (key in _ADDED and _same(item, _ADDED[key]))
        }
    if isinstance(value, list):
        return [_without_added(item) for item in value]
    return value


def _same(value: object, other: object) -> bool:
    # In Python, false equals 0.
    return type(value) is type(other) and value == other


def _compact(value: Any) -> Any:
    """Return *value* without absent members, and 1.0 as 1; lists keep places."""
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
