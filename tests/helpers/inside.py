"""
What is inside an agent, for tests that look there or break something.

The only module of the tests that knows where an agent keeps its parts.
"""

from functools import partial
from typing import Any, TypeVar

from jaxmon.agent import Agent
from jaxmon.agent.agent import runtime_of
from jaxmon.agent.cache.part import PersistentCache
from jaxmon.agent.calls import CallLayer
from jaxmon.agent.checks.determinism import DeterminismPart
from jaxmon.agent.checks.log_values import LoggedValues
from jaxmon.agent.checks.numerics import NumericsPart
from jaxmon.agent.compiles.part import Compiles
from jaxmon.agent.compiles.programs import Programs
from jaxmon.agent.context import Observers, Registry
from jaxmon.agent.devices.part import DeviceIdentity
from jaxmon.agent.errors.part import ErrorPart
from jaxmon.agent.events import EventLog
from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.hooks import Hooks
from jaxmon.agent.jaxlink.listeners import Listeners, Probe
from jaxmon.agent.memory.lines import MemoryLines
from jaxmon.agent.memory.part import MemoryPart
from jaxmon.agent.oom.part import OomReports
from jaxmon.agent.own_metrics import Markers, ProcessPart
from jaxmon.agent.part import Part
from jaxmon.agent.recompiles.causes import Histories
from jaxmon.agent.reports.profile import Profiler
from jaxmon.agent.runtime import Runtime
from jaxmon.agent.sampling.part import Sampling
from jaxmon.agent.transfers import TransferPart
from jaxmon.indicators.figures import Indicators


PartT = TypeVar("PartT", bound=Part)


def runtime(agent: Agent) -> Runtime:
    found = runtime_of(agent)
    assert found is not None, "this agent is switched off"
    return found


def part(agent: Agent, kind: type[PartT]) -> PartT:
    found = runtime(agent).part(kind)
    if found is None:
        msg = f"this agent has no {kind.__name__}"
        raise LookupError(msg)
    return found


def hooks(agent: Agent) -> Hooks:
    return runtime(agent).hooks


def events(agent: Agent) -> EventLog:
    return runtime(agent).context.events


def table(agent: Agent) -> FunctionTable:
    return runtime(agent).context.table


def registry(agent: Agent) -> Registry:
    return runtime(agent).context.registry


def guard(agent: Agent) -> Guard:
    return runtime(agent).context.guard


def observers(agent: Agent) -> Observers:
    return runtime(agent).context.observers


def overview(agent: Agent) -> dict[str, Any]:
    return runtime(agent).overview.whole()


def see_error(agent: Agent, error: BaseException | None) -> None:
    errors(agent).on_surfaced(error)


def lose_hook(agent: Agent, name: str) -> None:
    hooks(agent).lose(name)


def probes(agent: Agent) -> list[Probe]:
    return hooks(agent).probes


def replaced(agent: Agent) -> list[Any]:
    return list(hooks(agent).patches._patches)


# --- the parts ------------------------------------------------------------------------


allocations = partial(part, kind=MemoryLines)
cache = partial(part, kind=PersistentCache)
calls = partial(part, kind=CallLayer)
compiles = partial(part, kind=Compiles)
determinism = partial(part, kind=DeterminismPart)
errors = partial(part, kind=ErrorPart)
identity = partial(part, kind=DeviceIdentity)
memory = partial(part, kind=MemoryPart)
logged = partial(part, kind=LoggedValues)
numerics = partial(part, kind=NumericsPart)
oom = partial(part, kind=OomReports)
process = partial(part, kind=ProcessPart)
profiler = partial(part, kind=Profiler)
programs = partial(part, kind=Programs)
sampling = partial(part, kind=Sampling)
transfers = partial(part, kind=TransferPart)


def causes(agent: Agent) -> Histories:
    finder = compiles(agent)._finder()
    assert finder is not None
    return finder._histories


def listeners(agent: Agent) -> Listeners:
    found = hooks(agent).listeners
    assert found is not None, "it could not attach"
    return found


def indicators(agent: Agent) -> Indicators:
    return part(agent, Markers).figures
