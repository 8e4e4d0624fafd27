"""What can be wrong that no finding on one program says."""

from __future__ import annotations

from jaxmon.symptoms.symptom import Mode, Symptom


_BUDGET = "an objective is about weeks"
_JOB = "`jaxmon job why` says it, with all hosts at hand"
_HOST = "the live page lists accelerators, without a judgement"
_NONE = "no screen watches for it"
_RULES = "only Prometheus sees who is not there"


def _alert(
    alert: str, mode: Mode, sentence: str, missing: str = "", *kinds: str
) -> Symptom:
    return Symptom(
        alert.removeprefix("Jaxmon"),
        mode,
        sentence,
        alert=alert,
        kinds=kinds,
        missing=missing,
    )


FLEET = (
    _alert("JaxmonColdLatency", "F1", "Requests wait too long for compiles.", _NONE),
    _alert("JaxmonColdStartBudgetBurn", "F1", "Too many requests wait.", _BUDGET),
    _alert("JaxmonWarmLatencyBudgetBurn", "F7", "Requests are too slow.", _BUDGET),
    Symptom(
        *("requests_slow", "F7", "Requests are slower than before."),
        kinds=("requests_slow",),
        missing="JaxmonWarmLatencyBudgetBurn says it if they are too slow",
    ),
    _alert("JaxmonStepFreshnessBudgetBurn", "F8", "A loop is often late.", _BUDGET),
    _alert("JaxmonNotReady", "F1", "A process does not become ready.", _NONE),
    _alert("JaxmonWarmupFailed", "F1", "Signatures fail to warm up.", _NONE),
    _alert("JaxmonCompileFailed", "F1", "Compiles of a function fail.", _NONE),
    _alert("JaxmonRankStuck", "F8", "A rank lets the others wait.", _JOB),
    _alert("JaxmonRankSlow", "F7", "A rank is slow at every step.", _JOB),
    _alert("JaxmonNcclStuck", "F8", "NCCL finds ranks behind or missing.", _JOB),
    _alert("JaxmonStraggler", "F7", "The device of a process is slower.", _JOB),
    _alert("JaxmonProgramsDiverge", "F8", "Ranks run different programs.", _JOB),
    _alert("JaxmonTrainingDied", "F8", "A training process died.", "", "crashed"),
    _alert("JaxmonCrashLoop", "F8", "A process crashes again and again.", _NONE),
    _alert("JaxmonCheckpointAge", "F8", "A run makes no checkpoints.", _NONE),
    _alert("JaxmonHostMemoryGrowth", "F5", "A process keeps growing.", _NONE),
    Symptom(
        *("host_memory", "F5", "The memory of a host is nearly used up."),
        kinds=("host_memory",),
        missing="hosts have alerts of their own; JaxmonHostMemoryGrowth is earlier",
    ),
    _alert("JaxmonKeyReuse", "F4", "A PRNG key is used twice.", _NONE),
    _alert("JaxmonSilentCorruption", "F4", "A device computes wrongly.", _NONE),
    _alert(
        *("JaxmonAcceleratorLost", "F7", "An accelerator does not respond."),
        *("", "accelerator"),
    ),
    _alert("JaxmonGpuXid", "F7", "A GPU reports a critical error.", _HOST),
    _alert("JaxmonGpuEccErrors", "F7", "A GPU has faulty memory.", _HOST),
    _alert("JaxmonGpuNeedsReset", "F7", "A GPU needs a reset.", _HOST),
    _alert("JaxmonGpuThrottled", "F7", "A GPU is throttled.", _HOST),
    _alert("JaxmonTpuRuntimeDown", "F7", "A TPU runtime is down.", _HOST),
    _alert("JaxmonAcceleratorUnderused", "", "Accelerators wait for work.", _HOST),
    _alert("JaxmonAcceleratorIdle", "", "A job holds idle accelerators.", _HOST),
    _alert("JaxmonTargetDown", "", "A target cannot be scraped.", _RULES),
    _alert("JaxmonServiceVanished", "", "A service reports nothing.", _RULES),
    _alert(
        *("JaxmonAgentSilent", "", "An agent does not respond.", "", "silent"),
    ),
    _alert("JaxmonAgentHookInactive", "", "A hook is inactive.", "`NOTES` say it"),
    _alert("JaxmonCollectorDown", "", "A collector fails.", "the page lists them"),
    _alert("JaxmonWebConfigFailed", "", "A web configuration is invalid.", _NONE),
    _alert("JaxmonDeployInProgress", "", "Processes have just started.", _RULES),
)
