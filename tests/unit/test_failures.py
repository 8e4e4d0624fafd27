"""
What kind of failure an exception is.
"""

from __future__ import annotations

import pytest

from jaxmon.agent.failures import is_runtime_error, kind_of


class XlaRuntimeError(RuntimeError):
    """
    Called as in JAX to 0.6.
    """


class JaxRuntimeError(RuntimeError):
    """
    Called as in JAX since.
    """


class OwnError(JaxRuntimeError):
    """
    Derived by a plugin.
    """


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (XlaRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 B"), "oom"),
        (OwnError("UNKNOWN: Ran out of memory in memory space hbm"), "oom"),
        (JaxRuntimeError("INVALID_ARGUMENT: shape"), "invalid_argument"),
        (JaxRuntimeError("FAILED_PRECONDITION: device"), "invalid_argument"),
        (JaxRuntimeError("INTERNAL: bug"), "internal"),
        (JaxRuntimeError("UNAVAILABLE: host"), "other"),
        (JaxRuntimeError(""), "other"),
        (FloatingPointError("nan"), "nan"),
        (MemoryError(), "oom"),
        (TypeError(), "invalid_argument"),
        (ValueError(), "invalid_argument"),
        (KeyError(), "other"),
    ],
)
def test_kinds_follow_the_error(error: Exception, kind: str) -> None:
    """
    The runtime's status decides, memory wherever it is mentioned, then the type.
    """
    assert kind_of(error) == kind


def test_an_error_on_the_way_through_tracing_is_a_trace_error() -> None:
    """
    Whatever it is, if it passed JAX's function that traces.
    """

    def _infer_params() -> None:
        raise KeyError

    with pytest.raises(KeyError) as caught:
        _infer_params()

    assert kind_of(caught.value) == "trace_error"


def test_runtime_errors_are_known_by_name() -> None:
    """
    Subclasses count, errors that only derive from RuntimeError do not.
    """
    assert is_runtime_error(OwnError())
    assert is_runtime_error(XlaRuntimeError())
    assert not is_runtime_error(RuntimeError())
