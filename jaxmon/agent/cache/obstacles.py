"""
Why JAX's persistent cache misses, derived from configuration and observations.

An obstacle is reported when it has cost something, not when it merely could: the
cache's defaults (a threshold of a second, no eviction, the path in the key) are
obstacles to some programs only. See `docs/persistent-cache.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple

from jaxmon import interrupts
from jaxmon.facts.functions import Obstacle


_LEAST_PID = 100
"""Lower ones occur in names for other reasons, as in ``v2``."""

_EARLIER_SECONDS = 300.0
"""Time between a launcher's timestamp and the start of the agent."""

_EPOCH = r"(?<!\d)(\d{10})(?:\d{3})?(?!\d)"
_DATE = r"(?<!\d)(20\d\d)-?(\d\d)-?(\d\d)[-_T ]?(\d\d)[-:.h]?(\d\d)[-:.m]?(\d\d)(?!\d)"
_TEMPORARY = r"(?:^|/)(tmp[a-z0-9_]{8})(?:/|$)"
NAMED = 3
"""Maximum number of functions or modules listed in a message."""

NOT_IN_KEYS = ("--xla_dump", "--xla_force_host_platform", "--xla_hlo_profile")
"""Beginnings of flags that JAX leaves out of its keys."""


class Moment(NamedTuple):
    """The process, and a period in Unix time."""

    pid: int
    start: float
    now: float


def varying(text: str, moment: Moment) -> str:
    """
    Return what in *text* differs by process or run, such as ``the process id 47``.
    """
    pid = moment.pid
    if pid >= _LEAST_PID and re.search(rf"(?:^|[-_./=]|pid){pid}(?:$|[-_./])", text):
        return f"the process id {pid}"
    for number in re.findall(_EPOCH, text):
        if _is_recent(float(number), moment):
            return f"the time {number}"
    for found in re.finditer(_DATE, text):
        if any(_is_recent(time, moment) for time in _times(found)):
            return f"the time {found[0]}"
    temporary = re.search(_TEMPORARY, text)
    return f"the temporary name {temporary[1]}" if temporary else ""


def varying_flag(environ: Mapping[str, str], moment: Moment) -> tuple[str, str] | None:
    """Return the first flag of the cache key that differs by process, and what does."""
    for variable in ("XLA_FLAGS", "LIBTPU_INIT_ARGS"):
        for flag in environ.get(variable, "").split():
            if not flag.startswith(NOT_IN_KEYS) and (part := varying(flag, moment)):
                return flag.partition("=")[0], part
    return None


def _is_recent(time: float, moment: Moment) -> bool:
    # It may have been rounded up when it was written.
    return moment.start - _EARLIER_SECONDS <= time <= moment.now + 1


def _times(found: re.Match[str]) -> list[float]:
    """Return the Unix times that a date may mean: in local time, or in UTC."""
    with interrupts.expected(ValueError, OverflowError, OSError):
        time = datetime(*map(int, found.groups()))  # type: ignore[arg-type] # noqa: DTZ001 - two zones below
        return [time.timestamp(), time.replace(tzinfo=UTC).timestamp()]
    return []


RESET = "jax.experimental.compilation_cache.compilation_cache.reset_cache()"

# Programs that compile faster than JAX's threshold are reported once their total
# compile time exceeds this.
_WORTH_SECONDS = 1.0


class UncachedPrograms(NamedTuple):
    """Programs not cached for one reason, their seconds, and those of functions."""

    programs: int = 0
    seconds: float = 0.0
    functions: Mapping[str, float] = MappingProxyType({})

    def __str__(self) -> str:
        worst = sorted(self.functions, key=self.functions.__getitem__, reverse=True)
        names = ", ".join(worst[:NAMED]) + (", ..." if len(worst) > NAMED else "")
        many = "1 program" if self.programs == 1 else f"{self.programs:,} programs"
        return f"{many} ({names}), {self.seconds:.1f} s of compiling"


class CacheState(NamedTuple):
    """
    Known state of the cache at one point in time, and JAX's settings for it.

    Attributes:
        asked: whether JAX looked up any program, with or without a directory.
        given_up: why JAX does not use the configured directory.
        package: what JAX needs for it and is not installed.
        max_size, size, free: bytes; -1 for no limit, `None` if unknown.
        min_seconds: minimum compile time of a program to be cached.
        threshold_at: the line of the program that sets it, empty if unknown.
        process: index of this process in its cluster.
        private: what in the directory's path is different in each process, if anything.
        flag: a flag in the key, and what in it is different in each process.
        elsewhere: programs compiled although the directory has one of that name, with
            the path under which that was created, `None` if unknown. Empty if the path
            is not part of the key.
    """

    enabled: bool = True
    directory: str | None = None
    asked: bool = False
    given_up: str | None = None
    package: str = ""
    trouble: str | None = None
    max_size: int = -1
    size: int | None = None
    free: int | None = None
    check_contents: bool = False
    min_seconds: float = 1.0
    threshold_at: str = ""
    min_bytes: int = 0
    process: int = 0
    refused: Mapping[str, UncachedPrograms] = MappingProxyType({})
    hits: int = 0
    writes: int = 0
    private: str = ""
    flag: tuple[str, str] | None = None
    elsewhere: Mapping[str, str | None] = MappingProxyType({})


