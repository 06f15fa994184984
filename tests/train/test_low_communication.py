"""Runs that send less over dp train, agree with what one device computes, and send few bytes."""

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from jax.sharding import PartitionSpec as P

from jaxpar.collectives.leaves import LeafLayouts
from jaxpar.cost.compress import BLOCK, compressed_bytes
from jaxpar.mesh import make_mesh
from jaxpar.model import init, loss_fn
from jaxpar.parallel.remat import scan_layers
from jaxpar.train.compression import (
    Group,
    exchange,
    first_kept,
    groups_of,
    kept_specs,
    parse_compression,
)
from jaxpar.train.recipe import make_recipe
from jaxpar.train.rounds import OUTERS
from jaxpar.train.setup import technique_of
from jaxpar.train.text import batches
from tests.train.runs import (
    BATCH,
    GENTLE,
    PARAMETERS,
    SETTINGS,
    assert_sends_what_was_predicted,
    assert_trains_as_one_device,
    license_text,
    trained,
)

MIXES = [
    ("dp=4,tp=2", {"sequence_parallel": True}),
    ("pp=2,dp=2,tp=2", {"microbatches": 2}),
    ("dp=2,fsdp=2", {"zero": 3}),
    ("dp=2,cp=2", {"precision": "bf16", "clip": 1.0}),
]
ROUNDS = [
    ("dp=4,tp=2", {"sequence_parallel": True}),
    ("pp=2,dp=2", {"microbatches": 2}),
    ("dp=2,fsdp=2", {"zero": 3, "microbatches": 2}),
    ("dp=2,cp=2", {}),
]


def sent_over_dp(run: Any) -> float:
    return sum(size for axes, size in run.report.wire_bytes_by_axis().items() if "dp" in axes)


def groups(recipe: Any) -> tuple[Group, ...]:
    words = recipe.compression or parse_compression("int8")
    shapes = jax.eval_shape(lambda key: init(SETTINGS, key), jax.random.key(0))
    technique = technique_of(SETTINGS, recipe)
    return groups_of(shapes, technique.layouts, make_mesh(recipe.layout.mesh_sizes).shape, words)


@pytest.mark.parametrize(
    ("compress", "loses"), [("int8", 1e-3), ("int4", 1e-2), ("sign", 0.3), ("powersgd=1", 0.05)]
)
def test_losses_are_near_those_of_one_device(compress: str, loses: float) -> None:
    """With SGD, which shows a wrong scale."""
    recipe = make_recipe("dp=4", batch=BATCH, optimizer="sgd", compress=compress)
    expected = trained(make_recipe("dp=1", batch=BATCH, optimizer="sgd"))
    taken = trained(recipe)
    assert taken.losses == pytest.approx(expected.losses, rel=loses)
    assert taken.losses[-1] < taken.losses[0]


def test_all_numbers_are_those_of_one_device() -> None:
    """Where the largest are all that there are, nothing is lost."""
    assert_trains_as_one_device(make_recipe("dp=4,tp=2", compress="topk=1.0"), steps=3)


@pytest.mark.full
@pytest.mark.parametrize("compress", ["int8", "int4", "sign", "topk=0.05", "powersgd=1"])
@pytest.mark.parametrize(("mesh", "options"), MIXES, ids=[mesh for mesh, _ in MIXES])
def test_a_mix_sends_what_the_formulas_say(
    mesh: str, options: dict[str, Any], compress: str
) -> None:
    recipe = make_recipe(mesh, batch=BATCH, compress=compress, **options)
    taken = trained(recipe, steps=4)
    assert np.isfinite(taken.losses).all()
    assert taken.losses[-1] < taken.losses[0]
    n, scheme = recipe.layout.dp, compress.partition("=")[0]
    expected = 2 * (n - 1) / n * 4  # the loss
    for group in groups(recipe):
        size = group.numbers if scheme in ("topk", "powersgd") else group.padded
        k = max(1, round(0.05 * size))
        layers, rows, columns = group.matrices or (1, 1, size)
        how = "fp32" if scheme == "powersgd" and not group.matrices else scheme
        sizes = {"block": BLOCK, "k": k, "rank": 1}
        expected += layers * compressed_bytes(rows, columns, n, scheme=how, **sizes)
    assert sent_over_dp(taken.run) == pytest.approx(expected)


def test_what_tp_replicates_stays_equal() -> None:
    """Each number is rounded with those that the same axes split."""
    recipe = make_recipe("dp=2,tp=2", batch=BATCH, compress="int4")
    found = groups(recipe)
    assert {group.axes for group in found} == {("tp",), ()}
    run = trained(recipe, steps=1).run
    *_, last = itertools.islice(run.steps, 2)
    for leaf in jax.tree.leaves(last.params):
        by_index: dict[str, list[np.ndarray]] = {}
        for shard in leaf.addressable_shards:
            by_index.setdefault(str(shard.index), []).append(np.asarray(shard.data))
        for same in by_index.values():
            for other in same[1:]:
                np.testing.assert_array_equal(same[0], other)


