"""Rules that no linter knows."""

import ast
import builtins
import re
from collections.abc import Iterator

from tests.helpers.processes import PRODUCT, ROOT


_OPENERS = (
    *("open", "fdopen", "dup", "pipe", "pipe2", "eventfd", "memfd_create", "mkstemp"),
    *("socket", "socketpair", "create_server", "create_connection", "Socket", "pair"),
    *("epoll", "DefaultSelector", "EpollSelector", "TemporaryFile", "mmap", "scandir"),
)


def nodes(source: str, having: str = "") -> Iterator[ast.AST]:
    """
    Yield the nodes of *source*; none if no text in it matches *having*: to parse takes
    a hundred times as long as to look for that.
    """
    if re.search(having, source):
        yield from ast.walk(ast.parse(source))


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
        for folder in (*PRODUCT, "tests", "tools", "benchmarks", "examples")
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
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(connects, path.read_text(), re.MULTILINE)
    }
    assert found == {
        # The clients of everything else, by `stream`.
        *("jaxmon/host/http/stream.py", "jaxmon/host/http/fetch.py"),
        *("jaxmon/otel/exporters.py", "jaxmon/otel/session.py"),
        *("exporters/jaxmon_exporter/collectors/tpu/messages.py",),
        # These read nothing.
        *(
            "jaxmon/host/rundir.py",
            "jaxmon/host/resources/hung.py",
            "jaxmon/preflight/doctor/environment.py",
        ),
        *("exporters/jaxmon_exporter/collectors/tpu/runtimes.py",),
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


def test_what_is_observed_finds_the_observer_complete():
    """A part may be made by another thread: once it observes, it may be called."""
    early = []
    for path in sorted((ROOT / "jaxmon").rglob("*.py")):
        for made in nodes(path.read_text(), r"append\(\s*self\._|append\(\s*self\.on_"):
            if isinstance(made, ast.FunctionDef) and made.name == "__init__":
                steps = [ast.unparse(step) for step in made.body]
                observed = [
                    n for n, step in enumerate(steps) if "append(self._" in step
                ]
                observed += [
                    n for n, step in enumerate(steps) if "append(self.on_" in step
                ]
                rest = steps[min(observed, default=len(steps)) :]
                early += [f"{path.name}: {s}" for s in rest if re.match(r"self\.", s)]
    assert early == []


def test_nothing_sets_what_belongs_to_the_whole_process():
    """
    Such a setting would be the program's, too: while it lasts, and afterwards if the
    program saves and restores it meanwhile.
    """
    # Programs and commands of ours are processes of their own.
    own = ("artifacts", "baseline", "cli", "demo", "gameday", "grafana", "testing")
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "jaxmon").rglob("*.py"))
        if path.relative_to(ROOT).parts[1] not in own
        for line in settings_of_the_process(path.read_text())
    ]
    assert found == []


def test_a_setting_of_the_process_is_found():
    """A call is found, a text and a method of something else are not."""
    source = "sys.setswitchinterval(1)\nos.umask(0)\nx = 'gc.freeze()'\nmy.umask(0)\n"
    assert settings_of_the_process(source) == [1, 2]


def settings_of_the_process(source):
    """Return the lines that set something for the whole process."""
    setters = (
        r"os\.(umask|f?chdir|nice|putenv|unsetenv)|sys\.set\w+|locale\.setlocale"
        r"|gc\.(disable|enable|freeze|unfreeze|set_\w+)|resource\.setrlimit"
        r"|socket\.setdefaulttimeout|warnings\.(simple)?filter\w*|random\.seed"
    )
    return [
        node.lineno
        for node in nodes(source, setters)
        if isinstance(node, ast.Call) and re.fullmatch(setters, ast.unparse(node.func))
    ]


def test_listed_items_are_found():
    """The items of an attribute are found, those of a copy or a local are not."""
    source = "list(self._a.items())\nlist(a.items())\nlist(a.b.copy().items())\n"
    assert listed_items(source) == [1]


