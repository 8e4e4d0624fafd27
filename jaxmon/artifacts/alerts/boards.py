"""Which dashboard an alert opens, and what it selects there."""

from __future__ import annotations

from collections.abc import Iterable

from jaxmon.promql.identity import Identity


ONCALL = "jaxmon-oncall"
"""
Opened by what has no board of its own, as an objective: it shows all budgets. Only
services are selected there.
"""

_BOARDS = {
    "jaxmon-serving": (
        "JaxmonColdLatency",
        "JaxmonColdStarts",
        "JaxmonRequestsHang",
        "JaxmonServiceVanished",
    ),
    "jaxmon-training": (
        "JaxmonCheckpointAge",
        "JaxmonCheckpointFailed",
        "JaxmonDataStarvation",
        "JaxmonGoodputLow",
        "JaxmonNcclStuck",
        "JaxmonNonFinite",
        "JaxmonRankSlow",
        "JaxmonRankStuck",
        "JaxmonRunNoProgress",
        "JaxmonStraggler",
        "JaxmonTimeLost",
        "JaxmonTrainingDied",
        "JaxmonTrainingStalled",
    ),
    "jaxmon-accelerators": (
        "JaxmonAcceleratorIdle",
        "JaxmonAcceleratorLost",
        "JaxmonAcceleratorUnderused",
        "JaxmonGpuEccErrors",
        "JaxmonGpuNeedsReset",
        "JaxmonGpuThrottled",
        "JaxmonGpuXid",
        "JaxmonTpuRuntimeDown",
    ),
    "jaxmon-fleet": (
        "JaxmonCrashLoop",
        "JaxmonDeployInProgress",
        "JaxmonProgramsDiverge",
        "JaxmonThunderingCompilation",
    ),
    "jaxmon-itself": (
        "JaxmonAgentHookInactive",
        "JaxmonAgentSilent",
        "JaxmonCollectorDown",
        "JaxmonExportFailing",
        "JaxmonSpansDropped",
        "JaxmonTargetDown",
        "JaxmonWebConfigFailed",
    ),
    "jaxmon-debug": (
        "JaxmonCheckFailed",
        "JaxmonCompileFailed",
        "JaxmonCompileSlow",
        "JaxmonCompileStuck",
        "JaxmonDeviceMemoryHigh",
        "JaxmonHostMemoryGrowth",
        "JaxmonKeyReuse",
        "JaxmonMemoryLeak",
        "JaxmonNotReady",
        "JaxmonOutOfMemory",
        "JaxmonRecompileStorm",
        "JaxmonSilentCorruption",
        "JaxmonSlowdown",
        "JaxmonWarmupFailed",
    ),
}
_BOARD = {name: board for board, names in _BOARDS.items() for name in names}
# Labels of alerts, and the variables that select by them.
_VARIABLES = {
    "job": "job",
    "instance": "instance",
    "worker": "worker",
    "function": "function",
    "device": "device",
    "uuid": "gpu",
}


def address(alert: str, labels: Iterable[str], identity: Identity) -> str:
    """
    Return the path of the dashboard about *alert*, a template of its *labels*, and of
    those that services have at the site.
    """
    found = {*labels}
    board = _BOARD.get(alert, ONCALL)
    own = {label: label for label in identity.service} if "job" in found else {}
    selectable = ("job",) if board == ONCALL else _VARIABLES
    known = {label: _VARIABLES[label] for label in selectable if label in found}
    values = "&".join(
        f"var-{name}={{{{ $labels.{label} | urlquery }}}}"
        for label, name in (own | known).items()
    )
    return f"/d/{board}?{values}"