def obstacles(now: CacheState) -> list[Obstacle]:
    """Return the obstacles in this state; only the first if it explains all misses."""
    for total in _total(now):
        return [total]
    return [*_of_size(now), *_of_keys(now), *_of_writes(now)]


def _total(now: CacheState) -> Iterator[Obstacle]:
    """Yield what keeps the cache from being used at all."""
    if not now.enabled:
        yield Obstacle(
            "disabled",
            "jax_enable_compilation_cache is off.",
            "Set JAX_ENABLE_COMPILATION_CACHE=true before anything is compiled.",
        )
    if now.max_size == 0 and now.directory:
        yield Obstacle(
            "disabled",
            "jax_compilation_cache_max_size is 0, so nothing is cached.",
            "Set it to the maximum cache size in bytes, or to -1 for no limit.",
        )
    # Before the first compile, the program may still set it.
    if now.asked and not now.directory:
        yield Obstacle(
            "no_directory",
            "jax_compilation_cache_dir is not set: every process compiles everything "
            "from scratch.",
            "Set JAX_COMPILATION_CACHE_DIR to a persistent directory that only "
            "trusted users can write to.",
        )
    if now.trouble:
        yield Obstacle(
            "unusable_directory",
            f"The directory {now.directory} is unusable: {now.trouble}.",
            "Use a directory that this process can read and write, with free space. "
            f"JAX tries a directory only once; restart, or call {RESET}.",
        )
    if now.given_up:
        advice = (
            f"Configure the cache before the first compile, or call {RESET} afterwards."
        )
        if now.package:
            advice = f"Install {now.package} where the program runs."
        yield Obstacle(
            "not_in_use", f"JAX does not use {now.directory}: {now.given_up}.", advice
        )
    if now.check_contents:
        yield Obstacle(
            "check_contents",
            "jax_compilation_cache_check_contents is on, so every process still "
            "compiles each program once, for comparison.",
            "Enable it only in tests.",
        )


def _of_size(now: CacheState) -> Iterator[Obstacle]:
    """Yield why programs are too small, too fast or too large to be cached."""
    small, fast = now.refused.get("below_size"), now.refused.get("below_threshold")
    if small and now.min_bytes > 0:
        yield Obstacle(
            "below_threshold",
            f"Not cached because the entries are smaller than {now.min_bytes:,} "
            f"bytes: {small}.",
            "Set JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1.",
        )
    elif fast and fast.seconds >= _WORTH_SECONDS:
        yield Obstacle(
            "below_threshold",
            f"Not cached because each compile took less than {now.min_seconds:g} s: "
            f"{fast}.",
            "Set JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS to a lower value; 0 "
            "caches everything.",
            now.threshold_at,
        )
    if large := now.refused.get("too_large"):
        yield Obstacle(
            "too_large",
            f"Larger than the maximum cache size ({now.max_size:,} bytes): {large}.",
            "Increase JAX_COMPILATION_CACHE_MAX_SIZE.",
        )


def _of_keys(now: CacheState) -> Iterator[Obstacle]:
    """Yield why no process finds what another wrote; a hit shows that one does."""
    if now.hits:
        return
    if now.writes and now.private:
        yield Obstacle(
            "private_directory",
            f"The path of {now.directory} contains {now.private}, so no later process "
            f"uses what was written there ({now.writes:,} entries).",
            "Set JAX_COMPILATION_CACHE_DIR to one path for all processes and runs.",
        )
    if now.writes and now.flag is not None:
        name, part = now.flag
        yield Obstacle(
            "varying_flags",
            f"XLA's flags are part of the cache key, and {name} contains {part}, so no "
            f"later process finds what was written ({now.writes:,} entries).",
            f"Give {name} the same value in all processes and runs.",
        )
    if now.elsewhere:
        names = ", ".join(list(now.elsewhere)[:NAMED])
        other = next((path for path in now.elsewhere.values() if path), None)
        advice = (
            "Mount it under the same path everywhere, or set "
            "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES=none in all processes."
        )
        if other is None:
            advice += " If the path is the same, the program or the versions changed."
        yield Obstacle(
            "path_in_key",
            "In this JAX release the directory's path is part of the cache key. "
            f"Nothing was found under {now.directory}, which holds {names} created "
            f"under {other or 'what may be another path'}.",
            advice,
        )


def _of_writes(now: CacheState) -> Iterator[Obstacle]:
    """Yield why programs are not written, or will not be."""
    if lost := now.refused.get("not_writer"):
        yield Obstacle(
            "not_writer",
            f"Only process 0 of a cluster writes; this is process {now.process}. "
            f"Compiled but not cached here: {lost}.",
            "Share process 0's directory with all hosts; a separate directory stays "
            "empty.",
        )
    size, free = now.size, now.free
    if now.max_size == -1 and size is not None and free is not None and size > free:
        yield Obstacle(
            "no_eviction",
            f"Entries are never evicted; they take up {size:,} bytes, and the file "
            f"system has {free:,} left.",
            "Set JAX_COMPILATION_CACHE_MAX_SIZE to the maximum size in bytes "
            "(requires the filelock package), or delete old entries.",
        )
    if lost := now.refused.get("host_callback"):
        yield Obstacle(
            "host_callback",
            "This JAX release does not cache programs that call back into Python "
            f"(jax.debug.print, pure_callback, io_callback): {lost}.",
            "Remove callbacks from slow-compiling programs, or use a JAX release that "
            "caches them (0.12).",
        )
