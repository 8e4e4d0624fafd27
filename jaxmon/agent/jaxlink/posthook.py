"""
JAX's post-call hook for the C++ fast path.

JAX keeps it for ``jax_debug_nans``: one callable for the process, given the jitted
object, its arguments and its outputs, after the call and below no frame of JAX. It is
part of no cache key. All that runs a cached program passes here: jitted functions
whenever they were made, operations on arrays, ahead-of-time compiled functions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias


# Jitted object, positional arguments, keyword arguments, outputs.
Hook: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]


def orders_across_devices(jax: Any) -> bool:
    """Tell whether a CPU runs programs in order, on whichever of its devices."""
    return bool(jax.__version_info__ < (0, 6))


class PostHook:
    """
    Temporary owner of JAX's post-call hook, only while nobody else uses it.

    JAX takes it with a plain assignment when a debugging setting is switched on, on
    whatever thread. So after each assignment of ours we look at the settings, and give
    JAX what it may have asked for in between: the setting comes before its hook.

    There is one for the process and one for each thread, which comes first. JAX itself
    leaves `None` in a thread's, which then hides the other: using ``jax.debug_nans``
    as a context manager is enough.

    Args:
        jax: the module. It is ``api._post_hook_state`` since 0.7, and before that
            an attribute of the states of ``jax_jit``, where `None` hides nothing.

    Raises:
        AttributeError: this JAX has no such place.
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
        """
        Have JAX's hook in the place if, and only if, a setting of JAX asks for it.
        """
        while (wanted := self._wanted()) != (self._get() is self._theirs):
            self._set(self._theirs if wanted else None)

    def _wanted(self) -> bool:
        # JAX 0.4 has no public way to the value for all threads.
        return any(
            one.get_global() if hasattr(one, "get_global") else one._value  # noqa: SLF001
            for one in self._settings
        )
