"""
JAX's post-call hook for the C++ fast path.

JAX uses it for ``jax_debug_nans``: one callable per process, called with the jitted
object, its arguments and its outputs, after the call and outside any frame of JAX. It
is not part of any cache key. Everything that runs a cached program passes here: jitted
functions whenever they were created, operations on arrays, ahead-of-time compiled
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias


# Jitted object, positional arguments, keyword arguments, outputs.
Hook: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]


def orders_across_devices(jax: Any) -> bool:
    """Return whether the CPU backend runs programs in order across its devices."""
    return bool(jax.__version_info__ < (0, 6))


class PostCallHook:
    """
    Temporary owner of JAX's post-call hook, only while no other code uses it.

    JAX assigns it when a debugging setting is enabled, on any thread. So after each
    assignment of ours we check the settings, and restore JAX's hook if it was enabled
    in between: the setting changes before the hook.

    There is one hook for the process and one per thread, which takes precedence. JAX
    itself leaves `None` in a thread's, which hides the other: using ``jax.debug_nans``
    as a context manager is enough.

    Args:
        jax: the module. The hook is ``api._post_hook_state`` since 0.7; before, an
            attribute of the states of ``jax_jit``, where `None` hides nothing.

    Raises:
        AttributeError: this JAX has no such hook.
    """

    def __init__(self, jax: Any) -> None:
        self._get: Callable[[], Hook | None]
        self._set: Callable[[Hook | None], None]
        self._get_local: Callable[[], Hook | None]
        self._set_local: Callable[[Hook | None], None]
        config = jax._src.config  # noqa: SLF001
        self._settings = (config.debug_nans, config.debug_infs)
        self._theirs: Hook = jax._src.api._nan_check_posthook  # noqa: SLF001
        state = getattr(jax._src.api, "_post_hook_state", None)  # noqa: SLF001
        if state is not None:
            self._get, self._set = state.get_global, state.set_global
            self._get_local, self._set_local = state.get_local, state.set_local
            self._nothing = jax._src.config.config_ext.unset  # noqa: SLF001
            return
        jit = jax._src.lib.jax_jit  # noqa: SLF001
        shared = jit.global_state()
        _ = shared.post_hook
        self._get = lambda: shared.post_hook
        self._set = lambda hook: setattr(shared, "post_hook", hook)
        self._get_local = lambda: jit.thread_local_state().post_hook
        self._set_local = lambda _: None
        self._nothing = None

    def take(self, hook: Hook) -> bool:
        """Install *hook*; return whether the slot was free or already ours."""
        there, local = self._get(), self._get_local()
        if there not in (None, hook) or local not in (None, self._nothing, hook):
            return False
        if there is None:
            self._set(hook)
            self._settle()
            if self._get() != hook:
                return False
        if local is None:
            self._set_local(hook)
        return True

    def leave(self, hook: Hook) -> None:
        """Remove *hook* if it is still installed, for the process and this thread."""
        if self._get() == hook:
            self._set(None)
            self._settle()
        if self._get_local() == hook:
            self._set_local(None)

    def _settle(self) -> None:
        """Install JAX's hook if, and only if, a setting of JAX requires it."""
        while (wanted := self._wanted()) != (self._get() is self._theirs):
            self._set(self._theirs if wanted else None)

    def _wanted(self) -> bool:
        # JAX 0.4 has no public access to the global value.
        return any(
            [
                setting.get_global()
                if hasattr(setting, "get_global")
                else setting._value  # noqa: SLF001
                for setting in self._settings
            ]
        )
