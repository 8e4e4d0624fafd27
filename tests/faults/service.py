"""Rows about the sidecar's own process, its server and the host."""

import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.error import HTTPError

import pytest

from tests.faults.agents import good, whole
from tests.faults.matrix import Area
from tests.faults.stage import MAIN, Sidecar, Stage, Unexpected, age, success
from tests.helpers.processes import clean_environ, freeze


AREA = Area("sidecar")
HOST = Area("host")

DISK = "jaxmon_host_disk_size_bytes"

# A host whose /proc and /sys can be taken away.
ELSEWHERE = """
import functools, sys
from pathlib import Path
from jaxmon_exporter.collectors import host
host.Host = functools.partial(host.Host, root=Path({root!r}))
"""

# A clock that a file sets to another time.
CLOCK = """
import time
from pathlib import Path
step, told = Path({step!r}), time.time
def stepped():
    try:
        return told() + float(step.read_text() or 0)
    except FileNotFoundError:
        return told()
time.time = stepped
"""

# What a process that may have no more threads meets.
NO_THREADS = """
import threading
from pathlib import Path
from jaxmon.threads import DaemonThread
out = Path({out!r})
def refusing(begin):
    def start(self):
        if out.exists():
            raise RuntimeError("can't start new thread")
        begin(self)
    return start
for kind in (threading.Thread, DaemonThread):
    kind.start = refusing(kind.start)
"""


def alone(stage: Stage, *arguments: str, main: str = MAIN) -> Sidecar:
    return stage.sidecar("--disable", "nvml", *arguments, main=main)


def with_agent(stage: Stage, *arguments: str, main: str = MAIN) -> Sidecar:
    good(stage, 0)
    sidecar = alone(stage, "--disable", "host", *arguments, main=main)
    stage.until(lambda: whole(sidecar, 0), "the agent")
    return sidecar


# --- the host -------------------------------------------------------------------


@HOST.row("a watched directory is removed and recreated", quick=True)
def disk_gone(stage: Stage) -> None:
    disk = stage.directory / "cache"
    disk.mkdir()
    sidecar = alone(stage, "--disable", "agents", "--disk", str(disk))

    def shown() -> bool:
        return any(name.startswith(DISK) for name in sidecar.page())

    stage.until(shown, "the disk")
    disk.rmdir()
    stage.shows(lambda: not shown(), "its series gone")
    page = sidecar.page()
    stage.expect("jaxmon_host_memory_size_bytes" in page, "memory unaffected")
    disk.mkdir()
    stage.recovers(shown)


@HOST.row("no /proc/pressure, no /sys", quick=True)
def no_proc(stage: Stage) -> None:
    root = stage.directory / "root"
    (root / "proc" / "pressure").mkdir(parents=True)
    for name in ("meminfo", "stat"):
        (root / "proc" / name).write_text(Path("/proc", name).read_text())
    pressure = root / "proc" / "pressure" / "memory"
    main = ELSEWHERE.format(root=str(root)) + MAIN
    sidecar = alone(stage, "--disable", "agents", main=main)
    page = sidecar.page()
    waited = "jaxmon_host_pressure_seconds_total"
    stage.expect(not any(name.startswith(waited) for name in page), "no pressure")
    stage.expect(success(page, "host") == 1, "host success 1")
    stage.expect("jaxmon_host_memory_size_bytes" in page, "memory unaffected")
    zero = "avg10=0.00 avg60=0.00 avg300=0.00 total=2000000"
    pressure.write_text(f"some {zero}\nfull {zero}\n")
    stage.recovers(lambda: any(name.startswith(waited) for name in sidecar.page()))


# --- the process ----------------------------------------------------------------


@AREA.row("the port is in use", quick=True)
def busy_port(stage: Stage) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        ended = subprocess.run(
            [
                *(sys.executable, "-c", MAIN, "exporter", "--host", "127.0.0.1"),
                *("--port", str(port)),
            ],
            env=clean_environ(stage.run_dir),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    stage.expect(ended.returncode == 1, "exit code 1")
    stage.expect("--port" in ended.stderr, "message suggests another port")
    stage.expect("Traceback" not in ended.stderr, "no traceback")


@AREA.row("no descriptors left", quick=True)
def descriptors(stage: Stage) -> None:
    sidecar = with_agent(stage)
    pid = sidecar.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))
    spent = sidecar.cpu_seconds()
    began = time.monotonic()
    clients = []
    for _ in range(4):
        client = socket.create_connection(("127.0.0.1", sidecar.port), timeout=1)
        clients.append(client)
        client.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n")
        with suppress(TimeoutError):
            client.recv(100)
    busy = (sidecar.cpu_seconds() - spent) / (time.monotonic() - began)
    for client in clients:
        client.close()
    stage.expect(sidecar.process.poll() is None, "clients wait, the sidecar survives")
    stage.expect(busy < 0.5, "no busy loop")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
    stage.recovers(lambda: answers(sidecar) and whole(sidecar, 0))
    stage.expect(sidecar.says("Traceback") <= 1, "at most one traceback")


