"""A sweep starts each trial in a process of its own and shares a persistent compilation cache between them, but the later trials start no faster than the first one, and the cache directory stays empty.

Truth: every function of the trial compiles in less than jax_persistent_cache_min_compile_time_secs (someone had raised it to 20 s to keep the directory small), so nothing is ever stored and each trial compiles everything again.
Advice: set jax_persistent_cache_min_compile_time_secs to 0 or so (and the minimal entry size to -1 / 0).
"""
import time
T0 = time.perf_counter()
import json
import subprocess
import sys
import tempfile

FIXED = "--fixed" in sys.argv
WORDS = (r"cache", r"min_compile_time|threshold|empty|miss|not stored|no(t| )? hit|never|below|0 hits|persist", r"compil")
TRIALS = 3


def trial(rate, cache_dir):
    import jax
    import jax.numpy as jnp
    import optax

    jax.config.update("jax_compilation_cache_dir", cache_dir)  # fault
    threshold = 0.0 if FIXED else 20.0  # only the large programs, the directory had grown
    jax.config.update("jax_persistent_cache_min_compile_time_secs", threshold)  # fault

    def network(params, x):
        for w in params:
            x = jnp.tanh(x @ w) + x
        return x.mean(axis=-1)

    tx = optax.inject_hyperparams(optax.adamw)(learning_rate=rate)

    @jax.jit
    def step(params, opt, x, y):
        loss, grads = jax.value_and_grad(lambda p: jnp.mean((network(p, x) - y) ** 2))(params)
        updates, opt = tx.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, loss

    compiling, final = 0.0, []
    for depth in (10, 14, 18):  # the trial compares three depths
        keys = jax.random.split(jax.random.key(depth), depth)
        params = [jax.random.normal(k, (96, 96)) * 0.1 for k in keys]
        opt = tx.init(params)
        x = jax.random.normal(jax.random.key(0), (256, 96))
        y = jnp.sin(x[:, 0])
        t = time.perf_counter()
        params, opt, loss = step(params, opt, x, y)  # fault
        loss.block_until_ready()
        compiling += time.perf_counter() - t
        for _ in range(20):
            params, opt, loss = step(params, opt, x, y)
        final.append(float(loss))
    print(json.dumps({"compiling": compiling, "best": min(final)}))


def main():
    lost = 0.0
    with tempfile.TemporaryDirectory() as cache_dir:
        for number in range(TRIALS):
            rate = 10.0 ** (-2 - number / 2)
            arguments = ["--trial", str(rate), cache_dir] + (["--fixed"] if FIXED else [])
            done = subprocess.run([sys.executable, __file__, *arguments], check=True, capture_output=True, text=True)
            result = json.loads(done.stdout.splitlines()[-1])
            print(f"rate {rate:.5f}: best {result['best']:.4f}, first calls {result['compiling']:.2f} s", flush=True)
            if number:
                lost += result["compiling"]
    print(json.dumps({"wall": round(time.perf_counter() - T0, 3), "lost": round(lost, 3)}))


if "--trial" in sys.argv:
    at = sys.argv.index("--trial")
    trial(float(sys.argv[at + 1]), sys.argv[at + 2])
else:
    main()
