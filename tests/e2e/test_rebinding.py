"""DNS rebinding in a real browser: a site whose name leads here reads nothing."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest

from jaxmon.host.http.server import Response, Server
from tests.helpers.processes import require_program


# As much as a script may hide of the browser that runs it.
FETCH = """
const done = arguments[arguments.length - 1];
fetch("/metrics", {
  referrerPolicy: "no-referrer",
  credentials: "omit",
  headers: {"Accept-Language": "", "User-Agent": "Prometheus/3", "Accept": "*/*"},
}).then(answer => answer.text()).then(done, error => done(String(error)));
"""


@pytest.fixture
def port() -> Iterator[int]:
    """Return the port of a server on all addresses."""
    server = Server({"/metrics": lambda _: Response(b"a secret figure")})
    found = server.listen_tcp("::", 0)
    server.start()
    yield found
    server.stop()


def addresses() -> list[str]:
    found = ["127.0.0.1"]
    for ones in psutil.net_if_addrs().values():
        found += [
            one.address
            for one in ones
            if one.family == socket.AF_INET and not one.address.startswith("127.")
        ]
    return found[:2]


@pytest.mark.parametrize("address", addresses())
def test_a_rebound_name_reads_nothing(port: int, address: str) -> None:
    """Neither a page nor a script of that origin reads anything."""
    selenium = pytest.importorskip("selenium.webdriver")
    options = selenium.ChromeOptions()
    options.binary_location = require_program("chromium")
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"),
        f"--host-resolver-rules=MAP attacker.example {address}",
    ):
        options.add_argument(argument)
    with ExitStack() as stack:
        service = selenium.ChromeService(require_program("chromedriver"))
        browser = selenium.Chrome(options=options, service=service)
        stack.callback(browser.quit)
        browser.get(f"http://{address}:{port}/metrics")
        assert "a secret figure" in browser.page_source
        browser.get(f"http://attacker.example:{port}/metrics")
        assert "403 Forbidden" in browser.page_source
        answer = browser.execute_async_script(FETCH)
        assert answer.startswith("403 Forbidden: the Host header is not a name of")
