"""
What is wrong with the directory of the persistent cache: provoked and named, in
processes of their own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers.caches import TWO_PROGRAMS, books_of, entries, options, run


pytestmark = pytest.mark.ground_truth


def test_a_cache_that_outgrows_its_file_system_is_named(tmp_path: Path) -> None:
    """Without eviction, entries that take more than what is left will soon not fit."""
    free = os.statvfs(tmp_path)
    huge = tmp_path / "jit_old-0000-cache"
    with huge.open("wb") as file:
        file.truncate(free.f_bavail * free.f_frsize * 2)

    books = run(tmp_path)

    assert books.snapshot["size_bytes"] > huge.stat().st_size
    assert books.obstacles() == ["no_eviction"]


def test_a_path_that_is_a_file_is_named(tmp_path: Path) -> None:
    """JAX warns once and never tries again; the obstacle stays."""
    file = tmp_path / "cache"
    file.touch()

    books = run(file)

    assert books.obstacles() == ["unusable_directory"]
    errors = books.snapshot["errors"]
    assert errors["read"] == sum("Error reading" in w[1] for w in books.warned) > 0
    assert errors["write"] == sum("Error writing" in w[1] for w in books.warned)


def test_a_directory_without_permission_is_named(run_dir: Path) -> None:
    """A directory that this user may read and not write."""
    # Not below tmp_path, which other users may not enter.
    run_dir.chmod(0o755)
    directory = run_dir / "cache"
    directory.mkdir()
    directory.chmod(0o555)
    # Root may write anywhere; nobody may not, nor read what JAX loads late where Python
    # is installed for root alone.
    load = "import getpass, importlib.metadata, os, unittest.mock"
    demote = "os.geteuid() or os.seteuid(65534)"

    books = run(directory, load, demote, *TWO_PROGRAMS, "os.getuid() or os.seteuid(0)")

    assert entries(directory) == []
    assert books.obstacles() == ["unusable_directory"]
    assert "Permission denied" in books.message("unusable_directory")
    written = sum("Error writing" in w[1] for w in books.warned)
    assert books.snapshot["errors"] == {"read": 0, "write": written}
    assert (written, books.snapshot["writes"]) == (3, 0)


# A limit on the size of files stands in for a full file system: writing fails half-way.
FULL = (
    "import resource, signal, sys",
    "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)",
    "sys.dont_write_bytecode = True",  # Python would keep half of it
    "resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))",
)
ROOM = "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)"


def test_a_full_file_system_is_named(tmp_path: Path) -> None:
    """What could not be written is an error, and no write."""
    books = run(tmp_path, *FULL, *TWO_PROGRAMS, ROOM)

    assert books.obstacles() == ["unusable_directory"]
    assert "full" in books.message("unusable_directory")
    assert books.snapshot["errors"] == {"read": 0, "write": 3}
    assert books.snapshot["writes"] == 0


def test_a_directory_that_can_be_written_again_is_no_obstacle(tmp_path: Path) -> None:
    """One success shows that the trouble is over."""
    books = run(tmp_path, *FULL, "cached(ones(3))", ROOM, "cached(ones(4))")

    assert books.snapshot["errors"] == {"read": 0, "write": 1}
    assert books.snapshot["writes"] == 1
    assert books.snapshot["obstacles"] == []


def test_a_directory_that_was_deleted_is_named(tmp_path: Path) -> None:
    """JAX creates the directory once; after a cleanup, nothing is stored any more."""
    directory = tmp_path / "cache"
    delete = f"import shutil; shutil.rmtree({str(directory)!r})"

    books = run(directory, "cached(ones(3))", delete, "cached(ones(4))")

    assert books.obstacles() == ["unusable_directory"]
    assert "does not exist" in books.message("unusable_directory")
    assert books.snapshot["errors"] == {"read": 0, "write": 1}
    assert books.snapshot["entries"] is None


def test_a_corrupt_entry_is_an_error_with_the_name_of_its_file(tmp_path: Path) -> None:
    """JAX compiles again and leaves the file as it is, each time; so it must go."""
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
    assert f"delete the file {entry.name}" in message


def test_warnings_of_jax_are_as_without_jaxmon(tmp_path: Path) -> None:
    """Category, text, file and line of each warning are what the user would see."""
    run(tmp_path, "cached(ones(3))")
    (entry,) = entries(tmp_path)
    entry.write_bytes(b"not an entry")
    given = options(tmp_path, "cached(ones(3))")

    observed, alone = (books_of({**given, "observed": seen}) for seen in (True, False))

    assert observed.warned == alone.warned
    assert [w[0] for w in alone.warned] == ["UserWarning"]
    assert alone.warned[0][2] == "compiler.py"
