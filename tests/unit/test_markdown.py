"""Text from elsewhere in Markdown."""

import html
import re

import markdown as python_markdown  # type: ignore[import-untyped]  # has no types
import pytest
from markdown_it import MarkdownIt

from jaxmon.cli import markdown
from jaxmon.host.formats.layout import clean


def test_text_stays_in_its_cell() -> None:
    """Neither bars, line breaks nor escape sequences make another cell or line."""
    found = markdown.table(("A", "B"), [("a|b", "x\ny"), ("\x1b[31mred", "")])
    assert found.splitlines() == [
        "| A | B |",
        "| --- | --- |",
        "| a&#124;b | x y |",
        "| &#92;x1b\\[31mred |  |",
    ]


HOSTILE = [
    "<img src=//evil/x><script>alert(1)</script>",
    "![x](//evil/x.png)",
    "[click](javascript:alert(1))",
    "[x]: //evil/y",
    "<//evil/>",
    "http://evil/x",
    "www.evil.example",
    "a\\|b",
    "a\\\\|b|c",
    "`code` ``two`` *em* **strong** _em_ __strong__ ~~gone~~",
    "&lt;b&gt; &amp; &#60;img src=x&#62;",
    "# heading",
    "- item",
    "+",
    "1. item",
    "1.5 - 2",
    "> quote",
    "$math$ @team #123",
    "a\n\n| b | c |\n---\n",
    "jit_step __main__.step f(x)[0] {x: 1}",
    "-",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_shows_as_it_is(text):
    """Whatever renders it: no elements, links and images, and no more cells."""
    rendered = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render
    for render in (
        rendered,
        lambda one: python_markdown.markdown(one, extensions=["tables"]),
    ):
        table = render(markdown.table(("A", "B"), [(text, "b")]))
        listed = render(f"- {markdown.escaped(text)}")
        shown = render(f"Of: {markdown.escaped(text)}.")
        for found, allowed in (
            (table, {"table", "thead", "tbody", "tr", "th", "td"}),
            (listed, {"ul", "li"}),
            (shown, {"p"}),
        ):
            assert set(re.findall(r"</?([a-z0-9]+)[^>]*>", found)) <= allowed
        assert table.count("<td>") == 2
        cell = html.unescape(table.partition("<td>")[2].partition("</td>")[0])
        assert cell.strip() == " ".join(clean(text).split())
        for one in ("http://", "www."):
            assert one not in markdown.escaped(text)
