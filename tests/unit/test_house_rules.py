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


def test_only_limited_clients_connect():
    """
    What connects is limited in time and size, as `test_bounded_clients` shows of those
    that read: nothing else connects, or makes an exporter of the SDK.
    """
    connecting = (
        r"\.connect(_ex)?\(|create_connection\(|_channel\(|urlopen|OTLP\w*Exporter"
    )
    connects = rf"{connecting}|^ *(import|from) (requests|urllib3|httpx|aiohttp)\b"
    found = {
        path.relative_to(ROOT).as_posix()
        for folder in ("jaxmon", "exporters")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(connects, path.read_text(), re.MULTILINE)
    }
    assert found == {
        # The clients of everything else, by `stream`.
        *("jaxmon/http/stream.py", "jaxmon/http/fetch.py"),
        *("jaxmon/otel/exporters.py", "jaxmon/otel/session.py"),
        *("exporters/jaxmon_exporter/collectors/tpu/channel.py",),
        # These read nothing.
        *("jaxmon/rundir.py", "jaxmon/resources/hung.py", "jaxmon/doctor/nccl.py"),
        *("exporters/jaxmon_exporter/collectors/tpu/listening.py",),
    }


def test_what_waits_at_the_end_has_the_deadline():
    """No part joins one of our threads for a time of its own."""
    own = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("agent", "otel")
        for path in sorted((ROOT / "jaxmon" / folder).rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(r"thread\.join\(", line)
        and not re.search(r"\((self\.)?_?(guard\.)?deadline\.portion|seconds\)", line)
    ]
    assert own == []


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


def test_threads_and_locks_in_the_program_are_our_own():
    """
    What runs in the user's process starts no thread that `threading` lists, and waits
    in nothing that gevent or eventlet may replace.
    """
    foreign = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "jaxmon").rglob("*.py"))
        if not path.relative_to(ROOT / "jaxmon").as_posix().startswith(_COMMANDS)
        for line in foreign_threads(path.read_text())
    ]
    assert foreign == []


def test_the_switch_interval_is_the_programs():
    """Nothing sets it: a program that saves and restores it would keep ours."""
    setting = [
        str(path.relative_to(ROOT))
        for folder in ("jaxmon", "exporters")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "setswitchinterval" in path.read_text()
    ]
    assert setting == []


def test_foreign_threads_are_found():
    """Calls, bases and imports are found; annotations and our own names are not."""
    source = (
        "import threading, selectors\n"
        "from threading import RLock, get_ident\n"
        "from jaxmon.threads import Event, Lock\n"
        "from queue import SimpleQueue\n"
        "from time import monotonic, sleep\n"
        "class A(threading.Thread): ...\n"
        "a: threading.Thread = threading.Event()\n"
        "time.sleep(1), Event(), asyncio.to_thread(f), threading.get_ident()\n"
        "def f(of: threading.Thread, started=threading.Thread.start): ...\n"
    )
    assert foreign_threads(source) == [1, 2, 4, 5, 6, 7, 8, 8]


# Only commands use these.
_COMMANDS = (
    *("cli/", "doctor/", "demo/", "gameday/", "grafana/", "monitoring/"),
    *("http/fetch.py", "signatures/", "subprocesses.py"),
)
_FOREIGN = {
    "threading": {
        *("Thread", "Timer", "Lock", "RLock", "Event", "Condition", "Barrier"),
        *("Semaphore", "BoundedSemaphore"),
    },
    "queue": {"Queue", "SimpleQueue"},
    "time": {"sleep"},
    "asyncio": {"to_thread"},
    "concurrent.futures": {"ThreadPoolExecutor"},
}


def foreign_threads(source):
    """Return the lines in *source* that use threads and waits of the library."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names = {one.name for one in node.names}
            found += [node.lineno] * bool(
                names & _FOREIGN.get(node.module or "", set())
            )
        elif isinstance(node, ast.Import):
            found += [node.lineno] * any(one.name == "selectors" for one in node.names)
        used = [node.func] if isinstance(node, ast.Call) else []
        used += node.bases if isinstance(node, ast.ClassDef) else []
        found += [
            one.lineno
            for one in used
            if isinstance(one, ast.Attribute)
            and isinstance(one.value, ast.Name)
            and one.attr in _FOREIGN.get(one.value.id, set())
        ]
    return sorted(found)


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
