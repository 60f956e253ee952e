# SPDX-License-Identifier: MIT
"""A small network trained by JAX, and large arrays of changing size beside it. Prints losses and a digest.

The allocator and XLA's deterministic mode are chosen by the environment.
"""
import hashlib

import jax
import jax.numpy as jnp
import numpy

SHAPES = [(784, 2048), (2048, 2048), (2048, 10)]


def forward(weights: "list[jax.Array]", given: jax.Array) -> jax.Array:
    for weight in weights[:-1]:
        given = jnp.tanh(given @ weight)
    return given @ weights[-1]


def loss_of(weights: "list[jax.Array]", given: jax.Array, wanted: jax.Array) -> jax.Array:
    return jnp.mean((forward(weights, given) - wanted) ** 2)


@jax.jit
def step(weights: "list[jax.Array]", given: jax.Array, wanted: jax.Array) -> "tuple[list[jax.Array], jax.Array]":
    loss, slopes = jax.value_and_grad(loss_of)(weights, given, wanted)
    return [w - 0.01 * s for w, s in zip(weights, slopes)], loss


def digest(arrays: "list[jax.Array]") -> str:
    together = hashlib.sha256()
    for array in arrays:
        together.update(numpy.asarray(array).tobytes())
    return together.hexdigest()[:16]


def main() -> None:
    print("platform", jax.default_backend())
    random = numpy.random.default_rng(3)
    weights = [jnp.asarray(random.standard_normal(s, dtype=numpy.float32) / s[0] ** 0.5) for s in SHAPES]
    for turn in range(12):
        given = jnp.asarray(random.standard_normal((4096, 784), dtype=numpy.float32))
        wanted = jnp.asarray(random.standard_normal((4096, 10), dtype=numpy.float32))
        weights, loss = step(weights, given, wanted)
        print(turn, float(loss).hex())
    kept: "list[jax.Array]" = []
    for size in (1 << 20, 5_000_000, 3 << 20, 20_000_000, 9 << 20):
        row = jnp.asarray(random.standard_normal(size, dtype=numpy.float32))
        kept = [*kept[-2:], row * 2 + 1]
        print(size, digest(kept))
    print("weights", digest(weights))


main()
