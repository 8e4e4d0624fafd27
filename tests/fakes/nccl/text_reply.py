"""
What NCCL's RAS says of a job as text.

Written from NVIDIA's source: ``rasClientRunInit`` and ``rasClientRunComms`` in
``src/ras/client_support.cc`` of NCCL 2.28.9, with the communicators after one with
missing ranks read right, as since 2.29.2; and of 2.24.3 if *old*. Compared with what
these functions of 2.28.9 print when compiled.
"""

from collections import Counter
from collections.abc import Iterator

from tests.fakes.nccl.jobs import KINDS, LEVELS, Communicator, Job, Member


_FAULTS = {"MISMATCH": 1, "ERROR": 2, "INCOMPLETE": 4}
_MOST_NAMED, _OUTLIERS = 10, 0.25
_TITLE = "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"


def as_text(job: Job, *, old: bool = False) -> str:
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
    state = LEVELS[max(group[0].levels)]
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
    states = Counter(LEVELS[member.level] for member in one.there)
    if left := len(one.missing) - len(one.lost):
        states["NOCOMM"] = left
    for state, count in states.most_common():
        if count > 1:
            found.append(f"  {count} ranks have status {state}\n")
        if _outlier(count, len(one.members)):
            for member in one.there:
                if LEVELS[member.level] == state:
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
