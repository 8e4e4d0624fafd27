"""How an attempt continues the record of a run."""

from __future__ import annotations

from dataclasses import replace

from jaxmon.agent.goodput.identity import Moment, Run, Writer
from jaxmon.facts.run import KILLED, SCHEMA, UNSEEN, WAITING, RunRecord


# Of a scheduler's number that jumps.
_MOST_UNSEEN = 1_000_000


def begun(  # noqa: PLR0913 - two processes, and the time between
    previous: RunRecord | None,
    run: Run,
    me: Writer,
    *,
    host: str,
    now: Moment,
    age: float,
) -> RunRecord:
    """
    Return the record as process *me* begins to keep it, accounted for up to its start.

    Args:
        previous: as it was found, `None` if there was none.
        run: which run it is.
        me: this process.
        host: its host.
        now: the current moment.
        age: seconds since this process started.
    """
    started = Moment(now.wall - age, now.boottime - age)
    if previous is None:
        unseen = min(run.attempt or 0, _MOST_UNSEEN)
        fresh = RunRecord(
            schema=SCHEMA,
            run=run.name,
            starts=1,
            began=started.wall,
            interruptions={UNSEEN: unseen} if unseen else {},
            fruitless=1,
        )
        return _held(fresh, run, me, host, started)
    if previous.writer == str(me):
        # An agent that was stopped and started again in the same process.
        return replace(previous, ended="")
    gap, until = _gap(previous, me, started)
    ended = dict(previous.interruptions)
    ending = previous.ended or KILLED
    ended[ending] = ended.get(ending, 0) + 1
    if run.attempt is not None and previous.attempt is not None:
        unseen = min(run.attempt - previous.attempt - 1, _MOST_UNSEEN)
        if unseen > 0:
            ended[UNSEEN] = ended.get(UNSEEN, 0) + unseen
    seconds = dict(previous.seconds)
    seconds[WAITING] = seconds.get(WAITING, 0.0) + gap
    new_ground = previous.step >= previous.furthest
    return _held(
        replace(
            previous,
            starts=previous.starts + 1,
            ended="",
            seconds=seconds,
            interruptions=ended,
            owed=previous.owed + (previous.unfinished if new_ground else 0.0),
            unfinished=0.0,
            behind=0,
            down=(previous.down or 0.0) + gap,
            fruitless=previous.fruitless + 1,
        ),
        run,
        me,
        host,
        until,
    )


def supersedes(theirs: RunRecord, mine: RunRecord) -> bool:
    """
    Return whether another process keeps the record from now on: of a later attempt, or,
    if two began at the same moment, one of them.
    """
    if theirs.writer == mine.writer:
        return False
    return (theirs.starts, theirs.writer) > (mine.starts, mine.writer)


def _gap(previous: RunRecord, me: Writer, started: Moment) -> tuple[float, Moment]:
    """
    Return the seconds between the attempts, and the moment up to which all is accounted
    for then. Clocks of the same host are compared by one that cannot be set.
    """
    if previous.boot == me.boot:
        gap = started.boottime - previous.boottime
        if gap < 0:
            # The attempt before took some time to end.
            return 0.0, Moment(started.wall - gap, previous.boottime)
        return gap, started
    return max(started.wall - previous.time, 0.0), started


def _held(
    record: RunRecord, run: Run, me: Writer, host: str, until: Moment
) -> RunRecord:
    return replace(
        record,
        writer=str(me),
        host=host,
        attempt=run.attempt,
        time=until.wall,
        boot=me.boot,
        boottime=until.boottime,
    )
