"""
Starts jaxmon when the program imports JAX.

A program can still set ``XLA_FLAGS`` or ``JAX_PLATFORMS`` in its first lines, and one
that never imports JAX has no cost. Needs only the standard library.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeVar


if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import FunctionType, ModuleType

_Function = TypeVar("_Function", bound="Callable[..., Any]")

_JAX = "jax"
_IMPORT_MACHINERY = "<frozen importlib._bootstrap>"


def when_jax_is_imported(**settings: Any) -> Callable[[], None]:
    """
    Call `jaxmon.instrument` with *settings* once ``import jax`` has succeeded.

    If JAX is imported already, that is immediately. Startup failures are logged and
    contained; a failing import of JAX behaves as without jaxmon and may be retried.

    Returns:
        A function that cancels this, as long as JAX has not been imported.
    """
    finder = _JaxFinder(settings)
    if _JAX in sys.modules:
        _start(settings)
    else:
        sys.meta_path.insert(0, finder)
    return finder.leave


def in_forked_children(settings: str) -> None:
    """Start jaxmon, with *settings* in JSON, in children that use JAX, not here."""
    import json  # noqa: PLC0415 - few programs need it from here
    import os  # noqa: PLC0415 - likewise

    # Its own handler has to run before ours, which may start a thread.
    import threading  # noqa: F401, PLC0415

    arguments = json.loads(settings)
    os.register_at_fork(after_in_child=lambda: when_jax_is_imported(**arguments))


def _as_import_machinery(function: _Function) -> _Function:
    """
    Attribute the frames of *function* to ``importlib``, which Python cuts out of
    tracebacks by file name, and `warnings` does not count: ours are part of it.
    """
    target: FunctionType = function  # type: ignore[assignment]
    target.__code__ = target.__code__.replace(co_filename=_IMPORT_MACHINERY)
    return function


class _JaxFinder:
    """First on ``sys.meta_path`` until JAX has been imported; finds nothing itself."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings

    def leave(self) -> None:
        """Stop waiting. Idempotent."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    @_as_import_machinery
    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return what other finders find, set up to start jaxmon afterwards."""
        if name != _JAX:
            return None
        for finder in sys.meta_path:
            find = None if finder is self else getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find and find(name, path, target)
            if spec is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        """Shadow ``loader.exec_module`` for one call; programs see the loader."""

        @_as_import_machinery
        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            loader.exec_module(module)
            if module.__name__ == _JAX and self in sys.meta_path:
                self.leave()
                _start(self._settings)

        try:
            loader.exec_module = exec_module
        except AttributeError as error:
            _complain(error)


def _start(settings: Mapping[str, Any]) -> None:
    try:
        import jaxmon  # noqa: PLC0415 - the agent is needed only now

        jaxmon.instrument(**settings)
    except Exception as error:  # noqa: BLE001 - the program comes first
        from jaxmon import interrupts  # noqa: PLC0415 - likewise

        interrupts.pass_on(error)
        _complain(error)


def _complain(error: Exception) -> None:
    import logging  # noqa: PLC0415 - most programs never need it from here

    logging.getLogger("jaxmon").warning(
        "jaxmon could not start; the program runs without it: %s: %s",
        type(error).__name__,
        error,
    )
