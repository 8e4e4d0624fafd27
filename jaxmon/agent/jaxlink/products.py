"""
FLOPs of the operations that multiply matrices, by the shapes of a jaxpr's equation.

A product of an [M, K] and a [K, N] matrix has 2·M·N·K, for M·N·K multiplications and as
many additions. What is not multiplied, because a convolution is padded or dilated, is
not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Any


_LONGEST = 1 << 16
"""Longest kernel, or output if that is shorter, whose overlaps are counted."""


class UncountableError(Exception):
    """The FLOPs of an operation do not follow from what its equation has."""


def elements(variable: Any) -> int:
    """Return the number of elements; 0 if a dimension is not known."""
    shape = getattr(variable.aval, "shape", ())
    return prod(shape) if all(isinstance(size, int) for size in shape) else 0


def bytes_of(variable: Any) -> int:
    """Return its bytes; 0 if a dimension or the type is not known."""
    dtype = getattr(variable.aval, "dtype", None)
    return elements(variable) * getattr(dtype, "itemsize", 0)


def dot(equation: Any) -> float:
    """Return the FLOPs of a ``dot_general``."""
    left, right = _shapes(equation)
    (_, contracted), (_, batch) = equation.params["dimension_numbers"]
    return _product(equation, left, right, {*contracted, *batch})


def ragged_dot(equation: Any) -> float:
    """Return the FLOPs of a product of each row with the matrix of its group."""
    left, right = _shapes(equation)
    if equation.primitive.name == "ragged_dot":  # [m, k] and [groups, k, n]
        return _product(equation, left, right, {0, 1})
    numbers = equation.params["ragged_dot_dimension_numbers"]
    (_, contracted), (_, batch) = numbers.dot_dimension_numbers
    groups = numbers.rhs_group_dimensions
    return _product(equation, left, right, {*contracted, *batch, *groups})


def convolution(equation: Any) -> float:
    """Return its FLOPs; `UncountableError` if kernel and output are extremely long."""
    left, right = _shapes(equation)
    parameters = equation.params
    numbers = parameters["dimension_numbers"]
    inputs, kernels, outputs = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    result = equation.outvars[0].aval.shape
    pairs = 1
    for at in range(len(parameters["window_strides"])):
        pairs *= _overlaps(
            left[inputs[2 + at]],
            right[kernels[2 + at]],
            result[outputs[2 + at]],
            stride=parameters["window_strides"][at],
            before=parameters["padding"][at][0],
            spread=parameters["lhs_dilation"][at],
            dilation=parameters["rhs_dilation"][at],
        )
    batch = left[inputs[0]] // parameters["batch_group_count"]
    features = right[kernels[0]] * right[kernels[1]]
    found: float = 2.0 * batch * features * pairs * _factor(equation)
    return found


def _shapes(equation: Any) -> tuple[Sequence[int], Sequence[int]]:
    left, right = (variable.aval.shape for variable in equation.invars[:2])
    return left, right


def _product(
    equation: Any, left: Sequence[int], right: Sequence[int], shared: set[int]
) -> float:
    """*shared* are the dimensions of the right side that are not those of columns."""
    columns = [size for at, size in enumerate(right) if at not in shared]
    return 2.0 * prod(left) * prod(columns) * _factor(equation)


def _factor(equation: Any) -> int:
    """Return how many real products one of the operands' type takes."""
    kinds = [str(variable.aval.dtype) for variable in equation.invars[:2]]
    return 1 << sum(kind.startswith("complex") for kind in kinds)


def _overlaps(  # noqa: PLR0913 - those of a dimension of a window
    size: int,
    kernel: int,
    output: int,
    *,
    stride: int,
    before: int,
    spread: int,
    dilation: int,
) -> int:
    """
    Return how many pairs of an output and a kernel element meet an element of the
    input, along one dimension. The window has a *stride*, and *before* padding,
    possibly negative, before the first element; elements of the input lie *spread*
    apart, with zeros between, those of the kernel *dilation*.
    """
    short, long = (kernel, dilation), (output, stride)
    if kernel > output:
        short, long = long, short
    if short[0] > _LONGEST:
        raise UncountableError
    last = (size - 1) * spread
    return sum(
        _multiples(long[0], long[1], dimension * short[1] - before, last, spread)
        for dimension in range(short[0])
    )


def _multiples(number: int, step: int, offset: int, last: int, spread: int) -> int:
    """Return for how many *i* that lies on a multiple of *spread*, up to *last*."""
    common = gcd(step, spread)
    if offset % common:
        return 0
    period = spread // common
    # The first that is a multiple, by the inverse of the step.
    first = 0
    if period > 1:
        first = -(offset // common) * pow(step // common, -1, period) % period
    low = max(0, -(offset // step))  # rounded up
    high = min(number - 1, (last - offset) // step)
    low += (first - low) % period
    return 0 if high < low else (high - low) // period + 1
