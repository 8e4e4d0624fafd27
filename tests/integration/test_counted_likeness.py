"""
A counted function, and what stands for a function of JAX or Python, beside the
original: expression by expression, attribute by attribute.
"""

from __future__ import annotations

import collections.abc
import re
import sys
import threading
import traceback
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import pytest

import jaxmon
from jaxmon.agent.jaxlink.patches import ModuleProxy
from jaxmon.agent.jaxlink.probe import Probe
from tests import inside
from tests.instrumented import instrumented
from tests.support import QUICK_COMPILES, ROOT, require_module, run_python


pytestmark = pytest.mark.ground_truth

THEIR_NAME = f"{type(jax.jit(len)).__module__}.PjitFunction"
# Part of messages since Python 3.14, as THEIR_NAME is of others.
OUR_NAME = "jaxmon.agent.counted.PjitFunction"
PAGE = ROOT / "docs" / "decisions" / "0002-hooks-without-a-frame.md"


def body(x: Any, n: int = 2) -> Any:
    """Multiply."""
    return x * n


EXPRESSIONS = """
f(3.0)
f(x=3.0, n=4)
f()
f("text")
f(3.0, 4, 5)
f.__call__(3.0)
f.__call__()
f.__call__.__self__ is f
f.__call__ == f.__call__
f.__call__ is f
callable(f.__call__)
type(f.__call__)
f.__call__.__name__
f.__call__.__qualname__
inspect.ismethod(f.__call__)
inspect.isbuiltin(f.__call__)
inspect.isroutine(f.__call__)
hasattr(f, "__call__")
type(f).__call__(f, 3.0)
operator.call(f, 3.0)
operator.methodcaller("__call__", 3.0)(f)
functools.partial(f, 3.0)()
functools.partial(f).func is f
functools.wraps(f)(lambda: None).__wrapped__ is f
functools.reduce(f, [1.0, 2, 3])
f.__get__(3.0)()
f.__get__(None, int) is f
types.MethodType(f, 3.0)()
type("Owner", (), {"times": f})().times.__func__ is f
type("Owner", (), {"times": f}).times is f
type("Owner", (), {"times": staticmethod(f)})().times(3.0)
next(f)
next(f, None)
iter(f)
list(f)
len(f)
f[0]
f[0:1]
3 in f
f + 1
f | int
-f
f < f
f == f
f != f
f == 3
f.__eq__(f)
f.__ne__(f)
f.__eq__(3)
f.__hash__() == hash(f)
bool(f)
int(f)
float(f)
complex(f)
operator.index(f)
memoryview(f)
bytes(f)
with_(f)
await_(f)
isinstance(f, collections.abc.Iterator)
isinstance(f, collections.abc.Iterable)
isinstance(f, collections.abc.Callable)
isinstance(f, collections.abc.Hashable)
isinstance(f, collections.abc.Sized)
isinstance(f, collections.abc.Container)
isinstance(f, type(plain))
isinstance(f, f.__class__)
isinstance(f, jax.stages.Wrapped)
isinstance(f, types.FunctionType)
isinstance(3, f)
issubclass(f, int)
type(f).__name__
type(f).__qualname__
type(f).__module__
type(f) is f.__class__
type(f) is type(plain)
type(f).__mro__[-1]
type(f).lower
type(f)()
class_of(f)
f.__class__.__name__
f.__class__.__module__
f.lowr
f.lowr()
f.clear_cach
f.__len__
f.__next__
f.__iter__
f.__code__
f.__self__
f.__slots__
f._jitted
f._arm
f.cache_info
f.__copy__
f.__deepcopy__
f.__del__
del_(f, "no_such")
del_(f, "__wrapped__")
set_(f, "note", 3)
set_(f, "note", 3).note
vars(set_(f, "note", 3))["note"]
set_(f, "__name__", "renamed").__name__
set_(f, "__wrapped__", len).__wrapped__
set_(f, "lower", 3).lower
set_(f, "__call__", 3)(3.0)
set_(f, "__class__", int)
set_(f, "__dict__", {"a": 1}).a
set_(f, "__doc__", "other").__doc__
set_(f, 3, 4)
sorted(vars(f))
vars(f) is f.__dict__
repr(f)
str(f)
format(f)
format(f, ">3")
f"{f!r}"
"%s" % f
"%d" % f
dir(f)
hash(f) == hash(f)
hash(f) == object.__hash__(f)
id(f) == id(f)
{f: 3}[f]
weakref.ref(f)() is f
weakref.proxy(f)(3.0)
copy.copy(f)(3.0)
copy.copy(f) is f
copy.copy(f).__class__.__name__
copy.copy(f).note
copy.copy(f)._fun
copy.deepcopy(f)(3.0)
copy.deepcopy(f) is f
copy.deepcopy([f, f])[0] is copy.deepcopy([f, f])[1]
same(copy.deepcopy([f, f]))
copy.deepcopy({"step": f})["step"](3.0)
f.__reduce_ex__(4)[0].__name__
f.__reduce_ex__(4)[1][0].__name__
f.__reduce_ex__(4)[2].keys()
f.__reduce__()
f.__getstate__().keys()
pickle.dumps(f)
inspect.signature(f)
inspect.signature(f.__call__)
inspect.unwrap(f) is body
inspect.getdoc(f)
inspect.getsource(f)
inspect.getsourcefile(f) == __file__
inspect.getmodule(f).__name__
inspect.isfunction(f)
inspect.ismethod(f)
inspect.isroutine(f)
inspect.isbuiltin(f)
inspect.isclass(f)
inspect.ismethoddescriptor(f)
inspect.isdatadescriptor(f)
inspect.iscoroutinefunction(f)
inspect.isgeneratorfunction(f)
inspect.isgenerator(f)
inspect.isabstract(f)
inspect.getfullargspec(f)
inspect.getattr_static(f, "lower") is not None
inspect.getattr_static(f, "__wrapped__") is body
[name for name, _ in inspect.getmembers(f)]
[name for name, _ in inspect.getmembers(f, callable)]
inspect.getcallargs(f, 3.0)
unittest.mock.create_autospec(f)(3.0) is not None
unittest.mock.Mock(wraps=f)(3.0)
unittest.mock.Mock(spec=f).lower is not None
pydoc.render_doc(f).splitlines()[1:]
sys.getrefcount(f) > 0
gc.is_tracked(f)
callable(f)
numpy.iterable(f)
numpy.asarray(f).shape
numpy.asarray(f).dtype
getattr(f, "no_such", 3)
getattr(f, "__wrapped__") is body
f._cache_size() >= 0
f._clear_cache()
f.clear_cache()
f.lower(3.0).as_text()
f.trace(3.0).jaxpr
f.eval_shape(3.0)
f.lower.__self__ is f
f.lower.__name__
jax.eval_shape(f, 3.0)
jax.make_jaxpr(f)(3.0)
jax.grad(f)(3.0)
jax.vmap(f)(numpy.ones(2)).tolist()
jax.jit(f)(3.0)
jax.jit(f).__wrapped__ is f
jax.tree_util.tree_structure(f)
jax.tree_util.tree_leaves(f) == [f]
jax.checkpoint(f)(3.0)
jax.linear_transpose(f, 3.0)(1.0)
match_(f)
object.__repr__(f)
object.__getattribute__(f, "__wrapped__") is body
""".strip().splitlines()


