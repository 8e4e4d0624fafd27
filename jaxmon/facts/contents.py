"""What a program contains, and what of it costs more than it needs, by line."""

from __future__ import annotations

from collections.abc import Mapping

from jaxmon.facts.record import NOTHING, Fact


class Unrolled(Fact):
    """
    A loop of Python that JAX traced into a program: *where* its body is called from,
    how many *times* it is there, and which *ratio* of all *operations*, as traced. If
    all of it is in a second loop, *inner* is where, and *times* of both together. So
    many *programs* of the function have such a loop.
    """

    where: str = ""
    times: int = 0
    ratio: float = 0.0
    operations: int = 0
    inner: str = ""
    programs: int = 1


class Folded(Fact):
    """
    An operation on constants, which XLA computes while it compiles.

    Attributes:
        where: the line of the program that has it, and *callers*, those that call it.
        operation: JAX's name of it; *constant*, type and shape of the largest constant.
        steps: how often XLA computes an element, for all such operations.
        programs: number of programs of the function that have such operations.
    """

    where: str = ""
    callers: tuple[str, ...] = ()
    operation: str = ""
    constant: str = ""
    steps: int = 0
    programs: int = 0


class CompileLines(Fact):
    """
    Lines that a compile goes into, of the program, or of libraries if it has none.

    Attributes:
        equations: that JAX lowers, with those inside of others; more if *uncounted*.
            *most* of them are from the line *where*, by primitive in
            *operations*, without those that only have others inside.
        unrolled: the loop of Python that is most of it, if one is; so many equations
            are *inside*.
        folded: what it does with constants.
        traced: the line where it was traced for longest, in the outermost *loop* there,
            for *traced_seconds*, as far as looks show; empty if unknown.
    """

    equations: int = 0
    uncounted: bool = False
    most: int = 0
    where: str = ""
    operations: Mapping[str, int] = NOTHING
    unrolled: Unrolled | None = None
    inside: int = 0
    folded: Folded | None = None
    traced: str = ""
    traced_seconds: float = 0.0
    loop: str = ""


class Captured(Fact):
    """
    Arrays that a function takes from around it, so that they are constants.

    Attributes:
        where: the line of the program that first uses the *largest*, of that type and
            shape, and *callers*, those that call it.
        bytes: of all *arrays*, so many.
        programs: number of programs of the function that have such constants.
    """

    where: str = ""
    callers: tuple[str, ...] = ()
    largest: str = ""
    bytes: float = 0.0
    arrays: int = 0
    programs: int = 0


class Selected(Fact):
    """
    Branches that are all computed, since `jax.vmap` selects: *where* they are called,
    how many *branches*, for which *batch*, and the *ratio* of all but the cheapest.
    """

    where: str = ""
    branches: int = 0
    batch: int = 0
    ratio: float = 0.0


class Inefficient(Fact):
    """
    An operation *where* another has the same results: of a *kind*, ``lookup`` by an
    *array* of one-hot vectors, ``sort`` of an *array* of which a few elements of *size*
    are *used*, or ``product``, a sum of all products in an *array*; its *ratio* of all
    operations.
    """

    kind: str = ""
    array: str = ""
    size: int = 0
    used: int = 0
    ratio: float = 0.0
    where: str = ""


class Copied(Fact):
    """
    Arguments that each call copies, because they are not donated.

    Attributes:
        bytes: of them, on one device.
        fraction: what the copies are of all that the program accesses.
        arguments: their names, as far as they are known.
        donated_inside: the line that calls a jitted function that donates, inside the
            function, in vain.
        kept: sampled calls after which the program kept one of the arguments;
            *dropped*, those after which it did not.
        copying: sampled calls of a program that copies; *others*, of one that does not.
    """

    bytes: float = 0.0
    fraction: float = 0.0
    arguments: tuple[str, ...] = ()
    donated_inside: str = ""
    kept: int = 0
    dropped: int = 0
    copying: int = 0
    others: int = 0

    @property
    def of_calls(self) -> float:
        """The fraction of the calls that copy, as far as samples show."""
        return self.copying / max(self.copying + self.others, 1)


class WholeArrays(Fact):
    """
    Arrays that each device holds whole, though they could be divided.

    Attributes:
        cause: ``state``, beside an argument that is divided, or ``uneven``, for a
            constraint asks for parts that are not equal.
        arrays: names of arguments, or types and shapes of results.
        bytes: that a device would not hold if they were divided into *parts*.
        like: the argument that is divided.
        where: the line of the constraint.
    """

    cause: str = ""
    arrays: tuple[str, ...] = ()
    bytes: float = 0.0
    parts: int = 0
    like: str = ""
    where: str = ""


class Resharded(Fact):
    """
    Arguments that each call divides anew: *arrays* in *parts* for each dimension, where
    what is *needed* is the division of *like*, or another one since its *operation*
    goes along a dimension; *bytes* are what each device gets.
    """

    arrays: tuple[str, ...] = ()
    bytes: float = 0.0
    parts: tuple[int, ...] = ()
    needed: tuple[int, ...] = ()
    like: str = ""
    operation: str = ""
    where: str = ""


class Unreduced(Fact):
    """
    *outputs* of a ``shard_map``, computed *where*, that are said to be equal on the
    *devices* along an *axis*, and follow from *arguments* that are divided along it.
    """

    outputs: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    axis: str = ""
    devices: int = 0
    where: str = ""
