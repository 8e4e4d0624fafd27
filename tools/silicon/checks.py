"""The checks, most valuable first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

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


CHECKS: dict[str, Check] = {
    "smi": Check(measure=driver.measure_smi, judge=driver.judge_smi),
    "execution": Check(
        measure=timing.measure_execution, judge=timing.judge_execution, gpu=False
    ),
    "memory": Check(
        measure=memory.measure_memory, judge=memory.judge_memory, environ=ON_DEMAND
    ),
    "oom": Check(measure=memory.measure_oom, judge=memory.judge_oom, environ=LITTLE),
    "profile": Check(
        measure=timing.measure_profile, judge=timing.judge_profile, gpu=False
    ),
    "load": Check(measure=driver.measure_load, judge=driver.judge_load),
    "join": Check(
        measure=driver.measure_join, judge=driver.judge_join, environ=ON_DEMAND
    ),
    "ras": Check(measure=nccl.measure_ras, judge=nccl.judge_ras),
    "hang": Check(
        measure=hangs.measure_hang, judge=hangs.judge_hang, seconds=200, gpu=False
    ),
    "limit": Check(measure=hangs.measure_limit, judge=hangs.judge_limit, seconds=220),
    "transfers": Check(measure=memory.measure_transfers, judge=memory.judge_transfers),
    "replay": Check(
        measure=timing.measure_replay, judge=timing.judge_replay, gpu=False
    ),
    "doctor": Check(
        measure=commands.measure_doctor, judge=commands.judge_doctor, gpu=False
    ),
    "demo": Check(
        measure=commands.measure_demo,
        judge=commands.judge_demo,
        gpu=False,
        environ=ON_DEMAND,
    ),
    "overhead": Check(
        measure=timing.measure_overhead,
        judge=timing.judge_overhead,
        seconds=240,
        gpu=False,
        environ=ON_DEMAND,
    ),
}
