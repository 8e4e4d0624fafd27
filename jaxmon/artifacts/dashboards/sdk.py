"""Shared helpers around grafana-foundation-sdk, with workarounds."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard as classic
from grafana_foundation_sdk.models import dashboard as d
from grafana_foundation_sdk.models.common import DataSourceRef

from jaxmon.artifacts.dashboards.model import Link, Thresholds


# Chosen at the top of the dashboard; file provisioning and the API resolve no inputs.
DATASOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")

# Built in: annotations that Grafana keeps.
GRAFANA = DataSourceRef(type_val="grafana", uid="-- Grafana --")


def link(link: Link) -> d.DashboardLink:
    """Return a link that opens in a new tab."""
    built = classic.DashboardLink(link.title).type(d.DashboardLinkType.LINK)
    return placed(built.url(link.url).target_blank(target_blank=True).build())


def placed(link: d.DashboardLink) -> d.DashboardLink:
    """Return *link*, made visible: the SDK hides every link in a menu."""
    link.placement = None  # type: ignore[assignment]  # the encoder then leaves it out
    return link


def color(mode: d.FieldColorModeId) -> classic.FieldColor:
    """Return the colour mode of a series."""
    return classic.FieldColor().mode(mode)


def thresholds(thresholds: Thresholds) -> classic.ThresholdsConfig:
    """Return colours by absolute value."""
    steps = [(None, thresholds.base), *thresholds.steps]
    return (
        classic.ThresholdsConfig()
        .mode(d.ThresholdsMode.ABSOLUTE)
        .steps([d.Threshold(value=value, color=color) for value, color in steps])
    )
