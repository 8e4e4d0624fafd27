"""
A server of one of four kinds, which keeps its own books of who waited for a compile.

    python batching_servers.py KIND WORKERS

``direct``: requests compile themselves, on the event loop. ``task``: an
`asyncio.Queue`, a batcher task and `asyncio.to_thread`. ``thread``: a `queue.Queue` and
a batcher thread, with padded batches. ``deque``: a batcher thread with a queue of its
own, which names the requests with `jaxmon.batch`. Requests come by HTTP, from clients
that know nothing.

Several workers are processes, as those of uvicorn and gunicorn are: each has its agent
and its own compiles. Prints what the books and the agents say of each request, as JSON.
"""

import asyncio
import collections
import json
import os
import queue
import sys
import threading
import time
import urllib.request
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import uvicorn

import jaxmon
from jaxmon.catalog import STARTS
from jaxmon.indicators.recorder import recorder


PAD = 4
CLOSE = 0.02  # between a clock of the books and the event itself


@jax.jit
def model(x):
    for _ in range(24):
        x = jnp.sin(x @ x.T) @ x
    return x.sum(axis=1)


class Item:
    def __init__(self, number, width):
        self.number, self.width = number, width
        self.put = self.taken = self.ended = None
        self.began = time.perf_counter()
        self.request = self.said = None
        self.future: Any = None
        self.loop: Any = None


class Books:
    """Calls of the model with a new shape, and the items in each."""

    def __init__(self):
        self.items, self.shapes, self.compiles = [], set(), []
        self.compiling = threading.Event()

    def run(self, items, rows):
        """Compute *items*, padded to *rows*."""
        width = items[0].width
        new = (rows, width) not in self.shapes
        began = time.perf_counter()
        if new:
            self.compiling.set()
        out = np.asarray(model(np.ones((rows, width), np.float32)))
        if new:
            self.shapes.add((rows, width))
            self.compiles.append(
                (began, time.perf_counter(), {i.number for i in items})
            )
        return out

    def truth(self, item):
        """Return the start of *item*, `None` if it is too close to call."""
        waited = (item.put or item.began, item.taken or item.ended)
        near = False
        if any(item.number in riders for _, _, riders in self.compiles):
            return "cold"
        for began, ended, _ in self.compiles:
            if waited[0] < ended - CLOSE and waited[1] > began + CLOSE:
                return "delayed"
            if waited[0] < ended and waited[1] > began:
                near = True
        return None if near else "warm"


books = Books()


class Direct:
    async def start(self): ...

    async def serve(self, item):
        await asyncio.sleep(0.1)  # others begin meanwhile
        books.run([item], 1)

    async def stop(self): ...

    def truth_of(self, item):
        """The loop stands still: whoever is in progress waits."""
        item.put, item.taken = item.began, item.ended
        return books.truth(item)


class Task:
    async def start(self):
        self.queue: asyncio.Queue[Item] = asyncio.Queue()
        self.task = asyncio.create_task(self.loop())

    async def loop(self):
        while True:
            items = [await self.queue.get()]
            items[0].taken = time.perf_counter()
            while len(items) < PAD:
                try:
                    one = await asyncio.wait_for(self.queue.get(), 0.01)
                except TimeoutError:
                    break
                one.taken = time.perf_counter()
                items.append(one)
            width = max(i.width for i in items)
            items[0].width = width
            await asyncio.to_thread(books.run, items, len(items))
            for one in items:
                one.future.set_result(None)

    async def serve(self, item):
        item.future = asyncio.get_running_loop().create_future()
        item.put = time.perf_counter()
        await self.queue.put(item)
        await item.future

    async def stop(self):
        self.task.cancel()

    def truth_of(self, item):
        return books.truth(item)


