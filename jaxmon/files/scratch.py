"""Temporary directories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from jaxmon.errors import JaxmonError


@contextmanager
def directory(prefix: str) -> Iterator[Path]:
    """
    Create a directory for the block, and remove it afterwards with its content.

    Args:
        prefix: start of its name.

    Raises:
        JaxmonError: it cannot be created.
    """
    try:
        # A process that was started may write there while we clean up.
        made = TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
    except OSError as error:
        msg = (
            f"cannot create a temporary directory: {error.strerror}; free some "
            "space, or set TMPDIR to a directory that can be written to"
        )
        raise JaxmonError(msg) from error
    with made as name:
        yield Path(name)
