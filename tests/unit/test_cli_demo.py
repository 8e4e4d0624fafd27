"""
What `jaxmon demo` refuses before it starts anything.
"""

from __future__ import annotations

from click.testing import CliRunner

from jaxmon.cli.main import main


def test_a_fault_that_would_never_begin_is_refused() -> None:
    """
    Who asks for a fault after the end hears which option to change.
    """
    result = CliRunner().invoke(main, ["demo", "--break", "oom", "--duration", "20"])

    assert result.exit_code == 2
    assert "--duration 20 ends before the fault begins, after 30" in result.output
    assert "--break-after" in result.output


def test_an_unknown_fault_is_refused() -> None:
    """
    The message names the faults that there are.
    """
    result = CliRunner().invoke(main, ["demo", "--break", "fire"])

    assert result.exit_code == 2
    for fault in ("errors", "oom", "recompile", "stall"):
        assert fault in result.output
