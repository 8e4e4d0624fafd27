"""Rules that no linter knows."""

from __future__ import annotations

import ast
import re

from tests.support import ROOT


def test_every_test_says_what_it_shows():
    """Each test has a docstring of at least one full sentence."""
    mute = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for line, name in mute_tests(path.read_text())
    ]
    assert mute == []


def test_a_mute_test_is_found():
    """A missing docstring, and one that is no sentence, are found, in classes too."""
    source = (
        'def test_a():\n    "It works."\n'
        "def test_b(): ...\n"
        'class TestC:\n  async def test_d(self):\n    """\n    later\n    """\n'
        "def helper(): ...\n"
    )
    assert mute_tests(source) == [(3, "test_b"), (5, "test_d")]


def test_one_sentence_stands_on_one_line():
    """A docstring of one sentence takes one line where it fits."""
    tall = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in (
            "jaxmon",
            "exporters",
            "tests",
            "tools",
            "benchmarks",
            "examples",
        )
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in tall_docstrings(path.read_text())
    ]
    assert tall == []


def test_a_tall_docstring_is_found():
    """What fits is found; what would be too long by one character is left."""
    source = 'def a():\n  """\n  {}\n  """\n'
    assert tall_docstrings(source.format("x" * 79 + ".")) == [2]
    assert tall_docstrings(source.format("x" * 80 + ".")) == []


def test_dicts_of_all_threads_are_copied_before_they_are_read():
    """
    The agent never lists the items of a dict that another thread may change: in Python
    3.11 each pair may start the garbage collector, which lets other threads run.
    """
    unsafe = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ("agent", "indicators")
        for path in sorted((ROOT / "jaxmon" / folder).rglob("*.py"))
        for line in listed_items(path.read_text())
    ]
    assert unsafe == []


def test_listed_items_are_found():
    """The items of an attribute are found, those of a copy or a local are not."""
    source = "list(self._a.items())\nlist(a.items())\nlist(a.b.copy().items())\n"
    assert listed_items(source) == [1]


def listed_items(source):
    """Return the lines in *source* that list the items of an attribute as they are."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("list", "tuple", "sorted")
        and node.args
        and isinstance(of := node.args[0], ast.Call)
        and isinstance(of.func, ast.Attribute)
        and of.func.attr == "items"
        and isinstance(of.func.value, ast.Attribute)
    ]


def tall_docstrings(source):
    """Return the lines in *source* where a short sentence takes three lines."""
    # Most files have none, and parsing takes longer than looking for one.
    if not re.search(r'^ *r?"""\n.*\n *"""$', source, re.MULTILINE):
        return []
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    lines = source.splitlines()
    found = [
        node.body[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False)
    ]
    return sorted(
        statement.lineno
        for statement in found
        if (statement.end_lineno or 0) - statement.lineno == 2
        and lines[statement.lineno - 1].strip() in ('"""', 'r"""')
        and lines[statement.lineno + 1].strip() == '"""'
        and len(lines[statement.lineno - 1] + lines[statement.lineno].strip()) <= 85
    )


def mute_tests(source):
    """Return line and name of the tests in *source* that say nothing."""
    return [
        (node.lineno, node.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not is_sentence((ast.get_docstring(node) or "").partition("\n\n")[0])
    ]


def is_sentence(text):
    """Return whether *text* has some words and ends like a sentence."""
    return " " in text and text.endswith((".", ":"))


def test_command_lines_and_messages_are_shown_by_one_module():
    """
    Whatever reads an argument vector, or makes a text of any exception, is listed: it
    shows nothing of it but by `jaxmon.disclosure`.
    """
    readers = {
        "jaxmon/agent/history/part.py",  # names a file by their digest
        "jaxmon/agent/oom/facts.py",  # the name of the script
        "jaxmon/agent/reports/overview.py",  # by `disclosure.command`
        "jaxmon/agent/warm/compiling.py",  # its own
        "jaxmon/bootstrap/sitecustomize.py",  # a comparison
        "jaxmon/cli/baseline.py",  # starts a process with them
        "jaxmon/cli/main.py",  # its own
        "jaxmon/cli/run.py",  # starts a process with them
        "jaxmon/disclosure.py",
        "jaxmon/otel/identity.py",  # the script
        "jaxmon/resources/hung.py",  # by `disclosure.command`
    }
    assert set(with_text(r"sys\.(?:orig_)?argv\b|\borig_argv\b|/cmdline")) == readers
    found = with_text(r"\{type\(error\)\.__name__\}: \{error\}")
    # Of drivers, and of what our own code raises in commands of the user.
    assert found == [
        "exporters/jaxmon_exporter/collectors/nccl/json_reply.py",
        "jaxmon/cli/doctor.py",
        "jaxmon/cli/top/reader.py",
        "jaxmon/doctor/devices.py",
    ]


def test_markdown_has_one_escape():
    """Tables of untrusted text are made in one place; the other is of our own text."""
    assert with_text(r"\\\\\|") == ["jaxmon/artifacts/reference.py"]


def with_text(pattern: str) -> list[str]:
    """Return the files of the product with text that matches *pattern*."""
    return [
        str(path.relative_to(ROOT))
        for folder in ("exporters", "jaxmon")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(pattern, path.read_text())
    ]
