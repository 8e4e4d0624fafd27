"""Which arguments each call divides anew: by jaxprs, and what devices exchange."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmon.agent.jaxlink.exchanges import resharded
from jaxmon.agent.jaxlink.executables import Exchange, exchanges
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from tests.helpers.findings import GIB, findings, function


LINES = SourceLineFinder(jax)
LARGE = np.ones((1024, 512), np.float32)
ROWS, COLUMNS, WHOLE = (256, 512), (1024, 128), (1024, 512)
# An all-to-all of what a device has of it, and an all-gather.
MOVED, GATHERED = (
    Exchange(is_gather=False, elements=131072, bytes=524288),
    Exchange(is_gather=True, elements=524288, bytes=2097152),
)
SCALAR = ()


def error(first, second):
    return ((jnp.tanh(first) - second) ** 2).mean()


def chain(first, second, third):
    return error(first * 2 + third, second)


def average(mean, params):
    return 0.9 * mean + 0.1 * params


def ordered(scores):
    return jnp.sort(scores * 2, axis=0).mean(axis=1)


def summed(scores):
    return jnp.cumsum(scores, axis=0)


def both(scores):
    return jnp.cumsum(jnp.sort(scores, axis=0), axis=1)


def constrained(first, second):
    mesh = Mesh(np.array(jax.devices()[:1]), ("d",))
    to = NamedSharding(mesh, PartitionSpec("d"))
    return error(jax.lax.with_sharding_constraint(first, to), second)


def multiplied(first, second):
    return error(first, second) + (first @ first.T).sum()


def of_unknown(first, second):
    return error(first, second + first.T.reshape(second.shape))


def scanned(first, second):
    return jax.lax.scan(lambda x, _: (x - second, None), first, length=3)[0].sum()


def inside(first, second):
    return jax.jit(error)(first, second)


def centred(first, second):
    return error(first - first.mean(axis=0), second)


def got(fun, taken, returned, moves=(MOVED,), devices=4):
    jaxpr = jax.make_jaxpr(fun)(*[LARGE] * len(taken)).jaxpr
    return resharded(jaxpr, (taken, returned), moves, devices, LINES)


@pytest.mark.parametrize(
    ("fun", "taken", "returned", "moved", "needed"),
    [
        (error, [ROWS, COLUMNS], [SCALAR], ("second",), (4, 1)),
        (inside, [ROWS, COLUMNS], [SCALAR], ("second",), (4, 1)),
        (centred, [ROWS, COLUMNS], [SCALAR], ("second",), (4, 1)),
        (chain, [ROWS, COLUMNS, ROWS], [SCALAR], ("second",), (4, 1)),
        (chain, [ROWS, COLUMNS, WHOLE], [SCALAR], ("second",), (4, 1)),
        (average, [COLUMNS, ROWS], [COLUMNS], ("params",), (1, 4)),
        (average, [COLUMNS, ROWS], [ROWS], ("mean",), (4, 1)),
        (ordered, [ROWS], [(256,)], ("scores",), (1, 4)),
        (summed, [ROWS], [ROWS], ("scores",), (1, 4)),
        (summed, [ROWS], [COLUMNS], ("scores",), (1, 4)),
    ],
)
def test_arguments_that_could_be_divided_as_they_are_needed(
    fun, taken, returned, moved, needed
):
    """With the line of the function, and what a device gets of others for them."""
    found = got(fun, taken, returned)

    assert found is not None
    assert (found.arrays, found.needed, found.bytes) == (moved, needed, 524288)
    assert "test_exchanges.py:" in found.where
    assert bool(found.like) == (found.operation == "")


@pytest.mark.parametrize(
    ("fun", "taken", "returned"),
    [
        (error, [ROWS, ROWS], [SCALAR]),
        (error, [ROWS, WHOLE], [SCALAR]),
        (average, [COLUMNS, ROWS], [WHOLE]),
        (ordered, [COLUMNS], [(1024,)]),
        (summed, [ROWS], [WHOLE]),
        # There is no other dimension.
        (both, [ROWS], [ROWS]),
        # Asked for, used otherwise, or with what may be divided in any way.
        (constrained, [ROWS, COLUMNS], [SCALAR]),
        (multiplied, [ROWS, COLUMNS], [SCALAR]),
        (of_unknown, [ROWS, COLUMNS], [SCALAR]),
        (scanned, [ROWS, COLUMNS], [SCALAR]),
        # Parts are not equal, or which is which is not known.
        (error, [(300, 512), COLUMNS], [SCALAR]),
        (error, [ROWS], [SCALAR]),
    ],
)
def test_what_may_have_to_be_exchanged(fun, taken, returned):
    """Nothing is said if another division might not do."""
    jaxpr = jax.make_jaxpr(fun)(*[LARGE] * fun.__code__.co_argcount).jaxpr
    assert resharded(jaxpr, (taken, returned), [MOVED], 4, LINES) is None


def test_what_devices_do_not_exchange():
    """Without a collective of that size; on a larger mesh, parts may be made of any."""
    given = [ROWS, COLUMNS], [SCALAR]

    assert got(error, *given, moves=[]) is None
    assert (
        got(
            error,
            *given,
            moves=[Exchange(is_gather=True, elements=131072, bytes=524288)],
        )
        is None
    )
    assert got(error, *given, devices=8) is None
    gathered = got(error, *given, moves=[GATHERED])
    assert gathered is not None
    assert gathered.bytes == 2097152


def test_exchanges_in_the_text_of_a_program():
    """All-to-alls in parts, and asynchronous ones with what they are given."""
    text = """\
