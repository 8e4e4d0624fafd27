"""
What NCCL's RAS says of a job in JSON.

Written from NVIDIA's source, not from replies of a real job: ``rasDumpCommsToJSON`` and
the ``json…`` functions in ``src/ras/client_support.cc`` of NCCL 2.28.7, the first that
has it; 2.29.2 adds a comma that was missing before the status of missing ranks, and
2.30.7 is the same as that. Compared with what these functions of 2.28.9 print when
compiled.
"""

from tests.fakes.nccl.jobs import KINDS, Communicator, Job, Member


def as_json(job: Job) -> str:
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
