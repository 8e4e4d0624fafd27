"""A counted function beside JAX's own, expression by expression."""

import collections.abc
import re
from importlib import import_module
from typing import Any

import jax
import pytest

from tests.helpers.agents import instrumented
from tests.helpers.likeness import MODULES, PAGE, outcome


pytestmark = pytest.mark.ground_truth


def body(x: Any, n: int = 2) -> Any:
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


def test_an_expression_gives_what_it_gives_of_jaxs_own(outcomes):
    """Value, or error with text and frames, is the same, except where listed."""
    differ = {one for one, (theirs, ours) in outcomes.items() if theirs != ours}
    assert differ == (known_differences() - NOT_HERE) & {*EXPRESSIONS}
    assert outcomes.keys() == {*EXPRESSIONS}


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