# To 0.4.35 what its objects have in common is set on each of them.
BEFORE = {"type(f).lower", "f.lower.__self__ is f"}
NOT_HERE = BEFORE if jax.__version_info__ < (0, 4, 36) else set()


MODULES = [
    "collections",
    "copy",
    "functools",
    "gc",
    "inspect",
    "numpy",
    "operator",
    "pickle",
    "pydoc",
    "sys",
    "types",
    "unittest.mock",
    "weakref",
]


def match_(f: Any) -> str:
    match f:
        case [*_]:
            return "sequence"
        case {}:
            return "mapping"
        case collections.abc.Callable():
            return "callable"
        case _:
            return "other"


def with_(f: Any) -> None:
    with f:
        pass


def await_(f: Any) -> Any:
    async def wait() -> None:
        await f

    return wait().send(None)


def set_(f: Any, name: Any, value_: Any) -> Any:
    setattr(f, name, value_)
    return f


def del_(f: Any, name: str) -> Any:
    delattr(f, name)
    return f


def same(pair: Any) -> bool:
    return pair[0] is pair[1]


def class_of(f: Any) -> Any:
    return type("DependentVariable", (type(f),), {}).__name__


def text_of(found: Any) -> str:
    return f"{type(found).__name__} {without_addresses(repr(found))}"