@jax.jit
def gradient_of_one_device(params: Any, examples: jax.Array) -> tuple[jax.Array, Any]:
    loss = loss_fn(SETTINGS, lambda layer, x, layers: scan_layers(layer, x, layers))
    return jax.value_and_grad(loss)(params, examples)


def mean_of(changes: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *changes)


class InFewBits:
    """The mean of changes that are rounded to integers up to `largest` in blocks, then rounded.

    Attributes:
        errors: what each replica lost when it rounded its own change.
        second: what was lost when the mean was rounded.
        feedback: whether what is lost is added the next time.
    """

    def __init__(self, largest: int, replicas: int, *, feedback: bool):
        whole = replicas * BLOCK
        self.largest, self.feedback = largest, feedback
        self.padding = -PARAMETERS % whole
        self.second = np.zeros(PARAMETERS + self.padding, np.float32)
        self.errors = [self.second] * replicas

    def __call__(self, changes: list[Any]) -> Any:
        sent = []
        for number, change in enumerate(changes):
            flat, unravel = ravel_pytree(change)
            rounded, lost = self.rounded(np.pad(flat, (0, self.padding)) + self.errors[number])
            sent.append(rounded)
            self.errors[number] = lost * self.feedback
        rounded, lost = self.rounded(np.mean(sent, axis=0) + self.second)
        self.second = lost * self.feedback
        return unravel(rounded[:PARAMETERS])

    def rounded(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The numbers that are sent, and what they miss."""
        blocks = x.reshape(-1, BLOCK)
        scales = np.abs(blocks).max(axis=1, keepdims=True) / self.largest
        rounded = (np.round(blocks / np.where(scales == 0, 1, scales)) * scales).ravel()
        return rounded, x - rounded


def on_one_device(
    outer: str,
    steps: int,
    rounds: int,
    replicas: int,
    average: Callable[[list], Any] = mean_of,
    rate: float = GENTLE["sgd"],
) -> tuple[list, Any]:
    """The losses of rounds over the license, and the parameters after, one replica after another.

    `average` is the mean of what the replicas have changed.
    """
    sgd, by = optax.sgd(rate), OUTERS[outer]
    params = init(SETTINGS, jax.random.key(3))
    whole = jax.NamedSharding(make_mesh("dp=1"), jax.P())
    text = batches(
        license_text(), whole, batch=steps * BATCH, sequence=SETTINGS.sequence, seed=3, name=""
    )
    outer_state, losses = by.init(params) if by else None, []
    for batch in itertools.islice(text, rounds):
        changes, of_round = [], []
        for own in batch.reshape(replicas, steps, -1, batch.shape[1]):
            here, state = params, sgd.init(params)
            for examples in own:
                value, gradients = gradient_of_one_device(here, examples)
                updates, state = sgd.update(gradients, state, here)
                here = optax.apply_updates(here, updates)
                of_round.append(value)
            changes.append(jax.tree.map(jnp.subtract, params, here))
        change = average(changes)
        updates = jax.tree.map(jnp.negative, change)
        if by:
            updates, outer_state = by.update(change, outer_state, params)
        params = optax.apply_updates(params, updates)
        losses.append(float(np.mean(of_round)))
    return losses, params


@pytest.mark.parametrize("outer", ["average", "nesterov"])
def test_a_round_is_that_of_replicas_one_after_the_other(outer: str) -> None:
    recipe = make_recipe("dp=4", batch=BATCH, optimizer="sgd", sync_every=3, outer=outer)
    expected, _ = on_one_device(outer, steps=3, rounds=3, replicas=4)
    taken = trained(recipe, steps=3, text=license_text())
    assert taken.losses == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("outer", [pytest.param("average", marks=pytest.mark.full), "nesterov"])
def test_compressed_rounds_are_those_of_replicas_that_round(outer: str) -> None:
    """Parameters and errors too, but for the few numbers that are rounded the other way."""
    rate = 0.01  # a higher one magnifies how sums are rounded
    options = {"sync_every": 3, "outer": outer, "compress": "int4", "learning_rate": rate}
    recipe = make_recipe("dp=4", batch=BATCH, optimizer="sgd", **options)
    taken = trained(recipe, steps=2, text=license_text())
    last = next(taken.run.steps)
    found = {}
    for feedback in (True, False):
        average = InFewBits(7, 4, feedback=feedback)
        losses, params = on_one_device(
            outer, steps=3, rounds=3, replicas=4, average=average, rate=rate
        )
        ((errors, second),) = last.state[2]
        pairs = [
            (ravel_pytree(last.params)[0], ravel_pytree(params)[0]),
            (errors, np.concatenate(average.errors)),
            (second, average.second),
        ]
        found[feedback] = [np.mean(~np.isclose(*pair, rtol=1e-3, atol=1e-6)) for pair in pairs]
        if feedback:
            assert [*taken.losses, last.loss] == pytest.approx(losses, rel=1e-5)
    assert max(found[True]) < 0.01
    assert min(found[False]) > 0.1


@pytest.mark.full
@pytest.mark.parametrize(
    ("compress", "mesh", "options"),
    [
        ("int8", *ROUNDS[0]),
        ("int4", *ROUNDS[1]),
        ("sign", *ROUNDS[2]),
        ("topk=0.05", *ROUNDS[3]),
        ("powersgd=1", *ROUNDS[2]),
    ],
    ids=str,
)
def test_a_mix_compresses_what_a_round_changes(
    compress: str, mesh: str, options: dict[str, Any]
) -> None:
    rounds = {"sync_every": 3, "outer": "nesterov", "compress": compress}
    taken = trained(make_recipe(mesh, batch=BATCH, **rounds, **options), steps=4)
    assert np.isfinite(taken.losses).all()
    assert taken.losses[-1] < taken.losses[0]
    assert_sends_what_was_predicted(taken.run.sent)


@pytest.mark.full
@pytest.mark.parametrize("outer", ["average", "nesterov"])
@pytest.mark.parametrize(("mesh", "options"), ROUNDS, ids=[mesh for mesh, _ in ROUNDS])
def test_a_mix_averages_once_a_round(mesh: str, options: dict[str, Any], outer: str) -> None:
    """It sends each device's part of the parameters over dp, once, whatever the number of steps."""
    recipe = make_recipe(mesh, batch=BATCH, sync_every=3, outer=outer, **options)
    taken = trained(recipe, steps=3)
    assert np.isfinite(taken.losses).all()
    assert taken.losses[-1] < taken.losses[0]
    held = sum(group.numbers for group in groups(recipe))
    n = recipe.layout.dp
    assert sent_over_dp(taken.run) == pytest.approx(2 * (n - 1) / n * 4 * (held + 1))


def test_a_round_of_one_step_of_descent_is_data_parallelism() -> None:
    taken = trained(make_recipe("dp=4", batch=BATCH, optimizer="sgd", sync_every=1), steps=3)
    whole = trained(make_recipe("dp=1", batch=BATCH, optimizer="sgd"), steps=3)
    assert taken.losses == pytest.approx(whole.losses, rel=1e-5)
    assert taken.norms[0] == pytest.approx(0.02 * whole.norms[0], rel=1e-4)


def test_on_dp_alone_all_parameters_are_in_one_group() -> None:
    (group,) = groups(make_recipe("dp=4", batch=BATCH, compress="int8"))
    assert (group.axes, group.numbers) == ((), PARAMETERS)
    assert group.padded % (4 * BLOCK) == 0
    assert 0 <= group.padded - PARAMETERS < 4 * BLOCK


def test_words_of_compression() -> None:
    assert parse_compression("topk=0.25").fraction == 0.25
    assert parse_compression("int4").scheme == "int4"
    assert parse_compression("powersgd=4").rank == 4


def test_matrices_are_sent_as_factors_where_these_are_less_than_half() -> None:
    *matrices, rest = of_rank(1)
    assert {group.matrices for group in matrices} >= {(4, 16, 16), (1, 256, 16)}
    assert rest.matrices is None
    assert sum(group.numbers for group in (*matrices, rest)) == PARAMETERS
    (whole,) = of_rank(9)
    assert whole.matrices is None


@pytest.mark.parametrize("feedback", [True, False])
def test_factors_and_errors_are_those_of_the_step_before(feedback: bool) -> None:
    """By the same gradient again and again, rank 1 adds up to the whole of it."""
    mesh, compression = make_mesh("dp=2"), parse_compression("powersgd=1")
    gradient = np.random.default_rng(0).normal(size=(2, 12, 10)).astype(np.float32)
    (group,) = groups_of(
        jax.ShapeDtypeStruct((12, 10), jnp.float32),
        LeafLayouts(P(), P(), P()),
        mesh.shape,
        compression,
    )

    def total(gradient: jax.Array, *kept: jax.Array) -> jax.Array:
        def step(carry: Any, _: None) -> tuple[Any, jax.Array]:
            mean, (new,) = exchange(gradient[0], [carry], [group], compression)
            return tuple(new) if feedback else carry, mean

        return jax.lax.scan(step, kept, length=400)[1].mean(axis=0)

    (specs,) = kept_specs([group], compression)
    program = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=(P("dp"), *specs), out_specs=P()))
    (kept,) = first_kept([group], compression, mesh.shape)
    missing = np.abs(program(gradient, *kept) - gradient.mean(axis=0)).max()
    assert missing < 0.1 if feedback else missing > 0.5


def of_rank(rank: int) -> tuple[Group, ...]:
    return groups(make_recipe("dp=4", batch=BATCH, compress=f"powersgd={rank}"))
