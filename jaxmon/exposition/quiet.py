"""
Silence of libraries that a server uses, in somebody else's program.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from threading import get_ident


@contextlib.contextmanager
def silent_asyncio() -> Iterator[None]:
    """
    Keep asyncio from logging "Using selector" in the user's process.
    """
    ours = get_ident()

    def is_theirs(record: logging.LogRecord) -> bool:
        return record.thread != ours

    logger = logging.getLogger("asyncio")
    logger.addFilter(is_theirs)
    try:
        yield
    finally:
        logger.removeFilter(is_theirs)
