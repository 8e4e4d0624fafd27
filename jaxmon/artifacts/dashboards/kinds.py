"""
Panels of each kind, and the lines and rows that hold them.

A panel's text follows its number, title and queries; see `Panel` for the rest.
"""

from __future__ import annotations

from jaxmon.artifacts.dashboards.model import (
    Line,
    Link,
    Mapping,
    Panel,
    Row,
    Stacking,
    Target,
    Thresholds,
)


def row(number: int, title: str, *lines: Line, collapsed: bool = False) -> Row:
    """Return *lines* under a heading."""
    return Row(number, title, lines, collapsed)


def line(*panels: Panel, height: int = 8) -> Line:
    """Return *panels* side by side; they share the width."""
    return Line(panels, height)


def stat(number: int, target: Target, *, text: str, no_value: str = "") -> Panel:
    """Return a single value, with the name and colours of its query."""
    return Panel(
        id=number,
        title=target.legend,
        kind="stat",
        text=text,
        targets=(target,),
        thresholds=target.thresholds,
        no_value=no_value,
    )


def timeseries(  # noqa: PLR0913 - what a panel of this kind has, each with a default
    number: int,
    title: str,
    *targets: Target,
    text: str,
    width: int = 0,
    minimum: float = 0,
    maximum: float | None = None,
    thresholds: Thresholds | None = None,
    stacked: Stacking = "none",
    alerts: tuple[str, ...] = (),
    no_value: str = "",
) -> Panel:
    """Return values over time."""
    return Panel(
        id=number,
        title=title,
        kind="timeseries",
        text=text,
        targets=targets,
        width=width,
        minimum=minimum,
        maximum=maximum,
        thresholds=thresholds,
        stacked=stacked,
        alerts=alerts,
        no_value=no_value,
    )


def table(  # noqa: PLR0913 - what a panel of this kind has, each with a default
    number: int,
    title: str,
    *targets: Target,
    text: str,
    labels: tuple[str, ...],
    values_after: str = "",
    width: int = 0,
    mappings: tuple[Mapping, ...] = (),
    cell_links: tuple[tuple[str, Link], ...] = (),
    sort: str = "",
    alerts: tuple[str, ...] = (),
    no_value: str = "",
) -> Panel:
    """Return current values, with a column for each query after the *labels*."""
    return Panel(
        id=number,
        title=title,
        kind="table",
        text=text,
        targets=targets,
        width=width,
        mappings=mappings,
        alerts=alerts,
        labels=labels,
        values_after=values_after,
        cell_links=cell_links,
        no_value=no_value,
        sort=sort,
    )


def states(  # noqa: PLR0913 - what a panel of this kind has, each with a default
    number: int,
    title: str,
    *targets: Target,
    text: str,
    mappings: tuple[Mapping, ...],
    thresholds: Thresholds | None = None,
    width: int = 0,
    alerts: tuple[str, ...] = (),
    no_value: str = "",
) -> Panel:
    """Return states over time, as *mappings* name them."""
    return Panel(
        id=number,
        title=title,
        kind="state-timeline",
        text=text,
        targets=targets,
        width=width,
        thresholds=thresholds,
        mappings=mappings,
        alerts=alerts,
        no_value=no_value,
    )


def heatmap(
    number: int, title: str, target: Target, *, text: str, no_value: str = ""
) -> Panel:
    """Return how the values of a histogram are distributed over time."""
    return Panel(
        id=number,
        title=title,
        kind="heatmap",
        text=text,
        targets=(target,),
        no_value=no_value,
    )
