"""What lessons teach is what the trainer runs, or this file says why not."""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import lax

from jaxpar import long_run, parallel
from jaxpar.collectives.leaves import leaf_layouts
from jaxpar.inspector import inspect as inspect_program
from jaxpar.layout import CONTEXT_KINDS
from jaxpar.mesh import make_mesh
from jaxpar.parallel import data, fsdp, zero
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.gradients import by_microbatches, over_devices
from jaxpar.train.recipe import make_recipe
from tests.train.runs import SETTINGS, trained
from tests.train.test_checkpoint import begun

P = jax.P
# Taught as one axis alone needs it; what the trainer runs does the same for any mix of axes, which
# is tested below.
FOR_ONE_AXIS = {
    "adapters.adapter_gradients",
    "data.data_parallel_gradients",
    "data.accumulate_gradients",
    "expert.update_expert_bias",  # as `tests/train/test_experts.py` shows
    "fsdp.hybrid_gradients",
    "zero.init_shards",
    "zero.mean_shards",
    "zero.shard_layouts",
    "zero.zero1_update",
    "zero.zero2_accumulate",
    "zero.zero3_gradients",
}
# What the engine runs, and the trainer does not: as `tests/serve` shows.
FOR_INFERENCE = {
    "decode.attend_page_by_page",
    "decode.merge_over_shards",
    "decode.rotary_by_row",
    "decode.sample_parallel",
    "decode.slot_attention",
    "decode.write_tokens",
}
# Taught as the step between an idea and what runs; each is a few lines of what runs.
SIMPLER = {
    "adapters.fsdp_lora_apply": "layers alone; the trainer gathers any part of a model",
    "adapters.nf4_linear": "slice by slice; the trainer makes numbers of one layer at a time",
    "quantized.quantized_layers": "layers of one matrix; the trainer decodes any part of a layer",
    "adapters.lora_row_linear": "one product; the decoder adds before a sum that it has already",
    "checkpoint_layout.fingerprint": "of bytes in memory; the trainer's manifest reads in pieces",
    "checkpoint_layout.newest_whole": "reads all files; the trainer those of the newest first",
    "data_position.resume_indices": "of one batch; the trainer goes on from there",
    "guarded.guarded_update": "one axis; the trainer judges the norm of any mix",
    "decode.cached_attention": "a layer's step as a whole; the decoder attends through its cache",
    "decode.paged_attention": "pages of one dtype; the engine's may be in 8 bits, or split",
    "decode.speculative_accept": "with noise of its own; the engine's drafts share the noise",
    "fsdp.fsdp_apply": "a flat parameter; the trainer gathers leaf by leaf, as fully_shard does",
    "gpipe.gpipe_loss": "the backward pass by differentiation; the trainer runs any schedule",
    "gpipe.naive_forward": "one microbatch",
    "gpipe.pipeline_forward": "forward only",
    "gpipe.send_on": "of the two above",
    "hybrid.tied_table_gradient": "one table; the trainer's reduce_gradients does so for any leaf",
    "precision.mixed_precision_step": "on one device",
    "precision.update_loss_scale": "one overflow lowers the scale; the trainer forgives the first",
    "sequence.sequence_parallel_mlp": "GPT's MLP alone; the decoder calls gathered_linear",
    "tensor.column_linear": "one product; the decoder multiplies several matrices at once",
    "tensor.row_linear": "one product",
    "tensor.parallel_mlp": "a layer's part alone",
    "tensor.parallel_swiglu": "a layer's part alone",
    "tensor.parallel_attention": "a layer's part alone",
    "vocabulary.vocab_parallel_embedding": "a sum; the decoder may scatter it",
    "vocabulary.vocab_parallel_logits": "the decoder's head goes through the same columns",
    "zero.global_norm_of_shards": "all leaves over one axis; hybrid.global_norm takes any mix",
    "zero.clip_shards": "as a transformation of optax, for one axis",
}
WITHOUT_OPTION = {
    "adapters.merge": "whoever uses a run merges, as `tests/train/test_adapters.py` shows",
    "adapters.prefix_attention": "the trainer has no prefixes",
    "checkpoint_layout.block_range": "of the function below",
    "checkpoint_layout.chunks_to_read": "Orbax reads the arrays",
    "context.attention_over_shards": "one query for many keys: inference",
    "context.hybrid_attention": "two axes that split positions; the trainer has cp",
    "context.striped_ring_attention": "history: a zigzag has equal work",
    "data.bucketed_all_reduce": "XLA combines all-reduces by itself",
    "data.masked_mean": "the trainer's examples have no padding",
    "exchange.moe_exchange": "on CPUs it sends n times as many rows as are chosen",
    "expert.expert_choice": "a decoder cannot know which of its tokens come later",
    "fsdp.fsdp_shardings": "the compiler's FSDP",
    "hybrid.masked_gradients": "the trainer's examples have no padding",
    "local.mean_of_arrived": "no device of the trainer is late",
    "local.one_peer_average": "the trainer averages over all devices",
    "local.streaming_round": "the trainer synchronises all parameters at once",
    "quantized.int8_all_gather": "parameters travel in their own dtype",
    "quantized.int8_row_linear": "weights in 8 bits are for inference",
    "quantized.quantize_rows": "weights in 8 bits are for inference",
    "reshard.reshard_rows_to_columns": "a checkpoint is read into the new layout",
    "ring_matmul.matmul_ring": "overlap, which a CPU does not show",
    "ring_matmul.ring_matmul": "overlap, which a CPU does not show",
    "sampler.pad_batch": "the trainer drops the last examples",
    "sampler.seeded_split": "validation takes the end of the text",
    "sampler.shard_indices": "of one epoch; the trainer's batches go over its end",
    "server.parameter_server_step": "history",
    "server.single_master_gradients": "history",
    "server.stale_server": "history",
    "tensor.dropout": "the decoder has none",
    "tensor_nd.cannon_matmul": "an elective: no axis of the trainer",
    "tensor_nd.matmul_2_5d": "an elective: no axis of the trainer",
    "tensor_nd.matmul_3d": "an elective: no axis of the trainer",
    "tensor_nd.mlp_2_5d": "an elective: no axis of the trainer",
    "tensor_nd.mlp_2d": "an elective: no axis of the trainer",
    "tensor_nd.mlp_3d": "an elective: no axis of the trainer",
    "tensor_nd.summa_matmul": "an elective: no axis of the trainer",
}


