"""YAML, read within bounds."""

import pytest
import yaml

from jaxmon.errors import ConfigFileError
from jaxmon.host.formats import yaml_file
from jaxmon.host.formats.yaml_file import MAX_DEPTH, compose


BOMB = (
    "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    "b: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
    "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\n"
    "d: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n"
    "e: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\n"
)


@pytest.fixture(params=["libyaml", "python"])
def _parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    elif not yaml.__with_libyaml__:
        pytest.skip("PyYAML was built without libyaml")


pytestmark = pytest.mark.usefixtures("_parser")


def test_values_are_nodes() -> None:
    """Nothing is made of them: no date, no huge number, no object of Python."""
    text = "{a: 2024-13-45, b: !!int x, c: !!python/name:os.system y, d: *e}"
    node = compose(text.replace("*e", "9" * 5000))
    assert isinstance(node, yaml.MappingNode)
    assert [value.value for _, value in node.value] == [
        *("2024-13-45", "x", "y", "9" * 5000)
    ]


def test_nothing_is_no_document() -> None:
    """An empty file, and one of comments."""
    assert compose("") is None
    assert compose("# nothing\n") is None


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "[[{? "])
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 3000, 200_000])
def test_depth_is_limited(opening: str, depth: int) -> None:
    """However deep it goes, the error comes where the limit is passed."""
    with pytest.raises(
        ConfigFileError, match=r"nested too deeply \(limit 32 levels"
    ) as caught:
        compose(opening * depth)
    assert caught.value.line == 1
    assert caught.value.column is not None
    assert caught.value.column <= (MAX_DEPTH + 1) * len(opening)


def test_the_deepest_is_taken() -> None:
    """As many levels as are allowed."""
    assert compose("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None


@pytest.mark.parametrize("text", [BOMB, "&a [*a]", "a: &a {b: *a}"])
def test_the_number_of_values_is_limited(text: str) -> None:
    """Those behind aliases count each time, and what holds itself has no end."""
    with pytest.raises(ConfigFileError, match="too many values"):
        compose(text)


def test_one_value_more_than_allowed_is_too_many(monkeypatch) -> None:
    """Each counts, the list as well."""
    monkeypatch.setattr(yaml_file, "MAX_VALUES", 1000)
    assert compose("- x\n" * 999) is not None
    with pytest.raises(ConfigFileError, match=r"too many values \(limit 1000\)"):
        compose("- x\n" * 1000)


def test_aliases_are_followed() -> None:
    """A value may stand in several places."""
    node = compose("a: &x [1]\nb: *x\n")
    assert isinstance(node, yaml.MappingNode)
    assert node.value[0][1] is node.value[1][1]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ok: 1\nprom: @hunter2", (2, 7)),
        ("prom: *hunter2", (1, 7)),
        ("prom: !h!unter2 x", (1, 7)),
        ("prom: hunter2: x", (1, None)),
        ("prom: 'hunter2", (1, None)),
        ("prom: `hunter2", (1, 7)),
        ("prom: {hunter2: ]", (1, None)),
        ("prom: hunter2\x01", (1, None)),
        ('prom: "hunter2\\q"', (1, None)),
        ("a\n--- hunter2\n", (2, None)),
    ],
)
def test_an_error_quotes_nothing_of_a_secret(text, place):
    """It says where the mistake is; what caused it shows nothing either."""
    with pytest.raises(ConfigFileError) as caught:
        compose(text, secret=True)
    line, column = place
    assert caught.value.line == line
    assert column is None or caught.value.column == column
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_an_error_says_what_is_wrong_otherwise() -> None:
    """In the parser's words, with line and column."""
    with pytest.raises(ConfigFileError) as caught:
        compose("a: 1\n b: 2\n")
    assert caught.value.problem.startswith("not YAML: mapping values are not")
    assert (caught.value.line, caught.value.column) == (2, 3)
    assert str(caught.value).startswith("line 2, column 3: not YAML: ")
