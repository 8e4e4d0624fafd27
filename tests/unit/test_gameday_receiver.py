"""The webhook that knows which alerts fire."""

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from jaxmon_alerts.gameday.drill import Receiver


def send(receiver: Receiver, body: bytes) -> int:
    """Send *body* as Alertmanager would, and return the status."""
    with urlopen(Request(f"{receiver.url}/page", body), timeout=60) as response:
        return int(response.status)


def alert(name: str, status: str) -> dict[str, Any]:
    """Return an alert, as it is in a notification."""
    return {"status": status, "fingerprint": name, "labels": {"alertname": name}}


def notification(*alerts: dict[str, Any]) -> bytes:
    """Return a notification about *alerts*."""
    return json.dumps({"alerts": alerts}).encode()


def test_alerts_fire_until_they_are_resolved() -> None:
    """Repeated notifications change nothing; the end of an unknown one neither."""
    with Receiver() as receiver:
        first, second = alert("First", "firing"), alert("Second", "firing")
        assert send(receiver, notification(first)) == 204
        assert send(receiver, notification(first, second)) == 204
        assert list(receiver.firing()) == ["First", "Second"]
        send(receiver, notification(alert("First", "resolved")))
        send(receiver, notification(alert("Third", "resolved")))

    assert receiver.firing() == {"Second": {"alertname": "Second"}}


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"{}", b'{"alerts": [7]}', b'{"alerts": 7}']
)
def test_what_is_no_notification_is_rejected(body: bytes) -> None:
    """Whoever sends it is told, and the receiver goes on."""
    with Receiver() as receiver:
        with pytest.raises(HTTPError, match="400") as caught:
            send(receiver, body)
        caught.value.close()
        send(receiver, notification(alert("First", "firing")))

    assert list(receiver.firing()) == ["First"]
