"""What a process counted, in the file of its slot."""

import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxmon.agent.end_writer import EndWriter
from jaxmon.clocks import monotonic
from jaxmon.facts import endings
from jaxmon.facts.ending import CRASHED, FINISHED, ProcessEnd


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the first slot's record."""
    return tmp_path / "agent-0.end"


def begin(path: Path) -> None:
    """Have a process in the slot of *path* that is killed."""
    one = EndWriter(path, 0o600)
    one.begin()
    one.abandon()


TEXT = b"jaxmon_steps_total 3\n"


def counted(path: Path, text: bytes = TEXT) -> ProcessEnd:
    """Have one process in the slot of *path* that leaves *text*; return its record."""
    one = EndWriter(path, 0o660)
    one.begin()
    one.keep(monotonic() - 5, text)
    one.end(FINISHED)
    one.abandon()
    return endings.slots(path.parent)["0"].latest


def test_counts_that_are_left_are_read_and_continued(path: Path) -> None:
    """By a process that follows one that finished; of the others, they are removed."""
    first = counted(path)
    assert endings.counts(path, first) == TEXT.decode()
    assert first.counted_until - first.counted_since == pytest.approx(5, abs=1)
    age = endings.counted_age(first)
    assert age is not None
    assert 0 <= age < 60
    two = EndWriter(path, 0o600)
    two.begin()
    slot = endings.slots(path.parent)["0"]
    assert slot.counted == slot.before == first
    assert endings.unpacked(two.continued or b"") == TEXT.decode()
    path.unlink()  # by a cleaner, and the process restores them
    mine = two.record
    two.abandon()
    two.begin(mine)
    assert endings.slots(path.parent)["0"].counted == first
    assert endings.counts(path, first) == TEXT.decode()
    two.end(CRASHED)
    two.abandon()
    begin(path)
    assert endings.slots(path.parent)["0"].counted is None
    assert endings.counts(path, first) is None
    three = EndWriter(path, 0o600)
    three.begin()
    three.keep(monotonic() - 5, TEXT)
    three.end(CRASHED)
    three.abandon()
    assert endings.slots(path.parent)["0"].counted
    begin(path)
    assert endings.slots(path.parent)["0"].counted is None
    assert path.stat().st_size <= 8192


PROGRAM = ("python", "-X", "dev", "-m", "train", "--lr", "1e-3")


@pytest.mark.parametrize(
    ("command", "continues"),
    [
        (("python3", "-m", "train", "--lr", "3e-4"), True),
        (("python", "-m", "serve", "--lr", "1e-3"), False),
        (("python", "train", "--lr", "1e-3"), False),
        (("python", "-c", "import train"), False),
        (("python",), False),
    ],
)
def test_only_the_same_program_continues_counts(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    continues: bool,  # noqa: FBT001 - a case
) -> None:
    """Whatever its arguments; what another one counted is not about this one."""
    monkeypatch.setattr(sys, "orig_argv", PROGRAM)
    first = counted(path)
    monkeypatch.setattr(sys, "orig_argv", command)
    two = EndWriter(path, 0o600)
    two.begin()
    two.abandon()
    slot = endings.slots(path.parent)["0"]
    assert slot.latest.starts == 2
    assert (slot.counted == first) is continues
    assert bool(two.continued) is continues
    assert (endings.counts(path, first) is not None) is continues


def test_a_script_is_its_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is named: two of one name in two directories are two programs."""
    continued = []
    for script in ("serve.py", "./serve.py", "other/serve.py"):
        monkeypatch.setattr(sys, "orig_argv", ["python", script])
        one = EndWriter(path, 0o600)
        one.begin()
        continued.append(bool(one.continued))
        one.keep(monotonic() - 5, TEXT)
        one.end(FINISHED)
        one.abandon()
    assert continued == [False, True, False]


@pytest.mark.parametrize("shift", [-endings.KEPT - 1, 3600.0])
def test_counts_are_void_after_a_while(shift: float) -> None:
    """Those of long ago, and those of a clock that began anew."""
    now = monotonic()
    of = ProcessEnd(
        counted_since=now - 10_000, counted_until=now + shift, counted_bytes=3
    )
    assert endings.counted_age(of) is None


@pytest.mark.parametrize(
    "stored",
    [
        lambda: b"no compressed text",
        lambda: zlib.compress(TEXT)[:-5],
        lambda: zlib.compress(bytes(endings.MOST + 1)),
        lambda: zlib.compress(bytes(1 << 26)),
        lambda: zlib.compress(b"\xff\xfe"),
    ],
    ids=["malformed", "truncated", "large", "huge", "undecodable"],
)
def test_text_that_is_none_is_an_error(stored: Callable[[], bytes]) -> None:
    """Malformed, truncated, too large when unpacked, or no text."""
    with pytest.raises(ValueError, match=r"malformed|truncated|codec"):
        endings.unpacked(stored())


def test_what_does_not_fit_is_not_written(path: Path) -> None:
    """There are no counts then, and the record stays; nor are others' read as ours."""
    one = EndWriter(path, 0o600)
    one.begin()
    with pytest.raises(OSError, match="too large"):
        one.keep(monotonic(), os.urandom(1 << 19))
    one.abandon()
    assert endings.slots(path.parent)["0"].counted is None
    second = counted(path)
    assert endings.counts(path, second.replace(starts=1)) is None
    assert endings.counts(path, second.replace(counted_bytes=1 << 30)) is None


def test_half_of_a_small_volume_stays_free(path, monkeypatch):
    """Sockets need space in a volume of a megabyte: counts must not fill it."""
    real = os.statvfs(path.parent)
    blocks = (1 << 20) // real.f_frsize

    def small(_: object) -> os.statvfs_result:
        fields = list(real)
        fields[2], fields[4] = blocks, blocks // 2
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", small)
    one = EndWriter(path, 0o600)
    one.begin()
    with pytest.raises(OSError, match="No space left"):
        one.keep(monotonic(), TEXT)
    one.abandon()
    assert endings.slots(path.parent)["0"].counted is None
