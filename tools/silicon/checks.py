"""The checks, most valuable first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from tools.silicon import commands, driver, hangs, memory, nccl, timing
from tools.silicon.findings import Finding, Measured


ON_DEMAND: Mapping[str, str] = MappingProxyType(
    {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
)
LITTLE: Mapping[str, str] = MappingProxyType({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.1"})


@dataclass(frozen=True, kw_only=True)
class Check:
    """
    A check that runs in a process of its own.

    Attributes:
        measure: measures, and may write files to a directory.
        judge: compares what was measured.
        seconds: limit of the process.
        gpu: only a GPU can show it.
        environ: additional variables.
    """

    measure: Callable[[Path], Measured]
    judge: Callable[[Measured], Iterable[Finding]]
    seconds: float = 90
    gpu: bool = True
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """What it does, in one line."""
        return " ".join((self.measure.__doc__ or "").strip().split("\n\n")[0].split())


def _check(name: str, module: ModuleType, **options: Any) -> tuple[str, Check]:
    """Return the check of *module* with that *name*: what measures, and judges."""
    measure, judge = (
        getattr(module, f"{what}_{name}") for what in ("measure", "judge")
    )
    return name, Check(measure=measure, judge=judge, **options)


CHECKS: dict[str, Check] = dict(
    [
        _check("smi", driver),
        _check("execution", timing, gpu=False),
        _check("memory", memory, environ=ON_DEMAND),
        _check("oom", memory, environ=LITTLE),
        _check("profile", timing, gpu=False),
        _check("load", driver),
        _check("join", driver, environ=ON_DEMAND),
        _check("ras", nccl),
        _check("hang", hangs, seconds=200, gpu=False),
        _check("limit", hangs, seconds=220),
        _check("transfers", memory),
        _check("replay", timing, gpu=False),
        _check("doctor", commands, gpu=False),
        _check("demo", commands, gpu=False, environ=ON_DEMAND),
        _check("overhead", timing, seconds=240, gpu=False, environ=ON_DEMAND),
    ]
)
