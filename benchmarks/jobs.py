"""What a verdict on a job of 4,096 ranks takes, on 512 hosts, one of them stuck."""

from __future__ import annotations

import json
import random
import statistics
import tracemalloc
from collections.abc import Callable, Iterable
from functools import cache
from time import process_time
from typing import TYPE_CHECKING, Any

from benchmarks.rows import Row, seconds


if TYPE_CHECKING:
    from jaxmon.facts.host import JobHost

HOSTS, PER_HOST = 512, 8
STUCK = 2_718
GOAL_SECONDS = 2.0
_ROUNDS = 3
_WIDTH = 100
_MIB = 1 << 20
# A process has about as many threads, besides those of native code.
_THREADS = 8
# An agent reports as many at most.
_ROWS, _VARIANTS = 48, 50
# In which a process may differ from others.
_NAMES = 50


def measure() -> list[Row]:
    """Return CPU time and memory of reading, judging and printing, and their size."""
    from jaxmon.job.text import lines
    from jaxmon.job.verdict import judge

    pages = responses()
    size = sum(map(len, pages)) / _MIB
    tracemalloc.start()
    hosts = read(pages)
    printed = lines(judge(hosts), _WIDTH)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    judged = _median(lambda: lines(judge(hosts), _WIDTH))
    whole = _median(lambda: lines(judge(read(pages)), _WIDTH))
    failed = read(responses(failed=True))
    stacked = read(responses(stacks=True))
    going = responses(slow=True)
    tracemalloc.start()
    slow = read(going)
    courses, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    note = f"{size:.1f} MiB of JSON; {len(printed)} lines are printed"
    return [
        Row("read, judge and print 4,096 ranks", whole, "s", note=note),
        Row("judge and print", judged, "s", at_most=GOAL_SECONDS),
        Row(
            "first of 4,096 failures, and print",
            _median(lambda: first_of(failed)),
            "s",
            at_most=GOAL_SECONDS,
        ),
        Row(
            "read ranks that get on",
            _median(lambda: read(going)),
            "s",
            note=f"{sum(map(len, going)) / _MIB:.1f} MiB of JSON",
        ),
        Row(
            "find the straggler, and print",
            _median(lambda: lines(judge(slow), _WIDTH)),
            "s",
            at_most=GOAL_SECONDS,
        ),
        Row("memory of these records", courses / _MIB, "MiB"),
        Row("memory at its peak", peak / _MIB, "MiB"),
        Row("memory of the records", kept / _MIB, "MiB"),
        Row(
            f"group {HOSTS * PER_HOST * _THREADS:,} stacks",
            _median(lambda: grouped(stacked)),
            "s",
            at_most=GOAL_SECONDS,
        ),
    ]


def responses(
    hosts: Iterable[int] = range(HOSTS),
    *,
    stacks: bool = False,
    failed: bool = False,
    slow: bool = False,
) -> list[str]:
    """
    Return the responses of the sidecars of *hosts*, if *failed* of ranks that are gone,
    and if *slow* of ranks that get on, although one of them is slow.
    """
    pages = []
    for host in hosts:
        ranks = [_rank(host * PER_HOST + n, stacks) for n in range(PER_HOST)]
        if failed:
            ranks = [{**one, **_failed(one["index"])} for one in ranks]
        if slow:
            ranks = [{**one, **_going(one["index"])} for one in ranks]
        # One host has an old image.
        old = host == STUCK // PER_HOST // 2
        setups = {"common": {f"name {n}": f"value {n} {old}" for n in range(_NAMES)}}
        pages.append(json.dumps({"ranks": ranks, "setups": setups}))
    return pages


def first_of(hosts: list[JobHost]) -> list[str]:
    """Return what is printed of the first failure."""
    from jaxmon.job.post_mortem import examine
    from jaxmon.job.post_mortem_text import lines

    return lines(examine(hosts), _WIDTH)


