"""Rules that no linter knows."""

from __future__ import annotations

import ast
import builtins
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


# What these catch, they catch on threads of ours, while an agent starts, or as the
# program exits; `decorate` passes it on to a generator of the program.
ELSEWHERE = [
    "agent/cache/cache_entry",
    "agent/cache/directory",
    "agent/checks/keys",
    "agent/checks/logged",
    "agent/checks/numerics",
    "agent/compiles/hlo_page",
    "agent/compiles/programs",
    "agent/devices/driver_metrics",
    "agent/devices/hardware",
    "agent/errors/gone",
    "agent/eventlog/part",
    "agent/goodput/part",
    "agent/goodput/store",
    "agent/history/commit",
    "agent/history/store",
    "agent/jaxlink/hooks",
    "agent/jaxlink/listeners",
    "agent/jaxlink/names/check",
    "agent/jaxlink/profiler",
    "agent/loaded",
    "agent/local_socket",
    "agent/oom/part",
    "agent/reports/directory",
    "agent/reports/environment",
    "agent/reports/exit_report",
    "agent/reports/final",
    "agent/reports/mounts",
    "agent/reports/profile",
    "agent/runtime",
    "agent/traces/part",
    "agent/versions",
    "agent/walltime/tasks",
    "agent/warm/compiling",
    "agent/watcher",
    "indicators/decorate",
]


def test_what_may_be_the_programs_exception_is_passed_on():
    """
    On the program's threads, what catches a builtin exception passes it to
    `interrupts.pass_on` or `Guard.failed`: a time limit may have been thrown there.
    """
    found = {
        f"{path.relative_to(ROOT / 'jaxmon').with_suffix('')}": lines
        for folder in ("agent", "indicators")
        for path in sorted((ROOT / "jaxmon" / folder).rglob("*.py"))
        if (lines := swallowed(path.read_text()))
    }
    assert {path: found[path] for path in found if path not in ELSEWHERE} == {}
    assert [path for path in ELSEWHERE if path not in found] == []


def test_a_swallowed_exception_is_found():
    """A handler that goes on is found, and `suppress`; one of our classes is not."""
    source = "try: a()\nexcept {}: {}\n"
    assert swallowed(source.format("OSError", "pass")) == [2]
    assert swallowed(source.format("(JaxmonError, ValueError) as e", "b()")) == [2]
    assert swallowed("with contextlib.suppress(OSError): a()\n") == [1]
    assert swallowed(source.format("JaxmonError", "pass")) == []
    assert swallowed(source.format("OSError as e", "interrupts.pass_on(e)")) == []
    assert swallowed(source.format("Exception", "self._guard.failed('a')")) == []
    assert swallowed(source.format("Exception as e", "raise Busy from e")) == []


def swallowed(source):
    """Return the lines in *source* that catch builtin exceptions and go on."""
    found = []
    for node in ast.walk(ast.parse(source)):
        kinds, inside = list[ast.AST](), list[ast.AST]()
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            kinds.append(node.type)
            inside += [n for s in node.body for n in ast.walk(s)]
        elif isinstance(node, ast.Call) and name_of(node) == "suppress":
            kinds += node.args
        else:
            continue
        passes = any(
            isinstance(one, ast.Raise)
            or (isinstance(one, ast.Call) and name_of(one) in ("pass_on", "failed"))
            for one in inside
        )
        names = [n for kind in kinds for n in ast.walk(kind) if isinstance(n, ast.Name)]
        if not passes and any(hasattr(builtins, one.id) for one in names):
            found.append(node.lineno)
    return found


def name_of(call):
    """Return the name of what *call* calls, without its owner."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


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
