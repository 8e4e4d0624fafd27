"""
What runtimes say when they fail, and what kind of failure that is.

Texts of real errors, from JAX 0.4.35 to 0.12 on CPUs, from reports about GPUs and TPUs,
and from what their libraries can say.
"""

from __future__ import annotations


RUNTIME = [
    # CPU: at dispatch; while waiting, by release.
    ("RESOURCE_EXHAUSTED: Out of memory allocating 400000000000000 bytes.", "oom"),
    (
        (
            "FAILED_PRECONDITION: Buffer Definition Event: Error preparing "
            "computation: %sOut of memory allocating 268435552 bytes."
        ),
        "oom",
    ),
    (
        (
            "INTERNAL: Buffer Definition Event: Error preparing computation: Out "
            "of memory allocating 268435552 bytes."
        ),
        "oom",
    ),
    ("UNKNOWN: XLA FFI call failed: std::bad_alloc", "oom"),
    (
        (
            "FAILED_PRECONDITION: Buffer Definition Event: XLA FFI call failed: "
            "std::bad_alloc"
        ),
        "oom",
    ),
    (
        (
            "INTERNAL: CpuCallback error calling callback: Traceback (most recent call "
            'last):\n  File "x.py", line 1, in f\nnumpy._core._exceptions.'
            "_ArrayMemoryError: Unable to allocate 74.5 GiB for an array"
        ),
        "oom",
    ),
    (
        (
            "INTERNAL: Failed to materialize symbols: allocateMappedMemory failed "
            "with error: Cannot allocate memory"
        ),
        "oom",
    ),
    ("INTERNAL: Buffer allocation failed", "oom"),
    ("INTERNAL: Unable to allocate section memory!", "oom"),
    # GPU.
    (
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
        "oom",
    ),
    (
        (
            "RESOURCE_EXHAUSTED: Failed to allocate request for 2.00GiB (2147483648B) "
            "on device ordinal 0"
        ),
        "oom",
    ),
    (
        (
            "INTERNAL: Failed to load in-memory CUBIN: CUDA_ERROR_OUT_OF_MEMORY: "
            "out of memory"
        ),
        "oom",
    ),
    ("INTERNAL: cuBLAS error: CUBLAS_STATUS_ALLOC_FAILED", "oom"),
    (
        (
            "UNKNOWN: Failed to determine best cudnn convolution algorithm: "
            "CUDNN_STATUS_ALLOC_FAILED"
        ),
        "oom",
    ),
    (
        (
            "INTERNAL: Failed to execute XLA Runtime executable: run time error: "
            "custom call 'xla.gpu.graph.launch' failed: CUDA_ERROR_ILLEGAL_ADDRESS"
        ),
        "internal",
    ),
    ("INTERNAL: NCCL operation ncclAllReduce failed: unhandled cuda error", "internal"),
    ("INTERNAL: hipModuleLoadData failed: HIP_ERROR_OutOfMemory", "oom"),
    ("INTERNAL: ptxas: ran out of registers during register allocation", "internal"),
    ("INTERNAL: LLVM: register allocation failed: maximum depth", "internal"),
    # TPU.
    (
        (
            "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in "
            "memory space hbm. Used 17.2G of 15.48G hbm. Exceeded hbm capacity by "
            "1.72G."
        ),
        "oom",
    ),
    (
        (
            "XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
            "Used 17.2G of 15.48G hbm."
        ),
        "oom",
    ),
    ("INTERNAL: E1000: CompileTimeHbmOom: the program needs more than there is", "oom"),
    (
        (
            "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to "
            "allocate 4.00G. That was not possible."
        ),
        "oom",
    ),
    ("RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem", "oom"),
    # Not memory of a device.
    ("RESOURCE_EXHAUSTED: Received message larger than max (5 vs. 4)", "other"),
    ("INVALID_ARGUMENT: a message that speaks of out of memory", "invalid_argument"),
    # Every other status.
    (
        "INVALID_ARGUMENT: Disallowed host-to-device transfer: aval=f32[3]",
        "invalid_argument",
    ),
    (
        "INVALID_ARGUMENT: BlockHostUntilReady() called on deleted or donated buffer",
        "invalid_argument",
    ),
    ("FAILED_PRECONDITION: device", "invalid_argument"),
    ("OUT_OF_RANGE: index", "invalid_argument"),
    ("INTERNAL: CpuCallback error: ValueError: mine", "internal"),
    ("DATA_LOSS: corrupt", "internal"),
    ("UNAVAILABLE: Failed to connect to the coordinator", "unavailable"),
    ("ABORTED: /job:jax_worker/task:1 was restarted", "unavailable"),
    ("DEADLINE_EXCEEDED: Barrier timed out", "deadline"),
    ("CANCELLED: the execution was cancelled", "cancelled"),
    ("NOT_FOUND: No FFI handler registered for nope on a platform Host", "other"),
    ("ALREADY_EXISTS: key", "other"),
    ("PERMISSION_DENIED: no", "other"),
    ("UNAUTHENTICATED: who", "other"),
    ("UNIMPLEMENTED: GetOutputMemoryKinds is not supported.", "other"),
    ("UNKNOWN: something", "other"),
    ("Execution of replica 0 failed: INTERNAL: bug", "internal"),
    ("Something nobody has seen", "other"),
    ("", "other"),
]
