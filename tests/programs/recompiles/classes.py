"""Classes that arguments are made of."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax


class State(NamedTuple):
    step: Any
    params: Any


@jax.tree_util.register_pytree_with_keys_class
class Module:
    """A class with named children and a static part."""

    def __init__(self, weight: Any, activation: str) -> None:
        self.weight, self.activation = weight, activation

    def tree_flatten_with_keys(self) -> Any:
        key = jax.tree_util.GetAttrKey("weight")
        return ((key, self.weight),), self.activation

    @classmethod
    def tree_unflatten(cls, static: str, children: Any) -> Module:
        return cls(children[0], static)


@jax.tree_util.register_pytree_node_class
class Pair:
    """A class whose children have no names."""

    def __init__(self, *children: Any) -> None:
        self.children = children

    def tree_flatten(self) -> Any:
        return self.children, None

    @classmethod
    def tree_unflatten(cls, _: Any, children: Any) -> Pair:
        return cls(*children)


class Model:
    """A class whose methods are jitted."""

    def __init__(self, size: int) -> None:
        self.size = size

    @functools.partial(jax.jit, static_argnums=0)
    def method(self, x: Any) -> Any:
        return x * self.size

    def plain(self, x: Any) -> Any:
        return x * self.size

    def jits_inside(self, x: Any) -> Any:
        @jax.jit
        def step(x):
            return x * self.size

        return step(x)

    @classmethod
    @functools.partial(jax.jit, static_argnums=0)
    def made(cls, x: Any) -> Any:
        return x + 1

    def __call__(self, x: Any) -> Any:
        return x * self.size


class Larger(Model):
    pass


@dataclass
class Layer:
    """A class as JAX registers dataclasses."""

    weight: Any
    name: str


jax.tree_util.register_dataclass(Layer, data_fields=["weight"], meta_fields=["name"])
