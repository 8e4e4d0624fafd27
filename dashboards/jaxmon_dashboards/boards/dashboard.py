"""A dashboard: rows of panels, below variables and events drawn across all panels."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from jaxmon.promql import Expr
from jaxmon_dashboards.boards.model import (
    Color,
    DependentVariable,
    Panel,
    Row,
    Variable,
)


_UID = re.compile(r"[a-z][a-z0-9-]{0,39}")


@dataclass(frozen=True, slots=True)
class Annotation:
    """Events drawn across every panel when *expr* yields something."""

    name: str
    title: str
    text: str
    color: Color
    expr: Expr


@dataclass(frozen=True, slots=True)
class Notes:
    """Annotations that Grafana itself keeps, which have all these *tags*."""

    name: str
    tags: tuple[str, ...]
    color: Color


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A whole dashboard; its uid is part of its address, and stays."""

    uid: str
    title: str
    description: str
    since: str
    variables: tuple[Variable | DependentVariable, ...]
    annotations: tuple[Annotation | Notes, ...]
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        if not _UID.fullmatch(self.uid):
            msg = (
                f"uid {self.uid!r} is invalid; give one such as jaxmon-oncall, of up "
                "to 40 characters"
            )
            raise ValueError(msg)
        ids = [row.id for row in self.rows] + [panel.id for panel in self.panels]
        titles = [panel.title for panel in self.panels]
        for what, values in (("id", ids), ("title", titles)):
            if twice := [value for value, n in Counter(values).items() if n > 1]:
                msg = f"{self.uid}: duplicate {what} {twice}; choose another"
                raise ValueError(msg)

    @property
    def panels(self) -> tuple[Panel, ...]:
        """The panels of all rows."""
        return tuple(panel for row in self.rows for panel in row.panels)
