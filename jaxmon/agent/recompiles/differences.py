"""
Differences between two signatures: of the configuration, the options, the static
arguments, and the trees and leaves of the others.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from jaxmon.agent.jaxlink.arrays import Leaf
from jaxmon.agent.recompiles.argument_trees import LEAF, NONE, Argument, Node
from jaxmon.agent.recompiles.signatures import (
    MADE_BY,
    Mismatch,
    Placement,
    Signature,
    Static,
)
from jaxmon.agent.recompiles.value_inspection import MOST_PARTS, InspectedValue
from jaxmon.agent.recompiles.values import Value
from jaxmon.facts.events import ANOTHER, MADE_ANEW, STATIC_FIELD
from jaxmon.host import disclosure


_ABSENT = "not given"
_EQUAL = " (looks equal, but JAX treats it as different)"
_BEYOND = " (differs beyond the part shown)"
_OTHER_DEVICES = " (different devices, or a different order)"

_FEW = 8
_PARTLY = "too large or opaque to compare in full"

_PREFIX = {"static_argument": "static argument ", "tree_structure": "static part of "}

_NONE = ("none", None)


def differences(
    new: Signature, old: Signature, *, context: Sequence[str], values: bool
) -> Iterator[Mismatch]:
    """Yield every difference of *new* from *old*; *context* names settings."""
    for name, before, after in changed_settings(new, old, context):
        yield _line("context", name, *_unlike(before, after), prefix="")
    yield from _options(new, old)
    yield from _static(new, old, values=values)
    yield from _argument_differences(new, old)
    if new.call == old.call:
        # Of what two programs of a transformed function are applied to, such as the
        # size of the batch in `jax.vmap`.
        for number, pair in enumerate(zip(old.operands, new.operands, strict=False)):
            yield from _leaf(f"{number} of the transformed function", *pair)


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


def _options(new: Signature, old: Signature) -> Iterator[Mismatch]:
    if new.options == old.options:
        return
    befores = {name: (text, key) for name, text, key in old.options}
    afters = {name: (text, key) for name, text, key in new.options}
    for name in {**befores, **afters}:
        before, after = befores.get(name, _NONE), afters.get(name, _NONE)
        if before != after:
            prefix = "" if name == MADE_BY else "jit option "
            yield _line("options", name, *_unlike(before[0], after[0]), prefix=prefix)
            if name == MADE_BY:  # the two have different options
                return


def _unlike(before: Any, after: Any) -> tuple[str, str]:
    """Return both as text, with a note if they print identically."""
    old, new = _shown(before), _shown(after)
    note = _OTHER_DEVICES if "mesh " in new else _EQUAL
    return old, new + note * (old == new)


def _static(new: Signature, old: Signature, *, values: bool) -> Iterator[Mismatch]:
    if new.static == old.static:
        return
    befores = {static.name: static for static in old.static}
    afters = {static.name: static for static in new.static}
    for name in {**befores, **afters}:
        before, after = befores.get(name), afters.get(name)
        if before is None or after is None:
            texts = [
                _ABSENT
                if static is None
                else _shown_value(static.value, name, values=values)
                for static in (before, after)
            ]
            yield _static_line(name, *texts)
            continue
        if before.value != after.value:
            yield from _static_value(name, before.value, after.value, values=values)
        if before.by_name != after.by_name:
            how = _passing_style(before, after)
            yield _line("tree_structure", name, *how, prefix="static argument ")


def hidden_differences(
    new: Signature, old: Signature, *, values: bool
) -> Iterator[Mismatch]:
    """Yield possible differences of equal signatures: fields that may not count."""
    befores = {(hidden.kind, hidden.where): hidden.value for hidden in old.beyond}
    for kind, where, after in new.beyond:
        before = befores.get((kind, where))
        if before is not None and before.hidden != after.hidden:
            text = _shown_value(after, where, values=values)
            yield _line(kind, where, text, f"{text}{_EQUAL}", prefix=_PREFIX[kind])


def not_compared(new: Signature, *, values: bool) -> Iterator[Mismatch]:
    """Yield the values of *new* that cannot be compared in full."""
    for kind, where, value in new.beyond:
        if not value.whole:
            text = _shown_value(value, where, values=values)
            line = f"{_PREFIX[kind]}{where}: {text} is {_PARTLY}"
            yield Mismatch("unknown", where, text, text, line)


def _shown_value(value: Value, name: str, *, values: bool) -> str:
    return disclosure.value(value.text, name) if values else value.key[0]


def _static_line(where: str, before: str, after: str) -> Mismatch:
    return _line("static_argument", where, before, after, prefix="static argument ")


def _static_value(
    name: str, old: Value, new: Value, *, values: bool
) -> Iterator[Mismatch]:
    # Short values are shown as a whole; the last item of a key is a hash of all of it.
    cut = old.text.endswith("…") or new.text.endswith("…")
    shows_parts = values and (cut or old.text == new.text)
    if shows_parts and (found := list(_parts(name, old, new))):
        yield from (_static_line(*part) for part in found)
        return
    was, now = (_shown_value(value, name, values=values) for value in (old, new))
    if was == now and values and old.key[-1] != new.key[-1]:
        now += _BEYOND
    elif was == now:
        # Values that print the same could mostly have been declared equal by their
        # class.
        alone = old.by_identity and new.by_identity
        now = f"{now}{ANOTHER}" if alone else f"another {now}"
    yield _static_line(name, was, now)


def _parts(name: str, old: Value, new: Value) -> Iterator[tuple[str, str, str]]:
    """Yield path and texts of what differs in two values: contents, else identity."""
    befores, afters = old.parts, new.parts
    both = [path for path in afters if path in befores]
    changed = [path for path in both if befores[path].words != afters[path].words]
    found = [path for path in changed if not any(_contains(path, of) for of in changed)]
    if max(len(befores), len(afters)) < MOST_PARTS:
        some = {path: None for path in (*befores, *afters) if path not in both}
        found += _outermost(some, changed)
    if not found:
        others = [path for path in both if befores[path] != afters[path]]
        found = _outermost(others, others)
    for path in filter(None, found[:_FEW]):
        where = name + path if name else path.removeprefix(".")
        yield where, *_part_texts(where, befores.get(path), afters.get(path))


def _outermost(paths: Iterable[str], within: Iterable[str]) -> list[str]:
    """Return those of *paths* that none of *within* contains."""
    return [path for path in paths if not any(_contains(of, path) for of in within)]


def _contains(path: str, other: str) -> bool:
    return other.startswith((f"{path}.", f"{path}["))


def _part_texts(
    where: str, before: InspectedValue | None, after: InspectedValue | None
) -> tuple[str, str]:
    old, new = (
        _ABSENT if part is None else disclosure.value(part.text, where)
        for part in (before, after)
    )
    if old != new or before is None or after is None:
        return old, new
    if before.words != after.words:
        return old, new + _BEYOND
    is_function = re.search(r" at \S+:\d+$", new)
    return old, f"the same function{MADE_ANEW}" if is_function else new + ANOTHER


def _argument_differences(new: Signature, old: Signature) -> Iterator[Mismatch]:
    """Yield the differences of the traced arguments."""
    if new.leaves == old.leaves and new.arguments == old.arguments:
        return
    befores, afters = _placed(old), _placed(new)
    for name, (after, start) in afters.items():
        if name not in befores:
            text = _node(after.node, new.leaves, start)
            yield _line("tree_structure", name, _ABSENT, text)
            continue
        before, begin = befores[name]
        if before.by_name != after.by_name:
            yield _line("tree_structure", name, *_passing_style(before, after))
        walk = _TreeComparison(new, old)
        yield from walk.node(name, (before.node, begin), (after.node, start))
    for name, (before, begin) in befores.items():
        if name not in afters:
            text = _node(before.node, old.leaves, begin)
            yield _line("tree_structure", name, text, _ABSENT)


def _placed(signature: Signature) -> dict[str, tuple[Argument, int]]:
    """Return each argument with the index of its first leaf."""
    found, start = {}, 0
    for argument in signature.arguments:
        found[argument.name] = (argument, start)
        start += argument.node.leaves
    return found


def _passing_style(
    before: Argument | Static, after: Argument | Static
) -> tuple[str, str]:
    """Return, as text, how each argument was passed."""
    words = ("by position", "by name")
    return words[before.by_name], words[after.by_name]


class _TreeComparison:
    """Compares the trees of one argument."""

    def __init__(self, new: Signature, old: Signature) -> None:
        self._new, self._old = new, old

    def node(
        self, where: str, before: tuple[Node, int], after: tuple[Node, int]
    ) -> Iterator[Mismatch]:
        """Yield the differences of two nodes, each with the index of its first leaf."""
        (old, begin), (new, start) = before, after
        if old == new:
            if old is not NONE:
                yield from self._leaves(where, old, begin, start)
            return
        if old.name != new.name or LEAF in (old, new):
            was = _node(old, self._old.leaves, begin)
            now = _node(new, self._new.leaves, start)
            yield _line("tree_structure", where, was, now)
            return
        if old.identity != new.identity:
            yield from _statics(where, old, new)
        yield from self._children(where, before, after)

    def _children(
        self, where: str, before: tuple[Node, int], after: tuple[Node, int]
    ) -> Iterator[Mismatch]:
        befores, afters = _children(*before), _children(*after)
        added = [key for key in afters if key not in befores]
        removed = [key for key in befores if key not in afters]
        old, new = before[0], after[0]
        if (added or removed) and new.name in ("tuple", "list"):
            yield _line("tree_structure", where, _outline(old), _outline(new))
            added, removed = [], []
        if added or removed:
            texts = (_keys(added, "added"), _keys(removed, "removed"))
            text = f"argument {where}: {', '.join(filter(None, texts))}"
            shown = _outline(old), _outline(new)
            yield Mismatch("tree_structure", where, *shown, text)
        if befores.keys() == afters.keys() and [*befores] != [*afters]:
            yield _line("tree_structure", where, _order(befores), _order(afters))
        for key, child in afters.items():
            if key in befores:
                yield from self.node(where + key, befores[key], child)

    def _leaves(
        self, where: str, node: Node, begin: int, start: int
    ) -> Iterator[Mismatch]:
        count = node.leaves
        olds = self._old.leaves[begin : begin + count]
        news = self._new.leaves[start : start + count]
        if olds == news:
            return
        changed = [
            number
            for number, (before, after) in enumerate(zip(olds, news, strict=True))
            if before is not after and before != after
        ]
        # Listing all paths is faster than many lookups.
        every = list(_paths(where, node)) if len(changed) > _FEW else None
        for index in changed:
            path = every[index] if every else _path(where, node, index)
            name = self._name(where, start + index) or path
            yield from _leaf(name, olds[index], news[index])

    def _name(self, where: str, index: int) -> str | None:
        """Return JAX's name of the leaf, if the tree alone does not determine it."""
        if self._new.names is None:
            return None
        name = self._new.names[index]
        # JAX's order may differ from that of the leaves (in 0.4); then its names are
        # useless.
        argument = where.partition("[")[0].partition(".")[0]
        return name if name.startswith(argument) else None


