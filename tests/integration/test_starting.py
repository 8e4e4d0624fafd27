"""`jaxmon.instrument` where it cannot start: one line, and the program goes on."""

import inspect
import signal
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import jax
import pytest

import jaxmon
from jaxmon.agent import Agent
from jaxmon.agent import agent as start
from jaxmon.errors import JaxmonError
from tests.helpers import session
from tests.helpers.agents import SILENT
from tests.helpers.processes import files, run_python


pytestmark = pytest.mark.contained
COULD_NOT = "jaxmon could not start; the program runs without it: "
USES_ALL = """
import jax
import jaxmon
jit = jax.jit
agent = jaxmon.instrument(port=0)
with jaxmon.request("predict"):
    pass
print(agent.running, agent.url, agent.collect(), float(jit(lambda x: x + 1)(1.0)))
from jaxmon import threads
print([t.name for t in threads.running()])
jaxmon.uninstrument()
"""


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_an_agent_that_is_switched_off_answers_everything() -> None:
    """It has the same methods and kinds of answers."""
    off = jaxmon.instrument(enabled=False)
    on = jaxmon.instrument(**SILENT)
    try:
        assert type(off) is Agent
        assert isinstance(on, Agent)
        assert not off.running
        names = public(type(on)) | {n for n in vars(on) if not n.startswith("_")}
        assert names == public(type(off)) | {
            name for name in vars(off) if not name.startswith("_")
        }
        for name in sorted(names):
            ours, theirs = getattr(off, name), getattr(on, name)
            if callable(theirs):
                assert inspect.signature(ours) == inspect.signature(theirs), name
                assert type(ours()) is type(theirs()), name
            elif theirs is not None and ours is not None:
                assert type(ours) is type(theirs), name
    finally:
        jaxmon.uninstrument()
    assert off.memory().bytes == 0
    assert off.memory().growth_since(off.memory()) == ()
    assert off.determinism.snapshot() == {}
    assert "stopped" in repr(off)


@pytest.mark.exhaustive
def test_a_module_of_the_program_with_a_name_of_pythons(tmp_path, run_dir):
    """It stands in front of Python's own: the program runs, without jaxmon."""
    (tmp_path / "queue.py").write_text("import sys\nx = 1\n")
    (tmp_path / "program.py").write_text(USES_ALL)

    result = run_python(str(tmp_path / "program.py"), run_dir=run_dir).ok()

    assert result.out == "False None [] 2.0\n[]\n"
    assert result.err.startswith(COULD_NOT)
    assert result.err.count("\n") == 1
    assert files(run_dir) == []


@pytest.mark.exhaustive
def test_a_module_of_the_program_that_ends_it(tmp_path: Path, run_dir: Path) -> None:
    """A script may exit when it is imported."""
    (tmp_path / "queue.py").write_text("raise SystemExit(3)")
    (tmp_path / "program.py").write_text(USES_ALL)

    result = run_python(str(tmp_path / "program.py"), run_dir=run_dir).ok()

    assert result.err == f"{COULD_NOT}SystemExit: 3\n"


@pytest.mark.parametrize("missing", ["jax", "numpy"])
def test_without_jax_or_numpy_there_is_one_sentence(python_script, missing):
    """The error that is documented, and no other behind it; marks work all the same."""
    source = f"""
import sys
sys.modules[{missing!r}] = None
import jaxmon
try:
    jaxmon.instrument(port=None)
except jaxmon.JaxmonError as error:
    print(error)
    assert error.__cause__ is error.__context__ is None
off = jaxmon.instrument(enabled=False)
off.memory(), off.determinism, off.collect()
with jaxmon.request("predict"):
    pass
"""
    result = python_script(source).ok()

    assert result.out.startswith("jaxmon.instrument() needs JAX, and importing it")
    assert result.out.count("\n") == 1
    assert "Traceback" not in result.err  # jaxlib has a word of its own on NumPy


ASKS = """
import jaxmon
try:
    jaxmon.instrument(port=None)
except jaxmon.JaxmonError as error:
    print(error)
    assert error.__cause__ is error.__context__ is None
"""
RAISED = {
    "raise RuntimeError('jaxlib 1 is too old')": "RuntimeError: jaxlib 1 is too old.",
    "import http; http.server": "AttributeError: module 'http' has no attribute",
    "class Odd(Exception): pass\nraise Odd('two\\nlines')": "Odd: two lines.",
    "raise SystemExit(3)": "SystemExit: 3.",
    "raise ValueError": "ValueError. Install",
}