# What these catch, they catch on threads of ours, while an agent starts, or as the
# program exits; `decorate` passes it on to a generator of the program.
ELSEWHERE = [
    "agent/cache/directory",
    "agent/checks/keys",
    "agent/checks/log_values",
    "agent/checks/numerics",
    "agent/compiles/programs",
    "agent/devices/driver_metrics",
    "agent/devices/hardware",
    "agent/errors/helpers",
    "agent/eventlog",
    "agent/goodput/part",
    "agent/goodput/store",
    "agent/history/times",
    "agent/jaxlink/hooks",
    "agent/jaxlink/names/__init__",
    "agent/jaxlink/profiler",
    "agent/loaded_programs",
    "agent/loaded_programs",
    "agent/oom/part",
    "agent/reports/directory",
    "agent/reports/setup",
    "agent/reports/exit_reports",
    "agent/reports/profile",
    "agent/runtime",
    "agent/scheduler",
    "agent/serving",
    "agent/traces",
    "agent/tracing/reader",
    "agent/versions",
    "agent/warm/compiling",
    "agent/worker",
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
    for node in nodes(source, r"\b(except|suppress)\b"):
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


def test_no_descriptor_is_kept_unguarded():
    """
    What stays open in the user's program is in `jaxmon.host.files.descriptor`, which
    notices that the program has closed it: no attribute is a descriptor, or hides one.
    """
    kept = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "jaxmon").rglob("*.py"))
        # Commands run alone.
        if path.relative_to(ROOT).parts[1] not in ("cli", "preflight")
        for line in kept_descriptors(path.read_text())
    ]
    assert kept == []


def test_kept_descriptors_are_found():
    """An attribute that is one is found, also in a tuple; a local is not."""
    source = (
        "self.a = os.open(path, flags)\nself.b, self.c = os.pipe()\n"
        "self.d = undo.enter_context(selectors.DefaultSelector())\n"
        "self.e = OwnedSocket(socket.socket())\nwith open(path) as f: pass\n"
        "a = socket.socket()\nself.f = path.open()\nself.g: int = os.dup(1)\n"
    )
    assert kept_descriptors(source) == [1, 2, 3, 7, 8]


def kept_descriptors(source):
    """Return the lines in *source* that keep what opens a descriptor."""
    found = []
    for node in nodes(source, rf"\b({'|'.join(_OPENERS)})\("):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        value = node.value
        if isinstance(value, ast.Call) and "enter_context" in ast.unparse(value.func):
            value = value.args[0]
        target = ast.unparse(node).partition(" = ")[0].partition(":")[0]
        if isinstance(value, ast.Call) and "." in target:
            name = ast.unparse(value.func).rpartition(".")[2]
            found += [node.lineno] * (name in _OPENERS)
    return found


def listed_items(source):
    """Return the lines in *source* that list the items of an attribute as they are."""
    return [
        node.lineno
        for node in nodes(source, r"\b(list|tuple|sorted)\(.*(\n.*)?\.items\(")
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
    *("cli/", "preflight/", "host/http/fetch.py", "host/http/session.py"),
    *("host/subprocesses.py",),
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
    words = "|".join({"selectors"}.union(*_FOREIGN.values()))
    for node in nodes(source, rf"\b({words})\b"):
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
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    lines = source.splitlines()
    found = [
        node.body[0]
        for node in nodes(source, r'(?m)^ *r?"""\n.*\n *"""$')
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
    texts = re.findall(r'\bdef test_[^"#]*:\n +r?"{3}([^"]*?)(?:\n\n|"{3})', source)
    if sum(is_sentence(text.strip()) for text in texts) == source.count("def test_"):
        return []  # parsing all takes seconds
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
    shows nothing of it but by `jaxmon.host.disclosure`.
    """
    readers = {
        "jaxmon/agent/history/part.py",  # names a file by their digest
        "jaxmon/agent/jaxlink/source_lines.py",  # reads the script
        "jaxmon/agent/oom/part.py",  # the name of the script
        "jaxmon/agent/warm/compiling.py",  # its own
        "jaxmon/host/bootstrap/sitecustomize.py",  # a comparison
        "jaxmon/cli/entry.py",  # its own
        "jaxmon/cli/launch.py",  # starts a process with them
        "jaxmon/host/disclosure.py",
        "jaxmon/otel/resource.py",  # the script
        "jaxmon/host/resources/hung.py",  # by `disclosure.command`
    }
    assert set(with_text(r"sys\.(?:orig_)?argv\b|\borig_argv\b|/cmdline")) == readers
    found = with_text(r"\{type\(error\)\.__name__\}: \{error\}")
    # Of drivers, and of what our own code raises in commands of the user.
    assert found == [
        "exporters/jaxmon_exporter/collectors/ras_replies.py",
        "jaxmon/cli/doctor.py",
        "jaxmon/cli/top/state.py",
        "jaxmon/preflight/doctor/machine.py",
    ]


def test_markdown_has_one_escape():
    """Tables of untrusted text are made in one place, which escapes by a table."""
    assert with_text(r"\\\\\|") == []


def with_text(pattern: str) -> list[str]:
    """Return the files of the product with text that matches *pattern*."""
    return [
        str(path.relative_to(ROOT))
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(pattern, path.read_text())
    ]