def _children(node: Node, start: int) -> dict[str, tuple[Node, int]]:
    """Return the children of *node* by key, each with the index of its first leaf."""
    keys = node.keys
    if keys is None:
        keys = tuple(f"[{number}]" for number in range(len(node.children)))
    found = {}
    for key, child in zip(keys, node.children, strict=True):
        found[key] = (child, start)
        start += child.leaves
    return found


def _paths(where: str, node: Node) -> Iterator[str]:
    if node == LEAF:
        yield where
        return
    for key, (child, _) in _children(node, 0).items():
        yield from _paths(where + key, child)


def _path(where: str, node: Node, index: int) -> str:
    """Return the path of leaf *index* below *node*."""
    for number, child in enumerate(node.children):
        if index < child.leaves:
            key = f"[{number}]" if node.keys is None else node.keys[number]
            return _path(where + key, child, index)
        index -= child.leaves
    return where


def _node(node: Node, leaves: Sequence[Leaf], start: int) -> str:
    return _leaf_text(leaves[start]) if node == LEAF else _outline(node)


def _outline(node: Node) -> str:
    """Return ``dict of 3``: a node without its children."""
    if node in (LEAF, NONE):
        return "a leaf" if node == LEAF else "None"
    if node.keys is not None and not node.identity:
        return f"{node.name} of {len(node.children)}"
    return node.name


