"""Streaming filter bank by overlap-save: blocks of a signal from a source, state carried from block to block, one compiled function; structure as in the block convolvers of DSP libraries."""
import time
T0 = time.perf_counter()
import json

import jax
import jax.numpy as jnp
import numpy as np

BLOCK, TAPS, BANDS = 16_384, 2_048, 24


def filter_bank():
    n = np.arange(TAPS) - TAPS / 2
    edges = np.geomspace(0.002, 0.4, BANDS + 1)
    low = lambda f: 2 * f * np.sinc(2 * f * n)
    return np.stack([(low(b) - low(a)) * np.hanning(TAPS) for a, b in zip(edges, edges[1:])]).astype(np.float32)


@jax.jit
def process(spectra, state, block):
    window = jnp.concatenate([state["tail"], block])
    filtered = jnp.fft.irfft(jnp.fft.rfft(window) * spectra, n=BLOCK + TAPS)[:, TAPS:]
    power = jnp.mean(filtered**2, axis=-1)
    level = 0.9 * state["level"] + 0.1 * power
    gate = jax.nn.sigmoid((power - level) / (level + 1e-9) * 8)
    return {"tail": window[-TAPS:], "level": level}, (gate[:, None] * filtered).sum(0), 10 * jnp.log10(power + 1e-12)


def microphone(blocks):
    rng = np.random.default_rng(0)
    phase = 0.0
    for n in range(blocks):
        steps = 2 * np.pi * (0.01 + 0.1 * (n % 10) / 10) * np.ones(BLOCK)
        yield (np.sin(phase + np.cumsum(steps)) + 0.1 * rng.standard_normal(BLOCK)).astype(np.float32)
        phase += steps.sum()


def main():
    spectra = jnp.fft.rfft(filter_bank(), n=BLOCK + TAPS)
    state = {"tail": jnp.zeros(TAPS), "level": jnp.zeros(BANDS)}
    energy, loudest = 0.0, []
    for block in microphone(400):
        state, sound, decibels = process(spectra, state, block)
        sound, decibels = jax.device_get((sound, decibels))  # goes to the loudspeaker
        energy += float(np.dot(sound, sound))
        loudest.append(int(decibels.argmax()))
    print("energy", round(energy, 1), "bands", np.bincount(loudest, minlength=BANDS).tolist())
    print(json.dumps({"wall": time.perf_counter() - T0, "lost": 0.0}))


main()
