"""
Rules for tests that no linter knows.
"""

from __future__ import annotations

import ast

from tests.support import ROOT


def test_every_test_says_what_it_shows():
    """
    Each test has a docstring of at least one full sentence.
    """
    mute = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for line, name in mute_tests(path.read_text())
    ]
    assert mute == []


def test_a_mute_test_is_found():
    """
    A missing docstring, and one that is no sentence, are found, in classes too.
    """
    source = (
        'def test_a():\n    "It works."\n'
        "def test_b(): ...\n"
        'class TestC:\n  async def test_d(self):\n    """\n    later\n    """\n'
        "def helper(): ...\n"
    )
    assert mute_tests(source) == [(3, "test_b"), (5, "test_d")]


def mute_tests(source):
    """
    Return line and name of the tests in *source* that say nothing.
    """
    return [
        (node.lineno, node.name)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not is_sentence((ast.get_docstring(node) or "").partition("\n\n")[0])
    ]


def is_sentence(text):
    """
    Tell whether *text* has some words and ends as a sentence does.
    """
    return " " in text and text.endswith((".", ":"))
