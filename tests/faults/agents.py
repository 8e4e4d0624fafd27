"""Rows about instrumented processes and the directory of their sockets."""

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from jaxmon.host.http.server import Response, Server
from tests.faults.matrix import Area
from tests.faults.stage import Page, Sidecar, Stage, errors, success
from tests.helpers.adversaries import HOSTILE, harmful
from tests.helpers.processes import ROOT, clean_environ, freeze
from tests.job.ranks import report


AREA = Area("agent")
CALLS = "jaxmon_jit_calls_total"
PAGE = f'# TYPE {CALLS} counter\n{CALLS}{{function="f"}} 7\n'.encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n"

# An agent as a process of its own, to be killed or stopped.
PROCESS = """
import signal, sys
# Before there are threads, which would take the signal.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
from pathlib import Path
from jaxmon.agent.serving import LocalSocket
from jaxmon.host.http.server import Response, Server
server = Server({"/metrics": lambda _: Response(sys.argv[2].encode())})
local = LocalSocket(server, Path(sys.argv[1]), began=0)
local.open()
server.every(0.1, local.check)
server.start()
print(local.path, flush=True)
signal.sigwait([signal.SIGTERM])
local.close()
server.stop()
"""


def path(stage: Stage, worker: int) -> Path:
    return stage.run_dir / f"agent-{worker}.sock"


def good(
    stage: Stage, worker: int = 0, *, page: bytes = PAGE, rank: object = None
) -> Server:
    """Start an agent that does as it should, with this *page* and as this *rank*."""
    document = json.dumps(rank).encode()
    server = Server(
        {
            "/metrics": lambda _: Response(page),
            "/debug/rank": lambda _: Response(document, "application/json"),
        }
    )
    server.listen_unix(path(stage, worker))
    server.start()
    stage.later(server.stop)
    return server


def process(stage: Stage, worker: int) -> subprocess.Popen[str]:
    """Start an agent as a process, which finds its slot itself."""
    found = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(stage.run_dir), PAGE.decode()],
        env=clean_environ(),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        found.kill()
        found.wait()
        assert found.stdout is not None
        found.stdout.close()

    stage.later(end)
    assert found.stdout is not None
    assert found.stdout.readline() == f"{path(stage, worker)}\n"
    return found


