"""Pushing over TLS and through proxies."""

import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.grafana_rows import TOKEN
from tests.fakes.proxy import Proxy
from tests.helpers.dashboards import MANY, Site
from tests.helpers.processes import Result, require_program, run_python, some


# It is the same for both models of dashboards.
pytestmark = MANY


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with a key and a certificate that no system trusts."""
    require_program("openssl")
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
         "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=grafana.test", "-addext",
         "subjectAltName=DNS:grafana.test,IP:127.0.0.1",
         "-keyout", path, "-out", f"{path}.crt"],
        check=True, capture_output=True, timeout=240,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def tls_site(make_site: Callable[..., Site], certificate: Path) -> Site:
    """Return a site that is served over https."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    site = make_site(tls=context)
    site.options = ("--ca-file", f"{certificate}.crt")
    return site


def test_a_private_authority(tls_site):
    """With `--ca-file` its certificate is trusted."""
    assert tls_site.push().code == 0


def test_a_certificate_that_nobody_vouches_for(tls_site, monkeypatch):
    """Without it the push ends before the token is sent; a repeat would not help."""
    waits: list[float] = []
    monkeypatch.setattr("jaxmon.cli.servers.time.sleep", waits.append)
    options, tls_site.options = tls_site.options, ()
    done = tls_site.push()
    assert done.code == 1
    assert "is not trusted" in done.err
    assert "--ca-file" in done.err
    assert tls_site.grafana.seen == []
    assert waits == []
    tls_site.options = options


def test_a_file_without_certificates(tls_site):
    """It is named as such."""
    path = tls_site.directory / "empty.pem"
    path.touch()
    done = tls_site.push("--ca-file", str(path))
    assert done.code == 1
    assert f"cannot use the certificates in {path}" in done.err


def in_process_of_its_own(site: Site, *options: str, **environ: str) -> Result:
    """Push from a subprocess, as a user does, with proxies in its environment."""
    done = run_python(
        "-m", "jaxmon", "dashboards", "push", *options,
        str(site.directory / "dashboards"),
        env={"GRAFANA_TOKEN": TOKEN, "no_proxy": "", **environ},
    )  # fmt: skip
    site.printed += [done.out, done.err]
    return done


def test_a_proxy_for_https(tls_site):
    """HTTPS_PROXY is asked to connect and never sees the token."""
    with Proxy(tls_site.grafana.port) as proxy:
        in_process_of_its_own(
            tls_site, *tls_site.options, "--url", "https://grafana.test/",
            HTTPS_PROXY=proxy.url,
        ).ok()  # fmt: skip
    assert len(tls_site.grafana.rows) == 2
    assert proxy.heads
    assert all(one.startswith("CONNECT grafana.test:443 ") for one in proxy.heads)
    assert TOKEN not in "".join(proxy.heads)


def test_a_proxy_for_http(site):
    """HTTP_PROXY carries plain requests, which need `--insecure-http`."""
    with Proxy(site.grafana.port) as proxy:
        in_process_of_its_own(
            site, "--insecure-http", "--url", "http://grafana.test",
            HTTP_PROXY=proxy.url,
        ).ok()  # fmt: skip
    assert len(site.grafana.rows) == 2
    assert proxy.heads[0].startswith("GET http://grafana.test/api/health ")


@pytest.mark.parametrize("variables", [{}, {"no_proxy": "127.0.0.1"}])
def test_this_host_needs_no_proxy(site, variables):
    """A Grafana on a loopback address is reached directly, whatever the proxies."""
    with Proxy(site.grafana.port) as proxy:
        in_process_of_its_own(
            site, "--url", site.url, HTTP_PROXY=proxy.url, **variables
        ).ok()
    assert proxy.heads == []


def test_no_proxy_is_honoured(tls_site):
    """A name in NO_PROXY is connected to directly, here in vain."""
    with Proxy(tls_site.grafana.port) as proxy:
        done = in_process_of_its_own(
            tls_site, *tls_site.options, "--url", "https://grafana.test",
            HTTPS_PROXY=proxy.url, no_proxy="grafana.test",
        )  # fmt: skip
    assert done.code == 1
    assert "no response from https://grafana.test" in done.err
    assert proxy.heads == []


@pytest.mark.parametrize("scheme", some(["https", "socks5", "socks5h", "ftp"], 2))
@pytest.mark.parametrize("variable", ["HTTPS_PROXY", "https_proxy"])
def test_a_proxy_that_is_not_asked_in_plain_http(tls_site, scheme, variable):
    """Its password would be readable: the variable is named, nothing is sent."""
    with Proxy(tls_site.grafana.port) as proxy:
        named = proxy.url.replace("http://", f"{scheme}://me:hunter2@")
        done = in_process_of_its_own(
            tls_site, *tls_site.options, "--url", "https://grafana.test",
            **{variable: named},
        )  # fmt: skip
    assert done.code == 1
    assert done.err.startswith(f"Error: {variable}='{scheme}://127.0.0.1:")
    assert "names an unsupported proxy type; give http://HOST:PORT" in done.err
    assert "hunter2" not in done.err
    assert proxy.heads == []


def test_a_proxy_that_refuses(tls_site):
    """Its refusal is shown."""
    with Proxy(tls_site.grafana.port, refuse="403 Forbidden") as proxy:
        done = in_process_of_its_own(
            tls_site, *tls_site.options, "--url", "https://grafana.test",
            HTTPS_PROXY=proxy.url,
        )  # fmt: skip
    assert done.code == 1
    assert "Tunnel connection failed: 403 Forbidden" in done.err
