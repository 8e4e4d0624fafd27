"""The HTTP/2 of one connection, bytes in and bytes out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from jaxmon_exporter.grpc.call import CANCELLED, UNSAID, Pending, SessionError


# Of all replies together. The windows that say so are never opened further.
_MOST_BYTES = 4 << 20
_MOST_HEADERS = 1 << 16


class Session:
    """
    Puts calls to one server, as many at a time as it takes.

    Args:
        calls: to put.
    """

    def __init__(self, calls: Sequence[Pending]) -> None:
        self._calls = calls
        self._waiting = deque(calls)
        self._streams: dict[int, Pending] = {}
        self._greeted = False
        self._http = H2Connection(
            H2Configuration(
                validate_outbound_headers=False, normalize_outbound_headers=False
            )
        )
        self._http.local_settings = Settings(
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: _MOST_BYTES,
                SettingCodes.MAX_HEADER_LIST_SIZE: _MOST_HEADERS,
            }
        )
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_MOST_BYTES)

    @property
    def done(self) -> bool:
        """Whether all calls are."""
        return all(call.done for call in self._calls)

    def to_send(self) -> bytes:
        """Return what is to be sent now."""
        data: bytes = self._http.data_to_send()
        return data

    def receive(self, data: bytes) -> None:
        """
        Take what was received.

        Raises:
            SessionError: no more will come of this connection.
        """
        try:
            for event in self._http.receive_data(data):
                self._take(event)
            self._put()
        except H2Error as error:
            raise SessionError(str(error)) from error

    def _put(self) -> None:
        """Put the next calls."""
        most = self._http.remote_settings.max_concurrent_streams
        while self._greeted and self._waiting and len(self._streams) < most:
            call = self._waiting.popleft()
            stream = self._http.get_next_available_stream_id()
            self._streams[stream] = call
            self._http.send_headers(stream, call.headers())
            self._http.send_data(stream, call.body(), end_stream=True)

    def _take(self, event: events.Event) -> None:
        if isinstance(event, events.RemoteSettingsChanged):
            # A server begins with them: before, nobody knows how much it takes.
            self._greeted = True
        elif isinstance(event, events.ConnectionTerminated):
            msg = f"the server hangs up: {event.error_code}"
            raise SessionError(msg)
        elif isinstance(event, events.ResponseReceived):
            self._streams[event.stream_id].begun(event.headers)
        elif isinstance(event, events.DataReceived):
            self._streams[event.stream_id].receive(event.data)
        elif isinstance(event, events.TrailersReceived):
            self._streams[event.stream_id].ended(event.headers)
        elif isinstance(event, events.StreamEnded):
            # One that has not said how it went.
            self._streams.pop(event.stream_id).end(UNSAID)
        elif isinstance(event, events.StreamReset):
            self._streams.pop(event.stream_id).end(CANCELLED)
