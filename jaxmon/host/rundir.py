"""
The run directory: Unix sockets of agents, one slot each.

A slot is the lowest free number, held by a lock on ``agent-N.lock`` for as long as the
process lives; the kernel releases it however the process exits. So a restarted worker
gets its predecessor's number, and the ``worker`` label stays bounded. What is known of
a slot's processes, and what they counted, outlives them in ``agent-N.end``
(`jaxmon.facts.endings`).

Temporary-file cleaners remove locks, sockets and the directory while agents run; the
agents recreate them (`Slot.in_place`). So a path proves nothing: files are unlinked
only by the holder of the slot's lock, and a responding socket only by its owner.
"""

from __future__ import annotations

import _socket
import contextlib
import errno
import os
import re
import stat
from collections.abc import Mapping
from itertools import chain
from pathlib import Path

from jaxmon import interrupts
from jaxmon.errors import JaxmonError
from jaxmon.host.files.descriptor import NONE_LEFT, FileLock, identity


MAX_SLOTS = 1024
_SOCKET_NAME = r"agent-([0-9]{1,4})\.sock"
# A directory like this is shared with its group on purpose: so Kubernetes leaves a
# volume with an fsGroup. Its files get its group.
_SHARED = stat.S_ISGID | stat.S_IRWXG
# Linux gives sockaddr_un 108 bytes, the terminating zero included, and a socket has a
# name that is one longer until it listens.
_MAX_SOCKET_PATH = 106
# What file systems say that have none, as some network file systems.
_NO_SOCKETS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS)


class RunDirError(JaxmonError):
    """The run directory is unusable; the agent then serves TCP only."""


def locate(
    explicit: str | None = None, environ: Mapping[str, str] | None = None
) -> Path:
    """
    Return the run directory, which is not created: *explicit*, ``$JAXMON_RUN_DIR``,
    ``$XDG_RUNTIME_DIR/jaxmon``, or this user's under the temporary directory.
    """
    environ = os.environ if environ is None else environ
    if chosen := explicit or environ.get("JAXMON_RUN_DIR"):
        return Path(chosen)
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "jaxmon"
    return _temporary() / f"jaxmon-{os.getuid()}"


def sockets(directory: Path) -> dict[str, Path]:
    """
    Return the agent sockets in *directory* by worker, also of killed processes. Raises
    `OSError`: the directory exists and cannot be read.
    """
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names only, no stat
    except FileNotFoundError:
        return {}
    matches = filter(None, (re.fullmatch(_SOCKET_NAME, name) for name in names))
    found = {int(match[1]): directory / match[0] for match in matches}
    return {str(slot): found[slot] for slot in sorted(found)}


def listening(uid: int, *, table: Path = Path("/proc/net/unix")) -> dict[Path, int]:
    """
    Return the run directories of the user *uid* in which agents listen, wherever they
    are, and on how many sockets; none where the kernel does not list them.
    """
    found: dict[Path, set[str]] = {}
    with contextlib.suppress(OSError):
        # Number, references, protocol, flags (here: listens), type, state, inode, and
        # the path at first: a socket is hidden until it listens.
        text = table.read_text(errors="replace")
        for path, slot in re.findall(
            rf"(?m) 00010000 .* (/.*)/\.?{_SOCKET_NAME}$", text
        ):
            found.setdefault(Path(path), set()).add(slot)
    listened = {}
    for directory, slots in sorted(found.items()):
        with contextlib.suppress(OSError):  # removed, or of another container
            if directory.stat().st_uid == uid:
                listened[directory] = len(slots)
    return listened


def is_private(directory: Path) -> bool:
    """Return whether *directory* is this user's, no link, and closed to all others."""
    with contextlib.suppress(OSError):
        status = directory.lstat()
        is_open = status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()
        return is_own and not is_open
    return False


def of_others(uid: int) -> dict[Path, int | None]:
    """
    Return the run directories of users other than *uid* where this module puts them,
    and how many sockets are there, `None` if that cannot be seen. Links are skipped.
    """
    found: dict[Path, int | None] = {}
    theirs = _temporary().glob("jaxmon-[0-9]*"), Path("/run/user").glob("*/jaxmon")
    for directory in chain(*theirs):
        with contextlib.suppress(OSError):
            status = directory.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid != uid:
                try:
                    found[directory] = len(sockets(directory))
                except PermissionError:
                    found[directory] = None
    return {path: count for path, count in sorted(found.items()) if count != 0}


