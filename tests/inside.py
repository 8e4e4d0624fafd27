"""
What is inside an agent, for tests that look there or break something.

The only module of the tests that knows where an agent keeps its parts.
"""

from __future__ import annotations

from typing import Any, TypeVar

from jaxmon.agent import Agent
from jaxmon.agent.cache.part import PersistentCache
from jaxmon.agent.calls.part import CallLayer
from jaxmon.agent.checks.determinism import Determinism
from jaxmon.agent.checks.numerics import Numerics
from jaxmon.agent.compiles.part import Compiles
from jaxmon.agent.compiles.programs import Programs
from jaxmon.agent.devices.part import Identity
from jaxmon.agent.errors.part import Errors
from jaxmon.agent.events import EventLog
from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.jaxlink.listeners import Listeners
from jaxmon.agent.jaxlink.probe import Probe
from jaxmon.agent.memory.lines import Allocations
from jaxmon.agent.memory.part import Memory
from jaxmon.agent.oom.part import OomReports
from jaxmon.agent.recompiles.causes import Causes
from jaxmon.agent.reports.profile import Profiler
from jaxmon.agent.sampling.part import Sampling
from jaxmon.agent.transfers.part import Transfers
from jaxmon.indicators.figures import Indicators
from jaxmon.resources.process import ProcessFamilies


PartT = TypeVar("PartT")


def part(agent: Agent, kind: type[PartT]) -> PartT:
    """Return the part of class *kind*."""
    hooks_of = agent._hooks
    known = (
        *agent._parts.by_name.values(),
        *(hooks_of.compiles, hooks_of._calls, hooks_of._listeners),
        *(agent._parts.errors.reports, agent._profiler, agent._process),
    )
    for one in known:
        if isinstance(one, kind):
            return one
    msg = f"this agent has no {kind.__name__}"
    raise LookupError(msg)


def hooks(agent: Agent) -> Hooks:
    """Return all hooks."""
    return agent._hooks


def events(agent: Agent) -> EventLog:
    """Return what happened, in words."""
    return agent._context.events


def table(agent: Agent) -> FunctionTable:
    """Return the functions and their figures."""
    return agent._context.table


def guard(agent: Agent) -> Guard:
    """Return what contains failures."""
    return agent._context.guard


def overview(agent: Agent) -> dict[str, Any]:
    """Return what the page of that name tells."""
    return agent._overview.whole()


def see_error(agent: Agent, error: BaseException | None) -> None:
    """Report *error* as one that nobody caught."""
    agent._hooks.see_error(error)


def lose_hook(agent: Agent, name: str) -> None:
    """Have the hook called *name* observe no more, as if it had no place in JAX."""
    agent._hooks._attached[name] = False


def probes(agent: Agent) -> list[Probe]:
    """Return what stands in for functions of JAX."""
    return agent._hooks._probes


def replaced(agent: Agent) -> list[Any]:
    """Return the attributes that are replaced now."""
    return list(agent._hooks._patches._patches)


# --- the parts ------------------------------------------------------------------------


def allocations(agent: Agent) -> Allocations:
    """Return who holds memory by source line."""
    return part(agent, Allocations)


def cache(agent: Agent) -> PersistentCache:
    """Return what watches JAX's persistent cache."""
    return part(agent, PersistentCache)


def calls(agent: Agent) -> CallLayer:
    """Return what counts calls."""
    return part(agent, CallLayer)


def causes(agent: Agent) -> Causes:
    """Return what finds out why something is compiled again."""
    return agent._hooks.compiles._recompiles._causes


def compiles(agent: Agent) -> Compiles:
    """Return what follows compiles."""
    return part(agent, Compiles)


def determinism(agent: Agent) -> Determinism:
    """Return what keeps the outcomes of checks."""
    return part(agent, Determinism)


def errors(agent: Agent) -> Errors:
    """Return what counts errors."""
    return part(agent, Errors)


def identity(agent: Agent) -> Identity:
    """Return what says who this process is."""
    return part(agent, Identity)


def listeners(agent: Agent) -> Listeners:
    """Return what listens to `jax.monitoring`."""
    return part(agent, Listeners)


def memory(agent: Agent) -> Memory:
    """Return what reads device memory."""
    return part(agent, Memory)


def numerics(agent: Agent) -> Numerics:
    """Return what looks for values that are not finite."""
    return part(agent, Numerics)


def oom(agent: Agent) -> OomReports:
    """Return what reports that memory ran out."""
    return part(agent, OomReports)


def process(agent: Agent) -> ProcessFamilies:
    """Return what reads the figures of the process."""
    return part(agent, ProcessFamilies)


def profiler(agent: Agent) -> Profiler:
    """Return what takes traces."""
    return part(agent, Profiler)


def programs(agent: Agent) -> Programs:
    """Return what reads executables."""
    return part(agent, Programs)


def sampling(agent: Agent) -> Sampling:
    """Return what samples calls."""
    return part(agent, Sampling)


def indicators(agent: Agent) -> Indicators:
    """Return what the program says about itself."""
    return agent._indicators


def transfers(agent: Agent) -> Transfers:
    """Return what counts transfers."""
    return part(agent, Transfers)
