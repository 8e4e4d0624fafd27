"""What `jaxmon demo` refuses before it starts anything, and when it ends."""

import signal

import pytest

from jaxmon.cli.gameday.demo import _signals_interrupt


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
