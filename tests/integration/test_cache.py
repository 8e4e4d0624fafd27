"""
The persistent cache: every figure against JAX's own events and the files on disk, and
every obstacle provoked and named, in processes of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxmon import catalog
from jaxmon.catalog import PERSISTENT_CACHE_OBSTACLES
from tests import support


pytestmark = pytest.mark.ground_truth

PROGRAM = support.ROOT / "tests" / "programs" / "cached.py"
TWO_PROGRAMS = ["cached(ones(3))", "cached(ones(4))", "other(ones(3))"]
PORTABLE = {"jax_persistent_cache_enable_xla_caches": "none"}

# The packages of the tests do not bring it; JAX wants two methods of it.
FILELOCK = """
class FileLock:
    def __init__(self, path): pass
    def acquire(self, timeout=None): pass
    def release(self): pass
"""


class Books:
    """
    What JAX and the file system said, beside what jaxmon said.
    """

    def __init__(self, noted: dict[str, Any]) -> None:
        self.noted = noted
        self.events: dict[str, int] = noted["events"]
        self.warned: list[list[Any]] = noted["warned"]
        self.snapshot: dict[str, Any] = noted.get("snapshot", {})
        self.log: list[list[Any]] = noted.get("log", [])

    @property
    def hits(self) -> int:
        return self.events.get("cache_hits", 0)

    @property
    def stored(self) -> int:
        return self.events.get("cache_misses", 0)

    def obstacles(self) -> list[str]:
        """
        Return the reasons named, after asserting that page, snapshot and log agree.
        """
        metric = catalog.PERSISTENT_CACHE_OBSTACLE.name
        found = [one["reason"] for one in self.snapshot["obstacles"]]
        assert (
            self.noted["samples"].items()
            >= {
                f'{metric}{{reason="{reason}"}}': int(reason in found)
                for reason in PERSISTENT_CACHE_OBSTACLES
            }.items()
        )
        told = [details["reason"] for _, details in self.log if "reason" in details]
        assert sorted(told) == sorted(found)
        assert all(one["message"] and one["advice"] for one in self.obstacle_list())
        return found

    def obstacle_list(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.snapshot["obstacles"]
        return found

    def message(self, reason: str) -> str:
        """
        Return what is said of *reason*.
        """
        (found,) = (o for o in self.obstacle_list() if o["reason"] == reason)
        return found["message"]


def options(
    directory: Path | str | None, *run: str, config: dict[str, Any] | None = None
) -> dict[str, Any]:
    """
    Return what tells the program to keep everything in *directory*, and to run *run*.
    """
    return {
        "config": {
            "jax_compilation_cache_dir": None if directory is None else str(directory),
            "jax_persistent_cache_min_compile_time_secs": 0,
            "jax_persistent_cache_min_entry_size_bytes": -1,
            **(config or {}),
        },
        "run": run or TWO_PROGRAMS,
    }


def books_of(given: dict[str, Any], packages: Path | None = None) -> Books:
    """
    Run the program, *packages* before all others, and return its books.
    """
    env = {} if packages is None else {"PYTHONPATH": str(packages)}
    return Books(support.run_python(str(PROGRAM), json.dumps(given), env=env).json())


def run(
    directory: Path | str | None, *code: str, config: dict[str, Any] | None = None
) -> Books:
    return books_of(options(directory, *code, config=config))


def entries(directory: Path) -> list[Path]:
    return [path for path in directory.iterdir() if path.name.endswith("-cache")]


def test_figures_equal_those_of_jax_and_the_files(tmp_path: Path) -> None:
    """
    The first process writes what the second finds; nothing is in the way.
    """
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
    nothing; these count as nothing.
    """
    run(tmp_path)
    books = run(tmp_path, "jaxmon")
    assert books.noted["saved"] == []

    second = run(tmp_path)

    assert len(second.noted["saved"]) == 3
    assert min(second.noted["saved"]) < 0
    expected = sum(max(seconds, 0) for seconds in second.noted["saved"])
    assert second.snapshot["saved_seconds"] == pytest.approx(expected)


