"""Describes the differences between two signatures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jaxmon import disclosure
from jaxmon.agent.recompiles.argument_differences import (
    ABSENT,
    BEYOND,
    EQUAL,
    OTHER_DEVICES,
    Difference,
    argument_differences,
    differs_beyond_text,
    line,
    operand_differences,
    passing_style,
)
from jaxmon.agent.recompiles.signatures import MADE_BY, Signature, Static, Value


_ANOTHER = (
    " (a different object: compared by identity; define __eq__ and __hash__ by value)"
)
_PARTLY = "too large or opaque to compare in full"

_PREFIX = {"static_argument": "static argument ", "tree_structure": "static part of "}

_NONE = ("none", None)


def differences(
    new: Signature, old: Signature, *, context: Sequence[str], values: bool
) -> Iterator[Difference]:
    """
    Yield every difference of *new* from *old*.

    Args:
        new: the signature being compiled.
        old: a signature compiled before.
        context: names of the values in a signature's context; empty for a value
            that may also appear under a name.
        values: whether to show values of static arguments, not just their types.
    """
    yield from _context(new, old, context)
    yield from _options(new, old)
    yield from _static(new, old, values=values)
    yield from argument_differences(new, old)
    if new.call == old.call:
        yield from operand_differences(new, old)


def _context(
    new: Signature, old: Signature, names: Sequence[str]
) -> Iterator[Difference]:
    for name, before, after in changed_settings(new, old, names):
        words = _shown(before), _unlike(_shown(before), _shown(after))
        yield line("context", name, *words, prefix="")


def changed_settings(
    new: Signature, old: Signature, names: Sequence[str]
) -> list[tuple[str, Any, Any]]:
    """Return each setting that differs between *new* and *old*, with both values."""
    if new.context == old.context:
        return []
    found: list[tuple[str, Any, Any]] = []
    named: list[tuple[type, Any, type, Any]] = []
    pairs = zip(new.context, old.context, strict=False)
    for index, (after, before) in enumerate(pairs):
        change = type(before), before, type(after), after
        if type(after) is type(before) and after == before:
            continue
        name = names[index] if index < len(names) else f"context[{index}]"
        if name:
            named.append(change)
        elif change in named:  # a duplicate
            named.remove(change)
            continue
        found.append((name or f"context[{index}]", before, after))
    return found


def _shown(value: Any) -> str:
    return disclosure.value(value.text if type(value) is Value else str(value))


def _options(new: Signature, old: Signature) -> Iterator[Difference]:
    if new.options == old.options:
        return
    befores = {name: rest for name, *rest in old.options}
    afters = {name: rest for name, *rest in new.options}
    makers = befores.get(MADE_BY), afters.get(MADE_BY)
    if makers[0] and makers[1] and makers[0] != makers[1]:
        # The two have different options.
        words = str(makers[0][0]), str(makers[1][0])
        yield line("options", MADE_BY, *words, prefix="")
        return
    for name in {**befores, **afters}:
        before, after = befores.get(name, _NONE), afters.get(name, _NONE)
        if before != after:
            words = _shown(before[0]), _unlike(_shown(before[0]), _shown(after[0]))
            yield line("options", name, *words, prefix="jit option ")


def _unlike(before: str, after: str) -> str:
    """Return *after*, with a note if both print identically."""
    if before != after:
        return after
    return after + (OTHER_DEVICES if "mesh " in after else EQUAL)


def _static(new: Signature, old: Signature, *, values: bool) -> Iterator[Difference]:
    if new.static == old.static:
        return
    befores = {one.name: one for one in old.static}
    afters = {one.name: one for one in new.static}
    for name in {**befores, **afters}:
        before, after = befores.get(name), afters.get(name)
        if before is None or after is None:
            texts = [
                ABSENT if one is None else _value(one, values=values)
                for one in (before, after)
            ]
            yield line("static_argument", name, *texts, prefix="static argument ")
            continue
        if before.value != after.value:
            yield _static_value(name, before, after, values=values)
        if before.by_name != after.by_name:
            how = passing_style(before, after)
            yield line("tree_structure", name, *how, prefix="static argument ")


def hidden_differences(
    new: Signature, old: Signature, *, values: bool
) -> Iterator[Difference]:
    """
    Yield possible differences between two signatures that are equal as far as they can
    be compared: fields that a class may or may not use for equality.
    """
    befores = {(one.kind, one.where): one.value for one in old.beyond}
    for kind, where, after in new.beyond:
        before = befores.get((kind, where))
        if before is not None and before.hidden != after.hidden:
            text = _shown_value(after, where, values=values)
            yield line(kind, where, text, f"{text}{EQUAL}", prefix=_PREFIX[kind])


def not_compared(new: Signature, *, values: bool) -> Iterator[Difference]:
    """Yield the values of *new* that cannot be compared in full."""
    for kind, where, value in new.beyond:
        if not value.whole:
            text = _shown_value(value, where, values=values)
            line = f"{_PREFIX[kind]}{where}: {text} is {_PARTLY}"
            yield Difference("unknown", where, text, text, line)


def _shown_value(value: Value, name: str, *, values: bool) -> str:
    return disclosure.value(value.text, name) if values else value.key[0]


def _value(static: Static, *, values: bool) -> str:
    return _shown_value(static.value, static.name, values=values)


def _static_value(
    name: str, before: Static, after: Static, *, values: bool
) -> Difference:
    old, new = (_value(one, values=values) for one in (before, after))
    if old == new and values and differs_beyond_text(before.value.key, after.value.key):
        new += BEYOND
    elif old == new:
        # Values that print the same could mostly have been declared equal by their
        # class.
        alone = before.value.by_identity and after.value.by_identity
        new = f"{new}{_ANOTHER}" if alone else f"another {new}"
    return line("static_argument", name, old, new, prefix="static argument ")
