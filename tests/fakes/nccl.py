"""
NCCL's RAS for tests: jobs, what RAS says of them in both formats, and its port.

Written from NVIDIA's source, not from replies of a real job:

- the protocol: ``rasClientEventLoop`` in ``src/ras/client_support.cc`` and
  ``src/ras/client.cc`` of NCCL 2.24.3 to 2.30.7, which all have protocol 2;
- JSON: ``rasDumpCommsToJSON`` and the ``json…`` functions in ``client_support.cc`` of
  2.28.7, the first that has it; 2.29.2 adds a comma that was missing before the status
  of missing ranks, and 2.30.7 is the same as that;
- text: ``rasClientRunInit`` and ``rasClientRunComms`` there, of 2.28.9, with the
  communicators after one with missing ranks read right, as since 2.29.2; and of 2.24.3
  if *old*.

Both were compared with what these functions of 2.28.9 print when compiled.
"""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field


KINDS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
_LEVELS = ("NOCOMM", "INIT", "RUNNING", "FINALIZE", "ABORT")
_FAULTS = {"MISMATCH": 1, "ERROR": 2, "INCOMPLETE": 4}
_MOST_NAMED, _OUTLIERS = 10, 0.25
_INPUT = 1024
# The format is optional.
_ORDER = (
    ("CLIENT PROTOCOL 2",),
    ("TIMEOUT ",),
    ("SET FORMAT json", "STATUS"),
    ("STATUS",),
)
_TITLE = "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"


@dataclass
class Member:
    """
    A rank of a communicator.

    Args:
        counts: collectives launched, by kind.
        trouble: ``unresponsive``, ``dead``, or ``left`` the communicator.
    """

    rank: int
    host: str
    pid: int
    device: int
    counts: list[int] = field(default_factory=lambda: [0, 0, 7, 7, 40])
    init: int = 0
    error: int = 0
    finalize: bool = False
    abort: bool = False
    trouble: str = ""

    @property
    def level(self) -> int:
        if self.abort:
            return 4
        if self.finalize:
            return 3
        return 2 if self.init == 0 else 1

    @property
    def where(self) -> str:
        return f"GPU {self.device} managed by process {self.pid} on node {self.host}"


@dataclass
class Communicator:
    """Ranks that communicate; *number* makes its hashes."""

    number: int
    members: list[Member]

    @property
    def there(self) -> list[Member]:
        return [one for one in self.members if not one.trouble]

    @property
    def missing(self) -> list[Member]:
        return [one for one in self.members if one.trouble]

    @property
    def lost(self) -> list[Member]:
        return [one for one in self.missing if one.trouble != "left"]

    @property
    def levels(self) -> set[int]:
        left = len(self.missing) > len(self.lost)
        return {one.level for one in self.there} | ({0} if left else set())

    @property
    def errors(self) -> str:
        there = self.there
        mismatch = len(self.levels) > 1 or any(
            one.counts != there[0].counts for one in there
        )
        failed = any({one.init, one.error} - {0, 7} for one in there)
        found = [("INCOMPLETE", self.lost), ("ERROR", failed), ("MISMATCH", mismatch)]
        return ",".join(name for name, here in found if here) or "OK"


@dataclass
class Job:
    """A job of processes with one GPU each."""

    communicators: list[Communicator]
    version: str = "2.28.9"
    timeouts: int = 0

    def every(self) -> list[Member]:
        return [one for each in self.communicators for one in each.members]

    def processes(self) -> dict[tuple[str, int], str]:
        """Return what is the matter with each process, if anything."""
        return {
            (one.host, one.pid): one.trouble.replace("left", "") for one in self.every()
        }

    def by_trouble(self, trouble: str) -> list[tuple[str, int]]:
        return [each for each, one in self.processes().items() if one == trouble]