def test_a_hit_on_a_slow_compile_saves_what_jax_says(tmp_path: Path) -> None:
    """
    The compile time that is kept with an entry, less the time to retrieve it.
    """
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


def test_a_cache_that_is_switched_off_is_named(tmp_path: Path) -> None:
    """
    ``jax_enable_compilation_cache`` off, or room for nothing.
    """
    off = run(tmp_path, config={"jax_enable_compilation_cache": False})

    assert (off.hits, off.stored, entries(tmp_path)) == (0, 0, [])
    assert off.obstacles() == ["disabled"]
    assert not off.snapshot["enabled"]
    assert off.snapshot["requests"] == {"hit": 0, "miss": 0}


def test_room_for_nothing_is_named(tmp_path: Path) -> None:
    """
    ``jax_compilation_cache_max_size`` of 0 switches the cache off as well.
    """
    books = run(tmp_path, config={"jax_compilation_cache_max_size": 0})

    assert entries(tmp_path) == []
    assert books.obstacles() == ["disabled"]


def test_a_missing_directory_setting_is_named() -> None:
    """
    Without a directory there is no cache, and no look-up counts as a miss.
    """
    books = run(None)

    assert books.events["compile_requests_use_cache"] == 3
    assert books.obstacles() == ["no_directory"]
    assert books.snapshot["requests"] == {"hit": 0, "miss": 0}


def test_nothing_is_named_before_anything_was_compiled() -> None:
    """
    A program may still be about to configure the cache.
    """
    assert run(None, "pass").obstacles() == []


def test_programs_below_the_threshold_are_named(tmp_path: Path) -> None:
    """
    Programs that each compile too fast to be kept, and together cost a second.
    """
    books = run(
        tmp_path,
        "compile_for(1.5)",
        config={"jax_persistent_cache_min_compile_time_secs": 1000},
    )

    assert entries(tmp_path) == []
    assert books.obstacles() == ["below_threshold"]
    assert "less than 1000 s" in books.message("below_threshold")
    assert "__main__.deep" in books.message("below_threshold")


def test_a_few_quick_programs_below_the_threshold_are_not_worth_a_word(
    tmp_path: Path,
) -> None:
    """
    Every program compiles small things that JAX rightly does not keep.
    """
    books = run(
        tmp_path,
        "cached(ones(3))",
        config={"jax_persistent_cache_min_compile_time_secs": 1000},
    )

    assert entries(tmp_path) == []
    assert books.obstacles() == []


def test_programs_below_the_size_are_named(tmp_path: Path) -> None:
    """
    The other threshold: entries that are too small.
    """
    books = run(
        tmp_path,
        config={"jax_persistent_cache_min_entry_size_bytes": 10**9},
    )

    assert (entries(tmp_path), books.snapshot["writes"]) == ([], 0)
    assert books.obstacles() == ["below_threshold"]
    assert "1,000,000,000 bytes" in books.message("below_threshold")


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
        assert f"made under {tmp_path / 'one'}" in books.message("path_in_key")


def test_a_changed_program_at_the_same_path_is_no_obstacle(tmp_path: Path) -> None:
    """
    A deployment that changes every program misses every time, and rightly so.
    """
    run(tmp_path, "cached(ones(3))")

    books = run(tmp_path, "cached(ones(5))")

    assert (books.hits, books.stored, len(entries(tmp_path))) == (0, 1, 2)
    assert books.obstacles() == []


def test_a_changed_program_in_a_cold_cache_names_nothing(tmp_path: Path) -> None:
    """
    Misses alone are no reason to suspect the path: they may be the first ones.
    """
    run(tmp_path, "cached(ones(3))")

    books = run(tmp_path, "other(ones(3))")

    assert (books.hits, books.stored) == (0, 1)
    assert books.obstacles() == []


