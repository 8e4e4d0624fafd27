"""
Compile signatures: abstract arguments, static values, options, context.

A `Signature` holds types, hashes and texts, but no function, argument or value of the
user.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from jaxmon import interrupts
from jaxmon.agent.guard import Guard
from jaxmon.agent.inspection import bases_of, name_of
from jaxmon.agent.jaxlink.leaf_types import Leaf
from jaxmon.agent.recompiles import builtin_inspectors, object_inspectors
from jaxmon.agent.recompiles.value_inspection import LIMIT, How, Inspection


_SMALL = 1 << 62


Options: TypeAlias = tuple[tuple[str, str, object], ...]
"""
Options that are not the default: name, text, and a key that differs if equal texts do.
"""

MADE_BY = "transformation"
"""The option for the JAX function that created the callable."""


class Value:
    """
    Summary of a value; holds only text and hashes.

    Attributes:
        key: differs if JAX treats two values as different: the type's name, then hashes
            of parts compared by identity and of parts compared by text.
        text: at most `LIMIT` characters.
        by_identity: whether a different object with the same content is not equal to
            it. Not of classes, modules and `None`, of which there is one each.
        hidden: a hash of parts that may or may not count because the class defines
            equality itself: private fields, and parts compared by identity.
        whole: whether everything in it was inspected.
    """

    __slots__ = ("by_identity", "hidden", "key", "text", "whole")

    def __init__(
        self,
        key: tuple[str, int, int],
        text: str,
        hidden: int = 0,
        *,
        by_identity: bool,
        whole: bool = True,
    ) -> None:
        self.key = key
        self.text = text
        self.by_identity = by_identity
        self.hidden = hidden
        self.whole = whole

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def value_of(value: object) -> Value:
    """
    Return the summary of *value*. Costs a few microseconds, two milliseconds at most,
    however large it is.
    """
    kind = type(value)
    if kind is bool or value is None or (kind is int and -_SMALL < value < _SMALL):  # type: ignore[operator]
        text = repr(value)
        return Value((kind.__name__, 0, hash(text)), text, by_identity=False)
    inspection, name = Inspection(_EXACT, _how), name_of(type(value))
    try:
        text, words, identity = inspection.inspect(value)
    except Exception as error:  # another thread may be changing it
        interrupts.pass_on(error)
        if Guard.strict:
            raise
        text = f"{name} (could not be inspected)"
        return Value((name, 0, 0), text, by_identity=False, whole=False)
    text = text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"
    return Value(
        (name, identity, words),
        text,
        inspection.hidden,
        by_identity=inspection.alone,
        whole=inspection.whole,
    )


def text_of(value: object) -> str:
    """Return *value* as text of at most `LIMIT` characters."""
    return value_of(value).text


_EXACT = {
    id(kind): how for kind, how in (*builtin_inspectors.EXACT, *object_inspectors.EXACT)
}
_FIRST = {id(kind): how for kind, how in object_inspectors.FIRST}
_BELOW = {
    id(kind): how for kind, how in (*builtin_inspectors.BELOW, *object_inspectors.BELOW)
}


def _how(kind: type) -> How:
    bases = [id(one) for one in bases_of(kind)]
    for table in (_FIRST, _BELOW):
        for one in bases:
            if one in table:
                return table[one]
    raise TypeError(name_of(kind))  # not even `object`


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
        operands: types of what a program of a transformed function is applied to.
        shapes: equal for equal shapes of all of them.
        call: equal for equal signatures, whatever their *operands*.
        digest: equal for equal signatures.
        hidden: a hash of parts that may or may not make a difference.
        whole: whether everything could be compared.
    """

    # Creating a frozen dataclass takes three times as long, during a compile.
    __slots__ = (
        "arguments",
        "beyond",
        "call",
        "context",
        "digest",
        "hidden",
        "leaves",
        "names",
        "operands",
        "options",
        "shapes",
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
        operands: tuple[Leaf, ...] = (),
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
        self.operands = operands
        self.shapes = hash(tuple([leaf.shape for leaf in leaves + operands]))
        self.call = hash((arguments, leaves, static, options, context))
        self.digest = hash((self.call, operands)) if operands else self.call

    def applied_to(self, operands: tuple[Leaf, ...]) -> Signature:
        """Return this signature for a program that is applied to *operands*."""
        return Signature(
            self.arguments,
            self.leaves,
            self.static,
            self.options,
            self.context,
            self.names,
            self.beyond,
            operands,
        )
