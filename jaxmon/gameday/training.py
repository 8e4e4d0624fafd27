"""Faults of a training job."""

from __future__ import annotations

from jaxmon.gameday.scenario import Scenario


# A loop that is stuck is late as well, and waits for what it waits for.
_STUCK = frozenset({"JaxmonStepFreshnessBudgetBurn", "JaxmonDataStarvation"})

TRAINING = (
    Scenario(
        name="stall",
        guide="F8",
        summary="the training loop waits for data that never arrives",
        program="train",
        alert="JaxmonTrainingStalled",
        follows=_STUCK,
    ),
    Scenario(
        name="starve",
        summary="the training loop waits for its loader in every step",
        program="train",
        alert="JaxmonDataStarvation",
    ),
    Scenario(
        name="die",
        summary="a training process is killed, and no other takes its place",
        program="train",
        alert="JaxmonTrainingDied",
        means="kill",
    ),
    Scenario(
        name="crash",
        summary="a process exits with an error before its first step, again and again",
        program="fragile",
        alert="JaxmonCrashLoop",
        means="crash",
        follows=frozenset({"JaxmonTrainingDied"}),
    ),
    Scenario(
        name="nan",
        summary="the loss is NaN",
        program="train",
        alert="JaxmonNonFinite",
    ),
    Scenario(
        name="unsaved",
        summary="checkpoints cannot be written",
        program="train",
        alert="JaxmonCheckpointFailed",
    ),
    Scenario(
        name="slow",
        guide="F7",
        summary="a training step takes several times as long as before",
        program="train",
        alert="JaxmonSlowdown",
        # The times of a loop are recorded once in as many seconds as make ten samples.
        environ=(("JAXMON_SAMPLE_RATE", "10"),),
        usual_for=45.0,
    ),
    Scenario(
        name="corrupt",
        guide="F4",
        summary="one of the devices computes wrongly, without an error",
        program="sharded",
        alert="JaxmonSilentCorruption",
        follows=frozenset({"JaxmonCheckFailed"}),
        environ=(
            ("JAX_PLATFORMS", "cpu"),
            ("XLA_FLAGS", "--xla_force_host_platform_device_count=4"),
            ("JAXMON_SHADOW_INTERVAL", "0.1"),
            ("JAXMON_SAMPLE_RATE", "10"),
        ),
    ),
    Scenario(
        name="diverge",
        guide="F7",
        summary="two processes of one mesh run different versions of a program",
        program="rank",
        alert="JaxmonProgramsDiverge",
        means="redeploy",
        processes=2,
    ),
    Scenario(
        name="rank-stuck",
        guide="F8",
        summary="a process of a job is stuck, and the other waits in a collective",
        program="rank",
        alert="JaxmonRankStuck",
        processes=2,
    ),
)
