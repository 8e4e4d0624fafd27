"""
What is configured so that the persistent cache cannot hit: provoked and named, in
processes of their own.
"""

from __future__ import annotations

import json
import shutil
import socket
import time
from importlib.util import find_spec
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.helpers import processes
from tests.helpers.caches import (
    FILELOCK,
    PORTABLE,
    PROGRAM,
    TWO_PROGRAMS,
    Books,
    books_of,
    entries,
    options,
    run,
)
from tests.helpers.preloaded import run_preloaded, start_preloaded


pytestmark = pytest.mark.ground_truth


def test_a_cache_that_is_switched_off_is_named(tmp_path: Path) -> None:
    """``jax_enable_compilation_cache`` is off."""
    off = run(tmp_path, config=OFF)

    assert (off.hits, off.stored, entries(tmp_path)) == (0, 0, [])
    assert off.obstacles() == ["disabled"]
    assert not off.snapshot["enabled"]
    assert off.snapshot["requests"] == {"hit": 0, "miss": 0}


SLOW = {"jax_persistent_cache_min_compile_time_secs": 1000}
OFF = {"jax_enable_compilation_cache": False}
ON = "jax.config.update('jax_enable_compilation_cache', True)"
# Settings, what runs, the reason named, and words of its message.
EMPTY: dict[str, tuple[dict[str, Any], list[str], list[str], tuple[str, ...]]] = {
    "room for nothing": (
        *({"jax_compilation_cache_max_size": 0}, [], ["disabled"]),
        (),
    ),
    "below the threshold": (
        *(SLOW, ["compile_for(1.5)"], ["below_threshold"]),
        ("less than 1000 s", "__main__.deep"),
    ),
    "a few quick programs": (SLOW, ["cached(ones(3))"], [], ()),
    "below the size": (
        *({"jax_persistent_cache_min_entry_size_bytes": 10**9}, []),
        *(["below_threshold"], ("1,000,000,000 bytes",)),
    ),
    "on too late": (
        *(OFF, ["cached(ones(3))", ON, "cached(ones(4))"], ["not_in_use"]),
        (),
    ),
}


@pytest.mark.parametrize("name", EMPTY)
def test_what_keeps_the_cache_empty_is_named(name: str, tmp_path: Path) -> None:
    """If it costs something: every program compiles small things that are not kept."""
    config, code, reasons, words = EMPTY[name]
    books = run(tmp_path, *code, config=config)

    assert (entries(tmp_path), books.snapshot["writes"]) == ([], 0)
    assert books.obstacles() == reasons
    assert all(word in books.message(reasons[0]) for word in words)


@pytest.mark.parametrize("code", ["cached(ones(5))", "other(ones(3))"])
def test_a_changed_program_at_the_same_path_is_no_obstacle(code, tmp_path):
    """
    A deployment that changes every program misses every time, and rightly so; misses
    in a cold cache may be the first ones.
    """
    run(tmp_path, "cached(ones(3))")

    books = run(tmp_path, code)

    assert (books.hits, books.stored, len(entries(tmp_path))) == (0, 1, 2)
    assert books.obstacles() == []


@pytest.mark.parametrize(
    ("filelock", "size", "reason"),
    [("raise ImportError", 10**9, "not_in_use"), (FILELOCK, 100, "too_large")],
)
def test_eviction_needs_its_package_and_room(filelock, size, reason, tmp_path):
    """
    Without the package, JAX uses no cache at all; what is larger than the whole cache
    may be is compiled each time.
    """
    packages = tmp_path / "path"
    packages.mkdir()
    (packages / "filelock.py").write_text(filelock)
    config = {"jax_compilation_cache_max_size": size}
    given = options(tmp_path / "cache", "cached(ones(3))", config=config)

    books = books_of(given, packages)

    assert (entries(tmp_path / "cache"), books.snapshot["writes"]) == ([], 0)
    assert books.obstacles() == [reason]
    assert "filelock" in books.message(reason) or reason == "too_large"


def test_a_missing_directory_setting_is_named() -> None:
    """Without a directory there is no cache, and no look-up counts as a miss."""
    books = run(None)

    assert books.events["compile_requests_use_cache"] == 3
    assert books.obstacles() == ["no_directory"]
    assert books.snapshot["requests"] == {"hit": 0, "miss": 0}


def test_nothing_is_named_before_anything_was_compiled() -> None:
    """A program may still be about to configure the cache."""
    assert run(None, "pass").obstacles() == []


def test_a_directory_of_this_process_is_named(tmp_path: Path) -> None:
    """What is written under a path with the time of the start is not found again."""
    directory = tmp_path / f"run-{time.time():.0f}"
    books = run(directory)

    assert (books.hits, len(entries(directory))) == (0, books.stored)
    assert books.obstacles() == ["private_directory"]
    assert directory.name[4:] in books.message("private_directory")


def test_a_directory_that_hits_is_not(tmp_path: Path) -> None:
    """A second process of the same launcher finds what the first has written."""
    directory = tmp_path / f"run-{time.time():.0f}"
    run(directory, config=PORTABLE)

    assert run(directory, config=PORTABLE).obstacles() == []


def test_a_flag_that_varies_is_named(tmp_path: Path) -> None:
    """A flag with the time of the start makes the key another in each run."""
    setting = f"--xla_gpu_dump_autotune_results_to=/tmp/{time.time():.0f}"
    given = options(tmp_path)
    env = {"XLA_FLAGS": setting}
    books = Books(run_preloaded(str(PROGRAM), json.dumps(given), env=env).json())

    assert books.hits == 0
    assert books.obstacles() == ["varying_flags"]
    assert setting.partition("=")[0] in books.message("varying_flags")