class Thread:
    async def start(self):
        self.queue: queue.Queue[Item | None] = queue.Queue()
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def take(self):
        items = [self.queue.get()]
        if items[0] is None:
            return None
        items[0].taken = time.perf_counter()
        while len(items) < PAD:
            try:
                one = self.queue.get(timeout=0.01)
            except queue.Empty:
                break
            if one is None:
                self.queue.put(None)
                break
            one.taken = time.perf_counter()
            items.append(one)
        return items

    def loop(self):
        while (items := self.take()) is not None:
            items[0].width = max(i.width for i in items)
            with jaxmon.batch("all", size=len(items), capacity=PAD):
                books.run(items, PAD)
            for one in items:
                one.loop.call_soon_threadsafe(one.future.set_result, None)

    async def serve(self, item):
        item.loop = asyncio.get_running_loop()
        item.future = item.loop.create_future()
        item.put = time.perf_counter()
        self.queue.put(item)
        await item.future

    async def stop(self):
        self.queue.put(None)
        await asyncio.to_thread(self.thread.join)

    def truth_of(self, item):
        return books.truth(item)


class Named(Thread):
    """With a queue that nobody can observe."""

    async def start(self):
        self.items: collections.deque[Item | None] = collections.deque()
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self.loop)
        self.thread.start()

    def loop(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.items)
                taken = [self.items.popleft()]
                while self.items and len(taken) < PAD:
                    taken.append(self.items.popleft())
            items = [one for one in taken if one is not None]
            if not items:
                return
            for one in items:
                one.taken = time.perf_counter()
            items[0].width = max(i.width for i in items)
            mine = [i.request for i in items]
            with jaxmon.batch("all", size=len(items), capacity=PAD, requests=mine):
                books.run(items, PAD)
            for one in items:
                one.loop.call_soon_threadsafe(one.future.set_result, None)

    async def serve(self, item):
        item.loop = asyncio.get_running_loop()
        item.future = item.loop.create_future()
        item.put = time.perf_counter()
        with self.changed:
            self.items.append(item)
            self.changed.notify()
        await item.future

    async def stop(self):
        with self.changed:
            self.items.append(None)
            self.changed.notify()
        await asyncio.to_thread(self.thread.join)


KINDS: dict[str, Any] = {
    "direct": Direct,
    "task": Task,
    "thread": Thread,
    "deque": Named,
}


def counts():
    """Return the requests that the agent has counted, by start."""
    figures = recorder()
    assert figures is not None
    of = figures.routes.of("predict").counts
    return {start: of["success", start] for start in STARTS}


def application(kind):
    server = KINDS[kind]()

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                if message["type"] == "lifespan.startup":
                    await server.start()
                else:
                    await server.stop()
                await send({"type": message["type"] + ".complete"})
                if message["type"] == "lifespan.shutdown":
                    return
        number, width = map(int, scope["path"].strip("/").split("/"))
        item = Item(number, width)
        books.items.append(item)
        with jaxmon.request("predict") as item.request:
            await server.serve(item)
            before = counts()
        item.ended = time.perf_counter()
        # Requests end on this thread alone.
        item.said = next(start for start, n in counts().items() if n > before[start])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return server, app


def clients(port, wait):
    """Ask for known and new shapes, alone and while the server compiles."""
    numbers = iter(range(1000))

    def ask(number, width):
        url = f"http://127.0.0.1:{port}/{number}/{width}"
        urllib.request.urlopen(url, timeout=120).read()

    def at_once(*widths):
        started = [
            threading.Thread(target=ask, args=(next(numbers), width))
            for width in widths
        ]
        for one in started:
            one.start()
        return started

    for width in range(40, 43):
        # While it reads its input, or while its batch compiles.
        waiting = at_once(width)
        if wait:
            books.compiling.wait(60)
        waiting += at_once(*[width] * 9)
        for one in waiting:
            one.join()
        books.compiling.clear()
        for _ in range(3):
            for one in at_once(width, width):
                one.join()
            books.compiling.clear()


def main(kind):
    jaxmon.instrument()
    server, app = application(kind)
    config = uvicorn.Config(app, port=0, log_level="critical", lifespan="on")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    clients(port, wait=kind != "direct")
    running.should_exit = True
    thread.join()
    jaxmon.uninstrument()
    return [(server.truth_of(item), item.said) for item in books.items]


if __name__ == "__main__":
    kind, workers = sys.argv[1], int(sys.argv[2])
    pipes = [os.pipe() for _ in range(workers)]
    for _, writing in pipes:
        if not os.fork():
            os.write(writing, json.dumps(main(kind)).encode())
            os._exit(0)
        os.close(writing)
    said = []
    for reading, _ in pipes:
        with os.fdopen(reading) as pipe:
            said += json.loads(pipe.read())
    print(json.dumps(said))
