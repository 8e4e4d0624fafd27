"""
The board of hooks: what is taken in JAX, under which name, and the way back.

Each hook is independent: what a future JAX no longer has costs the figures of that hook
only, which is said once in the log and by ``jaxmon_hook_active``. That tells of every
other part that has switched itself off, too: of the hook that needs it, or by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from jaxmon import catalog, interrupts
from jaxmon.agent.guard import Guard, log
from jaxmon.agent.jaxlink.configuration import is_calling
from jaxmon.agent.jaxlink.listeners import SITE as MONITORING
from jaxmon.agent.jaxlink.listeners import Listeners, OnDuration, OnEvent
from jaxmon.agent.jaxlink.patches import Patches
from jaxmon.agent.jaxlink.probe import Observer, Probe
from jaxmon.exposition.families import Family, series


class Hooks:
    """
    All hooks of one agent.

    Args:
        jax: the module.
        guard: contains failures of observers.

    Attributes:
        on: whether they are attached, or about to be.
        is_calling: tells whether the program itself calls, and not JAX while it traces.
        probes: what stands in for functions of JAX.
        patches: the attributes that are replaced.
        listeners: what hears JAX's events, once it was attached.
    """

    def __init__(self, jax: Any, guard: Guard) -> None:
        self._jax = jax
        self._guard = guard
        self.on = True
        self.is_calling = _is_calling(jax)
        self.probes: list[Probe] = []
        self.patches = Patches()
        self.listeners: Listeners | None = None
        self._undo: list[Callable[[], None]] = []
        self._attached: dict[str, bool] = {}
        self._needs: dict[str, tuple[str, ...]] = {}
        self._observes: dict[str, Callable[[], bool]] = {}
        self._events: dict[str, OnEvent] = {}
        self._durations: dict[str, OnDuration] = {}

    # --- attaching ---------------------------------------------------------------

    def attach(
        self,
        name: str,
        take: Callable[[Places], None],
        *,
        needs: tuple[str, ...] = (),
    ) -> None:
        """
        Attach the hook *name*. One that cannot be is taken off again and reported.

        Args:
            name: of the hook.
            take: takes its places; raises what it likes where JAX lacks one.
            needs: other sites of the guard without which its figures suffer.
        """
        patched, undone = self.patches.number, len(self._undo)
        self._needs[name] = needs
        try:
            take(Places(self, self._guard, name))
        except Exception as missing:  # noqa: BLE001 - who knows what a JAX may raise
            interrupts.pass_on(missing)
            self._take_back(undone)
            self.patches.undo(after=patched)
            self.lose(name)
            log.warning(
                "jaxmon's hook %r cannot attach to JAX %s: %s. Its metrics will be "
                "missing; everything else works.",
                name,
                self._jax.__version__,
                missing,
            )
        else:
            self._attached[name] = True

    def derive(self, name: str, *hooks: str) -> None:
        """Have a hook *name* that observes through *hooks*, if all could attach."""
        self._attached[name] = all(self._attached.get(hook) for hook in hooks)

    def lose(self, name: str) -> None:
        """Have the hook *name* observe no more, as one that has no place in JAX."""
        self._attached[name] = False

    def hear(
        self,
        events: Mapping[str, OnEvent],
        durations: Mapping[str, OnDuration],
    ) -> None:
        """Have events of `jax.monitoring` passed on, each to one, once `listen` ran."""
        self._events.update(events)
        self._durations.update(durations)

    def listen(self, *, observes: Callable[[], bool]) -> None:
        """
        Attach the hook ``monitoring``.

        Args:
            observes: tells whether everything that happened was heard.
        """
        self._observes[MONITORING] = observes
        self.attach(MONITORING, self._register)

    def heard(self) -> bool:
        """
        Have events heard from now on, should the listeners have been cleared; return
        whether they were until now.
        """
        return self.listeners is not None and self.listeners.restore()

    def undo_by(self, call: Callable[[], None]) -> None:
        """Have *call* undo what was attached; harmless when repeated."""
        self._undo.append(call)

    def detach(self) -> None:
        """Restore every patch that is still ours; the rest become pass-throughs."""
        self.on = False
        for probe in self.probes:
            probe.active = False
        self._take_back(0)
        self.patches.undo()
        if self.listeners is not None:
            self.listeners.unregister()

    # --- reading -----------------------------------------------------------------

    def is_active(self, name: str) -> bool:
        """
        Tell whether the hook *name* is attached and neither it nor what it needs has
        switched itself off.
        """
        return self._attached.get(name, False) and all(
            map(self._guard.on, (name, *self._needs.get(name, ())))
        )

    def active(self) -> dict[str, bool]:
        """
        Tell of each hook whether it observes, and heard all that it should have. Tell
        of what else has switched itself off.
        """
        hooks = {name: self.is_active(name) for name in list(self._attached)}
        for name, observes in self._observes.items():
            hooks[name] = hooks.get(name, False) and observes()
        said = {*hooks, *(site for name in hooks for site in self._needs.get(name, ()))}
        return hooks | dict.fromkeys(sorted(set(self._guard.off) - said), False)

    def collect(self) -> list[Family]:
        """Export hook status, and re-register cleared listeners."""
        active = self.active()
        if self.listeners is not None and not self.listeners.restore():
            active[MONITORING] = False
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

    # --- inside ------------------------------------------------------------------

    def _register(self, _: Places) -> None:
        self.listeners = listeners = Listeners(
            self._jax._src.monitoring,  # noqa: SLF001
            self._guard,
            events=self._events,
            durations=self._durations,
        )
        try:
            listeners.register()
        except BaseException:
            listeners.unregister()
            raise

    def _take_back(self, first: int) -> None:
        for call in reversed(self._undo[first:]):
            call()


class Places:
    """What one hook takes in JAX; all of it is taken back with the hook."""

    def __init__(self, hooks: Hooks, guard: Guard, site: str) -> None:
        self._hooks = hooks
        self._guard = guard
        self._site = site

    def probe(self, owner: ModuleType, name: str, observe: Observer) -> None:
        """Show each call of ``owner.name`` to *observe*."""
        self.replace(owner, name, self.stand_in(getattr(owner, name), observe))

    def stand_in(self, original: Callable[..., Any], observe: Observer) -> Probe:
        """Return what shows each call of *original* to *observe*."""
        probe = Probe(original, observe, guard=self._guard, site=self._site)
        self._hooks.probes.append(probe)
        return probe

    def replace(self, owner: ModuleType | type, name: str, ours: object) -> None:
        """Put *ours* in place of ``owner.name``."""
        self._hooks.patches.replace(owner, name, ours)

    def undo_by(self, call: Callable[[], None]) -> None:
        """Have *call* undo what is attached next; harmless when repeated."""
        self._hooks.undo_by(call)


def _is_calling(jax: Any) -> Callable[[], bool]:
    """Return what a JAX has for it; without it, no hook that asks can attach."""
    try:
        return is_calling(jax)
    except AttributeError:
        return _always


def _always() -> bool:
    return True
