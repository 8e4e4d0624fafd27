"""
Compile signatures: abstract arguments, static values, options, context.

A `Signature` holds types, hashes and texts, and no function, argument or value of the
user's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxmon.agent.jaxlink.leaves import Leaf
from jaxmon.agent.recompiles.options import Options
from jaxmon.agent.recompiles.values import Value


class Node(NamedTuple):
    """
    One node of an argument's tree.

    Attributes:
        name: ``dict``, ``tuple``, the name of a class; ``*`` for a leaf.
        identity: tells classes of one name apart, and the static part of a node.
        static: the static part in words.
        keys: how each child is reached; `None` where only its class knows.
        children: nodes below.
        leaves: leaves below.
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


class Beyond(NamedTuple):
    """
    A value that could not be compared in full.

    Attributes:
        kind: of the difference: ``static_argument`` or ``tree_structure``.
        where: the static argument, or the class that a static part is of.
        value: what is known of it.
    """

    kind: str
    where: str
    value: Value


class Signature:
    """
    Everything that may make JAX compile a call. Immutable.

    Attributes:
        arguments: the arguments that are traced, in the order of their leaves.
        leaves: types of their leaves.
        static: the static arguments.
        options: what `jax.jit` was given, by name; only what is not the default.
        context: values of JAX's configuration that compiled code depends on.
        names: what JAX calls each leaf, where its tree alone does not tell.
        beyond: values of which not all could be compared, with what they are called.
        digest: equal for equal signatures.
        hidden: a hash of what may make a difference, or may not.
        whole: everything could be compared.
    """

    # A frozen dataclass takes three times as long to make, in somebody's compile.
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
        beyond: tuple[Beyond, ...] = (),
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
