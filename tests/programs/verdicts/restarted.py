"""
Programs that end and are started again, as attempts of one run, by one mistake each.

Each process is an attempt; only the last ends by itself, and is judged. What they share
is in the directory of the run's record: a checkpoint, and how often the run began.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import jaxmon
from tests.programs.verdicts.harness import batch, more, step, weights


_PAUSE = 0.02


class Run:
    """
    A run of so many *attempts*.

    Attributes:
        attempt: number of this one, from 1.
        last: whether it is to end by itself.
    """

    def __init__(self, attempts: int) -> None:
        self._directory = Path(os.environ["JAXMON_RUN_STATE"])
        self._directory.mkdir(exist_ok=True)
        starts = self._directory / "starts"
        with starts.open("a") as file:
            file.write("started\n")
        self.attempt = len(starts.read_text().splitlines())
        self.last = self.attempt == attempts

    def restore(self, seconds: float = 0.0) -> tuple[Any, int]:
        """Return the state of the latest checkpoint, which takes so many *seconds*."""
        with jaxmon.activity("restore"):
            time.sleep(seconds)
            try:
                found = np.load(self._directory / "checkpoint.npz")
            except FileNotFoundError:
                return weights, 0
            return found["state"], int(found["step"])

    def save(self, state: Any, number: int, seconds: float = 0.0) -> None:
        """Save a checkpoint, which takes so many *seconds*."""
        with jaxmon.activity("checkpoint"):
            time.sleep(seconds)
            part = self._directory / "part.npz"
            np.savez(part, state=np.asarray(state), step=number)
            part.replace(self._directory / "checkpoint.npz")

    def numbers(self, done: int) -> Iterator[int]:
        """Yield the numbers of steps after *done*, in the last attempt for a while."""
        while more() or not self.last:
            done += 1
            yield done

    def killed(self) -> None:
        """End without a word, unless this is the last attempt."""
        if not self.last:
            os.kill(os.getpid(), signal.SIGKILL)


def pause() -> None:
    """Let the time of a longer step go by."""
    with jaxmon.activity("pause"):
        time.sleep(_PAUSE)


def lost_steps() -> None:
    run = Run(4)
    state, done = run.restore()
    for number in jaxmon.steps(run.numbers(done), start=done):
        state, loss = step(state, batch)
        loss.block_until_ready()
        if number == 600 + run.attempt:
            run.killed()
        if number == 1000:
            run.save(state, number)  # too late


def damaged_checkpoint() -> None:
    run = Run(2)
    state, done = (weights, 0) if run.last else run.restore()
    for number in jaxmon.steps(run.numbers(done), start=done):
        state, loss = step(state, batch)
        loss.block_until_ready()
        if number % 50 == 0:
            run.save(state, number)
        if number == 1200:
            run.killed()
        if number == 900 and run.last:
            return


def slow_restore() -> None:
    train_until_killed(3, restores=2.0)


def frequent_saves() -> None:
    train_until_killed(3, every=5, saves=0.1, steps=51)


def slow_scheduler() -> None:
    train_until_killed(2, every=10, steps=150)


def train_until_killed(
    attempts: int,
    *,
    restores: float = 0.0,
    every: int = 1,
    saves: float = 0.0,
    steps: int = 50,
) -> None:
    """
    Train in so many *attempts*, each killed after so many *steps*.

    Args:
        attempts: how many there are.
        restores: seconds that it takes to restore a checkpoint.
        every: after how many steps one is saved.
        saves: seconds that this takes.
        steps: that an attempt does.
    """
    run = Run(attempts)
    state, done = run.restore(restores)
    for number in jaxmon.steps(run.numbers(done), start=done):
        state, _ = step(state, batch)
        pause()
        if number % every == 0:
            run.save(state, number, saves)
        if number == done + steps:
            run.killed()


def same_bad_batch() -> None:
    run = Run(5)
    state, done = run.restore()
    for number in jaxmon.steps(run.numbers(done), start=done):
        state, _ = step(state, batch)
        pause()
        if number == 10:
            run.save(state, number)
        if number == 20:
            msg = "the batch is damaged"
            raise ValueError(msg)
        if number == 15 and run.last:
            return


# --- Healthy -------------------------------------------------------------------------


def preempted() -> None:
    run = Run(3)
    state, done = run.restore()
    for number in jaxmon.steps(run.numbers(done), start=done):
        state, _ = step(state, batch)
        pause()
        if number % 100 == 0:
            run.save(state, number)
        if number == done + 101 and not run.last:
            run.save(state, number)
            sys.exit("preempted")


def epoch_by_epoch() -> None:
    state = weights
    while more():
        for _ in jaxmon.steps(range(20), start=0):
            state, _ = step(state, batch)
            pause()
