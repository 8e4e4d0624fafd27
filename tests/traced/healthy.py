"""Code that looks like a mistake, but is none: what `step` contains."""

from __future__ import annotations


HEALTHY = {
    "pure": """
        def step(x):
            '''print(x)'''
            y = jnp.dot(x, x)
            return {"y": y, "time": x.shape[0]}
        """,
    "jax.random": """
        from jax import random
        def step(x):
            key = random.PRNGKey(0)
            return x + random.normal(key, x.shape) + random.uniform(key)
        """,
    "statements that do something": """
        import optax
        def step(x, state):
            state.apply_gradients([x])
            state.restore(**{"x": x})
            jnp.set_printoptions(precision=3)
            jax.debug.print("{}", x)
            jnp.broadcast_shapes(x.shape, (1,))
            state.update(x)
            jax.block_until_ready(x)
            log.info("step")
            x = optax.apply_updates(x, x)
            return x
        """,
    "counters of traces, and names": """
        class Layers:
            def __init__(self): self.count, self.depth = 0, 0
            def name(self):
                self.count += 1
                return f"layer{self.count}"
            def step(self, x):
                global count
                count += 1
                self.depth += 1
                name = self.name()
                y = x * self.depth
                self.depth -= 1
                total = 0
                for one in (1, 2):
                    total += one
                return {name: y * total}
        step = Layers().step
        """,
    "messages about tracing and shapes": """
        def step(x):
            print("tracing step for", x)
            log.info("compiling for %s", x)
            begin = time.time()
            y = jnp.dot(x, x)
            log.debug("traced in %.1f s", time.time() - begin)
            print(x.shape, x.dtype, len(x), type(x))
            log.info(f"step {x.shape=} {x.ndim}")
            for name, value in seen.items():
                print(name)
            assert x.ndim == 1, f"{x} is no vector"
            if x.shape[0] == 0:
                raise ValueError(f"{x} is empty")
            return y
        """,
    "callbacks": """
        def host(x):
            print(x)
            losses.append(x)
            return np.random.normal(size=x.shape)
        def step(x):
            jax.debug.print("x = {}", x)
            jax.debug.callback(host, x)
            jax.debug.callback(lambda y: losses.append(time.time() + y), x)
            def inner(y):
                print(y)
                return np.float32(time.time())
            t = jax.pure_callback(inner, jax.ShapeDtypeStruct((), jnp.float32), x)
            return x + t
        """,
    "local containers": """
        def step(x):
            kept, found = [], {}
            for at in range(3):
                kept.append(x * at)
                found[at] = x
            def inner(y):
                kept.append(y)
                return y
            inner(x)
            class Box: pass
            box = Box()
            box.x = x
            return jnp.stack(kept)
        """,
    "restored": """
        def step(x):
            before = state.loss
            state.loss = x
            recent.append(x)
            y = jnp.tanh(state.loss)
            recent.pop()
            state.loss = before
            return y
        """,
    "updates that are used": """
        def step(x):
            x = x.at[0].set(1.0)
            y, z = x.at[1].add(2.0), x.at[0].get()
            found = {}
            found.setdefault("a", x)
            return y.at[2].set(z)
        """,
    "a time that no result depends on": """
        def step(x):
            begin = time.time()
            y = jnp.dot(x, x)
            state.seconds = time.time() - begin
            log.info("building")
            return y
        """,
    "what stands beside a traced value": """
        def layer(x, name):
            return jnp.tanh(x), name
        def step(x):
            y, name = layer(x, "first")
            print(name)
            losses.append(name)
            found = {"x": x, "name": name}
            print(found["name"])
            pair = x, "second"
            log.info(pair[1])
            a, b = pair
            log.info("%s", b)
            for name in ["a", x]:
                print(name)
            print(found.get("name"))
            named = [(name, one) for one in (x, y)]
            print(named[0][0])
            losses.append(jax.tree.leaves(found)[1])
            names = [*pair, name]
            losses.append(names[1])
            state.sizes = [1, x.ndim]
            return y
        """,
    "the same names for other things": """
        class time:
            time = staticmethod(lambda: 3.0)
        def print(x): return x
        class Random:
            def random(self): return 4
        rng = Random()
        def step(x):
            print(x)
            return x + time.time() + rng.random()
        """,
    "concrete": """
        def step(x):
            with jax.ensure_compile_time_eval():
                table = jnp.sin(np.arange(3.0))
                losses.append(table)
                print(table)
            return x * table
        """,
    "what does not run": """
        def report(x):
            print(x, time.time())
        def step(x):
            other = report
            fixed = np.random.default_rng(0).normal(size=3)
            more = np.random.RandomState(1).rand(3)
            np.random.seed(0)
            if DEBUG:
                print(x)
                losses.append(x)
            if not VERBOSE or x.ndim > 7:
                x = x + np.random.normal()
            if x.ndim:
                return x + fixed + more
            print(x)
            return x + time.time()
        """,
    "what a decided condition ends": """
        def step(x):
            if VERBOSE:
                if x.ndim:
                    return x
            print(x)
            if not DEBUG:
                return x * 2
            return x + time.time()
        """,
    "what is local or a name": """
        ids = iter(range(10))
        def step(params, x):
            global count
            count += 1
            losses.append(1)
            seen[x.shape] = count
            state.loss = x.shape
            total = 0
            def add(y):
                nonlocal total
                total = total + y
            add(x)
            for name in params:
                log.info(name)
            name = f"layer{next(ids)}-{uuid.uuid4()}"
            with jax.named_scope(name):
                return total * 2
        """,
    "callbacks within control flow": """
        def tell(x): log.info("%s", x)
        def step(x, i):
            show = lambda: jax.debug.print("step {}", i)
            lax.cond(i % 100 == 0, show, lambda: None)
            lax.fori_loop(0, 3, lambda n, _: jax.debug.callback(tell, n), None)
            jax.lax.map(lambda row: jax.debug.print("{}", row), x)
            return x * 2
        """,
}
