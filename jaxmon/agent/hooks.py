"""
Attaches the hooks to JAX, and takes them off again.

| hook | what it attaches to | what it yields |
|---|---|---|
| calls | ``pjit._cpp_pjit``, `jax.pmap` | calls and hits |
| misses | ``pjit._infer_params``, pmap's ``_prepare_pmap`` | misses |
| compiles | ``compiler.compile_or_get_cached`` | compiles, in progress |
| monitoring | `jax.monitoring` | phases, outcomes, persistent cache |
| errors | ``traceback_util._filtering_mode`` | errors that leave a call |
| uncaught | `sys.excepthook`, `threading.excepthook` | errors nobody caught |

Each is independent: what a future JAX no longer has costs the figures of that hook
only, which is said once in the log and by ``jaxmon_hook_active``.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import ModuleType, TracebackType
from typing import Any

from jaxmon import catalog
from jaxmon.agent import calls
from jaxmon.agent.calls import CallLayer
from jaxmon.agent.compiles import Compiles
from jaxmon.agent.functions import FunctionTable
from jaxmon.agent.guard import Guard, log
from jaxmon.agent.listeners import Listeners
from jaxmon.agent.misses import Misses, targets
from jaxmon.agent.patches import Patches
from jaxmon.agent.payers import Payers
from jaxmon.agent.probe import Observer, Probe
from jaxmon.exposition.families import Family, series


class Hooks:
    """
    All hooks of one agent.
    """

    def __init__(
        self,
        jax: ModuleType,
        table: FunctionTable,
        guard: Guard,
        payers: Payers,
        *,
        count_calls: bool,
    ) -> None:
        self._jax: Any = jax
        self._guard = guard
        self._count_calls = count_calls
        self._patches = Patches()
        self._probes: list[Probe] = []
        self._attached: dict[str, bool] = {}
        core: Any = jax._src.core  # noqa: SLF001
        clean = getattr(core, "trace_state_clean", _always)
        self._calls = CallLayer(table, guard)
        self._misses = Misses(table, self._calls, payers, clean)
        self.compiles = Compiles(
            table,
            self._misses,
            guard,
            clean=clean,
            persistent_cache=lambda: bool(self._jax.config.jax_compilation_cache_dir),
        )
        self._listeners: Listeners | None = None
        self._active = True

    def attach(self) -> None:
        """
        Attach every hook that this JAX has a place for.
        """
        self._attach("monitoring", self._attach_monitoring)
        self._attach("compiles", self._attach_compiles)
        self._attach("misses", self._attach_misses)
        self._attach("errors", self._attach_errors)
        self._attach("uncaught", self._attach_uncaught)
        if self._count_calls:
            self._attach(calls.SITE, self._attach_calls)

    def detach(self) -> None:
        """
        Put everything back that is still ours; the rest becomes a pass-through.
        """
        self._active = False
        for probe in self._probes:
            probe.active = False
        self._calls.active = False
        self._patches.undo()
        if self._listeners is not None:
            self._listeners.unregister()

    def see_error(self, error: BaseException | None) -> None:
        """
        Count *error* if it is JAX's and was not counted before. Never raises.
        """
        if self._active and self._guard.on("uncaught"):
            try:
                self._misses.on_uncaught(error)
            except Exception:  # noqa: BLE001 - contained: the program is reporting
                self._guard.failed("uncaught")

    def is_active(self, hook: str) -> bool:
        """
        Tell whether *hook* is attached and has not switched itself off.
        """
        return self._attached.get(hook, False) and self._guard.on(hook)

    def collect(self) -> list[Family]:
        """
        Tell which hooks observe, and bring back cleared listeners.
        """
        if self._listeners is not None:
            self._listeners.restore()
        metric = catalog.HOOK_ACTIVE
        return [
            Family(
                metric,
                [
                    (series(metric, hook), int(self.is_active(hook)))
                    for hook in self._attached
                ],
            )
        ]

    def _attach(self, hook: str, attach: Callable[[], None]) -> None:
        try:
            attach()
        except (AttributeError, KeyError, ImportError) as missing:
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

    def _attach_calls(self) -> None:
        self._calls.install(self._patches, self._jax)

    def _attach_misses(self) -> None:
        for module, name in targets(self._jax):
            self._probe(module, name, self._misses.on_miss, "misses")

    def _attach_compiles(self) -> None:
        compiler = self._jax._src.compiler  # noqa: SLF001
        observer = self.compiles.on_compile
        self._probe(compiler, "compile_or_get_cached", observer, "compiles")

    def _attach_errors(self) -> None:
        util = self._jax._src.traceback_util  # noqa: SLF001
        self._probe(util, "_filtering_mode", self._misses.on_error, "errors")

    def _attach_monitoring(self) -> None:
        self._listeners = Listeners(
            self._jax._src.monitoring,  # noqa: SLF001
            self._guard,
            on_event=self.compiles.on_event,
            on_duration=self.compiles.on_duration,
        )
        self._listeners.register()

    def _attach_uncaught(self) -> None:
        # Plain functions: an excepthook does not stand in the traceback it prints.
        hook, thread_hook = sys.excepthook, threading.excepthook

        @functools.wraps(hook)
        def excepthook(
            kind: type[BaseException], error: BaseException, tb: TracebackType | None
        ) -> None:
            self.see_error(error)
            hook(kind, error, tb)

        @functools.wraps(thread_hook)
        def thread_excepthook(args: threading.ExceptHookArgs) -> None:
            self.see_error(args.exc_value)
            thread_hook(args)

        self._patches.replace(sys, "excepthook", excepthook)
        self._patches.replace(threading, "excepthook", thread_excepthook)

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
