"""What stands for a function of JAX or Python, beside the original."""

import re
import sys
import threading
import types
from importlib import import_module
from typing import Any

import pytest

import jaxmon
from jaxmon.agent.jaxlink.listeners import Probe
from jaxmon.agent.jaxlink.patches import ModuleProxy
from tests.helpers import inside
from tests.helpers.agents import instrumented
from tests.helpers.likeness import MODULES, PAGE, outcome
from tests.helpers.processes import QUICK_COMPILES, ROOT, require_module, run_python


pytestmark = pytest.mark.ground_truth


OF_A_NAME = """
pickle.loads(pickle.dumps(f)) is f
pickle.loads(cloudpickle.dumps(f)) is f
len(pickle.dumps(f))
len(cloudpickle.dumps(f))
len(pickle.dumps(functools.partial(f, 1)))
copy.copy(f) is f
copy.deepcopy(f) is f
inspect.signature(f)
inspect.unwrap(f) is not None
typing.get_type_hints(f)
functools.wraps(f)(lambda: 1).__qualname__
functools.update_wrapper(lambda: 1, f).__module__
callable(f)
inspect.isfunction(f)
inspect.ismethod(f)
inspect.isbuiltin(f)
inspect.isroutine(f)
inspect.iscoroutinefunction(f)
inspect.isclass(f)
inspect.getdoc(f)
inspect.getmodule(f)
inspect.getsource(f)[:40]
inspect.getsourcefile(f)
inspect.getfullargspec(f)
f.__module__
f.__name__
f.__qualname__
f.__doc__
f.__defaults__
f.__kwdefaults__
f.__annotations__
f.__code__
f.__closure__
f.__globals__["__name__"]
f.__wrapped__
sorted(vars(f))
f.__self__
f == f
hash(f) == hash(f)
weakref.ref(f)() is f
dis.Bytecode(f).codeobj
doctest.DocTestFinder().find(f, "f")
pydoc.render_doc(f).splitlines()[1:]
type(f).__name__
f.__class__ is type(f)
isinstance(f, types.FunctionType)
isinstance(f, collections.abc.Callable)
unittest.mock.create_autospec(f).__class__.__name__
repr(f)
dir(f)
f.no_such
bool(f)
""".strip().splitlines()


def test_what_stands_for_a_function_gives_what_that_gives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each attribute is the same, but those listed."""
    names = dict(globals())
    for one in (*MODULES, "cloudpickle", "dis", "doctest", "typing"):
        require_module(one)
        names[one.partition(".")[0]] = import_module(one.partition(".")[0])
    rows = re.findall(r"^\| (\w+) \| (`.+`) \|$", PAGE.read_text(), re.MULTILINE)
    known = {kind: set(re.findall(r"`([^`]+)`", row)) for kind, row in rows}

    def outcomes(owner: Any, name: str) -> dict[str, str]:
        there = getattr(owner, name)
        # Of an error only the type.
        return {one: str(outcome(one, {**names, "f": there})[:2]) for one in OF_A_NAME}

    for owner, name in (  # without those of pytest
        (sys, "excepthook"),
        (sys, "unraisablehook"),
        (threading, "excepthook"),
    ):
        monkeypatch.setattr(owner, name, getattr(owner, f"__{name}__"))
    unlisted: dict[str, dict[str, str]] = {}
    with instrumented(sample_rate=0) as agent:
        with jaxmon.request("first"):  # from then on queues are followed
            pass
        for owner, name, original, ours in inside.replaced(agent):
            if isinstance(owner, types.CellType):
                continue
            found = outcomes(owner, name)
            setattr(owner, name, original)
            expected = outcomes(owner, name)
            setattr(owner, name, ours)
            kinds = [word for kind, word in KINDS.items() if isinstance(ours, kind)]
            kind = kinds[0] if kinds else "hook"
            for one in OF_A_NAME:
                if found[one] != expected[one] and one not in known.get(kind, ()):
                    unlisted.setdefault(kind, {})[one] = name

    assert unlisted == {}


KINDS: dict[type, str] = {
    Probe: "object",
    types.FunctionType: "function",
    ModuleProxy: "module",
}


PROGRAM = ROOT / "tests" / "programs" / "lookalikes.py"
ENV = {"PYTHONHASHSEED": "0", **QUICK_COMPILES}


def test_type_checkers_picklers_and_mocks_see_what_they_see_without_us(
    tmp_path, run_dir
):
    """
    beartype, jaxtyping, pickle, cloudpickle, joblib and `unittest.mock`, if a program
    has imported its names before us and after; what is pickled can be read without us.
    """
    for name in ("beartype", "cloudpickle", "jaxtyping", "joblib"):
        require_module(name)
    late = run_python(str(PROGRAM), "late", str(tmp_path), run_dir=run_dir, env=ENV)
    launcher = ("-m", "jaxmon", "run", "--port", "0")
    early = run_python(
        *launcher, str(PROGRAM), "-", str(tmp_path), run_dir=run_dir, env=ENV
    )
    never = run_python(str(PROGRAM), "-", str(tmp_path), run_dir=run_dir, env=ENV)

    assert never.ok().out.count("\n") > 100
    assert late.ok().out == never.out
    assert early.ok().out == never.out


PARALLEL = """
import functools
import multiprocessing
import sys

import jax
from jax import jit
from joblib import Parallel, delayed


@jit
def scaled(x):
    return x * 3


def uses(x):
    return float(jit(lambda y: y + 1)(scaled(x)))


def makes(jit, x):
    return float(jit(lambda n, y: y * n)(2, x))


if __name__ == "__main__":
    if sys.argv[1] == "late":
        import jaxmon

        jaxmon.instrument(port=0)
    static = functools.partial(jax.jit, static_argnums=0)
    print(Parallel(n_jobs=2)(delayed(uses)(float(n)) for n in range(4)))
    print(Parallel(n_jobs=2)(delayed(makes)(static, float(n)) for n in range(4)))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(uses, [1.0, 2.0]))
        print(pool.map(functools.partial(makes, static), [1.0, 2.0]))
"""


@pytest.mark.exhaustive
def test_other_processes_get_what_they_get_without_us(tmp_path, run_dir):
    """Of joblib, whose processes are loky's, and of `multiprocessing` that spawns."""
    require_module("joblib")
    program = tmp_path / "program.py"
    program.write_text(PARALLEL)
    late, never = (
        run_python(str(program), when, run_dir=run_dir, env=QUICK_COMPILES).ok()
        for when in ("late", "never")
    )

    assert never.out.count("\n") == 4
    assert late.out == never.out
    assert "jaxmon failed" not in late.err
