"""Mistakes in the source of a jitted function, and code that looks like them."""

from __future__ import annotations

import ast
import functools
import linecache
import textwrap
from pathlib import Path
from typing import Any

import pytest

from jaxmon.agent.tracing.reading import entry_of, read
from jaxmon.agent.tracing.sources import node_of


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

# What `step` contains; a comment names the mistake on its line.
FAULTY = {
    "time": """
        def step(x):
            return x + time.time()  # frozen
        """,
    "elapsed": """
        def step(x):
            begin = time.perf_counter()  # frozen
            y = jnp.dot(x, x)
            print("took", time.perf_counter() - begin)  # frozen
            return y
        """,
    "date": """
        def step(x):
            return x * datetime.datetime.now().hour + dt.now().minute  # frozen
        """,
    "numpy": """
        def step(x):
            noise = np.random.normal(size=x.shape)  # frozen
            return x + noise
        """,
    "noise through jnp": """
        def step(x):
            noise = jnp.asarray(np.random.rand(*x.shape), x.dtype)  # frozen
            return x + 0.1 * noise
        """,
    "generator": """
        def step(x):
            return x * rng.uniform() + draws.random()  # frozen
        """,
    "own generator": """
        def step(x):
            mine = default_rng()  # frozen
            return x + mine.normal(size=3)
        """,
    "key": """
        def step(x):
            key = jax.random.PRNGKey(random.randint(0, 1 << 30))  # frozen
            return x + jax.random.normal(key, x.shape)
        """,
    "seed of the time": """
        def step(x):
            seed = int(time.time() * 1000) % 1000  # frozen
            return x + jax.random.normal(jax.random.key(seed), x.shape)
        """,
    "branch": """
        def step(x):
            if random.random() < 0.5:  # frozen
                x = jnp.flip(x)
            return x
        """,
    "index": """
        def step(x):
            order = np.random.permutation(len(x))  # frozen
            return x[order]
        """,
    "helper": """
        def noise(shape):
            return np.random.normal(size=shape)  # frozen
        def step(x):
            return x + noise(x.shape)
        """,
    "loss": """
        def loss(w, x):
            drop = np.random.binomial(1, 0.5, size=x.shape)  # frozen
            print(w)  # printed
            return jnp.mean(x * drop * w)
        def step(w, x):
            value, grads = jax.value_and_grad(loss)(w, x)
            losses.append(value)  # leaked
            return w - grads
        """,
    "loss by name": """
        def loss(w, x):
            return jnp.mean(x * w) + time.time()  # frozen
        gradient = jax.grad(loss)
        def step(w, x):
            return w - gradient(w, x)
        """,
    "scan": """
        def step(x):
            def body(carry, one):
                print("carry", carry)  # printed
                losses.append(one)  # leaked
                return carry + one, one
            return lax.scan(body, 0.0, x)
        """,
    "lambda": """
        def step(x):
            return jax.tree.map(lambda one: one + random.random(), x)  # frozen
        """,
    "checkpoint": """
        def step(x):
            @jax.checkpoint
            def block(y):
                log.info("y = %s", y)  # printed
                return tanh(y)
            return block(x)
        """,
    "print": """
        def step(x):
            loss = jnp.mean(x)
            print(f"loss: {loss}")  # printed
            logging.warning("loss %s", loss)  # printed
            print("first", x[0], sep=":")  # printed
            return loss
        """,
    "file": """
        def step(x):
            with open("/tmp/log", "a") as file:
                file.write(f"{x.sum()}")  # printed
            return x
        """,
    "containers": """
        def step(x):
            y = x * 2
            seen["y"] = y  # leaked
            recent.append(y)  # leaked
            state.history.append(y.sum())  # leaked
            state.loss = y  # leaked
            return y
        """,
    "parts": """
        def layer(x):
            return jnp.tanh(x), "name"
        def step(x):
            y, name = layer(x)
            print(y)  # printed
            losses.append({"y": y, "name": name})  # leaked
            pair = name, y
            log.info("%s", pair[1])  # printed
            seen[name] = [name] + [y]  # leaked
            return y
        """,
    "counter": """
        def step(x):
            global count
            count += 1  # advanced
            return x / count
        """,
    "counter of an object": """
        class Trainer:
            def __init__(self): self.steps, self.peak = 0, 0.1
            def rate(self):
                return self.peak * min(1.0, self.steps / 100)
            def step(self, x):
                self.steps = self.steps + 1  # advanced
                return x * self.rate()
        trainer = Trainer()
        step = trainer.step
        """,
    "counter of a closure": """
        def make():
            seed = 0
            def step(x):
                nonlocal seed
                seed += 1  # advanced
                return x + jax.random.normal(jax.random.PRNGKey(seed))
            return step
        step = make()
        """,
    "submodules": """
        def step(x):
            losses.append(jnp.linalg.norm(x))  # leaked
            return x
        """,
    "global": """
        def step(x):
            global count
            count = x.sum()  # leaked
            return x
        """,
    "sum in a global": """
        def step(x):
            global count
            count += x.sum()  # leaked
            return x
        """,
    "closure": """
        def make():
            kept, total = [], 0
            def step(x):
                nonlocal total
                total = x.sum()  # leaked
                kept.append(total)  # leaked
                return x
            return step
        step = make()
        """,
    "method": """
        class Trainer:
            def __init__(self): self.losses = []
            def step(self, x):
                loss = self.loss(x)
                self.last = loss  # leaked
                self.losses.append(loss)  # leaked
                return x
            def loss(self, x):
                return jnp.mean(x) + 0 * time.time()  # frozen
        trainer = Trainer()
        step = trainer.step
        """,
    "static and class functions": """
        class Noise:
            scale = staticmethod(lambda x: x * 2)
            def __init__(self): self.draw = lambda x: x + np.random.normal()
            @staticmethod
            def add(x, name):
                print(name)
                return x + np.random.normal()  # frozen
        noise = Noise()
        def step(x):
            print(noise.add(x, "x"))  # printed
            return Noise.add(x, "y")
        """,
    "update": """
        def step(x):
            x.at[0].set(1.0)  # dropped
            x.at[:, 1].add(2.0, mode="drop")  # dropped
            if x.ndim > 1:
                x.at[0].multiply(0)  # dropped
            return x
        """,
    "results": """
        import optax
        def step(x, state, key):
            jnp.clip(x, 0, 1)  # dropped
            optax.apply_updates(x, x)  # dropped
            state.apply_gradients(grads=x)  # dropped
            jax.random.split(key)  # dropped
            x.astype(jnp.float32)  # dropped
            return x * 2
        """,
    "update in a helper": """
        def clear(x):
            x.at[0].set(0)  # dropped
        def step(x):
            clear(x)
            return x
        """,
    "a setting that is on": """
        def step(x):
            if VERBOSE:
                print(x)  # printed
            return x
        """,
    "an imported module": """
        def step(x):
            import time as clock
            from random import uniform
            return x * clock.time() + uniform(0, 1)  # frozen
        """,
}