def without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def outcome(expression: str, names: dict[str, Any]) -> tuple[str, ...]:
    """
    Return the kind and text of what *expression* gives, or of what it raises and the
    functions that its traceback passes.
    """
    try:
        return "value", text_of(eval(expression, names))  # noqa: S307 - ours
    except Exception as error:  # noqa: BLE001 - compared
        # The interpreter's messages name our type without a module; the page says so.
        text = without_addresses(str(error))
        for name in (THEIR_NAME, OUR_NAME):
            text = text.replace(name, "PjitFunction")
        frames = traceback.extract_tb(error.__traceback__)
        where = [f"{frame.name} in {frame.filename}" for frame in frames]
        return "error", type(error).__name__, text, *where


def known_differences() -> set[str]:
    """Return the expressions that the page lists."""
    return set(re.findall(r"^\| `(.+?)` \| ", PAGE.read_text(), re.MULTILINE))


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[Any, Any]]:
    """Return what each expression gives for JAX's own object, and for a counted one."""
    names = {**globals(), "plain": jax.jit(body)}
    for module in MODULES:
        import_module(module)
        top = module.partition(".")[0]
        names[top] = import_module(top)
    theirs = {one: outcome(one, {**names, "f": jax.jit(body)}) for one in EXPRESSIONS}
    with instrumented(sample_rate=0):
        return {
            one: (found, outcome(one, {**names, "f": jax.jit(body)}))
            for one, found in theirs.items()
        }


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_gives_what_it_gives_of_jaxs_own(
    outcomes: dict[str, tuple[Any, Any]], expression: str
) -> None:
    """
    Value, or error with its text and its frames, but for the differences that the page
    lists; and each of these is one.
    """
    theirs, ours = outcomes[expression]
    if expression in known_differences() - NOT_HERE:
        assert theirs != ours
    else:
        assert theirs == ours


def test_the_page_lists_no_expression_that_is_not_tried() -> None:
    """What is said to differ is compared."""
    assert known_differences()
    assert known_differences() <= set(EXPRESSIONS)


# Where a pmap is a Python function, a counted one is of the type of `jax.jit`.
OF_A_PMAP = {
    "type(f).__name__",
    "type(f).__qualname__",
    "f.__reduce_ex__(4)[0].__name__",
    "f.__reduce_ex__(4)[1][0].__name__",
    "f.__reduce_ex__(4)[2].keys()",
}


def test_a_pmap_gives_what_it_gives_of_jaxs_own() -> None:
    """The same of `jax.pmap`, whatever type its objects have in this JAX."""
    names = {**globals(), "plain": jax.pmap(body)}
    names |= {one.partition(".")[0]: import_module(one) for one in MODULES}
    names |= {"unittest": import_module("unittest")}

    def outcomes() -> dict[str, str]:
        found = {
            one: str(outcome(one, {**names, "f": jax.pmap(body)}))
            for one in EXPRESSIONS
        }
        kinds = r"jaxlib[\w.]*\.PmapFunction|PmapFunction|PjitFunction|function"
        return {one: re.sub(kinds, "function", text) for one, text in found.items()}

    theirs = outcomes()
    with instrumented(sample_rate=0):
        ours = outcomes()

    differ = {one for one in EXPRESSIONS if theirs[one] != ours[one]}
    assert differ - known_differences() <= OF_A_PMAP


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
    """
    Each attribute of a module or class that an agent replaces, but for the expressions
    that the page lists for its kind.
    """
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
            kind = KINDS.get(type(ours), "hook")
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
    tmp_path: Path, run_dir: Path
) -> None:
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
def test_other_processes_get_what_they_get_without_us(
    tmp_path: Path, run_dir: Path
) -> None:
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
