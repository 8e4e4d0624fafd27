"""Text for a terminal: what it may contain, and how wide it is."""

import pytest

from jaxmon.host.formats import layout
from jaxmon.host.formats.layout import Column


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.step", "train.step"),
        ("two\nlines\tand\ra return", "two lines and a return"),
        ("\x1b[31mred\x1b[0m", "\\x1b[31mred\\x1b[0m"),
        ("\x9b31m", "\\x9b31m"),
        ("bell\x07 and delete\x7f", "bell\\x07 and delete\\x7f"),
        ("user\u202eexe.txt", "user\\u202eexe.txt"),
        ("zero\u200bwidth", "zero\\u200bwidth"),
        ("e\u0301tape", "étape"),
        ("z\u0335\u0336", "z\\u0335\\u0336"),
        ("half \ud800", "half \\ud800"),
        ("変数", "変数"),
    ],
)
def test_nothing_reaches_the_terminal_but_text(text, shown):
    """Escape sequences, controls, reversed and invisible text are spelled out."""
    assert layout.clean(text) == shown


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("module.function", 15, "module.function"),
        ("module.function", 14, "module…unction"),
        ("module.function", 5, "mo…on"),
        ("変数変数変数", 12, "変数変数変数"),
        ("変数変数変数", 8, "変…変数"),
    ],
)
def test_what_is_too_long_loses_its_middle(text, room, shown):
    """Both ends stay recognisable."""
    assert layout.shortened(text, room) == shown
    assert layout.columns(shown) <= room


def test_text_wraps_at_spaces_under_its_indentation():
    """The first line has its own beginning, the others another."""
    assert layout.wrapped("one two three four five", 14, first="1. ", rest="   ") == [
        "1. one two",
        "   three four",
        "   five",
    ]


def test_a_word_longer_than_a_line_is_broken():
    """Nothing is lost of a path that takes several lines."""
    lines = layout.wrapped("see /" + "x" * 30 + " there", 16, first="- ", rest="  ")

    assert lines == ["- see", "  /xxxxxxxxxxxxx", "  xxxxxxxxxxxxxx", "  xxx there"]
    assert layout.wrapped("", 20, first="- ") == []


def test_a_table_is_as_wide_as_it_is_told():
    """Figures end in one column, names begin in one, and long ones are cut."""
    columns = [Column("NAME", right=False), Column("N", 6), Column("AT", 8)]
    rows = [["a", "1", "x"], ["a_long_name", "1,234", "elsewhere"]]

    assert layout.table(columns, rows, width=26) == [
        "  NAME           N      AT",
        "  a              1       x",
        "  a_lo…name  1,234 els…ere",
    ]


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.977 KiB"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (80 << 30, "80 GiB"),
        (1_048_000, "0.999 MiB"),
        (-2.5 * (1 << 20), "-2.5 MiB"),
        (3200 << 40, "3,200 TiB"),
    ],
)
def test_sizes_have_three_digits(count, shown):
    """Sizes are in powers of 1024, as the dashboards have them."""
    assert layout.size(count) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"),
        (-1, "0 s"),
        (0.000012, "12 µs"),
        (0.00099, "990 µs"),
        (0.000997, "1 ms"),
        (0.0123, "12 ms"),
        (0.0994, "99 ms"),
        (0.0996, "0.10 s"),
        (0.25, "0.25 s"),
        (14.23, "14.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (200, "3 min 20 s"),
        (3599.7, "1 h"),
        (8000, "2 h 13 min"),
        (86_400 * 3 + 4000, "3 d 1 h"),
    ],
)
def test_times_are_said_as_people_say_them(seconds, shown):
    """Two units at most, and no fraction of a minute."""
    assert layout.duration(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.0123, "~12 ms"), (14.23, "~14 s"), (3.96, "~4 s")]
)
def test_estimates_have_no_more_digits_than_they_mean(seconds, shown):
    """A histogram does not know better where in a bucket a percentile is."""
    assert layout.estimate(seconds) == shown


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [(1, 3, "33 %"), (1, 30, "3.3 %"), (0, 5, "0 %"), (1, 0, "0 %"), (5, 5, "100 %")],
)
def test_shares_are_percentages(part, whole, shown):
    """A decimal stands only where it matters."""
    assert layout.share(part, whole) == shown


def test_no_share_exceeds_its_whole():
    """What several threads spend at once is no part of the time."""
    assert layout.share(11, 4) == "100 %"
    assert layout.share_of_time(11, 4) == "on several threads, in 4.0 s"
    assert layout.share_of_time(1, 4) == "25 % of 4.0 s"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "just now"), (0.4, "just now"), (9.6, "10 s ago"), (8000, "2 h 13 min ago")],
)
def test_moments_are_rounded(seconds, shown):
    """Whether something was now or an hour ago matters, not the milliseconds."""
    assert layout.ago(seconds) == shown


@pytest.mark.parametrize(
    ("count", "shown"),
    [(850, "850"), (1234, "1.23 k"), (1.5e12, "1.5 T"), (2e21, "2e+03 E")],
)
def test_amounts_have_prefixes(count, shown):
    """A number of operations is read at a glance."""
    assert layout.amount(count) == shown


def test_of_a_path_the_end_is_kept():
    """File and line are the most informative."""
    assert layout.ending("/srv/models/train.py:57", 12) == "…train.py:57"
    assert layout.ending("train.py:57", 12) == "train.py:57"