@pytest.mark.parametrize("source", RAISED)
def test_an_import_of_jax_that_fails_in_any_way_is_one_sentence(
    tmp_path, python_script, source
):
    """Whatever is raised is quoted."""
    (tmp_path / "jax.py").write_text(source)

    result = python_script(ASKS).ok()

    assert result.out.startswith("jaxmon.instrument() needs JAX, and importing it")
    assert RAISED[source] in result.out
    assert result.out.count("\n") == 1
    assert result.err == ""


def test_a_time_limit_that_ends_the_import_of_jax_is_the_programs(
    tmp_path, python_script
):
    """What a handler of the program raises meanwhile reaches the program as it is."""
    (tmp_path / "jax.py").write_text("import signal; signal.raise_signal(14)")
    limit = """
import signal
class Limit(Exception): pass
def expire(*_): raise Limit("too slow")
signal.signal(signal.SIGALRM, expire)
"""
    result = python_script(limit + ASKS)

    assert result.code == 1
    assert "Limit: too slow" in result.err
    assert result.out == ""


def test_a_time_limit_while_it_starts_by_itself_is_the_programs(
    tmp_path, python_script
):
    """As `jaxmon run` starts it: it is no failure to start."""
    (tmp_path / "jax.py").write_text("__version__ = '1'\n")
    result = python_script("""
import signal, sys
class Limit(Exception): pass
def expire(*_): raise Limit("too slow")
signal.signal(signal.SIGALRM, expire)
from jaxmon.autostart import when_jax_is_imported
when_jax_is_imported(port=None)
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "jaxmon.agent.runtime":
            signal.raise_signal(signal.SIGALRM)
sys.meta_path.insert(0, Finder())
import jax
""")

    assert result.code == 1
    assert result.err.splitlines()[-1] == "Limit: too slow"
    assert "could not start" not in result.err


def test_an_interrupt_that_numpy_replaces_is_the_programs(python_script):
    """C code that imports NumPy prints it, and raises an `ImportError`."""
    interrupt = """
import signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "numpy.linalg":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Finder())
"""
    result = python_script(interrupt + ASKS)

    assert result.code == -signal.SIGINT
    assert result.err.splitlines()[-1] == "KeyboardInterrupt"
    assert result.out == ""


def test_a_jax_that_is_another_is_one_line(tmp_path, python_script):
    """A module of the program that is called ``jax``."""
    (tmp_path / "jax.py").write_text("__version__ = '1'\n")
    source = "import jaxmon\nprint(jaxmon.instrument(port=None).running)"

    result = python_script(source).ok()

    assert result.out == "False\n"
    assert result.err.startswith(COULD_NOT)
    assert result.err.count("\n") == 1


LATER = ("jaxmon.agent.recompiles.causes", "jaxmon.agent.reports.overview")
NEVER = ("jaxmon.catalog.sidecar",)
LOADS = f"""
import sys
import jax, jaxmon
from jaxmon.agent import agent
running = jaxmon.instrument(port=None)
print([name for name in {(*LATER, *NEVER)} if name in sys.modules])
jax.jit(lambda x: x + 1)(1.0)
agent.runtime_of(running).overview.whole()
running.collect()
print([name for name in {(*LATER, *NEVER)} if name in sys.modules])
jaxmon.uninstrument()
"""


def test_an_agent_loads_what_it_needs_when_it_needs_it(python_script):
    """Causes at the first compile, pages on request, metrics of a sidecar never."""
    assert python_script(LOADS).ok().out.splitlines() == ["[]", str([*LATER])]


def test_a_python_without_its_lock(monkeypatch, caplog, run_dir):
    """One sentence says what to do; JAX stays as it is, and marks do nothing."""
    before = session.snapshot()
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    agent = jaxmon.instrument(port=0)
    with jaxmon.request("predict"):
        assert float(jax.jit(lambda x: x + 1)(1.0)) == 2

    version = ".".join(map(str, sys.version_info[:3]))
    [record] = caplog.records
    assert record.getMessage() == (
        f"{COULD_NOT}Python {version} runs without its global interpreter lock (GIL), "
        "which jaxmon needs to count correctly; set PYTHON_GIL=1, or use a Python that "
        "is not free-threaded"
    )
    assert (agent.running, agent.url, agent.collect()) == (False, None, [])
    assert files(run_dir) == []
    assert session.leaked(before) == []
    with pytest.raises(JaxmonError, match="nothing is counted"), jaxmon.budget():
        pass


def test_a_lock_that_jax_brings_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library without support for free threads enables the lock: jaxmon works."""
    libraries: list[str] = []

    def importing(name: str) -> ModuleType:
        libraries.append(name)
        return import_module(name)

    monkeypatch.setattr(start, "import_module", importing)
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: bool(libraries), raising=False)
    assert not sys._is_gil_enabled()  # type: ignore[attr-defined, unused-ignore]
    agent = jaxmon.instrument(**SILENT)
    assert agent.running
    jaxmon.uninstrument()
