"""Mistakes in the source of a jitted function, and code that looks like them."""

import ast
import functools
import gc
import inspect
import linecache
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from jaxmon.agent.tracing.part import entry_of
from jaxmon.agent.tracing.reader import node_of, parsed, read
from tests.traced.faulty import FAULTY
from tests.traced.healthy import HEALTHY


HEAD = """
import collections, datetime, functools, logging, random, time, uuid
from datetime import datetime as dt
from functools import partial
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.numpy import tanh
from numpy.random import default_rng
log = logging.getLogger(__name__)
rng = np.random.default_rng(0)
draws = random.Random(0)
losses, seen, count = [], {}, 0
recent = collections.deque(maxlen=8)
DEBUG, VERBOSE = False, True
class State:
    def __init__(self): self.loss, self.history = 0.0, []
state = State()
"""


def function_of(source: str, path: Path) -> Any:
    """Return ``step`` of a module with that *source*."""
    path.write_text(HEAD + textwrap.dedent(source))
    names: dict[str, Any] = {"__name__": "program"}
    exec(compile(path.read_text(), str(path), "exec"), names)  # noqa: S102 - a module
    return names["step"]


def found_in(step: Any, path: Path, *static: str | int) -> list[tuple[int, str]]:
    """Return line and kind of all mistakes in *step*, jitted."""
    entry = entry_of(step, lambda _: False)
    assert entry is not None
    mistakes = read(entry, static=static, is_user=lambda file: file == str(path))
    return sorted((one.line, one.kind) for one in mistakes)


def expected(path: Path) -> list[tuple[int, str]]:
    """Return line and kind of the mistakes that comments announce."""
    return [
        (number, line.rpartition("  # ")[2])
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if "  # " in line
    ]


@pytest.mark.parametrize("name", FAULTY)
def test_mistakes_are_found(name: str, tmp_path: Path) -> None:
    """Each mistake is found at its line, and nothing else."""
    path = tmp_path / "program.py"
    step = function_of(FAULTY[name], path)

    assert found_in(step, path) == expected(path) != []


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_code_is_left_alone(name: str, tmp_path: Path) -> None:
    """What is meant, or cannot be told from what is meant, is no mistake."""
    path = tmp_path / "program.py"

    assert found_in(function_of(HEALTHY[name], path), path) == []