def _statics(where: str, old: Node, new: Node) -> Iterator[Mismatch]:
    kind, before, after = "tree_structure", old.static, new.static
    if old.identity[0] != new.identity[0]:
        texts = f"class {old.name}", f"a different class {new.name}"
        yield _line(kind, where, *texts)
        return
    assert before is not None  # noqa: S101 - for mypy, here and below
    assert after is not None  # noqa: S101
    # A graph of Flax is half of what stands for an object.
    name = where.removesuffix("[0]") if before.text == "GraphDef" else where
    if found := list(_parts(name, before, after)):
        for part, shown, other in found:
            yield _line(kind, part, shown, other, prefix=STATIC_FIELD)
        return
    note = ""
    if before.text == after.text:
        note = _BEYOND if before.key[-1] != after.key[-1] else _EQUAL
    shown, other = map(disclosure.value, (before.text, after.text))
    yield _line(kind, where, f"static part {shown}", f"static part {other}{note}")


def _keys(keys: Sequence[str], how: str) -> str:
    noun = "key" if len(keys) == 1 else "keys"
    return f"{noun} {', '.join(map(_bare, keys))} {how}" if keys else ""


def _order(keys: Iterable[str]) -> str:
    return f"keys {', '.join(map(_bare, keys))}"


def _bare(key: str) -> str:
    return key[1:-1] if key.startswith("[") else key.removeprefix(".")


