"""Stacks of threads as the reader of activities gets them."""

import jax

from jaxmon.agent.jaxlink.activity import (
    ActivityReader,
    Doing,
)
from jaxmon.agent.jaxlink.call_sites import CallSites
from jaxmon.agent.jaxlink.other_threads import Position


def read(*stack: Position, sites: CallSites | None = None) -> Doing:
    """Return what a thread with this *stack* does, innermost first."""
    return ActivityReader(jax, sites or CallSites()).read(list(stack))


def module_of(file: str) -> Position:
    """Return where the code of a module from *file* is."""
    return Position(compile("pass", file, "exec"), 0, {})


LIBRARY = module_of("/x/lib/python3.11/site-packages/optax/_src/base.py")


OF_JAX = module_of(f"{jax.__path__[0]}/experimental/multihost_utils.py")


INSTALLED = module_of("/x/lib/python3.11/site-packages/rich/console.py")


MACHINERY = module_of("<frozen importlib._bootstrap>")


PROGRAM = module_of("/app/train.py")
