"""Version compatibility."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

from jaxmon.preflight.doctor.finding import Check


AREA = "versions"

OLDEST_JAX, NEWEST_JAX = (0, 4, 35), (0, 12)
PYTHONS = ((3, 11), (3, 14))

# JAX ignores a plugin of another version, and then runs on the CPU.
_PLUGINS = (
    "jax-cuda12-plugin",
    "jax-cuda12-pjrt",
    "jax-cuda13-plugin",
    "jax-cuda13-pjrt",
    "jax-rocm60-plugin",
    "jax-rocm60-pjrt",
    "jax-rocm7-plugin",
    "jax-rocm7-pjrt",
)

Version = Callable[[str], str | None]


def installed(package: str) -> str | None:
    """Return the version of a package, `None` if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def check(version: Version = installed) -> Iterator[Check]:
    """
    Yield findings about Python, JAX, jaxlib and plugins.

    Args:
        version: returns the version of a package.
    """
    yield _python()
    jax, jaxlib = version("jax"), version("jaxlib")
    if jax is None:
        advice = "install the build for your hardware, or pip install 'jaxmon[jax]'"
        yield Check(AREA, "failure", "JAX is not installed", advice)
        return
    yield _jax(jax)
    if jaxlib is None:
        advice = f"pip install jaxlib=={jax}"
        yield Check(AREA, "failure", "jaxlib is not installed", advice)
        return
    yield _jaxlib(jax, jaxlib)
    for package in _PLUGINS:
        plugin = version(package)
        if plugin is not None:
            yield _plugin(package, plugin, jaxlib)
    if libtpu := version("libtpu"):
        yield Check(AREA, "ok", f"libtpu {libtpu}")


def _python() -> Check:
    running, text = sys.version_info[:2], ".".join(map(str, sys.version_info[:3]))
    oldest, newest = PYTHONS
    if oldest <= running <= newest:
        return Check(AREA, "ok", f"Python {text}")
    tested = f"{_dotted(oldest)} to {_dotted(newest)}"
    advice = f"jaxmon is tested with {tested}; check the hooks below"
    return Check(AREA, "warning", f"Python {text}", advice)


def _jax(jax: str) -> Check:
    found = _parsed(jax)
    if found < OLDEST_JAX:
        advice = f"jaxmon needs JAX {_dotted(OLDEST_JAX)} or later"
        return Check(AREA, "failure", f"JAX {jax} is too old", advice)
    if found[:2] > NEWEST_JAX:
        advice = (
            f"jaxmon was tested up to JAX {_dotted(NEWEST_JAX)}; check below that "
            "all hooks attach"
        )
        return Check(
            AREA,
            "note",
            f"JAX {jax} is newer than any release jaxmon was tested with",
            advice,
        )
    return Check(AREA, "ok", f"JAX {jax}")


def _jaxlib(jax: str, jaxlib: str) -> Check:
    if _parsed(jaxlib) == _parsed(jax):
        return Check(AREA, "ok", f"jaxlib {jaxlib}")
    # A newer jaxlib is an error, an older one down to a release's own limit works.
    newer = _parsed(jaxlib) > _parsed(jax)
    return Check(
        AREA,
        "failure" if newer else "warning",
        f"jaxlib {jaxlib} is {'newer' if newer else 'older'} than JAX {jax}",
        f"pip install jax=={jax} jaxlib=={jax}",
    )


def _plugin(package: str, plugin: str, jaxlib: str) -> Check:
    if _parsed(plugin) == _parsed(jaxlib):
        return Check(AREA, "ok", f"{package} {plugin}")
    return Check(
        AREA,
        "failure",
        f"{package} {plugin} is incompatible with jaxlib {jaxlib}: JAX may ignore "
        "it and run on the CPU",
        f"pip install {package}=={jaxlib}",
    )


def _parsed(version: str) -> tuple[int, ...]:
    """Return the numbers of a release: ``0.4.35.dev1`` is (0, 4, 35)."""
    match = re.match(r"\d+(\.\d+)*", version)
    numbers = tuple(int(part) for part in match[0].split(".")) if match else ()
    return numbers[:3]


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
