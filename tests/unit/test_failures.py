"""What kind of failure an exception is."""

import pytest

from jaxmon.agent.jaxlink import failures
from jaxmon.agent.jaxlink.failures import (
    function_named_in,
    is_from_jax,
    is_runtime_error,
    kind_of,
    message_of,
    stage_of,
    status_of,
)
from jaxmon.catalog import ERROR_KINDS
from tests.helpers.processes import each


# By kind: those of the CPU, a GPU and a TPU, then every other status.
RUNTIME = {
    "oom": [
        "RESOURCE_EXHAUSTED: Out of memory allocating 400000000000000 bytes.",
        (
            "FAILED_PRECONDITION: Buffer Definition Event: Error preparing "
            "computation: %sOut of memory allocating 268435552 bytes."
        ),
        (
            "INTERNAL: Buffer Definition Event: Error preparing computation: Out of "
            "memory allocating 268435552 bytes."
        ),
        "UNKNOWN: XLA FFI call failed: std::bad_alloc",
        (
            "FAILED_PRECONDITION: Buffer Definition Event: XLA FFI call failed: "
            "std::bad_alloc"
        ),
        (
            "INTERNAL: CpuCallback error calling callback: Traceback (most recent "
            'call last):\n  File "x.py", line 1, in f\n'
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 74.5 GiB "
            "for an array"
        ),
        (
            "INTERNAL: Failed to materialize symbols: allocateMappedMemory failed "
            "with error: Cannot allocate memory"
        ),
        "INTERNAL: Buffer allocation failed",
        "INTERNAL: Unable to allocate section memory!",
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
        (
            "RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB "
            "(2147483648B) on device ordinal 0"
        ),
        (
            "INTERNAL: Failed to load in-memory CUBIN: CUDA_ERROR_OUT_OF_MEMORY: out "
            "of memory"
        ),
        "INTERNAL: cuBLAS error: CUBLAS_STATUS_ALLOC_FAILED",
        (
            "UNKNOWN: Failed to determine best cudnn convolution algorithm: "
            "CUDNN_STATUS_ALLOC_FAILED"
        ),
        "INTERNAL: hipModuleLoadData failed: HIP_ERROR_OutOfMemory",
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory "
            "in memory space hbm. Used 17.2G of 15.48G hbm. Exceeded hbm capacity by "
            "1.72G."
        ),
        (
            "XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
            "Used 17.2G of 15.48G hbm."
        ),
        "INTERNAL: E1000: CompileTimeHbmOom: the program needs more than there is",
        (
            "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to "
            "allocate 4.00G. That was not possible."
        ),
        "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem",
    ],
    "internal": [
        (
            "INTERNAL: Failed to execute XLA Runtime executable: run time error: "
            "custom call 'xla.gpu.graph.launch' failed: CUDA_ERROR_ILLEGAL_ADDRESS"
        ),
        "INTERNAL: NCCL operation ncclAllReduce failed: unhandled cuda error",
        "INTERNAL: ptxas: ran out of registers during register allocation",
        "INTERNAL: LLVM: register allocation failed: maximum depth",
        "INTERNAL: CpuCallback error: ValueError: mine",
        "DATA_LOSS: corrupt",
        "Execution of replica 0 failed: INTERNAL: bug",
    ],
    "other": [
        "RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)",
        "NOT_FOUND: No FFI handler registered for nope on a platform Host",
        "ALREADY_EXISTS: key",
        "PERMISSION_DENIED: no",
        "UNAUTHENTICATED: who",
        "UNIMPLEMENTED: GetOutputMemoryKinds is not supported.",
        "UNKNOWN: something",
        "Something nobody has seen",
        "",
    ],
    "invalid_argument": [
        "INVALID_ARGUMENT: a message that speaks of out of memory",
        "INVALID_ARGUMENT: Disallowed host-to-device transfer: aval=f32[3]",
        "INVALID_ARGUMENT: BlockHostUntilReady() called on deleted or donated buffer",
        "FAILED_PRECONDITION: device",
        "OUT_OF_RANGE: index",
    ],
    "unavailable": [
        "UNAVAILABLE: Failed to connect to the coordinator",
        "ABORTED: /job:jax_worker/task:1 was restarted",
    ],
    "deadline": [
        "DEADLINE_EXCEEDED: Barrier timed out",
    ],
    "cancelled": [
        "CANCELLED: the execution was cancelled",
    ],
}
RUNTIME_TEXTS = [(text, kind) for kind, texts in RUNTIME.items() for text in texts]


