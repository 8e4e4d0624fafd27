"""Environment variables that affect JAX and jaxmon, or are unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import fields

from jaxmon.declarations import PREFIX
from jaxmon.errors import SettingsError
from jaxmon.preflight.doctor.finding import Check
from jaxmon.settings import Settings, load


AREA = "environment"

# Read elsewhere than in the settings of the agent.
_OTHERS = ("JAXMON_BOOTSTRAP", "JAXMON_EXPORTER_")

_COSTLY = {
    "JAX_DISABLE_JIT": "nothing is compiled; every operation runs individually",
    "JAX_DEBUG_NANS": "each output is checked on the host, which blocks on the device",
    "JAX_DEBUG_INFS": "each output is checked on the host, which blocks on the device",
    "JAX_CHECK_TRACER_LEAKS": "tracing is slower and not cached",
    "JAX_ENABLE_CHECKS": "internal checks slow down every trace",
}
_OFF = ("", "0", "false", "off", "no")


def check(environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield findings about *environ*."""
    yield _settings(environ)
    yield from _unknown(environ)
    for name, what in _COSTLY.items():
        if environ.get(name, "").lower() not in _OFF:
            advice = f"unset {name} in production"
            yield Check(AREA, "warning", f"{name}={environ[name]}: {what}", advice)
    if environ.get("JAX_ENABLE_X64", "").lower() not in _OFF:
        text = "JAX_ENABLE_X64: arrays can become float64, which costs memory and time"
        yield Check(AREA, "note", text)


def _settings(environ: Mapping[str, str]) -> Check:
    try:
        settings = load({}, environ)
    except SettingsError as error:
        advice = "fix or unset it; otherwise jaxmon.instrument() raises this error"
        return Check(AREA, "failure", str(error), advice)
    if not settings.enabled:
        advice = "unset it to enable jaxmon"
        return Check(AREA, "warning", "JAXMON_ENABLED disables jaxmon", advice)
    chosen = [f.name for f in fields(Settings) if environ.get(PREFIX + f.name.upper())]
    given = ", ".join(PREFIX + name.upper() for name in chosen)
    return Check(AREA, "ok", f"jaxmon's settings: {given or 'the defaults'}")


def _unknown(environ: Mapping[str, str]) -> Iterator[Check]:
    known = [PREFIX + field.name.upper() for field in fields(Settings)]
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in known or name.startswith(_OTHERS):
            continue
        close = difflib.get_close_matches(name, known, 1)
        advice = f"did you mean {close[0]}?" if close else "see docs/settings.md"
        yield Check(AREA, "warning", f"{name} is not a jaxmon setting", advice)