@AREA.row("no more threads can be started")
def threads(stage: Stage) -> None:
    out = stage.directory / "out"
    main = NO_THREADS.format(out=str(out)) + MAIN
    sidecar = with_agent(stage, main=main)
    out.touch()
    for _ in range(20):
        sidecar.page()
    stage.expect(whole(sidecar, 0), "scrapes and polls continue without new threads")


@AREA.row("the clock jumps a day back, then a day forward")
def clock(stage: Stage) -> None:
    step = stage.directory / "step"
    main = CLOCK.format(step=str(step)) + MAIN
    sidecar = with_agent(stage, main=main)
    for seconds in (-86_400, 86_400):
        step.write_text(str(seconds))
        time.sleep(0.5)  # two polls
        page = sidecar.page()
        known = age(page, "agents")
        stage.expect(known is not None and 0 <= known < 60, "ages unchanged")
        stage.expect(whole(sidecar, 0), "values unchanged")


@AREA.row("the process is paused")
def paused(stage: Stage) -> None:
    sidecar = with_agent(stage)
    freeze(sidecar.process.pid)
    time.sleep(10)
    sidecar.process.send_signal(signal.SIGCONT)
    # What was true before the pause is not served as if it were true now.
    stage.recovers(
        lambda: whole(sidecar, 0) and (age(sidecar.page(), "agents") or 9) < 5
    )
    stage.say("serves fresh readings after the pause")


@AREA.row("SIGTERM during a slow request", quick=True)
def slow_client(stage: Stage) -> None:
    sidecar = with_agent(stage, "--demo")
    with socket.create_connection(("127.0.0.1", sidecar.port), timeout=60) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        client.recv(100)
        began = time.monotonic()
        code = sidecar.stop()
    stage.expect(code == 0, "exit code 0")
    stage.say(f"after {time.monotonic() - began:.1f} s")


@AREA.row("200 clients that send half a request")
def slowloris(stage: Stage) -> None:
    sidecar = with_agent(stage)
    count = sidecar.threads()
    clients = []
    for _ in range(200):
        client = socket.create_connection(("127.0.0.1", sidecar.port), timeout=60)
        with suppress(OSError):
            client.sendall(b"GET /metrics HTTP/1.1\r\nHo")
        clients.append(client)
    stage.expect(sidecar.threads() == count, "no extra thread")
    # At most 64 are served; those that do not finish are thrown out after 5 s.
    stage.recovers(lambda: answers(sidecar) and whole(sidecar, 0))
    for client in clients:
        client.close()
    name = 'jaxmon_dropped_total{what="connection"}'
    stage.expect(sidecar.page().get(name, 0) > 0, "refused ones counted")


def answers(sidecar: Sidecar) -> bool:
    try:
        sidecar.page()
    except (OSError, ssl.SSLError, Unexpected):
        return False
    return True


# --- its web configuration ------------------------------------------------------

# The password is "secret"; the cheapest hash there is.
SECRET = "Basic Z3Vlc3Q6c2VjcmV0"  # noqa: S105 - of this row only


def refused(sidecar: Sidecar) -> bool:
    try:
        sidecar.page()
    except HTTPError as error:
        error.close()
        return error.code == 401
    return False


@AREA.row("its web configuration breaks, then is fixed", quick=True)
def web_config(stage: Stage) -> None:
    bcrypt = pytest.importorskip("bcrypt")
    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    config = stage.directory / "web.yml"
    right = f'basic_auth_users:\n  guest: "{hashed}"\n'
    config.write_text(right)
    good(stage, 0)
    environ = clean_environ(stage.run_dir)
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", MAIN, "exporter", "--host", "127.0.0.1"),
            *("--port", "0", "--disable", "nvml", "--web-config", str(config)),
        ],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    sidecar = Sidecar(process)
    stage.later(sidecar.stop)
    stage.sidecars.append(sidecar)
    stage.expect(refused(sidecar), "401 without password")
    for wrong, what in (
        ("basic_auth_users: [", "is not YAML"),
        ("unknown_key: 1\n", "has an unknown key"),
        ("", "is empty"),
    ):
        config.write_text(wrong)
        os.utime(config, (time.time() + 5, time.time() + 5))
        time.sleep(1.5)  # longer than the configuration may be out of date
        stage.expect(refused(sidecar), f"still 401 when it {what}")
    stage.shows(
        lambda: any("web.yml" in line and "line 1" in line for line in sidecar.log),
        "the log names the location of the error",
    )
    stage.expect(not sidecar.says("unknown_key"), "the log quotes nothing")
    config.write_text(right)
    stage.recovers(
        lambda: (
            refused(sidecar)
            and success(sidecar.page(Authorization=SECRET), "agents") == 1
        )
    )