def _failed(number: int) -> dict[str, Any]:
    """Return what a sidecar adds: all but one lost a peer."""
    message = "UNKNOWN: Gloo all-reduce failed: Connection closed by peer [10.0.0.1]:1"
    words = {
        "kind": "exception",
        "type": "ValueError",
        "message": "loss is not finite" if number == STUCK else message,
        "where": "train.py:58",
        "age_seconds": 60.1 if number == STUCK else 60.0 - number / 1e5,
    }
    return {"ended": "crashed", "ended_seconds": 58.0, "words": words}


def _going(number: int) -> dict[str, Any]:
    """Return what a rank adds that gets on."""
    stuck = number == STUCK
    place = "data.py:41" if stuck else "data.py:40"
    return {
        "course": _course(0.9, -1) if stuck else _course(0.5, number % _VARIANTS),
        "places": [{"state": "data_wait", "place": place, "ratio": 0.5}],
        "pace": {"age_seconds": 0.4, "usual_seconds": 0.0},
    }


@cache
def _course(busy: float, variant: int) -> list[str]:
    """Return the rows of a rank that loads for about that part of the time."""
    from jaxmon.facts.rank import COLUMNS

    chance = random.Random(variant)  # noqa: S311 - varies ranks, hides nothing
    rows = []
    for _ in range(_ROWS):
        load = 4.0 * (busy + chance.uniform(-0.08, 0.08))
        device = 3.0 - load / 2
        row = {"calls": 20, "seconds": 4.0, "looks": 40, "waits": 4.0 - load}
        row |= {"data_wait": load, "starved": 0.01, "together": device, "known": 4.0}
        rows.append(" ".join([f"{row.get(name, 0.0):.7g}" for name in COLUMNS]))
    return rows


def read(pages: list[str]) -> list[JobHost]:
    """Return the content of *pages*."""
    from jaxmon.facts.host import host
    from jaxmon.host.formats import json_text

    return [
        host(f"host-{number}:9467", json_text.parse(page, odd_numbers=True))
        for number, page in enumerate(pages)
    ]


def grouped(hosts: list[JobHost]) -> list[str]:
    """Return the stacks on *hosts* as they are printed."""
    from jaxmon.job import text

    return text.stack_lines(text.stack_groups(text.of_hosts(hosts)), _WIDTH)


def _rank(number: int, stacks: bool) -> dict[str, Any]:  # noqa: FBT001 - a variant
    stuck = number == STUCK
    calls = 811 if stuck else 812 + number % 3
    place = "data.py:41" if stuck else "train.py:58"
    stack = [
        f"{place} in {'load_batch' if stuck else 'main'}",
        "train.py:90 in <module>",
    ]
    threads = [
        {"name": f"thread-{n}", "stack": [f"pool.py:{n} in work", "pool.py:9 in run"]}
        for n in range(_THREADS - 1)
    ]
    found: dict[str, Any] = {
        "schema": 1,
        "index": number,
        "count": HOSTS * PER_HOST,
        "coordinator": "10.0.0.1:1234",
        "host": f"host-{number // PER_HOST}",
        "pid": 1000 + number,
        "observed_seconds": 5000.0,
        "loops": {"train": {"steps": calls, "age_seconds": 95.0}},
        "functions": {
            f"__main__.{name}": {
                "calls": calls if name == "train_step" else 8,
                "fingerprint": "f00dfeed12345678",
                "devices": HOSTS * PER_HOST,
                "programs": 1,
                "compiled": 1,
                "loaded": 0,
                "compile_seconds": 41.5,
            }
            for name in ("train_step", "evaluate", "initialise", "gather")
        },
        "pace": {"age_seconds": 95.0, "usual_seconds": 0.0},
        "now": {
            "state": "data_wait" if stuck else "fetch",
            "place": place,
            "function": "",
            "seconds": 95.0,
            "stack": stack,
        },
        "worker": str(number % PER_HOST),
        "setup": "common",
    }
    if stacks:
        found["stacks"] = {"threads": [{"name": "main", "stack": stack}, *threads]}
    return found


def _median(call: Callable[[], object]) -> float:
    return statistics.median(seconds(call, _ROUNDS, process_time))
