"""A profile as a document of JSON types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxmon import sources
from jaxmon.profile.groups import By, Group, scope_of
from jaxmon.profile.operations import Operation, Profile
from jaxmon.profile.origins import Place


def document(
    profile: Profile, groups: Sequence[Group], by: By, labels: Mapping[str, str]
) -> dict[str, Any]:
    """
    Return everything that is known.

    Args:
        profile: what the devices did.
        groups: its operations, in groups.
        by: what the operations of a group have in common.
        labels: names of jitted functions by XLA's names of programs.
    """
    total, recorded = profile.seconds, profile.recorded
    return {
        "recorded": recorded,
        "busy": profile.busy / recorded if recorded else None,
        "located": profile.located / total if total else None,
        "by": by,
        "groups": [_group(group, total) for group in groups],
        "operations": [
            _operation(one, labels.get(one.program), total)
            for one in profile.operations
        ],
    }


def _group(group: Group, total: float) -> dict[str, Any]:
    return {
        **_place(group.place),
        "library": group.kind.library or None,
        "function": group.function,
        "scope": group.scope,
        "operation": group.operation or None,
        "primitive": group.kind.primitive or None,
        "count": group.count,
        "seconds": group.seconds,
        "backward_seconds": group.backward,
        "recomputed_seconds": group.recomputed,
        "share": group.seconds / total if total else None,
    }


def _operation(one: Operation, label: str | None, total: float) -> dict[str, Any]:
    origin = one.origin
    return {
        "function": label,
        "program": one.program,
        "operation": one.name,
        "count": one.count,
        "seconds": one.seconds,
        "share": one.seconds / total if total else None,
        **_place(origin.place),
        "scope": scope_of(one),
        "primitive": origin.path.primitive or None,
        "backward": origin.path.backward,
        "recomputed": origin.path.recomputed,
        "inferred": origin.inferred,
        "fused_with": [f"{place.file}:{place.line}" for place in origin.others],
    }


def _place(place: Place | None) -> dict[str, Any]:
    if place is None:
        return {"file": None, "line": None, "in": None, "library": None, "own": False}
    return {
        "file": place.file,
        "line": place.line,
        "in": place.function or None,
        "library": place.library or None,
        "own": place.tier == sources.USER,
    }
