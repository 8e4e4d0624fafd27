"""Pages back to families, also those of strangers."""

import math

import pytest

from jaxmon import catalog
from jaxmon.catalog import Metric
from jaxmon.errors import PageError
from jaxmon.exposition.encode import OPENMETRICS, encode
from jaxmon.exposition.families import Family, Histogram, SpanIds, gauge
from jaxmon.exposition.parse import ParsedFamily, labels, parse, relabel, to_family


NEWER = Metric(
    "t_newer_seconds", "histogram", 'A "new"\n\\ one.', labels=("a",), buckets=(0.5,)
)


def agent_page() -> tuple[list[Family], str]:
    """Return what an agent might show, with a metric the catalogue does not know."""
    newer = Histogram(NEWER, 'x"\\\n}')
    newer.observe(0.25)
    families = [
        gauge(catalog.JIT_CALLS, 10**15, "train.step"),
        gauge(catalog.BUILD_INFO, 1, "1.0"),
        gauge(catalog.PROCESS_START_TIME_SECONDS, 1.7e9 + 0.125),
        Family(NEWER, newer.samples()),
        gauge(catalog.LIVE_ARRAYS, math.inf, "0", "float32"),
    ]
    return families, encode(families).decode()


def test_a_page_survives_the_way_there_and_back() -> None:
    """Catalogue metrics come back as themselves, and every byte is the same again."""
    families, text = agent_page()

    back = [to_family(parsed) for parsed in parse(text)]

    assert encode(back) == text.encode()
    assert [family.samples for family in back] == [
        family.samples for family in families
    ]
    assert back[0].metric is catalog.JIT_CALLS
    assert back[1].metric is catalog.BUILD_INFO


def test_an_unknown_metric_keeps_what_its_page_says() -> None:
    """Kind and help of a newer agent's metric pass through."""
    metric = to_family(parse(agent_page()[1])[3]).metric

    assert (metric.name, metric.kind, metric.help) == (
        NEWER.name,
        NEWER.kind,
        NEWER.help,
    )


def test_a_known_name_of_another_kind_is_not_the_catalogues() -> None:
    """The page decides what a series is; our help would describe something else."""
    parsed = ParsedFamily(catalog.JIT_CALLS.name, "gauge", "Other.")

    assert to_family(parsed).metric == Metric(catalog.JIT_CALLS.name, "gauge", "Other.")


def test_what_other_exporters_write_is_read() -> None:
    """Timestamps, tabs, trailing commas, comments, summaries, samples without TYPE."""
    text = (
        "# a comment\n\n#HELP t_s Some.\n# TYPE t_s histogram\n"
        't_s_bucket{le="0.5",} 1.5e-3 1700000000000\n'
        "t_s_sum\t3\nt_s_count 2\t\n  \nt_bare{} NaN\nt_neg -.5\nt_inf -Inf"
    )
    histogram, bare, negative, infinite = parse(text)

    assert histogram == ParsedFamily(
        "t_s",
        "histogram",
        "Some.",
        [("t_s_bucket", 'le="0.5"', 0.0015), ("t_s_sum", "", 3), ("t_s_count", "", 2)],
    )
    assert bare.kind == "untyped"
    assert math.isnan(bare.samples[0][2])
    assert [*negative.samples, *infinite.samples] == [
        ("t_neg", "", -0.5),
        ("t_inf", "", -math.inf),
    ]
    assert to_family(bare).metric.kind == "untyped"


def test_integers_stay_integers() -> None:
    """A counter is relayed digit by digit; a number too long for that is a float."""
    (family,) = parse("a 123456789012345678\na 1234567890123456789\na 5.0")

    assert [type(value) for *_, value in family.samples] == [int, float, float]
    assert family.samples[0][2] == 123456789012345678


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a{",
        "a{} ",
        "a 1 2 3",
        "1a 1",
        "a b",
        "a 1_000",
        "a 0x10",
        "a 1e",
        "a infinity",
        "a \u0661",
        "a 1 1.5",
        'a{b="c} 1',
        'a{b="c"d="e"} 1',
        'a{b="c",,d="e"} 1',
        "a{,} 1\x00",
        'a{b="\\x"} 1',
        'a{b="c"} 1\r',
        "a{b=c} 1",
        'a{1b="c"} 1',
        'a{__name__="c"} 1',
        'a{b="c",b="d"} 1',
        'a {b="c"} 1',
        "a{b} 1",
        f"a {'1' * 65}",
        "<html>",
        "# TYPE a",
        "# TYPE a gauges",
        "# TYPE 1a gauge",
        "# HELP a{} text",
        "# TYPE first gauge",
        "# TYPE typed counter",
        "histogram 1",
    ],
)
def test_a_malformed_line_is_named(line: str) -> None:
    """The error says which line, and shows the beginning of it."""
    before = "first 1\n# TYPE typed gauge\n# TYPE histogram histogram\n"

    with pytest.raises(PageError, match=r"^line 4: ") as caught:
        parse(f"{before}{line}\nlast 1\n")

    assert repr(line[:80]) in str(caught.value)


def test_a_long_line_is_shortened_in_the_error() -> None:
    """A hostile page cannot fill a log."""
    with pytest.raises(PageError) as caught:
        parse('a{b="' + "x" * 100_000)

    assert len(str(caught.value)) < 200


