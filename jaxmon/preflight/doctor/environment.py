"""Versions, and environment variables that affect JAX and jaxmon, or are unknown."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from importlib import metadata

from jaxmon.declarations import PREFIX
from jaxmon.errors import SettingsError
from jaxmon.preflight.doctor import Area, Check
from jaxmon.settings import Settings, load


VERSIONS, VARIABLES = Area("versions"), Area("environment")

OLDEST_JAX, NEWEST_JAX = (0, 4, 35), (0, 12)
PYTHONS = ((3, 11), (3, 14))

# JAX ignores a plugin of another version, and then runs on the CPU.
_PLUGINS = [
    f"jax-{kind}-{part}"
    for kind in ("cuda12", "cuda13", "rocm60", "rocm7")
    for part in ("plugin", "pjrt")
]

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

Version = Callable[[str], str | None]


def installed(package: str) -> str | None:
    """Return the version of a package, `None` if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions(version: Version = installed) -> Iterator[Check]:
    """Yield findings about Python, JAX, jaxlib and plugins."""
    yield _python()
    jax, jaxlib = version("jax"), version("jaxlib")
    if jax is None:
        advice = "install the build for your hardware, or pip install 'jaxmon[jax]'"
        yield VERSIONS.failure("JAX is not installed", advice)
        return
    yield _jax(jax)
    if jaxlib is None:
        advice = f"pip install jaxlib=={jax}"
        yield VERSIONS.failure("jaxlib is not installed", advice)
        return
    yield _jaxlib(jax, jaxlib)
    for package in _PLUGINS:
        plugin = version(package)
        if plugin is not None:
            yield _plugin(package, plugin, jaxlib)
    if libtpu := version("libtpu"):
        yield VERSIONS.ok(f"libtpu {libtpu}")


def _python() -> Check:
    running, text = sys.version_info[:2], ".".join(map(str, sys.version_info[:3]))
    oldest, newest = PYTHONS
    if oldest <= running <= newest:
        return VERSIONS.ok(f"Python {text}")
    tested = f"{dotted(oldest)} to {dotted(newest)}"
    advice = f"jaxmon is tested with {tested}; check the hooks below"
    return VERSIONS.warning(f"Python {text}", advice)


def _jax(jax: str) -> Check:
    found = numbers(jax)
    if found < OLDEST_JAX:
        advice = f"jaxmon needs JAX {dotted(OLDEST_JAX)} or later"
        return VERSIONS.failure(f"JAX {jax} is too old", advice)
    if found[:2] > NEWEST_JAX:
        advice = (
            f"jaxmon was tested up to JAX {dotted(NEWEST_JAX)}; check below that "
            "all hooks attach"
        )
        return VERSIONS.note(
            f"JAX {jax} is newer than any release jaxmon was tested with",
            advice,
        )
    return VERSIONS.ok(f"JAX {jax}")


def _jaxlib(jax: str, jaxlib: str) -> Check:
    if numbers(jaxlib) == numbers(jax):
        return VERSIONS.ok(f"jaxlib {jaxlib}")
    advice = f"pip install jax=={jax} jaxlib=={jax}"
    if numbers(jaxlib) > numbers(jax):
        return VERSIONS.failure(f"jaxlib {jaxlib} is newer than JAX {jax}", advice)
    # It works down to a limit that each release has.
    return VERSIONS.warning(f"jaxlib {jaxlib} is older than JAX {jax}", advice)


def _plugin(package: str, plugin: str, jaxlib: str) -> Check:
    if numbers(plugin) == numbers(jaxlib):
        return VERSIONS.ok(f"{package} {plugin}")
    return VERSIONS.failure(
        f"{package} {plugin} is incompatible with jaxlib {jaxlib}: JAX may ignore "
        "it and run on the CPU",
        f"pip install {package}=={jaxlib}",
    )


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a release: ``0.4.35.dev1`` is (0, 4, 35)."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, match[0].split(".")))[:3] if match else ()


def dotted(version: tuple[int, ...]) -> str:
    """Return the numbers of a release as text."""
    return ".".join(map(str, version))


def variables(environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield findings about *environ*."""
    yield _settings(environ)
    yield from _unknown(environ)
    for name, what in _COSTLY.items():
        if environ.get(name, "").lower() not in _OFF:
            advice = f"unset {name} in production"
            yield VARIABLES.warning(f"{name}={environ[name]}: {what}", advice)
    if environ.get("JAX_ENABLE_X64", "").lower() not in _OFF:
        text = "JAX_ENABLE_X64: arrays can become float64, which costs memory and time"
        yield VARIABLES.note(text)


def _settings(environ: Mapping[str, str]) -> Check:
    try:
        settings = load({}, environ)
    except SettingsError as error:
        advice = "fix or unset it; otherwise jaxmon.instrument() raises this error"
        return VARIABLES.failure(str(error), advice)
    if not settings.enabled:
        advice = "unset it to enable jaxmon"
        return VARIABLES.warning("JAXMON_ENABLED disables jaxmon", advice)
    chosen = [f.name for f in fields(Settings) if environ.get(PREFIX + f.name.upper())]
    given = ", ".join(PREFIX + name.upper() for name in chosen)
    return VARIABLES.ok(f"jaxmon's settings: {given or 'the defaults'}")


def _unknown(environ: Mapping[str, str]) -> Iterator[Check]:
    settings = [PREFIX + field.name.upper() for field in fields(Settings)]
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in settings or name.startswith(_OTHERS):
            continue
        close = difflib.get_close_matches(name, settings, 1)
        advice = f"did you mean {close[0]}?" if close else "see docs/settings.md"
        yield VARIABLES.warning(f"{name} is not a jaxmon setting", advice)
