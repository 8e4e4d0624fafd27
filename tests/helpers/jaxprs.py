"""What is in a jaxpr, counted in another way than by the agent."""

from __future__ import annotations

from collections import Counter
from typing import Any


def primitives(jaxpr: Any) -> Counter[str]:
    """Return all equations of *jaxpr* by primitive, with those inside of others."""
    found = Counter[str]()
    for equation in jaxpr.eqns:
        found[equation.primitive.name] += 1
        for value in equation.params.values():
            for item in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(item, "jaxpr", item)
                if hasattr(inner, "eqns"):
                    found += primitives(inner)
    return found
