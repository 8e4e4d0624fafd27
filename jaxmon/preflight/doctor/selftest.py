"""
Checks that need JAX, in a separate process: whether the hooks attach, known calls are
counted and the persistent cache works, and which of JAX's internal names are missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from jaxmon.declarations import PREFIX
from jaxmon.facts.functions import Cache
from jaxmon.facts.reader import from_json
from jaxmon.host import subprocesses
from jaxmon.host.formats import json_text
from jaxmon.preflight.doctor.finding import Check, Status


HOOKS, CACHE, INTERNALS = "hooks", "cache", "internals"

_SECONDS = 120.0
_COMMAND = (sys.executable, "-m", "jaxmon.agent.selftest")


class _SelfTestError(Exception):
    """The self-test did not run; the message says why."""


def check(environ: Mapping[str, str]) -> Iterator[Check]:
    """
    Yield findings about hooks, cache and JAX's internal names in a program with
    *environ*.

    Takes a few seconds, mostly to import JAX. Runs on the CPU, because a GPU or TPU in
    use would not accept another process.
    """
    try:
        result = _run(environ)
    except _SelfTestError as error:
        advice = "try: python -c 'import jax; print(jax.numpy.ones(3))'"
        yield Check(HOOKS, "failure", str(error), advice)
        return
    if problem := result.get("python"):
        text, _, advice = str(problem).partition("; ")
        yield Check(HOOKS, "failure", text, advice)
        return
    yield from _hooks(result)
    yield from _internals(result)
    yield from _cache(from_json(Cache, result.get("cache")))


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
        msg = f"JAX is unusable: {last[:300]}"
        raise _SelfTestError(msg)
    try:
        result = json_text.parse(done.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        result = None
    if not isinstance(result, dict):
        msg = f"the self-test produced no result: {last[:300]}"
        raise _SelfTestError(msg)
    return result


def _hooks(result: Mapping[str, Any]) -> Iterator[Check]:
    hooks = result.get("hooks") or {}
    missing = sorted(name for name, attached in hooks.items() if not attached)
    version = result.get("jax")
    for name in missing:
        text = f"hook {name!r} cannot attach to JAX {version}"
        advice = (
            "its metrics will be missing; install a JAX release that jaxmon was "
            "tested with"
        )
        yield Check(HOOKS, "failure", text, advice)
    for what, (counted, expected) in (result.get("miscounted") or {}).items():
        text = f"a test program made {expected} {what}, but {counted} were counted"
        yield Check(HOOKS, "failure", text, "please report this with these versions")
    for site, count in (result.get("internal_errors") or {}).items():
        text = f"jaxmon had {count} internal errors in {site}"
        yield Check(HOOKS, "warning", text, "please report this with these versions")
    if hooks and not missing and not result.get("miscounted"):
        yield Check(HOOKS, "ok", f"all {len(hooks)} hooks attach to JAX {version}")


def _internals(result: Mapping[str, Any]) -> Iterator[Check]:
    """Yield which names of JAX are missing, and which metrics depend on them."""
    version, missing = result.get("jax"), result.get("missing")
    advice = "install a JAX that jaxmon was tested on, or a newer jaxmon"
    for one in missing or []:
        names, costs = " or ".join(one["names"]), ", ".join(one["costs"])
        text = f"JAX {version} has no {names}; missing without it: {costs}"
        status = "failure" if one["hook"] else "warning"
        yield Check(INTERNALS, status, text, advice)  # type: ignore[arg-type]
    if missing == []:
        text = f"JAX {version} has every name that jaxmon uses, or a substitute"
        yield Check(INTERNALS, "ok", text)


def _cache(cache: Cache) -> Iterator[Check]:
    for one in cache.obstacles:
        # Without a directory the cache is off, which is JAX's default.
        status: Status = "warning" if cache.directory else "note"
        yield Check(CACHE, status, one.message, one.advice)
    if cache.directory and not cache.obstacles:
        yield Check(CACHE, "ok", f"persistent cache in {cache.directory}")
