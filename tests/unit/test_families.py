"""Families and the text of their series."""

import pytest

from jaxmon.catalog import Metric
from jaxmon.exposition.encode import Format, encode
from jaxmon.exposition.families import gauge, printable, series
from jaxmon.exposition.parse import labels, parse


CALLS = Metric("t_calls_total", "counter", "Calls.", labels=("function", "kind"))
UP = Metric("t_up", "gauge", "Up.")


@pytest.mark.parametrize("values", [(), ("one",), ("one", "two", "three")])
def test_series_refuses_a_wrong_number_of_values(values: tuple[str, ...]) -> None:
    """A missing or additional label value is a mistake of the caller."""
    with pytest.raises(ValueError, match="argument"):
        series(CALLS, *values)


@pytest.mark.parametrize(
    "odd", ["\x1b]0;x\x07", "\x9b2J", "\r", "\0", "\u202e", "\udcff"]
)
def test_unprintable_characters_do_not_reach_a_terminal(odd: str) -> None:
    """In a label or help, of this program or on the page of another agent."""
    metric = Metric("t", "gauge", f"help {odd}", labels=("a",))
    for fmt in Format:
        page = encode([gauge(metric, 1, odd)], fmt)
        assert page.decode().replace("\n", "").isprintable()
    (found,) = parse(f't{{a="{odd}",b="\\\\"}} 1')
    _, text, _ = found.samples[0]
    assert text.isprintable()
    assert labels(text) == {"a": printable(odd), "b": "\\"}
