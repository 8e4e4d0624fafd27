"""Which of the programs that a warm-up made calls have used since."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from jaxmon.agent.context import Observers
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.jit import forget_fast_path
from jaxmon.facts.events import WarmedFunction
from jaxmon.facts.signatures import RecordedSignature, texts
from jaxmon.indicators.endings import now
from jaxmon.threads import get_ident


_SHOWN = 50


@dataclass(slots=True, eq=False)
class _Program:
    """What a warm-up made: *seen* if its executable is, *used* since."""

    name: str
    key: int
    signature: RecordedSignature | None
    seconds: float
    seen: bool = False
    used: bool = False
    text: str = ""


class WarmedPrograms:
    """
    The programs of warm-ups, and which of them were used since. Thread-safe.

    Which program a cached call runs is decided in C++. After JAX was made to forget
    that, the next call of each program is looked up in Python, where its executable is
    seen. So the first use is noticed, however rare, and later calls cost what they did.
    """

    def __init__(
        self, observers: Observers, calls: Callable[[str], int | None], place: str
    ) -> None:
        self._observers, self._calls, self.place = observers, calls, place
        self._programs: dict[str, list[_Program]] = {}
        # By the id of an executable, which dies with the weak reference to it.
        self._made: dict[int, tuple[weakref.ref[Any], list[_Program]]] = {}
        self._making: dict[int, _Program] = {}
        self._jitted: weakref.WeakSet[Any] = weakref.WeakSet()
        self._before: dict[str, int | None] = {}

    def watch(self, several: Iterable[Any]) -> None:
        """Notice uses of programs of these jitted objects, JAX's own."""
        for jitted in several:
            forget_fast_path(jitted)
            self._jitted.add(jitted)
            if self._served not in self._observers.served:
                self._observers.served.append(self._served)

    def begin(self, name: str, signature: RecordedSignature) -> None:
        """Record that this thread makes a program of the function *name* next."""
        self._making[get_ident()] = _Program(name, _key(signature), signature, -now())

    def end(self, *, failed: bool) -> None:
        """Record that this thread has made it, or *failed* to."""
        made = self._making.pop(get_ident())
        made.seconds += now()
        if not failed:
            self._programs.setdefault(made.name, []).append(made)

    def start(self) -> None:
        """Count uses from now on: the process is warm."""
        for jitted in list(self._jitted):
            forget_fast_path(jitted)
        for name, several in self._programs.copy().items():
            self._before[name] = self._calls(name)
            new = [(made, made.signature) for made in several if made.signature]
            described = texts([signature for _, signature in new])
            for (made, _), text in zip(new, described, strict=True):
                made.text, made.signature = text, None
            for made in several.copy():
                made.used = False

    def _served(self, function: Function, executable: Any) -> None:
        making = self._making.get(get_ident())
        if executable is None:
            return
        key = id(executable)
        if making is None:
            for made in self._made.get(key, (None, ()))[1]:
                made.used = True
        elif making.name == function.name:
            making.seen = True
            dead = weakref.ref(executable, lambda _: self._made.pop(key, None))
            self._made.setdefault(key, (dead, []))[1].append(making)

    def _calls_since(self, name: str) -> int | None:
        before, calls = self._before.get(name), self._calls(name)
        return None if before is None or calls is None else calls - before

    def _is_used(self, made: _Program) -> bool | None:
        """Return whether *made* was used since, `None` if that is not known."""
        idle = self._calls_since(made.name) == 0
        return False if idle else made.used if made.seen else None

    def explain(self) -> tuple[WarmedFunction, ...]:
        """Return what was made of each function, and what of it was never used."""
        found = []
        for name, several in self._programs.copy().items():
            used = {made: self._is_used(made) for made in several.copy()}
            idle = [made for made, state in used.items() if state is False]
            found.append(
                WarmedFunction(
                    name=name,
                    signatures=len(used),
                    calls=self._calls_since(name),
                    used=sum(state is True for state in used.values()),
                    unused=len(idle),
                    unused_signatures=tuple(made.text for made in idle[:_SHOWN]),
                    seconds=sum((made.seconds for made in idle), 0.0),
                )
            )
        return tuple(found)

    def used(self, name: str, signature: RecordedSignature) -> bool | None:
        """Return whether *signature* of a function was used, `None` if unknown."""
        for made in self._programs.get(name, []).copy():
            if made.key == _key(signature):
                return self._is_used(made)
        return None


def _key(signature: RecordedSignature) -> int:
    return hash(json.dumps([signature.args, dict(signature.kwargs)], sort_keys=True))
