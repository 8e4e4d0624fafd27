"""What Grafana has under a dashboard's uid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from jaxmon_dashboards.grafana.models import Body, Model, model_of


ROOT_FOLDER = "general"
"""The folder UID in Grafana's search for dashboards outside of all folders."""


@dataclass(frozen=True)
class Stored:
    """
    A dashboard as Grafana has it.

    Args:
        body: of a v2 dashboard the whole resource.
        version: of a v2 dashboard its generation.
        folder: uid; `ROOT_FOLDER` if outside of all folders.
        message: of the last push, for v2, or of the current version; `None` if Grafana
            does not return it.
        author: login or service account that saved it last.
        updated: time of that save, in Grafana's format.
        resource: as the v2 API returned it, before the rest was read; it locks a save
            in that model.
        later: it was saved after the push that left *message*.
        manager: a tool that keeps it and allows no edits, ``""`` if none is named.
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
    """
    A dashboard in a model that Grafana does not return to us.

    Args:
        reason: what it would take.
    """

    reason: str


Observed: TypeAlias = Stored | Unreadable | None


@dataclass(frozen=True)
class SaveResult:
    """
    The result of a save.

    Args:
        pending: accepted but not stored yet: it needs approval.
    """

    version: int | None
    url: str
    pending: bool = False