ENTRY %main (x: f32[8,4]) -> f32[8] {
  %a = (f32[2,4]{1,0}, f32[2,4]{1,0}) all-to-all(%x, %y), channel_id=1
  %b = bf16[8,16]{1,0:T(8,128)} all-gather(%x), dimensions={0}
  %c = (f32[8,4]{1,0}, f32[32,4]{1,0}) all-gather-start(%x), dimensions={0}
  %d = f32[32,4]{1,0} all-gather-done(%c)
  %e = (s8[8,4]{1,0}, s8[8,4]{1,0}, u32[], u32[]) collective-permute-start(%x)
  ROOT %f = f32[8] all-reduce(%x), to_apply=%sum
}
"""
    assert list(exchanges(text)) == [
        Exchange(is_gather=True, elements=128, bytes=256),
        Exchange(is_gather=True, elements=128, bytes=512),
        Exchange(is_gather=False, elements=16, bytes=64),
        Exchange(is_gather=False, elements=32, bytes=32),
    ]


MIXED = {
    "arrays": ["b['w']", "b['v']", "c['w']", "c['v']"],
    "bytes": 2.0 * GIB,
    "parts": [1, 8],
    "needed": [8, 1],
    "like": "a['w']",
    "where": "a.py:7",
}
ORDERED = {**MIXED, "arrays": ["x"], "like": "", "operation": "sort"}


@pytest.mark.parametrize(
    ("content", "changes", "is_found"),
    [
        (MIXED, {}, True),
        (ORDERED, {}, True),
        (MIXED, {"calls": 1}, False),
        (MIXED, {"program": {"argument_bytes": 25.0 * GIB}}, False),
    ],
)
def test_arguments_that_each_call_exchanges(content, changes, is_found):
    """If it is called more than once, and that is much of what it is given."""
    program = {"argument_bytes": 5.0 * GIB, **changes.get("program", {})}
    program["resharded"] = content
    given = {"calls": 9000, **changes, "program": program}
    found = findings(functions=function(**given))

    got = [of for of in found if of.topic == "resharded"]
    assert [of.where for of in got] == ["a.py:7"] * is_found
    why = {
        "": "they are combined element by element with a['w']",
        "sort": "sort goes along a dimension that is divided",
    }[content.get("operation", "")]
    names = "b['w'], b['v'], c['w'] and 1 other" if content is MIXED else "x"
    verdict = (
        f"Each call of train.step reshards {names} at a.py:7, from 1x8 parts into "
        f"8x1, since {why}: for that, each device gets 2 GiB from others."
    )
    assert [of.verdict for of in got] == [verdict] * is_found
