"""
What a program spends between two moments: compiles, recompiles, transfers, memory.
"""

from __future__ import annotations

import gc
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from jaxmon.agent.agent import Agent, runtime_of
from jaxmon.agent.events import LoggedEvent
from jaxmon.agent.functions import OTHER, UNKNOWN, Function
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.memory import profile as memory_profile
from jaxmon.agent.memory.part import count_buffers, group_arrays
from jaxmon.agent.memory.profile import MemoryProfile
from jaxmon.agent.runtime import Runtime
from jaxmon.agent.transfers import TransferPart
from jaxmon.errors import JaxmonError
from jaxmon.facts.memory import Transfers as Facts


@dataclass(frozen=True, slots=True)
class Growth:
    """Growth in bytes on all local devices, and in the number of arrays by type."""

    bytes: int
    arrays: dict[str, int]


@dataclass(frozen=True, slots=True)
class ArraySnapshot:
    """Live arrays by type, such as ``float32[32,128]``: their number and bytes."""

    arrays: Counter[str]
    sizes: Counter[str]

    def since(self, before: ArraySnapshot) -> Growth:
        """Return the difference from *before*."""
        grown = {
            kind: size
            for kind in {**self.sizes, **before.sizes}
            if (size := self.sizes[kind] - before.sizes[kind])
        }
        kinds = sorted(grown, key=lambda kind: (-grown[kind], kind))
        arrays = {kind: self.arrays[kind] - before.arrays[kind] for kind in kinds}
        return Growth(sum(grown.values()), arrays)


def snapshot_arrays(jax: Any, guard: Guard) -> ArraySnapshot:
    """
    Collect garbage and take a snapshot of the remaining live arrays.

    Costs some microseconds per array. Does not initialise JAX's backends: until the
    program does, there are no arrays.
    """
    arrays, sizes = Counter[str](), Counter[str]()
    gc.collect()
    if not backends.initialised(jax):
        return ArraySnapshot(arrays, sizes)
    groups = Counter(group_arrays(jax.live_arrays()))
    for kind, device, count in count_buffers(jax, guard, groups):
        name = f"{kind.dtype}[{','.join(map(str, kind.shape))}]"
        arrays[name] += count if device == kind.devices[0] else 0
        sizes[name] += kind.shard_bytes * count
    return ArraySnapshot(arrays, sizes)


# A line that transfers data: file, line, direction, function called.
Line: TypeAlias = tuple[str, int, str, str]

# The hooks that count; their failures are counted under the same names.
_HOOKS = ("monitoring", "compiles", "misses")

UNSEEN = "unseen"
"""The cause of a recompile whose first compile was not observed."""


@dataclass(frozen=True, slots=True)
class FunctionCost:
    """
    What a function has cost: programs compiled, or loaded from the persistent cache,
    recompiles by cause, `UNSEEN` if the first compile was before the budget, and the
    seconds to trace, lower, compile and load.
    """

    name: str
    internal: bool
    compiles: int
    causes: dict[str, int]
    seconds: float

    @property
    def recompiles(self) -> int:
        """Recompiles, whatever the cause."""
        return sum(self.causes.values())


@dataclass(frozen=True, slots=True)
class Cost:
    """
    What was spent. *functions*: those that were compiled, longest first; *recompiles*:
    the last 200 events of that kind, oldest first; *transfers* by direction, *memory*:
    `None` if not requested; *lines* by transfers, *holders* by growth in bytes, most
    first.
    """

    functions: tuple[FunctionCost, ...]
    recompiles: tuple[LoggedEvent, ...]
    transfers: dict[str, int] | None
    lines: dict[Line, int]
    memory: Growth | None
    holders: dict[str, int]


class _Figures(NamedTuple):
    """The cost of a function at one point in time."""

    compiles: int
    causes: Counter[str]
    missed: int
    seconds: float


_NOTHING = _Figures(0, Counter(), 0, 0.0)


