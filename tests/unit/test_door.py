"""Names of JAX stand behind one door."""

import pytest

from tests.helpers.processes import ROOT
from tools import check_door


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ("pjit: Any = jax._src.pjit", {"D1"}),
        ('_MODULES = ("jax._src.pmap",)', {"D1"}),
        ('getattr(jax, "_src")', {"D1"}),
        ("import jaxlib", {"D2"}),
        ("from jax._src import core", {"D2"}),
        ('import_module("jaxlib")', {"D2"}),
        ('variables.get("jit_info")', {"D3"}),
        ('TRACE = "/jax/core/compile/jaxpr_trace_duration"', {"D3"}),
        ('_DELETED = "Array has been deleted"', {"D3"}),
        ('getattr(info, "compiler_options_kvs", ())', {"D3"}),
        ("known and leaf._committed", {"D4"}),
        ("executable.hlo_modules()", {"D4"}),
        ("kept = below.f_locals", {"D5"}),
        ('code.co_name == "cache_miss"', {"D3", "D6"}),
        ("code.co_name in CALL", {"D6"}),
        ('package_of(kind) not in ("jax", "jaxlib")', {"D7"}),
        ('package == "jax"', {"D7"}),
        ("jax.__version_info__ < (0, 6)", {"D8"}),
        ('name_of(type(leaf)) != "UnspecifiedValue"', {"D3"}),
        ("self._cache", set()),
        ('observe_phase("backend_compile", seconds)', set()),
        ("np.asarray(x)", set()),
        ('"""Observe ``jax._src.pjit._infer_params``."""', set()),
        ("from jax import jit", set()),
    ],
)
def test_a_name_of_jax_is_found(source: str, rules: set[str]) -> None:
    """Each way to use a name of JAX breaks its rule; what looks like one does not."""
    found = check_door.findings(source, strict=True)
    assert {rule for _, rule, _ in found} == rules


def test_other_packages_may_use_words_of_the_table() -> None:
    """Outside the agent only ways into JAX are refused."""
    assert check_door.findings('x = "module_name"', strict=False) == []
    assert check_door.findings("jax._src.core", strict=False)


def test_exceptions_are_needed() -> None:
    """A module that is allowed to break a rule does, and says why."""
    for (name, rule), reason in check_door.ALLOWED.items():
        strict = name.startswith(check_door.STRICT)
        found = check_door.findings((ROOT / name).read_text(), strict=strict)
        assert rule in {one for _, one, _ in found}, (name, rule)
        assert reason
