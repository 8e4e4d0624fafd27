"""Files named by users, read within bounds."""

import os
import socket
import threading
from pathlib import Path

import pytest

from jaxmon.errors import ConfigFileError
from jaxmon.host.files.bounded import MAX_BYTES, PIPE_SECONDS, read, read_text


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    """Also through a link, as secrets of Kubernetes are, and with a mark of UTF-8."""
    path = tmp_path / "real"
    path.write_bytes("\ufeffä: 1\n".encode())
    (tmp_path / "link").symlink_to(path)
    assert read_text(tmp_path / "link") == "ä: 1\n"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """It is an error at once, which says what was found."""
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
        for path, kind in (
            (tmp_path / "pipe", "a pipe"),
            (tmp_path / "socket", "a socket"),
            (tmp_path, "a directory"),
            (Path("/dev/zero"), "a device"),
            (Path("/dev/null"), "a device"),
        ):
            with pytest.raises(ConfigFileError) as caught:
                read_text(path)
            assert str(caught.value) == f"is {kind}, not a regular file"
            # Whoever follows causes gets to an end.
            assert caught.value.__cause__ is not caught.value


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """A missing one, a path that no file can have, and a link that leads to itself."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path, reason in (
        (tmp_path / "absent", "No such file or directory"),
        (Path("zero\0byte"), "not a valid file path"),
        (tmp_path / "loop", "Too many levels of symbolic links"),
    ):
        with pytest.raises(ConfigFileError) as caught:
            read_text(path)
        assert str(caught.value) == f"cannot be read: {reason}"
        assert isinstance(caught.value.__cause__, OSError | ValueError)


def test_size_is_limited(tmp_path: Path) -> None:
    """A byte more than the limit is not read, whatever the size says."""
    path = tmp_path / "large"
    path.write_bytes(b"#" * MAX_BYTES)
    assert len(read_text(path)) == MAX_BYTES
    path.write_bytes(b"#" * MAX_BYTES + b"#")
    with pytest.raises(ConfigFileError, match=r"too large \(limit 1 MiB\)"):
        read_text(path)
    with pytest.raises(ConfigFileError, match="too large"):
        read_text(Path("/proc/self/status"), most=8)


def test_it_must_be_utf_8(tmp_path: Path) -> None:
    """The error names the line."""
    path = tmp_path / "latin"
    path.write_bytes(b"a: 1\nb: \xe4\n")
    with pytest.raises(ConfigFileError, match=r"^line 2: not UTF-8$"):
        read_text(path)


def test_a_pipe_is_read_where_it_is_allowed(tmp_path: Path) -> None:
    """To its end, also when its writer comes late, or is gone already."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"x" * 200_000,))
    writer.start()
    assert read(path, pipe=True) == b"x" * 200_000
    writer.join()
    reading, writing = os.pipe()
    os.write(writing, b"gone")
    os.close(writing)
    assert read_text(Path(f"/dev/fd/{reading}"), pipe=True) == "gone"
    os.close(reading)


def test_a_pipe_has_a_deadline_and_a_size(tmp_path: Path) -> None:
    """One without a writer, and one that never ends."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    times = iter((0.0, PIPE_SECONDS - 0.01, PIPE_SECONDS))
    with pytest.raises(ConfigFileError, match="pipe that was not closed within 30 s"):
        read(path, pipe=True, clock=lambda: next(times))
    keeper = os.open(path, os.O_RDWR)
    os.write(keeper, b"x" * 9)
    with pytest.raises(ConfigFileError, match="too large"):
        read(path, most=8, pipe=True)
    os.close(keeper)
