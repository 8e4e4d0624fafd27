"""
JAX's persistent cache as JAX itself sees it: configured, in use, given up.

The only place that knows the private names of ``jax._src.compilation_cache`` and of
the cache key.
"""

from __future__ import annotations

import hashlib
import os
from types import ModuleType
from typing import Any


# What XLA keeps in the directory beside JAX, by the name in the switch that asks for
# it. From 0.6 to 0.11 the first one makes the path part of each key.
_XLA_CACHES = ("xla_gpu_per_fusion_autotune_cache_dir", "xla_gpu_kernel_cache_file")


class JaxCache:
    """Reads, and never changes, the state of the cache of *jax*. Microseconds each."""

    def __init__(self, jax: ModuleType) -> None:
        self._source: Any = jax._src  # noqa: SLF001 - JAX tells this nowhere else
        self.config: Any = jax.config
        self._hashed: dict[str, bool] = {}

    @property
    def configured(self) -> str | None:
        """The directory that the program asked for."""
        found = self.config.jax_compilation_cache_dir
        return str(found) if found else None

    @property
    def directory(self) -> str | None:
        """The directory in use, or else the one that is to be."""
        used = getattr(self._cache, "_path", None)
        return str(used) if used else self.configured

    @property
    def check_contents(self) -> bool:
        """Whether JAX compiles what it finds again, to compare; since 0.10."""
        return bool(getattr(self.config, "jax_compilation_cache_check_contents", False))

    @property
    def process(self) -> int:
        """Number of this process in its cluster; only 0 writes."""
        return int(self._source.distributed.global_state.process_id or 0)

    @property
    def tried(self) -> bool:
        """
        Whether JAX made or opened the directory, or failed to, which it does once.
        """
        return bool(
            getattr(self._source.compilation_cache, "_cache_initialized", False)
        )

    @property
    def opened(self) -> bool:
        """Whether JAX reads and writes a directory."""
        return self._cache is not None

    @property
    def _cache(self) -> Any:
        return getattr(self._source.compilation_cache, "_cache", None)

    def given_up(self, error: str | None) -> str | None:
        """
        Return why JAX does not use the directory although it is configured.

        Args:
            error: the last one of the cache.
        """
        module = self._source.compilation_cache
        if getattr(module, "_cache_checked", False) and not module._cache_used:  # noqa: SLF001
            return "the cache was off at the first compile, or the backend has none"
        if not self.opened:
            # To 0.4.35 a directory that is set after the first compile is too late.
            late = error or "it was set after the first compile"
            return late if self.tried else None
        used = str(getattr(self._cache, "_path", ""))
        if used and os.path.normpath(used) != os.path.normpath(self.configured or ""):
            return f"it started with {used}, and keeps to it"
        return None

    def path_matters(self) -> bool:
        """Tell whether the path of the directory is part of each key, by trial."""
        return any(self._is_hashed(name) for name in self._xla_caches())

    def decompress(self, entry: bytes) -> bytes:
        """Undo the compression of an entry."""
        found: bytes = self._source.compilation_cache.decompress_executable(entry)
        return found

    def _xla_caches(self) -> list[str]:
        """Return the options that JAX sets to paths in the directory; since 0.5."""
        name = "jax_persistent_cache_enable_xla_caches"
        wanted = getattr(self.config, name, None) or ""
        return [one for one in _XLA_CACHES if wanted == "all" or one in wanted]

    def _is_hashed(self, name: str) -> bool:
        if name not in self._hashed:
            one, other = (self._digest(name, path) for path in ("/one", "/other"))
            self._hashed[name] = one != other
        return self._hashed[name]

    def _digest(self, name: str, path: str) -> bytes:
        """Return what a key would hold of compile options with *path* in them."""
        digest = hashlib.sha256()
        try:
            options = self._source.lib.xla_client.CompileOptions()
            setattr(options.executable_build_options.debug_options, name, path)
            key = self._source.cache_key
            key._hash_serialized_compile_options(digest, options)  # noqa: SLF001
        except (AttributeError, TypeError):  # a JAX that we do not know
            return b""
        return digest.digest()
