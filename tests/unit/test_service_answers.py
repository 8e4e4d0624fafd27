"""Whether users of a service are all right, of which little is known yet."""

import pytest

from jaxmon import catalog
from tests.helpers.sidecars import ROUTE, START, Worker, reading, status


def in_progress(worker: Worker, age: float) -> Worker:
    worker.set(catalog.REQUESTS_IN_PROGRESS, 4, ROUTE)
    worker.set(catalog.REQUEST_OLDEST_SECONDS, age, ROUTE)
    return worker


def test_a_service_that_has_answered_none_is_not_all_right() -> None:
    """As after a bad deploy. What it refused is the client's fault, and no answer."""
    worker = in_progress(Worker(started=START + 520), 76)
    nothing = "Not quite: no request to POST /predict has finished in the last minute"
    oldest = ": 4 requests in progress, the oldest for 1 min 16 s; a page follows at"
    assert status(worker).answer.text.startswith(f"{nothing}{oldest}")
    worker.requests(2, "client_error")
    refused = f"{nothing}, but for 2 client errors{oldest}"
    assert status(worker).answer.text.startswith(refused)


@pytest.mark.parametrize("outcome", ["success", "client_error"])
def test_what_it_answered_before_makes_no_difference(outcome: str) -> None:
    """If it was more than a minute ago."""
    worker = in_progress(Worker(), 76)
    worker.requests(10, outcome)
    before = reading(worker, at=START + 540)
    worker.requests(2, "client_error")
    assert status(worker, before=before).answer.state == "degraded"


def test_a_service_that_answers_may_have_long_requests() -> None:
    """Before a minute, and beside others that are answered."""
    worker = in_progress(Worker(started=START + 520), 59)
    worker.requests(2, "client_error")
    assert status(worker).answer.state == "fine"
    in_progress(worker, 76).requests(1)
    assert status(worker).answer.state == "fine"
