"""Names of the persistent cache."""

from __future__ import annotations

from jaxmon import catalog
from jaxmon.agent.jaxlink.names.model import Costs, Name, each


_WRITES: Costs = (catalog.PERSISTENT_CACHE_WRITES, catalog.PERSISTENT_CACHE_OBSTACLE)
_ERRORS: Costs = (catalog.PERSISTENT_CACHE_ERRORS,)
_IN_USE: Costs = ("obstacles not_in_use and unusable_directory",)
_PATH: Costs = ("the obstacle path_in_key",)

CACHE = (
    Name(
        "jax._src.compiler._cache_write",
        "called to store a compiled program",
        _WRITES,
        hook="persistent_cache",
        replaced=True,
    ),
    *each(
        "jax._src.compiler:_compile_and_write_cache(*)",
        "cache_key module_name compile_time host_callbacks",
        "its caller: which program, and its compile time",
        _WRITES,
    ),
    Name(
        "jax._src.compiler.warnings",
        "warns about an entry that could not be read or written",
        _ERRORS,
        hook="persistent_cache",
        replaced=True,
    ),
    *each(
        "jax._src.compiler:_cache_write(*)",
        "cache_key module_name",
        "which entry could not be written",
        _ERRORS,
    ),
    Name(
        "jax._src.compiler:_cache_read(cache_key)",
        "which entry could not be read",
        _ERRORS,
    ),
    Name(
        "jax._src.compiler:_is_executable_in_cache(cache_key)",
        "the same, in a cluster",
        _ERRORS,
    ),
    Name(
        "jax._src.lru_cache.warnings",
        "warns about an entry larger than the cache",
        ("the obstacle too_large",),
        hook="persistent_cache",
        replaced=True,
    ),
    Name(
        "jax._src.lru_cache:LRUCache.put",
        "the function that warns",
        ("the obstacle too_large",),
    ),
    *each(
        "jax._src.compilation_cache.*",
        "_cache _cache_initialized _cache_checked _cache_used",
        "whether JAX uses the configured directory",
        _IN_USE,
    ),
    Name(
        "jax._src.path.epath_installed",
        "whether JAX can open a directory that is not on a file system",
        _IN_USE,
    ),
    Name("<persistent cache>._path", "the directory in use", _IN_USE),
    Name(
        "jax.config.jax_compilation_cache_check_contents",
        "whether JAX recompiles cache hits for comparison; since 0.10",
        _IN_USE,
        "---yy",
    ),
    Name(
        "jax._src.compilation_cache.decompress_executable",
        "reads an entry",
        _PATH,
    ),
    Name(
        "jax._src.distributed.global_state.process_id",
        "index of the process in its cluster: only 0 writes; its rank",
        ("the obstacle not_writer", "the place of a process in its job"),
    ),
    Name(
        "jax._src.lib.xla_client.CompileOptions",
        "options as in a key, for a test",
        _PATH,
    ),
    Name(
        "jax._src.lib.xla_client.get_topology_for_devices",
        "the part of a key that is about devices, which may differ between processes",
        ("the cause of compiles of a job that a shared cache does not save",),
    ),
    Name(
        "jax._src.cache_key._hash_serialized_compile_options",
        "computes a key from them",
        _PATH,
    ),
    *each(
        "<compile options>.executable_build_options.debug_options.*",
        "xla_gpu_per_fusion_autotune_cache_dir xla_gpu_kernel_cache_file",
        "paths that XLA puts into keys and entries",
        _PATH,
    ),
)
