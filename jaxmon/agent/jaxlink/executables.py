"""
Information from JAX and XLA about a program: HLO, statistics, effects.

XLA's analysis has the body of a loop once. For the bytes that a program accesses, each
body is analysed by itself, as a program of its own, and added as often as XLA knows
that it runs.
"""

from __future__ import annotations

import math
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from jaxmon import interrupts
from jaxmon.agent.jaxlink.source_lines import SourceLineFinder
from jaxmon.agent.jaxlink.transforms import jaxprs_in, jaxprs_of


Effect: TypeAlias = Literal["ordered", "unordered", "callback"]

# Statistic: attribute of XLA's memory statistics, and whether 0 means "unknown". Every
# program needs some memory and code, but possibly no arguments.
_MEMORY = {
    "argument_bytes": ("argument_size_in_bytes", False),
    "output_bytes": ("output_size_in_bytes", False),
    "temporary_bytes": ("temp_size_in_bytes", False),
    "peak_bytes": ("peak_memory_in_bytes", True),  # since 0.7
    "code_bytes": ("generated_code_size_in_bytes", True),  # 0 on the CPU since 0.5
}


def loaded(jax: Any) -> list[Any]:
    """Return XLA's loaded executables, not to be kept; there are devices already."""
    found: list[Any] = jax.local_devices()[0].client.live_executables()
    return found


def printing(jax: Any, *, origins: bool = False, configured: bool = False) -> Any:
    """
    Return options to print HLO without large constants; `None` if this JAX has none,
    which then omits them as well. What differs between hosts is omitted: metadata,
    unless *origins*, and autotuning results, unless that or *configured*.
    """
    kind = _of_jaxlib(jax, "HloPrintOptions")
    if kind is None:
        return None
    found = kind()
    found.print_large_constants = False
    found.print_metadata = origins
    found.print_backend_config = origins or configured
    return found


def texts(executable: Any, options: Any) -> Iterator[str]:
    """Yield the HLO of each module, usually one; `RuntimeError` if it is gone."""
    for module in executable.hlo_modules():
        yield module.to_string(*(() if options is None else (options,)))


def size_of(jaxpr: Any) -> int:
    """Return the number of equations of *jaxpr*, without those inside of others."""
    return len(jaxpr.eqns)


def facts(executable: Any) -> dict[str, float]:
    """Return XLA's statistics per device; it counts the body of a loop once."""
    found: dict[str, float] = {}
    cost, memory = None, None
    with interrupts.expected(RuntimeError):
        cost = executable.cost_analysis()
    with interrupts.expected(RuntimeError):
        memory = executable.get_compiled_memory_stats()
    if isinstance(cost, list):
        cost = cost[0] if cost else None
    for name, key in (("flops", "flops"), ("accessed_bytes", "bytes accessed")):
        value = (cost or {}).get(key, -1)
        if value >= 0 and math.isfinite(value):
            found[name] = value
    for name, (attribute, zero_is_unknown) in _MEMORY.items():
        value = getattr(memory, attribute, -1)
        if value > 0 or (value == 0 and not zero_is_unknown):
            found[name] = value
    return found


class ArgumentCopy(NamedTuple):
    """A copy of an argument that becomes an output: its name if known, and bytes."""

    argument: str
    bytes: int
    beside_loops: bool


_PARAMETER = r"^  %?([\w.\-]+) = (\w+\[[\d,]*\]\S*) parameter\("
_COPY = r"= (\w+\[[\d,]*\]\S*) copy\((?:\S+ )?%?([\w.\-]+)\)"
_TYPE = r"([a-z]+)(\d*)\w*\[([\d,]*)\]"


def argument_copies(text: str) -> Iterator[ArgumentCopy]:
    """Yield the copies in the HLO *text* that donated arguments would not need."""
    _, _, entry = text.partition("\nENTRY ")
    if " copy(" not in entry:
        return
    head, _, _ = text.partition("\n")
    outputs = head.partition("entry_computation_layout=")[2].partition("->")[2]
    given = dict(re.findall(_PARAMETER, entry, re.MULTILINE))
    loops = " while(" in text
    for kind, name in re.findall(_COPY, entry):
        # One with another layout is rearranged.
        if given.get(name) == kind and kind.partition("{")[0] in outputs:
            yield ArgumentCopy(_argument(name), sizes_of(kind)[1], loops)


def _argument(parameter: str) -> str:
    """Return the argument in the name of a parameter, such as ``state__w__.1``."""
    name = parameter.partition(".")[0].partition("__")[0].rstrip("_")
    return "" if name.startswith(("Arg", "param")) and name[-1:].isdigit() else name


