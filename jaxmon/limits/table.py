"""Every limit: what it is by default, and what it means."""

from __future__ import annotations

from jaxmon.limits.limit import count, duration, ratio


class ProcessLimits:
    """By what facts are judged."""

    # Time and compiles.
    time_worth = ratio(0.1, "Fraction of the time a cause must take to be a finding.")
    time_worth_estimated = ratio(
        0.15, "The same for time that samples of execution times say could be won."
    )
    time_worth_in_doubt = ratio(
        0.25,
        "The same for Python while the time of the device is unknown: it may "
        "compute meanwhile.",
    )
    time_part = ratio(0.05, "Fraction of the time that one cause of several must take.")
    compile_share = ratio(
        0.2,
        "Fraction of the time that compiles must take, or of the compiles those of "
        "eager operations.",
    )
    compile_settled = duration(
        "1m", "Age of a process from which the share of its compiles is judged."
    )
    unrolled_times = count(
        16,
        "How often the body of a loop must be in a program to be called unrolled, ...",
    )
    unrolled_ratio = ratio(0.5, "... what fraction of its operations that must be, ...")
    unrolled_time = ratio(0.25, "... what fraction of the time their compile, ...")
    unrolled_slow = duration("1s", "... and how long it must take at least.")
    operations_slow = duration(
        "5s", "Minimum time of the compiles of eager operations, ..."
    )
    operations_many = count(
        100,
        "... and minimum number of their programs: a model and its optimizer have few.",
    )
    folded_steps = count(
        100_000, "Elements that XLA computes of constants for each second of a compile."
    )
    captured_bytes = count(
        100_000_000,
        "Bytes of arrays that a function takes from around it for which a compile "
        "takes a second longer.",
    )
    together_slow = duration(
        "5s", "Minimum time of compiles that several processes of a host do at once."
    )
    cache_worth = duration(
        "10s", "Minimum time of compiles that a persistent cache would save."
    )
    effect_misses = count(
        100, "Calls of a function that leave the fast path because of an effect."
    )
    stuck_after = duration("15m", "Age of a compile that means it is stuck.")
    slow_start = duration(
        "30s", "Minimum time that requests wait for compiles after the start."
    )

    # Recompiles of one process, by what they cost.
    recompile_window = duration("10m", "Window in which recompiles are counted.")
    recompile_storm = count(
        5, "Recompiles of a function for one cause that are no accident."
    )
    recompile_storm_calls = ratio(
        0.01, "Minimum fraction of its calls that recompile, ..."
    )
    recompile_storm_time = ratio(0.005, "... or of the time that its compiles take.")
    recreated_time = ratio(
        0.05, "The same fraction for functions that are created anew each time."
    )
    recompile_slow = duration(
        "5s",
        "How long recompiles of a function for one cause take if few are a finding: "
        "one before would have done, or a size is odd. Also time_worth, ...",
    )
    recompile_noticed = duration("1s", "... if they take as long as this.")
    recompile_few = count(
        3,
        "Recompiles for other sizes or values of which that is much, if it is "
        "compile_share of the time as well.",
    )
    recompile_bucket = count(8, "Common divisor of two sizes that may be meant, ...")
    recompile_bucket_calls = count(
        10, "... and are, if as many calls, on average, have each of them."
    )
    recompile_scattered = count(
        20,
        "Recompiles of several functions together that are no accident if they take "
        "time_part of the time.",
    )

    # Requests.
    failed_requests = count(5, "Minimum number of failed requests of a route.")
    failed_share = ratio(
        0.003,
        "Fraction of its requests above which failures are a page on screens: three "
        "times what an objective of 99.9 % allows, from where its alert pages.",
    )
    budget_share = ratio(0.001, "The same for a ticket: all this objective allows.")
    cold_requests = count(
        10, "Minimum number of cold requests to a route within cold_window."
    )
    cold_share = ratio(0.05, "Minimum fraction of the route's requests that are cold.")
    hang_after = duration(
        "5m", "How long no request of a route may finish while some are in progress."
    )
    unanswered_after = duration(
        "1m",
        "Age of the oldest request from which a route that answers none is late, ...",
    )
    unanswered_times = count(
        3, "... or this many times what 95 % of its requests take, if that is longer."
    )
    left_after = count(
        10,
        "Seconds after which a caller who leaves has waited, and did not change their "
        "mind.",
    )
    left_share = ratio(
        0.5,
        "Fraction of requests whose callers must leave unanswered; if JAX keeps the "
        "event loop for as much of the time, that is why.",
    )
    late_request = duration(
        "15s", "Age from which a request hangs although others are answered, ..."
    )
    late_request_times = count(
        30, "... or this many times what 95 % of them take, if that is longer."
    )
    slow_requests = count(
        2, "How many times as long as before requests of a route must take, ..."
    )
    slow_requests_by = count(0.05, "... and by how many seconds longer.")
    requests_judged = count(20, "Minimum number of requests whose latency is judged.")
    queue_growing = duration("2m", "How long a queue must grow.")
    queue_deep = count(20, "By how many items it must grow, ...")
    queue_growth = ratio(0.05, "... and by what fraction of its depth.")
    padded_batches = count(100, "Minimum number of batches whose padding is judged.")

    # Memory.
    device_memory = ratio(
        0.9, "Fraction of device memory in use at which allocations may fail."
    )
    device_memory_peak = ratio(
        0.95, "Fraction of device memory that was in use once at which they nearly did."
    )
    host_memory_left = ratio(0.05, "Fraction of a host's memory that must be left.")
    host_growth_for = duration(
        "10m",
        "How long the memory of a process must grow to be said without its cause, ...",
    )
    host_full_within = duration("1d", "... if it would fill that of the host so soon.")
    memory_worth = ratio(
        0.1,
        "Fraction of device memory, or of what a program needs if that is not known, "
        "that is held in vain to be a finding.",
    )
    exchange_worth = ratio(0.1, "Fraction of arguments and results exchanged in vain.")
    processes_again = count(4, "Processes started for each that there is at once.")
    padding_worth = ratio(0.5, "Fraction of an argument that is padding.")
    exchange_bytes = count(1_048_576, "Minimum bytes that each device gets for that.")
    fragmented_free = ratio(0.2, "Fraction of device memory that is free, ...")
    fragmented_block = ratio(
        0.25,
        "... of which the largest block must be this fraction, if large arrays are "
        "to fit.",
    )

    # Loops, values and runs.
    stalled_after = duration(
        "10m", "Age of a running loop's last step that means it is stuck, ..."
    )
    stalled_step_times = count(3, "... or this many steps, if that is longer.")
    stalled_for = duration("2m", "How long that must last.")
    activity_after = duration(
        "1h",
        "Age of an evaluation, checkpoint or other activity from which it no longer "
        "explains why a loop stands still.",
    )
    late_step = duration("1m", "Age of the last step from which a loop is late, ...")
    late_step_times = count(10, "... or this many steps, if that is longer.")
    slower = ratio(
        0.25,
        "By how much three of four times must exceed nine of ten before to be slower; "
        "clocks of devices vary by a tenth.",
    )
    slowdown = count(
        1.5,
        "How many times as long as before what is slower must take, to be a ticket.",
    )
    nonfinite_values = count(
        10,
        "Values of a logged quantity in a row that are NaN or infinite; dynamic "
        "loss scaling makes a few.",
    )
    nonfinite_losses = count(2, "The same for losses of a training.")
    diverging_rise = count(
        2, "Rise of a loss, in multiples of the best value, from which it diverges, ..."
    )
    diverging_gain = ratio(0.2, "... and in parts of what it had gained.")
    same_key_calls = count(100, "Calls of a function with the same PRNG key.")
    rare_spikes = count(
        2, "Number of jumps of a loss that are rare, and said for that reason, ..."
    )
    rare_spikes_share = ratio(0.001, "... or the fraction of all its values.")
    fruitless_attempts = count(
        3, "Attempts of a run in a row without a new step; one more fires."
    )
    run_young = duration(
        "10m", "Age of a run from which what its restarts cost is judged."
    )
    steps_again = duration(
        "1m",
        "Minimum time of steps that an attempt does again although they were saved.",
    )

    # What a thread does now, and what others wait for.
    stalled_times = count(
        10, "How many times as long as ever before something must take."
    )
    stalled_on_a_line = duration(
        "15s", "How long it must take on a line where it has been before."
    )
    stalled_in_a_state = duration(
        "1m", "How long it must take in a state in which it has been before."
    )
    stalled_anywhere = duration("5m", "How long it must take anywhere.")
    stalled_for_a_lock = duration("15s", "How long a thread must wait for a lock.")
    deadlocked = duration(
        "1m", "How long it must wait for one while another thread waits for one."
    )
    stalled_for_a_failed_thread = duration(
        "15s",
        "How long it must wait while a thread or process has failed that served it.",
    )
    rank_stuck_after = duration(
        "30s",
        "How long a process of a job may let the others wait in a collective: at "
        "least 10s, and rank_stuck_times what is usual.",
    )
    rank_stuck_times = count(
        3, "How many times as long as is usual a process of a job must let others wait."
    )
    rank_stuck_first = duration(
        "5m",
        "How long the processes of a job may wait before they have found a rhythm.",
    )
    rank_gone_after = duration(
        "5s", "How long the others may wait for a process that does not run any more."
    )
    rank_slow_share = ratio(
        0.1,
        "Minimum fraction of the time that the other processes of a job wait for one "
        "that is called slow.",
    )
    rank_starved_share = ratio(
        0.5,
        "Minimum fraction of its time that a process waits for a processor to be "
        "called starved; more threads than processors wait for each other, too.",
    )
    rank_repeated_seconds = count(
        1,
        "Minimum time that a process of a job spends on compiling what the first one "
        "loaded from the persistent cache, in seconds.",
    )
    rank_repeated_share = ratio(0.01, "Minimum fraction of its time that this is.")
    rank_uncached_seconds = count(
        30,
        "Minimum time that a process of a restarted job spends on compiling without a "
        "persistent cache, in seconds.",
    )

    # Transfers.
    transfers_in_a_loop = count(
        100, "Minimum number of transfers by one line that is called a loop."
    )
    transfers_slow = duration("1s", "Minimum time that they take, ...")
    transfers_slow_share = ratio(0.01, "... and minimum fraction of the time.")
    large_argument = count(
        1048576, "Bytes of NumPy arrays in the arguments of a call that are many."
    )
    dropped_samples = count(
        2,
        "Sampled calls after which an argument that they copied must be dropped, to "
        "be called one that could be donated.",
    )
    narrowed_share = ratio(
        0.25,
        "Fraction of the values of an array that 32 bits must change, or no longer "
        "distinguish.",
    )
    profiles_often = count(20, "Starts and stops of profiles from one line.")
    callbacks_often = count(1000, "Calls of Python by programs, from one line.")
    debugged_calls = count(
        1000, "Calls from which a setting for debugging is no longer one run's."
    )

    # Exports.
    export_window = duration(
        "10m",
        "Window in which every export by OTLP must fail, or spans be dropped; some "
        "exports must fall into it.",
    )
    exports_failed = count(3, "Exports in a row that must fail, ...")
    exports_failed_for = duration("3m", "... and for how long.")
    spans_dropped = count(
        100, "Minimum number of spans that a process drops within export_window."
    )


