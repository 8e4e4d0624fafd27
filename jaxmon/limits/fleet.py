"""Limits of what only a database of metrics knows: rates, windows, whole services."""

from __future__ import annotations

from jaxmon.limits.limit import count, duration, ratio


class FleetLimits:
    """By what alerts alone judge."""

    recompiles = count(
        20,
        "Recompiles of a function within recompile_window that count as a storm.",
    )
    compile_failures = count(3, "Failed compiles of a function within compile_window.")
    compile_slow = ratio(
        0.05,
        "Maximum fraction of a service's compiles that take longer than a second.",
    )
    compiles = count(
        20,
        "Minimum number of compiles within compile_window for compile_slow.",
    )
    compile_window = duration("30m", "Window in which compiles are judged.")
    thundering = count(
        4,
        "Minimum number of processes that compile the same function within "
        "thundering_window, rather than load it from a shared cache.",
    )
    thundering_share = ratio(0.5, "Minimum fraction of the job's processes that do so.")
    thundering_seconds = count(60, "Minimum time that they spend on it, in seconds.")
    thundering_window = duration("10m", "Window in which they do so.")
    cold_window = duration("10m", "Window in which cold requests are counted.")
    cold_latency = duration(
        "10s",
        "Latency that 95 % of a route's cold requests should not exceed.",
    )
    cancelled_after = duration(
        "1s",
        "Mean time after which callers give up on a route that answers none.",
    )
    oom_window = duration("10m", "Window for counting out-of-memory errors.")
    oom_share = ratio(
        0.5,
        "Minimum fraction of a job's processes, and at least two, that run out of "
        "memory for a page.",
    )
    device_memory_for = duration("10m", "How long usage must stay above that.")
    leak_for = duration("20m", "How long a leak of live arrays must be suspected.")
    host_memory_growth = ratio(
        0.1,
        "Growth of a process's memory within host_memory_window.",
    )
    host_memory_window = duration(
        "1h",
        "Window over which growth is measured; it must occur in two consecutive "
        "windows.",
    )
    stalled_for = duration("2m", "How long that must last.")
    activity_after = duration(
        "1h",
        "Age of an evaluation, checkpoint or other activity from which it no longer "
        "explains why a loop stands still.",
    )
    died_for = duration(
        "3m",
        "How long a training process must be dead without a successor.",
    )
    died_within = duration(
        "6h",
        "How long ago it may have been alive; older deaths are not news.",
    )
    crash_starts = count(
        3,
        "Starts of one process within crash_window, without a step or request, that "
        "count as a crash loop.",
    )
    crash_window = duration("15m", "Window in which starts are counted.")
    not_ready_for = duration(
        "30m",
        "How long a process that announced a warm-up may take to be ready.",
    )
    warmup_window = duration(
        "1h",
        "Window in which a signature that fails to warm up counts.",
    )
    data_wait = ratio(0.3, "Share of a training process's time spent waiting for data.")
    nccl_stuck_for = duration(
        "5m",
        "How long NCCL must find ranks of a job behind, without any progress, or "
        "processes missing.",
    )
    straggler = count(
        1.3,
        "How many times as long as in the median process a function must take.",
    )
    straggler_for = duration("15m", "For how long it must.")
    rank_slow = ratio(
        0.2,
        "Fraction of the time that the median process of a job must wait longer for "
        "its device than one that hardly waits.",
    )
    rank_slow_for = duration("10m", "For how long it must.")
    checkpoint_age = duration(
        "6h",
        "Age of the last checkpoint of a loop that makes checkpoints.",
    )
    checkpoint_window = duration(
        "1h",
        "Window in which a failed save counts; Orbax's are known.",
    )
    goodput = ratio(
        0.5,
        "Minimum fraction of a run's wall time within goodput_window, waiting for "
        "machines included, that goes into steps that last.",
    )
    goodput_window = duration("6h", "Window in which goodput is judged.")
    goodput_for = duration("15m", "How long it may be lower.")
    time_lost = ratio(
        0.5,
        "Share of a training process's time spent blocked, or in operations outside "
        "of jit.",
    )
    time_lost_window = duration("30m", "Window for measuring that share.")
    nonfinite_for = duration("2m", "How long values must be NaN or infinite.")
    diverged_for = duration(
        "10m",
        "How long processes of one mesh must have different programs.",
    )
    slowdown_for = duration("15m", "For how long a function or step must be slower.")
    key_window = duration("1h", "Window for rejected reuses of PRNG keys.")
    check_window = duration("1h", "Window for failed determinism and gradient checks.")
    deviations = count(
        3,
        "Checks within deviation_window in which outputs differed on one device of "
        "a process, and on no other, after which it is corrupting data.",
    )
    deviation_window = duration("2h", "Window for deviations of one device.")
    accelerator_lost_for = duration("1m", "How long an accelerator must be down.")
    accelerator_used = duration(
        "10m",
        "A lost device pages if a program used it within this window.",
    )
    accelerator_busy = ratio(
        0.6,
        "Minimum mean utilisation of accelerators that a program uses.",
    )
    accelerator_idle = ratio(
        0.02,
        "Mean utilisation up to which an accelerator in use is idle.",
    )
    accelerator_window = duration("1h", "Window over which utilisation is averaged.")
    xid_window = duration("10m", "Window for critical Xid errors.")
    ecc_window = duration("10m", "Window for uncorrectable GPU memory errors.")
    reset_needed_for = duration("10m", "How long a reset must be requested.")
    throttled = ratio(
        0.1,
        "Fraction of throttled_window during which a GPU is throttled.",
    )
    throttled_window = duration("15m", "Window over which throttling is averaged.")
    tpu_runtime_down_for = duration(
        "10m",
        "How long TPU runtimes must be unresponsive while a program uses TPUs.",
    )
    target_down_for = duration("5m", "How long a target must be unresponsive.")
    vanished_for = duration("5m", "How long a service must report nothing.")
    collector_down_for = duration("10m", "How long a collector must fail.")
    web_config_failed_for = duration(
        "10m",
        "How long a web configuration must be invalid.",
    )
    agent_silent_for = duration("5m", "How long an agent must be unresponsive.")
    hook_inactive_for = duration("10m", "How long a hook must be inactive.")
    export_failing_for = duration("15m", "How long that must last.")
    deploy_window = duration("10m", "Process age up to which compiles are expected.")
    deploy_share = ratio(
        0.25,
        "Minimum fraction of a job's processes that must be that young.",
    )
    deploy_restarts = count(
        3,
        "Restarts within 1h above which a process counts as crash-looping.",
    )
