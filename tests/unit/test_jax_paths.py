"""JAX's names of operations, taken apart."""

from jaxmon.preflight.profile.origins import read


CASES = {
    "jit(step)/dot_general": ("", "dot_general", ""),
    "jit(step)/jit(main)/encoder/dot_general": ("encoder", "dot_general", ""),
    "jit(step)/jvp(encoder)/block/tanh": ("encoder/block", "tanh", ""),
    "jit(step)/transpose(jvp(encoder))/dot_general": ("encoder", "dot_general", "B"),
    "jit(step)/transpose(jvp())/mul": ("", "mul", "B"),
    "jit(f)/jvp(jit(model))/while/body/inner/cos": ("model/inner", "cos", ""),
    "jit(f)/cond/branch_1_fun/vmap(head)/add": ("head", "add", ""),
    "jit(f)/jit(_where)/select_n": ("", "select_n", ""),
    "jit(f)/transpose(jvp(m))/checkpoint/rematted_computation/sin": ("m", "sin", "R"),
    "jit(f)/enc/mul;jit(f)/dec/add": ("enc", "mul", ""),
    "jit(f)/add:": ("", "add", ""),
    "x['weights']": ("", "", ""),
    "jit(f)/jvp(jit(step))": ("", "", ""),
    "jit(f)/remat(a/b)/mul": ("a/b", "mul", ""),
    "": ("", "", ""),
    "/" * 1000: ("", "", ""),
    "jit(" * 1000: ("", "", ""),
}


def test_scope_primitive_and_pass_are_read() -> None:
    """What JAX adds, transformations and control flow, is no scope of the program."""
    found = {}
    for path in CASES:
        one = read(path)
        kind = "B" if one.backward else "R" if one.recomputed else ""
        found[path] = (one.scope, one.primitive, kind)

    assert found == CASES
