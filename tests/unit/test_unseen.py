"""What a sidecar waits for when it is stopped."""

import threading
import time

from jaxmon.catalog import AGENT_ENDED_SECONDS, AGENT_STARTS
from jaxmon.exposition.families import Family, series
from jaxmon_exporter.service import Unseen


def families(starts: int, *ended: str) -> list[Family]:
    """Return those of two slots, of which some have ended."""
    return [
        Family(AGENT_STARTS, [(series(AGENT_STARTS, one), starts) for one in "01"]),
        Family(
            AGENT_ENDED_SECONDS,
            [(series(AGENT_ENDED_SECONDS, one), 3.0) for one in ended],
        ),
    ]


def test_it_waits_for_a_scrape_of_what_has_ended() -> None:
    """A scrape before the end, of another process of the slot, is none."""
    current = families(2, "0", "1")
    unseen = Unseen(lambda: current, clock=time.monotonic)
    unseen.seen(families(2, "0"))
    unseen.seen(families(1, "0", "1"))
    thread = threading.Thread(target=unseen.wait, args=(90,), kwargs={"least": 0.0})
    thread.start()
    assert thread.is_alive()
    unseen.seen(current)
    thread.join(60)
    assert not thread.is_alive()


def test_it_does_not_wait_where_nothing_is_left() -> None:
    """Nor longer than it may, by its clock."""
    Unseen(lambda: families(1), clock=time.monotonic).wait(90, least=0)
    ticks = iter(range(100))
    unseen = Unseen(lambda: families(1, "0"), clock=lambda: float(next(ticks)))
    unseen.wait(2, least=0)
    assert next(ticks) == 3