STATUSES = failures._STATUS


class XlaRuntimeError(RuntimeError):
    """Called as in JAX to 0.6."""


class JaxRuntimeError(RuntimeError):
    """Called as in JAX since."""


class CodedError(JaxRuntimeError):
    """Carries its status, as in JAX since 0.10."""

    def __init__(self, text: str, code: str | None) -> None:
        super().__init__(text)
        self.error_code_string = code


class OwnError(JaxRuntimeError):
    """Derived by a plugin."""


class JAXTypeError(TypeError):
    """Base of JAX's errors about tracers."""


class ConcretizationTypeError(JAXTypeError):
    pass


class JAXIndexError(IndexError):
    """Base of JAX's errors about tracers as indices."""


class NonConcreteBooleanIndexError(JAXIndexError):
    pass


class KeyReuseError(JAXTypeError):
    pass


checkify = type("JaxRuntimeError", (ValueError,), {"__module__": "jax._src.checkify"})


@each(
    {
        f"{made.__name__}: {text}": (made, text, kind)
        for made in (XlaRuntimeError, JaxRuntimeError, OwnError)
        for text, kind in RUNTIME_TEXTS
    }
)
def test_kinds_of_runtime_errors_follow_their_text(made, text, kind):
    """Memory wherever a vague status mentions it, then the status."""
    assert kind_of(made(text)) == kind
    assert kind in ERROR_KINDS


@each({one[0]: one for one in RUNTIME_TEXTS if one[0].split(":")[0] in STATUSES})
def test_a_cached_call_raises_the_same_as_a_value_error(text: str, kind: str) -> None:
    """C++ turns the status of a call on the fast path into a builtin exception."""
    assert kind_of(ValueError(text)) == kind
    assert is_from_jax(ValueError(text))


def test_the_code_decides_where_there_is_one() -> None:
    """Since 0.10 an error has its status as an attribute, which no text can spoil."""
    assert kind_of(CodedError("INTERNAL: quoted", "UNAVAILABLE")) == "unavailable"
    assert kind_of(CodedError("DEADLINE_EXCEEDED: it", None)) == "deadline"
    assert kind_of(CodedError("DEADLINE_EXCEEDED: it", "UNKNOWN")) == "deadline"
    assert status_of(CodedError("made by hand", "UNKNOWN")) == "UNKNOWN"
    assert kind_of(CodedError("UNAVAILABLE: it", "NEW_STATUS")) == "unavailable"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FloatingPointError("invalid value (nan) encountered in jit(f)"), "nan"),
        (checkify("nan generated by primitive: log."), "nan"),
        (
            checkify("out-of-bounds indexing for array of shape (3,)"),
            "invalid_argument",
        ),
        (checkify("must be positive (`check` failed)"), "other"),
        (KeyReuseError("Previously-consumed key passed to jit"), "key_reuse"),
        (ConcretizationTypeError("Abstract tracer value"), "trace_error"),
        (NonConcreteBooleanIndexError("Array boolean indices"), "trace_error"),
        (Exception("Leaked trace DynamicJaxprTrace."), "trace_error"),
        (MemoryError(), "oom"),
        (MemoryError("std::bad_alloc"), "oom"),
        (RuntimeError("Could not allocate bytes object!"), "oom"),
        (
            RuntimeError("Array has been deleted with shape=float32[3]."),
            "invalid_argument",
        ),
        (TypeError("Error interpreting argument to f"), "invalid_argument"),
        (ValueError("Non-hashable static arguments"), "invalid_argument"),
        (ValueError("this is INVALID: text"), "invalid_argument"),
        (KeyError("missing"), "other"),
        (StopIteration(), "other"),
        (AssertionError("mine"), "other"),
    ],
)
def test_kinds_of_other_errors_follow_their_type(error: Exception, kind: str) -> None:
    """JAX's own classes by name, in whatever module, then builtins."""
    assert kind_of(error) == kind


def test_an_error_on_the_way_through_tracing_is_a_trace_error() -> None:
    """Whatever the user's function raises, if it passed JAX's function that traces."""

    def _infer_params() -> None:
        raise KeyError

    with pytest.raises(KeyError) as caught:
        _infer_params()

    assert kind_of(caught.value) == "trace_error"
    assert stage_of(caught.value) == "trace"