HEALTHY = {
    "pure": """
        def step(x):
            '''print(x)'''
            y = jnp.dot(x, x)
            return {"y": y, "time": x.shape[0]}
        """,
    "jax.random": """
        from jax import random
        def step(x):
            key = random.PRNGKey(0)
            return x + random.normal(key, x.shape) + random.uniform(key)
        """,
    "statements that do something": """
        import optax
        def step(x, state):
            state.apply_gradients([x])
            state.restore(**{"x": x})
            jnp.set_printoptions(precision=3)
            jax.debug.print("{}", x)
            jnp.broadcast_shapes(x.shape, (1,))
            state.update(x)
            jax.block_until_ready(x)
            log.info("step")
            x = optax.apply_updates(x, x)
            return x
        """,
    "counters of traces, and names": """
        class Layers:
            def __init__(self): self.count, self.depth = 0, 0
            def name(self):
                self.count += 1
                return f"layer{self.count}"
            def step(self, x):
                global count
                count += 1
                self.depth += 1
                name = self.name()
                y = x * self.depth
                self.depth -= 1
                total = 0
                for one in (1, 2):
                    total += one
                return {name: y * total}
        step = Layers().step
        """,
    "messages about tracing": """
        def step(x):
            print("tracing step for", x)
            log.info("compiling for %s", x)
            begin = time.time()
            y = jnp.dot(x, x)
            log.debug("traced in %.1f s", time.time() - begin)
            return y
        """,
    "messages about shapes": """
        def step(x):
            print(x.shape, x.dtype, len(x), type(x))
            log.info(f"step {x.shape=} {x.ndim}")
            print("step")
            return x
        """,
    "counters of traces": """
        def step(x):
            global count
            count += 1
            losses.append(1)
            seen[x.shape] = count
            state.loss = x.shape
            return x
        """,
    "callbacks": """
        def host(x):
            print(x)
            losses.append(x)
            return np.random.normal(size=x.shape)
        def step(x):
            jax.debug.print("x = {}", x)
            jax.debug.callback(host, x)
            jax.debug.callback(lambda y: losses.append(time.time() + y), x)
            def inner(y):
                print(y)
                return np.float32(time.time())
            t = jax.pure_callback(inner, jax.ShapeDtypeStruct((), jnp.float32), x)
            return x + t
        """,
    "local containers": """
        def step(x):
            kept, found = [], {}
            for at in range(3):
                kept.append(x * at)
                found[at] = x
            def inner(y):
                kept.append(y)
                return y
            inner(x)
            class Box: pass
            box = Box()
            box.x = x
            return jnp.stack(kept)
        """,
    "local state of a closure": """
        def step(x):
            total = 0
            def add(y):
                nonlocal total
                total = total + y
            add(x)
            return total
        """,
    "restored": """
        def step(x):
            before = state.loss
            state.loss = x
            recent.append(x)
            y = jnp.tanh(state.loss)
            recent.pop()
            state.loss = before
            return y
        """,
    "a setting that is off": """
        def step(x):
            if DEBUG:
                print(x)
                losses.append(x)
            if not VERBOSE or x.ndim > 7:
                x = x + np.random.normal()
            return x
        """,
    "after a return": """
        def step(x):
            if x.ndim:
                return x
            print(x)
            return x + time.time()
        """,
    "seeded": """
        def step(x):
            fixed = np.random.default_rng(0).normal(size=3)
            more = np.random.RandomState(1).rand(3)
            np.random.seed(0)
            return x + fixed + more
        """,
    "updates that are used": """
        def step(x):
            x = x.at[0].set(1.0)
            y, z = x.at[1].add(2.0), x.at[0].get()
            found = {}
            found.setdefault("a", x)
            return y.at[2].set(z)
        """,
    "a time that no result depends on": """
        def step(x):
            begin = time.time()
            y = jnp.dot(x, x)
            state.seconds = time.time() - begin
            log.info("building")
            return y
        """,
    "what stands beside a traced value": """
        def layer(x, name):
            return jnp.tanh(x), name
        def step(x):
            y, name = layer(x, "first")
            print(name)
            losses.append(name)
            found = {"x": x, "name": name}
            print(found["name"])
            pair = x, "second"
            log.info(pair[1])
            a, b = pair
            log.info("%s", b)
            for name in ["a", x]:
                print(name)
            print(found.get("name"))
            named = [(name, one) for one in (x, y)]
            print(named[0][0])
            losses.append(jax.tree.leaves(found)[1])
            names = [*pair, name]
            losses.append(names[1])
            state.sizes = [1, x.ndim]
            return y
        """,
    "names of leaves": """
        def step(params):
            for name, value in params.items():
                print(name)
            for name in params:
                log.info(name)
            return params
        """,
    "checks": """
        def step(x):
            assert x.ndim == 1, f"{x} is no vector"
            if x.shape[0] == 0:
                raise ValueError(f"{x} is empty")
            return x
        """,
    "the same names for other things": """
        class time:
            time = staticmethod(lambda: 3.0)
        def print(x): return x
        class Random:
            def random(self): return 4
        rng = Random()
        def step(x):
            print(x)
            return x + time.time() + rng.random()
        """,
    "helpers that are not called": """
        def report(x):
            print(x, time.time())
        def step(x):
            other = report
            return x
        """,
    "concrete": """
        def step(x):
            with jax.ensure_compile_time_eval():
                table = jnp.sin(np.arange(3.0))
                losses.append(table)
                print(table)
            return x * table
        """,
    "a generator of names": """
        ids = iter(range(10))
        def step(x):
            name = f"layer{next(ids)}-{uuid.uuid4()}"
            with jax.named_scope(name):
                return x * 2
        """,
}


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


