"""Files that are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from jaxmon.host.files import whole as whole_file
from tests.helpers.processes import run_python


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written(tmp_path):
    """The file has its content and stands alone; the umask decides who reads it."""
    path = tmp_path / "file"
    whole_file.write(path, b"one")
    assert path.read_bytes() == b"one"
    umask = os.umask(0)
    os.umask(umask)
    assert mode(path) == 0o666 & ~umask
    path.chmod(0o640)
    whole_file.write(path, b"two")
    assert (path.read_bytes(), mode(path)) == (b"two", 0o640)
    whole_file.write(path, b"three", private=True)
    assert mode(path) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_what_is_not_replaced(tmp_path):
    """Where a file must be new, one that is there stays."""
    path = tmp_path / "file"
    path.write_bytes(b"one")
    with pytest.raises(FileExistsError):
        whole_file.write(path, b"two", replace=False)
    assert path.read_bytes() == b"one"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_only_files_are_replaced(tmp_path):
    """A device, a pipe and a directory stay what they are, also behind a link."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    (tmp_path / "directory").mkdir()
    before = sorted(tmp_path.iterdir())
    for name, kind in (
        ("pipe", "a pipe"),
        ("link", "a pipe"),
        ("directory", "a directory"),
    ):
        with pytest.raises(OSError, match=f"it is {kind}; give a file"):
            whole_file.write(tmp_path / name, b"one")
    assert sorted(tmp_path.iterdir()) == before
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_link_stays_one(tmp_path):
    """What it points to is written."""
    (tmp_path / "link").symlink_to("file")
    whole_file.write(tmp_path / "link", b"one")
    whole_file.write(tmp_path / "link", b"two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"two"


FULL = """
import resource, signal, sys
from pathlib import Path
from jaxmon.host.files import whole as whole_file

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.dont_write_bytecode = True  # Python would keep half of it
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for replace in (True, False):
    try:
        path = Path(sys.argv[1], "file" if replace else "other")
        whole_file.write(path, b"x" * 5000, replace=replace)
    except OSError as error:
        assert error.filename == str(path), error.filename
        print("refused")
"""


def test_a_disk_that_is_full(tmp_path):
    """What was there before stays, and nothing of the new file."""
    (tmp_path / "file").write_bytes(b"one")
    done = run_python("-c", FULL, str(tmp_path)).ok()
    assert done.out == "refused\nrefused\n"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"one"


def test_an_error_names_the_file(tmp_path):
    """Not the temporary one beside it."""
    path = tmp_path / "none" / "file"
    with pytest.raises(FileNotFoundError) as raised:
        whole_file.write(path, b"")
    assert raised.value.filename == str(path)


def test_a_long_name(tmp_path):
    """A name that is as long as can be has room for no more."""
    path = tmp_path / ("x" * 255)
    whole_file.write(path, b"one")
    assert path.read_bytes() == b"one"
