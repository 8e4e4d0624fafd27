"""
A dcgm-exporter for tests: pages in its shape, and everything that goes wrong with it.
"""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.fakes.nvml.gpus import UUID


TEXT = "text/plain; version=0.0.4; charset=utf-8"

# What DCGM has instead of a figure: none yet, not found, not supported, not permitted.
BLANKS = (
    "9223372036854775792",
    "9223372036854775793",
    "9223372036854775794",
    "9223372036854775795",
    "140737488355328.000000",
    "140737488355330.000000",
    "NaN",
)

# Name before DCGM 4.6, name since, kind, value on GPU 0, added on each further GPU.
FIELDS = (
    ("DEV_SM_CLOCK", "DEV_SM_CLOCK", "gauge", "1980", 0),
    ("DEV_MEM_CLOCK", "DEV_MEM_CLOCK", "gauge", "2619", 0),
    ("DEV_MEMORY_TEMP", "DEV_MEMORY_TEMP_CELSIUS", "gauge", "58", 1),
    ("DEV_GPU_TEMP", "DEV_GPU_TEMP_CELSIUS", "gauge", "44", 1),
    ("DEV_POWER_USAGE", "DEV_BOARD_POWER_WATTS", "gauge", "412.250000", 1),
    (
        "DEV_TOTAL_ENERGY_CONSUMPTION",
        "DEV_TOTAL_ENERGY_CONSUMPTION",
        "counter",
        "987654321",
        1000,
    ),
    ("DEV_PCIE_REPLAY_COUNTER", "DEV_PCIE_REPLAY_TOTAL", "counter", "3", 1),
    ("DEV_GPU_UTIL", "DEV_GPU_UTIL_RATIO", "gauge", "87", 1),
    ("DEV_MEM_COPY_UTIL", "DEV_MEM_COPY_UTIL", "gauge", "31", 1),
    ("DEV_ENC_UTIL", "DEV_ENC_UTIL", "gauge", "0", 1),
    ("DEV_DEC_UTIL", "DEV_DEC_UTIL", "gauge", "2", 1),
    ("DEV_XID_ERRORS", "DEV_XID_ERROR", "gauge", "0", 0),
    ("DEV_FB_FREE", "DEV_FB_FREE", "gauge", "20000", 1),
    ("DEV_FB_USED", "DEV_FB_USED", "gauge", "61000", 1),
    ("DEV_FB_RESERVED", "DEV_FB_RESERVED", "gauge", "512", 1),
    (
        "DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
        "counter",
        "1",
        1,
    ),
    (
        "DEV_CORRECTABLE_REMAPPED_ROWS",
        "DEV_ROW_REMAP_CORRECTABLE_TOTAL",
        "counter",
        "5",
        1,
    ),
    ("DEV_ROW_REMAP_FAILURE", "DEV_ROW_REMAP_FAILED", "gauge", "0", 0),
    (
        "DEV_NVLINK_BANDWIDTH_TOTAL",
        "DEV_NVLINK_THROUGHPUT_TOTAL",
        "counter",
        "123456",
        1,
    ),
    ("DEV_VGPU_LICENSE_STATUS", "DEV_VGPU_LICENSE_STATUS", "gauge", "0", 0),
    ("PROF_GR_ENGINE_ACTIVE", "PROF_GR_ENGINE_UTIL_RATIO", "gauge", "0.910000", 0),
    ("PROF_SM_ACTIVE", "PROF_SM_UTIL_RATIO", "gauge", "0.820000", 0),
    ("PROF_SM_OCCUPANCY", "PROF_SM_OCCUPANCY_RATIO", "gauge", "0.410000", 0),
    ("PROF_PIPE_TENSOR_ACTIVE", "PROF_TENSOR_UTIL_RATIO", "gauge", "0.530000", 0),
    ("PROF_DRAM_ACTIVE", "PROF_DRAM_UTIL_RATIO", "gauge", "0.640000", 0),
    ("PROF_PIPE_FP64_ACTIVE", "PROF_FP64_UTIL_RATIO", "gauge", "0.010000", 0),
    ("PROF_PIPE_FP32_ACTIVE", "PROF_FP32_UTIL_RATIO", "gauge", "0.120000", 0),
    ("PROF_PIPE_FP16_ACTIVE", "PROF_FP16_UTIL_RATIO", "gauge", "0.020000", 0),
    ("PROF_PCIE_TX_BYTES", "PROF_PCIE_TX_BYTES", "gauge", "1048576", 1),
    ("PROF_PCIE_RX_BYTES", "PROF_PCIE_RX_BYTES", "gauge", "2097152", 1),
)


def labels(
    gpu: int, *, new: bool = False, model: str = "NVIDIA H100 80GB HBM3", more: str = ""
) -> str:
    driver = f"DCGM_FI_{'SYSTEM_' if new else ''}DRIVER_VERSION"
    return (
        f'gpu="{gpu}",UUID="{UUID.format(gpu)}",pci_bus_id="00000000:{0x1A + gpu:02X}'
        f':00.0",device="nvidia{gpu}",modelName="{model}",Hostname="node-1",'
        f'{driver}="580.65.06"{more}'
    )


def page(
    gpus: int = 1,
    *,
    new: bool = False,
    model: str = "NVIDIA H100 80GB HBM3",
    more: str = "",
) -> str:
    found = []
    for old_name, new_name, kind, value, step in FIELDS:
        name = f"DCGM_FI_{new_name if new else old_name}"
        found += [f"# HELP {name} Help.", f"# TYPE {name} {kind}"]
        for gpu in range(gpus):
            shown = (
                f"{float(value) + step * gpu:.6f}"
                if "." in value
                else str(int(value) + step * gpu)
            )
            text = labels(gpu, new=new, model=model, more=more)
            found.append(f"{name}{{{text}}} {shown}")
    return "".join(f"{line}\n" for line in found)


@dataclass
class DcgmExporter:
    """
    What the server answers with; may be changed at any time.

    Args:
        stall_after: bytes of the body after which nothing more comes.
    """

    body: str = ""
    status: int = 200
    type: str = TEXT
    headers: dict[str, str] = field(default_factory=dict)
    stall_after: int | None = None
    url: str = ""
    requests: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def dcgm_exporter(tls: ssl.SSLContext | None = None) -> Iterator[DcgmExporter]:
    state = DcgmExporter(page())
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append({**dict(self.headers), "path": self.path})
            body = state.body.encode()
            self.send_response(state.status)
            self.send_header("Content-Type", state.type)
            self.send_header("Content-Length", str(len(body)))
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(body[: state.stall_after])
                if state.stall_after is not None:
                    over.wait()
            except OSError:
                pass  # the client had enough

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a client that ends the handshake is none of ours

    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = False
    if tls is not None:
        # The handshake belongs to the thread of the connection.
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    state.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}/metrics"
    try:
        yield state
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()
