"""
Follows requests through queues and thread pools of the standard library, and notes
which tasks of pools fail.

What is replaced are the methods that the queues call inside, once an item is certain to
be put or taken: ``_put`` and ``_get``, which subclasses may override, and of a pool's
work items ``__init__`` and ``run``. Looking one up runs our code and returns Python's
own method, so no frame of ours is on the stack when it runs, and the program's queues,
items and exceptions are untouched. `queue.SimpleQueue` and its items are in C.

An item is known by its address and that of its queue, and is neither kept nor touched.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, TypeAlias

from jaxmon import interrupts
from jaxmon.agent.guard import Guard
from jaxmon.agent.jaxlink.hooks import HookPlaces, Hooks
from jaxmon.agent.jaxlink.patches import ALWAYS, Condition, LookedUp, Lookup, variable
from jaxmon.agent.part import Part
from jaxmon.indicators import work
from jaxmon.indicators.endings import now
from jaxmon.indicators.routes import Routes
from jaxmon.indicators.work import entered, serving, task_runs
from jaxmon.threads import RLock


if TYPE_CHECKING:
    from jaxmon.indicators.requests import OpenRequest


_Key: TypeAlias = tuple[int, int]

_MOST = 64
"""Maximum number of requests that one item is for."""


class HandoffNote:
    """An item in a queue *since* then; an equal one before it may have its requests."""

    def __init__(self, key: _Key, requests: list[OpenRequest]) -> None:
        self._key = key
        self.requests = requests
        self.since = now()

    def drop(self, request: OpenRequest) -> bool:
        """
        Note that *request* has ended; return whether the item is still in the queue.
        """
        waiting = _waiting.get(self._key)
        if waiting is None or self not in waiting:
            return False
        if all(other is request or not other for other in self.requests):
            self.requests = []
            if not any(note.requests for note in list(waiting)):
                _waiting.pop(self._key, None)
        return True


# Small integers, say, may be in one queue several times.
_waiting: dict[_Key, deque[HandoffNote]] = {}

count = _waiting.__len__
"""Returns the number of noted items; in C."""


def put(queue: object, item: object) -> None:
    """Note that this context is about to put *item* into *queue*."""
    key, requests = (id(queue), id(item)), work.carried()
    if not requests or len(requests) > _MOST:
        if (waiting := _waiting.get(key)) is not None:
            waiting.append(HandoffNote(key, []))
        return
    note = HandoffNote(key, requests)
    _waiting.setdefault(key, deque()).append(note)
    for request in requests:
        if not request.carry(note):
            note.drop(request)


def take(queue: object, item: object, *, inherited: bool = False) -> None:
    """
    Note that this thread or task is about to take *item* from *queue*; *inherited*: it
    does nothing else, for the task that started it.
    """
    key = id(queue), id(item)
    waiting = _waiting.get(key)
    if waiting is None:
        return
    try:
        note = waiting.popleft()
    except IndexError as error:  # another thread has just taken its equal
        interrupts.pass_on(error)
        return
    if not waiting:
        _waiting.pop(key, None)
    for request in note.requests:
        if request.notes is not None:
            request.notes.pop(note, None)
    requests = [request for request in note.requests if request]
    if requests and serving() not in requests:
        work.of_this_task(inherited=inherited).take(requests, note.since)


SITE = "handoffs"

_OF_WORK_ITEM = "_jaxmon_work"


_NOTED: Condition = (count, bool, bool)
_MAY_CARRY: Condition = (entered, work.current, count)


class Handoffs(Part):
    """
    Attributes work to requests across queues and thread pools. Modules that are not
    loaded are left alone until a route has its first request. *failed* is passed the
    futures of tasks that fail, and the exceptions.
    """

    name = SITE

    def __init__(
        self,
        routes: Routes,
        guard: Guard,
        failed: Callable[[object, BaseException], None],
    ) -> None:
        self._failed = failed
        self._routes = routes
        self._guard = guard
        self._hooks: Hooks | None = None
        self._lookups: list[Lookup] = []
        self._seen: set[str] = set()
        # Reentrant: a signal handler may begin a request while this is held.
        self._lock = RLock()

    def attach(self, hooks: Hooks) -> None:
        """Observe what is loaded, and the rest later."""
        self._hooks = hooks
        self._attach_loaded()
        self._routes.on_new.append(self._attach_loaded)

    def _attach_loaded(self) -> None:
        with self._lock:
            hooks = self._hooks
            found = {n: m for n in _PLACES if (m := sys.modules.get(n)) is not None}
            new = [_PLACES[n] for n in found if n not in self._seen]
            if not new or hooks is None or not hooks.on:
                return
            modules = [module for n, module in found.items() if n not in self._seen]
            self._seen.update(found)
            places = list(zip(new, modules, strict=True))
            hooks.attach(SITE, partial(self._take, places))
            if not hooks.is_active(SITE):
                self.stop()

    def stop(self) -> None:
        """Observe no more."""
        self._hooks = None
        if self._attach_loaded in self._routes.on_new:
            self._routes.on_new.remove(self._attach_loaded)
        for lookup in self._lookups:
            lookup.detach()

    abandon = stop

    def _take(self, places: list[tuple[_Take, Any]], at: HookPlaces) -> None:
        for take, module in places:
            take(self, module, at)

    def _take_queue(self, module: Any, at: HookPlaces) -> None:
        if module.Queue.__module__ != module.__name__:
            return  # gevent's or eventlet's, on whose items no other thread works
        on_put = _on_put(module.Queue.put.__code__)
        for kind, index in _QUEUES:
            owner = getattr(module, kind)
            self._replace(at, owner, "_put", on_put, _MAY_CARRY)
            self._replace(at, owner, "_get", _on_get("queue", index, None), _NOTED)

    def _take_async_queue(self, module: Any, at: HookPlaces) -> None:
        on_put = _on_put(module.Queue.put_nowait.__code__)
        code = module.Queue.get.__code__
        for kind, index in _QUEUES:
            owner = getattr(module, kind)
            self._replace(at, owner, "_put", on_put, _MAY_CARRY)
            self._replace(at, owner, "_get", _on_get("_queue", index, code), _NOTED)
        self._replace(at, module.Queue, "get", _on_await, ALWAYS)

    def _take_pool(self, module: Any, at: HookPlaces) -> None:
        item = module._WorkItem  # noqa: SLF001 - no other place
        self._replace(at, item, "__init__", _on_submit, _MAY_CARRY)
        self._replace(at, item, "run", _on_run, ALWAYS)

    def _take_future(self, module: Any, at: HookPlaces) -> None:
        self._replace(at, module.Future, "set_exception", self._on_failure, ALWAYS)

    def _on_failure(self, future: Any, frame: FrameType) -> None:
        _, error, traceback = sys.exc_info()
        # Elsewhere, the program or a library passes on what it has.
        if error is not None and traceback and traceback.tb_frame is frame:
            self._failed(future, error)

    def _replace(
        self, at: HookPlaces, owner: type, name: str, observe: LookedUp, when: Condition
    ) -> None:
        lookup = Lookup(vars(owner)[name], observe, self._guard, SITE, when)
        self._lookups.append(lookup)
        at.replace(owner, name, lookup)


# With the index of the next item.
_QUEUES = ("Queue", 0), ("PriorityQueue", 0), ("LifoQueue", -1)
_Take: TypeAlias = Callable[[Handoffs, Any, HookPlaces], None]
_PLACES: dict[str, _Take] = {
    "queue": Handoffs._take_queue,  # noqa: SLF001 - of this module
    "asyncio.queues": Handoffs._take_async_queue,  # noqa: SLF001 - of this module
    "concurrent.futures.thread": Handoffs._take_pool,  # noqa: SLF001 - of this module
    "concurrent.futures._base": Handoffs._take_future,  # noqa: SLF001 - of this module
}


def _on_put(code: CodeType) -> Callable[[Any, FrameType], None]:
    def observe(queue: Any, frame: FrameType) -> None:
        # A subclass may put something else than it was given.
        if frame.f_code is code:
            put(queue, variable(frame, "item"))

    return observe


def _on_get(
    container: str, index: int, awaiting: CodeType | None
) -> Callable[[Any, FrameType], None]:
    # *awaiting*: the code of ``get``, if it may run as a task of its own.
    def observe(queue: Any, _: FrameType) -> None:
        items = getattr(queue, container, None)
        # Another kind belongs to a subclass, with an order of its own.
        if type(items) in (deque, list) and items:
            item = items[index]
            if (id(queue), id(item)) in _waiting:
                inherited = awaiting is not None and task_runs(awaiting)
                take(queue, item, inherited=inherited)

    return observe


def _on_await(_: Any, __: FrameType) -> None:
    """Observe ``queue.get``; `asyncio.wait_for` runs it in a task up to 3.11."""
    if work.current() is None:
        work.of_this_task()


def _on_submit(item: Any, _: FrameType) -> None:
    if requests := work.carried():
        setattr(item, _OF_WORK_ITEM, (requests, now(), work.current()))


def _on_run(item: Any, _: FrameType) -> None:
    found = vars(item).pop(_OF_WORK_ITEM, None)
    if found is None:
        work.enter(None)
        return
    work.enter_submitted(*found)
