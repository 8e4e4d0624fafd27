"""Beam search of a small decoder over a 50k vocabulary, for a validation set of prompts.
"Beam search takes several times longer than greedy decoding, and the profile of the model shows nothing."

Truth: the candidates of each step (8 beams x 16) are read out of JAX arrays one element at a time with float() and int(): each is a slice dispatch and a wait for its transfer, 256 per step.
Advice: fetch both arrays once per step (jax.device_get), or better choose with top_k and keep the whole loop on the device.
"""
import time
T0 = time.perf_counter()
import json
import sys
import jax
import jax.numpy as jnp
import numpy as np

FIXED = "--fixed" in sys.argv
WORDS = (r"host|transfer|device.to|d2h|read|fetch|float\(|int\(|scalar|element|index|slic|sync|op.by.op|eager|dispatch", r"step|loop|idle|wait|block|each|every|times|per |device_get|small|many")
BEAMS, V, D, STEPS, PROMPTS = 8, 50257, 192, 32, 10
ks = jax.random.split(jax.random.key(0), 4)
params = {"emb": jax.random.normal(ks[0], (V, D)), "w": jax.random.normal(ks[1], (2 * D, D)) * 0.06,
          "r": jax.random.normal(ks[2], (D, D)) * 0.07, "out": jax.random.normal(ks[3], (D, V)) * 0.07}


def forward(params, tokens, state, scores):
    x = jnp.concatenate([params["emb"][tokens], state], -1)
    state = jnp.tanh(x @ params["w"] + state @ params["r"])
    best, choice = jax.lax.top_k(scores[:, None] + jax.nn.log_softmax(state @ params["out"]), 2 * BEAMS)
    return best, choice, state


step, reorder = jax.jit(forward), jax.jit(lambda state, beam: state[beam])


@jax.jit
def search(params, tokens, state, scores):
    def body(carry, _):
        best, choice, state = forward(params, *carry)
        scores, flat = jax.lax.top_k(best.ravel(), BEAMS)
        beam, tokens = flat // (2 * BEAMS), choice.ravel()[flat].astype(jnp.int32)
        return (tokens, state[beam], scores), (beam, tokens)
    (_, _, scores), path = jax.lax.scan(body, (tokens, state, scores), None, length=STEPS)
    return scores, path


def beam_search(prompt):
    global lost
    tokens = jnp.full((BEAMS,), prompt, jnp.int32)
    state = jnp.zeros((BEAMS, D))
    scores = jnp.where(jnp.arange(BEAMS) == 0, 0.0, -1e9)
    if FIXED:
        return float(search(params, tokens, state, scores)[0][0])
    for _ in range(STEPS):
        best, choice, state = step(params, tokens, state, scores)
        jax.block_until_ready(state)
        t = time.perf_counter()
        found = []
        for b in range(BEAMS):
            for j in range(2 * BEAMS):
                found.append((float(best[b, j]), b, int(choice[b, j])))  # fault
        lost += time.perf_counter() - t
        found = sorted(found, reverse=True)[:BEAMS]
        scores = np.array([f[0] for f in found], np.float32)
        tokens, state = np.array([f[2] for f in found], np.int32), reorder(state, np.array([f[1] for f in found]))
    return float(scores[0])


lost = 0.0
results = [beam_search(11 * i + 5) for i in range(PROMPTS)]  # fault
print("mean score of the best beams", round(float(np.mean(results)), 3))
print(json.dumps({"wall": time.perf_counter() - T0, "lost": None if FIXED else lost}))
