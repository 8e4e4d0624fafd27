"""
A directory is looked at within bounds, and what is wrong with it is said in words.
"""

import os
import zlib
from itertools import count
from pathlib import Path

from jaxmon.agent.cache import directory as cache_directory
from jaxmon.agent.cache.directory import DirectoryScan, creation_directory, scan


def filled(directory: Path) -> Path:
    """Return *directory* with two entries of 5 and 7 bytes, and what is none."""
    (directory / "jit_f-aa-cache").write_bytes(b"12345")
    (directory / "jit_g-bb-cache").write_bytes(b"1234567")
    (directory / "jit_g-bb-atime").write_bytes(b"12345678")
    (directory / ".lockfile").touch()
    (directory / "xla_gpu_per_fusion_autotune_cache_dir").mkdir()
    return directory


def test_entries_are_counted_and_what_is_beside_them_is_not(tmp_path: Path) -> None:
    """Only JAX's entries count, as they do for its own limit."""
    found = scan(str(filled(tmp_path)), sought={}, writes=True)

    assert (found.entries, found.size, found.problem) == (2, 12, None)
    assert found.free is not None
    assert found.free > 0


def test_entries_of_the_same_program_under_other_keys_are_named(tmp_path: Path) -> None:
    """What was sought and is there under its key, or is not sought, is not named."""
    sought = {"jit_f": {"jit_f-cc"}, "jit_g": {"jit_g-bb"}, "jit_h": {"jit_h-dd"}}

    found = scan(str(filled(tmp_path)), sought=sought, writes=True)

    assert found.elsewhere == ("jit_f-aa",)


def test_a_look_that_takes_too_long_ends_without_figures(tmp_path: Path) -> None:
    """Part of a directory is not its size."""
    ticks = count(0, 3)

    found = scan(
        str(filled(tmp_path)), sought={}, writes=True, clock=lambda: next(ticks)
    )

    assert (found.entries, found.size, found.problem) == (None, None, None)


def test_a_huge_directory_ends_without_figures(tmp_path, monkeypatch):
    """The number of files looked at is bounded."""
    monkeypatch.setattr(cache_directory, "_MOST_FILES", 3)

    assert scan(str(filled(tmp_path)), sought={}, writes=True).entries is None


def test_an_entry_that_is_evicted_meanwhile_does_not_count(tmp_path, monkeypatch):
    """Another process may remove what was just listed."""
    filled(tmp_path)
    listing = os.scandir

    def scandir(path: str) -> object:
        found = listing(path)
        (tmp_path / "jit_g-bb-cache").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(os, "scandir", scandir)

    assert scan(str(tmp_path), sought={}, writes=True).entries in (1, 2)


def test_what_is_no_usable_directory_is_said_in_words(tmp_path: Path) -> None:
    """Missing, a file, or longer than a name may be."""
    file = tmp_path / "file"
    file.touch()
    missing = scan(str(tmp_path / "none"), sought={}, writes=True)

    assert missing == DirectoryScan(problem="it does not exist")
    assert scan(str(file), sought={}, writes=True).problem == "it is not a directory"
    too_long = scan(str(tmp_path / ("x" * 300)), sought={}, writes=True)
    assert too_long.problem is not None
    assert "cannot be read" in too_long.problem


def test_who_only_reads_needs_no_permission_to_write(tmp_path, monkeypatch):
    """Processes other than 0 never write."""
    monkeypatch.setattr(os, "access", lambda *_: False)

    assert scan(str(tmp_path), sought={}, writes=False).problem is None
    problem = scan(str(tmp_path), sought={}, writes=True).problem
    assert problem == "this process cannot write to it"


OPTIONS = b"\xb2\x136/mnt/cache/xla_gpu_per_fusion_autotune_cache_dir\xb8\x13"


def entry(directory: Path, content: bytes) -> Path:
    path = directory / "jit_f-0-cache"
    path.write_bytes(zlib.compress(content))
    return path


def test_an_entry_has_the_path_under_which_it_was_created(tmp_path, monkeypatch):
    """Not one that is corrupt, gone, or too large to take into memory."""
    file = entry(tmp_path, OPTIONS)
    assert creation_directory(file, zlib.decompress) == "/mnt/cache"
    monkeypatch.setattr(cache_directory, "_MOST_BYTES", 3)
    assert creation_directory(file, zlib.decompress) is None
    monkeypatch.undo()
    file.write_bytes(b"corrupt")

    assert creation_directory(file, zlib.decompress) is None
    assert creation_directory(tmp_path / "gone", zlib.decompress) is None