class Ledger:
    """
    Starts when created; `cost` returns what was spent since by all threads. The *agent*
    must keep running. To look for functions that were *unseen*, compiled before the
    agent saw them, takes about 50 ms the first time; *memory*: sum live arrays, after
    collecting garbage.

    Raises:
        JaxmonError: the agent does not observe what is requested.
    """

    def __init__(
        self,
        agent: Agent,
        *,
        unseen: bool = False,
        transfers: bool = False,
        memory: bool = False,
    ) -> None:
        self._agent = agent
        self._runtime = _runtime_of(agent)
        self._context = self._runtime.context
        self._failures = Counter(self._context.guard.failures())
        self._check()
        self._held = self._take_snapshot() if memory else None
        self._transfers = self._transferred() if transfers else None
        self._event = self._context.events.last()
        self._functions = {f: _figures(f) for f in self._context.table}
        self._compiled_before = self._unseen() if unseen else frozenset[str]()

    def cost(self) -> Cost:
        """
        Return what was spent since the start.

        Raises:
            JaxmonError: the agent was stopped meanwhile, or a hook was disabled.
        """
        if not self._agent.running:
            msg = (
                "jaxmon was stopped while a budget was active; call "
                "jaxmon.uninstrument() after its block"
            )
            raise JaxmonError(msg)
        self._check()
        costs = [self._since(function) for function in self._context.table]
        costs.sort(key=lambda cost: (-cost.seconds, cost.name))
        directions, lines = self._moved()
        memory, holders = self._grown()
        return Cost(
            functions=tuple(cost for cost in costs if cost.compiles),
            recompiles=tuple(self._context.events.since(self._event, "recompile")),
            transfers=directions,
            lines=lines,
            memory=memory,
            holders=holders,
        )

    def _check(self) -> None:
        hooks = self._runtime.hooks
        failures = self._context.guard.failures()
        for hook in _HOOKS:
            failed = failures.get(hook, 0) > self._failures[hook]
            if failed or not hooks.is_active(hook):
                msg = (
                    f"jaxmon cannot count compiles: its hook {hook!r} failed with JAX "
                    f"{self._context.jax.__version__}; a warning in the log says why"
                )
                raise JaxmonError(msg)

    def _since(self, function: Function) -> FunctionCost:
        now, before = _figures(function), self._functions.get(function, _NOTHING)
        compiles = now.compiles - before.compiles
        causes = dict(now.causes - before.causes)
        if (
            function.name in self._compiled_before
            and compiles > sum(causes.values())
            and now.missed > before.missed
        ):
            causes[UNSEEN] = 1
        seconds = now.seconds - before.seconds
        return FunctionCost(function.name, function.internal, compiles, causes, seconds)

    def _unseen(self) -> frozenset[str]:
        """Return labels of functions that JAX has compiled without being observed."""
        seen = {f.name for f, figures in self._functions.items() if figures.compiles}
        return self._context.registry.compiled_before() - seen - {OTHER, UNKNOWN}

    def _transferred(self) -> tuple[Counter[str], Counter[Line]]:
        part = self._runtime.part(TransferPart)
        found = Facts() if part is None else part.snapshot()
        if not found.directions:
            msg = (
                "jaxmon cannot count transfers: the agent does not observe them; "
                "start it with transfers=True, and check its log"
            )
            raise JaxmonError(msg)
        counts = {name: crossings.count for name, crossings in found.directions.items()}
        lines = Counter[Line]()
        for line in found.lines:
            lines[line.file, line.line, line.direction, line.how] += line.count
        return Counter(counts), lines

    def _moved(self) -> tuple[dict[str, int] | None, dict[Line, int]]:
        if self._transfers is None:
            return None, {}
        counts, lines = self._transferred()
        before, lines_before = self._transfers
        directions = {name: counts[name] - before[name] for name in sorted(counts)}
        return directions, dict((lines - lines_before).most_common())

    def _take_snapshot(self) -> tuple[ArraySnapshot, MemoryProfile | None]:
        held = snapshot_arrays(self._context.jax, self._context.guard)
        try:
            return held, self._agent.memory()
        except JaxmonError:  # without it the amount is known, but not the line
            return held, None

    def _grown(self) -> tuple[Growth | None, dict[str, int]]:
        if self._held is None:
            return None, {}
        held, profile = self._take_snapshot()
        held_before, profile_before = self._held
        growth = held.since(held_before)
        if profile is None or profile_before is None:
            return growth, {}
        lines = memory_profile.held(profile.growth_since(profile_before))
        return growth, {
            str(line): int(line.bytes)
            for line in lines
            if line.kind == "buffer" and line.bytes > 0
        }


def totals(agent: Agent) -> tuple[int, int, float]:
    """
    Return compiles, recompiles and seconds of all functions since *agent* started.
    """
    return _runtime_of(agent).context.table.totals()


def _runtime_of(agent: Agent) -> Runtime:
    runtime = runtime_of(agent)
    if runtime is None:
        msg = "jaxmon is disabled: nothing is counted"
        raise JaxmonError(msg)
    return runtime


def _figures(function: Function) -> _Figures:
    return _Figures(
        function.built,
        function.recompiled(),
        function.other_missed.value,  # of objects that existed before
        function.spent,
    )