def job(nodes: int, per_node: int, communicators: int = 1, first: int = 1) -> Job:
    """Return a healthy job, each of whose *communicators* has all its ranks."""
    return Job(
        [
            Communicator(
                number,
                [
                    Member(
                        rank,
                        f"127.0.{first + rank // per_node}.1",
                        4000 + rank,
                        rank % per_node,
                    )
                    for rank in range(nodes * per_node)
                ],
            )
            for number in range(communicators)
        ]
    )


def as_json(job: Job) -> str:
    """Return what RAS says of *job* in JSON."""
    communicators = ",\n".join(
        _json_communicator(one, job.version) for one in job.communicators
    )
    return (
        "{\n"
        f'  "nccl_version": "{job.version}",\n'
        '  "cuda_runtime_version": 12080,\n'
        '  "cuda_driver_version": 13000,\n'
        '  "timestamp": "2026-11-27 02:00:00",\n'
        f'  "communicators_count": {len(job.communicators)},\n'
        '  "communicators": [\n'
        f"{communicators}\n"
        "  ],\n"
        '  "ras": {\n'
        '    "collection_time_sec": 0.250,\n'
        f'    "timeouts_count": {job.timeouts}\n'
        "  }\n"
        "}\n"
    )


def _json_communicator(one: Communicator, version: str) -> str:
    there = ",\n".join(_json_member(member) for member in one.there)
    missing = ",\n".join(_json_missing(member, version) for member in one.missing)
    number = one.number
    return (
        "    {\n"
        f'      "hash": "{0xAE94423CFBB2EF4A + number:#x}",\n'
        f'      "secondary_hash": "{0xB7E7 + number:#x}:{0xB824 + number:#x}",\n'
        f'      "size": {len(one.members)},\n'
        f'      "ranks_count": {len(one.there)},\n'
        f'      "missing_ranks_count": {len(one.missing)},\n'
        f'      "ranks": [\n{there}\n      ],\n'
        f'      "missing_ranks": [\n{missing}\n      ]\n'
        "    }"
    )


def _json_identity(one: Member) -> str:
    return (
        "        {\n"
        f'          "rank": {one.rank},\n'
        f'          "host": "{one.host}",\n'
        f'          "pid": {one.pid},\n'
        f'          "cuda_dev": {one.device},\n'
        f'          "nvml_dev": {one.device},\n'
        '          "status": {\n'
    )


def _json_member(one: Member) -> str:
    counts = ",\n".join(
        f'            "{kind}": {count}'
        for kind, count in zip(KINDS, one.counts, strict=True)
    )
    finalize, abort = str(one.finalize).lower(), str(one.abort).lower()
    return (
        f"{_json_identity(one)}"
        f'            "init_state": {one.init},\n'
        f'            "async_error": {one.error},\n'
        f'            "finalize_called": {finalize},\n'
        '            "destroy_flag": false,\n'
        f'            "abort_flag": {abort}\n'
        "          },\n"
        f'          "collective_counts": {{\n{counts}\n          }}\n'
        "        }"
    )


def _json_missing(one: Member, version: str) -> str:
    unresponsive = str(one.trouble != "left").lower()
    dead = str(one.trouble == "dead").lower()
    identity = _json_identity(one)
    if version.startswith("2.28."):
        place = f'"nvml_dev": {one.device}'
        identity = identity.replace(f"{place},", place)
    return (
        f"{identity}"
        f'            "unresponsive": {unresponsive},\n'
        f'            "considered_dead": {dead}\n'
        "          }\n"
        "        }"
    )


def as_text(job: Job, *, old: bool = False) -> str:
    """Return what RAS says of *job* as text; *old* is that of NCCL 2.24."""
    groups = _grouped(job)
    return "".join(
        [
            f"NCCL version {job.version} compiled with CUDA 12.8\n",
            "CUDA runtime version 12080, driver version 13000\n\n",
            f"Job summary\n===========\n\n{_summary(job)}",
            "\nCommunicators... (0.25s)\n" if old else "\nCommunicators... (0.250s)\n",
            "=============\n\n",
            _TITLE,
            "    #  in group  per comm  per node  per comm  in group\n",
            *(_row(index, group, old=old) for index, group in enumerate(groups)),
            f"\nErrors\n======\n\n{_errors(job, groups, old=old)}",
            f"Warnings\n========\n\n{_warnings(job, groups, old=old)}",
        ]
    )