def sizes_of(kind: str) -> tuple[int, int]:
    """Return elements and bytes of a type such as ``f32[6,256]{1,0}``, 0 if unknown."""
    found = re.match(_TYPE, kind)
    if found is None or not (found[2] or found[1] == "pred"):
        return 0, 0
    number = math.prod(int(length) for length in found[3].split(",") if length)
    return number, number * max(int(found[2] or 8) // 8, 1)


class Exchange(NamedTuple):
    """What a device gets from a collective, which may be an all-gather."""

    is_gather: bool
    elements: int
    bytes: int


_EXCHANGES = ("all-gather", "all-to-all", "collective-permute")
# Numbers of an asynchronous one have no dimensions.
_ARRAY = r"[a-z]+\d*\w*\[\d[\d,]*\]"


def exchanges(text: str) -> Iterator[Exchange]:
    """
    Yield what a device gets of others, in the HLO *text* of a module; not what it adds
    up with others.
    """
    for name in _EXCHANGES:
        for mark in (f" {name}(", f" {name}-start("):
            at = text.find(mark)
            while at >= 0:
                line = text[text.rfind("\n", 0, at) + 1 : at].partition(" = ")[2]
                found = [sizes_of(of[0]) for of in re.finditer(_ARRAY, line)]
                # An asynchronous one has what it is given, and then its results.
                found = found[len(found) // 2 if "start" in mark else 0 :]
                if name == "all-to-all":  # in parts
                    found = [(sum(of[0] for of in found), sum(of[1] for of in found))]
                for sizes in found:
                    yield Exchange(name == "all-gather", *sizes)
                at = text.find(mark, at + 1)


# By these, what a device computes may differ from what others do, or need them.
_DIFFERENCES = (
    *("all-", "collective-", "partition-id", "replica-id", "reduce-scatter"),
    *("send(", "recv(", "infeed(", "callback"),
)


def is_alike(text: str) -> bool:
    """Return whether devices differ at most in arguments, by the *text* of a module."""
    is_one = ", replica_count=" not in text.partition("\n")[0]
    return is_one and not any(of in text for of in _DIFFERENCES)


def takes_whole(executable: Any) -> bool:
    """
    Return whether each of several devices has all of each argument of *executable*; not
    if there is none. Since JAX 0.12, the text of a program does not say that.
    """
    kinds = [of.type.name for of in executable.get_parameter_shardings() or ()]
    return bool(kinds) and set(kinds) == {"REPLICATED"}


def donated_inside(jaxpr: Any, lines: SourceLineFinder) -> str:
    """
    Return the line where *jaxpr* calls a jitted function that donates its arguments:
    inside another one, that has no effect. Empty if there is none.
    """
    return _first(jaxpr, lambda of: any(of.params.get("donated_invars") or ()), lines)


def promoted_at(jaxpr: Any, lines: SourceLineFinder) -> str:
    """Return the line that makes the first array of float64; empty if unknown."""
    return _first(jaxpr, _makes_double, lines)


def widened_at(jaxpr: Any, lines: SourceLineFinder) -> str:
    """Return the line that multiplies an array of fewer bits by one of float64."""
    return _first(jaxpr, _is_widening, lines)


def _is_widening(equation: Any) -> bool:
    types = {str(of.aval.dtype) for of in equation.invars[:2]}
    is_product = equation.primitive.name == "dot_general"
    return is_product and len(types) > 1 and "float64" in types


def _makes_double(equation: Any) -> bool:
    made = (of.aval for of in equation.outvars)
    return any(
        str(getattr(of, "dtype", "")) == "float64" and of.size > 1 for of in made
    )


def _first(jaxpr: Any, holds: Callable[[Any], bool], lines: SourceLineFinder) -> str:
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        place = ""
        if holds(equation):
            place = lines.place_of(equation.source_info.traceback)
        inner = (_first(inside, holds, lines) for _, inside in jaxprs_in(equation))
        if place := place or next(filter(None, inner), ""):
            return place
    return ""


def effect_of(executable: Any, asked: Callable[..., Any]) -> Effect | None:
    """Return which effect keeps calls off the fast path, as *asked*, if any."""
    call = getattr(executable, "unsafe_call", None)
    if call is None:
        return None
    if getattr(call, "ordered_effects", None):
        return "ordered"
    if getattr(call, "has_unordered_effects", False):
        return "unordered"
    # Callbacks do, in some releases.
    code = getattr(getattr(asked, "__wrapped__", asked), "__code__", None)
    if "has_host_callbacks" not in getattr(code, "co_names", ()):
        return None
    return "callback" if getattr(call, "has_host_callbacks", False) else None


class Rerun(NamedTuple):
    """
    What re-running a call would do: *effects* besides outputs, and the numbers of
    leaves *donated*, `None` if unknown. JAX's *program* is returned as long as it
    exists.
    """

    effects: bool
    donated: frozenset[int] | None
    program: Callable[[], object]

    @property
    def donates(self) -> bool:
        """Whether it donates any."""
        return self.donated is None or bool(self.donated)


def rerun_of(
    jax: Any, jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Rerun:
    """Return what re-running a call would do; its arguments may have been donated."""
    traced = jitted.trace(*args, **kwargs)
    donated: frozenset[int] | None = frozenset(traced.donate_argnums)
    if donated:
        # Static arguments are missing there, so numbers would be others here.
        tree = jax.tree_util.tree_structure
        if tree(traced.args_info) != tree((args, kwargs)):
            donated = None
    effects = bool(traced.jaxpr.effects) or _calls_back(traced.jaxpr.jaxpr)
    return Rerun(effects, donated, weakref.ref(traced.jaxpr))


def traced_program(
    jitted: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> object:
    """Return what JAX has traced for a call of *jitted*; see `Rerun.program`."""
    program: object = jitted.trace(*args, **kwargs).jaxpr
    return program


def _calls_back(jaxpr: Any) -> bool:
    """Return whether *jaxpr* calls Python, or code declared to have side effects."""
    found = [
        "callback" in equation.primitive.name or equation.params.get("has_side_effect")
        for inside in jaxprs_of(jaxpr, sys.maxsize)
        for equation in inside.eqns
    ]
    return any(found)


_COMPUTATION = r"(?:ENTRY )?%([\w.\-]+) \(.*\{$"
_NAME = r"%([\w.\-]+)"
_WHILE = r" while\(.*body=%([\w.\-]+)"
_TRIPS = r'"known_trip_count":\{"n":"(\d+)"'

_HOMES = ("hlo", "_xla")

# Each body takes as long to analyse as reading its text.
_LONGEST = 4_000_000
_MOST_LOOPS = 64


def accessed_bytes(jax: Any, executable: Any) -> float | None:
    """
    Return the bytes that *executable* accesses on one device; `None` if a loop runs an
    unknown number of times. Takes some milliseconds per 100 kB of HLO.
    """
    modules = list(texts(executable, printing(jax, configured=True)))
    if len(modules) != 1 or len(modules[0]) > _LONGEST:
        return None
    module = _Module(jax, jax.local_devices()[0].client, modules[0])
    return None if module.loops > _MOST_LOOPS else module.total(module.entry)


class _Module:
    """The computations of a module, of which *entry* is the program."""

    def __init__(self, jax: Any, client: Any, text: str) -> None:
        self._client = client
        self._parse = _of_jaxlib(jax, "hlo_module_from_text")
        self._analyse = _of_jaxlib(jax, "hlo_module_cost_analysis")
        self._texts = dict(_computations(text))
        self.entry = next(
            name for name, body in self._texts.items() if body.startswith("ENTRY ")
        )
        self.loops = text.count(" while(")
        self._totals: dict[str, float | None] = {}

    def total(self, name: str) -> float | None:
        if name not in self._totals:
            self._totals[name] = self._total(name)
        return self._totals[name]

    def _total(self, name: str) -> float | None:
        found = self._once(name)
        for body, trips in self._loops(name):
            inside = self.total(body)
            if inside is None or trips is None:
                return None
            found += trips * inside - self._once(body)
        return found

    def _once(self, name: str) -> float:
        """Return XLA's analysis of a computation and all that it calls."""
        needed = self._called(name, {})
        texts = [
            self._texts[computation].removeprefix("ENTRY ") for computation in needed
        ]
        text = "\n\n".join(["HloModule part", *texts[:-1], f"ENTRY {texts[-1]}"])
        cost = self._analyse(self._client, self._parse(text))
        return float(cost.get("bytes accessed", 0.0))

    def _called(self, name: str, order: dict[str, None]) -> Mapping[str, None]:
        body = self._texts[name].partition("\n")[2]
        for callee in re.findall(_NAME, body):
            if callee in self._texts and callee not in order:
                self._called(callee, order)
        order[name] = None
        return order

    def _loops(self, name: str) -> Iterator[tuple[str, int | None]]:
        """Yield body and trips of the loops of a computation, not of those inside."""
        for line in self._texts[name].splitlines()[1:]:
            loop = re.search(_WHILE, line)
            if loop is not None:
                trips = re.search(_TRIPS, line)
                yield loop[1], None if trips is None else int(trips[1])
                continue
            for callee in re.findall(_NAME, line):
                if callee in self._texts:
                    yield from self._loops(callee)


def _of_jaxlib(jax: Any, name: str) -> Any:
    """Return what moved within jaxlib to ``hlo``, most of it in 0.9, from ``_xla``."""
    client = jax._src.lib.xla_client  # noqa: SLF001 - no public way to these
    found = [getattr(getattr(client, home, None), name, None) for home in _HOMES]
    return next(filter(None, found), None)


def _computations(text: str) -> Iterator[tuple[str, str]]:
    name, lines = "", list[str]()
    for line in text.splitlines():
        if not name:
            head = re.match(_COMPUTATION, line)
            if head is None:
                continue
            name = head[1]
        lines.append(line)
        if line == "}":
            yield name, "\n".join(lines)
            name, lines = "", []