class Slot:
    """
    A slot of a run directory; its files have permissions *mode*. Release it to unlink
    them; a killed process leaves them to the next holder.
    """

    def __init__(self, number: int, socket: Path, mode: int) -> None:
        self.number = number
        self.socket = socket
        self.mode = mode
        self._lock_path = socket.with_suffix(".lock")
        self._lock = FileLock(self._lock_path, mode)
        self._bound: tuple[int, int] | None = None

    def hold(self) -> bool:
        """
        Acquire the slot; return whether it was free. Raises `FileNotFoundError` without
        its directory; `RunDirError`: no file can be created there.
        """
        try:
            return self._lock.take()
        except FileNotFoundError:
            raise
        except OSError as error:
            interrupts.pass_on(error)
            problem = f"cannot create {self._lock_path}: {error.strerror}"
            raise _unusable(problem) from error

    def bound(self) -> None:
        """Record the socket that is now at the slot's path as its own."""
        self._bound = identity(self.socket)

    def in_place(self) -> bool:
        """Return whether socket and lock at their paths are this slot's; 5 µs."""
        return self._has_socket() and self._lock.in_place()

    @property
    def is_taken(self) -> bool:
        """Whether another process's socket is at its path."""
        return identity(self.socket) not in (None, self._bound)

    @property
    def is_lost(self) -> bool:
        """Whether the program has closed the descriptor of the lock."""
        return self._lock.is_lost

    def keep(self) -> bool:
        """Reacquire a lost lock, unless another did; return whether we have it."""
        try:
            if self._lock.in_place():
                return True
            self._lock.abandon()
            return self._lock.take()
        except OSError as error:
            interrupts.pass_on(error)
            return False

    def withdraw(self) -> None:
        """Unlink the socket but keep the slot; idempotent."""
        try:
            if self._lock.in_place() and self._has_socket():
                self.socket.unlink()
        except OSError as error:
            interrupts.pass_on(error)

    def release(self) -> None:
        """
        Unlink socket and lock and release the slot; idempotent. Call it while the
        socket still listens: others then know that it is owned, and find no dead one.
        """
        if self._lock.held:
            self.keep()
            self.withdraw()
            self._lock.release()

    def abandon(self) -> None:
        """Drop a parent's lock, in a forked child, without touching any file."""
        self._lock.abandon()

    def _has_socket(self) -> bool:
        # Its inode is not reused while the socket is open.
        return self._bound is not None and identity(self.socket) == self._bound


def acquire(directory: Path, *, first: int | None = None) -> Slot:
    """
    Return the slot *first*, or else the lowest free one in *directory*, which is
    created. One whose socket accepts connections, or whose files cannot be locked or
    unlinked, is not free. Raises `RunDirError`, with the reason.
    """
    # The program may change its directory before the files are unlinked.
    directory = directory.absolute()
    mode = prepare(directory)
    try:
        return _lowest(directory, mode, first)
    except FileNotFoundError as error:
        problem = f"run directory {directory} was removed meanwhile"
        raise _unusable(problem, "another directory") from error


def no_socket(path: Path, error: OSError) -> RunDirError:
    """Return why there is no socket *path* where files can be created: *error*."""
    problem, other = error.strerror, "another"
    if error.errno in _NO_SOCKETS:
        problem, other = "its file system has no Unix sockets", "a local"
    return _unusable(f"cannot create {path}: {problem}", f"{other} directory")


def _unusable(problem: str, directory: str = "a writable directory") -> RunDirError:
    return RunDirError(f"{problem}; set JAXMON_RUN_DIR to {directory}")


def is_link(path: Path) -> bool:
    """Return whether *path* is a link: no agent creates one, and none is followed."""
    try:
        return stat.S_ISLNK(path.lstat().st_mode)
    except OSError:
        return False


def _lowest(directory: Path, mode: int, first: int | None) -> Slot:
    for number in (*(() if first is None else (first,)), *range(MAX_SLOTS)):
        path = _socket_path(directory, number)
        slot = Slot(number, path, mode)
        try:
            if slot.hold() and _clear(path):
                return slot
        except BaseException:  # the program's: nothing is left behind
            slot.release()
            raise
        slot.release()
    msg = f"all {MAX_SLOTS} slots in {directory} are in use; use another JAXMON_RUN_DIR"
    raise RunDirError(msg)


def _socket_path(directory: Path, number: int) -> Path:
    path = directory / f"agent-{number}.sock"
    if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
        problem = f"socket path {path} is longer than {_MAX_SOCKET_PATH} bytes"
        raise _unusable(problem, "a shorter directory")
    return path


def _clear(path: Path) -> bool:
    """Unlink a dead socket; `False` if it accepts connections or cannot be unlinked."""
    try:
        if _answers(path):
            return False
        path.unlink(missing_ok=True)
    except OSError as error:  # a directory, another user's
        interrupts.pass_on(error)
        if error.errno in NONE_LEFT:
            raise  # no descriptor to ask with: no other slot is better
        return False
    return True


def _answers(path: Path) -> bool:
    if is_link(path):
        return False
    with contextlib.closing(_socket.socket(_socket.AF_UNIX)) as probe:
        probe.settimeout(0)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # a queue that is full, another user's, another kind
            return True
    return True


def prepare(directory: Path) -> int:
    """
    Create *directory* for this user; return the permissions of files. Raises
    `RunDirError`.
    """
    _socket_path(directory, 0)
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not followed when it is a link: under a shared temporary directory another
        # user may have created it.
        status, mode = directory.lstat(), directory.stat().st_mode
    except OSError as error:
        problem = f"run directory {directory}: {error.strerror}"
        raise _unusable(problem) from error
    if directory.parent == _temporary():
        problem = ""
        if stat.S_ISLNK(status.st_mode):
            problem = "is a symbolic link, which anyone could have created"
        elif status.st_uid != os.getuid():
            problem = f"belongs to uid {status.st_uid}, not to {os.getuid()}"
        if problem:
            problem = f"run directory {directory} {problem}"
            raise _unusable(problem, "a directory of your own")
    # For the group, too, if the directory is set-group-ID and open to it.
    return 0o660 if mode & _SHARED == _SHARED else 0o600


def _temporary() -> Path:
    import tempfile  # noqa: PLC0415 - with all that it loads, and few need it

    try:
        return Path(tempfile.gettempdir())
    except OSError:  # none can be written, as on a read-only root
        return Path("/tmp")  # noqa: S108 - who made the directory is checked
