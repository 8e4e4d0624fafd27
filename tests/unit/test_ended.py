"""The file with what ended processes counted."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxmon import ended
from jaxmon.clocks import monotonic


TEXT = b"jaxmon_steps_total 3\n"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """With the permissions that are given, whatever the umask, and nothing besides."""
    path = tmp_path / "agent-3.ended"
    written = ended.ended(7, monotonic() - 5, TEXT)
    ended.write(path, written, 0o660)
    read = ended.read(path)
    assert read is not None
    assert (read.starts, read.text()) == (7, TEXT.decode())
    assert read.ended - read.since == pytest.approx(5, abs=1)
    age = read.age()
    assert age is not None
    assert 0 <= age < 60
    assert path.stat().st_mode & 0o777 == 0o660
    assert ended.files(tmp_path) == {"3": path}
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("shift", [-ended.KEPT - 1, 3600.0])
def test_counts_are_void_after_a_while(shift: float) -> None:
    """Those of long ago, and those of a clock that began anew."""
    now = monotonic()
    assert ended.Ended(1, now - 10_000, now + shift, b"").age() is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"garbage\n",
        b"jaxmon 1 2.000 3.000",
        b"jaxmon 99999999999999999999 2.000 3.000\n",
        b"jaxmon -1 2.000 3.000\n",
        b"jaxmon 1 nan 3.000\n",
        b"jaxmon 1 2.000 3.000\n" + bytes(1 << 19),
    ],
)
def test_garbage_is_no_file_of_ours(tmp_path: Path, raw: bytes) -> None:
    """What does not begin as ours, or is too large, counts as none."""
    path = tmp_path / "agent-0.ended"
    path.write_bytes(raw)
    assert ended.read(path) is None


@pytest.mark.parametrize(
    "stored",
    [
        lambda: b"no compressed text",
        lambda: zlib.compress(TEXT)[:-5],
        lambda: zlib.compress(bytes(ended.MOST + 1)),
        lambda: zlib.compress(bytes(1 << 26)),
        lambda: zlib.compress(b"\xff\xfe"),
    ],
    ids=["malformed", "truncated", "large", "huge", "undecodable"],
)
def test_text_that_is_none_is_an_error(stored: Callable[[], bytes]) -> None:
    """Malformed, truncated, too large when unpacked, or no text."""
    with pytest.raises(ValueError, match=r"malformed|truncated|codec"):
        ended.Ended(1, 1.0, 2.0, stored()).text()


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """A pipe does not block, and a link is not followed."""
    os.mkfifo(tmp_path / "agent-0.ended")
    (tmp_path / "target").write_bytes(b"jaxmon 1 2.000 3.000\n")
    (tmp_path / "agent-1.ended").symlink_to(tmp_path / "target")
    found = ended.files(tmp_path)
    assert sorted(found) == ["0", "1"]
    assert [ended.read(path) for path in found.values()] == [None, None]


def test_what_does_not_fit_is_not_written(tmp_path: Path) -> None:
    """The file before stays, and nothing half-written."""
    path = tmp_path / "agent-0.ended"
    ended.write(path, ended.Ended(1, 1.0, 2.0, b"small"), 0o600)
    with pytest.raises(OSError, match="too large"):
        ended.write(path, ended.Ended(2, 1.0, 2.0, bytes(1 << 19)), 0o600)
    assert ended.read(path) == ended.Ended(1, 1.0, 2.0, b"small")
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_half_of_a_small_volume_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets need space in a volume of a megabyte: counts must not fill it."""
    path = tmp_path / "agent-0.ended"
    real = os.statvfs(tmp_path)
    blocks = (1 << 20) // real.f_frsize

    def small(_: object) -> os.statvfs_result:
        fields = list(real)
        fields[2], fields[4] = blocks, blocks // 2
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", small)
    with pytest.raises(OSError, match="No space left"):
        ended.write(path, ended.ended(1, monotonic(), TEXT), 0o600)
    assert list(tmp_path.iterdir()) == []
