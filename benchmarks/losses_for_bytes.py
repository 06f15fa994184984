"""What a small decoder learns in as many steps by methods that send less, and what each sends.

Eight devices train the decoder on the sources of Python's library, from the same parameters with
the same batches. `--write` records the losses on held-out text, which lesson 06 draws.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks import Row
from jaxpar.course.losses import FILE, Losses, to_toml
from jaxpar.inspector.compiled import compile_program
from jaxpar.inspector.program import inspect_compiled
from jaxpar.mesh import make_mesh, simulate_devices, vary
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel.compress import (
    powersgd_all_reduce,
    quantized_all_reduce,
    sign_all_reduce,
    top_k_all_reduce,
)
from jaxpar.parallel.local import diloco_round, local_sgd_round, one_peer_average
from jaxpar.train.text import batches, read_library

AXIS, DEVICES = "dp", 8
SETTINGS = Settings(layers=2, d_model=64, heads=4, sequence=32)
BATCH, SEED = 32, 0
CALL = 24  # steps in a call of a compiled program
STEPS, LONG, EVERY = 480, 1920, 96
BLOCK, FRACTION, RANK = 256, 0.01, 4
ADAM = optax.adamw(2e-3, b2=0.99)

State = Any
Loss = Callable[[Array, Array], Array]
Exchange = Callable[[Array, Any], tuple[Array, Any]]


class Method(NamedTuple):
    """A way to train, as one device does it; all that it returns may vary over the axis.

    Attributes:
        name: what it is.
        first: the state before the first step, from the parameters.
        advance: the parameters and the state after as many steps as there are batches.
        steps: how many steps it takes in all.
        every: after how many steps its loss is taken, again and again.
    """

    name: str
    first: Callable[[Array], State]
    advance: Callable[[Loss, Array, State, Array], tuple[Array, State]]
    steps: int = STEPS
    every: int = STEPS


def by_gradients(name: str, exchange: Exchange, memory: Callable[[Array], Any]) -> Method:
    """Steps of Adam with gradients that `exchange` averages; `memory` is what it first keeps."""

    def advance(loss: Loss, w: Array, state: State, tokens: Array) -> tuple[Array, State]:
        def step(carry: Any, batch: Array) -> tuple[Any, None]:
            w, adam, kept = carry
            mean, kept = exchange(jax.grad(loss)(w, batch), kept)
            updates, adam = ADAM.update(mean, adam, w)
            return varying((optax.apply_updates(w, updates), adam, kept)), None

        (w, *state), _ = lax.scan(step, (w, *state), tokens)
        return w, state

    return Method(name, lambda w: [ADAM.init(w), memory(w)], advance)


def in_rounds(
    name: str, local: int, outer: optax.GradientTransformation | None, *steps: int
) -> Method:
    """Rounds of so many local steps of Adam, and of one step of `outer`, or an average."""

    def advance(loss: Loss, w: Array, state: State, tokens: Array) -> tuple[Array, State]:
        def one_round(carry: Any, batch: Array) -> tuple[Any, None]:
            w, adam, momentum = carry
            if outer:
                _, *carry = diloco_round(loss, w, adam, momentum, batch, ADAM, outer, axis=AXIS)
            else:
                _, w, adam = local_sgd_round(loss, w, adam, batch, ADAM, axis=AXIS)
                carry = w, adam, momentum
            return varying(tuple(carry)), None

        (w, *state), _ = lax.scan(
            one_round, (w, *state), tokens.reshape(-1, local, *tokens.shape[1:])
        )
        return w, state

    first = lambda w: [ADAM.init(w), outer.init(w) if outer else ()]  # noqa: E731
    return Method(name, first, advance, *steps)


def by_gossip(name: str, average: Callable[[Array, int], Array]) -> Method:
    """Steps of Adam by each device; after each, `average` mixes it with others, by the step."""
    distances = DEVICES.bit_length() - 1

    def advance(loss: Loss, w: Array, state: State, tokens: Array) -> tuple[Array, State]:
        def some_steps(carry: Any, some: Array) -> tuple[Any, None]:
            for number, batch in enumerate(some):
                w, adam = carry
                updates, adam = ADAM.update(jax.grad(loss)(w, batch), adam, w)
                moved: Any = optax.apply_updates(w, updates)
                carry = average(moved, number), adam
            return carry, None

        return lax.scan(some_steps, (w, state), tokens.reshape(-1, distances, *tokens.shape[1:]))[0]

    return Method(name, ADAM.init, advance)


def with_both_neighbours(w: Array) -> Array:
    """The mean of a device's array and of those before and behind it on the ring."""
    arrived = [
        lax.ppermute(w, AXIS, [(i, (i + way) % DEVICES) for i in range(DEVICES)]) for way in (1, -1)
    ]
    return (w + arrived[0] + arrived[1]) / 3


