"""
Attaches the hooks to JAX, and takes them off again.

| hook | what it attaches to | what it yields |
|---|---|---|
| calls | ``pjit._cpp_pjit``, `jax.pmap` | calls and hits |
| misses | ``pjit._infer_params`` and others | misses, and why |
| compiles | ``compiler.compile_or_get_cached`` | compiles, in progress |
| causes | what *misses* and *compiles* see | why a call compiled again |
| monitoring | `jax.monitoring` | phases, outcomes, persistent cache |
| persistent_cache | ``compiler._cache_write``, warnings | what is not kept, errors |
| sampling | JAX's hook after a cached call, at times | dispatch and execution times |
| transfers | JAX's array class, what sends arrays | transfers, waits |
| errors | ``traceback_util._filtering_mode`` | errors that leave a call |
| uncaught | `sys.excepthook` and its like, asyncio's log | errors nobody caught |
| out_of_memory | `jax.errors.JaxRuntimeError` | errors that a wait ends with |

Each is independent: what a future JAX no longer has costs the figures of that hook
only, which is said once in the log and by ``jaxmon_hook_active``. That tells of every
other part that has switched itself off, too: of the hook that needs it, or by name.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

from jaxmon import catalog, interrupts
from jaxmon.agent.calls import part as calls
from jaxmon.agent.calls.part import CallLayer
from jaxmon.agent.compiles.misses import Misses
from jaxmon.agent.compiles.part import Compiles
from jaxmon.agent.compiles.payers import Payers
from jaxmon.agent.errors.surfacing import Births, Leaving
from jaxmon.agent.errors.uncaught import Uncaught
from jaxmon.agent.guard import log
from jaxmon.agent.jaxlink import listeners, methods
from jaxmon.agent.jaxlink.frames import Jitted
from jaxmon.agent.jaxlink.listeners import Listeners
from jaxmon.agent.jaxlink.patches import Patches, Stand
from jaxmon.agent.jaxlink.places import misses as targets
from jaxmon.agent.jaxlink.probe import Observer, Probe
from jaxmon.agent.parts import Parts
from jaxmon.agent.recompiles import part as causes
from jaxmon.agent.sampling import window
from jaxmon.exposition.families import Family, series


# Other sites of the guard without which a hook's figures suffer.
_NEEDS = {
    calls.SITE: ("eval_shape",),
    "persistent_cache": ("cache",),
    window.SITE: ("watcher",),
}


class Hooks:
    """All hooks of one agent."""

    def __init__(self, parts: Parts, payers: Payers) -> None:
        context = parts.context
        self._jax = context.jax
        self._guard = context.guard
        self._count_calls = context.settings.calls
        self._sample = context.settings.sample_rate > 0
        self._observe_transfers = context.settings.transfers
        self._transfers = parts.transfers
        self._errors = parts.errors
        self._cache = parts.cache
        self._patches = Patches()
        self._probes: list[Probe] = []
        self._attached: dict[str, bool] = {}
        core: Any = self._jax._src.core  # noqa: SLF001
        clean = getattr(core, "trace_state_clean", _always)
        self._sampling = parts.sampling
        self._calls = CallLayer(context.table, context.guard, self._sampling.made)
        self._misses = Misses(context, self._calls, payers, clean)
        self.compiles = Compiles(
            context, self._misses, parts.programs, parts.cache, clean=clean
        )
        self._leaving = Leaving(
            parts.errors, self._misses.function_of, clean, self._on_left
        )
        self._births = Births(
            self._leaving.on_birth, guard=context.guard, site="out_of_memory"
        )
        self._uncaught = Uncaught(self.see_error)
        self._listeners: Listeners | None = None
        self._active = True

    def attach(self) -> None:
        """Attach every hook that this JAX has a place for."""
        self._attach("monitoring", self._attach_monitoring)
        self._attach("compiles", self._attach_compiles)
        self._attach("persistent_cache", self._attach_persistent_cache)
        self._attach("misses", self._attach_misses)
        self._attached[causes.SITE] = (
            self._attached["compiles"] and self._attached["misses"]
        )
        self._attach("errors", self._attach_errors)
        self._attach("uncaught", self._attach_uncaught)
        self._attach("out_of_memory", self._attach_births)
        if self._observe_transfers:
            self._attach(methods.SITE, self._attach_transfers)
        if self._count_calls:
            self._attach(calls.SITE, self._attach_calls)
            if self._sample:
                self._attach(window.SITE, self._sampling.attach)

    def detach(self) -> None:
        """Put everything back that is still ours; the rest becomes a pass-through."""
        self._active = False
        for probe in self._probes:
            probe.active = False
        self._calls.active = False
        self._sampling.detach()
        self._births.detach()
        self._uncaught.detach()
        self._transfers.detach()
        self._patches.undo()
        if self._listeners is not None:
            self._listeners.unregister()

    def see_error(self, error: BaseException | None) -> None:
        """Count *error* if it is JAX's and was not counted before. Never raises."""
        if self._active and self._guard.on("uncaught"):
            try:
                self._errors.uncaught(error)
            except Exception:  # noqa: BLE001 - contained: the program is reporting
                self._guard.failed("uncaught")

    def is_active(self, hook: str) -> bool:
        """
        Tell whether *hook* is attached and neither it nor what it needs has switched
        itself off.
        """
        return self._attached.get(hook, False) and all(
            map(self._guard.on, (hook, *_NEEDS.get(hook, ())))
        )

    def active(self) -> dict[str, bool]:
        """
        Tell of each hook whether it observes; of monitoring, whether it heard all of
        the last compile, too. Tell of what else has switched itself off.
        """
        hooks = {hook: self.is_active(hook) for hook in list(self._attached)}
        if self.compiles.deaf:
            hooks[listeners.SITE] = False
        said = {*hooks, *(site for hook in hooks for site in _NEEDS.get(hook, ()))}
        return hooks | dict.fromkeys(sorted(set(self._guard.off) - said), False)

    def collect(self) -> list[Family]:
        """Tell which hooks observe, and bring back cleared listeners."""
        active = self.active()
        if self._listeners is not None and not self._listeners.restore():
            active[listeners.SITE] = False
        metric = catalog.HOOK_ACTIVE
        return [
            Family(
                metric,
                [
                    (series(metric, hook), int(observes))
                    for hook, observes in active.items()
                ],
            )
        ]

    def _attach(self, hook: str, attach: Callable[[], None]) -> None:
        before = self._patches.number
        try:
            attach()
        except Exception as missing:  # noqa: BLE001 - who knows what a JAX may raise
            interrupts.pass_on(missing)
            self._patches.undo(after=before)
            self._attached[hook] = False
            log.warning(
                "jaxmon's hook %r cannot attach to JAX %s: %s. Its metrics will be "
                "missing; everything else works.",
                hook,
                self._jax.__version__,
                missing,
            )
        else:
            self._attached[hook] = True

    def _on_left(self, frame: FrameType, jitted: Jitted) -> None:
        if self.is_active("misses"):  # else each would look like one not seen to begin
            self._misses.on_left(frame, jitted)

    def _attach_calls(self) -> None:
        self._calls.install(self._patches, self._jax)

    def _attach_transfers(self) -> None:
        self._transfers.attach(self._patches)

    def _attach_misses(self) -> None:
        for module, name in targets(self._jax):
            self._probe(module, name, self._misses.on_miss, "misses")
        pjit = self._jax._src.pjit  # noqa: SLF001
        if hasattr(pjit, "_get_fastpath_data"):  # else misses are counted, not told why
            self._probe(pjit, "_get_fastpath_data", self._misses.on_done, "misses")

    def _attach_compiles(self) -> None:
        compiler = self._jax._src.compiler  # noqa: SLF001
        observer = self.compiles.on_compile
        self._probe(compiler, "compile_or_get_cached", observer, "compiles")
        for name in (
            "backend_compile",
            "backend_compile_and_load",
        ):  # to 0.8; since 0.6
            if hasattr(compiler, name):
                self._probe(compiler, name, self.compiles.on_build, "compiles")
                self.compiles.sees_builds = True

    def _attach_persistent_cache(self) -> None:
        source, cache = self._jax._src, self._cache  # noqa: SLF001
        site = "persistent_cache"
        self._probe(source.compiler, "_cache_write", cache.on_write, site)
        for module, observe in (
            (source.compiler, cache.on_warning),
            (source.lru_cache, cache.on_refusal),
        ):
            warnings = module.warnings
            warn = Probe(warnings.warn, observe, guard=self._guard, site=site)
            self._probes.append(warn)
            self._patches.replace(module, "warnings", Stand(warnings, {"warn": warn}))

    def _attach_errors(self) -> None:
        util = self._jax._src.traceback_util  # noqa: SLF001
        self._probe(util, "_filtering_mode", self._leaving.on_error, "errors")

    def _attach_monitoring(self) -> None:
        heard = Listeners(
            self._jax._src.monitoring,  # noqa: SLF001
            self._guard,
            on_event=self.compiles.on_event,
            on_duration=self.compiles.on_duration,
        )
        self._listeners = heard
        try:
            heard.register()
        except BaseException:
            heard.unregister()
            raise
        self.compiles.listen = heard.restore

    def _attach_uncaught(self) -> None:
        self._uncaught.attach(self._patches)

    def _attach_births(self) -> None:
        # Named so since 0.4.14; before 0.8 an alias of jaxlib's XlaRuntimeError.
        self._births.attach(self._jax.errors.JaxRuntimeError)

    def _probe(
        self, module: ModuleType, name: str, observe: Observer, site: str
    ) -> None:
        # Every observer asks it whether JAX is tracing.
        _ = self._jax._src.core.trace_state_clean  # noqa: SLF001
        probe = Probe(getattr(module, name), observe, guard=self._guard, site=site)
        self._probes.append(probe)
        self._patches.replace(module, name, probe)


def _always() -> bool:
    return True
