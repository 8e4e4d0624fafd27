"""Limits of what processes report, for screens and alerts."""

from __future__ import annotations

from jaxmon.limits.limit import count, duration, ratio


class ProcessLimits:
    """By what facts are judged."""

    # Time and compiles.
    time_worth = ratio(
        0.1,
        "Fraction of the time that a cause must take to be a finding.",
    )
    time_worth_estimated = ratio(
        0.15,
        "The same for time that samples of execution times say could be won.",
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
        "1m",
        "Age of a process from which the share of its compiles is judged.",
    )
    large_program = duration(
        "10s",
        "Time of one compile from which the program is called large.",
    )
    operations_slow = duration(
        "5s",
        "Minimum time of the compiles of eager operations.",
    )
    together_slow = duration(
        "5s",
        "Minimum time of compiles that several processes of a host do at once.",
    )
    cache_worth = duration(
        "10s",
        "Minimum time of compiles that a persistent cache would save.",
    )
    effect_misses = count(
        100,
        "Calls of a function that leave the fast path because of an effect.",
    )
    stuck_after = duration("15m", "Age of a compile that means it is stuck.")
    slow_start = duration(
        "30s",
        "Minimum time that requests wait for compiles after the start.",
    )

    # Recompiles of one process, by what they cost.
    recompile_window = duration("10m", "Window in which recompiles are counted.")
    recompile_storm = count(
        5,
        "Recompiles of a function for one cause that are no accident.",
    )
    recompile_storm_calls = ratio(
        0.01,
        "Minimum fraction of its calls that recompile, ...",
    )
    recompile_storm_time = ratio(0.005, "... or of the time that its compiles take.")
    recreated_time = ratio(
        0.05,
        "The same fraction for functions that are created anew each time.",
    )
    recompile_few = count(
        3,
        "Fewer recompiles are no accident if they are most calls and much of the time.",
    )
    recompile_few_calls = ratio(0.5, "Fraction of the calls that counts as most.")
    recompile_few_time = ratio(0.2, "Fraction of the time that counts as much.")
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
    budget_share = ratio(
        0.001,
        "The same for a ticket: all that this objective allows.",
    )
    cold_requests = count(
        10,
        "Minimum number of cold requests to a route within cold_window.",
    )
    cold_share = ratio(0.05, "Minimum fraction of the route's requests that are cold.")
    hang_after = duration(
        "5m",
        "How long no request of a route may finish while some are in progress.",
    )
    unanswered_after = duration(
        "1m",
        "Age of the oldest request from which a route that answers none is late, ...",
    )
    unanswered_times = count(
        3,
        "... if that is so many times as long as 95 % of its requests take.",
    )
    late_request = duration(
        "15s",
        "Age from which a request hangs although others are answered, ...",
    )
    late_request_times = count(
        30,
        "... if that is so many times as long as 95 % of them take.",
    )
    slow_requests = count(
        2,
        "How many times as long as before requests of a route must take, ...",
    )
    slow_requests_by = count(0.05, "... and by how many seconds longer.")
    requests_judged = count(20, "Minimum number of requests whose latency is judged.")
    queue_growing = duration("2m", "How long a queue must grow.")
    queue_deep = count(20, "By how many items it must grow, ...")
    queue_growth = ratio(0.05, "... and by what fraction of its depth.")
    padded_batches = count(100, "Minimum number of batches whose padding is judged.")

    # Memory.
    device_memory = ratio(
        0.9,
        "Fraction of device memory in use at which allocations may fail.",
    )
    device_memory_peak = ratio(
        0.95,
        "Fraction of device memory that was in use once at which they nearly did.",
    )
    host_memory_left = ratio(
        0.05,
        "Fraction of the memory of a host that must be left.",
    )
    fragmented_free = ratio(0.2, "Fraction of device memory that is free, ...")
    fragmented_block = ratio(
        0.25,
        "... of which the largest block must be this fraction, if large arrays are "
        "to fit.",
    )

    # Loops, values and runs.
    stalled_after = duration(
        "10m",
        "Age of a running loop's last step that means it is stuck.",
    )
    late_step = duration("1m", "Age of the last step from which a loop is late, ...")
    late_step_times = count(10, "... if that is so many times as long as a step takes.")
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
        2,
        "Rise of a loss, in multiples of the best value, from which it diverges, ...",
    )
    diverging_gain = ratio(0.2, "... and in parts of what it had gained.")
    same_key_calls = count(100, "Calls of a function with the same PRNG key.")
    rare_spikes = count(
        2,
        "Number of jumps of a loss that are rare, and said for that reason, ...",
    )
    rare_spikes_share = ratio(0.001, "... or the fraction of all its values.")
    fruitless_attempts = count(
        3,
        "Attempts of a run in a row without a new step; one more fires.",
    )
    run_young = duration(
        "10m",
        "Age of a run from which what its restarts cost is judged.",
    )
    steps_again = duration(
        "1m",
        "Minimum time of steps that an attempt does again although they were saved.",
    )

    # What a thread does now, and what others wait for.
    stalled_times = count(
        10,
        "How many times as long as ever before something must take.",
    )
    stalled_on_a_line = duration(
        "15s",
        "How long it must take on a line where it has been before.",
    )
    stalled_in_a_state = duration(
        "1m",
        "How long it must take in a state in which it has been before.",
    )
    stalled_anywhere = duration("5m", "How long it must take anywhere.")
    stalled_for_a_lock = duration("15s", "How long a thread must wait for a lock.")
    deadlocked = duration(
        "1m",
        "How long it must wait for one while another thread waits for one.",
    )
    stalled_for_a_failed_thread = duration(
        "15s",
        "How long it must wait while a thread has failed that may have served it.",
    )
    rank_stuck_after = duration(
        "30s",
        "How long a process of a job may let the others wait in a collective; at "
        "least 10s, and no less than rank_stuck_times as long as is usual.",
    )
    rank_stuck_times = count(
        3,
        "How many times as long as is usual a process of a job must let others wait.",
    )
    rank_stuck_first = duration(
        "5m",
        "How long the processes of a job may wait before they have found a rhythm.",
    )
    rank_gone_after = duration(
        "5s",
        "How long the others may wait for a process that does not run any more.",
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
        100,
        "Minimum number of transfers by one line that is called a loop.",
    )
    transfers_slow = duration("1s", "Minimum time that they take, ...")
    transfers_slow_share = ratio(0.01, "... and minimum fraction of the time.")
    large_argument = count(
        1048576,
        "Bytes of NumPy arrays in the arguments of a call that are many.",
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
        100,
        "Minimum number of spans that a process drops within export_window.",
    )
