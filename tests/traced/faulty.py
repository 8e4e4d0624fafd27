"""Mistakes: what `step` contains. A comment names the mistake on its line."""

from __future__ import annotations


FAULTY = {
    "time": """
        def step(x):
            return x + time.time()  # frozen
        """,
    "values of the host": """
        def step(x):
            import time as clock
            from random import uniform
            begin = time.perf_counter()  # frozen
            print("took", clock.perf_counter() - begin)  # frozen
            x = x * datetime.datetime.now().hour + dt.now().minute  # frozen
            x = x + clock.time() + uniform(0, 1)  # frozen
            noise = np.random.normal(size=x.shape)  # frozen
            x = x + 0.1 * jnp.asarray(noise, x.dtype)
            x = x * rng.uniform() + draws.random()  # frozen
            mine = default_rng()  # frozen
            x = jax.tree.map(lambda one: one + random.random(), x)  # frozen
            return x + mine.normal(size=3)
        """,
    "choices of the host": """
        def step(x):
            key = jax.random.PRNGKey(random.randint(0, 1 << 30))  # frozen
            x = x + jax.random.normal(key, x.shape)
            seed = int(time.time() * 1000) % 1000  # frozen
            x = x + jax.random.normal(jax.random.key(seed), x.shape)
            if random.random() < 0.5:  # frozen
                x = jnp.flip(x)
            order = np.random.permutation(len(x))  # frozen
            return x[order]
        """,
    "helper": """
        def noise(shape):
            return np.random.normal(size=shape)  # frozen
        def step(x):
            return x + noise(x.shape)
        """,
    "loss": """
        def loss(w, x):
            drop = np.random.binomial(1, 0.5, size=x.shape)  # frozen
            print(w)  # printed
            return jnp.mean(x * drop * w)
        def step(w, x):
            value, grads = jax.value_and_grad(loss)(w, x)
            losses.append(value)  # leaked
            return w - grads
        """,
    "loss by name": """
        def loss(w, x):
            return jnp.mean(x * w) + time.time()  # frozen
        gradient = jax.grad(loss)
        def step(w, x):
            return w - gradient(w, x)
        """,
    "scan": """
        def step(x):
            def body(carry, one):
                print("carry", carry)  # printed
                losses.append(one)  # leaked
                return carry + one, one
            return lax.scan(body, 0.0, x)
        """,
    "checkpoint": """
        def step(x):
            @jax.checkpoint
            def block(y):
                log.info("y = %s", y)  # printed
                return tanh(y)
            return block(x)
        """,
    "messages": """
        def step(x):
            loss = jnp.mean(x)
            print(f"loss: {loss}")  # printed
            logging.warning("loss %s", loss)  # printed
            print("first", x[0], sep=":")  # printed
            with open("/tmp/log", "a") as file:
                file.write(f"{x.sum()}")  # printed
            if VERBOSE:
                print(x)  # printed
            return loss
        """,
    "what a decided condition leaves": """
        def step(x):
            if DEBUG:
                return x
            if not VERBOSE:
                return x * 2
            return x + np.random.normal()  # frozen
        """,
    "containers": """
        def step(x):
            y = x * 2
            seen["y"] = y  # leaked
            recent.append(y)  # leaked
            state.history.append(y.sum())  # leaked
            state.loss = y  # leaked
            return y
        """,
    "parts": """
        def layer(x):
            return jnp.tanh(x), "name"
        def step(x):
            y, name = layer(x)
            print(y)  # printed
            losses.append({"y": y, "name": name})  # leaked
            pair = name, y
            log.info("%s", pair[1])  # printed
            seen[name] = [name] + [y]  # leaked
            return y
        """,
    "counter": """
        def step(x):
            global count
            count += 1  # advanced
            return x / count
        """,
    "counter of an object": """
        class Trainer:
            def __init__(self): self.steps, self.peak = 0, 0.1
            def rate(self):
                return self.peak * min(1.0, self.steps / 100)
            def step(self, x):
                self.steps = self.steps + 1  # advanced
                return x * self.rate()
        trainer = Trainer()
        step = trainer.step
        """,
    "counter of a closure": """
        def make():
            seed = 0
            def step(x):
                nonlocal seed
                seed += 1  # advanced
                return x + jax.random.normal(jax.random.PRNGKey(seed))
            return step
        step = make()
        """,
    "globals": """
        def step(x):
            global count, state
            losses.append(jnp.linalg.norm(x))  # leaked
            count += x.sum()  # leaked
            state = x.sum()  # leaked
            return x
        """,
    "closure": """
        def make():
            kept, total = [], 0
            def step(x):
                nonlocal total
                total = x.sum()  # leaked
                kept.append(total)  # leaked
                return x
            return step
        step = make()
        """,
    "method": """
        class Trainer:
            def __init__(self): self.losses = []
            def step(self, x):
                loss = self.loss(x)
                self.last = loss  # leaked
                self.losses.append(loss)  # leaked
                return x
            def loss(self, x):
                return jnp.mean(x) + 0 * time.time()  # frozen
        trainer = Trainer()
        step = trainer.step
        """,
    "static and class functions": """
        class Noise:
            scale = staticmethod(lambda x: x * 2)
            def __init__(self): self.draw = lambda x: x + np.random.normal()
            @staticmethod
            def add(x, name):
                print(name)
                return x + np.random.normal()  # frozen
        noise = Noise()
        def step(x):
            print(noise.add(x, "x"))  # printed
            return Noise.add(x, "y")
        """,
    "results": """
        import optax
        def clear(x):
            x.at[0].set(0)  # dropped
        def step(x, state, key):
            clear(x)
            x.at[:, 1].add(2.0, mode="drop")  # dropped
            if x.ndim > 1:
                x.at[0].multiply(0)  # dropped
            jnp.clip(x, 0, 1)  # dropped
            optax.apply_updates(x, x)  # dropped
            state.apply_gradients(grads=x)  # dropped
            jax.random.split(key)  # dropped
            x.astype(jnp.float32)  # dropped
            return x * 2
        """,
}
