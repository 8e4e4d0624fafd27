"""
Compile signatures: abstract arguments, static values, options, context.

A `Signature` holds types, hashes and texts, but no function, argument or value of the
user.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxmon.agent.jaxlink.leaf_types import Leaf
from jaxmon.agent.recompiles.options import Options
from jaxmon.agent.recompiles.values import Value


class Node(NamedTuple):
    """
    One node of an argument's tree.

    Attributes:
        name: ``dict``, ``tuple``, the name of a class; ``*`` for a leaf.
        identity: distinguishes classes of the same name, and static parts.
        static: the static part as text.
        keys: key of each child; `None` if only its class knows them.
        children: child nodes.
        leaves: number of leaves below.
    """

    name: str
    identity: tuple[Any, ...]
    static: str
    keys: tuple[str, ...] | None
    children: tuple[Any, ...]
    leaves: int


LEAF = Node("*", (), "", (), (), 1)
NONE = Node("None", (), "", (), (), 0)


class Argument(NamedTuple):
    """One argument of a call."""

    name: str
    by_name: bool
    node: Node


class Static(NamedTuple):
    """One static argument of a call."""

    name: str
    by_name: bool
    value: Value


class PartlyCompared(NamedTuple):
    """
    A value that could not be compared in full.

    Attributes:
        kind: kind of difference: ``static_argument`` or ``tree_structure``.
        where: the static argument, or the class of a static part.
        value: its summary.
    """

    kind: str
    where: str
    value: Value


class Signature:
    """
    Everything that may make JAX compile a call. Immutable.

    Attributes:
        arguments: the traced arguments, in the order of their leaves.
        leaves: types of their leaves.
        static: the static arguments.
        options: the options of `jax.jit` that are not the default, by name.
        context: values of JAX's configuration that compiled code depends on.
        names: JAX's name of each leaf, if the tree alone does not determine it.
        beyond: values that could not be compared in full, with their names.
        digest: equal for equal signatures.
        hidden: a hash of parts that may or may not make a difference.
        whole: whether everything could be compared.
    """

    # Creating a frozen dataclass takes three times as long, during a compile.
    __slots__ = (
        "arguments",
        "beyond",
        "context",
        "digest",
        "hidden",
        "leaves",
        "names",
        "options",
        "static",
        "whole",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of a call, in their order
        self,
        arguments: tuple[Argument, ...],
        leaves: tuple[Leaf, ...],
        static: tuple[Static, ...],
        options: Options,
        context: tuple[Any, ...],
        names: tuple[str, ...] | None = None,
        beyond: tuple[PartlyCompared, ...] = (),
    ) -> None:
        self.arguments = arguments
        self.leaves = leaves
        self.static = static
        self.options = options
        self.context = context
        self.names = names
        self.beyond = beyond
        self.hidden = hash(tuple([one.value.hidden for one in beyond]))
        self.whole = all(one.value.whole for one in beyond)
        self.digest = hash((arguments, leaves, static, options, context))
