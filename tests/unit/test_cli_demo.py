"""What `jaxmon demo` refuses before it starts anything, and when it ends."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from jaxmon.cli.gameday.demo import _Demo, _signals_interrupt
from jaxmon.cli.main import main
from jaxmon.facts.reading import read
from jaxmon.facts.record import encoded
from jaxmon.screens.status import summarise
from jaxmon_alerts.gameday.children import Children


def test_a_fault_that_would_never_begin_is_refused() -> None:
    """Who asks for a fault after the end hears which option to change."""
    result = CliRunner().invoke(main, ["demo", "--break", "oom", "--duration", "20"])

    assert result.exit_code == 2
    assert "--duration 20 ends before the fault starts, after 30" in result.output
    assert "--break-after" in result.output


def test_an_unknown_fault_is_refused() -> None:
    """The message names the faults that there are."""
    result = CliRunner().invoke(main, ["demo", "--break", "fire"])

    assert result.exit_code == 2
    for fault in ("errors", "oom", "recompile", "stall"):
        assert fault in result.output


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_hangup_ends_the_demo_unless_it_is_ignored(handler) -> None:
    """Under nohup the demo outlives its terminal; SIGTERM ends it all the same."""
    before = {one: signal.getsignal(one) for one in (signal.SIGHUP, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGHUP, handler)
        with _signals_interrupt():
            at_hangup = signal.getsignal(signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert (at_hangup is signal.SIG_IGN) == (handler is signal.SIG_IGN)
        assert signal.getsignal(signal.SIGHUP) is handler
        assert signal.getsignal(signal.SIGTERM) is before[signal.SIGTERM]
    finally:
        for number, one in before.items():
            signal.signal(number, one)


def test_the_demo_ends_after_its_duration(capsys: pytest.CaptureFixture[str]) -> None:
    """It shows what the sidecar says, at least once, and no longer than asked for."""
    empty = summarise(read([], time=0.0))
    with json_served(encoded(empty)) as url:
        demo = _Demo(Children({}, Path()), {}, {"live page": url}, url, fault=None)
        before = time.monotonic()
        last = demo.watch(0.2)

    assert time.monotonic() - before >= 0.2
    assert last.totals == empty.totals
    assert "0:00:00  steps 0" in capsys.readouterr().out


@contextmanager
def json_served(document: object) -> Iterator[str]:
    """Yield the URL of a server that responds with *document* to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
