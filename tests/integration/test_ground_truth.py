"""Every count that the agent exports equals a count obtained without it."""

from collections import Counter, defaultdict
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from jaxmon import catalog
from tests.helpers import processes
from tests.helpers.preloaded import run_preloaded


pytestmark = pytest.mark.ground_truth

PROGRAM = processes.ROOT / "tests" / "programs" / "known_counts.py"
MAIN = "__main__."


class Books:
    """What the program noted, beside what the agent's page says."""

    def __init__(self, noted: dict[str, Any]) -> None:
        self.noted = noted
        self.jax = tuple(int(part) for part in noted["jax"].split(".")[:3])
        self._samples = [
            sample
            for family in text_string_to_metric_families(noted["page"])
            for sample in family.samples
        ]

    def page(self, name: str, label: str = "function", **fixed: str) -> Counter[str]:
        """Return the non-zero samples called *name* by the value of *label*."""
        found: Counter[str] = Counter()
        for sample in self._samples:
            labels = sample.labels
            if sample.name == name and fixed.items() <= labels.items():
                found[labels[label]] += int(sample.value)
        return +found

    def seconds(self, phase: str) -> dict[str, float]:
        """Return the seconds spent in *phase* by function, as JAX's log calls them."""
        found: dict[str, float] = defaultdict(float)
        for sample in self._samples:
            labels = sample.labels
            if sample.name == "jaxmon_compile_seconds_sum" and labels["phase"] == phase:
                found[labels["function"].rpartition(".")[2]] += sample.value
        return found

    def main(self, name: str, **fixed: str) -> Counter[str]:
        """Return the same for the functions of the program itself."""
        return Counter(
            {
                function.removeprefix(MAIN): value
                for function, value in self.page(name, **fixed).items()
                if function.startswith(MAIN)
            }
        )

    def by_last_name(self, name: str, **fixed: str) -> Counter[str]:
        """Return the same with functions called as JAX's log calls them."""
        found: Counter[str] = Counter()
        for function, value in self.page(name, **fixed).items():
            found[function.rpartition(".")[2]] += value
        return found


@pytest.fixture(scope="module")
def books() -> Books:
    """Run the program once and return its books."""
    result = run_preloaded(str(PROGRAM), env={"JAXMON_SOCKET": "0"})
    return Books(result.json())


def test_calls_equal_the_calls_that_the_program_made(books: Books) -> None:
    """Each call of the program counts once, and none that JAX makes while tracing."""
    assert Counter(books.noted["calls"]) == books.main("jaxmon_jit_calls_total")


def test_misses_equal_the_calls_that_had_to_leave_the_fast_path(books: Books) -> None:
    """Misses follow JAX's rules, for functions jitted before instrument() too."""
    expected = +Counter(books.noted["misses"])

    assert expected == books.main("jaxmon_jit_cache_misses_total")
    assert expected["early_body"] == 2
    assert expected["bound"] == 1


def test_hits_are_the_other_calls(books: Books) -> None:
    """A call of a counted function is a hit or a miss, never both, never neither."""
    calls, misses = Counter(books.noted["calls"]), Counter(books.noted["misses"])

    assert calls - misses == books.main("jaxmon_jit_cache_hits_total")


def test_compiles_equal_those_in_the_log_of_jax(books: Books) -> None:
    """
    Executables per function are those that JAX logs, its own functions included.

    To 0.5 JAX logs nothing about a compile that fails; since, it does.
    """
    logged = Counter(books.noted["compiled"])
    if books.jax >= (0, 5, 3):
        logged -= Counter(books.noted["failed"])

    found = books.by_last_name("jaxmon_compiles_total", outcome="compiled")

    assert logged == found


def test_failed_compiles_are_counted_as_failed(books: Books) -> None:
    """A compile that XLA refuses is an outcome of its own."""
    found = books.by_last_name("jaxmon_compiles_total", outcome="failed")

    assert Counter(books.noted["failed"]) == found


def test_lowerings_equal_those_in_the_log_of_jax(books: Books) -> None:
    """The phase ``lower`` is observed once per program that JAX lowers."""
    found = books.by_last_name("jaxmon_compile_seconds_count", phase="lower")

    assert Counter(books.noted["lowered"]) == found


