"""The persistent cache: every figure against JAX's own events and the files on disk."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jaxmon import catalog
from jaxmon.facts.process import read
from jaxmon.screens.tables import cache as cache_section
from tests.helpers.caches import TWO_PROGRAMS, entries, run


pytestmark = pytest.mark.ground_truth


def test_figures_equal_those_of_jax_and_the_files(tmp_path: Path) -> None:
    """The first process writes what the second finds; nothing is in the way."""
    first, second = (run(tmp_path / "cache") for _ in range(2))

    files = entries(tmp_path / "cache")
    size = sum(path.stat().st_size for path in files)
    functions = {"__main__.cached": 2, "__main__.other": 1}
    assert (first.stored, second.hits) == (3, 3)
    for books, hits, writes in ((first, 0, 3), (second, 3, 0)):
        said = books.snapshot
        assert said["enabled"]
        assert said["directory"] == str(tmp_path / "cache")
        assert said["requests"] == {"hit": hits, "miss": 3 - hits}
        assert said["functions"] == {
            name: {"hit": count if hits else 0, "miss": 0 if hits else count}
            for name, count in functions.items()
        }
        assert (said["writes"], said["errors"]) == (writes, {"read": 0, "write": 0})
        assert (said["entries"], said["size_bytes"]) == (len(files), size)
        assert books.obstacles() == []
        assert books.log == []


def test_saved_seconds_are_those_of_jax_and_never_fall(tmp_path: Path) -> None:
    """
    JAX keeps whole seconds of compiling, so that quick programs "save" less than
    nothing; these count as nothing, since counters do not fall. Reports subtract them,
    and say so if they cannot be due to that alone.
    """
    run(tmp_path)
    books = run(tmp_path, "jaxmon")
    assert books.noted["saved"] == []

    slow = """
import time
from jax._src import compilation_cache as cc
whole = cc.get_executable_and_time
def slow(*args, **options):
    time.sleep(1.5)
    return whole(*args, **options)
cc.get_executable_and_time = slow
"""
    second, third = run(tmp_path), run(tmp_path, slow, *TWO_PROGRAMS)

    counter = catalog.PERSISTENT_CACHE_SAVED_SECONDS.name
    for books in (second, third):
        saved = books.noted["saved"]
        assert len(saved) == 3
        assert min(saved) < 0
        assert books.snapshot["saved_seconds"] == pytest.approx(sum(saved))
        expected = sum(max(seconds, 0) for seconds in saved)
        assert books.noted["samples"][counter] == pytest.approx(expected)
    about = [
        cache_section(read({"cache": books.snapshot})).about
        for books in (second, third)
    ]
    assert about[0] == ": 3 hits, 0 misses"
    assert re.fullmatch(
        r": 3 hits, 0 misses, loading took .* longer than compiling", about[1]
    )


def test_a_hit_on_a_slow_compile_saves_what_jax_says(tmp_path: Path) -> None:
    """The compile time that is kept with an entry, less the time to retrieve it."""
    first = run(tmp_path)
    # The entry's first four bytes, compressed, are the seconds that it took.
    slow = """
from jax._src import compilation_cache as cc
whole = cc.get_executable_and_time
def slow(*args, **options):
    found, seconds = whole(*args, **options)
    return found, None if seconds is None else seconds + 100
cc.get_executable_and_time = slow
"""
    second = run(tmp_path, slow, *TWO_PROGRAMS)

    assert first.snapshot["saved_seconds"] == 0
    assert sum(second.noted["saved"]) > 290
    assert second.snapshot["saved_seconds"] == pytest.approx(sum(second.noted["saved"]))