def _grouped(job: Job) -> list[list[Communicator]]:
    groups: dict[tuple[int, ...], list[Communicator]] = {}
    for one in job.communicators:
        nodes = len({member.host for member in one.there})
        errors = sum(bit for name, bit in _FAULTS.items() if name in one.errors)
        key = (len(one.members), nodes, max(one.levels), errors)
        groups.setdefault(key, []).append(one)
    return [groups[key] for key in sorted(groups, reverse=True)]


def _summary(job: Job) -> str:
    processes = job.processes()
    per_node = Counter(host for host, _ in processes)
    gpus = len({(one.host, one.pid, one.device) for one in job.every()})
    alike = set(per_node.values())
    if len(alike) == 1:
        return (
            "  Nodes  Processes         GPUs  Processes     GPUs\n"
            "(total)   per node  per process    (total)  (total)\n"
            f"{len(per_node):7}  {alike.pop():9}  {1:11}  {len(processes):9}"
            f"  {gpus:7}\n"
        )
    rows = "".join(
        f"{nodes:7}  {number:9}  {1:11}\n"
        for number, nodes in Counter(per_node.values()).most_common()
    )
    return (
        "  Nodes  Processes         GPUs\n"
        f"          per node  per process\n{rows}"
        "\n"
        "  Nodes  Processes         GPUs\n"
        "(total)    (total)      (total)\n"
        f"{len(per_node):7}  {len(processes):9}  {gpus:11}\n"
        f"{_odd_nodes(processes, per_node)}"
    )


def _odd_nodes(processes: dict[tuple[str, int], str], per_node: Counter[str]) -> str:
    found = []
    for number, nodes in Counter(per_node.values()).most_common()[1:]:
        if _outlier(nodes, len(per_node)):
            found.append(f"\nThe outlier node{_s(nodes)}:\n")
            for host in (host for host, count in per_node.items() if count == number):
                pids = ",".join(str(pid) for where, pid in processes if where == host)
                found.append(f"  Node {host} running process{_s(number, '', 'es')} ")
                found.append(f"{pids}\n")
    return "".join(found)


def _row(index: int, group: list[Communicator], *, old: bool) -> str:
    per_node = [
        count
        for one in group
        for count in Counter(member.host for member in one.there).values()
    ]
    spread = "-".join(map(str, sorted({min(per_node), max(per_node)})))
    nodes = len({member.host for member in group[0].there})
    gpus = {(one.host, one.pid) for each in group for one in each.there}
    state = _LEVELS[max(group[0].levels)]
    if old and state == "NOCOMM":
        state = "UNKNOWN"
    return (
        f"{index:5}  {len(group):8}  {nodes:8}  {spread:>8}  "
        f"{len(group[0].members):8}  {len(gpus):8}  {state:>8}  {group[0].errors:>6}\n"
    )


def _s(count: int, one: str = "", several: str = "s") -> str:
    return several if count > 1 else one


def _outlier(count: int, total: int | None = None) -> bool:
    few = count <= _MOST_NAMED and (total is None or count <= total * _OUTLIERS)
    return count == 1 or few


