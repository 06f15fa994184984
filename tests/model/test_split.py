"""A decoder whose layers are split equals one device, and sends and keeps what it must."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax import P, lax
from jax.sharding import NamedSharding

from jaxpar.inspector.residuals import Residual, saved_residuals
from jaxpar.inspector.stablehlo import read_module
from jaxpar.layout import Layout
from jaxpar.mesh import make_mesh, vary
from jaxpar.model import Settings, Split, check_split, init, loss_fn, used_specs
from jaxpar.model.decoder import Layer
from jaxpar.parallel.remat import scan_layers
from tests.compile_options import QUICKLY

SPLITS = {
    "tensor": Split("tp"),
    "sequence": Split("tp", sequence=True),
    "sequence, gathered kept": Split("tp", sequence=True, keep="gathered"),
}
LLAMA = Settings(vocabulary=48, layers=3, d_model=32, heads=8, kv_heads=4, d_ff=48)
GPT = Settings(
    vocabulary=48, layers=2, d_model=24, heads=4, mlp="gelu", norm="layer", positions="learned",
    sequence=12, tied=True,
)  # fmt: skip
FEW = Settings(vocabulary=48, layers=2, d_model=32, heads=8, kv_heads=2, d_ff=48)
BIASED = replace(FEW, biases="all", padding=3)
GPT2 = replace(GPT, biases="all", padding=13)
MODELS = {"Llama": LLAMA, "GPT": GPT, "few kv heads": FEW, "biases": BIASED, "GPT-2": GPT2}
B, S = 2, 12

each_split = pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)


def tokens(settings: Settings) -> np.ndarray:
    words = settings.vocabulary - settings.padding
    return np.random.default_rng(0).integers(0, words, (B, S + 1))


def shapes(settings: Settings) -> Any:
    return jax.eval_shape(partial(init, settings), jax.random.key(0))


def laid_out(sizes: str, settings: Settings) -> Any:
    return used_specs(settings, Layout(**make_mesh(sizes).shape), shapes(settings))


def split_program(
    sizes: str, settings: Settings, split: Split, remat: str = "products", *, forward: bool = False
) -> jax.stages.Wrapped:
    """Loss and gradient on a mesh, or the loss alone: the means over devices of the context."""
    axes = (split.context,) if split.context else ()

    def loss(params: Any, tokens: Any) -> jax.Array:
        # Without the cast, JAX would sum the gradients over the context in each layer.
        params = jax.tree.map(partial(vary, axes=axes), params)
        here = loss_fn(settings, partial(scan_layers, remat=remat), split)(params, tokens)
        return lax.pmean(here, axes) if axes else here

    specs = laid_out(sizes, settings)
    gives = P() if forward else (P(), specs)
    run = loss if forward else jax.value_and_grad(loss)
    return jax.jit(
        jax.shard_map(run, mesh=make_mesh(sizes), in_specs=(specs, P()), out_specs=gives),
        compiler_options=QUICKLY,
    )


@cache
def one_device(settings: Settings) -> Any:
    random = np.random.default_rng(1)
    params = jax.tree.map(lambda leaf: random.normal(0, 0.2, leaf.shape), shapes(settings))
    params = jax.tree.map(np.float32, params)
    run = jax.jit(jax.value_and_grad(loss_fn(settings)), compiler_options=QUICKLY)
    return params, *run(params, tokens(settings))


@pytest.mark.full
@each_split
@pytest.mark.parametrize(
    ("sizes", "model"), [*(("tp=4", model) for model in MODELS), ("dp=3,tp=2", "few kv heads")]
)
def test_loss_and_gradient_equal_one_device(sizes: str, model: str, split: Split) -> None:
    assert_equals_one_device(sizes, model, split)


def assert_equals_one_device(sizes: str, model: str, split: Split) -> None:
    settings = MODELS[model]
    params, loss, gradients = one_device(settings)
    got, by_shards = split_program(sizes, settings, split)(params, tokens(settings))
    np.testing.assert_allclose(got, loss, rtol=1e-5)
    check = partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-6)
    jax.tree.map(check, by_shards, gradients)


CONTEXT = Split(context="cp")
RING, GATHER, ULYSSES = (replace(CONTEXT, by=by) for by in ("ring", "gather", "ulysses"))
CONTEXTS = [
    ("cp=2", CONTEXT, "Llama"),
    ("cp=2", ULYSSES, "Llama"),
    ("cp=3", GATHER, "Llama"),
    ("cp=4", RING, "GPT"),
    ("cp=2,tp=2", replace(SPLITS["tensor"], context="cp"), "GPT"),
    ("cp=2,tp=2", replace(SPLITS["tensor"], context="cp", by="ulysses"), "few kv heads"),
    ("cp=2,tp=2", replace(SPLITS["sequence"], context="cp"), "GPT"),
    ("cp=3,tp=4", replace(SPLITS["sequence"], context="cp", by="ring"), "Llama"),
    ("cp=2,tp=4", replace(SPLITS["tensor"], context="cp"), "few kv heads"),
    ("dp=2,cp=3,tp=2", replace(SPLITS["sequence, gathered kept"], context="cp"), "few kv heads"),
]


@pytest.mark.full
@pytest.mark.parametrize(("sizes", "split", "model"), CONTEXTS)
def test_split_positions_equal_one_device(sizes: str, split: Split, model: str) -> None:
    assert_equals_one_device(sizes, model, split)


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        (RING, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]),
        (CONTEXT, [[0, 1, 10, 11], [2, 3, 8, 9], [4, 5, 6, 7]]),
    ],
    ids=["ring", "zigzag"],
)
def test_every_device_of_a_context_has_its_own_tokens(
    split: Split, expected: list[list[int]]
) -> None:
    """Inputs and labels at its positions: labels are shifted before they are split."""

    def parts(tokens: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        inputs, labels = split.own_tokens(tokens[:, :-1]), split.own_tokens(tokens[:, 1:])
        assert split.contexts == 3
        return inputs, labels, split.positions(inputs.shape[1])

    specs = P(None, "cp"), P(None, "cp"), P("cp")
    run = jax.shard_map(parts, mesh=make_mesh("cp=3"), in_specs=P(), out_specs=specs)
    inputs, labels, positions = jax.jit(run)(tokens(LLAMA))
    assert positions.reshape(3, 4).tolist() == expected
    np.testing.assert_array_equal(inputs, tokens(LLAMA)[:, positions])
    np.testing.assert_array_equal(labels, tokens(LLAMA)[:, positions + 1])


@cache
def sent(
    settings: Settings, split: Split, remat: str, *, forward: bool, sizes: str = "tp=4"
) -> tuple[Counter, Counter]:
    """The collectives of one layer and those outside: how many of each kind and size."""
    run = split_program(sizes, settings, split, remat, forward=forward)
    lowered = run.lower(shapes(settings), tokens(settings))
    layer, outside = Counter(), Counter()
    module = lowered.compiler_ir("stablehlo")
    assert module is not None
    for one in read_module(module):
        where = layer if one.times == settings.layers else outside
        where[one.kind, one.operand_bytes // 4] += 1
    return layer, outside


X = B * S * LLAMA.d_model
N = 4
REDUCED = {("all_reduce", X): 2}
GATHERED = {("all_gather", X // N): 2, ("reduce_scatter", X): 2}
LAYER = {  # the collectives of the forward pass, then those that the gradient adds
    "tensor": (REDUCED, REDUCED),
    "sequence": (GATHERED, {("all_gather", X // N): 4, ("reduce_scatter", X): 2}),
    "sequence, gathered kept": (GATHERED, GATHERED),
}


@pytest.mark.parametrize("remat", ["products", "selective"])
@pytest.mark.parametrize("name", SPLITS)
def test_what_a_layer_sends(name: str, remat: str) -> None:
    forward, both = (sent(LLAMA, SPLITS[name], remat, forward=f)[0] for f in (True, False))
    assert (forward, both - forward) == tuple(map(Counter, LAYER[name]))


def test_what_a_layer_with_few_kv_heads_sends() -> None:
    """The gradients of replicated matrices are summed as well."""
    layer, _ = sent(FEW, Split("tp"), "products", forward=False)
    whole = FEW.d_model * FEW.key_heads * FEW.d_head
    assert layer == Counter({("all_reduce", X): 4, ("all_reduce", whole): 2})


KV = B * S * LLAMA.key_heads * LLAMA.d_head  # the keys of all positions, or the values


@pytest.mark.parametrize(("remat", "again"), [("none", 0), ("products", 2), ("selective", 2)])
def test_of_split_positions_only_keys_and_values_are_sent(remat: str, again: int) -> None:
    """They are gathered, again for the gradient unless kept, and their gradients scattered."""
    forward, both = (sent(LLAMA, GATHER, remat, forward=f, sizes="cp=3") for f in (True, False))
    assert forward == (Counter({("all_gather", KV // 3): 2}), Counter({("all_reduce", 1): 1}))
    added = both[0] - forward[0]
    assert added == Counter({("all_gather", KV // 3): again, ("reduce_scatter", KV): 2})


@pytest.mark.parametrize("split", [CONTEXT, RING], ids=["zigzag", "ring"])
@pytest.mark.parametrize(
    ("remat", "again"), [("none", 0), ("products", 0), ("selective", 0), ("full", 2)]
)
def test_what_a_ring_has_found_is_kept(split: Split, remat: str, again: int) -> None:
    """Only where a whole layer is computed again, its forward ring is, too."""
    forward, both = (sent(LLAMA, split, remat, forward=f, sizes="cp=2") for f in (True, False))
    assert forward == (Counter({("permute", KV // 2): 2}), Counter({("all_reduce", 1): 1}))
    assert both[0] - forward[0] == Counter({("permute", KV // 2): 4 + again})


D = LLAMA.d_model
NORMS = {("all_reduce", LLAMA.layers * D): 2, ("all_reduce", D): 1}  # each has its own positions
ENDS = {  # of the embedding and the head, forward and backward, and gradients of scales
    "tensor": {("all_reduce", X): 2},
    "sequence": {("all_gather", X // N): 3, ("reduce_scatter", X): 2} | NORMS,
    "sequence, gathered kept": {("all_gather", X // N): 2, ("reduce_scatter", X): 2} | NORMS,
}


@pytest.mark.parametrize("name", SPLITS)
def test_of_logits_a_number_a_token_is_sent(name: str) -> None:
    _, outside = sent(LLAMA, SPLITS[name], "products", forward=False)
    assert outside == Counter({("all_reduce", B * S): 3} | ENDS[name])


@pytest.mark.parametrize(
    ("settings", "layout", "line"),
    [
        (LLAMA, Layout(tp=3), r"Split: heads: dim a \(size 8\) .* axis tp \(size 3\)"),
        (replace(GPT, heads=12, kv_heads=6), Layout(tp=4), "Split: heads: 6 kv heads on mesh axis"),
        (replace(LLAMA, d_ff=46), Layout(tp=4), r"Split: dim f \(size 46\) .* tp \(size 4\)"),
        (replace(LLAMA, vocabulary=50), Layout(tp=4), r"Split: dim v \(size 50\) .* tp \(size 4\)"),
        (LLAMA, Layout(ep=2), r"Split: mesh axis ep \(size 2\) without experts: .*; use --experts"),
        (replace(LLAMA, experts=6), Layout(ep=4), r"Split: dim e \(size 6\) .* ep \(size 4\)"),
        (GPT, Layout(cp=5), r"Split: dim t \(size 12\) .* cp \(size 5\); pad t to 15"),
        (LLAMA, Layout(cp=3), r"Split: dim t \(size 128\) .* cp \(size 3\)"),
        (GPT, Layout(cp=4), r"Split: dim t \(size 12\) .* two chunks .* 8 must divide t; .* of 16"),
        (
            replace(GPT, sequence=10),
            Layout(tp=4, sequence_parallel=True),
            r"Split: dim t \(size 10\) .* tp \(size 4\)",
        ),
        (
            GPT,
            Layout(cp=2, tp=4, sequence_parallel=True),
            r"Split: dim t \(size 12\) .* cp\*tp \(size 8\)",
        ),
    ],
)
def test_what_cannot_be_split_is_refused(settings: Settings, layout: Layout, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        check_split(settings, layout)


def test_heads_that_cannot_be_exchanged_are_refused() -> None:
    """Of those that tp leaves a device."""
    check_split(LLAMA, Layout(cp=4, tp=2, context="ulysses"))
    check_split(GPT, Layout(cp=4, context="ring"))
    with pytest.raises(ValueError, match=r"Split: dim a \(size 4\) .* cp \(size 8\)"):
        check_split(LLAMA, Layout(cp=8, tp=2, context="ulysses"))
    with pytest.raises(ValueError, match=r"Split: 4 kv heads on mesh axis cp \(size 6\)"):
        settings = replace(LLAMA, d_model=48, heads=12, sequence=12)
        check_split(settings, Layout(cp=6, context="ulysses"))


@pytest.mark.parametrize(
    ("settings", "layout"),
    [
        (replace(GPT, vocabulary=49, sequence=11), Layout(pp=3, dp=5, fsdp=7)),
        (replace(GPT, sequence=11), Layout(tp=4)),
        (replace(GPT, vocabulary=49), Layout(cp=6)),
        (replace(GPT, sequence=16), Layout(cp=4, tp=4, sequence_parallel=True)),
        (FEW, Layout(tp=4)),
    ],
)
def test_what_no_axis_splits_need_not_divide(settings: Settings, layout: Layout) -> None:
    check_split(settings, layout)


@pytest.mark.parametrize(
    ("layout", "split"),
    [
        (Layout(dp=4), Split(routes=("dp",))),
        (Layout(dp=2, ep=4), Split(experts="ep", routes=("dp", "ep"))),
        (Layout(cp=2), replace(CONTEXT, routes=("cp",))),
        (Layout(cp=2, context="ring"), replace(RING, routes=("cp",))),
        (Layout(cp=2, sequence_parallel=True), replace(CONTEXT, routes=("cp",))),
        (Layout(tp=2), Split("tp")),
        (
            Layout(tp=2, cp=2, sequence_parallel=True),
            Split("tp", sequence=True, context="cp", routes=("cp", "tp")),
        ),
        (
            Layout(tp=2, sequence_parallel=True, remat="full"),
            Split("tp", sequence=True, keep="gathered", routes=("tp",)),
        ),
    ],
)
def test_a_layout_says_how_layers_are_split(layout: Layout, split: Split) -> None:
    assert Split.of(layout) == split


def test_stages_of_a_pipeline_hold_whole_layers() -> None:
    whole, by_tp, by_both = (
        used_specs(FEW, layout, shapes(FEW))
        for layout in (Layout(dp=2, cp=2), Layout(tp=4), Layout(pp=2, tp=4))
    )
    assert {*jax.tree.leaves(whole)} == {P()}
    attention = by_both["layers"]["attention"]
    assert (attention["query"], attention["key"]) == (P("pp", None, "tp"), P("pp"))
    assert attention["output"] == P("pp", "tp")
    assert {name: by_both[name] for name in by_tp if name != "layers"} == {
        name: part for name, part in by_tp.items() if name != "layers"
    }
    assert by_both["embedding"] == P("tp")


@pytest.mark.parametrize("settings", [LLAMA, GPT], ids=["Llama", "GPT"])
def test_a_device_holds_its_part_of_every_matrix(settings: Settings) -> None:
    mesh = make_mesh("tp=4")

    def check(path: Any, leaf: Any, spec: P) -> None:
        held = np.prod(NamedSharding(mesh, spec).shard_shape(leaf.shape))
        # Added to, or multiplied with, whole activations.
        whole = path[-1].key in ("scale", "bias", "positions")
        assert held == leaf.size / (1 if whole else 4), jax.tree_util.keystr(path)

    jax.tree.map_with_path(check, shapes(settings), laid_out("tp=4", settings))


def layer_program(settings: Settings, split: Split) -> tuple[Callable, Any, Any]:
    """One layer as a function of its parameters and x, its parameters, and their specs."""
    graph, params = nnx.split(nnx.eval_shape(lambda: Layer(settings, nnx.Rngs(0))))
    specs = laid_out("tp=4", settings)["layers"]
    one = jax.tree.map(lambda spec: P(*tuple(spec)[1:]), specs, is_leaf=_is_spec)

    def layer_fn(params: Any, x: jax.Array) -> jax.Array:
        return nnx.merge(graph, params)(x, split)

    return layer_fn, nnx.to_pure_dict(params), one


def _is_spec(part: Any) -> bool:
    return isinstance(part, P)


def activations(split: Split, settings: Settings) -> tuple[jax.ShapeDtypeStruct, P]:
    x_spec = P(None, "tp") if split.sequence else P()
    return jax.ShapeDtypeStruct((B, 64, settings.d_model), jnp.float32), x_spec


def kept(settings: Settings, split: Split, remat: str) -> list[Residual]:
    """The residuals of one layer on a device."""
    layer_fn, params, specs = layer_program(settings, split)
    x, x_spec = activations(split, settings)
    found: list[Residual] = []

    def on_shards(params: Any, x: jax.Array) -> jax.Array:
        params = split.own_copies(params)
        found[:] = saved_residuals(layer_fn, params, x, remat=remat)
        return x

    run = jax.shard_map(
        on_shards, mesh=make_mesh("tp=4"), in_specs=(specs, x_spec), out_specs=x_spec
    )
    jax.eval_shape(run, params, x)
    return found


def temp_bytes(settings: Settings, split: Split, remat: str, layers: int) -> int:
    """What a device holds while it computes the gradients of so many layers."""
    layer_fn, one, specs = layer_program(settings, split)
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((layers, *leaf.shape), leaf.dtype), one)
    specs = jax.tree.map(lambda spec: P(None, *spec), specs, is_leaf=_is_spec)
    x, x_spec = activations(split, settings)

    def total(params: Any, x: jax.Array) -> jax.Array:
        y = scan_layers(layer_fn, split.own_copies(params), x, remat=remat).sum()
        return jax.lax.psum(y, "tp") if split.sequence else y

    run = jax.shard_map(
        jax.grad(total, (0, 1)),
        mesh=make_mesh("tp=4"),
        in_specs=(specs, x_spec),
        out_specs=(specs, x_spec),
    )
    memory = jax.jit(run, compiler_options=QUICKLY).lower(params, x).compile().memory_analysis()
    assert memory
    return memory.temp_size_in_bytes


@pytest.mark.full
@pytest.mark.parametrize("remat", ["products", "selective"])
@each_split
def test_what_one_more_layer_keeps(split: Split, remat: str) -> None:
    settings = Settings(d_model=64, heads=8, kv_heads=4, d_ff=128)
    less, more = (temp_bytes(settings, split, remat, layers) for layers in (4, 8))
    added = (more - less) / 4
    listed = sum(one.bytes for one in kept(settings, split, remat))
    # With `sequence` a device has gradients of norms by its own positions, until they are summed.
    assert added == pytest.approx(listed, rel=0.05 if split.sequence else 1e-9)
