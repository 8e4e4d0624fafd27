"""
The faults: what breaks in which program, and which alert must report it.

Definitions only, for ``jaxmon gameday``, which drills them, and for ``jaxmon demo
--break``, which has those that need nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal


Means = Literal["signal", "deploy", "redeploy", "crash", "kill", "freeze", "driver"]
"""
How a fault begins and ends.

- ``signal``: SIGUSR1 breaks the program, SIGUSR2 mends it.
- ``deploy``: every process is replaced by a broken one, which SIGUSR2 mends.
- ``redeploy``: the same, but sound ones replace them in turn.
- ``crash``: SIGUSR1 makes it exit with an error; its successors do so at startup.
- ``kill``: SIGKILL; a new process takes its place at the end.
- ``freeze``: SIGSTOP and SIGCONT.
- ``driver``: the stand-in for the GPU driver reports it.
"""

Program = Literal["serve", "train", "fragile", "rank", "sharded", ""]

LOAD = frozenset(
    {
        "JaxmonAgentSilent",
        "JaxmonSlowdown",
        "JaxmonTargetDown",
        "JaxmonTimeLost",
        "JaxmonWarmLatencyBudgetBurn",
    }
)
"""Alerts about speed that a busy machine may bring: not held against a scenario."""

RESTART = frozenset({"JaxmonServiceVanished"})
"""Alerts that a restart may bring: to accelerated rules, it takes minutes."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """
    One fault, and what it leads to.

    Args:
        name: of the scenario, and of the fault that the program knows.
        guide: what breaks, by its number in the operator's guide; empty if it has none.
        program: the one of our `programs` that breaks; empty for hardware.
        alert: the name of the alert that must report it.
        summary: what happens, as a clause without a full stop.
        severity: of that alert, if it has several and only one will do.
        follows: other alerts that are true as well, and may arrive.
        means: how it begins and ends.
        processes: how many run the program.
        environ: further environment variables of the program; ``{directory}`` stands
            for a directory that its processes share.
        broken_environ: those that a redeployed, broken process has instead.
        orders: lines that the stand-in driver obeys while the fault lasts.
        xids: Xid errors that it reports when the fault begins, as device and number.
        usual_for: seconds that it must have run before it breaks, in a stack that is 60
            times as fast as production.
    """

    name: str
    guide: str
    program: Program
    alert: str
    summary: str
    severity: Literal["page", "ticket", ""] = ""
    follows: frozenset[str] = frozenset()
    means: Means = "signal"
    processes: int = 1
    environ: tuple[tuple[str, str], ...] = ()
    broken_environ: tuple[tuple[str, str], ...] = ()
    orders: tuple[str, ...] = ()
    xids: tuple[str, ...] = ()
    usual_for: float = 15.0

    @property
    def needs_driver(self) -> bool:
        """Whether it needs a stand-in for the GPU driver."""
        return self.means == "driver"

    @property
    def needs(self) -> str:
        """What it needs that the demo has not, empty if a program there can have it."""
        if self.needs_driver:
            return "a stand-in for the GPU driver"
        if self.processes > 1:
            return f"{self.processes} processes of one service"
        if self.program not in ("serve", "train"):
            return "a program of its own"
        if self.means not in ("signal", "freeze"):
            return "a process that it may end"
        return ""

    def expects(self, alert: str) -> bool:
        """Return whether *alert* may arrive while this is drilled."""
        restarts = self.means in ("deploy", "redeploy", "crash", "kill")
        return alert in {
            *(self.alert, *self.follows, *LOAD),
            *(RESTART if restarts else ()),
        }


_COLD = "JaxmonColdStartBudgetBurn"

_SERVING = (
    Scenario(
        *("cold", "F1", "serve", _COLD),
        "a new version serves without a warm-up, a new model per request",
        means="deploy",
    ),
    Scenario(
        *("oom", "F2", "serve", "JaxmonOutOfMemory"),
        "a server feature requests more memory than available",
    ),
    Scenario(
        *("recompile", "F3", "serve", "JaxmonRecompileStorm"),
        "every request has a different shape",
        follows=frozenset({_COLD}),
    ),
    Scenario(
        *("key-reuse", "F4", "serve", "JaxmonCheckFailed"),
        "samples are drawn twice from one PRNG key",
    ),
    Scenario(
        *("nondeterminism", "F4", "serve", "JaxmonCheckFailed"),
        "a function gives different outputs for the same input",
    ),
    Scenario(
        *("leak", "F5", "serve", "JaxmonMemoryLeak"),
        "a server keeps an array of each request",
    ),
    Scenario(
        *("thunder", "F6", "serve", "JaxmonThunderingCompilation"),
        "replicas start without their shared cache, and compile the same",
        # Once all are compiled, nothing is left to mend.
        means="deploy",
        processes=4,
        environ=(
            ("JAX_COMPILATION_CACHE_DIR", "{directory}/cache"),
            # All of these programs compile in less than JAX's least time for it.
            ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0"),
            ("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1"),
        ),
        # Who drills this may have a cache in the environment.
        broken_environ=(("JAX_ENABLE_COMPILATION_CACHE", "false"),),
    ),
    Scenario(
        *("hang", "F8", "serve", "JaxmonRequestsHang"),
        "requests wait for a lock that is never released",
    ),
    Scenario(
        *("errors", "", "serve", "JaxmonRequestErrorBudgetBurn"),
        "requests fail",
        severity="page",
    ),
    Scenario(
        *("latency", "", "serve", "JaxmonWarmLatencyBudgetBurn"),
        "every request waits for a slow store",
    ),
    Scenario(
        *("vanish", "", "serve", "JaxmonServiceVanished"),
        "a server is killed and does not come back",
        means="kill",
    ),
    Scenario(
        *("freeze", "F8", "serve", "JaxmonAgentSilent"),
        "a server is stopped, but its process remains",
        means="freeze",
        follows=frozenset({"JaxmonServiceVanished"}),
    ),
)

# A loop that is stuck is late as well, and waits for what it waits for.
_STUCK = frozenset({"JaxmonStepFreshnessBudgetBurn", "JaxmonTimeLost"})

_TRAINING = (
    Scenario(
        *("stall", "F8", "train", "JaxmonTrainingStalled"),
        "the training loop waits for data that never arrives",
        follows=_STUCK,
    ),
    Scenario(
        *("starve", "", "train", "JaxmonTimeLost"),
        "the training loop waits for its loader in every step",
    ),
    Scenario(
        *("die", "", "train", "JaxmonTrainingDied"),
        "a training process is killed, and no other takes its place",
        means="kill",
    ),
    Scenario(
        *("crash", "", "fragile", "JaxmonCrashLoop"),
        "a process exits with an error before its first step, again and again",
        means="crash",
        follows=frozenset({"JaxmonTrainingDied"}),
    ),
    Scenario(*("nan", "", "train", "JaxmonNonFinite"), "the loss is NaN"),
    Scenario(
        *("unsaved", "", "train", "JaxmonCheckpointFailed"),
        "checkpoints cannot be written",
    ),
    Scenario(
        *("slow", "F7", "train", "JaxmonSlowdown"),
        "a training step takes several times as long as before",
        # The times of a loop are recorded once in as many seconds as make ten samples.
        environ=(("JAXMON_SAMPLE_RATE", "10"),),
        usual_for=45.0,
    ),
    Scenario(
        *("corrupt", "F4", "sharded", "JaxmonSilentCorruption"),
        "one of the devices computes wrongly, without an error",
        follows=frozenset({"JaxmonCheckFailed"}),
        environ=(
            ("JAX_PLATFORMS", "cpu"),
            ("XLA_FLAGS", "--xla_force_host_platform_device_count=4"),
            ("JAXMON_SHADOW_INTERVAL", "0.1"),
            ("JAXMON_SAMPLE_RATE", "10"),
        ),
    ),
    Scenario(
        *("diverge", "F7", "rank", "JaxmonProgramsDiverge"),
        "two processes of one mesh run different versions of a program",
        means="redeploy",
        processes=2,
    ),
    Scenario(
        *("rank-stuck", "F8", "rank", "JaxmonRankStuck"),
        "a process of a job is stuck, and the other waits in a collective",
        processes=2,
    ),
)

# NVML's code for a lost GPU.
_LOST = 15
# Number of NVML's field for the time spent at lower clocks because the GPU was hot.
_HARDWARE_THERMAL = 270
_MINUTE = 60_000_000_000

# Of GPUs, which a stand-in for NVIDIA's driver reports.
_HARDWARE = (
    Scenario(
        *("gpu-lost", "", "", "JaxmonAcceleratorLost"),
        "a GPU falls off the bus",
        means="driver",
        orders=(f"device 1 {_LOST}",),
    ),
    Scenario(
        *("gpu-xid", "", "", "JaxmonGpuFault"),
        "a GPU reports Xid 79, with which its work is lost",
        means="driver",
        xids=("1 79",),
    ),
    Scenario(
        *("gpu-throttled", "", "", "JaxmonGpuThrottled"),
        "a GPU is too hot and lowers its clocks",
        means="driver",
        orders=(f"field 1 {_HARDWARE_THERMAL} {_MINUTE}",),
    ),
)


SCENARIOS = (*_SERVING, *_TRAINING, *_HARDWARE)
"""All of them, in the order in which they are listed."""

BY_NAME: Mapping[str, Scenario] = MappingProxyType(
    {scenario.name: scenario for scenario in SCENARIOS}
)
