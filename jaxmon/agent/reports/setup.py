"""
What the programs of a process depend on besides its code, for `/debug/rank`: versions,
devices, flags, settings of JAX, and where its persistent cache is.

In a job all ranks should have the same. What may differ, and harms nothing, is left
out: paths of dumps, names of hosts, numbers of processes, which devices a process sees.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from jaxmon.agent.cache.directory import is_local
from jaxmon.agent.cache.obstacles import NOT_IN_KEYS
from jaxmon.agent.jaxlink import backends
from jaxmon.agent.jaxlink.cache import key_part
from jaxmon.agent.versions import driver, start_of, versions
from jaxmon.host import disclosure
from jaxmon.version import VERSION


_MOST_PACKAGES = 2000
_MOST_DIRECTORIES = 100
# Directories of installed packages are named NAME-VERSION.dist-info.
_INSTALLED = r"(?i)(?P<name>[a-z0-9][\w.]*)-(?P<version>[\w.+!]+)\.(?:dist|egg)-info"


def environment(jax: Any, release: str = "") -> dict[str, Any]:
    """
    Return interpreter, versions, the program's *release*, flags, installed packages.

    Takes a few milliseconds: names of packages come from directory listings, and no
    file of a package is read.
    """
    return {
        "executable": sys.executable or "",
        "prefix": sys.prefix,
        "versions": {**({"release": release} if release else {}), **versions(jax)},
        "packages": packages(sys.path),
    }


def packages(path: Sequence[object]) -> dict[str, str]:
    """Return the version of each package in *path*; of several, the imported one."""
    found: dict[str, str] = {}
    for entry in list(path)[:_MOST_DIRECTORIES]:
        if not isinstance(entry, str) or len(found) >= _MOST_PACKAGES:
            continue
        try:
            names = sorted(os.listdir(entry or "."))  # noqa: PTH208 - names only
        except (OSError, ValueError):  # an archive, a missing directory
            continue
        for name in names:
            if match := re.fullmatch(_INSTALLED, name):
                package = match["name"].lower().replace("_", "-")
                found.setdefault(package, match["version"])
    return dict(sorted(found.items())[:_MOST_PACKAGES])


# Of these, all hosts see the same files.
_SHARED = (
    *("nfs", "lustre", "ceph", "gpfs", "beegfs", "cifs", "smb", "9p", "virtiofs"),
    *("fuse.", "wekafs", "glusterfs", "afs", "pvfs", "orangefs"),
)
_MOST_BYTES = 1 << 20


class MountedDirectory(NamedTuple):
    """
    The path of a directory, on a file system that hosts share from what is mounted, so
    that it is the same wherever that is; and the kind of file system, empty if unknown.
    """

    path: str
    kind: str


class Mounts:
    """The mounted file systems of this process, of the ``proc`` below *root*."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._path = root / "proc/self/mountinfo"
        self._places: dict[str, MountedDirectory] = {}

    def of(self, directory: str) -> MountedDirectory:
        """Return where *directory* is; once for each, as mounts hardly change."""
        if directory not in self._places:
            self._places = {directory: self._find(os.path.abspath(directory))}  # noqa: PTH100 - follows no link
        return self._places[directory]

    def _find(self, path: str) -> MountedDirectory:
        best, place = "", MountedDirectory(path, "")
        for line in start_of(self._path, _MOST_BYTES).splitlines():
            fields, _, source = line.partition(" - ")
            mount, kind = fields.split(" "), source.split(" ")
            if len(mount) < 5 or len(kind) < 2:  # noqa: PLR2004 - as in proc(5)
                continue
            inner, point = _unescaped(mount[3]), _unescaped(mount[4])
            below = path == point or path.startswith(f"{point.rstrip('/')}/")
            # A later one hides an earlier one at the same point.
            if not below or len(point) < len(best):
                continue
            best, place = point, MountedDirectory(path, kind[0])
            if kind[0].startswith(_SHARED):
                rest = path[len(point.rstrip("/")) :]
                whole = f"{inner.rstrip('/')}{rest}" or "/"
                place = MountedDirectory(f"{_unescaped(kind[1])} {whole}", kind[0])
        return place


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


_MOST = 200
_LONGEST = 100
_DIGITS = 8

