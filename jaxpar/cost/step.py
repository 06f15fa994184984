"""How long a step of training takes: arithmetic, memory traffic, communication, and waiting.

The time of a product is its operations divided by the peak and by the fraction of it that programs
reach (`Efficiency`). The time of everything else that reads and writes arrays is its bytes divided
by the memory's bandwidth and by the fraction of it that programs reach. `network` gives the time of
collectives. The result is the time of a device of the slowest stage.

Sources: Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM, sections 2 and 3; Korthikanti et al. 2022, Reducing Activation Recomputation in Large
Transformer Models, section 6; Isaev et al. 2023, Calculon, for the kinds of terms.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jaxpar.checks import check_positive
from jaxpar.cost import shards
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.communication import Kind, Link
from jaxpar.cost.flops import head_flops, layer_flops
from jaxpar.cost.hardware import Accelerator, Cluster
from jaxpar.cost.layout import check_formulas
from jaxpar.cost.network import collective_seconds
from jaxpar.cost.terms import Term, make_term, total
from jaxpar.cost.traffic import Message, step_traffic
from jaxpar.cost.zero import ADAM_MIXED, States
from jaxpar.layout import Layout

# The bytes through memory of a backward pass over those of the forward pass. Where the forward pass
# reads a and writes b, the backward pass reads a and the gradient of b, and writes that of a.
BACKWARD_BYTES = 1.5
# The bytes through memory for each element of a norm: as one kernel, forward; and as LLaMA's own
# code (meta-llama/llama, llama/model.py, RMSNorm) runs in PyTorch, kernel by kernel, forward and
# backward. Forward: to float32 6, square 8, mean 4, product with 1/rms 8, to 16 bits 6, product
# with the weight 4. Backward, by PyTorch's tools/autograd/derivatives.yaml: of the weight and of
# what it multiplies 8 + 4, to float32 6, of x and of 1/rms 8 + 16, of the mean 4, of the square
# 8 + 8 + 12, the sum of x's two gradients 12, to 16 bits 6.
NORM_BYTES = 4
UNFUSED_NORM_BYTES, UNFUSED_NORM_BACKWARD_BYTES = 36, 92
# How many launches come to those of a layer's forward and backward pass where it is computed again,
# where attention is on a ring, for each device beyond the first, and where FSDP gathers what the
# layer needs. Of NVIDIA/Megatron-LM's functional tests of a small GPT (4e85d74a), which wait for
# their hosts, full recomputation takes 1.5 times as long, cp=2 beside tp=2 takes 1.3 to 1.5 times
# as long as tp=4, and Megatron's FSDP 1.4 times as long as ZeRO 1.
EAGER_AGAIN = 0.5
EAGER_RING = 0.4
EAGER_GATHERS = 0.4
# For each parameter Adam reads and writes 12 bytes, and writes the parameter in 16 bits; it reads
# the gradient, too.
OPTIMIZER_BYTES = 12 + 12 + 2

# The forward pass of a stage's layers: products with weights, attention, and everything else.
_PRODUCTS = (
    "microbatches*max(matrix_flops/(tp*cp*flops) + matrix_bytes/(3*bandwidth), "
    "matrix_bytes/bandwidth)"
)
_ATTENTION = "microbatches*max(attention_flops/(tp*cp*score_flops), attention_bytes/bandwidth)"
_TRAFFIC = "microbatches*tokens*(token_bytes + score_bytes)/bandwidth"


def step_terms(
    architecture: Architecture,
    layout: Layout,
    cluster: Cluster,
    *,
    batch: int,
    sequence: int,
    overlap: bool = False,
    each: States = ADAM_MIXED,
    scatter_gather: bool = True,
    all_reduce: bool = False,
) -> list[Term]:
    """Seconds of a step on a device of the slowest stage, by what they are spent on.

    `each`, `scatter_gather` and `all_reduce` are those of `step_traffic`. Where not all parameters
    are trained, the products find no gradients of weights.

    Without `overlap`, nothing overlaps. With it, these messages run beside computation for as long
    as that lasts, and the fraction `Efficiency.overlap` of them takes no time of its own: gradients
    beside the backward pass, parameters of ZeRO beside the passes that need them, activations
    between the stages of a pipeline, keys and values on a ring beside attention, and what tensor
    parallelism sends while the gradients of weights are computed. A message that the next product
    waits for is never hidden.

    With several stages, the schedule is 1F1B, or interleaved 1F1B if stages have several chunks.

    Where the cluster is `eager`, a stage takes at least as long as its host launches its kernels.

    Scores pass through memory, unless attention is fused, which always computes them twice.

    Raises:
        ValueError: the formulas do not know this kind of remat or of offload.
    """
    check_formulas("step_terms", architecture, layout)
    numbers = _numbers(architecture, layout, cluster, batch, sequence, each)
    work = list(_work(numbers, _again(architecture, layout)))
    messages = step_traffic(
        architecture,
        layout,
        batch=batch,
        sequence=sequence,
        each=each,
        scatter_gather=scatter_gather,
        all_reduce=all_reduce,
    )
    seconds = _seconds(messages, layout, cluster)
    sent = list(_hidden(messages, seconds, cluster, numbers, work) if overlap else seconds)
    stage = [term for message, term in zip(messages, sent, strict=True) if _in_stage(message)]
    numbers |= {"layers_seconds": total(work), "device_seconds": total([*work, *stage])}
    waits = list(_waits(numbers, cluster))
    numbers["stage_seconds"] = numbers["device_seconds"] + total(waits)
    bubble = "(pp - 1)/(microbatches*chunks)*stage_seconds"
    return [
        *work,
        _head(numbers),
        *sent,
        *waits,
        make_term("bubble", bubble, numbers),
        *_optimizer(numbers, layout.offload),
    ]


def layout_step_seconds(
    parameters: float,
    tokens: float,
    *,
    pp: int,
    tp: int,
    microbatches: int,
    chunks: int,
    recompute: bool,
    flops_per_second: float,
    tp_seconds: float,
    gradient_seconds: float,
) -> float:
    """The seconds of a step of one layout, from a few figures.

    A model of so many `parameters` is split evenly over `pp` stages of `tp` devices. Every replica
    takes `microbatches` of so many `tokens`. A token takes 2 FLOPs for each parameter forward, and
    4 backward; with `recompute` the backward pass computes the whole forward pass again. A device
    does `flops_per_second`.

    What tensor parallelism sends for a microbatch, forward and backward, takes `tp_seconds` on each
    stage, and nothing hides it. The schedule is 1F1B, interleaved if a stage has several `chunks`:
    a device idles while it could work on pp - 1 chunks of a microbatch, forward and backward, with
    what they send. The sum of the gradients over the replicas takes `gradient_seconds`. It overlaps
    with what is computed in the backward pass of one microbatch, the last one, recomputation
    included; only the rest takes time of its own. Nothing else takes time.

    Source: Narayanan et al. 2021, section 2.2; Li et al. 2020, PyTorch Distributed, section 3.2.3

    Raises:
        ValueError: one of pp, tp, microbatches and chunks is below 1, flops_per_second is not above
            0, or another number is negative.
    """
    counts = {"pp": pp, "tp": tp, "microbatches": microbatches, "chunks": chunks}
    check_positive("layout_step_seconds", counts | {"flops_per_second": flops_per_second})
    amounts = {"parameters": parameters, "tokens": tokens, "tp_seconds": tp_seconds}
    for name, amount in (amounts | {"gradient_seconds": gradient_seconds}).items():
        if not amount >= 0:
            raise ValueError(f"layout_step_seconds: {name} is {amount!r}; use 0 or more")
    forward = 2 * parameters * tokens / (pp * tp) / flops_per_second
    backward = (3 if recompute else 2) * forward
    microbatch = forward + backward + tp_seconds
    working = (microbatches + (pp - 1) / chunks) * microbatch
    return working + max(0.0, gradient_seconds - backward)


def peak_flops(device: Accelerator) -> float:
    """The peak of the 16 bits that models are trained in: bf16, or fp16 where there is no such."""
    return device.peak_flops.get("bf16") or device.peak_flops["fp16"]


def _reached(cluster: Cluster, kind: Kind) -> Cluster:
    """The cluster with links as fast as messages of this kind find them.

    A message from one device to another has the network to itself as a link inside a node has.
    """
    reached = cluster.efficiency

    def slower(link: Link, part: float) -> Link:
        return Link(link.latency_seconds, link.bytes_per_second * part)

    network = reached.links if kind == "permute" else reached.network
    inside, between = slower(cluster.inside, reached.links), slower(cluster.between, network)
    return replace(cluster, inside=inside, between=between)


def _numbers(
    a: Architecture, layout: Layout, cluster: Cluster, batch: int, sequence: int, each: States
) -> dict[str, Any]:
    """The values of the names in formulas; most are those of one microbatch."""
    products, attention, token_bytes, widths = 0, 0, 0, 0
    experts, dense = shards.layers_on_stage(a, layout)
    for layers, mixed in ((experts, True), (dense, False)):
        if np.any(layers > 0):
            terms = layer_flops(a, layout.microbatch, sequence, experts=mixed)
            scores = total(term for term in terms if term.name in ("scores", "attended"))
            attention = attention + layers * scores
            products = products + layers * (total(terms) - scores)
            token_bytes = token_bytes + layers * _token_bytes(a, layout, mixed=mixed)
            widths = widths + layers * (4 * a.hidden + 2 * _width(a, mixed=mixed) / layout.tp)
    heads = (experts + dense) * 2 * (a.heads + a.key_heads) * a.d_head / layout.tp
    # The product writes scores, softmax and dropout read and write them, a product reads them.
    of_score = 0 if a.fused_attention else 2 + 4 + 4 + 1 + 2
    score_bytes = of_score * a.heads / layout.tp * sequence
    rings = layout.context in ("zigzag", "ring")
    if layout.context == "ring":  # all wait for the last device, which sees the keys of every other
        attention = attention * (2 - 1 / layout.cp)
    reached = cluster.efficiency
    in_one_kernel = reached.attention if a.fused_attention else None
    tokens = layout.microbatch * sequence / layout.cp
    slots = layout.pp * layout.chunks
    held = shards.on_device(a, layout)
    whole = held.layers + held.outer + held.experts
    shard = (held.layers + held.outer) / layout.state_shards + held.experts / layout.expert_shards
    return {
        **layout.sizes,
        "chunks": layout.chunks,
        "microbatches": layout.microbatches(batch),
        "tokens": tokens,
        "layers": experts + dense,
        "shorter": np.where(a.layers % slots > 0, 1, 0),
        "matrix_flops": products,
        # Where only some products are computed again, these are those of keys, and into the MLP
        # without a gate.
        "again_flops": (experts + dense)
        * 2
        * layout.microbatch
        * sequence
        * a.hidden
        * (a.key_heads * a.d_head + a.d_ffn),
        "matrix_bytes": 2 * (held.layers + held.experts + tokens * (widths + heads)),
        "attention_flops": attention,
        # On a ring, queries and results are read again for the keys and values of each device.
        "attention_bytes": 2 * tokens * heads * (layout.cp if rings else 1),
        "token_bytes": token_bytes,
        "score_bytes": (experts + dense) * score_bytes,
        "norm_bytes": (experts + dense) * _norm_bytes(a, layout, backward=True),
        "head_flops": head_flops(a, layout.microbatch, sequence).value,
        "vocab": a.vocab,
        "passes": 3 if each.trained == 1 else 2,
        "gradient_bytes": each.gradients / each.trained,
        "updated": each.trained * (shard if layout.zero > 0 else whole),
        "held": shard if layout.zero == 3 else whole,
        "flops": peak_flops(cluster.device) * reached.products,
        "score_flops": peak_flops(cluster.device) * (in_one_kernel or reached.products),
        "launched": 1
        + EAGER_AGAIN * layout.recomputes_products
        + EAGER_RING * (layout.cp - 1) * rings
        + EAGER_GATHERS * (layout.zero == 3),
        "eager_layer_seconds": cluster.efficiency.eager_layer_seconds,
        "bandwidth": cluster.device.memory_bytes_per_second * cluster.efficiency.memory,
        "host_bandwidth": cluster.host.bytes_per_second * cluster.efficiency.links,
    }


def _again(a: Architecture, layout: Layout) -> str:
    """The kind of remat as programs run it: fused attention is "selective" by itself."""
    fused = a.fused_attention and layout.remat == "none"
    return "selective" if fused else layout.remat


def _width(a: Architecture, *, mixed: bool) -> int:
    """Elements of a token inside the MLP, or inside the experts that it goes to."""
    if mixed and a.experts:
        return a.experts.per_token * a.experts.ffn + a.experts.shared
    return a.d_ffn


def _token_bytes(a: Architecture, layout: Layout, *, mixed: bool) -> Any:
    """Bytes of one token through memory in a layer's forward pass, without products.

    Activations have 16 bits. A norm or a nonlinearity reads one and writes one, and a residual sum
    reads two and writes one. A mask of dropout is one byte.
    """
    split = layout.tp if layout.sequence_parallel else 1
    sums = 1 if a.norms == 1 else 2
    outside = (6 + a.dropout) * sums * a.hidden / split
    heads = 4 * (a.heads + 2 * a.key_heads) * a.d_head  # split into heads, and turned
    if mixed and a.experts:
        outside += 8 * a.experts.per_token * a.hidden / split  # sorted by expert, and back
    outside += _norm_bytes(a, layout)
    return outside + (heads + (6 if a.gated else 4) * _width(a, mixed=mixed)) / layout.tp


def _norm_bytes(a: Architecture, layout: Layout, *, backward: bool = False) -> Any:
    """Bytes of a token through memory in the norms of a layer.

    Backward, only those beyond `BACKWARD_BYTES` times what the forward pass moves.
    """
    each = NORM_BYTES if a.fused_norms else UNFUSED_NORM_BYTES
    if backward:
        each = 0 if a.fused_norms else UNFUSED_NORM_BACKWARD_BYTES - BACKWARD_BYTES * each
    return each * a.norms * a.hidden / (layout.tp if layout.sequence_parallel else 1)


def _work(numbers: Mapping[str, Any], remat: str) -> Iterator[Term]:
    """What the layers of a stage compute, for all microbatches."""
    yield make_term("products", f"passes*{_PRODUCTS}", numbers)
    yield make_term("attention", f"3*{_ATTENTION}", numbers)
    norms = "microbatches*tokens*norm_bytes/bandwidth"
    yield make_term("memory traffic", f"{1 + BACKWARD_BYTES}*{_TRAFFIC} + {norms}", numbers)
    if remat == "full":
        yield make_term("products again", _PRODUCTS, numbers)
        yield make_term("attention again", _ATTENTION, numbers)
        yield make_term("memory traffic again", _TRAFFIC, numbers)
    if remat == "alternate":
        again = "microbatches*again_flops/(tp*cp*flops)"
        yield make_term("products again", again, numbers)
        yield make_term("attention again", _ATTENTION, numbers)
        yield make_term("memory traffic again", _TRAFFIC, numbers)
    if remat == "selective":
        yield make_term("attention again", _ATTENTION, numbers)
        scores = _TRAFFIC.replace("(token_bytes + score_bytes)", "score_bytes")
        yield make_term("memory traffic again", scores, numbers)


def _waits(numbers: Mapping[str, Any], cluster: Cluster) -> Iterator[Term]:
    """The time in which the devices of a stage wait for their hosts to launch the next kernel.

    Where both take about as long, each waits for the other at times. The power is what fits
    measured runs best, of 2, 3 and a maximum.
    """
    if cluster.eager:
        launches = "microbatches*layers*launched*eager_layer_seconds"
        both = f"(device_seconds**3 + ({launches})**3)**(1/3)"
        yield make_term("waiting for the host", f"{both} - device_seconds", numbers)


def _head(numbers: Mapping[str, Any]) -> Term:
    """The extra work of the last stage: the head, but one layer less if some stages have less.

    Logits are written and read in 16 bits and in float32, and so are their gradients.
    """
    head = "passes*head_flops/(tp*cp*flops) + 16*tokens*vocab/(tp*bandwidth)"
    less = "shorter*layers_seconds/layers"
    return make_term("head", f"max(0, microbatches*({head}) - {less})", numbers)


def _optimizer(numbers: Mapping[str, Any], offload: str) -> Iterator[Term]:
    """Adam's step, on the device or on its host, and what crosses between the two.

    For each device a host reads its memory as fast as the device is linked to it.
    """
    where = "bandwidth" if offload == "none" else "host_bandwidth"
    moved = f"({OPTIMIZER_BYTES} + gradient_bytes)*updated"
    yield make_term("optimizer", f"{moved}/{where}", numbers)
    if offload == "none":
        return
    yield make_term("gradients to host", "gradient_bytes*updated/host_bandwidth", numbers)
    # Parameters on the host are fetched for every forward and for every backward pass.
    often = {"optimizer": "2*updated", "all": "2*2*microbatches*held"}[offload]
    yield make_term("parameters from host", f"{often}/host_bandwidth", numbers)


def _seconds(messages: Iterable[Message], layout: Layout, cluster: Cluster) -> list[Term]:
    """The time of each message, if nothing else runs meanwhile."""
    terms = []
    for message in messages:
        each = collective_seconds(
            message.kind,
            message.operand_bytes,
            layout,
            message.axes,
            _reached(cluster, message.kind),
        )
        # Of the two ends of a pipeline, only the last stage counts, because it has more work.
        here = np.where(layout.pp > 1, 0, 1) if message.stage == "first" else 1
        numbers = {"times": message.times * here, "each": each}
        terms.append(make_term(message.name, "times*each", numbers))
    return terms


def _hidden(
    messages: Iterable[Message],
    seconds: Iterable[Term],
    cluster: Cluster,
    numbers: Mapping[str, Any],
    work: Iterable[Term],
) -> Iterator[Term]:
    """The time of each message that computation does not hide, if all run beside it that can.

    A message that is sent once in a step can hide behind the computation of one microbatch.
    """
    left = total(work)
    products, attention, traffic = (
        make_term("", formula, numbers).value for formula in (_PRODUCTS, _ATTENTION, _TRAFFIC)
    )
    forward = products + attention + traffic
    passes = {"forward": forward, "backward": left - forward}
    for message, term in zip(messages, seconds, strict=True):
        if not message.hides:
            yield term
            continue
        often = np.minimum(message.times / numbers["microbatches"], 1)
        # Within a layer, a ring runs beside attention, and others beside the gradients of weights.
        of_weights = products if numbers["passes"] > 2 else 0 * products
        layer = 3 * attention if "cp" in message.axes else of_weights
        beside = np.minimum(passes.get(message.hides, layer) * often, left)
        left = left - np.minimum(term.value, beside)
        more = {"hidden": cluster.efficiency.overlap, "beside": beside}
        formula = "times*each - hidden*min(times*each, beside)"
        yield make_term(term.name, formula, {**term.numbers, **more})


def _in_stage(message: Message) -> bool:
    """Whether every microbatch sends it on every stage, so that it lengthens the bubble."""
    return message.stage == "all" and "microbatches" in message.count.numbers
