"""Listeners of `jax.monitoring` while agents come and go on other threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.listeners import Listeners


class Monitoring(ModuleType):
    """JAX's lists, and a *pause* in the middle of the first registration."""

    def __init__(self, pause: Callable[[], None]) -> None:
        super().__init__("monitoring")
        self.events: list[Any] = []
        self.durations: list[Any] = []
        self.pause: Callable[[], None] | None = pause

    def register_event_listener(self, listener: Any) -> None:
        pause, self.pause = self.pause, None
        if pause is not None:
            pause()
        self.events.append(listener)

    def register_event_duration_secs_listener(self, listener: Any) -> None:
        self.durations.append(listener)

    def get_event_listeners(self) -> list[Any]:
        return list(self.events)

    def get_event_duration_listeners(self) -> list[Any]:
        return list(self.durations)

    def unregister_event_listener(self, listener: Any) -> None:
        self.events.remove(listener)

    def unregister_event_duration_listener(self, listener: Any) -> None:
        self.durations.remove(listener)


def listeners(monitoring: Monitoring) -> Listeners:
    return Listeners(
        monitoring,
        Guard(),
        events={},
        durations={},
        scalars={},
    )


def test_a_compile_while_they_are_registered_adds_none(caplog):
    """It asks whether they are there, on another thread; nothing was cleared."""
    threads: list[threading.Thread] = []

    def pause() -> None:
        threads.append(threading.Thread(target=ours.restore))
        threads[0].start()
        threads[0].join(0.2)

    monitoring = Monitoring(pause)
    ours = listeners(monitoring)
    ours.register()
    threads[0].join()
    assert [len(monitoring.events), len(monitoring.durations)] == [1, 1]
    assert caplog.records == []
    ours.unregister()
    assert monitoring.events == monitoring.durations == []


def test_none_stays_that_is_restored_while_they_are_taken_off() -> None:
    """The agent goes between the look of a compile and its mend."""
    monitoring = Monitoring(lambda: None)
    ours = listeners(monitoring)
    ours.register()
    monitoring.events.clear()
    monitoring.pause = ours.unregister
    assert not ours.restore()
    assert monitoring.events == monitoring.durations == []
