"""Queues: how much waits in front of the devices."""

from __future__ import annotations

import logging

from jaxmon.indicators.current import recorder
from jaxmon.indicators.depths import MOST_SOURCES, SITE, Depth, Source, add, remove


log = logging.getLogger("jaxmon")


class Queue:
    """A queue of the program. See `queue`."""

    __slots__ = ("_name", "_source")

    def __init__(self, name: str, depth: Depth | None) -> None:
        self._name = name
        self._source: Source | None = None
        if depth is not None:
            self._source = Source(name, depth)
            if not add(self._source):
                log.warning(
                    "queue %r is not observed: there are %d already; close() those "
                    "that ended",
                    name,
                    MOST_SOURCES,
                )

    def set(self, depth: int) -> None:
        """
        Say how many wait now. Any thread; next to nothing where no agent runs.

        Never raises. Objects of one name share what was said last.
        """
        indicators = recorder()
        if indicators is None:
            return
        try:
            indicators.depths.say(str(self._name), depth)
        except Exception:  # noqa: BLE001 - theirs: counted, and the program goes on
            indicators.guard.failed(SITE, stays_on=True, theirs=True)

    def close(self) -> None:
        """Tell of this queue no more. Harmless when repeated."""
        if self._source is not None:
            remove(self._source)
        if (indicators := recorder()) is not None:
            indicators.depths.forget(str(self._name))


def queue(name: str, depth: Depth | None = None) -> Queue:
    """
    Tell how many wait in a queue, for ``jaxmon_queue_depth``.

    Give a function, and it is asked at each scrape, on a thread of jaxmon: it must not
    block, nor wait for a device. Or say it yourself with `Queue.set`. A method such as
    ``requests.qsize`` does not keep its object alive: both go together. Any other
    function is asked until `Queue.close`. Queues of one name add up; one that cannot
    be read is left out until it can.

    Works before `jaxmon.instrument`, and costs nothing between scrapes. Never raises.

    Args:
        name: one of a few that stay the same. At most ``max_functions`` are told apart.
        depth: tells how many wait now.

    Example:
        >>> import jaxmon, queue
        >>> waiting = queue.Queue()
        >>> decode = jaxmon.queue("decode", waiting.qsize)
        >>> jaxmon.queue("prefill").set(3)
        >>> decode.close()
    """
    return Queue(name, depth)
