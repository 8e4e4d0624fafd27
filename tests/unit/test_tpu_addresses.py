"""Where runtimes of TPUs are looked for."""

import pytest

from jaxmon_exporter.collectors.tpu.runtimes import PROBED_PORTS, Address, addresses


ONE, PORTS, PRIMARY = (
    f"TPU_RUNTIME_{name}"
    for name in ("METRICS_ADDRESS", "METRICS_PORTS", "PRIMARY_METRIC_PORT")
)


@pytest.mark.parametrize(
    ("text", "name", "target"),
    [
        ("/run/tpu.sock", "tpu.sock", "/run/tpu.sock"),
        ("unix:///run/tpu.sock", "tpu.sock", "/run/tpu.sock"),
        ("unix:/run/tpu.sock", "tpu.sock", "/run/tpu.sock"),
        ("localhost:8431", "8431", ("127.0.0.1", 8431)),
        ("0.0.0.0:8431", "8431", ("127.0.0.1", 8431)),
        (":8431", "8431", ("127.0.0.1", 8431)),
        ("[::]:8431", "8431", ("::1", 8431)),
        ("[fd00::1]:8431", "8431", ("fd00::1", 8431)),
        ("10.0.0.7:8431", "8431", ("10.0.0.7", 8431)),
        ("tpu-0:8431", "8431", ("tpu-0", 8431)),
        ("nonsense", "nonsense", "nonsense"),
        ("tpu-0:port", "tpu-0:port", "tpu-0:port"),
    ],
)
def test_an_address_is_where_a_server_listens(text, name, target):
    """What listens on all addresses of the host is called on its own."""
    assert addresses({ONE: f" {text} "}) == ([Address(name, target)], True)


@pytest.mark.parametrize(
    ("environ", "ports"),
    [
        ({PORTS: "8431, 8432,8431"}, [8431, 8432]),
        ({PORTS: "0,x,70000,9000"}, [9000]),
        ({PORTS: ""}, []),
        ({PORTS: ",".join(map(str, range(9000, 9100)))}, list(range(9000, 9016))),
        ({PRIMARY: "8500"}, [8500]),
        ({PORTS: "1", PRIMARY: "2"}, [1]),
    ],
)
def test_ports_are_those_that_the_operator_named(environ, ports):
    """Each once, and not without end; an empty list switches them off."""
    found, configured = addresses(environ)
    assert configured
    assert [address.target for address in found] == [
        ("127.0.0.1", one) for one in ports
    ]


@pytest.mark.parametrize("environ", [{}, {ONE: " "}, {PRIMARY: "none"}])
def test_without_a_word_the_usual_ports_are_tried(environ: dict[str, str]) -> None:
    """An unconfigured runtime serves on one of them."""
    found, configured = addresses(environ)
    assert not configured
    assert [address.name for address in found] == [str(port) for port in PROBED_PORTS]
