"""Names of the product: nouns and verbs of the field, each class one of its own."""

import ast
from collections import Counter
from collections.abc import Iterator

from tests.helpers.processes import PRODUCT, ROOT


def test_no_classes_share_a_name():
    """A class of the product has a name that no other has."""
    names = Counter(
        node.name
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, number in names.items() if number > 1} == set()


# Pronouns and participles, which do not name what they hold.
PRONOUNS = {"another", "each", "gone", "its", "known", "one", "ones", "own", "said"}


def test_names_are_nouns_and_verbs():
    """What holds a route is called `route`, not `one`."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in names_bound(ast.parse(path.read_text()))
        if name.strip("_") in PRONOUNS
    }
    assert found == {"jaxmon/facts/walltime.py: gone"}  # a key of JSON


def names_bound(tree: ast.Module) -> Iterator[str]:
    """Yield the names that *tree* defines or assigns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                yield node.id if isinstance(node, ast.Name) else node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
