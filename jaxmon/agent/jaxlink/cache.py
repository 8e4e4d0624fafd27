"""State of JAX's persistent cache as seen by JAX: configured, in use, abandoned."""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from types import FrameType, ModuleType
from typing import Any, Literal

from jaxmon import interrupts
from jaxmon.tuples import NamedTuple


SUFFIX = "-cache"
"""Suffix of entries; the key, ``<module>-<hash>``, precedes it."""

# From 0.6 to 0.11 the first one makes the path part of the cache key.
XLA_CACHES = ("xla_gpu_per_fusion_autotune_cache_dir", "xla_gpu_kernel_cache_file")
"""XLA's own caches in the directory, by their name in the setting that enables them."""


# What etils.epath needs for these.
_OF_SCHEME = {"gs": "gcsfs", "s3": "s3fs"}


class JaxCache:
    """Reads, and never changes, the state of the cache of *jax*. Microseconds each."""

    def __init__(self, jax: ModuleType) -> None:
        self._source: Any = jax._src  # noqa: SLF001 - no public name for it
        self.config: Any = jax.config

    @property
    def configured(self) -> str | None:
        """The configured directory."""
        found = self.config.jax_compilation_cache_dir
        return str(found) if found else None

    @property
    def directory(self) -> str | None:
        """The directory in use, or else the configured one."""
        used = getattr(self._cache, "_path", None)
        return str(used) if used else self.configured

    @property
    def check_contents(self) -> bool:
        """Whether JAX recompiles cache hits for comparison; since 0.10."""
        return bool(getattr(self.config, "jax_compilation_cache_check_contents", False))

    @property
    def process(self) -> int:
        """Index of this process in its cluster; only 0 writes."""
        return int(self._source.distributed.global_state.process_id or 0)

    @property
    def open_attempted(self) -> bool:
        """Whether JAX has tried to create or open the directory; it tries only once."""
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
        """Return why JAX does not use the directory; *error* is its latest one."""
        module = self._source.compilation_cache
        if getattr(module, "_cache_checked", False) and not module._cache_used:  # noqa: SLF001
            return (
                "the cache was disabled at the first compile, or the backend does not "
                "support it"
            )
        if not self.opened:
            # In 0.4.35 a directory set after the first compile is too late.
            late = error or "it was configured after the first compile"
            if package := self.missing_package():
                late = f"{package} is not installed"
            return late if self.open_attempted else None
        used = str(getattr(self._cache, "_path", ""))
        if used and os.path.normpath(used) != os.path.normpath(self.configured or ""):
            return f"JAX started with {used} and keeps using it"
        return None

    def missing_package(self) -> str:
        """Return what JAX lacks to open a remote directory, if so; a millisecond."""
        scheme, remote, _ = (self.configured or "").partition("://")
        if not remote or scheme == "file":
            return ""
        if not self._source.path.epath_installed:
            return "etils[epath]"
        package = _OF_SCHEME.get(scheme, "")
        return package if package and find_spec(package) is None else ""

    def key_includes_path(self) -> bool:
        """Return whether the path is part of the cache key, by testing it."""
        return any(
            [
                self._digest(name, "/one") != self._digest(name, "/other")
                for name in self._xla_caches()
            ]
        )

    def decompress(self, entry: bytes) -> bytes:
        """Undo the compression of an entry."""
        found: bytes = self._source.compilation_cache.decompress_executable(entry)
        return found

    def _xla_caches(self) -> list[str]:
        """Return the options that JAX sets to paths in the directory; since 0.5."""
        name = "jax_persistent_cache_enable_xla_caches"
        wanted = getattr(self.config, name, None) or ""
        return [cache for cache in XLA_CACHES if wanted == "all" or cache in wanted]

    def _digest(self, name: str, path: str) -> bytes:
        digest = hashlib.sha256()
        # In an unknown release of JAX nothing is hashed.
        with interrupts.expected(AttributeError, TypeError):
            options = self._source.lib.xla_client.CompileOptions()
            setattr(options.executable_build_options.debug_options, name, path)
            key = self._source.cache_key
            key._hash_serialized_compile_options(digest, options)  # noqa: SLF001
        return digest.digest()


class Write(NamedTuple):
    """An entry that JAX is about to write, and whether its program calls the host."""

    key: str
    module: str
    seconds: float
    callbacks: bool


def written(frame: FrameType) -> Write:
    """Return the entry that *frame* is writing, by ``compiler._cache_write``."""
    variables = frame.f_locals
    return Write(
        str(variables["cache_key"]),
        str(variables["module_name"]),
        float(variables["compile_time"]),
        bool(variables.get("host_callbacks")),
    )


class Failed(NamedTuple):
    """A failed operation on an entry; *sought* if JAX only checked that it exists."""

    operation: Literal["read", "write"]
    key: str
    module: str
    sought: bool = False


_OPERATIONS: dict[str, Literal["read", "write"]] = {
    "_cache_write": "write",
    "_cache_read": "read",
    "_is_executable_in_cache": "read",
}


def failed_at(frame: FrameType) -> Failed | None:
    """Return the operation that failed in *frame*, where ``compiler`` warns, if any."""
    name = frame.f_code.co_name
    operation = _OPERATIONS.get(name)
    if operation is None:
        return None
    variables = frame.f_locals
    key = str(variables.get("cache_key", ""))
    module = str(variables.get("module_name") or module_of(key))
    return Failed(operation, key, module, sought=name == "_is_executable_in_cache")


def is_refusal(frame: FrameType) -> bool:
    """Return whether ``lru_cache`` warns in *frame* that an entry is too large."""
    return frame.f_code.co_name == "put"


def module_of(key: str) -> str:
    """Return the name of the program in the entry with *key*."""
    return key.rpartition("-")[0]


def key_part(jax: Any) -> str:
    """
    Return what JAX's keys have about all devices, ``""`` if unknown. It should be the
    same in all processes: where it is not, as in 0.10.2 and 0.12.0, none finds what
    another stored.
    """
    client = jax._src.lib.xla_client  # noqa: SLF001 - what JAX makes its keys with
    with interrupts.expected(AttributeError, RuntimeError, TypeError, ValueError):
        topology = client.get_topology_for_devices(jax.devices())
        return f"{topology.fingerprint():x}"
    return ""  # JAX has other keys then
