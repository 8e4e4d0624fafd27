"""What the kernel knows of a process that does not respond."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from jaxmon.host import disclosure


STOPPED = "is stopped by a signal"
"""What is said of such a process."""

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in an uninterruptible wait (disk, network file system or driver)",
    "T": "stopped by a signal",
    "t": "stopped by a debugger",
    "Z": "ended, but not waited for",
}
# Linux: asm-generic/socket.h, since 6.5; linux/pidfd.h, since 6.15: mask, what else is
# known of the process, and its exit code.
_SO_PEERPIDFD = 77
_PIDFD_INFO = struct.Struct("=Q52xi")
_PIDFD_INFO_EXIT = 1 << 3
_PIDFD_GET_INFO = 0xC040FF0B
_MOST = 200
_LONGEST = 500


def listener(path: Path) -> int | None:
    """Return the number of the process that listens on the Unix socket *path*."""
    # Linux: unix(7), SO_PEERCRED of a connected socket is of the process that listens.
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None
    with contextlib.suppress(OSError), _connected(path, 1.0) as client:
        size = struct.calcsize("3i")
        credentials = client.getsockopt(socket.SOL_SOCKET, option, size)
        return struct.unpack("3i", credentials)[0] or None
    return None


def process_of(path: Path) -> int | None:
    """Return a descriptor, to be closed, of the process that listens on *path*."""
    with contextlib.suppress(OSError), _connected(path, 0.0) as client:
        return client.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    return None


@contextlib.contextmanager
def _connected(path: Path, seconds: float) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(seconds)
        client.connect(str(path))
        yield client


def exit_of(process: int) -> dict[str, int] | None:
    """Return the ``status`` or ``signal`` that ended the *process* of a descriptor."""
    info = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0))
    try:
        fcntl.ioctl(process, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, code = _PIDFD_INFO.unpack(info)
    # Only after its parent has waited for it.
    if not mask & _PIDFD_INFO_EXIT and not (code := _exit_of_zombie(process)):
        return None
    return {"signal": code & 0x7F} if code & 0x7F else {"status": code >> 8 & 0xFF}


def _exit_of_zombie(process: int) -> int:
    """Return the code of a process that its parent has not waited for, 0 if unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        about = Path(f"/proc/self/fdinfo/{process}").read_text()
        number = about.partition("\nPid:")[2].split()[0]
        state, *_, code = _stat(int(number))
        return int(code) if state == "Z" else 0
    return 0


def threads(pid: int) -> list[str]:
    """Return a line for each thread of *pid*: name, state, and what it waits for."""
    found = []
    tasks = Path(f"/proc/{pid}/task").glob("[0-9]*")
    for task in sorted(tasks, key=lambda task: int(task.name))[:_MOST]:
        with contextlib.suppress(OSError):
            found.append(_line(task))
    return found


def words(pid: int) -> list[str]:
    """Return the command line of process *pid*, empty if it is gone or not visible."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        return text.removesuffix("\0").split("\0")
    return []


def program(pid: int) -> str:
    """Return the command line of process *pid* as it may be shown."""
    return disclosure.command(words(pid))[:_LONGEST]


def is_stopped(pid: int) -> bool:
    """Return whether process *pid* is stopped by a signal or a debugger."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return _stat(pid)[0] in "Tt"
    return False


def _stat(pid: int) -> list[str]:
    """Return what the kernel has of a process behind its name."""
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return stat.rpartition(")")[2].split()


def _line(task: Path) -> str:
    head, _, rest = (task / "stat").read_text(errors="replace").rpartition(")")
    name, state = head.partition("(")[2], rest[1]
    waits = ""
    with contextlib.suppress(OSError):
        waits = (task / "wchan").read_text(errors="replace").strip("\0\n ")
    place = f", in {waits}" if waits not in {"", "0"} else ""
    return f"{task.name} {name}: {_STATES.get(state, state)}{place}"
