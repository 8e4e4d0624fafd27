"""
Where agents and sidecar meet: a directory of Unix sockets, one slot per agent.

A slot is the lowest free number, held by a lock on ``agent-N.lock`` for as long
as the process lives; the kernel lets go of it however the process ends. So a
restarted worker gets its predecessor's number, and the ``worker`` label stays
bounded.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from jaxmon.errors import JaxmonError


MAX_SLOTS = 1024
_SOCKET_NAME = re.compile(r"agent-(\d{1,4})\.sock")
# A directory like this is shared with its group on purpose: so Kubernetes leaves a
# volume with an fsGroup. Its files get its group.
_SHARED = stat.S_ISGID | stat.S_IRWXG
# Linux gives sockaddr_un 108 bytes, the terminating zero included.
_MAX_SOCKET_PATH = 107


class RunDirError(JaxmonError):
    """
    The run directory cannot be used; the agent then serves TCP only.
    """


def locate(
    explicit: str | None = None, environ: Mapping[str, str] | None = None
) -> Path:
    """
    Return the run directory; nothing is created.

    It is *explicit*, else ``$JAXMON_RUN_DIR``, else ``$XDG_RUNTIME_DIR/jaxmon``,
    else a directory of this user under the temporary directory.
    """
    environ = os.environ if environ is None else environ
    if chosen := explicit or environ.get("JAXMON_RUN_DIR"):
        return Path(chosen)
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        return Path(runtime) / "jaxmon"
    return _temporary() / f"jaxmon-{os.getuid()}"


def sockets(directory: Path) -> dict[str, Path]:
    """
    Return the agent sockets in *directory* by worker (``"0"``, ``"1"``, …).

    A socket that nobody listens on may be among them: its process was killed.

    Raises:
        OSError: the directory exists and cannot be read.
    """
    found: dict[int, Path] = {}
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names only, no stat
    except FileNotFoundError:
        return {}
    for name in names:
        if match := _SOCKET_NAME.fullmatch(name):
            found[int(match[1])] = directory / name
    return {str(slot): found[slot] for slot in sorted(found)}


class Slot:
    """
    A held slot. Release it to unlink its files; a killed process leaves them,
    and the next holder of the slot replaces them.

    Its socket is to have the permissions *mode*.
    """

    def __init__(
        self, number: int, socket: Path, lock: Path, fd: int, mode: int
    ) -> None:
        self.number = number
        self.socket = socket
        self.mode = mode
        self._lock = lock
        self._fd: int | None = fd

    def release(self) -> None:
        """
        Unlink socket and lock and let the slot go. Safe to call twice.
        """
        if self._fd is None:
            return
        for path in (self.socket, self._lock):
            with contextlib.suppress(OSError):
                path.unlink()
        self.abandon()

    def abandon(self) -> None:
        """
        Close this process's hold on the lock and touch no file.

        For a forked child: the lock belongs to the open file, which the parent
        still holds.
        """
        fd, self._fd = self._fd, None
        if fd is not None:
            with contextlib.suppress(OSError):
                os.close(fd)


def acquire(directory: Path) -> Slot:
    """
    Return the lowest free slot in *directory*, which is created when missing.

    Raises:
        RunDirError: the directory cannot be used, with the reason.
    """
    # The program may change its directory before the files are unlinked.
    directory = directory.absolute()
    mode = _prepare(directory)
    for number in range(MAX_SLOTS):
        path = directory / f"agent-{number}.sock"
        if len(os.fsencode(path)) > _MAX_SOCKET_PATH:
            msg = (
                f"socket path {path} is longer than {_MAX_SOCKET_PATH} bytes; "
                "set JAXMON_RUN_DIR to a shorter directory"
            )
            raise RunDirError(msg)
        lock = path.with_suffix(".lock")
        if (fd := _hold(lock, mode)) is not None:
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                os.close(fd)
                msg = f"cannot replace {path}: {error.strerror}; remove it"
                raise RunDirError(msg) from error
            return Slot(number, path, lock, fd, mode)
    msg = f"all {MAX_SLOTS} slots in {directory} are taken; set another JAXMON_RUN_DIR"
    raise RunDirError(msg)


def _hold(lock: Path, mode: int) -> int | None:
    """
    Return a descriptor that holds *lock*, `None` when another process does.
    """
    while True:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(lock, flags, mode)
        except OSError as error:
            msg = (
                f"cannot create {lock}: {error.strerror}; set JAXMON_RUN_DIR to a "
                "directory that can be written"
            )
            raise RunDirError(msg) from error
        try:
            # Against the umask, so that others of the group can take the slot over;
            # not ours to change where another user left it.
            with contextlib.suppress(PermissionError):
                os.fchmod(fd, mode)
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A releasing holder may have unlinked the file between open and
            # flock; a lock on an unlinked file would hold nothing.
            if os.fstat(fd).st_ino == lock.stat().st_ino:
                return fd
        except FileNotFoundError:
            pass
        except OSError:
            os.close(fd)
            return None
        os.close(fd)


def _prepare(directory: Path) -> int:
    """
    Create *directory* for this user only, refuse one that others control, and return
    the permissions of files in it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Not followed when it is a link: under a shared temporary directory
        # somebody else may have made it.
        status = directory.lstat()
        mode = _file_mode(directory)
    except OSError as error:
        msg = (
            f"run directory {directory}: {error.strerror}; set JAXMON_RUN_DIR to a "
            "directory that can be written"
        )
        raise RunDirError(msg) from error
    shared = directory.parent == _temporary()
    if shared and stat.S_ISLNK(status.st_mode):
        msg = (
            f"run directory {directory} is a link, which anybody may have made; "
            "set JAXMON_RUN_DIR to a directory of your own"
        )
        raise RunDirError(msg)
    if shared and status.st_uid != os.getuid():
        msg = (
            f"run directory {directory} belongs to uid {status.st_uid}, not to "
            f"{os.getuid()}; set JAXMON_RUN_DIR to a directory of your own"
        )
        raise RunDirError(msg)
    return mode


def _file_mode(directory: Path) -> int:
    """
    Return the permissions of files in *directory*: for this user alone, or also for
    the group of a directory that is set-group-ID and open to that group.

    Raises:
        OSError: there is no such directory.
    """
    shared = directory.stat().st_mode & _SHARED == _SHARED
    return 0o660 if shared else 0o600


def _temporary() -> Path:
    import tempfile  # noqa: PLC0415 - with all that it loads, and few need it

    try:
        return Path(tempfile.gettempdir())
    except OSError:  # none can be written, as on a read-only root
        return Path("/tmp")  # noqa: S108 - whoever makes a directory there is told