def _errors(job: Job, groups: list[list[Communicator]], *, old: bool) -> str:
    found = []
    unresponsive, dead = job.by_trouble("unresponsive"), job.by_trouble("dead")
    if count := len(unresponsive):
        found.append(
            f"INCOMPLETE\n  Missing communicator data from {count} job process"
            f"{_s(count, '', 'es')}\n"
        )
        found += [*_listed(job, unresponsive), "\n"]
    if count := len(dead):
        are = _s(count, " is", "es are")
        found.append(
            "DEAD\n"
            f"  {count} job process{are} considered dead (unreachable via the RAS "
            "network)\n"
        )
        found += [*_listed(job, dead), "\n"]
    for name, one in _named(groups):
        if "INCOMPLETE" in one.errors:
            count = len(one.lost)
            found.append(
                f"{name} INCOMPLETE\n"
                f"  Missing communicator data from {count} rank{_s(count)}\n"
            )
            if _outlier(count) and old:
                ranks = ",".join(str(member.rank) for member in one.lost)
                found.append(f"  The missing rank{_s(count)}: {ranks}\n")
            elif _outlier(count):
                found += [f"  Rank {each.rank} -- {each.where}\n" for each in one.lost]
            found.append("\n")
        if "ERROR" in one.errors:
            failed = [member for member in one.there if member.error not in (0, 7)]
            found.append(f"{name} ERROR\n")
            found.append(
                f"  Asynchronous error{_s(len(failed))} on {len(failed)} "
                f"rank{_s(len(failed))}\n"
            )
            found += [
                f"  Rank {each.rank} reported System error -- {each.where}\n"
                for each in failed
            ]
            found.append("\n")
    return "".join(found)


def _listed(job: Job, processes: list[tuple[str, int]]) -> list[str]:
    if not _outlier(len(processes)):
        return []
    gpus = {(one.host, one.pid): one.device for one in job.every()}
    return [
        f"  Process {one[1]} on node {one[0]} managing GPU {gpus[one]}\n"
        for one in processes
    ]


def _named(groups: list[list[Communicator]]) -> Iterator[tuple[str, Communicator]]:
    for index, group in enumerate(groups):
        for place, one in enumerate(group):
            yield f"#{index}-{place} ({0xAE94423CFBB2EF4A + one.number:016x})", one


def _warnings(job: Job, groups: list[list[Communicator]], *, old: bool) -> str:
    found = []
    if count := job.timeouts:
        found.append(
            f"TIMEOUT\n  Encountered {count} communication timeout{_s(count)} while "
            "gathering communicator data\n\n"
        )
    for name, one in _named(groups):
        if "MISMATCH" not in one.errors:
            continue
        found.append(f"{name} MISMATCH\n")
        if len(one.levels) > 1:
            found += _states(one)
        if old:
            totals = [(member, sum(member.counts)) for member in one.there]
            found += [*_counts("collective", totals, len(one.members)), "\n"]
            continue
        for place, kind in enumerate(KINDS):
            counts = [(member, member.counts[place]) for member in one.there]
            if lines := _counts(kind, counts, len(one.members)):
                found += [*lines, "\n"]
    return "".join(found)


def _states(one: Communicator) -> list[str]:
    found = ["  Communicator ranks have different status\n"]
    states = Counter(_LEVELS[member.level] for member in one.there)
    if left := len(one.missing) - len(one.lost):
        states["NOCOMM"] = left
    for state, count in states.most_common():
        if count > 1:
            found.append(f"  {count} ranks have status {state}\n")
        if _outlier(count, len(one.members)):
            for member in one.there:
                if _LEVELS[member.level] == state:
                    has = f" has status {state}" if count == 1 else ""
                    found.append(f"  Rank {member.rank}{has} -- {member.where}\n")
    return found


def _counts(kind: str, counts: list[tuple[Member, int]], total: int) -> list[str]:
    groups = Counter(count for _, count in counts)
    if len(groups) < 2:
        return []
    found = [f"  Communicator ranks have different {kind} operation counts\n"]
    for value, ranks in sorted(groups.items(), key=lambda one: (-one[1], -one[0])):
        launched = (
            f"launched up to operation {value}"
            if value
            else "not launched any operations"
        )
        if ranks > 1:
            found.append(f"  {ranks} ranks have {launched}\n")
        if _outlier(ranks, total):
            found += [
                f"  Rank {one.rank} -- {one.where}\n"
                if ranks > 1
                else f"  Rank {one.rank} has {launched} -- {one.where}\n"
                for one, count in counts
                if count == value
            ]
    return found


