"""
What programs took in earlier runs, in a file of the run directory.

One file per command of a user. It keeps one run of each version (JAX, flags, driver,
commit), the latest first, so that a slow version does not displace what the one before
took. The commit is read from the checkout, without running git. Processes of one
version share an entry: each replaces the file as a whole, and what two write at the
same moment is that of one of them.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path
from typing import Any, NamedTuple

from jaxmon.errors import ConfigFileError
from jaxmon.facts.spread import Distribution
from jaxmon.files import bounded, whole
from jaxmon.formats import json_text, schema


SCHEMA = 1
DIRECTORY = "history"

_MOST_BYTES = 1 << 20
_MOST_FILES = 64
_MOST_RUNS = 8
_MOST_PROGRAMS = 200
_DIGITS = 5

# Of a checkout.
_DEEPEST = 16
_COMMIT_DIGITS = 12


class ProgramTimes(NamedTuple):
    """
    What one program took in one run.

    Attributes:
        seconds: quantiles of its execution time.
        fingerprint: of its HLO, if known.
    """

    seconds: Distribution
    fingerprint: str | None = None


class PastRun(NamedTuple):
    """
    Attributes:
        written: Unix time of the last addition.
        versions: what its speed depends on; see `jaxmon.agent.versions`.
        waiting: fraction of the time its threads waited for processors, if known.
        programs: by function and shapes of the arguments.
    """

    written: float
    versions: Mapping[str, str]
    waiting: float | None
    programs: Mapping[tuple[str, str], ProgramTimes]


def path_of(directory: Path, command: Sequence[str]) -> Path:
    """Return the file for *command* of this user in the run directory *directory*."""
    words = "\0".join((str(os.getuid()), *command))
    digest = blake2s(words.encode("utf-8", "backslashreplace"), digest_size=8)
    return directory / DIRECTORY / f"{digest.hexdigest()}.json"


def read(path: Path) -> list[PastRun]:
    """Return the runs in the file *path*, the latest first; none if it is unusable."""
    with suppress(schema.NewerSchemaError):
        return _runs(path)
    return []


def _runs(path: Path) -> list[PastRun]:
    """
    Return the runs as `read`.

    Raises:
        NewerSchemaError: a later release has written the file.
    """
    try:
        document = json_text.parse(bounded.read(path, most=_MOST_BYTES))
        schema.require(document, SCHEMA)
        return [_run(one) for one in document["runs"]]
    except schema.NewerSchemaError:
        raise
    except (
        AttributeError,
        ConfigFileError,
        LookupError,
        TypeError,
        ValueError,
        OverflowError,
    ):
        return []


def add(path: Path, run: PastRun) -> None:
    """
    Add *run* to the file *path*: to the entry of its version, if there is one.

    Raises:
        OSError: it cannot be written, or a later release has.
    """
    try:
        runs = _runs(path)
    except schema.NewerSchemaError as error:
        raise OSError(errno.EEXIST, str(error), str(path)) from error
    same = [one for one in runs if one.versions == run.versions]
    programs = dict(run.programs)
    for one in same:
        programs = {**one.programs, **programs}
    newest = list(programs.items())[-_MOST_PROGRAMS:]
    others = [one for one in runs if one.versions != run.versions]
    kept = [run._replace(programs=dict(newest)), *others][:_MOST_RUNS]
    document = {"schema": SCHEMA, "runs": [_as_json(one) for one in kept]}
    # Not its parents: a run directory that was removed is created for this user only.
    path.parent.mkdir(mode=0o700, exist_ok=True)
    directory = path.parent.lstat()
    if not stat.S_ISDIR(directory.st_mode) or directory.st_uid != os.geteuid():
        raise OSError(errno.EPERM, "not a directory of this user's", str(path.parent))
    if not path.exists():
        _make_room(path.parent)
    whole.write(path, json.dumps(document).encode(), private=True, follow=False)


def _make_room(directory: Path) -> None:
    """Remove the oldest files beyond the limit."""
    found = []
    for path in directory.glob("*.json"):
        with suppress(OSError):  # removed by another process
            found.append((path.stat().st_mtime, path))
    for _, path in sorted(found, reverse=True)[_MOST_FILES - 1 :]:
        with suppress(OSError):
            path.unlink()


def _as_json(run: PastRun) -> dict[str, Any]:
    return {
        "written": round(run.written, 1),
        "versions": dict(run.versions),
        "waiting": run.waiting,
        "programs": [
            [name, shapes, times.fingerprint]
            + [float(f"{one:.{_DIGITS}g}") for one in times.seconds]
            for (name, shapes), times in run.programs.items()
        ],
    }


def _run(found: Mapping[str, Any]) -> PastRun:
    waiting = found["waiting"]
    return PastRun(
        float(found["written"]),
        {str(key): str(value) for key, value in found["versions"].items()},
        None if waiting is None else float(waiting),
        {
            (str(name), str(shapes)): ProgramTimes(
                Distribution(float(low), float(middle), float(high)),
                None if fingerprint is None else str(fingerprint),
            )
            for name, shapes, fingerprint, low, middle, high in found["programs"]
        },
    )


def commit_of(directory: Path) -> str:
    """
    Return the commit that is checked out in *directory* or a directory above it, empty
    if unknown. Uncommitted changes are not seen. Reads a few small files.
    """
    for place in (directory, *directory.parents)[:_DEEPEST]:
        git = place / ".git"
        if git.is_file():  # a worktree or a submodule
            git = place / _start_of(git).removeprefix("gitdir:").strip()
        if git.is_dir():
            return _head(git)
    return ""


def _head(git: Path) -> str:
    head = _start_of(git / "HEAD")
    if not head.startswith("ref:"):
        return _shortened(head)
    name = head.removeprefix("ref:").strip()
    common = git / (_start_of(git / "commondir") or ".")
    for found in (git, common):
        if commit := _shortened(_start_of(found / name)):
            return commit
    for line in _start_of(common / "packed-refs").splitlines():
        commit, _, packed = line.partition(" ")
        if packed == name:
            return _shortened(commit)
    return ""


def _shortened(commit: str) -> str:
    is_hex = commit and not commit.strip("0123456789abcdef")
    return commit[:_COMMIT_DIGITS] if is_hex else ""


def _start_of(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_MOST_BYTES).strip()
    except OSError:
        return ""