def methods(parts: Callable[[Array], Any]) -> Iterator[Method]:
    """All that are compared; `parts` gives the arrays of the parameters that one vector holds."""
    yield by_gradients("data parallel", lambda g, kept: (lax.pmean(g, AXIS), kept), lambda w: ())
    coded = {
        "int8": partial(quantized_all_reduce, bits=8),
        "int4": partial(quantized_all_reduce, bits=4),
        "signs": sign_all_reduce,
    }
    for name, function in coded.items():
        all_reduce = partial(function, axis=AXIS, block=BLOCK)
        yield from with_and_without(name, all_reduce, lambda w: (0 * w, 0 * w[: len(w) // DEVICES]))
    largest = partial(top_k_all_reduce, axis=AXIS)
    yield from with_and_without(
        "top 1%", lambda g, error: largest(g, error, k=round(FRACTION * len(g))), lambda w: (0 * w,)
    )
    yield by_gradients(f"PowerSGD, rank {RANK}, feedback", *low_rank(parts))
    nesterov = partial(optax.sgd, nesterov=True)
    for local in (8, 24):
        yield in_rounds(f"local SGD, {local} steps", local, None)
        yield in_rounds(f"DiLoCo, {local} steps", local, nesterov(0.7, momentum=0.9))
    yield in_rounds("DiLoCo, 8 steps, momentum .5", 8, nesterov(0.7, momentum=0.5))
    yield in_rounds("DiLoCo, 8 steps, rate .4", 8, nesterov(0.4, momentum=0.9))
    yield in_rounds("DiLoCo, 8 steps, rate 1, momentum .5", 8, nesterov(1.0, momentum=0.5))
    yield by_gossip("one peer", lambda w, step: one_peer_average(w, axis=AXIS, step=step))
    yield by_gossip("both neighbours", lambda w, step: with_both_neighbours(w))
    for local in (8, 24):
        yield in_rounds(f"local SGD, {local} steps, long", local, None, LONG, EVERY)
    for momentum, name in ((0.9, ""), (0.5, ", momentum .5")):
        outer = nesterov(0.7, momentum=momentum)
        yield in_rounds(f"DiLoCo, 8 steps{name}, long", 8, outer, LONG, EVERY)


def with_and_without(name: str, all_reduce: Any, zeros: Callable[[Array], Any]) -> Iterator[Method]:
    """A compressed all-reduce that feeds its errors back, and one that forgets them."""

    def remembers(gradient: Array, errors: Any) -> tuple[Array, Any]:
        mean, *errors = all_reduce(gradient, *errors)
        return mean, tuple(errors)

    def forgets(gradient: Array, errors: Any) -> tuple[Array, Any]:
        return all_reduce(gradient, *errors)[0], errors

    yield by_gradients(f"{name}, feedback", remembers, zeros)
    yield by_gradients(f"{name}, no feedback", forgets, zeros)


def low_rank(parts: Callable[[Array], Any]) -> tuple[Exchange, Callable[[Array], Any]]:
    """PowerSGD of each matrix, and a mean of what is no matrix; then what it keeps at first."""

    def exchange(gradient: Array, kept: Any) -> tuple[Array, Any]:
        leaves, structure = jax.tree.flatten(parts(gradient))
        means, new = [], []
        for leaf, pair in zip(leaves, kept, strict=True):
            mean, left = lax.pmean(leaf, AXIS), pair
            if pair:
                mean, *left = all_layers(leaf, *pair)
            means.append(mean)
            new.append(tuple(left))
        flat = ravel_pytree(structure.unflatten(means))[0]
        return jnp.pad(flat, (0, len(gradient) - len(flat))), new

    def all_layers(matrices: Array, q: Array, error: Array) -> tuple[Array, Array, Array]:
        one = partial(powersgd_all_reduce, axis=AXIS)
        return jax.vmap(one)(matrices, q, error) if matrices.ndim > 2 else one(matrices, q, error)

    def first(w: Array) -> Any:
        found = []
        for leaf in jax.tree.leaves(parts(w)):
            shape = (*leaf.shape[:-2], leaf.shape[-1], RANK)
            q = jax.random.normal(jax.random.key(SEED), shape)
            # Norms are stacked over layers, too: vectors, of which each layer has one.
            matrix = leaf.ndim > 1 and min(leaf.shape[-2:]) > 2 * RANK
            found.append((q, jnp.zeros_like(leaf)) if matrix else ())
        return found

    return exchange, first


def varying(tree: Any) -> Any:
    """The same values, typed as what may differ between the devices."""
    return jax.tree.map(lambda leaf: vary(leaf, [AXIS]), tree)


class Trial:
    """A decoder, its text, and what is held out of it."""

    def __init__(self, settings: Settings = SETTINGS) -> None:
        params = init(settings, jax.random.key(SEED))
        flat, unravel = ravel_pytree(params)
        full = DEVICES * BLOCK
        self.parameters = len(flat)
        self.start = jnp.pad(flat, (0, -len(flat) % full))
        self.parts: Callable[[Array], Any] = lambda w: unravel(w[: len(flat)])
        self.mesh = make_mesh({AXIS: DEVICES})
        of_decoder = loss_fn(settings)
        self.loss: Loss = lambda w, tokens: of_decoder(self.parts(w), tokens)
        text = read_library()
        last = len(text) // 10
        self._read = partial(batches, batch=BATCH, sequence=settings.sequence, seed=SEED)
        self.text = text[:-last]
        held_out = self._read(text[-last:], NamedSharding(self.mesh, P()))
        self.held_out = np.concatenate([np.asarray(next(held_out)) for _ in range(16)])
        self.whole_loss = jax.jit(self.loss)

    def batches(self) -> Iterator[np.ndarray]:
        """The batches of a call, [step, example, byte]."""
        by_examples = NamedSharding(self.mesh, P(AXIS))
        endless = self._read(self.text, by_examples)
        while True:
            yield np.stack([np.asarray(next(endless)) for _ in range(CALL)])

    def run(self, method: Method) -> Losses:
        """Trains by a method."""
        rows = P(AXIS)

        def advance(w: Array, state: State, tokens: Array) -> tuple[Array, State]:
            w, state = jax.tree.map(lambda leaf: leaf[0], (w, state))
            after = method.advance(self.loss, w, state, tokens)
            return jax.tree.map(lambda leaf: leaf[None], after)

        def first(w: Array) -> tuple[Array, State]:
            own = varying((w, method.first(w)))
            return jax.tree.map(lambda leaf: leaf[None], own)

        shard = partial(jax.shard_map, mesh=self.mesh)
        w, state = jax.jit(shard(first, in_specs=P(), out_specs=rows))(self.start)
        takes = (rows, rows, P(None, AXIS))
        program = jax.jit(shard(advance, in_specs=takes, out_specs=(rows, rows)))
        tokens, losses, sent = self.batches(), {}, 0.0
        for step in range(CALL, method.steps + 1, CALL):
            batch = next(tokens)
            if step == CALL:
                lowered = program.lower(w, state, batch)
                compiled = compile_program(lowered, optimize=True)
                sent = sum(inspect_compiled(lowered, compiled).wire_bytes_by_axis().values())
            w, state = compiled.executable(w, state, batch)
            if step % method.every == 0:
                losses[step] = float(self.whole_loss(jax.device_get(w).mean(axis=0), self.held_out))
        return Losses(method.name, sent / CALL, [*losses], [*losses.values()])


def measured() -> Iterator[Losses]:
    """What every method sends and learns."""
    trial = Trial()
    for method in methods(trial.parts):
        yield trial.run(method)


def rows() -> list[Row]:
    """The loss that each method reaches."""
    simulate_devices(DEVICES)
    return described(list(measured()))


def described(found: Sequence[Losses]) -> list[Row]:
    """A row for each method, with its bytes beside those of the first."""
    whole = found[0].bytes_per_step
    return [
        Row(
            f"{one.method}: loss after {one.steps[-1]:,} steps, bytes in a step, of data parallel",
            "reported",
            f"{one.losses[-1]:.2f}, {one.bytes_per_step:,.0f}, {one.bytes_per_step / whole:.3f}",
        )
        for one in found
    ]


if __name__ == "__main__":
    simulate_devices(DEVICES)
    taken = []
    for one in measured():
        taken.append(one)
        print(one.method, f"{one.bytes_per_step:,.0f}", f"{one.losses[-1]:.3f}", sep=" | ")
    if "--write" in sys.argv:
        FILE.write_text(to_toml(taken), "utf-8")
