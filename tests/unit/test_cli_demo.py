"""What `jaxmon demo` refuses before it starts anything."""

from __future__ import annotations

import signal

import pytest
from click.testing import CliRunner

from jaxmon.cli.demo.command import _signals_interrupt
from jaxmon.cli.main import main


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
