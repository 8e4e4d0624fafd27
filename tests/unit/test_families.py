"""Families and the text of their series."""

import pytest

from jaxmon.catalog import Metric
from jaxmon.exposition.encode import Format, encode
from jaxmon.exposition.families import Family, gauge, labels_text, printable, series
from jaxmon.exposition.parse import labels, parse


CALLS = Metric("t_calls_total", "counter", "Calls.", labels=("function", "kind"))
UP = Metric("t_up", "gauge", "Up.")


def test_series_has_the_labels_of_its_metric_in_order() -> None:
    """Values go to the names of the metric, one to one."""
    assert series(CALLS, "step", 3) == 't_calls_total{function="step",kind="3"}'


def test_series_without_labels_is_the_bare_name() -> None:
    """No empty braces."""
    assert series(UP) == "t_up"


@pytest.mark.parametrize("values", [(), ("one",), ("one", "two", "three")])
def test_series_refuses_a_wrong_number_of_values(values: tuple[str, ...]) -> None:
    """A missing or additional label value is a mistake of the caller."""
    with pytest.raises(ValueError, match="argument"):
        series(CALLS, *values)


def test_label_values_are_escaped() -> None:
    """Backslash, quote and newline cannot end a label or a line."""
    assert labels_text(("a",), ['\\ " \n é']) == 'a="\\\\ \\" \\n é"'


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


def test_gauge_is_a_family_of_one_sample() -> None:
    """The shorthand carries metric, labels and value."""
    assert gauge(CALLS, 2.5, "f", "k") == Family(
        CALLS, [('t_calls_total{function="f",kind="k"}', 2.5)]
    )
