"""Durations as Prometheus writes them."""

import re

import pytest

from jaxmon.host.formats import durations


@pytest.mark.parametrize(
    ("text", "length"),
    [("30s", 30), ("5m", 300), ("6h", 21600), ("30d", 2592000), ("1w", 604800)],
)
def test_durations(text, length):
    """A duration is understood, and written again in the largest unit that fits."""
    assert durations.seconds(text) == length
    assert durations.seconds(durations.text(length)) == length


@pytest.mark.parametrize("text", ["", "0s", "5", "m", "5 m", "-1h", "1.5h", "5m1h"])
def test_other_texts_are_no_durations(text):
    """Anything else is refused by name."""
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        durations.seconds(text)


def test_scaled_durations_stay_above_zero():
    """The shortest duration is a second."""
    assert durations.scaled("1h", 60) == "1m"
    assert durations.scaled("5s", 60) == "1s"
