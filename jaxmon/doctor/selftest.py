"""
What only JAX knows, asked of a process of its own: do the hooks attach, are known
calls counted, what is the persistent cache like, which names from inside does JAX lack.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from jaxmon import subprocesses
from jaxmon.doctor.finding import Finding
from jaxmon.formats import json_text
from jaxmon.settings import PREFIX


HOOKS, CACHE, INTERNALS = "hooks", "cache", "internals"

_SECONDS = 120.0
_COMMAND = (sys.executable, "-m", "jaxmon.agent.selftest")


class _SelfTestError(Exception):
    """It did not run; the text says why."""


def check(environ: Mapping[str, str]) -> Iterator[Finding]:
    """
    Yield what is to be said about hooks, cache and JAX's own names in a program with
    *environ*.

    Takes a few seconds, most of them to import JAX. Runs on the CPU: a GPU or TPU
    that is in use would not take another process.
    """
    try:
        told = _run(environ)
    except _SelfTestError as error:
        advice = "try: python -c 'import jax; print(jax.numpy.ones(3))'"
        yield Finding(HOOKS, "failure", str(error), advice)
        return
    yield from _hooks(told)
    yield from _internals(told)
    yield from _cache(told.get("cache") or {})


def _run(environ: Mapping[str, str]) -> dict[str, Any]:
    own = {name: text for name, text in environ.items() if not name.startswith(PREFIX)}
    own["JAX_PLATFORMS"] = "cpu"
    own.pop("JAX_DISABLE_JIT", None)  # reported elsewhere; nothing would be compiled
    try:
        done = subprocesses.run(_COMMAND, env=own, seconds=_SECONDS)
    except TimeoutError:
        msg = f"importing JAX and calling a function took longer than {_SECONDS:g} s"
        raise _SelfTestError(msg) from None
    last = (done.err.strip().splitlines() or ["no message"])[-1]
    if done.code != 0:
        msg = f"JAX cannot be used: {last[:300]}"
        raise _SelfTestError(msg)
    try:
        told = json_text.parse(done.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        told = None
    if not isinstance(told, dict):
        msg = f"the self-test gave no answer: {last[:300]}"
        raise _SelfTestError(msg)
    return told


def _hooks(told: Mapping[str, Any]) -> Iterator[Finding]:
    hooks = told.get("hooks") or {}
    missing = sorted(name for name, attached in hooks.items() if not attached)
    version = told.get("jax")
    for name in missing:
        text = f"the hook {name!r} does not attach to JAX {version}"
        advice = "its metrics will be missing; install a JAX that jaxmon was tested on"
        yield Finding(HOOKS, "failure", text, advice)
    for what, (counted, expected) in (told.get("miscounted") or {}).items():
        text = f"{expected} {what} of a known program were counted as {counted}"
        yield Finding(HOOKS, "failure", text, "report it, with these versions")
    for site, count in (told.get("internal_errors") or {}).items():
        text = f"jaxmon failed {count} times in {site}"
        yield Finding(HOOKS, "warning", text, "report it, with these versions")
    if hooks and not missing and not told.get("miscounted"):
        yield Finding(HOOKS, "ok", f"all {len(hooks)} hooks attach to JAX {version}")


def _internals(told: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield which names of JAX are missing, and which figures that costs."""
    version, missing = told.get("jax"), told.get("missing")
    advice = "install a JAX that jaxmon was tested on, or a newer jaxmon"
    for one in missing or []:
        names, costs = " or ".join(one["names"]), ", ".join(one["costs"])
        text = f"JAX {version} has no {names} ({one['serves']}); lost: {costs}"
        status = "failure" if one["hook"] else "warning"
        yield Finding(INTERNALS, status, text, advice)  # type: ignore[arg-type]
    if missing == []:
        text = f"JAX {version} has every name that jaxmon looks for, or a substitute"
        yield Finding(INTERNALS, "ok", text)


def _cache(cache: Mapping[str, Any]) -> Iterator[Finding]:
    directory = cache.get("directory")
    obstacles = cache.get("obstacles") or []
    for obstacle in obstacles:
        # Without a directory the cache is off, which is JAX's default.
        status = "warning" if directory else "note"
        text, advice = str(obstacle.get("message")), str(obstacle.get("advice") or "")
        yield Finding(CACHE, status, text, advice)  # type: ignore[arg-type]
    if directory and not obstacles:
        yield Finding(CACHE, "ok", f"persistent cache in {directory}")
