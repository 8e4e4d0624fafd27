"""Faults of a model server."""

from __future__ import annotations

from jaxmon.gameday.scenario import Scenario


# What requests that wait for compiles also are: cold, and misses of the cache.
_WAITS = frozenset(
    {
        "JaxmonColdStarts",
        "JaxmonColdStartBudgetBurn",
        "JaxmonCacheHitRateBudgetBurn",
        "JaxmonColdLatency",
    }
)

SERVING = (
    Scenario(
        name="cold",
        guide="F1",
        summary="a new version serves without a warm-up, a new model per request",
        program="serve",
        alert="JaxmonColdStarts",
        follows=_WAITS - {"JaxmonColdStarts"},
        means="deploy",
    ),
    Scenario(
        name="oom",
        guide="F2",
        summary="a server feature requests more memory than available",
        program="serve",
        alert="JaxmonOutOfMemory",
    ),
    Scenario(
        name="recompile",
        guide="F3",
        summary="every request has a different shape",
        program="serve",
        alert="JaxmonRecompileStorm",
        follows=_WAITS,
    ),
    Scenario(
        name="key-reuse",
        guide="F4",
        summary="samples are drawn twice from one PRNG key",
        program="serve",
        alert="JaxmonKeyReuse",
    ),
    Scenario(
        name="nondeterminism",
        guide="F4",
        summary="a function gives different outputs for the same input",
        program="serve",
        alert="JaxmonCheckFailed",
    ),
    Scenario(
        name="leak",
        guide="F5",
        summary="a server keeps an array of each request",
        program="serve",
        alert="JaxmonMemoryLeak",
    ),
    Scenario(
        name="thunder",
        guide="F6",
        summary="replicas start without their shared cache, and compile the same",
        program="serve",
        alert="JaxmonThunderingCompilation",
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
        name="hang",
        guide="F8",
        summary="requests wait for a lock that is never released",
        program="serve",
        alert="JaxmonRequestsHang",
    ),
    Scenario(
        name="errors",
        summary="requests fail",
        program="serve",
        alert="JaxmonRequestErrorBudgetBurn",
        severity="page",
    ),
    Scenario(
        name="latency",
        summary="every request waits for a slow store",
        program="serve",
        alert="JaxmonWarmLatencyBudgetBurn",
        severity="page",
    ),
    Scenario(
        name="vanish",
        summary="a server is killed and does not come back",
        program="serve",
        alert="JaxmonServiceVanished",
        means="kill",
    ),
    Scenario(
        name="freeze",
        guide="F8",
        summary="a server is stopped, but its process remains",
        program="serve",
        alert="JaxmonAgentSilent",
        means="freeze",
        follows=frozenset({"JaxmonServiceVanished"}),
    ),
)
