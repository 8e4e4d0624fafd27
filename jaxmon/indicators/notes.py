"""
Which requests the items of a queue are for, while they are in it.

An item is known by its address and that of its queue, and is neither kept nor touched.
A note is gone when its item has been taken or its requests have ended.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from jaxmon import interrupts
from jaxmon.indicators import work
from jaxmon.indicators.endings import now
from jaxmon.indicators.open_request import OpenRequest
from jaxmon.indicators.requests import serving


_Key: TypeAlias = tuple[int, int]

_MOST = 64
"""Maximum number of requests that one item is for."""


class Note:
    """
    An item in a queue.

    Attributes:
        requests: what it is for; none if it follows an equal item that has some.
        since: when it was put there.
    """

    __slots__ = ("_key", "requests", "since")

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
        if all(one is request or not one for one in self.requests):
            self.requests = []
            if not any(note.requests for note in list(waiting)):
                _waiting.pop(self._key, None)
        return True


# Small integers, say, may be in one queue several times.
_waiting: dict[_Key, deque[Note]] = {}

count = _waiting.__len__
"""Returns the number of noted items; in C."""


def is_noted(queue: object, item: object) -> bool:
    """Return whether *item* is in *queue* on behalf of something."""
    return (id(queue), id(item)) in _waiting


def put(queue: object, item: object) -> None:
    """Note that this context is about to put *item* into *queue*."""
    key, requests = (id(queue), id(item)), work.carried()
    if not requests or len(requests) > _MOST:
        if (waiting := _waiting.get(key)) is not None:
            waiting.append(Note(key, []))
        return
    note = Note(key, requests)
    _waiting.setdefault(key, deque()).append(note)
    for one in requests:
        if not one.carry(note):
            note.drop(one)


def take(queue: object, item: object, *, inherited: bool = False) -> None:
    """
    Note that this thread or task is about to take *item* from *queue*.

    Args:
        queue: the queue.
        item: the item.
        inherited: it does nothing else, for the task that started it.
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
    for one in note.requests:
        if one.notes is not None:
            one.notes.pop(note, None)
    requests = [one for one in note.requests if one]
    if requests and serving() not in requests:
        work.own(inherited=inherited).take(requests, note.since)