@pytest.mark.parametrize("config", [{}, PORTABLE], ids=["default", "portable"])
def test_a_directory_that_moved_is_named_where_it_matters(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    """
    Where the path is part of the key, by default from 0.6 to 0.11, a cache mounted
    elsewhere is never hit; elsewhere it is, and nothing is named.
    """
    run(tmp_path / "one", config=config)
    shutil.move(tmp_path / "one", tmp_path / "other")

    books = run(tmp_path / "other", config=config)

    version = tuple(map(int, books.noted["jax"].split(".")[:2]))
    matters = not config and (0, 5) < version < (0, 12)
    assert books.hits == (0 if matters else 3)
    assert books.obstacles() == (["path_in_key"] if matters else [])
    if matters:
        assert "jit_cached" in books.message("path_in_key")
        assert f"created under {tmp_path / 'one'}" in books.message("path_in_key")


def test_only_the_first_process_of_a_cluster_writes(tmp_path: Path) -> None:
    """The other of two real processes reports that what it compiled was not stored."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    given = []
    for number in range(2):
        join = f"jax.distributed.initialize({address!r}, 2, {number})"
        one = options(tmp_path / f"cache-{number}", join, *TWO_PROGRAMS)
        given.append(json.dumps(one))
    running = [
        start_preloaded(
            *(str(PROGRAM), one),
            environ=processes.clean_environ(),
            stdout=PIPE,
            stderr=PIPE,
        )
        for one in given
    ]
    try:
        ended = [process.communicate(timeout=240) for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()
    books = []
    for process, (out, err) in zip(running, ended, strict=True):
        assert process.returncode == 0, err
        books.append(Books(json.loads(out.splitlines()[-1])))

    first, second = books
    assert (first.stored, second.stored) == (3, 0)
    assert first.obstacles() == []
    assert second.obstacles() == ["not_writer"]
    assert "this is process 1" in second.message("not_writer")


def test_host_callbacks_are_named_where_jax_does_not_keep_them(tmp_path: Path) -> None:
    """
    To 0.11 programs with callbacks are not kept; since 0.12 they are, and are found.
    """
    first, second = (run(tmp_path, "calling_back(ones(3))") for _ in range(2))

    if entries(tmp_path):
        assert (first.obstacles(), second.obstacles(), second.hits) == ([], [], 1)
        assert first.snapshot["writes"] == 1
    else:
        assert first.obstacles() == second.obstacles() == ["host_callback"]
        assert "__main__.calling_back" in first.message("host_callback")
        assert first.snapshot["writes"] == 0


def test_a_directory_set_too_late_is_named(tmp_path: Path) -> None:
    """JAX keeps to the directory that it started with."""
    change = f"jax.config.update('jax_compilation_cache_dir', {str(tmp_path / 'b')!r})"

    books = run(tmp_path / "a", "cached(ones(3))", change, "cached(ones(4))")

    assert len(entries(tmp_path / "a")) == 2
    assert not (tmp_path / "b").exists()
    assert books.obstacles() == ["not_in_use"]
    assert f"started with {tmp_path / 'a'}" in books.message("not_in_use")


def test_a_first_directory_after_the_first_compile_is_named_or_used(
    tmp_path: Path,
) -> None:
    """To 0.4 that is too late, later releases take it; jaxmon says which it is."""
    late = f"jax.config.update('jax_compilation_cache_dir', {str(tmp_path)!r})"

    books = run(None, "cached(ones(3))", late, "cached(ones(4))")

    # What was told before the directory was set stays in the log.
    books.log.clear()
    reasons = [one["reason"] for one in books.obstacle_list()]
    assert reasons == ([] if entries(tmp_path) else ["not_in_use"])
    assert len(entries(tmp_path)) == books.stored == books.snapshot["writes"]


def test_checking_contents_is_named(tmp_path: Path) -> None:
    """Since 0.10 JAX can compile what it has, to compare: nothing hits at first."""
    check = {"jax_compilation_cache_check_contents": True}
    run(tmp_path)

    books = run(tmp_path, config=check)

    if books.hits:
        assert books.obstacles() == []
    else:
        assert books.obstacles() == ["check_contents"]


REMOTE = """
import json
import sys
import jax
import jaxmon
from jaxmon.agent.agent import runtime_of

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.jit(lambda x: x + 1)(1.0)
agent = jaxmon.instrument(port=None, socket=False)
jax.jit(lambda x: x + 2)(1.0)
agent.refresh()
print(json.dumps(runtime_of(agent).overview.whole()["cache"]["obstacles"]))
"""
NO_EPATH = "import sys; sys.modules['etils'] = None\n"


@pytest.mark.parametrize(
    ("scheme", "before", "package"),
    [
        ("gs", "", "gcsfs"),
        ("s3", "", "s3fs"),
        ("gs", NO_EPATH, "etils[epath]"),
    ],
)
def test_a_remote_directory_without_its_package_is_named(
    request: pytest.FixtureRequest, scheme: str, before: str, package: str
) -> None:
    """
    JAX tries once, which may have been before jaxmon was there; its own message is a
    warning at that moment.
    """
    if find_spec("etils") is None:
        package = "etils[epath]"
    elif not before and find_spec(package):
        pytest.skip(f"{package} is installed")
    run_script = request.getfixturevalue(
        "python_script" if before else "preloaded_script"
    )
    (one,) = run_script(before + REMOTE, f"{scheme}://bucket/programs").json()

    assert one["reason"] == "not_in_use"
    assert one["message"] == (
        f"JAX does not use {scheme}://bucket/programs: {package} is not installed."
    )
    assert one["advice"] == f"Install {package} where the program runs."