def techniques() -> Iterator[tuple[CodeType, str]]:
    """The public functions of `jaxpar.parallel` and `jaxpar.long_run`, by their code."""
    for found in pkgutil.iter_modules([*parallel.__path__, *long_run.__path__]):
        package = found.module_finder.path.rpartition("/")[2]
        module = importlib.import_module(f"jaxpar.{package}.{found.name}")
        for name, function in vars(module).items():
            original = inspect.unwrap(function) if callable(function) else None
            ours = inspect.isfunction(original) and original.__module__ == module.__name__
            if ours and not name.startswith("_"):
                yield original.__code__, f"{found.name}.{name}"


@pytest.mark.full
def test_the_trainer_reaches_what_is_taught(tmp_path: Path) -> None:
    names, reached = dict(techniques()), set()
    teacher = begun(make_recipe("dp=1"), SETTINGS, Keeping(tmp_path / "run"))
    list(teacher.proceed(1))
    teacher.close()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in names:
            reached.add(names[frame.f_code])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for recipe in (
            make_recipe("pp=2,fsdp=2,tp=2", microbatches=2, clip=1.0),
            make_recipe("dp=2,tp=2", zero=1, sequence_parallel=True, remat="segments"),
            make_recipe("dp=2,tp=2", precision="fp16"),
            make_recipe("fsdp=2", offload="host"),
            make_recipe("dp=1", optimizer="adam8bit"),
            *(make_recipe("cp=2", context=by) for by in CONTEXT_KINDS),
            make_recipe("dp=2", compress="int8"),
            make_recipe("dp=2", compress="sign"),
            make_recipe("dp=2", compress="topk=0.1"),
            make_recipe("dp=2", compress="powersgd=1"),
            make_recipe("dp=2", sync_every=2),
            make_recipe("dp=2", sync_every=2, outer="nesterov"),
            make_recipe("dp=2", skip_spikes=3.0),
            *(make_recipe("dp=2", decay=by, steps=2) for by in ("cosine", "wsd")),
            make_recipe("tp=2", distill=tmp_path / "run"),
        ):
            trained(recipe, steps=1)
        trained(make_recipe("dp=2"), replace(SETTINGS, adapter_rank=2), steps=1)
        for factor in (None, 1.25):
            with_experts = replace(SETTINGS, experts=4, capacity_factor=factor)
            trained(make_recipe("ep=2"), with_experts, steps=1)
    finally:
        sys.setprofile(before)
    others = FOR_ONE_AXIS | FOR_INFERENCE | {*SIMPLER} | {*WITHOUT_OPTION}
    assert {*names.values()} - reached == others


PARAMS = {"w": np.arange(48, dtype=np.float32).reshape(8, 6) / 50, "b": np.ones(8, np.float32)}
X = np.random.default_rng(2).normal(size=(16, 6)).astype(np.float32)
SGD = optax.sgd(0.1, momentum=0.9)


def loss_fn(params: Any, batch: jax.Array) -> jax.Array:
    return jnp.mean(jnp.tanh(batch @ params["w"].T + params["b"][None]) ** 2)


