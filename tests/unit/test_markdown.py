"""Text from elsewhere in Markdown."""

from __future__ import annotations

from jaxmon.cli import markdown


def test_text_stays_in_its_cell() -> None:
    """Neither bars, line breaks nor escape sequences make another cell or line."""
    found = markdown.table(("A", "B"), [("a|b", "x\ny"), ("\x1b[31mred", "")])
    assert found.splitlines() == [
        "| A | B |",
        "| --- | --- |",
        "| a\\|b | x y |",
        "| \\x1b[31mred |  |",
    ]