def test_only_the_first_process_of_a_cluster_writes(tmp_path: Path) -> None:
    """
    The other one of two real processes names that nobody kept what it compiled.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    given = []
    for number in range(2):
        join = f"jax.distributed.initialize({address!r}, 2, {number})"
        one = options(tmp_path / f"cache-{number}", join, *TWO_PROGRAMS)
        given.append(json.dumps(one))
    running = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), one],
            env=support.clean_environ(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for one in given
    ]
    try:
        ended = [process.communicate(timeout=90) for process in running]
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


def test_a_cache_that_outgrows_its_file_system_is_named(tmp_path: Path) -> None:
    """
    Without eviction, entries that take more than what is left will soon not fit.
    """
    free = os.statvfs(tmp_path)
    huge = tmp_path / "jit_old-0000-cache"
    with huge.open("wb") as file:
        file.truncate(free.f_bavail * free.f_frsize * 2)

    books = run(tmp_path)

    assert books.snapshot["size_bytes"] > huge.stat().st_size
    assert books.obstacles() == ["no_eviction"]


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


def test_a_path_that_is_a_file_is_named(tmp_path: Path) -> None:
    """
    JAX warns once and never tries again; the obstacle stays.
    """
    file = tmp_path / "cache"
    file.touch()

    books = run(file)

    assert books.obstacles() == ["unusable_directory"]
    errors = books.snapshot["errors"]
    assert errors["read"] == sum("Error reading" in w[1] for w in books.warned) > 0
    assert errors["write"] == sum("Error writing" in w[1] for w in books.warned)


def test_a_directory_without_permission_is_named(run_dir: Path) -> None:
    """
    A directory that this user may read and not write.
    """
    # Not below tmp_path, which other users may not enter.
    run_dir.chmod(0o755)
    directory = run_dir / "cache"
    directory.mkdir()
    directory.chmod(0o555)
    # Root may write anywhere; nobody may not.
    demote = "import os; os.geteuid() or os.seteuid(65534)"

    books = run(directory, demote, *TWO_PROGRAMS, "os.getuid() or os.seteuid(0)")

    assert entries(directory) == []
    assert books.obstacles() == ["unusable_directory"]
    assert "Permission denied" in books.message("unusable_directory")
    written = sum("Error writing" in w[1] for w in books.warned)
    assert books.snapshot["errors"] == {"read": 0, "write": written}
    assert (written, books.snapshot["writes"]) == (3, 0)


def test_a_full_file_system_is_named(tmp_path: Path) -> None:
    """
    A limit on the size of files stands in for it: writing fails half-way.
    """
    limit = (
        "import resource, signal",
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))",
    )
    lift = "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)"

    books = run(tmp_path, *limit, *TWO_PROGRAMS, lift)

    assert books.obstacles() == ["unusable_directory"]
    assert "full" in books.message("unusable_directory")
    assert books.snapshot["errors"] == {"read": 0, "write": 3}
    assert books.snapshot["writes"] == 0


def test_a_directory_that_can_be_written_again_is_no_obstacle(tmp_path: Path) -> None:
    """
    One success shows that the trouble is over.
    """
    limit = (
        "import resource, signal",
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))",
        "cached(ones(3))",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)",
        "cached(ones(4))",
    )

    books = run(tmp_path, *limit)

    assert books.snapshot["errors"] == {"read": 0, "write": 1}
    assert books.snapshot["writes"] == 1
    assert books.snapshot["obstacles"] == []


def test_a_directory_that_was_deleted_is_named(tmp_path: Path) -> None:
    """
    JAX makes the directory once; when somebody cleans up, nothing is kept any more.
    """
    directory = tmp_path / "cache"
    delete = f"import shutil; shutil.rmtree({str(directory)!r})"

    books = run(directory, "cached(ones(3))", delete, "cached(ones(4))")

    assert books.obstacles() == ["unusable_directory"]
    assert "does not exist" in books.message("unusable_directory")
    assert books.snapshot["errors"] == {"read": 0, "write": 1}
    assert books.snapshot["entries"] is None


def test_a_corrupt_entry_is_an_error_with_the_name_of_its_file(tmp_path: Path) -> None:
    """
    JAX compiles again and leaves the file as it is, each time; so it must go.
    """
    run(tmp_path, "cached(ones(3))")
    (entry,) = entries(tmp_path)
    entry.write_bytes(b"not an entry")

    books = run(tmp_path, "cached(ones(3))")

    assert entry.read_bytes() == b"not an entry"
    assert books.snapshot["errors"] == {"read": 1, "write": 0}
    assert books.snapshot["writes"] == 0
    assert books.snapshot["requests"] == {"hit": 0, "miss": 1}
    ((message, details),) = books.log
    assert details["file"] == entry.name
    assert f"remove the file {entry.name}" in message


def test_warnings_of_jax_are_as_without_jaxmon(tmp_path: Path) -> None:
    """
    Category, text, file and line of each warning are what the user would see.
    """
    run(tmp_path, "cached(ones(3))")
    (entry,) = entries(tmp_path)
    entry.write_bytes(b"not an entry")
    given = options(tmp_path, "cached(ones(3))")

    observed, alone = (books_of({**given, "observed": seen}) for seen in (True, False))

    assert observed.warned == alone.warned
    assert [w[0] for w in alone.warned] == ["UserWarning"]
    assert alone.warned[0][2] == "compiler.py"


def test_a_directory_set_too_late_is_named(tmp_path: Path) -> None:
    """
    JAX keeps to the directory that it started with.
    """
    change = f"jax.config.update('jax_compilation_cache_dir', {str(tmp_path / 'b')!r})"

    books = run(tmp_path / "a", "cached(ones(3))", change, "cached(ones(4))")

    assert len(entries(tmp_path / "a")) == 2
    assert not (tmp_path / "b").exists()
    assert books.obstacles() == ["not_in_use"]
    assert f"started with {tmp_path / 'a'}" in books.message("not_in_use")


def test_a_cache_switched_on_too_late_is_named(tmp_path: Path) -> None:
    """
    JAX decides at the first compile whether there is a cache.
    """
    off = {"jax_enable_compilation_cache": False}
    on = "jax.config.update('jax_enable_compilation_cache', True)"

    books = run(tmp_path, "cached(ones(3))", on, "cached(ones(4))", config=off)

    assert entries(tmp_path) == []
    assert books.obstacles() == ["not_in_use"]


def test_a_first_directory_after_the_first_compile_is_named_or_used(
    tmp_path: Path,
) -> None:
    """
    To 0.4 that is too late, later releases take it; jaxmon says which it is.
    """
    late = f"jax.config.update('jax_compilation_cache_dir', {str(tmp_path)!r})"

    books = run(None, "cached(ones(3))", late, "cached(ones(4))")

    # What was told before the directory was set stays in the log.
    books.log.clear()
    reasons = [one["reason"] for one in books.obstacle_list()]
    assert reasons == ([] if entries(tmp_path) else ["not_in_use"])
    assert len(entries(tmp_path)) == books.stored == books.snapshot["writes"]


def test_checking_contents_is_named(tmp_path: Path) -> None:
    """
    Since 0.10 JAX can compile what it has, to compare: nothing hits at first.
    """
    check = {"jax_compilation_cache_check_contents": True}
    run(tmp_path)

    books = run(tmp_path, config=check)

    if books.hits:
        assert books.obstacles() == []
    else:
        assert books.obstacles() == ["check_contents"]


def test_eviction_without_its_package_is_named(tmp_path: Path) -> None:
    """
    JAX then uses no cache at all, and warns once.
    """
    missing = tmp_path / "path"
    missing.mkdir()
    (missing / "filelock.py").write_text("raise ImportError")
    size = {"jax_compilation_cache_max_size": 10**9}
    given = options(tmp_path / "cache", config=size)

    books = books_of(given, missing)

    assert entries(tmp_path / "cache") == []
    assert books.obstacles() == ["not_in_use"]
    assert "filelock" in books.message("not_in_use")


def test_an_entry_larger_than_the_cache_is_named(tmp_path: Path) -> None:
    """
    Such a program is compiled each time, however much room there is.
    """
    packages = tmp_path / "path"
    packages.mkdir()
    (packages / "filelock.py").write_text(FILELOCK)
    size = {"jax_compilation_cache_max_size": 100}
    given = options(tmp_path / "cache", "cached(ones(3))", config=size)

    books = books_of(given, packages)

    assert entries(tmp_path / "cache") == []
    assert books.obstacles() == ["too_large"]
    assert books.snapshot["writes"] == 0