def _leaf(where: str, old: Leaf, new: Leaf) -> Iterator[Mismatch]:
    if old.dtype != new.dtype or old.shape != new.shape:
        kind = "dtype" if old.dtype != new.dtype else "shape"
        weak = old.weak != new.weak
        texts = _leaf_text(old, weak=weak), _leaf_text(new, weak=weak)
        yield _line(kind, where, *texts)
    elif old.weak != new.weak:
        names = ["weak type " * leaf.weak + str(leaf.dtype) for leaf in (old, new)]
        yield _line("weak_type", where, *names)
    if old.placement != new.placement:
        yield _placement(where, old.placement, new.placement)


def _placement(where: str, old: Placement | None, new: Placement | None) -> Mismatch:
    if old is not None and new is not None:
        before, after = str(old), str(new)
        if old.text == new.text and old.order != new.order:
            after += _OTHER_DEVICES
        elif before == after:
            after += _EQUAL
        return _line("sharding", where, before, after)
    spread = any(place is not None and place.devices > 1 for place in (old, new))
    texts = ["uncommitted" if p is None else f"committed to {p}" for p in (old, new)]
    return _line("sharding" if spread else "committed", where, *texts)


def _leaf_text(leaf: Leaf, *, weak: bool = False) -> str:
    """Return ``float32[3,4]``; with *weak*, including whether the type is weak."""
    prefix = "weak type " if weak and leaf.weak else ""
    return f"{prefix}{_dtype_text(leaf.dtype)}[{','.join(map(str, leaf.shape))}]"


# For NumPy dtypes it is Python code.
_dtype_text = functools.lru_cache(maxsize=100)(str)


def _line(
    kind: str, where: str, before: str, after: str, *, prefix: str = "argument "
) -> Mismatch:
    """Return one difference, with its text."""
    return Mismatch(kind, where, before, after, f"{prefix}{where}: {before} → {after}")