# Of what compiles and communicates.
_PACKAGES = (
    r"jax-.*|libtpu.*|nvidia-(cublas|cuda|cudnn|nccl|nvshmem).*"
    r"|flax|optax|orbax-.*|numpy|ml-dtypes"
)
_FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS")
_FLAG = "--xla_"
_PATH = "(a path)"
_FILE = "(a file)"
_NCCL = "NCCL_"
# About a host, or about what is written there.
_NCCL_OF_HOST = (
    *("NCCL_HOSTID", "NCCL_COMM_ID", "NCCL_CONF_FILE", "NCCL_SOCKET_IFNAME"),
    *("NCCL_DEBUG", "NCCL_TOPO", "NCCL_GRAPH", "NCCL_RAS", "NCCL_INSPECTOR"),
    *("NCCL_IB_HCA", "NCCL_PROFILE", "NCCL_OOB_NET_IFNAME"),
)
_CACHE = "jax_compilation_cache_dir"
# What changes programs, their keys in the cache, or whether they get there.
_SETTINGS = (
    *("jax_platforms", "jax_enable_x64", "jax_explicit_x64_dtypes"),
    *("jax_default_dtype_bits", "jax_default_matmul_precision"),
    *("jax_numpy_dtype_promotion", "jax_numpy_rank_promotion", "jax_default_prng_impl"),
    *("jax_enable_custom_prng", "jax_threefry_partitionable", "jax_random_seed_offset"),
    *("jax_softmax_custom_jvp", "jax_use_shardy_partitioner", "jax_disable_jit"),
    *("jax_debug_nans", "jax_debug_infs", "jax_debug_key_reuse", "jax_enable_pgle"),
    *("jax_pgle_profiling_runs", "jax_optimization_level", "jax_memory_fitting_level"),
    *("jax_exec_time_optimization_effort", "jax_memory_fitting_effort"),
    *("jax_compiler_enable_remat_pass", "jax_cpu_collectives_implementation"),
    *("jax_enable_compilation_cache", "jax_persistent_cache_min_compile_time_secs"),
    "jax_persistent_cache_min_entry_size_bytes",
    *("jax_persistent_cache_enable_xla_caches", "jax_compilation_cache_max_size"),
    "jax_compilation_cache_include_metadata_in_key",
    "jax_share_binary_between_hosts",
)


class Setup:
    """Reads it; the first time in milliseconds, then in 50 µs."""

    def __init__(
        self,
        jax: Any,
        *,
        environ: Mapping[str, str] | None = None,
        root: Path = Path("/"),
    ) -> None:
        self._jax = jax
        self._environ = os.environ if environ is None else environ
        self._root = root
        self._mounts = Mounts(root)
        self._constant: dict[str, str] = {}
        self._of_devices: tuple[Any, dict[str, str]] = (None, {})
        self._key: tuple[Any, str] = (None, "")
        # It hardly changes, and to look for secrets takes longer than to read it.
        self._read: dict[str, str] = {}
        self._shown: dict[str, str] = {}

    def read(self) -> dict[str, str]:
        """
        Return values by name, of limited number and length, and without known forms of
        secrets. What is unknown is absent; devices are, until the program has
        initialised its backends.
        """
        if not self._constant:
            self._constant = dict(self._versions())
        found = {
            **self._constant,
            **self._devices(),
            **dict(self._flags()),
            **dict(self._settings()),
        }
        if found != self._read:
            some = list(found.items())[:_MOST]
            self._shown = {name: _short(value) for name, value in some}
            self._read = found
        return self._shown

    def key_part(self) -> str:
        """Return `cache_keys.key_part`, empty until backends are initialised."""
        client = backends.client(self._jax)
        if client is not None and self._key[0] is not client:
            self._key = client, key_part(self._jax)
        return self._key[1]

    def _versions(self) -> Iterator[tuple[str, str]]:
        yield "python", platform.python_version()
        yield "jax", str(self._jax.__version__)
        yield "jaxlib", backends.version() or ""
        yield "jaxmon", VERSION
        if found := driver(self._root):
            yield "driver", found
        for name, version in packages(sys.path).items():
            if re.fullmatch(_PACKAGES, name):
                yield f"package {name}", version

    def _devices(self) -> dict[str, str]:
        client = backends.client(self._jax)
        if client is None:
            return {}
        if self._of_devices[0] is not client:
            first, *others = self._jax.local_devices()
            found = {
                "platform": str(first.platform),
                "platform_version": str(first.client.platform_version),
                "device": str(first.device_kind),
                "devices": str(len(others) + 1),
            }
            self._of_devices = client, found
        return self._of_devices[1]

    def _flags(self) -> Iterator[tuple[str, str]]:
        for variable in _FLAGS:
            text = self._environ.get(variable, "").strip()
            if text and not text.startswith("-"):
                yield variable, _FILE
                continue
            for flag in text.split():
                name, sign, value = flag.partition("=")
                if name.startswith(_FLAG) and not name.startswith(NOT_IN_KEYS):
                    yield f"{variable} {name}", _plain(value) if sign else "true"
        for name in sorted(self._environ):
            if name.startswith(_NCCL) and not name.startswith(_NCCL_OF_HOST):
                yield name, _plain(disclosure.variable(name, self._environ[name]))

    def _settings(self) -> Iterator[tuple[str, str]]:
        config = self._jax.config
        for name in _SETTINGS:
            # Not every release has all.
            if hasattr(config, name):
                value = getattr(config, name)
                yield name, "" if value is None else str(value)
        directory = str(getattr(config, _CACHE, None) or "")
        if not (directory and is_local(directory)):
            yield _CACHE, disclosure.url(directory) if directory else ""
            return
        place = self._mounts.of(directory)
        yield _CACHE, place.path
        yield "cache_file_system", place.kind


def _plain(value: str) -> str:
    """Return *value*; of paths, only that it is one: hosts may have their own."""
    return _PATH if "/" in value else value


def _short(text: str) -> str:
    """Return *text* in one line of limited length, and still different from others."""
    text = " ".join(disclosure.forms(text[: 10 * _LONGEST]).split())
    if len(text) <= _LONGEST:
        return text
    digest = sha256(text.encode(errors="replace")).hexdigest()[:_DIGITS]
    return f"{text[: _LONGEST - _DIGITS - 1]}…{digest}"
