"""Which of the programs that a warm-up made calls have used since."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterable
from hashlib import blake2s
from typing import Any

from jaxmon.agent.context import Observers
from jaxmon.agent.functions import Function
from jaxmon.agent.jaxlink.jit import forget_fast_path
from jaxmon.facts.events import WarmedFunction
from jaxmon.facts.signatures import RecordedSignature, texts
from jaxmon.indicators.endings import now
from jaxmon.threads import RLock, get_ident


_MOST = 10_000
_SHOWN = 50


class WarmedProgram:
    """
    What a warm-up made.

    Attributes:
        seconds: that this took.
        seen: whether its executable is known, so that its first use will be noticed.
        used: whether a call has used it since.
        text: what is peculiar to its signature, which is not kept.
        key: equal for equal signatures.
    """

    __slots__ = (
        *("began", "key", "name", "seconds", "seen", "signature", "text", "used"),
    )

    def __init__(self, name: str, signature: RecordedSignature) -> None:
        self.name, self.began = name, now()
        self.signature: RecordedSignature | None = signature
        self.seconds, self.seen, self.used = 0.0, False, False
        self.text, self.key = "", key_of(signature.args, signature.kwargs)


class WarmedPrograms:
    """
    The programs of warm-ups, and which of them were used since. Thread-safe.

    Which program a cached call runs is decided in C++. After JAX was made to forget
    that, the next call of each program is looked up in Python, where its executable is
    seen. So the first use is noticed, however rare, and the calls after it cost what
    they did.

    Args:
        observers: where calls find this.
        calls: returns the calls of a function so far, `None` if they are not counted.
    """

    def __init__(
        self, observers: Observers, calls: Callable[[str], int | None]
    ) -> None:
        self._observers, self._calls = observers, calls
        self._lock = RLock()
        self._programs: list[WarmedProgram] = []
        # By the id of an executable, which dies with the weak reference to it.
        self._made: dict[int, tuple[weakref.ref[Any], list[WarmedProgram]]] = {}
        self._making: dict[int, WarmedProgram] = {}
        self._jitted: dict[int, weakref.ref[Any]] = {}
        self._before: dict[str, int | None] = {}
        self.place = ""

    def watch(self, several: Iterable[Any]) -> None:
        """Notice uses of programs of these jitted objects, JAX's own."""
        for jitted in several:
            forget_fast_path(jitted)
            self._jitted[id(jitted)] = weakref.ref(jitted)
            if self._served not in self._observers.served:
                self._observers.served.append(self._served)

    def begin(self, name: str, signature: RecordedSignature) -> None:
        """Record that this thread makes a program of the function *name* next."""
        self._making[get_ident()] = WarmedProgram(name, signature)

    def end(self, *, failed: bool) -> None:
        """Record that this thread has made it, or *failed* to."""
        made = self._making.pop(get_ident())
        made.seconds = now() - made.began
        with self._lock:
            if not failed and len(self._programs) < _MOST:
                self._programs.append(made)

    def start(self) -> None:
        """Count uses from now on: the process is warm."""
        with self._lock:
            for reference in self._jitted.values():
                if (jitted := reference()) is not None:
                    forget_fast_path(jitted)
            for name, of in self._by_name().items():
                self._before[name] = self._calls(name)
                new = [made for made in of if made.signature is not None]
                signatures = [made.signature for made in new if made.signature]
                for made, text in zip(new, texts(signatures), strict=True):
                    made.text, made.signature = text, None
                for made in of:
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
            with self._lock:
                dead = weakref.ref(executable, lambda _: self._made.pop(key, None))
                self._made.setdefault(key, (dead, []))[1].append(making)

    def _by_name(self) -> dict[str, list[WarmedProgram]]:
        found: dict[str, list[WarmedProgram]] = {}
        for made in self._programs.copy():
            found.setdefault(made.name, []).append(made)
        return found

    def _is_used(self, made: WarmedProgram) -> bool | None:
        """Return whether *made* was used since, `None` if that is not known."""
        idle = self._calls_since(made.name) == 0
        return False if idle else made.used if made.seen else None

    def _calls_since(self, name: str) -> int | None:
        before, calls = self._before.get(name), self._calls(name)
        return None if before is None or calls is None else calls - before

    def explain(self) -> tuple[WarmedFunction, ...]:
        """Return what was made of each function, and what of it was never used."""
        found = []
        for name, of in self._by_name().items():
            used = {made: self._is_used(made) for made in of}
            idle = [made for made, state in used.items() if state is False]
            found.append(
                WarmedFunction(
                    name=name,
                    signatures=len(of),
                    calls=self._calls_since(name),
                    used=sum(state is True for state in used.values()),
                    unused=len(idle),
                    unused_signatures=tuple(made.text for made in idle[:_SHOWN]),
                    seconds=sum((made.seconds for made in idle), 0.0),
                )
            )
        return tuple(found)

    def used(self, name: str, args: Any, kwargs: Any) -> bool | None:
        """Return whether a signature of a function was used, `None` if unknown."""
        key = key_of(args, kwargs)
        states = [
            self._is_used(made)
            for made in self._programs.copy()
            if (made.name, made.key) == (name, key)
        ]
        return states[-1] if states else None


def key_of(args: Any, kwargs: Any) -> bytes:
    """Return what is equal for equal arguments of a signature."""
    text = json.dumps([list(args), dict(kwargs)], sort_keys=True)
    return blake2s(text.encode()).digest()
