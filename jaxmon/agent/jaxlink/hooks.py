"""
Attaches the hooks to JAX, by name, and detaches them.

Each hook is independent: if a future JAX lacks something, only the metrics of that hook
are missing, which is logged once and exported as ``jaxmon_hook_active``. The same
metric reports every other part that has disabled itself, by the hook that needs it or
by its own name.

JAX's post-call hook for the C++ fast path is there for ``jax_debug_nans``: one callable
per process, called with the jitted object, its arguments and its outputs, after the
call and outside any frame of JAX. It is not part of any cache key. Everything that runs
a cached program passes there: jitted functions whenever they were created, operations
on arrays, ahead-of-time compiled functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, TypeAlias

from jaxmon import catalog, interrupts
from jaxmon.agent.guard import Allowance, Guard, log
from jaxmon.agent.jaxlink.backends import is_calling
from jaxmon.agent.jaxlink.listeners import SITE as MONITORING
from jaxmon.agent.jaxlink.listeners import Listeners, Observer, Probe
from jaxmon.agent.jaxlink.patches import Owner, Patches, restore_copies
from jaxmon.exposition.families import Family, family_of


class Hooks:
    """All hooks of one agent; *is_calling* asks whether the program, not JAX, calls."""

    def __init__(self, jax: Any, guard: Guard) -> None:
        self._jax = jax
        self._guard = guard
        self.on = True
        self.is_calling = _is_calling(jax)
        self.probes: list[Probe] = []
        self.patches = Patches()
        self.listeners: Listeners | None = None
        self.undo: list[Callable[[], None]] = []
        self._attached: dict[str, bool] = {}
        self._derived: dict[str, tuple[str, ...]] = {}
        self._needs: dict[str, tuple[str, ...]] = {}
        self._observes: Callable[[], bool] = _always
        # What hears events, durations and scalars, by name.
        self.heard: tuple[dict[str, Callable[..., None]], ...] = ({}, {}, {})

    def attach(
        self,
        name: str,
        take: Callable[[HookPlaces], None],
        *,
        needs: tuple[str, ...] = (),
    ) -> None:
        """
        Attach the hook *name*, or undo it and warn if *take* raises anything. Other
        sites that its metrics depend on are what it *needs*.
        """
        if self._is_detached():  # a late part of an agent that has stopped meanwhile
            return
        patched, undone = self.patches.number, len(self.undo)
        self._needs[name] = needs
        try:
            take(HookPlaces(self, self._guard, name))
        except Exception as missing:  # noqa: BLE001 - who knows what a JAX may raise
            interrupts.pass_on(missing)
            self._take_back(undone)
            self.patches.undo(after=patched)
            self.lose(name)
            log.warning(
                "jaxmon's hook %r cannot attach to JAX %s: %s. Its metrics will "
                "be missing; everything else works.",
                name,
                self._jax.__version__,
                missing,
            )
        else:
            self._attached[name] = True
            if self._is_detached():
                self.detach()

    def _is_detached(self) -> bool:
        return not self.on

    def derive(self, name: str, *hooks: str) -> None:
        """Define a hook that observes through *hooks*, active if all of them are."""
        self._derived[name] = hooks

    def lose(self, name: str) -> None:
        """Mark the hook *name* as inactive."""
        self._attached[name] = False

    def hear(self, *hearing: Mapping[str, Callable[..., None]]) -> None:
        """Pass events, durations and scalars of JAX to these after `listen`."""
        for heard, more in zip(self.heard, hearing, strict=False):
            heard.update(more)

    def listen(self, *, observes: Callable[[], bool]) -> None:
        """Attach ``monitoring``; *observes* returns whether it missed no event."""
        self._observes = observes
        self.attach(MONITORING, self._register)

    def detach(self) -> None:
        """Restore every patch that is still ours; the rest become pass-throughs."""
        self.on = False
        for probe in self.probes:
            probe.deactivate()
        self._take_back(0)
        restore_copies(self.patches.undo())
        if self.listeners is not None:
            self.listeners.unregister()

    def is_active(self, name: str) -> bool:
        """Return whether it is attached, and it and what it needs are not disabled."""
        hooks = self._derived.get(name, (name,))
        return all([self._attached.get(hook, False) for hook in hooks]) and all(
            map(self._guard.on, (name, *self._needs.get(name, ())))
        )

    def active(self) -> dict[str, bool]:
        """Return which hooks are active and missed no events, and what is disabled."""
        names = [*self._attached, *self._derived]
        hooks = {name: self.is_active(name) for name in names}
        if MONITORING in hooks:
            hooks[MONITORING] = hooks[MONITORING] and self._observes()
        listed = {
            *hooks,
            *[site for name in hooks for site in self._needs.get(name, ())],
        }
        return hooks | dict.fromkeys(sorted(set(self._guard.off) - listed), False)

    def collect(self) -> list[Family]:
        """Export hook status, and re-register cleared listeners."""
        active = self.active()
        # While it attaches, nothing is said of it yet.
        listeners = self.listeners if MONITORING in active else None
        if listeners is not None and not listeners.restore():
            active[MONITORING] = False
        rows = [(hook, int(observes)) for hook, observes in active.items()]
        return [family_of(catalog.HOOK_ACTIVE, rows)]

    def _register(self, _: HookPlaces) -> None:
        monitoring = self._jax._src.monitoring  # noqa: SLF001
        self.listeners = listeners = Listeners(monitoring, self._guard, *self.heard)
        try:
            listeners.register()
        except BaseException:
            listeners.unregister()
            raise

    def _take_back(self, first: int) -> None:
        for call in reversed(self.undo[first:]):
            call()


class HookPlaces:
    """Attaches one hook; everything is undone with the hook."""

    def __init__(self, hooks: Hooks, guard: Guard, site: str) -> None:
        self._hooks = hooks
        self._guard = guard
        self._site = site

    def probe(
        self,
        owner: ModuleType,
        name: str,
        observe: Observer,
        allowance: Allowance | None = None,
        caller: str | None = None,
    ) -> None:
        """Pass calls of ``owner.name``, by *caller* if given, to *observe*."""
        probe = self.stand_in(getattr(owner, name), observe, allowance, caller)
        self.replace(owner, name, probe)

    def stand_in(
        self,
        original: Callable[..., Any],
        observe: Observer,
        allowance: Allowance | None = None,
        caller: str | None = None,
    ) -> Probe:
        """Return a probe that passes each call of *original* to *observe*."""
        probe = Probe(
            original,
            observe,
            guard=self._guard,
            site=self._site,
            allowance=allowance,
            caller=caller,
        )
        self._hooks.probes.append(probe)
        return probe

    def replace(self, owner: Owner, name: str, ours: object) -> None:
        """Replace ``owner.name`` with *ours*."""
        self._hooks.patches.replace(owner, name, ours)

    def undo_by(self, call: Callable[[], None]) -> None:
        """Register *call* to undo what is attached next; it must be idempotent."""
        self._hooks.undo.append(call)


def _is_calling(jax: Any) -> Callable[[], bool]:
    try:
        return is_calling(jax)
    except AttributeError:
        return _always


def _always() -> bool:
    return True


# Jitted object, positional arguments, keyword arguments, outputs.
Hook: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]


def orders_across_devices(jax: Any) -> bool:
    """Return whether the CPU backend runs programs in order across its devices."""
    return bool(jax.__version_info__ < (0, 6))


class PostCallHook:
    """
    Temporary owner of JAX's post-call hook, only while no other code uses it. Raises
    `AttributeError` if this JAX has none.

    JAX assigns it when a debugging setting is enabled, on any thread. So after each
    assignment of ours we check the settings, and restore JAX's hook if it was enabled
    in between: the setting changes before the hook.

    There is one hook for the process and one per thread, which takes precedence. JAX
    itself leaves `None` in a thread's, which hides the other: using ``jax.debug_nans``
    as a context manager is enough. The hook is ``api._post_hook_state`` since 0.7;
    before, an attribute of the states of ``jax_jit``, where `None` hides nothing.
    """

    def __init__(self, jax: Any) -> None:
        self._get: Callable[[], Hook | None]
        self._set: Callable[[Hook | None], None]
        self._get_local: Callable[[], Hook | None]
        self._set_local: Callable[[Hook | None], None]
        config = jax._src.config  # noqa: SLF001
        self._settings = (config.debug_nans, config.debug_infs)
        self._theirs: Hook = jax._src.api._nan_check_posthook  # noqa: SLF001
        state = getattr(jax._src.api, "_post_hook_state", None)  # noqa: SLF001
        if state is not None:
            self._get, self._set = state.get_global, state.set_global
            self._get_local, self._set_local = state.get_local, state.set_local
            self._nothing = jax._src.config.config_ext.unset  # noqa: SLF001
            return
        jit = jax._src.lib.jax_jit  # noqa: SLF001
        shared = jit.global_state()
        _ = shared.post_hook
        self._get = lambda: shared.post_hook
        self._set = lambda hook: setattr(shared, "post_hook", hook)
        self._get_local = lambda: jit.thread_local_state().post_hook
        self._set_local = lambda _: None
        self._nothing = None

    def take(self, hook: Hook) -> bool:
        """Install *hook*; return whether the slot was free or already ours."""
        there, local = self._get(), self._get_local()
        if there not in (None, hook) or local not in (None, self._nothing, hook):
            return False
        if there is None:
            self._set(hook)
            self._settle()
            if self._get() != hook:
                return False
        if local is None:
            self._set_local(hook)
        return True

    def leave(self, hook: Hook) -> None:
        """Remove *hook* if it is still installed, for the process and this thread."""
        if self._get() == hook:
            self._set(None)
            self._settle()
        if self._get_local() == hook:
            self._set_local(None)

    def _settle(self) -> None:
        while (wanted := self._wanted()) != (self._get() is self._theirs):
            self._set(self._theirs if wanted else None)

    def _wanted(self) -> bool:
        # JAX 0.4 has no public access to the global value.
        return any(
            [
                setting.get_global()
                if hasattr(setting, "get_global")
                else setting._value  # noqa: SLF001
                for setting in self._settings
            ]
        )
