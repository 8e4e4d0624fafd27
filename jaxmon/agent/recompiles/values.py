"""Summaries of values (key and text), created without running user code."""

from __future__ import annotations

from jaxmon import interrupts
from jaxmon.agent.guard import Guard
from jaxmon.agent.inspection import bases_of, name_of
from jaxmon.agent.recompiles import builtin_inspectors, object_inspectors
from jaxmon.agent.recompiles.value_inspection import LIMIT, How, Inspection


_SMALL = 1 << 62


class Value:
    """
    Summary of a value; holds only text and hashes.

    Attributes:
        key: differs if JAX treats two values as different: the type's name, then hashes
            of parts compared by identity and of parts compared by text.
        text: at most `LIMIT` characters.
        by_identity: whether a different object with the same content is not equal to
            it.
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


def is_by_identity(value: object) -> bool:
    """
    Return whether *value*, or an item of it, is equal only to itself, because it is
    compared or hashed by identity.

    Classes, modules and `None` are too, but there is only one of each.
    """
    return value_of(value).by_identity


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
