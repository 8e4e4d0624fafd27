"""
Uncaught errors reported by the interpreter and asyncio.

| place | reports |
|---|---|
| `sys.excepthook` | exceptions that end the program |
| `sys.exit` | with which code, which Python does not report, and from where or why |
| `threading.excepthook` | exceptions that end a thread |
| `sys.unraisablehook` | exceptions of finalisers and of callbacks from C |
| the logger ``asyncio`` | exceptions of tasks and callbacks, never retrieved |

The hooks may be plain functions: they are called after the traceback was created.
asyncio offers one handler, which belongs to the program; the default one logs, which a
filter of the logger observes, including under uvloop.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any

from jaxmon.agent.errors.last_words import LastWords
from jaxmon.agent.jaxlink.hooks import Places


_ASYNCIO = "asyncio"


class UncaughtHooks:
    """
    Passes uncaught errors to *observe*, those that end the program to *words*, and
    those that end a thread to *gone*; then continues as before.
    """

    def __init__(
        self,
        observe: Callable[[BaseException | None], None],
        words: LastWords,
        gone: Callable[[threading.Thread | None, object], None],
    ) -> None:
        self._observe = observe
        self._words = words
        self._gone = gone

    def attach(self, at: Places) -> None:
        """Install the hooks; *at* restores them."""
        hook, thread_hook = sys.excepthook, threading.excepthook
        unraisable_hook = sys.unraisablehook
        observe, words, gone = self._observe, self._words, self._gone

        def excepthook(
            kind: type[BaseException], error: BaseException, tb: TracebackType | None
        ) -> None:
            words.on_uncaught(error)
            observe(error)
            hook(kind, error, tb)

        def thread_excepthook(args: threading.ExceptHookArgs) -> None:
            observe(args.exc_value)
            gone(args.thread, args.exc_value)
            thread_hook(args)

        def unraisablehook(unraisable: Any) -> None:
            observe(unraisable.exc_value)
            unraisable_hook(unraisable)

        _replace(at, sys, "excepthook", excepthook)
        at.replace(sys, "exit", words.exiting(sys.exit))
        _replace(at, threading, "excepthook", thread_excepthook)
        _replace(at, sys, "unraisablehook", unraisablehook)
        logging.getLogger(_ASYNCIO).addFilter(self._on_record)

    def detach(self) -> None:
        """Remove the filter from asyncio's logger. Idempotent."""
        logging.getLogger(_ASYNCIO).removeFilter(self._on_record)

    def _on_record(self, record: logging.LogRecord) -> bool:
        # A record created by hand may have anything here.
        found: object = record.exc_info
        if isinstance(found, tuple):
            self._observe(
                next(
                    iter([one for one in found if isinstance(one, BaseException)]), None
                )
            )
        return True


def _replace(at: Places, owner: ModuleType, name: str, ours: Any) -> None:
    """Replace the hook ``owner.name``; *ours* looks like it, and is pickled by name."""
    functools.update_wrapper(ours, getattr(owner, name))
    ours.__module__, ours.__qualname__ = owner.__name__, name
    ours.__annotations__ = {}
    at.replace(owner, name, ours)
