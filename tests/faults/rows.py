"""All rows of the fault matrix."""

from tests.faults import agents, dcgm, directory, gpus, nccl, programs, service, tpus


ALL = (
    *gpus.AREA.rows,
    *dcgm.AREA.rows,
    *tpus.AREA.rows,
    *nccl.AREA.rows,
    *agents.AREA.rows,
    *directory.AREA.rows,
    *programs.AREA.rows,
    *service.HOST.rows,
    *service.AREA.rows,
)