METHOD = """
    class Trainer:
        def __init__(self): self.steps = 0
        def rate(self): return 0.1 / self.steps
        def step(self, x):
            self.steps += 1  # advanced
            return x * self.rate()
    step = Trainer.step
    """


def test_a_static_object_has_counters(tmp_path: Path) -> None:
    """``jax.jit(..., static_argnums=0)`` on a method: the object is its class's."""
    path = tmp_path / "program.py"
    step = function_of(METHOD, path)

    assert found_in(step, path, 0) == expected(path) != []


STATIC = """
    def step(model, x, size):
        print(model, size)
        model.losses.append(x)  # leaked
        model.loss = x  # leaked
        model.sizes.append(size)
        return x
    """


def test_static_arguments_are_no_traced_values(tmp_path: Path) -> None:
    """Static arguments are known by position or name, and outlive the call."""
    path = tmp_path / "program.py"
    step = function_of(STATIC, path)

    assert found_in(step, path, 0, "size") == expected(path) != []


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
    """
    Inside a wrapper of another library, arguments may be anything: only what
    jax.numpy returns for them is traced, if they are.
    """
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
    assert mistake.function == "noise"


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


def test_a_long_chain_is_read_once(tmp_path: Path) -> None:
    """Reading a chain of calls costs no more than its length."""
    path = tmp_path / "program.py"
    chain = ".at[0].set(time.time())" * 60
    step = function_of(f"def step(x):\n    return x{chain}  # frozen\n", path)

    assert found_in(step, path) == expected(path) != []


def test_recursion_ends(tmp_path: Path) -> None:
    """Functions that call each other are read once, and a great many not all."""
    path = tmp_path / "program.py"
    source = "def step(x):\n    return other(x) + time.time()  # frozen\n"
    source += "def other(x):\n    return step(x) + other(x)\n"
    step = function_of(source, path)

    assert found_in(step, path) == expected(path) != []


def test_a_lambda_is_read(tmp_path: Path) -> None:
    """A lambda alone on its line is read; of several on one line, none is."""
    path = tmp_path / "program.py"
    one = "step = jax.jit(lambda x: x + np.random.normal())  # frozen\n"
    step = function_of(one, path)
    assert found_in(step, path) == expected(path) != []

    two = "step, other = (lambda x: x + time.time()), (lambda x: x)\n"
    assert found_in(function_of(two, path), path) == []


def test_every_statement_and_expression_is_read(tmp_path: Path) -> None:
    """Syntax of all kinds does not keep it from reading on."""
    path = tmp_path / "program.py"
    source = """
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
        """
    step = function_of(source, path)

    assert found_in(step, path) == expected(path) != []
    assert isinstance(node_of(step.__code__), ast.FunctionDef)
