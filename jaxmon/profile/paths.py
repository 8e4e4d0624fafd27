"""
JAX's names of operations: ``jit(step)/transpose(jvp(encoder))/while/body/dot_general``.

Such a path has the jitted function, named scopes, the transformations and control flow
that JAX adds, and at its end the primitive.
"""

from __future__ import annotations

import re
from typing import NamedTuple


# JAX names a computation that it calls; scopes with these names are rare enough.
_CONTROL = frozenset(
    [
        "body",
        "body_fun",
        "branch",
        "checkpoint",
        "closed_call",
        "cond",
        "cond_fun",
        "core_call",
        "custom_jvp_call",
        "custom_jvp_call_jaxpr",
        "custom_lin",
        "custom_vjp_call",
        "custom_vjp_call_jaxpr",
        "fun",
        "main",
        "pallas_call",
        "pjit",
        "rematted_computation",
        "remat",
        "remat2",
        "run_state",
        "scan",
        "shard_map",
        "shmap_body",
        "transpose",
        "while",
        "xla_call",
        "xla_pmap",
    ]
)
_BRANCH = r"branch_\d+_fun"
_WRAPPED = r"(\w+)\((.*)\)"
_FUNCTIONS = ("jit", "pjit", "pmap", "xla_call")
# Computed again in the backward pass, to save memory.
_RECOMPUTED = "rematted_computation"
_MOST_PARTS = 100


class Path(NamedTuple):
    """
    What a path says.

    Attributes:
        scope: named scopes and the functions jitted within the outermost one.
        primitive: JAX's, such as ``dot_general``; ``""`` for an argument.
        backward: whether it is part of a backward pass.
        recomputed: whether a backward pass computes it again, by `jax.checkpoint`.
    """

    scope: str
    primitive: str
    backward: bool
    recomputed: bool


def read(path: str) -> Path:
    """Return what *path* says. Of operations that XLA merged, the first counts."""
    path = path.partition(";")[0].partition(":")[0]
    parts = _split(path)[:_MOST_PARTS]
    if len(parts) < 2:  # noqa: PLR2004 - an argument, such as x['weights']
        return Path("", "", backward=False, recomputed=False)
    recomputed = _RECOMPUTED in parts
    return Path(
        "/".join(scope for part in parts[1:-1] if (scope := _scope(part))),
        "" if "(" in parts[-1] else parts[-1],
        backward="transpose(" in path and not recomputed,
        recomputed=recomputed,
    )


def _split(path: str) -> list[str]:
    """Return the parts of *path*; a slash in parentheses or brackets is part of one."""
    parts, depth, begin = [], 0, 0
    for at, character in enumerate(path):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "/" and depth <= 0:
            parts.append(path[begin:at])
            begin = at + 1
    return [*parts, path[begin:]]


def _scope(part: str) -> str:
    """Return the scope that *part* stands for, ``""`` if it is none."""
    while wrapped := re.fullmatch(_WRAPPED, part):
        if wrapped[1] in _FUNCTIONS and wrapped[2].startswith("_"):
            return ""  # a helper of JAX
        part = wrapped[2]
    if part in _CONTROL or re.fullmatch(_BRANCH, part):
        return ""
    return part