def test_runtime_errors_are_known_by_name() -> None:
    """
    Subclasses count; errors that only derive from RuntimeError, or are called the same
    by `checkify`, do not.
    """
    assert is_runtime_error(OwnError())
    assert is_runtime_error(XlaRuntimeError())
    assert not is_runtime_error(RuntimeError())
    assert not is_runtime_error(checkify())


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (JaxRuntimeError("INTERNAL: bug"), True),
        (checkify("out-of-bounds"), True),
        (ValueError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes."), True),
        (RuntimeError("Array has been deleted with shape=float32[3]."), True),
        (FloatingPointError("invalid value (nan) encountered in jit(f)"), True),
        (MemoryError("std::bad_alloc"), True),
        (ValueError("Non-hashable static arguments are not supported. An"), True),
        (ValueError("INTERNAL"), False),
        (ValueError("about INTERNAL: things"), False),
        (type("Mine", (ValueError,), {})("INTERNAL: mine"), False),
        (RuntimeError("mine"), False),
        (FloatingPointError("underflow encountered in exp"), False),
        (MemoryError("Unable to allocate 1. GiB"), False),
        (KeyboardInterrupt(), False),
        (SystemExit(1), False),
    ],
)
def test_what_nobody_caught_is_jaxs_or_not(error, expected):
    """What ends a program is counted only if JAX or its runtime raised it."""
    assert is_from_jax(error) is expected


def test_the_stage_is_where_the_traceback_came_furthest() -> None:
    """A compile lies within a call; a call by itself was dispatched."""

    def backend_compile() -> None:
        raise JaxRuntimeError

    def cache_miss(inner: object = None) -> None:
        if inner is None:
            raise JaxRuntimeError
        backend_compile()

    with pytest.raises(JaxRuntimeError) as dispatched:
        cache_miss()
    with pytest.raises(JaxRuntimeError) as compiled:
        cache_miss(1)

    assert stage_of(dispatched.value) == "dispatch"
    assert stage_of(compiled.value) == "compile"
    assert stage_of(ValueError("INTERNAL: from a cached call")) == "dispatch"
    assert stage_of(ValueError("mine")) is None


def test_a_message_is_its_first_lines() -> None:
    """The reason is kept; what follows it, or would fill a page, is not."""
    dump = JaxRuntimeError("INTERNAL: reason  \nmore\n\n" + "dump\n" * 1000)

    assert message_of(dump) == "INTERNAL: reason\nmore"
    assert len(message_of(JaxRuntimeError("x" * 10_000))) == 500
    assert message_of(JaxRuntimeError("\n".join("abcdefg"))) == "a\nb\nc\nd"
    assert len(message_of(dump, limit=3000, lines=None)) == 3000
    assert message_of(KeyError(3)) == ""


def test_the_reason_is_not_lost_behind_a_text_that_is_repeated() -> None:
    """The runtime says of each later program that an earlier one failed."""
    reason = "Gloo all-reduce failed: Read error: Connection reset by peer"
    before = "Error dispatching computation: "
    said = JaxRuntimeError(f"INTERNAL: {before * 32}{reason}")

    assert message_of(said) == f"INTERNAL: {before}{reason}"
    assert message_of(ValueError("a: a: b")) == "a: a: b"
    assert len(message_of(JaxRuntimeError("x" * (1 << 20)), lines=None)) == 500


def test_a_class_of_the_users_is_not_asked_for_its_text() -> None:
    """Its ``__str__`` may be slow, fail, or wait for the device that failed."""

    class RudeError(JaxRuntimeError):
        def __str__(self) -> str:
            raise AssertionError

    assert kind_of(RudeError("INTERNAL: x")) == "internal"
    assert kind_of(RudeError(object())) == "other"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("invalid value (nan) encountered in jit(step). Because", "step"),
        ("INTERNAL: while running jit_train_step", "train_step"),
        ("INTERNAL: in pjit(step)", "step"),
        ("jit(<lambda>)", None),
        ("INTERNAL: nothing", None),
    ],
)
def test_a_message_may_name_the_function(text: str, name: str | None) -> None:
    """Programs are called after the function that was jitted."""
    assert function_named_in(JaxRuntimeError(text)) == name


def test_every_status_has_a_kind() -> None:
    """The table has the sixteen statuses of the runtime, each with a known kind."""
    assert len(STATUSES) == 16
    assert set(STATUSES.values()) <= set(ERROR_KINDS)
