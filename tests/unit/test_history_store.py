"""The file with the times of earlier runs: bounded, atomic, and never trusted."""

import json
import os
import stat
from pathlib import Path

import pytest

from jaxmon.agent.history import times as store
from jaxmon.agent.history.times import PastRun, ProgramTimes, commit_of
from jaxmon.facts.functions import Spread


TIMES = ProgramTimes(Spread(0, 0.01, 0.011, 0.013), "abc")


def run(jax: str = "1", written: float = 1.0, **programs: ProgramTimes) -> PastRun:
    """Return a run of one version of JAX."""
    return PastRun(
        written,
        {"jax": jax},
        0.125,
        {(name, "float32[8]"): times for name, times in programs.items()},
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the file of some command."""
    return store.path_of(tmp_path, ("python", "train.py"))


def test_what_is_added_is_read(path: Path) -> None:
    """The latest run comes first; nobody else may read the file."""
    assert store.read(path) == []
    store.add(path, run("1", f=TIMES))
    store.add(path, run("2", f=TIMES, g=TIMES))
    assert store.read(path) == [run("2", f=TIMES, g=TIMES), run("1", f=TIMES)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_a_run_directory_that_was_removed_is_left_to_the_agent(tmp_path: Path) -> None:
    """It would be created with the permissions that the umask leaves."""
    gone = tmp_path / "gone"
    with pytest.raises(FileNotFoundError):
        store.add(store.path_of(gone, ()), run(f=TIMES))
    assert not gone.exists()


def test_runs_of_one_version_share_an_entry(path: Path) -> None:
    """What another process measured stays, unless this one has measured it too."""
    newer = TIMES._replace(fingerprint="new")
    store.add(path, run(f=TIMES, g=TIMES))
    store.add(path, run(written=2.0, g=newer))
    assert store.read(path) == [run(written=2.0, f=TIMES, g=newer)]


def test_a_version_does_not_displace_the_one_before(path: Path) -> None:
    """However often the latest is written, and up to the number that is kept."""
    store.add(path, run("0", f=TIMES))
    for _ in range(20):
        store.add(path, run("1", f=TIMES))
    assert [one.versions["jax"] for one in store.read(path)] == ["1", "0"]
    for number in range(20):
        store.add(path, run(str(number), f=TIMES))
    versions = [one.versions["jax"] for one in store.read(path)]
    assert versions == [str(number) for number in range(19, 11, -1)]


def test_files_and_programs_are_bounded(tmp_path: Path) -> None:
    """The oldest files go; a file keeps the programs measured last."""
    paths = [store.path_of(tmp_path, ("c", str(number))) for number in range(70)]
    for age, path in enumerate(paths):
        store.add(path, run(f=TIMES))
        os.utime(path, (age, age))
    assert sorted(paths[0].parent.iterdir()) == sorted(paths[-64:])
    many = {(f"f{number}", "float32[8]"): TIMES for number in range(300)}
    store.add(paths[0], run()._replace(programs=many))
    (found,) = store.read(paths[0])
    assert len(found.programs) == 200
    assert ("f299", "float32[8]") in found.programs


def test_commands_and_users_have_their_own_files(tmp_path, monkeypatch):
    """Words are not run together, and two users cannot read each other's files."""
    words = [("a", "bc"), ("ab", "c"), ("a b", "c"), ("a\udc80",)]
    assert len({store.path_of(tmp_path, one) for one in words}) == len(words)
    before = store.path_of(tmp_path, ("a",))
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert store.path_of(tmp_path, ("a",)) != before


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": 1}',
        '{"schema": 1, "runs": [1]}',
        '{"schema": 1, "runs": {"a": 1}}',
        "schema",
        "versions",
        "programs",
        "waiting",
        "NaN",
    ],
)
def test_damaged_files_are_as_good_as_none(path: Path, damage: str) -> None:
    """They are not believed, raise nothing, and are replaced by the next run."""
    store.add(path, run(f=TIMES))
    document = json.loads(path.read_text())
    if damage in document["runs"][0]:
        document["runs"][0][damage] = [1, "x", {}]
        damage = json.dumps(document)
    elif damage == "NaN":
        damage = path.read_text().replace("0.011", "NaN")
    path.write_text(damage)
    assert store.read(path) == []
    store.add(path, run(f=TIMES))
    assert store.read(path) == [run(f=TIMES)]


def test_a_file_of_a_later_release_is_left_alone(path: Path) -> None:
    """What it knows would be lost: it has no times for us, and the error says why."""
    store.add(path, run(f=TIMES))
    later = path.read_text().replace('"schema": 1', '"schema": 2')
    path.write_text(later)
    assert store.read(path) == []
    with pytest.raises(OSError, match="schema is 2; this jaxmon reads up to 1"):
        store.add(path, run(f=TIMES))
    assert path.read_text() == later


def test_unusable_places_are_errors_of_the_system(tmp_path: Path) -> None:
    """A file where the directory should be is an `OSError`, which the agent expects."""
    (tmp_path / store.DIRECTORY).write_text("mine")
    path = store.path_of(tmp_path, ("a",))
    assert store.read(path) == []
    with pytest.raises(FileExistsError):
        store.add(path, run(f=TIMES))
    assert (tmp_path / store.DIRECTORY).read_text() == "mine"


COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize("kind", ["branch", "packed", "detached", "worktree", "none"])
def test_commit_is_read_without_git(tmp_path: Path, kind: str) -> None:
    """It is that of the branch, packed or not, of a worktree too; or it is unknown."""
    git = tmp_path / ".git"
    if kind != "none":
        (git / "refs/heads").mkdir(parents=True)
        (git / "HEAD").write_text("ref: refs/heads/main\n")
    if kind in ("branch", "worktree"):
        (git / "refs/heads/main").write_text(f"{COMMIT}\n")
    if kind == "packed":
        (git / "packed-refs").write_text(
            f"# pack\n{'f' * 40} x\n{COMMIT} refs/heads/main"
        )
    if kind == "detached":
        (git / "HEAD").write_text(COMMIT)
    place = tmp_path / "a" / "b"
    place.mkdir(parents=True)
    if kind == "worktree":
        own = git / "worktrees" / "a"
        own.mkdir(parents=True)
        (own / "HEAD").write_text("ref: refs/heads/main")
        (own / "commondir").write_text("../..\n")
        (tmp_path / "a" / ".git").write_text(f"gitdir: {own}\n")
    assert commit_of(place) == ("" if kind == "none" else COMMIT[:12])
