"""
The call layer: counts calls of functions from `jax.jit` and `jax.pmap`.

These return a `CountedFunction` in place of JAX's object.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import TYPE_CHECKING, Any

from jaxmon import catalog
from jaxmon.agent.counted import CountedFunction, jitted_of, uncounted
from jaxmon.agent.functions import Function, active, by_function, label
from jaxmon.agent.guard import Guard
from jaxmon.agent.inspection import AnyCall
from jaxmon.agent.jaxlink import patches as patch_targets
from jaxmon.agent.jaxlink.hooks import HookPlaces, Hooks
from jaxmon.agent.jaxlink.jit import is_jitted, missing
from jaxmon.agent.jaxlink.source_lines import ProgramLine, SourceLineFinder
from jaxmon.agent.part import Explanation, Part
from jaxmon.exposition.families import Family


if TYPE_CHECKING:
    from jaxmon.agent.context import Context
    from jaxmon.facts.functions import Counted


SITE = "calls"


class CallLayer(Part):
    """
    Counts the calls of what `jax.jit` and `jax.pmap` create, and registers these
    objects.

    `jax.jit` and `jax.pmap` themselves are not replaced, but the functions that create
    their objects, which JAX looks up on each use. So jit bound by ``from jax import
    jit`` before us counts too, both are pickled as without us, and no user code runs
    below our frame. Functions of JAX itself are not counted.
    """

    name = "calls"

    def __init__(self, context: Context) -> None:
        self._jax = context.jax
        self._table = context.table
        self._guard = context.guard
        self._registry = context.registry
        self._lines = SourceLineFinder(context.jax)
        self._hooks: Hooks | None = None
        self.active = True

    def attach(self, hooks: Hooks) -> None:
        """Patch JAX. Functions created earlier are observed on the miss path only."""
        self._hooks = hooks
        hooks.attach(SITE, self._take, needs=("eval_shape",))

    def _take(self, at: HookPlaces) -> None:
        jax = self._jax
        maker = patch_targets.jit_maker(jax)
        original = getattr(maker.owner, maker.name)
        # First, since it needs an attribute that a future JAX may not have.
        _unwrap_for_eval_shape(jax, self._guard)
        at.undo_by(self._rest)
        at.replace(maker.owner, maker.name, self._counting_jit(original))
        self._registry.complete = True
        pmap = patch_targets.pmap_maker(jax)
        if pmap is not None:
            original = getattr(pmap.owner, pmap.name)
            at.replace(pmap.owner, pmap.name, self._counting_pmap(original))

    def _rest(self) -> None:
        self.active = self._registry.complete = False

    def collect(self) -> list[Family]:
        """
        Return calls and hits. Without the hook for misses, each call would be a hit.
        """
        found = [(f, *f.calls_and_hits()) for f in active(self._table) if f.counted]
        calls = [(f, number) for f, number, _ in found]
        hits = [(f, number) for f, _, number in found] if self._hits_known else []
        return [
            by_function(catalog.JIT_CALLS, calls),
            by_function(catalog.JIT_CACHE_HITS, hits),
        ]

    def explain(self) -> Explanation:
        """Return calls and hits."""
        return Explanation(functions={"counted": self._counted_calls})

    def _counted_calls(self) -> dict[str, Counted]:
        from jaxmon.facts.functions import Counted  # noqa: PLC0415 - on request

        hits_known = self._hits_known
        return {
            function.name: Counted(calls=calls, hits=hits if hits_known else None)
            for function in self._table
            if function.counted
            for calls, hits in (function.calls_and_hits(),)
        }

    @property
    def _hits_known(self) -> bool:
        return self._hooks is not None and self._hooks.is_active("misses")

    def _counting_jit(self, original: AnyCall) -> AnyCall:
        code = missing(original)
        self._registry.codes_tell = code is not None

        @functools.wraps(original)
        def make(fun: AnyCall, jit_info: Any) -> Any:
            found = self._counted(fun, sys._getframe(1))  # noqa: SLF001 - who jits
            if found is None:
                return original(fun, jit_info)
            jitted = self._maker(original, code, found[0])(fun, jit_info)
            return self._count(jitted, jit_info, *found)

        return make

    def _counting_pmap(self, original: AnyCall) -> AnyCall:
        @functools.wraps(original)
        def pmap(fun: AnyCall, *args: Any, **kwargs: Any) -> Any:
            self._registry.codes_tell = False
            found = self._counted(fun, sys._getframe(1))  # noqa: SLF001 - who jits
            jitted = original(fun, *args, **kwargs)
            return jitted if found is None else self._count(jitted, fun, *found)

        return pmap

    def _maker(
        self, original: AnyCall, code: types.CodeType | None, function: Function
    ) -> AnyCall:
        """Return *original*, or a copy in which *function* has *code* of its own."""
        if code is None:
            return original
        try:
            return self._registry.maker(original, code, function)
        except Exception:  # noqa: BLE001 - contained: the user gets JAX's object
            self._registry.codes_tell = False
            self._guard.failed(SITE)
            return original

    def _counted(
        self, fun: AnyCall, frame: types.FrameType
    ) -> tuple[Function, ProgramLine | None] | None:
        """Return where calls of *fun* count, if not JAX's, and where it is jitted."""
        try:
            if self.active and SITE not in self._guard.off:
                line = self._lines.that_jits(frame)
                name, internal = label(fun, line)
                if internal:
                    return None
                function = self._table.named(name)
                function.defined_by(fun)
                return function, line
        except Exception:  # noqa: BLE001 - contained: the user gets JAX's object
            self._guard.failed(SITE)
        return None

    def _count(
        self, jitted: AnyCall, key: object, function: Function, line: ProgramLine | None
    ) -> AnyCall:
        """Return *jitted* so that it counts for *function*; *key* as in `Registry`."""
        try:
            again = functools.partial(self._again, key, function, line)
            counted = CountedFunction(jitted, again)
            self._registry.add(function, counted, key, line)
        except Exception:  # noqa: BLE001 - contained: the user gets JAX's object
            self._guard.failed(SITE)
            return jitted
        return counted

    def _again(
        self, key: object, function: Function, line: ProgramLine | None, jitted: AnyCall
    ) -> AnyCall:
        return self._count(jitted, key, function, line) if self.active else jitted


def _unwrap_for_eval_shape(jax: types.ModuleType, guard: Guard) -> None:
    """Let `jax.eval_shape` see the jitted function inside a `CountedFunction`."""

    def unwrap(fun: object) -> AnyCall | None:
        ours = isinstance(fun, CountedFunction)
        return jitted_of if ours and is_jitted(uncounted(fun)) else None

    patch_targets.attach_eval_shape(jax, unwrap, guard)
