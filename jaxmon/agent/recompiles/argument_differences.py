"""Differences between the arguments of two calls: tree structure and leaves."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from jaxmon import disclosure
from jaxmon.agent.jaxlink.leaf_types import Leaf
from jaxmon.agent.recompiles.placements import Placement
from jaxmon.agent.recompiles.signatures import (
    LEAF,
    NONE,
    Argument,
    Node,
    Signature,
    Static,
)


ABSENT = "not given"
EQUAL = " (looks equal, but JAX treats it as different)"
BEYOND = " (differs beyond the part shown)"
OTHER_DEVICES = " (different devices, or a different order)"

_FEW = 8


class Difference(NamedTuple):
    """
    One difference that requires separate programs.

    Attributes:
        kind: one of `jaxmon.catalog.CAUSES`.
        where: the argument with the path of the leaf, or the name of an option.
        before: the old value as text.
        after: the new value as text.
        text: the difference as one line.
    """

    kind: str
    where: str
    before: str
    after: str
    text: str

    def as_json(self) -> dict[str, str]:
        """Return the difference in JSON types."""
        return {
            "kind": self.kind,
            "where": self.where,
            "before": self.before,
            "after": self.after,
            "text": self.text,
        }


def argument_differences(new: Signature, old: Signature) -> Iterator[Difference]:
    """Yield the differences of the traced arguments."""
    if new.leaves == old.leaves and new.arguments == old.arguments:
        return
    befores, afters = _placed(old), _placed(new)
    for name, (after, start) in afters.items():
        if name not in befores:
            text = _node(after.node, new.leaves, start)
            yield line("tree_structure", name, ABSENT, text)
            continue
        before, begin = befores[name]
        if before.by_name != after.by_name:
            yield line("tree_structure", name, *passing_style(before, after))
        walk = _TreeComparison(new, old)
        yield from walk.node(name, (before.node, begin), (after.node, start))
    for name, (before, begin) in befores.items():
        if name not in afters:
            text = _node(before.node, old.leaves, begin)
            yield line("tree_structure", name, text, ABSENT)


def operand_differences(new: Signature, old: Signature) -> Iterator[Difference]:
    """
    Yield the differences of what two programs of a transformed function are applied to,
    such as the size of the batch in `jax.vmap`.
    """
    for number, pair in enumerate(zip(old.operands, new.operands, strict=False)):
        yield from _leaf(f"{number} of the transformed function", *pair)


def _placed(signature: Signature) -> dict[str, tuple[Argument, int]]:
    """Return each argument with the index of its first leaf."""
    found, start = {}, 0
    for argument in signature.arguments:
        found[argument.name] = (argument, start)
        start += argument.node.leaves
    return found


def passing_style(
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
    ) -> Iterator[Difference]:
        """Yield the differences of two nodes, each with the index of its first leaf."""
        (old, begin), (new, start) = before, after
        if old == new:
            if old is not NONE:
                yield from self._leaves(where, old, begin, start)
            return
        if old.name != new.name or LEAF in (old, new):
            texts = (
                _node(old, self._old.leaves, begin),
                _node(new, self._new.leaves, start),
            )
            yield line("tree_structure", where, *texts)
            return
        if old.identity != new.identity:
            yield line("tree_structure", where, *_statics(old, new))
        yield from self._children(where, before, after)

    def _children(
        self, where: str, before: tuple[Node, int], after: tuple[Node, int]
    ) -> Iterator[Difference]:
        befores, afters = _children(*before), _children(*after)
        added = [key for key in afters if key not in befores]
        removed = [key for key in befores if key not in afters]
        old, new = before[0], after[0]
        if (added or removed) and new.name in ("tuple", "list"):
            yield line("tree_structure", where, _outline(old), _outline(new))
            added, removed = [], []
        if added or removed:
            texts = (_keys(added, "added"), _keys(removed, "removed"))
            text = f"argument {where}: {', '.join(filter(None, texts))}"
            shown = _outline(old), _outline(new)
            yield Difference("tree_structure", where, *shown, text)
        if befores.keys() == afters.keys() and [*befores] != [*afters]:
            yield line("tree_structure", where, _order(befores), _order(afters))
        for key, child in afters.items():
            if key in befores:
                yield from self.node(where + key, befores[key], child)

    def _leaves(
        self, where: str, node: Node, begin: int, start: int
    ) -> Iterator[Difference]:
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
    return leaf_text(leaves[start]) if node == LEAF else _outline(node)


def _outline(node: Node) -> str:
    """Return ``dict of 3``: a node without its children."""
    if node in (LEAF, NONE):
        return "a leaf" if node == LEAF else "None"
    if node.keys is not None and not node.identity:
        return f"{node.name} of {len(node.children)}"
    return node.name


def _statics(old: Node, new: Node) -> tuple[str, str]:
    if old.identity[0] != new.identity[0]:
        return f"class {old.name}", f"a different class {new.name}"
    note = ""
    if old.static == new.static:
        note = (
            BEYOND if differs_beyond_text(old.identity[1], new.identity[1]) else EQUAL
        )
    before, after = map(disclosure.value, (old.static, new.static))
    return f"static part {before}", f"static part {after}{note}"


def _keys(keys: Sequence[str], how: str) -> str:
    noun = "key" if len(keys) == 1 else "keys"
    return f"{noun} {', '.join(map(_bare, keys))} {how}" if keys else ""


def _order(keys: Iterable[str]) -> str:
    return f"keys {', '.join(map(_bare, keys))}"


def _bare(key: str) -> str:
    return key[1:-1] if key.startswith("[") else key.removeprefix(".")


def _leaf(where: str, old: Leaf, new: Leaf) -> Iterator[Difference]:
    if old.dtype != new.dtype or old.shape != new.shape:
        kind = "dtype" if old.dtype != new.dtype else "shape"
        weak = old.weak != new.weak
        texts = leaf_text(old, weak=weak), leaf_text(new, weak=weak)
        yield line(kind, where, *texts)
    elif old.weak != new.weak:
        names = [
            f"weak type {leaf.dtype}" if leaf.weak else str(leaf.dtype)
            for leaf in (old, new)
        ]
        yield line("weak_type", where, *names)
    if old.placement != new.placement:
        yield _placement(where, old.placement, new.placement)


def _placement(where: str, old: Placement | None, new: Placement | None) -> Difference:
    if old is not None and new is not None:
        before, after = str(old), str(new)
        if old.text == new.text and old.order != new.order:
            after += OTHER_DEVICES
        elif before == after:
            after += EQUAL
        return line("sharding", where, before, after)
    spread = any(place is not None and place.devices > 1 for place in (old, new))
    texts = ["uncommitted" if p is None else f"committed to {p}" for p in (old, new)]
    return line("sharding" if spread else "committed", where, *texts)


def leaf_text(leaf: Leaf, *, weak: bool = False) -> str:
    """Return ``float32[3,4]``; with *weak*, including whether the type is weak."""
    prefix = "weak type " if weak and leaf.weak else ""
    return f"{prefix}{_dtype_text(leaf.dtype)}[{','.join(map(str, leaf.shape))}]"


_dtype_text = functools.lru_cache(maxsize=100)(
    str
)  # for NumPy dtypes it is Python code


def line(
    kind: str, where: str, before: str, after: str, *, prefix: str = "argument "
) -> Difference:
    """Return one difference, with its text."""
    text = f"{prefix}{where}: {before} → {after}"
    return Difference(kind, where, before, after, text)


def differs_beyond_text(before: tuple[Any, ...], after: tuple[Any, ...]) -> bool:
    """
    Return whether two values whose displayed texts are equal differ in their full text,
    judging by their keys.
    """
    return bool(before[-1] != after[-1])