# Quadratic, a line of this length would take minutes; linear, milliseconds.
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "unit", ['b="', "\\", '",', 'a="",', "{", "}", " ", "1", "e", '\\"', "# TYPE "]
)
def test_hostile_lines_take_linear_time(unit: str) -> None:
    """A line made to confuse the parser costs no more than an honest one."""
    lines = [
        f"{lead}{unit * 200_000}{tail}" for lead in ("a{", "a", "") for tail in "}x"
    ]

    for line in lines:
        with pytest.raises(PageError):
            parse(f"{line}\nnot a sample either\n")


def test_labels_are_unescaped() -> None:
    """The way back from the text of a series."""
    text = r'a="x",b="\\ \" \n \\n",c=""'

    assert labels(text) == {"a": "x", "b": '\\ " \n \\n', "c": ""}
    assert labels("") == {}


def test_a_series_has_one_name() -> None:
    """Labels have one order, and empty ones are none; escapes stay."""
    page = 'a{b="1",c="2"} 1\na{b="1",d="",c="2"} 3\na{c="\\"",d="4"} 4\na{b=""} 6\n'
    (family,) = parse(page)

    assert [text for _, text, _ in family.samples] == [
        'b="1",c="2"',
        'b="1",c="2"',
        'c="\\"",d="4"',
        "",
    ]
    with pytest.raises(PageError, match="another order"):
        parse(f'{page}a{{c="2",b="1"}} 2\n')
    assert len(parse(f'{page}d{{c="2",b="1"}} 2\n')) == 2


def test_relabel_puts_a_label_first() -> None:
    """Every series gets it, escaped, with or without labels of its own."""
    (family,) = parse('# TYPE a gauge\na 1\na{b="c"} 2\n')

    samples = relabel(family, "worker", '"0').samples

    assert samples == [("a", r'worker="\"0"', 1), ("a", r'worker="\"0",b="c"', 2)]
    assert len(family.samples[0][1]) == 0


def test_relabel_rejects_a_label_of_that_name() -> None:
    """No label stands twice, and values are no labels."""
    right, wrong = parse('a{b="worker=\\"z",my_worker="w"} 3\nc{worker="x"} 1\n')

    ((_, text, _),) = relabel(right, "worker", "0").samples
    assert labels(text) == {"worker": "0", "b": 'worker="z', "my_worker": "w"}
    with pytest.raises(PageError, match="c has a label worker"):
        relabel(wrong, "worker", "0")


TRACE = '# {trace_id="0af7651916cd43dd8448eb211c80319c"}'
BUCKET = 't_seconds_bucket{a="b",le="1.0"} 1'


def openmetrics(*lines: str) -> list[ParsedFamily]:
    """Return the families of a page with a histogram of *lines*."""
    return parse("\n".join(["# TYPE t_seconds histogram", *lines, "# EOF\n"]))


def test_openmetrics_survives_the_way_there_and_back() -> None:
    """It yields what text format does, and exemplars besides."""
    families, _ = agent_page()
    newer = Histogram(NEWER, "x")
    newer.observe(0.25, SpanIds("0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"))
    families.append(Family(NEWER, newer.samples(), newer.exemplars()))
    page = encode(families, OPENMETRICS).decode()

    back = [to_family(parsed) for parsed in parse(page)]

    assert encode(back, OPENMETRICS).decode() == page
    assert encode(back[:3]) == encode(families[:3])
    assert back[0].metric is catalog.JIT_CALLS
    assert back[1].metric is catalog.BUILD_INFO
    assert back[3].exemplars == newer.exemplars() != {}


def test_an_exemplar_follows_its_series() -> None:
    """The label of the worker is put on the series, and the exemplar stays with it."""
    (parsed,) = openmetrics(f"{BUCKET} {TRACE} 0.5 17.5")
    family = to_family(relabel(parsed, "worker", "3"))
    name = 't_seconds_bucket{worker="3",a="b",le="1.0"}'
    assert family.exemplars == {name: f"{TRACE} 0.5 17.5"}


@pytest.mark.parametrize(
    "line",
    [
        f'{BUCKET} # {{a="{"x" * 128}"}} 0.5 17.5',
        f'{BUCKET} # {{a="1",a="2"}} 0.5 17.5',
        f"{BUCKET} {TRACE} 0.5 1e300",
        f"{BUCKET} {TRACE} 0.5 -1",
        f"{BUCKET} {TRACE} NaN 17.5",
        f"{BUCKET} {TRACE} 0.5 soon",
        f"t_seconds_sum 1 {TRACE} 0.5 17.5",
        f"t_seconds_count 1 {TRACE} 0.5 17.5",
        f"gauge 1 {TRACE} 0.5 17.5",
    ],
)
def test_an_exemplar_that_is_not_allowed_costs_itself(line: str) -> None:
    """Too long, implausible or in the wrong place: the value of its series stays."""
    families = openmetrics(line)
    assert [one.exemplars for one in families] == [{}] * len(families)
    (sample,) = [one for family in families for one in family.samples]
    assert sample[2] == 1


@pytest.mark.parametrize(
    "end",
    ["# {a=1} 2", "# {} ", "# 2", '# {trace_id="x"', "# {} 1 2 3", "# {} 1 # {} 1"],
)
def test_a_malformed_exemplar_is_a_malformed_line(end: str) -> None:
    """What is neither a sample nor one with an exemplar is rejected."""
    with pytest.raises(PageError, match="malformed sample"):
        openmetrics(f"{BUCKET} {end}")


def test_text_format_has_no_exemplars() -> None:
    """There, a line with one is malformed."""
    with pytest.raises(PageError, match="malformed sample"):
        parse(f"# TYPE t_seconds histogram\n{BUCKET} {TRACE} 0.5\n")
