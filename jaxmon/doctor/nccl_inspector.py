"""Whether NCCL Inspector records what the sidecar reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from jaxmon.doctor.finding import Finding


_PLUGIN = "NCCL_PROFILER_PLUGIN"
_INTERVAL = "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS"
_DIRECTORY = "NCCL_INSPECTOR_DUMP_DIR"
_SECOND = 1_000_000
_RECOMMENDED = f"set {_INTERVAL}=1000000 (docs/nccl.md)"


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Return whether Inspector would record if NCCL loaded it."""
    return bool(_number(environ.get("NCCL_INSPECTOR_ENABLE", "")))


def check(area: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield findings for *area* about the variables of Inspector."""
    if not is_enabled(environ):
        text = "NCCL Inspector is off: time and bandwidth of collectives are unknown"
        yield Finding(area, "ok", f"{text} (docs/nccl.md)")
        return
    found = [*_loaded(area, environ), *_written(area, environ)]
    yield from found
    if not found:
        directory = environ[_DIRECTORY]
        text = f"NCCL Inspector writes to {directory}, which the sidecar reads"
        yield Finding(area, "ok", f"{text} with --nccl-inspector")


def _loaded(area: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    plugin = environ.get(_PLUGIN, "")
    if not plugin:
        text = (
            f"NCCL_INSPECTOR_ENABLE is set, and {_PLUGIN} is not: NCCL may not load it"
        )
        advice = "give it the path of libnccl-profiler-inspector.so (docs/nccl.md)"
        yield Finding(area, "warning", text, advice)
    elif "/" in plugin and not Path(plugin).is_file():
        text = (
            f"{_PLUGIN}={plugin}: there is no such file, and NCCL continues without it"
        )
        yield Finding(area, "warning", text, "compile Inspector, or correct the path")


def _written(area: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    interval = _number(environ.get(_INTERVAL, "-1"))
    if _number(environ.get("NCCL_INSPECTOR_DUMP_THREAD_ENABLE", "1")) == 0:
        text = "NCCL_INSPECTOR_DUMP_THREAD_ENABLE=0: Inspector writes nothing"
        yield Finding(area, "warning", text, "unset it")
    elif interval < 0:
        text = f"without {_INTERVAL}, NCCL Inspector writes nothing"
        yield Finding(area, "warning", text, _RECOMMENDED)
    elif interval < _SECOND:
        text = (
            "a thread of NCCL Inspector may keep a core busy, as parts of a second are "
            "nanoseconds to it before NCCL 2.29.7"
            if interval
            else "NCCL Inspector writes nothing before NCCL 2.30.3, and keeps a core "
            "busy since"
        )
        text = f"{_INTERVAL}={interval}: {text}"
        yield Finding(area, "warning", text, _RECOMMENDED)
    if _number(environ.get("NCCL_INSPECTOR_PROM_DUMP", "")):
        text = "NCCL_INSPECTOR_PROM_DUMP=1: the sidecar does not read that format"
        yield Finding(area, "note", text, "unset it; node_exporter reads it")
    if not environ.get(_DIRECTORY):
        text = "NCCL Inspector writes below the directory where the program starts"
        advice = f"set {_DIRECTORY} for the program and for the sidecar"
        yield Finding(area, "note", text, advice)


def _number(text: str) -> int:
    """Return the number at the beginning of *text* as C does, 0 if there is none."""
    match = re.match(r"\s*([+-]?[0-9]{1,18})", text)
    return int(match[1]) if match else 0
