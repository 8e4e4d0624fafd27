"""
Configuration files, read within bounds.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import yaml

from jaxmon.errors import ConfigFileError
from jaxmon.yaml_file import MAX_BYTES, MAX_DEPTH, MAX_VALUES, compose, read_text


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


class TestFiles:
    """
    What is read, and what is not.
    """

    def test_a_regular_file_is_read(self, tmp_path: Path) -> None:
        """
        Also through a link, as secrets of Kubernetes are, and with a mark of UTF-8.
        """
        path = tmp_path / "real"
        path.write_bytes("\ufeffä: 1\n".encode())
        (tmp_path / "link").symlink_to(path)
        assert read_text(tmp_path / "link") == "ä: 1\n"

    def test_what_is_no_regular_file_is_refused(self, tmp_path: Path) -> None:
        """
        A pipe that nobody writes to, a socket, a directory and devices without end are
        errors at once, which say what was found.
        """
        os.mkfifo(tmp_path / "pipe")
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(tmp_path / "socket"))
            for path, kind in (
                (tmp_path / "pipe", "a pipe"),
                (tmp_path / "socket", "a socket"),
                (tmp_path, "a directory"),
                (Path("/dev/zero"), "a device"),
                (Path("/dev/null"), "a device"),
            ):
                with pytest.raises(ConfigFileError) as caught:
                    read_text(path)
                assert str(caught.value) == f"is {kind}; give a regular file"

    def test_a_file_that_cannot_be_read_is_refused(self, tmp_path: Path) -> None:
        """
        A missing one, a path that no file can have, and a link that leads to itself.
        """
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
        for path, reason in (
            (tmp_path / "absent", "No such file or directory"),
            (Path("zero\0byte"), "no path of a file"),
            (tmp_path / "loop", "Too many levels of symbolic links"),
        ):
            with pytest.raises(ConfigFileError) as caught:
                read_text(path)
            assert str(caught.value) == f"cannot be read: {reason}"

    def test_size_is_limited(self, tmp_path: Path) -> None:
        """
        A file of the largest size is read, one of a byte more is not, nor one that
        claims to be empty and is not, as in /proc.
        """
        path = tmp_path / "large"
        path.write_bytes(b"#" * MAX_BYTES)
        assert len(read_text(path)) == MAX_BYTES
        path.write_bytes(b"#" * MAX_BYTES + b"#")
        with pytest.raises(ConfigFileError, match="longer than 1 MiB, too long"):
            read_text(path)
        with pytest.raises(ConfigFileError, match="longer than 0 KiB, too long"):
            read_text(Path("/proc/self/status"), most=8)

    def test_it_must_be_utf_8(self, tmp_path: Path) -> None:
        """
        The error names the line.
        """
        path = tmp_path / "latin"
        path.write_bytes(b"a: 1\nb: \xe4\n")
        with pytest.raises(ConfigFileError, match=r"^line 2: not UTF-8$"):
            read_text(path)


class TestYaml:
    """
    What is parsed, and what is not.
    """

    def test_values_are_nodes(self) -> None:
        """
        Nothing is made of them: no date, no huge number, no object of Python.
        """
        text = "{a: 2024-13-45, b: !!int x, c: !!python/name:os.system y, d: *e}"
        node = compose(text.replace("*e", "9" * 5000))
        assert isinstance(node, yaml.MappingNode)
        assert [value.value for _, value in node.value] == [
            *("2024-13-45", "x", "y", "9" * 5000)
        ]

    def test_nothing_is_no_document(self) -> None:
        """
        An empty file, and one of comments.
        """
        assert compose("") is None
        assert compose("# nothing\n") is None

    @pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "[[{? "])
    @pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 3000, 200_000])
    def test_depth_is_limited(self, opening: str, depth: int) -> None:
        """
        However deep it goes, the error comes where the limit is passed.
        """
        with pytest.raises(ConfigFileError, match="deeper than 32 levels") as caught:
            compose(opening * depth)
        assert caught.value.line == 1
        assert caught.value.column is not None
        assert caught.value.column <= (MAX_DEPTH + 1) * len(opening)

    def test_the_deepest_is_taken(self) -> None:
        """
        As many levels as are allowed.
        """
        assert compose("[" * MAX_DEPTH + "]" * MAX_DEPTH) is not None

    @pytest.mark.parametrize(
        "text", [BOMB, "&a [*a]", "a: &a {b: *a}", "- x\n" * (MAX_VALUES + 1)]
    )
    def test_the_number_of_values_is_limited(self, text: str) -> None:
        """
        Those behind aliases count each time, and what holds itself has no end.
        """
        with pytest.raises(ConfigFileError, match="more than 100000 values"):
            compose(text)

    def test_aliases_are_followed(self) -> None:
        """
        A value may stand in several places.
        """
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
    def test_an_error_quotes_nothing_of_a_secret(
        self, text: str, place: tuple[int, int | None]
    ) -> None:
        """
        It says where the mistake is; what caused it shows nothing either.
        """
        with pytest.raises(ConfigFileError) as caught:
            compose(text, secret=True)
        line, column = place
        assert caught.value.line == line
        assert column is None or caught.value.column == column
        assert "hunter2" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__

    def test_an_error_says_what_is_wrong_otherwise(self) -> None:
        """
        In the parser's words, with line and column.
        """
        with pytest.raises(ConfigFileError) as caught:
            compose("a: 1\n b: 2\n")
        assert caught.value.problem.startswith("not YAML: mapping values are not")
        assert (caught.value.line, caught.value.column) == (2, 3)
        assert str(caught.value).startswith("line 2, column 3: not YAML: ")