@dataclass
class Ras:
    """
    The RAS of the processes of a host; may be changed at any time.

    Args:
        job: what it describes.
        speaks_json: NCCL 2.28.7 or later.
        old: NCCL before 2.26, if it does not speak JSON.
        unheard: this many of the next greetings reach a process that is stopped.
        body: returned instead of a description.
        silent: does not return the status.
        commands: of each connection that sent some.
        violations: what a client of NVIDIA would not do.
    """

    job: Job
    speaks_json: bool = True
    old: bool = False
    unheard: int = 0
    body: bytes | None = None
    silent: bool = False
    address: str = ""
    commands: list[list[str]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    @property
    def queries(self) -> int:
        """Number of times that it sent messages through the job."""
        return sum("STATUS" in each for each in self.commands)

    def status(self, *, json: bool) -> bytes:
        if self.body is not None:
            return self.body
        text = as_json(self.job) if json else as_text(self.job, old=self.old)
        return text.encode()


@contextmanager
def ras(job: Job, **options: object) -> Iterator[Ras]:
    """Serve the RAS of *job* at a port of the loopback interface."""
    state = Ras(job, **options)  # type: ignore[arg-type] # as the class says
    over = threading.Event()
    threads: list[threading.Thread] = []

    def start(serve: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=serve, args=arguments)
        threads.append(thread)
        thread.start()

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if over.is_set():
                client.close()
                return
            start(serve, client)

    def serve(client: socket.socket) -> None:
        # The client may have enough at any time.
        with client, suppress(OSError):
            _Connection(state, client, over).run()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = listener.getsockname()
        state.address = f"127.0.0.1:{place[1]}"
        start(accept)
        try:
            yield state
        finally:
            over.set()
            socket.create_connection(place).close()
            for thread in threads:
                thread.join()
    assert state.violations == []


class _Connection:
    """Responds to the commands of one client, one line for each."""

    def __init__(
        self, state: Ras, client: socket.socket, over: threading.Event
    ) -> None:
        self._state = state
        self._client = client
        self._over = over
        self._commands: list[str] = []
        self._json = False

    def run(self) -> None:
        client, state = self._client, self._state
        client.settimeout(0.05)
        received = b""
        while not self._over.is_set():
            try:
                data = client.recv(_INPUT)
            except TimeoutError:
                continue
            if not data:
                return
            if not received and not self._commands:
                if state.unheard:
                    state.unheard -= 1
                    self._over.wait(60)
                    return
                state.commands.append(self._commands)
            received += data
            if len(received) > _INPUT:
                state.violations.append("an endless line")
                return
            while b"\n" in received:
                line, _, received = received.partition(b"\n")
                if not self._respond(line.decode()):
                    return

    def _respond(self, command: str) -> bool:
        """Respond to *command*; return whether more may follow."""
        self._commands.append(command)
        if not any(command.startswith(one) for one in _ORDER[len(self._commands) - 1]):
            self._state.violations.append(command)
        if command.startswith("CLIENT PROTOCOL "):
            return self._send(b"SERVER PROTOCOL 2\n")
        if command.startswith("TIMEOUT "):
            if int(command.removeprefix("TIMEOUT ")) < 1:
                self._state.violations.append("a query without end")
            return self._send(b"OK\n")
        if command == "SET FORMAT json" and self._state.speaks_json:
            self._json = True
            return self._send(b"OK\n")
        if command == "STATUS":
            if self._state.silent:
                self._over.wait(60)
            else:
                self._send(self._state.status(json=self._json))
            return False
        return self._send(f"ERROR: Unknown command {command}\n".encode())

    def _send(self, data: bytes) -> bool:
        """Send *data* in pieces, as they may arrive."""
        self._client.settimeout(60)
        size = max(5, len(data) // 7)
        for start in range(0, len(data), size):
            self._client.sendall(data[start : start + size])
        self._client.settimeout(0.05)
        return True
