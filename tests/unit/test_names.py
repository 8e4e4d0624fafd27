"""Names of the product: nouns and verbs of the field, each class one of its own."""

import ast
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.helpers.processes import PRODUCT, ROOT


@pytest.fixture(scope="module")
def bound() -> dict[str, list[tuple[str, type[ast.AST]]]]:
    """Return the names that each file of the product binds, as `names_bound` does."""
    return {
        str(path.relative_to(ROOT)): list(names_bound(ast.parse(path.read_text())))
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def test_no_classes_share_a_name(bound):
    """A class of the product has a name that no other has."""
    names = Counter(
        name for names in bound.values() for name, kind in names if kind is ast.ClassDef
    )
    assert {name for name, number in names.items() if number > 1} == set()


# Pronouns and participles, which do not name what they hold.
PRONOUNS = {"another", "each", "gone", "its", "known", "one", "ones", "own", "said"}


def test_names_are_nouns_and_verbs(bound):
    """What holds a route is called `route`, not `one`."""
    found = {
        f"{path}: {name}"
        for path, names in bound.items()
        for name, _ in names
        if name.strip("_") in PRONOUNS
    }
    assert found == {"jaxmon/facts/walltime.py: gone"}  # a key of JSON


def names_bound(tree: ast.Module) -> Iterator[tuple[str, type[ast.AST]]]:
    """Yield the names that *tree* defines or assigns, and what does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                name = node.id if isinstance(node, ast.Name) else node.attr
                yield name, type(node)
        elif isinstance(node, ast.arg):
            yield node.arg, type(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, type(node)
