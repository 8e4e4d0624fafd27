"""
What is alike in both of Grafana's models is carried over, and nothing is lost on the
way: what the v2 model has no place for is an error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboardv2 as v2


if TYPE_CHECKING:
    from grafana_foundation_sdk.models.common import DataSourceRef


_T = TypeVar("_T")


class LostError(ValueError):
    """Something of a classic dashboard has no place in the v2 model."""


def as_json(model: object) -> Any:
    """Return a model of the SDK as what its JSON holds."""
    return json.loads(JSONEncoder().encode(model))


def members(model: object, *, known: Collection[str]) -> dict[str, Any]:
    """
    Return the members of a classic *model*, as JSON has them.

    Raises:
        LostError: one that says something is not among the *known*.
    """
    found: dict[str, Any] = as_json(model)
    unknown = [name for name, value in found.items() if value and name not in known]
    if unknown:
        msg = f"{type(model).__name__} has {unknown}, which v2 does not get; carry it"
        raise LostError(msg)
    return found


def carried(read: Callable[[Any], _T], classic: object) -> _T:
    """
    Return what *read* makes of the JSON of *classic*, which is the same in both models.

    Raises:
        LostError: it is not the same.
    """
    before = as_json(classic)
    model = read(before)
    if as_json(model) != before:
        msg = f"{type(classic).__name__} is not the same in v2: {before}"
        raise LostError(msg)
    return model


def query(
    spec: dict[str, object], datasource: DataSourceRef | None
) -> v2.DataQueryKind:
    """Return a query of *datasource*."""
    if datasource is None or not (datasource.type_val and datasource.uid):
        msg = f"a query without a data source: {spec}"
        raise LostError(msg)
    return v2.DataQueryKind(
        group=datasource.type_val,
        datasource=v2.Dashboardv2DataQueryKindDatasource(name=datasource.uid),
        spec=spec,
    )