def bad(stage: Stage, worker: int, behave: Callable[[socket.socket], None]) -> None:
    """Start an agent that does *behave* with each client."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path(stage, worker)))
    listener.listen(64)

    def client(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(4096)
                behave(connection)
            except OSError:
                pass  # the sidecar had enough of it

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=client, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()

    def end() -> None:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()

    stage.later(end)


def agent_up(page: Page, worker: int) -> float | None:
    return page.get(f'jaxmon_agent_up{{worker="{worker}"}}')


def calls(page: Page, worker: int) -> float | None:
    return page.get(f'{CALLS}{{worker="{worker}",function="f"}}')


def whole(sidecar: Sidecar, *workers: int) -> bool:
    page = sidecar.page()
    return success(page, "agents") == 1 and all(
        agent_up(page, worker) == 1 and calls(page, worker) == 7 for worker in workers
    )


def sidecar_of(stage: Stage, *workers: int, peers: bool = False) -> Sidecar:
    more = ("--peer-access",) if peers else ()
    found = stage.sidecar("--disable", "host", "--disable", "nvml", *more)
    stage.until(lambda: whole(found, *workers), "the agents")
    return found


def misbehaves(
    stage: Stage, reason: str, behave: Callable[[socket.socket], None]
) -> None:
    """Let worker 1 misbehave; worker 0 must not notice."""
    good(stage, 0)
    sidecar = sidecar_of(stage, 0)
    bad(stage, 1, behave)
    stage.shows(lambda: agent_up(sidecar.page(), 1) == 0, "its up 0")
    stage.expect(calls(sidecar.page(), 1) is None, "no series of it")
    stage.expect(whole(sidecar, 0), "the other agent is unaffected")
    stage.expect(
        errors(sidecar.page(), "agents", f"agent_{reason}") >= 1,
        f"agent_{reason} counted",
    )
    path(stage, 1).unlink()
    good(stage, 1)
    stage.recovers(lambda: whole(sidecar, 0, 1))


def answer(body: bytes) -> Callable[[socket.socket], None]:
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    return lambda client: client.sendall(head + body)


@AREA.row("killed and restarted", quick=True)
def killed(stage: Stage) -> None:
    good(stage, 0)
    victim = process(stage, 1)
    sidecar = sidecar_of(stage, 0, 1)
    victim.kill()
    victim.wait()
    stage.shows(lambda: agent_up(sidecar.page(), 1) == 0, "its up 0")
    stage.expect(calls(sidecar.page(), 1) is None, "its series gone")
    stage.expect(whole(sidecar, 0), "the other agent is unaffected")
    process(stage, 1)
    stage.recovers(lambda: whole(sidecar, 0, 1))


@AREA.row("stopped by SIGSTOP")
def stopped(stage: Stage) -> None:
    good(stage, 0)
    victim = process(stage, 1)
    sidecar = sidecar_of(stage, 0, 1)
    freeze(victim.pid)
    stage.shows(lambda: agent_up(sidecar.page(), 1) == 0, "its up 0")
    stage.expect(calls(sidecar.page(), 1) is None, "its series gone")
    stage.expect(whole(sidecar, 0), "the other agent is unaffected")
    stage.expect(
        errors(sidecar.page(), "agents", "agent_timeout") >= 1, "agent_timeout counted"
    )
    victim.send_signal(signal.SIGCONT)
    stage.recovers(lambda: whole(sidecar, 0, 1))


@AREA.row("returns garbage", quick=True)
def garbage(stage: Stage) -> None:
    misbehaves(stage, "page", answer(b"\x00 lorem {ipsum} dolor\n" * 64))


@AREA.row("duplicate series")
def twice(stage: Stage) -> None:
    misbehaves(stage, "page", answer(PAGE + PAGE.splitlines()[-1] + b"\n"))


@AREA.row("series twice, with labels in another order")
def reordered(stage: Stage) -> None:
    lines = b'%s{function="f",b="1"} 1\n%s{b="1",function="f"} 2\n'
    name = CALLS.encode()
    misbehaves(stage, "page", answer(PAGE + lines % (name, name)))


@AREA.row("a histogram whose last bucket is missing")
def no_last_bucket(stage: Stage) -> None:
    name = b"jaxmon_step_seconds"
    lines = b'# TYPE %s histogram\n%s_bucket{le="1.0"} 1\n%s_sum 1\n%s_count 1\n'
    misbehaves(stage, "page", answer(PAGE + lines % ((name,) * 4)))


@AREA.row("x beside our x_total", quick=True)
def beside(stage: Stage) -> None:
    name = CALLS.removesuffix("_total").encode()
    misbehaves(stage, "page", answer(PAGE + b"# TYPE %s gauge\n%s 1\n" % (name, name)))


@AREA.row("a negative counter")
def negative(stage: Stage) -> None:
    good(stage, 0)
    sidecar = sidecar_of(stage, 0)
    bad(stage, 1, answer(PAGE + f'{CALLS}{{function="g"}} -1\n'.encode()))
    stage.shows(lambda: agent_up(sidecar.page(), 1) == 1, "its up 1")
    page = sidecar.page()
    stage.expect(calls(page, 1) == 7, "its other counts")
    stage.expect(f'{CALLS}{{worker="1",function="g"}}' not in page, "not that one")
    stage.expect(page['jaxmon_dropped_total{what="figure"}'] >= 1, "dropped counted")
    stage.expect(whole(sidecar, 0), "the other agent is unaffected")


@AREA.row("absurd ages and counts")
def absurd(stage: Stage) -> None:
    good(stage, 0, rank=report(0, count=2))
    kinds = {"jaxmon_steps_total": "counter", "jaxmon_uptime_seconds": "gauge"}
    lines = f"{CALLS} 1e308\n"
    lines += "".join(f"# TYPE {one} {kinds[one]}\n{one} 1e308\n" for one in kinds)
    good(stage, 1, page=PAGE + lines.encode(), rank=report(1, count=2, age=1e308))
    sidecar = sidecar_of(stage, 0, 1, peers=True)
    page = sidecar.page()
    gone = [f'{one}{{worker="1"}}' for one in (CALLS, *kinds)]
    stage.expect(page.keys().isdisjoint(gone), "none of them; its other counts")
    stage.expect(page['jaxmon_dropped_total{what="figure"}'] >= 3, "dropped counted")
    text = " ".join(job_why(sidecar).split())
    stage.expect("implausible values dropped: age_seconds" in text, "job why says so")
    stage.expect("HUNG for 1 min: 2 ranks" in text, "and judges by the others")


@AREA.row("a later release, with a newer schema")
def later_release(stage: Stage) -> None:
    good(stage, 0, rank=report(0, count=2))
    page = PAGE + b"# TYPE jaxmon_of_next_year gauge\njaxmon_of_next_year 3\n"
    good(stage, 1, page=page, rank={**report(1, count=2), "schema": 2})
    sidecar = sidecar_of(stage, 0, 1, peers=True)
    series = 'jaxmon_of_next_year{worker="1"}'
    stage.expect(sidecar.page()[series] == 3, "metrics passed on, new ones too")
    said = "worker 1: its schema is 2; this jaxmon reads up to 1: upgrade it"
    text = " ".join(job_why(sidecar).split())
    stage.expect(said in text, "job why does not guess: upgrade it")


@AREA.row("escape sequences, HTML and Markdown in labels", quick=True)
def hostile_labels(stage: Stage) -> None:
    text = f"{HOSTILE}<img src=//evil/x>![x](//evil/x)|".encode("utf-8", "replace")
    label = text.replace(b"\r\n", b"\\n").replace(b"\n", b"\\n")
    good(stage, 0)
    page = PAGE + b'%s{function="%s"} 3\n' % (CALLS.encode(), label)
    rank = report(1, count=2, function=text.decode(), place=text.decode())
    good(stage, 1, page=page, rank=rank)
    sidecar = sidecar_of(stage, 0, 1, peers=True)
    shown = sidecar.get()
    stage.expect("//evil/x" in shown, "exported")
    printable = all(line.isprintable() for line in shown.split("\n"))
    stage.expect(printable, "no control characters in the page")
    stage.expect("<img" not in sidecar.get("/"), "no tag in its web page")
    why = job_why(sidecar)
    stage.expect("//evil/x" in why and not harmful(why), "job why prints text only")


def job_why(sidecar: Sidecar) -> str:
    """Return the verdict on the job of this host, whose peers may be read."""
    target = f"127.0.0.1:{sidecar.port}"
    done = subprocess.run(
        [sys.executable, "-m", "jaxmon", "job", "why", "--targets", target],
        cwd=ROOT,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.stdout + done.stderr


@AREA.row("a metric that only the sidecar may export")
def forged(stage: Stage) -> None:
    name = b"jaxmon_collector_success"
    misbehaves(stage, "page", answer(b"# TYPE %s gauge\n%s 1\n" % (name, name)))


@AREA.row("endless response")
def huge(stage: Stage) -> None:
    def flood(client: socket.socket) -> None:
        client.sendall(HEAD + b"\r\n")
        while True:
            client.sendall(b"# nothing\n" * 100_000)

    misbehaves(stage, "too_large", flood)
    (sidecar,) = stage.sidecars
    megabytes = sidecar.resident_bytes() >> 20
    stage.expect(megabytes < 80, "resident memory below 80 MB")


@AREA.row("slow response, byte by byte")
def drip(stage: Stage) -> None:
    def slowly(client: socket.socket) -> None:
        for byte in HEAD * 1000:
            client.sendall(bytes([byte]))
            time.sleep(0.05)

    misbehaves(stage, "timeout", slowly)


@AREA.row("truncated response")
def half(stage: Stage) -> None:
    head = HEAD + b"Content-Length: 100000\r\n\r\n"
    misbehaves(stage, "broken", lambda client: client.sendall(head + PAGE))


@AREA.row("not HTTP at all")
def not_http(stage: Stage) -> None:
    misbehaves(stage, "broken", lambda client: client.sendall(b"\x16\x03\x01" * 99))


@AREA.row("an error page (500)")
def error_page(stage: Stage) -> None:
    text = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    misbehaves(stage, "broken", lambda client: client.sendall(text))
