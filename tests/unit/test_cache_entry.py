"""An entry contains the path under which it was created, or nothing."""

import zlib
from pathlib import Path

import pytest

from jaxmon.agent.cache import directory
from jaxmon.agent.cache.directory import creation_directory


OPTIONS = b"\xb2\x136/mnt/cache/xla_gpu_per_fusion_autotune_cache_dir\xb8\x13"


def entry(directory: Path, content: bytes) -> Path:
    path = directory / "jit_f-0-cache"
    path.write_bytes(zlib.compress(content))
    return path


@pytest.mark.parametrize(
    ("content", "path"),
    [
        (b"\x00\x01" + OPTIONS, "/mnt/cache"),
        (b"\x07/a b/xla_gpu_kernel_cache_file", "/a b"),
        (b"nothing of the kind", None),
        (b"", None),
    ],
)
def test_the_path_is_found_among_the_options(tmp_path, content, path):
    """Whatever stands around it."""
    assert creation_directory(entry(tmp_path, content), zlib.decompress) == path


def test_what_cannot_be_read_tells_nothing(tmp_path, monkeypatch):
    """Corrupt, gone, or too large to take into memory."""
    file = entry(tmp_path, OPTIONS)
    monkeypatch.setattr(directory, "_MOST_BYTES", 3)
    assert creation_directory(file, zlib.decompress) is None
    monkeypatch.undo()
    file.write_bytes(b"corrupt")

    assert creation_directory(file, zlib.decompress) is None
    assert creation_directory(tmp_path / "gone", zlib.decompress) is None