# Source, and which arguments are static.
SPECIAL: dict[str, tuple[str, tuple[str | int, ...]]] = {
    "a static object has counters": (
        """
        class Trainer:
            def __init__(self): self.steps = 0
            def rate(self): return 0.1 / self.steps
            def step(self, x):
                self.steps += 1  # advanced
                return x * self.rate()
        step = Trainer.step
        """,
        (0,),
    ),
    "static by position or name": (
        """
        def step(model, x, size):
            print(model, size)
            model.losses.append(x)  # leaked
            model.loss = x  # leaked
            model.sizes.append(size)
            return x
        """,
        (0, "size"),
    ),
    "a long chain": (
        f"def step(x):\n    return x{'.at[0].set(time.time())' * 60}  # frozen\n",
        (),
    ),
    "recursion": (
        """
        def step(x):
            return other(x) + time.time()  # frozen
        def other(x):
            return step(x) + other(x)
        """,
        (),
    ),
    "every statement and expression": (
        """
        def step(x, *rest, flag=None, **more):
            a, (b, *c) = x, (x, x, x)
            d: int = 3
            e: int
            x += 1; x[0:1]; -x; x < 2; x and d; (f := x)
            try:
                g = {k: v for k, v in more.items()}
            except (KeyError, ValueError) as error:
                raise RuntimeError from error
            else:
                pass
            finally:
                del a
            while False:
                break
            match d:
                case 3: pass
            def generator():
                yield from range(3)
            async def later():
                await x
            h = [*rest, *[lambda *p, **q: p for _ in range(3)]]
            i = {**more}, {1, 2}, f"{x!r:>{d}}", b"", ..., x if flag else d
            with open("/dev/null") as file, file:
                file.write("")
            class Inner(dict):
                j = 1
            return x + time.time()  # frozen
        """,
        (),
    ),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_are_read_once(name: str, tmp_path: Path) -> None:
    """
    What is static is not traced, and outlives the call; neither a long chain, nor
    recursion, nor any syntax keeps the rest from being read.
    """
    path = tmp_path / "program.py"
    source, static = SPECIAL[name]

    assert found_in(function_of(source, path), path, *static) == expected(path) != []


def test_arguments_of_a_partial_are_no_traced_values(tmp_path: Path) -> None:
    """What a partial provides is not traced; what follows is."""
    path = tmp_path / "program.py"
    source = """
        def step(name, x, *, mode):
            print(name, mode)
            print(x)  # printed
            return x
        """
    step = functools.partial(function_of(source, path), "name", mode="fast")

    assert found_in(step, path) == expected(path) != []


def test_wrappers_of_libraries_may_separate_static_arguments(tmp_path: Path) -> None:
    """Inside, only what jax.numpy returns for arguments is traced."""
    path = tmp_path / "program.py"
    source = """
        def step(x):
            print(x)
            losses.append(x)
            return x + time.time()
        """
    step = function_of(source, path)

    @functools.wraps(step)
    def filtered(*args: Any) -> Any:
        return step(*args)

    entry = entry_of(filtered, lambda file: file == __file__)
    assert entry is not None
    found = read(entry, static=(), is_user=lambda _: True)
    assert [one.kind for one in found] == ["frozen"]


def test_the_mistake_names_its_source(tmp_path: Path) -> None:
    """A mistake says which call it is, in which function."""
    path = tmp_path / "program.py"
    entry = entry_of(function_of(FAULTY["helper"], path), lambda _: False)
    assert entry is not None
    (mistake,) = read(entry, static=(), is_user=lambda _: True)

    assert (mistake.file, mistake.text) == (str(path), "numpy.random.normal")
    assert mistake.within == "noise"


@pytest.mark.parametrize("change", ["", "# nothing\n", "def step(y): return y\n"])
def test_a_changed_source_is_not_read(change: str, tmp_path: Path) -> None:
    """If the file no longer has what was loaded, nothing is said about it."""
    path = tmp_path / "program.py"
    step = function_of(FAULTY["time"], path)
    path.write_text(change)

    assert found_in(step, path) == []


def test_a_notebook_is_read(tmp_path: Path) -> None:
    """The source of a cell is where IPython keeps it."""
    name = "<ipython-input-3-abc>"
    text = HEAD + textwrap.dedent(FAULTY["time"])
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, name, "exec"), names)  # noqa: S102 - a cell
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    try:
        assert len(found_in(names["step"], Path(name))) == 1
    finally:
        del linecache.cache[name]
    del tmp_path


def test_functions_without_a_source_are_left_alone(tmp_path: Path) -> None:
    """Text that was executed, generated code and libraries have no source to read."""
    names: dict[str, Any] = {}
    exec("def step(x): return x", names)  # noqa: S102 - text without a file

    assert node_of(names["step"].__code__) is None
    assert found_in(names["step"], Path("<string>")) == []
    assert entry_of(len, lambda _: False) is None
    path = tmp_path / "program.py"
    step = function_of(FAULTY["time"], path)
    entry = entry_of(step, lambda _: False)
    assert entry is not None
    assert read(entry, static=(), is_user=lambda _: False) == []


def test_a_lambda_is_read(tmp_path: Path) -> None:
    """A lambda alone on its line is read; of several on one line, none is."""
    path = tmp_path / "program.py"
    one = "step = jax.jit(lambda x: x + np.random.normal())  # frozen\n"
    step = function_of(one, path)
    assert found_in(step, path) == expected(path) != []

    two = "step, other = (lambda x: x + time.time()), (lambda x: x)\n"
    assert found_in(function_of(two, path), path) == []


def test_the_program_may_parse_beside_us() -> None:
    """
    Where the collector calls Python, as JAX has it do, trees that two threads build by
    `ast.parse` at once are errors of both, on Python 3.11.
    """
    source = Path(inspect.__file__).read_text()
    callbacks, done = list(gc.callbacks), threading.Event()

    def of_the_program(*_: object) -> None:
        sum(range(2000))

    def program() -> None:
        while not done.is_set():
            try:
                ast.parse(source)
            except SystemError as error:
                errors.append(error)

    errors: list[SystemError] = []
    thread = threading.Thread(target=program)
    gc.callbacks.append(of_the_program)
    try:
        thread.start()
        trees = [parsed(source) for _ in range(20)]
    finally:
        done.set()
        thread.join()
        gc.callbacks.remove(of_the_program)
    assert errors == []
    assert {len(tree.body) for tree in trees} == {len(ast.parse(source).body)}
    assert gc.callbacks == callbacks
    with pytest.raises(SyntaxError):
        parsed("def")
