"""Blocks under a budget: nested, overlapping, in threads and tasks, as decorators."""

import asyncio
import threading
from typing import Any

import jax
import numpy as np
import pytest

import jaxmon
from jaxmon.agent.agent import running


pytestmark = pytest.mark.ground_truth


@pytest.fixture
def double() -> Any:
    return jax.jit(lambda x: x * 2)


def ones(length: int) -> Any:
    """Return an argument that no compile of JAX's own is needed for."""
    return np.ones(length, np.float32)


def test_exception_of_the_block_wins(double: Any) -> None:
    """What leaves the block is not replaced by its cost, nor has that as context."""
    error = LookupError("mine")

    def fail() -> None:
        double(ones(3))
        raise error

    with pytest.raises(LookupError) as caught, jaxmon.budget(compiles=0) as spent:
        fail()
    assert caught.value is error
    assert error.__context__ is None
    assert spent.compiles == 1
    assert running() is None


def test_budgets_nest(double: Any) -> None:
    """An inner block counts in the outer one; the outer is not disturbed by its end."""
    with jaxmon.budget(compiles=2) as outer:
        double(ones(3))
        with jaxmon.budget(compiles=1) as inner:
            double(ones(4))
        assert running() is not None
    assert (outer.compiles, inner.compiles) == (2, 1)
    assert running() is None


def test_overlapping_budgets_share_an_agent(double: Any) -> None:
    """Blocks of two threads need not end in the order in which they began."""
    began, over = threading.Event(), threading.Event()

    def first() -> None:
        with jaxmon.budget():
            began.set()
            over.wait(90)

    thread = threading.Thread(target=first)
    thread.start()
    began.wait(90)
    with jaxmon.budget(compiles=1) as spent:
        over.set()
        thread.join()
        double(ones(3))
    assert spent.compiles == 1
    assert running() is None


def test_threads_of_the_process_count(double: Any) -> None:
    """A compile on another thread is spent as well."""
    with jaxmon.budget(compiles=1) as spent:
        thread = threading.Thread(target=double, args=(ones(3),))
        thread.start()
        thread.join()
    assert spent.compiles == 1


def test_decorated_function_has_a_budget_for_each_call() -> None:
    """Calls are counted one by one, of coroutines as well, while they run."""
    step = jax.jit(lambda x: x * 3)

    @jaxmon.budget(compiles=1)
    def plain(length: int) -> Any:
        return step(ones(length))

    @jaxmon.budget(compiles=0)
    async def later(length: int) -> Any:
        await asyncio.sleep(0)
        return step(ones(length))

    assert plain(3).shape == (3,)
    assert plain(4).shape == (4,)
    assert asyncio.run(later(4)).shape == (4,)
    with pytest.raises(jaxmon.BudgetExceeded):
        asyncio.run(later(5))


def test_one_budget_serves_several_blocks(double: Any) -> None:
    """A budget under a name can be entered again, also within itself."""
    one = jaxmon.budget(compiles=1)
    with one as first:
        double(ones(3))
    with one as second, one as third:
        double(ones(4))
    assert [spent.compiles for spent in (first, second, third)] == [1, 1, 1]


def test_one_budget_serves_several_threads(double: Any) -> None:
    """Blocks of one budget keep their own figures, in whatever order they end."""
    one = jaxmon.budget(compiles=0)
    began, entered, over = threading.Event(), threading.Event(), threading.Event()
    failures: list[str] = []

    def first() -> None:
        try:
            with one:
                began.set()
                entered.wait(90)
                double(ones(3))
        except jaxmon.BudgetExceeded as error:
            failures.append(str(error))
        over.set()

    def second() -> None:
        with one:
            entered.set()
            over.wait(90)
            double(ones(4))

    thread = threading.Thread(target=first)
    thread.start()
    began.wait(90)
    with pytest.raises(jaxmon.BudgetExceeded, match=r"compiles: 2 \(allowed: 0\)"):
        second()
    thread.join()

    assert [text.splitlines()[0] for text in failures] == ["compiles: 1 (allowed: 0)"]


def test_one_budget_serves_several_tasks(double: Any) -> None:
    """Tasks that take turns do not end each other's blocks."""
    one = jaxmon.budget()

    async def main() -> list[int]:
        entered = asyncio.Event()

        async def first() -> int:
            with one as spent:
                await entered.wait()
            return spent.compiles

        async def second() -> int:
            with one as spent:
                entered.set()
                await task
                double(ones(3))
            return spent.compiles

        task = asyncio.create_task(first())
        await asyncio.sleep(0)
        return [await second(), await task]

    assert asyncio.run(main()) == [1, 0]
