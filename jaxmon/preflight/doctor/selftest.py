"""
Checks that need JAX, in a separate process: whether the hooks attach, known calls are
counted and the persistent cache works, and which of JAX's internal names are missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from jaxmon.declarations import PREFIX
from jaxmon.facts.functions import Cache
from jaxmon.facts.reader import from_json
from jaxmon.facts.record import NOTHING, Fact
from jaxmon.host import subprocesses
from jaxmon.host.formats import json_text
from jaxmon.preflight.doctor import Area, Check


HOOKS, CACHE, INTERNALS = Area("hooks"), Area("cache"), Area("internals")

_SECONDS = 120.0
_COMMAND = (sys.executable, "-m", "jaxmon.agent.selftest")
_REPORT = "please report this with these versions"


class _Missing(Fact):
    """Alternative names that JAX lacks, the metrics that they cost, and a hook."""

    names: tuple[str, ...] = ()
    costs: tuple[str, ...] = ()
    hook: str = ""


class _Result(Fact):
    """What `jaxmon.agent.selftest` prints; *python* is why it could not run."""

    python: str = ""
    jax: str = ""
    hooks: Mapping[str, bool] = NOTHING
    miscounted: Mapping[str, tuple[int, ...]] = NOTHING
    internal_errors: Mapping[str, int] = NOTHING
    missing: tuple[_Missing, ...] | None = None
    cache: Cache = Cache()


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
        yield HOOKS.failure(str(error), advice)
        return
    if result.python:
        text, _, advice = result.python.partition("; ")
        yield HOOKS.failure(text, advice)
        return
    yield from _hooks(result)
    yield from _internals(result)
    yield from _cache(result.cache)


def _run(environ: Mapping[str, str]) -> _Result:
    variables = {
        name: text for name, text in environ.items() if not name.startswith(PREFIX)
    }
    variables["JAX_PLATFORMS"] = "cpu"
    variables.pop("JAX_DISABLE_JIT", None)  # reported elsewhere; nothing would compile
    try:
        done = subprocesses.run(_COMMAND, env=variables, seconds=_SECONDS)
    except TimeoutError:
        msg = f"importing JAX and calling a function took longer than {_SECONDS:g} s"
        raise _SelfTestError(msg) from None
    last = (done.err.strip().splitlines() or ["no message"])[-1]
    if done.code != 0:
        msg = f"JAX is unusable: {last[:300]}"
        raise _SelfTestError(msg)
    try:
        document = json_text.parse(done.out.strip().splitlines()[-1])
    except (ValueError, IndexError):
        document = None
    if not isinstance(document, dict):
        msg = f"the self-test produced no result: {last[:300]}"
        raise _SelfTestError(msg)
    return from_json(_Result, document)


def _hooks(result: _Result) -> Iterator[Check]:
    missing = sorted(name for name, attached in result.hooks.items() if not attached)
    advice = (
        "its metrics will be missing; install a JAX release that jaxmon was tested with"
    )
    for name in missing:
        yield HOOKS.failure(f"hook {name!r} cannot attach to JAX {result.jax}", advice)
    for what, (counted, expected) in result.miscounted.items():
        text = f"a test program made {expected} {what}, but {counted} were counted"
        yield HOOKS.failure(text, _REPORT)
    for site, count in result.internal_errors.items():
        yield HOOKS.warning(f"jaxmon had {count} internal errors in {site}", _REPORT)
    if result.hooks and not missing and not result.miscounted:
        yield HOOKS.ok(f"all {len(result.hooks)} hooks attach to JAX {result.jax}")


def _internals(result: _Result) -> Iterator[Check]:
    """Yield which names of JAX are missing, and which metrics depend on them."""
    advice = "install a JAX that jaxmon was tested on, or a newer jaxmon"
    for missing in result.missing or ():
        names, costs = " or ".join(missing.names), ", ".join(missing.costs)
        text = f"JAX {result.jax} has no {names}; missing without it: {costs}"
        yield (INTERNALS.failure if missing.hook else INTERNALS.warning)(text, advice)
    if result.missing == ():
        text = f"JAX {result.jax} has every name that jaxmon uses, or a substitute"
        yield INTERNALS.ok(text)


def _cache(cache: Cache) -> Iterator[Check]:
    for obstacle in cache.obstacles:
        # Without a directory the cache is off, which is JAX's default.
        found = CACHE.warning if cache.directory else CACHE.note
        yield found(obstacle.message, obstacle.advice)
    if cache.directory and not cache.obstacles:
        yield CACHE.ok(f"persistent cache in {cache.directory}")
