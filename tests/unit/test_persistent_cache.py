"""A hung directory affects only its own metrics, and delays nothing."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from jaxmon import catalog
from jaxmon.agent.cache.directory import DirectoryScan
from jaxmon.agent.cache.part import PersistentCache
from jaxmon.agent.context import Context, context_of
from jaxmon.agent.functions import Function
from jaxmon.facts.functions import Requests
from jaxmon.settings import Settings
from tests.helpers.processes import until


def context(directory: str) -> Context:
    """Return a context whose JAX has opened *directory*."""
    config = SimpleNamespace(
        jax_compilation_cache_dir=directory,
        jax_enable_compilation_cache=True,
        jax_compilation_cache_max_size=-1,
        jax_persistent_cache_min_compile_time_secs=1.0,
        jax_persistent_cache_min_entry_size_bytes=0,
    )
    source = SimpleNamespace(
        compilation_cache=SimpleNamespace(
            _cache=SimpleNamespace(_path=directory), _cache_initialized=True
        ),
        distributed=SimpleNamespace(global_state=SimpleNamespace(process_id=0)),
    )
    jax = SimpleNamespace(config=config, _src=source)
    return context_of(jax, Settings(max_functions=10))


def slow() -> tuple[list[float], list[int], Callable[..., DirectoryScan]]:
    """Return a clock, a count of looks, and a look that takes a second."""
    now, looks = [0.0], [0]

    def look(*_: Any, **__: Any) -> DirectoryScan:
        looks[0] += 1
        now[0] += 1.0
        return DirectoryScan()

    return now, looks, look


def exported(cache: PersistentCache) -> dict[str, float]:
    return {s: v for family in cache.collect() for s, v in family.samples}


def test_a_directory_that_hangs_is_named_and_blocks_nobody() -> None:
    """Pages keep coming; after a minute the old figures go and the hang is named."""
    now, answers, asked = [0.0], threading.Event(), threading.Event()

    def look(*_: Any, **__: Any) -> DirectoryScan:
        asked.set()
        answers.wait(60)
        return DirectoryScan(entries=1, size=5, free=100)

    shared = context("/cache")
    cache = PersistentCache(shared, scan=look, clock=lambda: now[0])
    cache.start()
    function = shared.table.named("f")
    try:
        answers.set()
        cache.scan()
        assert exported(cache)[catalog.PERSISTENT_CACHE_ENTRIES.name] == 1
        answers.clear()
        asked.clear()
        cache.looked_up(function, hit=False)
        assert asked.wait(90)
        now[0] = 30.0
        assert exported(cache)[catalog.PERSISTENT_CACHE_ENTRIES.name] == 1
        assert cache.snapshot().obstacles == ()
        now[0] = 61.0
        assert catalog.PERSISTENT_CACHE_ENTRIES.name not in exported(cache)
        (obstacle,) = cache.snapshot().obstacles
        assert obstacle.reason == "unusable_directory"
        assert "has not responded" in obstacle.message
        answers.set()
        until(lambda: not cache.snapshot().obstacles, "an answer")
    finally:
        answers.set()
        cache.stop()
        shared.scheduler.stop()

    assert shared.guard.failures() == {}


def miss(cache: PersistentCache, function: Function, number: int) -> None:
    """Do what JAX does for a program that is not found, and not kept."""
    cache_key = f"jit_f-{number}"  # noqa: F841 - read from this frame, like the rest
    module_name = "jit_f"  # noqa: F841
    compile_time = 2.0  # noqa: F841
    host_callbacks = ("one",)  # noqa: F841
    cache.on_write(sys._getframe(), None)
    cache.looked_up(function, hit=False)


def test_a_cold_start_does_not_list_a_slow_directory_again_and_again() -> None:
    """
    A hundred misses in a row make it looked at once: the next look waits until a
    hundred times as long as the last one took has passed.
    """
    now, looks, look = slow()
    shared = context("/cache")
    cache = PersistentCache(shared, scan=look, clock=lambda: now[0])
    cache.start()
    function = shared.table.named("f")
    try:
        for number in range(100):
            miss(cache, function, number)
            assert cache._worker.drain(30)
        assert looks == [1]
        now[0] += 100.0
        miss(cache, function, 100)
        assert cache._worker.drain(30)
        assert looks == [2]
    finally:
        cache.stop()
        shared.scheduler.stop()

    assert shared.guard.failures() == {}


def test_a_slow_directory_is_listed_no_more_often_by_the_clock() -> None:
    """
    A thousand processes that list a shared one every half minute would be all that its
    file server does; each takes a hundredth of its time for it.
    """
    now, looks, look = slow()
    cache = PersistentCache(context("/cache"), scan=look, clock=lambda: now[0])
    routine = cache._worker._routine
    assert routine is not None
    for _ in range(40):
        routine()
        now[0] += 30.0

    assert looks == [10]


def test_a_bucket_is_not_listed(tmp_path: Path) -> None:
    """Listing remote directories costs money; the rest is reported."""
    looks: list[object] = []

    def look(*given: Any, **_: Any) -> DirectoryScan:
        looks.append(given)
        return DirectoryScan()

    shared = context("gs://bucket/cache")
    cache = PersistentCache(shared, scan=look)
    cache.scan()
    cache.looked_up(shared.table.named("f"), hit=True)
    cache.stop()
    shared.scheduler.stop()

    assert looks == []
    assert cache.snapshot().requests == Requests(hit=1, miss=0)
    assert cache.snapshot().size_bytes is None
