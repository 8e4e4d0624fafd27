"""An embedding service: threads of an HTTP server put texts on a queue, one device thread batches them into padded length buckets; answers are kept in a bounded LRU cache.
All buckets are compiled before the port opens; eight client threads repeat popular texts; the server shuts down cleanly at the end.
"""
import time
T0 = time.perf_counter()
import collections
import concurrent.futures
import http.server
import json
import queue
import threading
import urllib.request
import jax
import jax.numpy as jnp
import numpy as np

BUCKETS, BATCH, D, N, CACHE = (32, 64, 128), 8, 384, 900, 64
ks = jax.random.split(jax.random.key(0), 3)
params = {"emb": jax.random.normal(ks[0], (256, D)), "w1": jax.random.normal(ks[1], (6, D, 4 * D)) * 0.05, "w2": jax.random.normal(ks[2], (6, 4 * D, D)) * 0.02}


@jax.jit
def embed(params, ids):
    mask = (ids > 0)[..., None]

    def layer(x, w):
        return x + jax.nn.gelu(x @ w[0]) @ w[1], None
    x, _ = jax.lax.scan(layer, params["emb"][ids], (params["w1"], params["w2"]))
    x = (x * mask).sum(1) / jnp.maximum(mask.sum(1), 1)
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


inbox, cache, cache_lock, hits = queue.Queue(), collections.OrderedDict(), threading.Lock(), [0]


def device_loop():
    while (first := inbox.get()) is not None:
        batch = [first]
        while len(batch) < BATCH:
            try:
                batch.append(inbox.get(timeout=0.002))     # a short, deliberate wait
            except queue.Empty:
                break
            if batch[-1] is None:
                inbox.put(batch.pop())
                break
        length = next(b for b in BUCKETS if b >= max(len(t) for t, _ in batch))
        ids = np.zeros((BATCH, length), np.int32)
        for i, (text, _) in enumerate(batch):
            ids[i, :len(text)] = list(text)
        out = np.asarray(embed(params, ids))
        for i, (_, future) in enumerate(batch):
            future.set_result(out[i])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        with cache_lock:
            vector = cache.get(text)
            if vector is not None:
                cache.move_to_end(text)
                hits[0] += 1
        if vector is None:
            future = concurrent.futures.Future()
            inbox.put((text, future))
            vector = future.result(timeout=30)
            with cache_lock:
                cache[text] = vector
                while len(cache) > CACHE:
                    cache.popitem(last=False)
        body = json.dumps({"head": [round(float(v), 4) for v in vector[:4]]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


jax.block_until_ready([embed(params, np.zeros((BATCH, n), np.int32)) for n in BUCKETS])     # warm-up
device = threading.Thread(target=device_loop, name="device")
device.start()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
acceptor = threading.Thread(target=server.serve_forever, name="acceptor")
acceptor.start()


def client(i):
    which = int(np.random.default_rng(i).zipf(1.25)) % 3000
    text = b"how do I serve model %d " % which * (1 + which % 4)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}", data=text[:128]) as r:
        return json.load(r)["head"][0]


with concurrent.futures.ThreadPoolExecutor(8, "client") as clients:
    answers = list(clients.map(client, range(N)))
server.shutdown()
acceptor.join()
server.server_close()
inbox.put(None)
device.join()
print(f"{len(answers)} answers, some from the cache: {hits[0] > 0}, checksum {sum(answers):.2f}")
print(json.dumps({"wall": time.perf_counter() - T0}))