def test_traces_equal_the_runs_of_the_python_bodies(books: Books) -> None:
    """
    The phase ``trace`` is observed once per trace of a function by itself.

    JAX does not report a trace that fails (to 0.5) nor, since 0.10, one that happens
    under a transformation.
    """
    expected = Counter(books.noted["traces"])
    if books.jax < (0, 5, 3):
        del expected["failing"]
    if books.jax >= (0, 10):
        del expected["transformed"]

    assert expected == books.main("jaxmon_compile_seconds_count", phase="trace")


def test_compile_time_lies_within_what_jax_measures_around_it(books: Books) -> None:
    """
    Our clock starts after and stops before the one in JAX's log, which to 0.5 leaves
    out compiles that failed.
    """
    ours = books.seconds("backend_compile")

    for name, seconds in books.noted["compile_seconds"].items():
        if name not in books.noted["failed"] or books.jax >= (0, 5, 3):
            assert 0 < ours[name] <= seconds + 0.001, name


def test_recompiles_are_the_calls_that_compiled_again(books: Books) -> None:
    """Only a call that recompiles a function is a recompile, with its cause."""
    found = {
        f"{function} {cause}": value
        for cause in catalog.CAUSES
        for function, value in books.main(
            "jaxmon_recompiles_total", cause=cause
        ).items()
    }

    assert books.noted["recompiles"] == found


def test_errors_are_those_that_left_a_call(books: Books) -> None:
    """Each call that raised counts once, by kind."""
    assert Counter(books.noted["errors"]) == books.main("jaxmon_errors_total")
    traced = books.main("jaxmon_errors_total", kind="trace_error")
    assert traced == {"failing": 2}


def test_live_arrays_equal_those_that_jax_lists(books: Books) -> None:
    """Arrays and bytes per device are those of JAX's own list, shard by shard."""
    if books.jax < (0, 6):
        pytest.skip("off beside a callback")
    arrays = books.page("jaxmon_live_arrays", "device")
    nbytes = books.page("jaxmon_live_array_bytes", "device")

    assert len(books.noted["live"]) == 8
    for device, (count, size) in books.noted["live"].items():
        assert (count, size) == (arrays[device], nbytes[device])


def test_all_hooks_are_active_and_nothing_failed(books: Books) -> None:
    """On a supported JAX every hook attaches and none has failed."""
    hooks = {"calls", "compiles", "errors", "misses", "monitoring", "uncaught"}
    active = books.page("jaxmon_hook_active", "hook")

    assert hooks <= set(active)
    assert active == dict.fromkeys(active, 1)
    assert not books.page("jaxmon_internal_errors_total", "site")


CACHED = """
import json, os, sys, urllib.request
import jax, numpy as np, jaxmon
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
agent = jaxmon.instrument(port=0, socket=False)
@jax.jit
def cached(x):
    return x + 1
cached(np.ones(3, np.float32))
cached(np.ones(4, np.float32))
page = urllib.request.urlopen(agent.url, timeout=60).read().decode()
print(json.dumps({"jax": jax.__version__, "page": page}))
"""


def test_a_second_process_hits_the_persistent_cache(tmp_path: Any) -> None:
    """The first process compiles and misses; the second hits, as files show."""
    script = tmp_path / "cached.py"
    script.write_text(CACHED)
    cache = tmp_path / "cache"

    first, second = (
        Books(run_preloaded(str(script), str(cache)).json()) for _ in range(2)
    )

    files = [path for path in cache.iterdir() if path.name.startswith("jit_cached-")]
    assert len([path for path in files if path.name.endswith("-cache")]) == 2
    requests = "jaxmon_persistent_cache_requests_total"
    assert first.main("jaxmon_compiles_total", outcome="compiled") == {"cached": 2}
    assert first.page(requests, "result")["hit"] == 0
    assert first.page(requests, "result")["miss"] >= 2
    assert second.main("jaxmon_compiles_total", outcome="cache_hit") == {"cached": 2}
    assert second.page(requests, "result")["hit"] >= 2
    assert second.page(requests, "result")["miss"] == 0
    seconds = "jaxmon_compile_seconds_count"
    assert second.main(seconds, phase="cache_retrieval") == {"cached": 2}
    assert second.main(seconds, phase="backend_compile") == {}
