"""What is found in jaxprs: constants, branches under vmap, what is in vain."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from jaxmon.agent.compiles.hlo import read_hlo
from jaxmon.agent.jaxlink.contents import captured, selected, whole
from jaxmon.agent.jaxlink.inefficiencies import inefficient, recomputed
from jaxmon.agent.jaxlink.replicas import unreduced
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder


LINES = SourceLineFinder(jax)
BATCH = jnp.ones((8, 64, 64))
INDEX = jnp.arange(8) % 3


def jaxpr_of(fun, *given):
    return jax.make_jaxpr(fun)(*given).jaxpr


def loss(params, x):
    return ((x @ params["w"] + params["b"]) ** 2).mean()


def at(fun, after):
    """Return the line that comes so many *after* the first of *fun*."""
    return f"test_program_contents.py:{fun.__code__.co_firstlineno + after}"


TABLE = np.ones((1024, 512), np.float32)


def inner(x):
    return x @ TABLE  # the line


def test_arrays_from_around_a_function_are_found():
    """
    Type, bytes, the line that uses the largest and those that call it, also within a
    jitted function; an argument is none, and what is small is not worth it.
    """
    x = np.ones((4, 1024), np.float32)
    found = captured(jaxpr_of(lambda x: jax.jit(inner)(x) + TABLE[:1], x), LINES)

    assert found is not None
    assert found.where.endswith(at(inner, 1))
    assert found.largest == "float32[1024,512]"
    assert found.bytes == TABLE.nbytes + TABLE[:1].nbytes
    assert found.arrays == 2
    assert captured(jaxpr_of(lambda x, table: x @ table, x, TABLE), LINES) is None
    assert captured(jaxpr_of(lambda x: x + TABLE[:2].sum(0)[0], x), LINES) is None


def dear(x):
    return jax.lax.fori_loop(0, 40, lambda _, x: jnp.sin(x) + jnp.roll(x, 1), x)


def cheap(x):
    return x + 1


def choice(x, index):
    return jax.lax.cond(index > 0, dear, cheap, x)


def choice_of_three(x, index):
    return jax.lax.switch(index, [dear, lambda x: x, lambda x: jnp.tanh(x @ x)], x)


def scanned(x, index):
    return jax.lax.scan(lambda x, _: (choice(x, index), None), x, length=3)[0]


def repeated(x, index):
    for _ in range(3):
        x = jnp.cos(choice(x, index))
    return x


def nested(x, index):
    return jax.lax.cond(index > 1, lambda x: choice(x, index), cheap, x)


@pytest.mark.parametrize(
    ("fun", "line", "branches"),
    [
        (choice, choice, 2),
        (jax.jit(choice), choice, 2),
        (choice_of_three, choice_of_three, 3),
        (scanned, choice, 2),
        (repeated, choice, 2),
    ],
)
def test_branches_that_are_all_computed_are_found(fun, line, branches):
    """Their line, and that they are most of it, in calls, scans and loops of Python."""
    found = selected(jaxpr_of(jax.vmap(fun), BATCH, INDEX), LINES)

    assert found is not None
    assert found.where.endswith(at(line, 1))
    assert (found.branches, found.batch) == (branches, 8)
    assert 0.9 < found.ratio < 1


def test_the_cheapest_branch_is_needed():
    """Of two branches that are as dear, half is in vain; of many, all but one."""

    def of(*branches):
        def chosen(x, index):
            return jax.lax.switch(index, branches, x)

        return selected(jaxpr_of(jax.vmap(chosen), BATCH, INDEX), LINES)

    two, four = of(dear, dear), of(dear, dear, dear, dear)
    assert two is not None
    assert four is not None
    assert two.ratio == pytest.approx(0.5, abs=0.03)
    assert four.ratio == pytest.approx(0.75, abs=0.03)


def test_one_branch_within_another_is_part_of_it():
    """The outer choice has all of the work of the inner one."""
    found = selected(jaxpr_of(jax.vmap(nested), BATCH, INDEX), LINES)

    assert found is not None
    assert found.ratio > 0.9


def waiting(x, index):
    x = jax.lax.while_loop(lambda x: x.sum() < 0, lambda x: x * 2, x)
    return choice(x, index)


def test_what_runs_one_branch_is_silent():
    """
    Without vmap, or with one condition for the batch; and what is not known, if a loop
    runs any number of times. A gradient has more than the branches.
    """
    alone = jaxpr_of(choice, BATCH[0], INDEX[0])
    shared = jaxpr_of(jax.vmap(choice, in_axes=(0, None)), BATCH, INDEX[0])
    picked = jaxpr_of(jax.vmap(lambda x, i: jnp.where(i > 0, x, -x)), BATCH, INDEX)
    for jaxpr in (alone, shared, picked):
        assert selected(jaxpr, LINES) is None
    assert selected(jaxpr_of(jax.vmap(waiting), BATCH, INDEX), LINES) is None
    grad = jax.vmap(jax.grad(lambda x, i: choice(x, i).sum()))
    found = selected(jaxpr_of(grad, BATCH, INDEX), LINES)
    assert found is not None
    assert 0.2 < found.ratio < 0.9


LARGE, PART = (1024, 512), (256, 512)


def adam(params, first, second, batch):
    gradient = jax.grad(lambda params: jnp.mean((batch @ params) ** 2))(params)
    first = jax.jit(lambda a, b: 0.9 * a + 0.1 * b)(first, gradient)
    second = 0.999 * second + 0.001 * gradient**2
    return params - 0.01 * first / (jnp.sqrt(second) + 1e-8), first, second


def update(params, first, gradient):
    first = 0.9 * first + 0.1 * gradient
    return params - 0.01 * first, first


GIVEN = [np.ones(LARGE, np.float32)] * 3
ROWS = (64, 1024)


@pytest.mark.parametrize(
    ("fun", "taken", "returned", "found"),
    [
        (adam, [PART, LARGE, LARGE, ROWS], [PART, LARGE, LARGE], ("first", "second")),
        (adam, [PART, PART, LARGE, ROWS], [PART, PART, LARGE], ("second",)),
        # From the next call on, they are divided.
        (adam, [PART, LARGE, LARGE, ROWS], [PART, PART, PART], ()),
        (adam, [PART, PART, PART, ROWS], [PART, PART, PART], ()),
        (adam, [LARGE, LARGE, LARGE, ROWS], [LARGE, LARGE, LARGE], ()),
        # ZeRO-1: parameters are needed whole.
        (adam, [LARGE, PART, PART, ROWS], [LARGE, PART, PART], ()),
        (update, [LARGE, PART, LARGE], [LARGE, PART], ()),
        # Which is which is not known.
        (adam, [PART, LARGE, LARGE], [PART, LARGE, LARGE], ()),
        (adam, [], [], ()),
    ],
)
def test_a_state_that_is_whole_beside_its_parameters(fun, taken, returned, found):
    """If it stays whole, and no operation needs it to be."""
    batch = [np.ones(ROWS, np.float32)] * (fun is adam)
    got = whole(jaxpr_of(fun, *GIVEN, *batch), (taken, returned), LINES)

    assert (() if got is None else got.arrays) == found
    if got is not None:
        assert (got.cause, got.parts, got.like) == ("state", 4, "params")
        assert got.bytes == len(found) * GIVEN[0].nbytes * 3 / 4


def constrained(length):
    mesh = Mesh(np.array(jax.devices()[:1]), ("rows",))
    sharding = NamedSharding(mesh, PartitionSpec("rows", None))

    def made(x):
        return jax.lax.with_sharding_constraint(jnp.ones((length, 512)) * x, sharding)

    jaxpr, lengths = jaxpr_of(made, 2.0), {"rows": 4}
    # As if there were four devices.
    fake = SimpleNamespace(mesh=SimpleNamespace(shape=lengths), spec=sharding.spec)
    for equation in jaxpr.eqns:
        if "sharding" in equation.params and equation.params["sharding"] is not None:
            equation.params["sharding"] = fake
    return jaxpr, at(made, 1)


@pytest.mark.parametrize(
    ("length", "returned", "is_found"),
    [
        (1025, (1025, 512), True),
        (1024, (1024, 512), False),
        (1025, (257, 512), False),
        (101, (101, 512), False),
    ],
)
def test_a_constraint_to_parts_that_are_not_equal(length, returned, is_found):
    """If the result is large, and whole on each device."""
    jaxpr, line = constrained(length)
    found = whole(jaxpr, [[()], [returned]], LINES)

    assert (found is not None) == is_found
    if found is not None:
        assert found.where.endswith(line)
        assert (found.cause, found.parts) == ("uneven", 4)
        assert found.arrays == (f"float32[{length},512]",)
        assert found.bytes == length * 512 * 4 * 3 / 4


def test_the_shapes_on_a_device_are_in_the_text_of_a_program():
    """In the order of arguments and results; of one device, they are not read."""
    types = "{(f32[6,8]{1,0:T(8,128)}, pred[], s32[3]{0})->(bf16[4,2]{1,0}, f32[])}"
    head = f"HloModule jit_f, entry_computation_layout={types}, num_partitions="
    several = read_hlo([f"{head}8\n"], comparable=True)

    assert several.shapes == (((6, 8), (), (3,)), ((4, 2), ()))
    assert read_hlo([f"{head}1\n"], comparable=True).shapes == ()


TABLE_OF_WORDS, WORDS = jnp.ones((2000, 64)), jnp.arange(96) % 2000
KEY, MANY = jax.random.key(0), jnp.arange(5000.0)


def looked_up(words, table):
    return jnp.tanh(jax.nn.one_hot(words, 2000) @ table)


def compared(words, table):
    ones = (words[:, None] == jnp.arange(2000)).astype(jnp.float32)
    return jnp.einsum("wv,vd->wd", ones, table)


def drawn(key):
    return jax.random.choice(key, 5000, (64,), replace=False)


def largest(values):
    return jnp.sort(values)[-20:]


def first(values):
    return values[jnp.argsort(values)[:20]]


def paired(x, y):
    return jnp.exp(-(x[:, None, :] * y[None, :, :]).sum(-1))


SLOPES = jax.grad(lambda x, y: jnp.tanh(paired(x, y)).sum(), argnums=(0, 1))
MAPPED = jax.vmap(jax.vmap(lambda x, y: jnp.sum(x * y), (None, 0)), (0, None))
POINTS = (TABLE_OF_WORDS[:128], TABLE_OF_WORDS[:96])


@pytest.mark.parametrize(
    ("fun", "given", "kind", "size"),
    [
        (paired, POINTS, "product", 0),
        (SLOPES, POINTS, "product", 0),
        (MAPPED, POINTS, "product", 0),
        (looked_up, (WORDS, TABLE_OF_WORDS), "lookup", 2000),
        (jax.jit(looked_up), (WORDS, TABLE_OF_WORDS), "lookup", 2000),
        (compared, (WORDS, TABLE_OF_WORDS), "lookup", 2000),
        (drawn, (KEY,), "sort", 5000),
        (largest, (MANY,), "sort", 5000),
        (first, (MANY,), "sort", 5000),
    ],
)
def test_operations_with_a_cheaper_form_are_found(fun, given, kind, size):
    """With their line, their size, and that they are most of the program."""
    found = inefficient(jaxpr_of(fun, *given), LINES)

    assert found is not None
    assert (found.kind, found.size) == (kind, size)
    assert "test_program_contents.py:" in found.where
    assert found.ratio > 0.3


@pytest.mark.parametrize(
    ("fun", "given"),
    [
        (lambda words, table: table[words], (WORDS, TABLE_OF_WORDS)),
        (lambda x, y: x @ y.T, POINTS),
        (lambda x, y: ((x[:, None] - y[None]) ** 2).sum(-1), POINTS),
        (lambda x, y: (x[:, None, :3] * y[None, :, :3]).sum(-1), POINTS),
        (lambda x, y: (x * y[0]).sum(-1), POINTS),
        (lambda x, y: (x[:, None] * y[None]).sum((0, 2)), POINTS),
        (lambda x, y: ((p := x[:, None] * y[None]).sum(-1), p.max(-1)), POINTS),
        (lambda x, y: (x[:, None].astype(int) * y[None].astype(int)).sum(-1), POINTS),
        # The loss of a classifier, a histogram, an identity, and few classes.
        (lambda w, x: (jax.nn.one_hot(w, 64) * x[w]).sum(-1), (WORDS, TABLE_OF_WORDS)),
        (lambda w, x: jax.nn.one_hot(w, 2000).T @ x[:96], (WORDS, TABLE_OF_WORDS)),
        (lambda x: jnp.eye(2000) @ x, (TABLE_OF_WORDS,)),
        (lambda w, x: jax.nn.one_hot(w, 8) @ x[:8], (WORDS, TABLE_OF_WORDS)),
        (lambda key: jax.random.permutation(key, 5000), (KEY,)),
        (lambda key: jax.random.choice(key, 5000, (64,)), (KEY,)),
        (jnp.sort, (MANY,)),
        (jnp.median, (MANY,)),
        (lambda x: (jnp.sort(x)[:20], jnp.sort(x)), (MANY,)),
        (lambda x: (s := jnp.sort(x), s[:20]), (MANY,)),
        (lambda x: jnp.sort(x)[::2], (MANY,)),
        (lambda x: jax.lax.top_k(x, 20), (MANY,)),
        (lambda x: jnp.sort(x[:50])[:2], (MANY,)),
    ],
)
def test_what_has_no_cheaper_form_is_silent(fun, given):
    """Nor what is small, or used otherwise, too."""
    assert inefficient(jaxpr_of(fun, *given), LINES) is None


MESH = AbstractMesh((2,), ("data",))
PARTS, WHOLE = PartitionSpec("data"), PartitionSpec()
UNCHECKED = {"check_vma": False}


def apart(reduce, *, inside=lambda grads: grads, returned=WHOLE):
    """Return what is found of a step with data parallelism that combines so."""

    def local(params, x):
        value, grads = jax.value_and_grad(loss)(params, x)
        grads = inside(reduce(grads))
        new = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
        return new, value[None]

    params = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}
    given = {"in_specs": (WHOLE, PARTS), "out_specs": (returned, PARTS)}
    step = jax.jit(jax.shard_map(local, mesh=MESH, **given, **UNCHECKED))
    return unreduced(jaxpr_of(step, params, jnp.ones((4, 3))), LINES)


def looped(grads):
    def more(carried, _):
        return jax.tree.map(jnp.tanh, carried), None

    return jax.lax.scan(more, grads, None, 3)[0]


def mean(grads):
    return jax.lax.pmean(grads, "data")


def ring(grads):
    other = jax.lax.ppermute(grads, "data", [(0, 1), (1, 0)])
    return jax.tree.map(jnp.add, grads, other)


def gathered(grads):
    every = jax.lax.all_gather(grads, "data")
    return jax.tree.map(lambda of: of.mean(0), every)


def seldom(grads):
    first = jax.tree.leaves(grads)[0].sum()
    return jax.lax.cond(first > 0, mean, lambda of: of, grads)


def test_copies_that_drift_apart_are_found():
    """By axis and what is divided; not what anything may have combined on the way."""
    found = apart(lambda grads: grads)
    assert found.outputs == ("[0]['b']", "[0]['w']")
    assert (found.arguments, found.axis, found.devices) == (("x",), "data", 2)
    assert found.where.endswith(at(apart, 6))
    assert apart(lambda grads: grads, inside=looped).outputs == found.outputs
    assert apart(lambda of: {**of, "w": mean(of["w"])}).outputs == ("[0]['b']",)
    for reduce in (mean, ring, gathered, seldom, lambda of: mean(jax.jit(mean)(of))):
        assert apart(reduce) is None
    assert apart(lambda grads: grads, inside=lambda of: looped(mean(of))) is None


def test_a_loss_alone_may_be_that_of_one_device():
    """Its gradient is combined where JAX takes the derivative of the shard_map."""
    given = {"in_specs": (WHOLE, PARTS), "out_specs": WHOLE}
    whole_loss = jax.shard_map(loss, mesh=MESH, **given, **UNCHECKED)
    params = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}
    fun = jax.value_and_grad(whole_loss)

    assert unreduced(jaxpr_of(fun, params, jnp.ones((4, 3))), LINES) is None


MATRIX = 2 * jnp.eye(256)


def solved(matrix, u, rate):
    return jnp.linalg.solve(matrix, u + rate)


def distilled(teacher, x, student):
    return ((x @ teacher) - (x @ student)).sum()


def forgotten(matrix, u):
    jnp.linalg.inv(matrix)
    return u + 1


def unpacked(weights, scale, x):
    return (weights.astype(jnp.float32) * scale) @ x


@pytest.mark.parametrize(
    ("fun", "given", "fixed", "operation", "used"),
    [
        (solved, (MATRIX, MATRIX[0], 0.1), [0], "lu", [0]),
        (jax.jit(solved), (MATRIX, MATRIX[0], 0.1), [0, 2], "lu", [0]),
        (distilled, (MATRIX, MATRIX, MATRIX), [0, 1], "dot_general", [0, 1]),
    ],
)
def test_operations_on_what_is_the_same_in_each_call(
    fun, given, fixed, operation, used
):
    """The line, also of one within a function of JAX; which arguments; how much."""
    got = recomputed(jaxpr_of(fun, *given), 3, fixed, LINES)

    assert got is not None
    found, arguments = got
    assert (found.array, arguments) == (operation, used)
    assert "test_program_contents.py:" in found.where
    assert found.ratio > 0.4


@pytest.mark.parametrize(
    ("fun", "given", "fixed"),
    [
        (solved, (MATRIX, MATRIX[0], 0.1), []),
        (solved, (MATRIX, MATRIX[0], 0.1), [1, 2]),
        (distilled, (MATRIX, MATRIX, MATRIX), [0, 2]),
        (forgotten, (MATRIX, MATRIX[0]), [0]),
        # To unpack weights is no more work than to read them.
        (unpacked, (MATRIX.astype(jnp.int8), MATRIX[0], MATRIX), [0, 1]),
    ],
)
def test_what_changes_is_not_computed_in_vain(fun, given, fixed):
    """Of what follows from arguments that change, nothing is found."""
    assert recomputed(jaxpr_of(fun, *given), len(given), fixed, LINES) is None