def trainers(stage: int, microbatches: int = 1, **sizes: int) -> tuple[Callable, Any]:
    """How the trainer finds gradients of whole parameters, and the layouts of these."""
    axes = tuple(sizes)
    layouts = leaf_layouts(PARAMS, sizes=sizes, axes=axes[-1:], stage=stage)
    find = by_microbatches(loss_fn, layouts, microbatches=microbatches, scatters=stage == 2)
    parts = int(np.prod(list(sizes.values())))
    return over_devices(find, layouts, axes=axes, parts=parts, by_shards=stage == 2), layouts


def on_mesh(function: Callable, takes: Any, gives: Any, **sizes: int) -> Callable:
    mesh = make_mesh(sizes)
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives))


def assert_same(taught: Callable, run: Callable, *given: Any) -> None:
    """Both return the same, and send the same bytes over the same axes."""
    for one, other in zip(*map(jax.tree.leaves, (taught(*given), run(*given))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
    sent = [inspect_program(program, *given).wire_bytes_by_axis() for program in (taught, run)]
    assert sent[0] == sent[1]


@pytest.mark.parametrize("microbatches", [1, 2])
def test_data_parallelism_is_what_runs(microbatches: int) -> None:
    find, _ = trainers(0, microbatches, dp=4)

    def taught(params: Any, batch: Any) -> Any:
        if microbatches == 1:
            return data.data_parallel_gradients(loss_fn, params, batch, axis="dp")
        parts = batch.reshape(microbatches, -1, *batch.shape[1:])
        return data.accumulate_gradients(loss_fn, params, parts, axis="dp")

    def run(params: Any, batch: Any) -> Any:
        return find(params, batch, 1.0)

    both = (on_mesh(function, (P(), P("dp")), P(), dp=4) for function in (taught, run))
    assert_same(*both, PARAMS, X)


def test_stage_1_is_what_runs() -> None:
    find, layouts = trainers(1, dp=4)

    def taught(params: Any, state: Any, batch: Any) -> Any:
        local = jax.tree.map(partial(lax.pcast, axis_name="dp", to="varying"), params)
        loss, gradients = jax.value_and_grad(loss_fn)(local, batch)
        new = zero.zero1_update(gradients, params, state, SGD, axis="dp")
        return lax.pmean(loss, "dp"), new

    def run(params: Any, state: Any, batch: Any) -> Any:
        loss, gradients = find(params, batch, 1.0)
        return loss, zero.update_owned(gradients, params, state, SGD, layouts)

    specs = zero.state_specs(SGD, layouts)
    takes, gives = (P(), specs, P("dp")), (P(), (P(), specs))
    both = (on_mesh(function, takes, gives, dp=4) for function in (taught, run))
    assert_same(*both, PARAMS, SGD.init(PARAMS), X)


def test_stage_2_is_what_runs() -> None:
    find, layouts = trainers(2, 2, dp=4)

    def taught(params: Any, batch: Any) -> Any:
        parts = batch.reshape(2, -1, *batch.shape[1:])
        return zero.zero2_accumulate(loss_fn, params, parts, axis="dp")

    def run(params: Any, batch: Any) -> Any:
        return find(params, batch, 1.0)[1]

    owned = jax.tree.map(lambda layout: layout.owned, layouts)
    taught, run = (on_mesh(f, (P(), P("dp")), owned, dp=4) for f in (taught, run))
    for one, other in zip(*map(jax.tree.leaves, (taught(PARAMS, X), run(PARAMS, X))), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_stage_3_is_what_runs() -> None:
    find, layouts = trainers(3, dp=4)
    at_rest = jax.tree.map(lambda layout: layout.at_rest, layouts)

    def taught(shards: Any, batch: Any) -> Any:
        return zero.zero3_gradients(loss_fn, shards, batch, PARAMS, axis="dp")

    def run(shards: Any, batch: Any) -> Any:
        return find(shards, batch, 1.0)

    both = (on_mesh(f, (at_rest, P("dp")), (P(), at_rest), dp=4) for f in (taught, run))
    assert_same(*both, PARAMS, X)


def test_hybrid_sharding_is_what_runs() -> None:
    find, layouts = trainers(1, dp=2, fsdp=4)
    owned = jax.tree.map(lambda layout: layout.owned, layouts)

    def taught(params: Any, batch: Any) -> Any:
        local = jax.tree.map(partial(lax.pcast, axis_name=("dp", "fsdp"), to="varying"), params)
        loss, gradient = jax.value_and_grad(loss_fn)(local, batch)
        mean = fsdp.hybrid_gradients(gradient, shard_axis="fsdp", replica_axis="dp")
        return lax.pmean(loss, ("dp", "fsdp")), mean

    def run(params: Any, batch: Any) -> Any:
        return find(params, batch, 1.0)

    takes, gives = (P(), P(("dp", "fsdp"))), (P(), owned)
    both = (on_mesh(function, takes, gives, dp=2, fsdp=4) for function in (taught, run))
    assert_same(*both, PARAMS, X)