class FleetLimits:
    """By what alerts alone judge."""

    recompiles = count(
        20, "Recompiles of a function within recompile_window that count as a storm."
    )
    compile_failures = count(3, "Failed compiles of a function within compile_window.")
    compile_window = duration("30m", "Window in which failed compiles are counted.")
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
        "10s", "Latency that 95 % of a route's cold requests should not exceed."
    )
    cancelled_after = duration(
        "1s", "Mean time after which callers give up on a route that answers none, ..."
    )
    cancelled_requests = count(5, "... and how many of them do, at least.")
    hung_requests = count(
        5, "Requests in progress, or callers who left, of a process that answers none."
    )
    hung_share = ratio(
        0.05, "Fraction of a route's processes above which those that hang page."
    )
    replica_slow = count(
        3,
        "How many times as long as in the median process a route's requests must "
        "take, and longer by slow_requests_by, ...",
    )
    replica_slow_for = duration("10m", "... over and for which time, ...")
    replicas_compared = count(
        3,
        "... of how many processes, at least: of two, either may be the odd one, and "
        "slow_requests judges what became slower by its own past.",
    )
    oom_window = duration("10m", "Window for counting out-of-memory errors.")
    device_memory_for = duration("10m", "How long usage must stay above that.")
    leak_for = duration("20m", "How long a leak of live arrays must be suspected.")
    host_memory_growth = ratio(
        0.1, "Growth of a process's memory within host_memory_window."
    )
    host_memory_window = duration(
        "1h",
        "Window over which growth is measured; it must occur in two consecutive "
        "windows.",
    )
    memory_left = duration(
        "8h",
        "Time in which a container reaches its memory limit, at the pace of "
        "memory_left_for.",
    )
    memory_left_for = duration("30m", "How long it must grow that fast, twice.")
    died_for = duration(
        "3m", "How long a training process must be dead without a successor."
    )
    died_within = duration(
        "6h", "How long ago it may have been alive; older deaths are not news."
    )
    died_seen = duration(
        "15m", "How long ago a loop may have run that is gone, unfinished."
    )
    finished_within = duration(
        "7d", "How long ago an expected run may have finished and still not be missed."
    )
    crashes = count(3, "Crashes of one process within 1h, whatever it did, ...")
    crashed_processes = count(2, "... or of so many processes of a service.")
    crash_starts = count(
        3,
        "Starts of one process within crash_window, without a step or request, that "
        "count as a crash loop.",
    )
    crash_window = duration("15m", "Window in which starts are counted.")
    crash_share = ratio(
        0.5, "Fraction of a job's processes above which crash loops page."
    )
    not_ready_for = duration(
        "30m", "How long a process that announced a warm-up may take to be ready."
    )
    warmup_window = duration(
        "1h", "Window in which a signature that fails to warm up counts."
    )
    after_ready_window = duration(
        "1h", "Window in which a compile of a process that was ready counts."
    )
    data_wait = ratio(0.3, "Share of a training process's time spent waiting for data.")
    nccl_stuck_for = duration(
        "5m",
        "How long NCCL must find ranks of a job behind, without any progress, or "
        "processes missing.",
    )
    straggler = count(
        1.3, "How many times as long as in the median process a function must take."
    )
    straggler_for = duration("15m", "For how long it must.")
    straggler_share = ratio(0.05, "Minimum fraction of the time that it takes.")
    processes_compared = count(
        4, "Minimum number of processes of a job of which one is called slow."
    )
    rank_slow = ratio(
        0.2,
        "Fraction of the time that the median process of a job must wait longer for "
        "its device than one that hardly waits.",
    )
    rank_slow_waits = ratio(0.1, "Of what fraction that one waits, at most.")
    rank_slow_for = duration("10m", "For how long it must.")
    checkpoint_age = duration(
        "6h", "Age of the last checkpoint of a loop that makes checkpoints."
    )
    checkpoint_window = duration(
        "1h", "Window in which a failed save counts; Orbax's are known."
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
        "10m", "How long processes of one mesh must have different programs."
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
        "10m", "A lost device pages if a program used it within this window."
    )
    accelerator_idle = ratio(
        0.02, "Mean utilisation up to which an accelerator in use is idle."
    )
    xid_window = duration("10m", "Window in which critical Xid errors are counted.")
    xid_kept = duration(
        "1d", "How long they stay a ticket, unless the sidecar is restarted."
    )
    reset_needed_for = duration("10m", "How long a reset must be requested.")
    throttled = ratio(
        0.1, "Fraction of throttled_window during which a GPU is throttled."
    )
    throttled_window = duration("15m", "Window over which throttling is averaged.")
    tpu_runtime_down_for = duration(
        "10m", "How long TPU runtimes must be unresponsive while a program uses TPUs."
    )
    target_down_for = duration("5m", "How long a target must be unresponsive.")
    vanished_for = duration("5m", "How long a service must report nothing.")
    traffic_window = duration(
        "10m", "How long a service must get no request that got many before."
    )
    traffic = count(500, "Requests within traffic_window that are many, ...")
    traffic_before = duration("20m", "... that long ago.")
    collector_down_for = duration("10m", "How long a collector must fail.")
    web_config_failed_for = duration(
        "10m", "How long a web configuration must be invalid."
    )
    agent_silent_for = duration("5m", "How long an agent must be unresponsive.")
    hook_inactive_for = duration("10m", "How long a hook must be inactive.")
    export_failing_for = duration("15m", "How long that must last.")
    deploy_window = duration("10m", "Process age up to which compiles are expected.")
    deploy_share = ratio(
        0.25, "Minimum fraction of a job's processes that must be that young."
    )
    deploy_restarts = count(
        3, "Restarts within 1h above which a process counts as crash-looping."
    )
