"""The parts of an agent, put together."""

from __future__ import annotations

from jaxmon.agent.cache.part import PersistentCache
from jaxmon.agent.checks.determinism import Determinism
from jaxmon.agent.checks.numerics import Numerics
from jaxmon.agent.compiles.programs import Programs
from jaxmon.agent.context import Context, Part
from jaxmon.agent.devices.figures import DeviceFigures
from jaxmon.agent.devices.part import Identity
from jaxmon.agent.errors.part import Errors
from jaxmon.agent.memory.lines import Allocations
from jaxmon.agent.memory.part import Memory
from jaxmon.agent.sampling.part import Sampling
from jaxmon.agent.transfers.part import Transfers


class Parts:
    """
    Everything that observes in one agent, hooks and indicators aside.

    Attributes:
        by_name: each part, in the order of starting.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.memory = Memory(context)
        self.allocations = Allocations(context)
        self.programs = Programs(context)
        self.cache = PersistentCache(context)
        self.errors = Errors(context)
        self.sampling = Sampling(context)
        self.transfers = Transfers(context)
        self.transfers.observe(self.sampling)
        self.determinism = Determinism(context)
        self.determinism.observe(self.sampling, self.errors)
        self.numerics = Numerics(context)
        self.sampling.observers.append(self.numerics.sampled)
        self.programs.promoted = self.numerics.promoted
        self.identity = Identity(context.jax)
        self.device_figures = DeviceFigures(context)
        self.by_name: dict[str, Part] = {
            "memory": self.memory,
            "allocations": self.allocations,
            "programs": self.programs,
            "cache": self.cache,
            "errors": self.errors,
            "sampling": self.sampling,
            "transfers": self.transfers,
            "determinism": self.determinism,
            "numerics": self.numerics,
            "identity": self.identity,
            "device_figures": self.device_figures,
        }
        self.errors.reports.facts.parts = self.by_name
