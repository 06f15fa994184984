# %% [markdown]
# # Lesson 09: ZeRO
#
# In data parallelism (lesson 05) every device holds all parameters, all gradients, and all of the
# optimizer's state. So n devices hold n copies of everything, and all of them make the same update.
# *ZeRO*, the zero redundancy optimizer, removes the copies: each device keeps and updates 1/n.
#
# It has three *stages*. Each stage shards one more of the three, and all of them compute the same
# result as plain data parallelism. We look at what each stage holds, and at what it sends for that.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, spec

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.collectives import leaves
from jaxpar.cost import zero as cost
from jaxpar.cost.communication import wire_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.network import collective_seconds
from jaxpar.cost.roofline import tokens_to_hide
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.bars import Bars
from jaxpar.drawing.curves import Curves
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import compiled, inspect, program, stablehlo
from jaxpar.layout import Layout
from jaxpar.model import Settings, init, loss_fn
from jaxpar.parallel import zero
from jaxpar.parallel.precision import master_weights
from jaxpar.train.recipe import make_recipe
from jaxpar.train.setup import technique_of
from jaxpar.train.step import make_step, shardings
from jaxpar.train.text import batches, read_library

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
n, mesh = 8, make_mesh("dp=8")
STAGES = ("data parallel", "stage 1", "stage 2", "stage 3")

# %% [markdown]
# ## The idea in one picture
#
# What four devices hold: p are parameters, g are gradients, and o is the optimizer's state, each in
# four parts. The small letter says which device updates a part in stages 1 to 3: device 0 updates
# the parts a, device 1 the parts b, and so on. A dot means that the device does not hold the part.

# %% tags=["fold"]
quarters, states = np.arange(4), np.array([["p"], ["g"], ["o"]])


def four_devices(stage):
    replicated = np.arange(3)[:, None] < 3 - stage  # of p, g, o
    holds = [replicated | (quarters == device) for device in quarters]
    owners = [np.where(held, quarters, NOBODY) for held in holds]
    return panel(STAGES[stage], [np.where(held, states, ".") for held in holds], owners)


draw("09_stages", Panels("Who holds what", [four_devices(stage) for stage in range(4)]))

# %% [markdown]
# - **Stage 1** shards the optimizer's state. A device updates only its shard of the parameters, so
#   it needs only its shard of the mean gradient, which takes a reduce-scatter. After the update,
#   every device needs all new parameters, which takes an all-gather.
# - **Stage 2** shards the gradients, too. With several microbatches (lesson 05), the gradient of
#   each is reduce-scattered as soon as it is computed, and only its shard is added up.
# - **Stage 3** shards the parameters, too. A layer is gathered before its forward pass, and dropped
#   after it. It is gathered again for its backward pass.
#
# ## Predict
#
# Adam keeps two numbers for each parameter: a mean of its gradients, and one of their squares. In
# mixed precision (lesson 07) a parameter and its gradient take 2 bytes each. The optimizer's state
# takes 12: two means and the master weight, in float32. Take a model of 7.5 billion parameters, on
# 64 devices. Parameters, gradients and the optimizer's state together are the *training states*.

# %%
held_1 = ask("Bytes of training states on each device, in stage 1")
held_3 = ask("Bytes of training states on each device, in stage 3")

# %% [markdown]
# Now a small decoder on 8 devices, all in float32. A reduce-scatter of S bytes, and an all-gather
# whose result has S bytes, send 7/8 of S each (lesson 02).

# %%
settings = Settings(layers=4, d_model=32, heads=2, mlp="gelu")
start = jax.device_get(init(settings, jax.random.key(0)))
PARAMS = sum(leaf.nbytes for leaf in jax.tree.leaves(start))
LAYERS = sum(leaf.nbytes for leaf in jax.tree.leaves(start["layers"]))
print(f"All parameters: {PARAMS:,} bytes. Those of the layers: {LAYERS:,} bytes.\n")

# %%
sent_1 = ask("Bytes that each device sends in a step of stage 1")
sent_2 = ask("Bytes that each device sends in a step of stage 2, with two microbatches")
sent_3 = ask("Bytes that each device sends for the layers in stage 3, with one microbatch")

# %% [markdown]
# ## Implement
#
# ### One step by hand
#
# Here is a whole step with Adam. `w` is a vector of all 65,824 parameters, and every device holds
# all of it. `mean` and `square` are Adam's state, of which each device holds 1/8: 8,228 numbers of
# each. `batch` is the device's shard of the batch, and `t` is the number of the step, which counts
# from 1. With one microbatch, stages 1 and 2 are this same program.

# %%
w_start, unravel = ravel_pytree(start)
RATE, B1, B2 = 0.003, 0.9, 0.999


def loss(w, batch):
    return loss_fn(settings)(unravel(w), batch)


def step_by_hand(w, mean, square, t, batch):
    # The gradient of the loss of this device's examples: as long as w.
    own = lax.pcast(w, "dp", to="varying")
    gradient = jax.grad(loss)(own, batch)
    # From here on, a device has only its shard: 1/8 of the mean gradient.
    g = lax.psum_scatter(gradient, "dp", tiled=True) / n
    # Adam, for this shard.
    mean = B1 * mean + (1 - B1) * g
    square = B2 * square + (1 - B2) * g**2
    change = (mean / (1 - B1**t)) / (jnp.sqrt(square / (1 - B2**t)) + 1e-8)
    first = lax.axis_index("dp") * g.size
    shard = lax.dynamic_slice_in_dim(w, first, g.size) - RATE * change
    # Every device needs all new parameters.
    return lax.all_gather(shard, "dp", tiled=True, to="invarying"), mean, square


whole, sharded = P(), P("dp")
takes, gives = (whole, sharded, sharded, whole, sharded), (whole, sharded, sharded)
by_hand = jax.jit(jax.shard_map(step_by_hand, mesh=mesh, in_specs=takes, out_specs=gives))

# %% [markdown]
# `tiled=True` splits and joins along dim 0, without a new dim. `to="invarying"` says that the
# result of the gather is equal on all devices, so that it may leave through `P()`.
#
# Let us ask the inspector what this step sends, and how large its arguments are on a device: the
# parameters, 1/8 of `mean` and of `square`, 4 examples, and the number of the step.

# %%
BATCH, LENGTH, STEPS = 32, 32, 12
by_examples = NamedSharding(mesh, spec("b_dp t"))
endless = batches(read_library(), by_examples, batch=BATCH, sequence=LENGTH, seed=0)
examples = [np.asarray(next(endless)) for _ in range(STEPS)]
zeros = np.zeros_like(w_start)
report = inspect(by_hand, w_start, zeros, zeros, 1.0, examples[0])
for one in report.collectives:
    print(f"{one.kind}: operand {one.operand_bytes:,} bytes, sent {one.wire_bytes:,} bytes")
print(f"arguments: {report.memory.arguments_bytes:,} bytes\n")

# %% [markdown]
# The exercise `zero1_update` asks for the same with any pytree and any optimizer of optax.
#
# ### Why the update can be sharded
#
# Adam's update of a parameter depends only on this parameter, its gradient, and its state. Such an
# optimizer is *elementwise*: updating parts separately gives the same as updating all together.
# AdamW, momentum and Lion are elementwise. Adafactor, LAMB and Muon are not, since they look at
# whole rows, matrices or norms. As a check, Adam updates 8 shards of 3 parameters, one after the
# other and all together, and the results are equal.

# %%
adam = optax.adam(RATE)
w, g = jax.random.normal(jax.random.key(0), (2, n, 3))


def first_update(w, g):
    return w + adam.update(g, adam.init(w), w)[0]


of_shards = [first_update(w[j], g[j]) for j in range(n)]
np.testing.assert_array_equal(of_shards, first_update(w, g))

# %% [markdown]
# ### The library's form
#
# The library splits each leaf of a pytree on its own, along the first dim that n divides. A leaf
# with no such dim stays whole on every device, as do scalars. (PyTorch and DeepSpeed pad instead,
# so that nothing stays whole.) A leaf has two layouts: one *at rest*, between steps, and one of
# what a device *owns*, that is, updates. In stages 1 and 2 parameters at rest are whole, and `own`
# takes a device's part of them. In stage 3 they are sharded at rest, and `fetch` gathers them.

# %%
show(leaves.own, leaves.fetch, zero.init_shards)

# %% tags=["fold"]
tree = {"even": np.ones((6, 16)), "odd": np.ones((5, 9)), "one": np.ones(())}
layouts = leaves.leaf_layouts(tree, sizes={"dp": n}, axes=("dp",), stage=1)
own = partial(leaves.own, layouts=layouts)
specs = leaves.specs_of(layouts, "owned")
split = jax.jit(jax.shard_map(own, mesh=mesh, in_specs=P(), out_specs=specs))(tree)
rows = [(name, x.shape, split[name].addressable_data(0).shape) for name, x in tree.items()]
table("Leaves and their shards on 8 devices", ("leaf", "shape", "shape of a shard"), rows)

# %% [markdown]
# ### Stage 2
#
# `zero2_accumulate` is yours to write: a loop over microbatches which adds up shards, and never
# full gradients. In PyTorch stage 2 saves memory even with one microbatch. There, full gradients
# wait in `.grad` until the update; stage 2 frees each one as soon as it is reduced.
#
# ### Stage 3: the backward pass of a gather
#
# Now the program takes shards of the parameters. The loss gathers them first, and we differentiate
# with respect to the shards. So the backward pass has to go through the gather. (JAX calls the
# backward pass of a linear function its *transpose*.) The shard of device j went to all devices, so
# its gradient is the sum of the gradients that all devices have for it, and is needed on device j.
# That is a reduce-scatter, and JAX inserts it by itself.

# %%
show(zero.zero3_gradients)

# %% [markdown]
# As a check, each device has one element of `w`, and a row of `x`. The gradient of `vdot(w, x)`
# with respect to `w` is `x`, so device j must end with element j of the mean row.

# %%
x = np.arange(64, dtype=np.float32).reshape(n, n)
like = jax.ShapeDtypeStruct((n,), jnp.float32)


def shard_of_gradient(w_shard, x):
    _, gradient = zero.zero3_gradients(jnp.vdot, w_shard, x[0], like, axis="dp")
    return gradient


f = jax.shard_map(shard_of_gradient, mesh=mesh, in_specs=(P("dp"), P("dp")), out_specs=P("dp"))
gradient = jax.jit(f)(np.ones(n, np.float32), x)
print(f"Gradient, one element on each device: {gradient}\n")
np.testing.assert_array_equal(gradient, x.mean(axis=0))

# %% [markdown]
# This simple form gathers all parameters at once, so for a while each device holds all of them.
# Lesson 10 gathers layer by layer, and so does what we measure now.
#
# ## Measure
#
# ### What each stage sends
#
# These are the steps of `jaxpar train --mesh dp=8 --zero 0` to `--zero 3`, where 0 is plain data
# parallelism. We read each program with one microbatch and with two.


# %%
def prepare(stage, microbatches):
    recipe = make_recipe("dp=8", zero=stage, microbatches=microbatches, batch=BATCH)
    technique = technique_of(settings, recipe)
    specs = technique.params, zero.state_specs(adam, technique.layouts)
    given = jax.device_put((start, adam.init(start)), shardings(mesh, specs))
    step = make_step(technique, adam, mesh)
    return given, step.lower(*given, examples[0])


def sent_by_kind(collectives):
    found = {}
    for one in collectives:
        if one.operand_bytes > 4:  # neither the loss nor the norm of the gradients
            kind = one.kind.replace("_", "-")
            found[kind] = found.get(kind, 0) + one.total_wire_bytes
    return found


# %%
prepared, sent, of_layers = {}, {}, {}
for stage in range(4):
    for microbatches in (1, 2):
        prepared[stage, microbatches] = prepare(stage, microbatches)
        _, lowered = prepared[stage, microbatches]
        collectives = stablehlo.read_module(lowered.compiler_ir("stablehlo"))
        sent[stage, microbatches] = sent_by_kind(collectives)
        in_loop = [one for one in collectives if one.times == settings.layers]
        of_layers[stage, microbatches] = sent_by_kind(in_loop)

# %% tags=["fold"]
totals = {key: sum(kinds.values()) for key, kinds in sent.items()}
shown = [(name, totals[stage, 1], totals[stage, 2]) for stage, name in enumerate(STAGES)]
table("Bytes that a device sends in a step", ("", "1 microbatch", "2 microbatches"), shown)

# %% [markdown]
# With one microbatch the first three send equally much. With two, plain data parallelism and stage
# 1 send no more than that, stage 2 sends 1.5 times as much, and stage 3 twice as much as before.
#
# ### What each stage holds
#
# Now we compile the programs with two microbatches, and train 12 steps on the source code of
# Python's library. In the table, arguments are what stays from step to step, and the batch; temp is
# what intermediate results take.

# %%
arguments, temp, losses = {}, {}, {}
for stage, name in enumerate(STAGES):
    (params, state), lowered = prepared[stage, 2]
    ready = compiled.compile_program(lowered)
    memory = program.inspect_compiled(lowered, ready).memory
    arguments[stage], temp[stage] = memory.arguments_bytes, memory.temp_bytes
    losses[name] = []
    for batch in examples:
        params, state, measures = ready.executable(params, state, batch)
        losses[name].append(float(measures.loss))

# %% [markdown]
# The step by hand trains, too. We note the loss of each batch before its update.

# %%
now, losses["by hand"] = (w_start, zeros, zeros), []
whole_loss = jax.jit(loss)
for number, batch in enumerate(examples):
    losses["by hand"].append(float(whole_loss(now[0], batch)))
    now = jax.device_get(by_hand(*now, number + 1.0, batch))

# %% tags=["fold"]
shown = [(name, arguments[stage], temp[stage]) for stage, name in enumerate(STAGES)]
table("Bytes that a device holds, 2 microbatches", ("", "arguments", "temp"), shown)
axes = "step", "loss, nats for each token"
draw("09_losses", Curves("The loss of each batch", *axes, range(len(examples)), losses))

# %% [markdown]
# All five have the same losses, except for rounding. In the arguments, stage 1 saves 7/8 of Adam's
# state, and stage 3 also saves 7/8 of the parameters. What stage 2 saves is in temp, because
# gradients do not stay from step to step: it keeps a shard of the sum over microbatches, where
# stage 1 keeps all of the sum.
#
# ### Clipping is not elementwise
#
# Gradients are often *clipped*: scaled down where the norm of all of them together, the *global
# norm*, is too large. A device with a shard knows only the norm of this shard.
# `optax.clip_by_global_norm` takes it for the global norm, so that each shard is scaled by another
# factor. That changes the direction of the update, and nothing warns of it. Below, eight devices
# have one number each, and the global norm is 5.

# %%
show(zero.clip_shards)
slope = np.array([3.0, 4, 0, 0, 0, 0, 0, 0], np.float32)  # an element on each device


def clip(optimizer, g):
    return optimizer.update(g, None)[0]


def on_shards(optimizer):
    f = partial(clip, optimizer)
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("dp"), out_specs=P("dp")))(slope)


right = clip(optax.clip_by_global_norm(1.0), slope)
wrong = on_shards(optax.clip_by_global_norm(1.0))
ours = on_shards(zero.clip_shards(1.0, axis="dp"))
print(f"{slope} clipped to a norm of 1:")
print(f"one device:       {right}\noptax on shards:  {wrong}\nours on shards:   {ours}\n")
np.testing.assert_allclose([right, ours], [slope / 5] * 2, rtol=1e-6)

# %% [markdown]
# For the right norm each device has to send one number: the sum of the squares of its shard.
# `global_norm_of_shards` does that, and is yours to write.
#
# ## Compare

# %%
for question, stage in ((held_1, 1), (held_3, 3)):
    held = cost.training_states(7.5e9, cost.ADAM_MIXED, 64, stage)
    parts = {"parameters": held.params, "gradients": held.gradients, "state": held.optimizer}
    question.compare(held.total, parts)
sent_1.compare(totals[1, 1], sent[1, 1])
sent_2.compare(totals[2, 2], sent[2, 2])
sent_3.compare(sum(of_layers[3, 1].values()), of_layers[3, 1])

# %% [markdown]
# ### What a device holds
#
# Stage 1 already saves most, because 12 of the 16 bytes that a parameter takes are the optimizer's.
# With more devices it approaches 4 bytes for each parameter, and stage 2 approaches 2. Only stage 3
# has no such limit. Here are rows of table 1 of the ZeRO paper, and a picture of the row for 64
# devices beside the 80 GB of an H100.

# %% tags=["fold"]
PAPER = 7_500_000_000


def gigabytes(devices, stage):
    held = cost.training_states(PAPER, cost.ADAM_MIXED, devices, stage)
    return round(held.total / 1e9, 2)


shown = [(k, *(gigabytes(k, s) for s in range(4))) for k in (1, 4, 16, 64, 1024)]
table("GB on each device, 7.5 billion parameters", ("devices", *STAGES), shown)
assert shown[3] == (64, 120, 31.41, 16.64, 1.88)
bars = {}
for stage, name in enumerate(STAGES):
    held = cost.training_states(PAPER, cost.ADAM_MIXED, 64, stage)
    parts = {"parameters": held.params, "gradients": held.gradients, "Adam": held.optimizer}
    bars[name] = {part: size / 1e9 for part, size in parts.items()}
limit = ("H100", find_cluster("h100").device.memory_bytes / 1e9)
draw("09_memory", Bars("7.5 billion parameters on 64 devices", "GB", bars, limit))

# %% [markdown]
# ### What a device sends
#
# Stage 1 sends as much as plain data parallelism. An all-reduce is a reduce-scatter and an
# all-gather (lesson 03), and stage 1 makes its update between the two.
#
# With m microbatches, stage 2 reduce-scatters m gradients and gathers the parameters once: (m+1)/2
# times the bytes of stage 1. Stage 3 gathers twice and reduce-scatters once for each microbatch:
# 1.5 m times the bytes of stage 1. Ours sends 8% less, because it gathers embedding, last norm and
# head, which are at the ends of the model, only once for both passes.
#
# In the mixed precision of lesson 07, all of this is sent in 16 bits. The master weights are part
# of the optimizer's state, so they are sharded from stage 1 on.

# %% tags=["fold"]
assert w_start.size == 65_824 == n * 8_228
assert sent[1, 1] == sent[2, 1]
for curve in losses.values():
    np.testing.assert_allclose(curve, losses["data parallel"], rtol=1e-3)
for stage in range(3):
    np.testing.assert_allclose(losses[STAGES[stage]], losses["stage 3"], rtol=1e-4)
ends = wire_bytes("reduce_scatter", PARAMS - LAYERS, n)  # gathered once, not twice
COUNT, batch_bytes = 4, examples[0].nbytes // n  # Adam's count of steps
for stage in range(4):
    held = cost.training_states(settings.parameters, cost.ADAM_FP32, n, stage)
    assert arguments[stage] == held.params + held.optimizer + COUNT + batch_bytes
    for m in (1, 2):
        predicted = cost.step_wire_bytes(PARAMS, n, stage, m)
        assert totals[stage, m] + (m * ends if stage == 3 else 0) == predicted
assert round(totals[3, 1] / (1.5 * totals[1, 1]), 2) == 0.92
assert sum(of_layers[3, 1].values()) == 3 * wire_bytes("reduce_scatter", LAYERS, n)
assert report.memory.arguments_bytes == arguments[1]
assert sent_by_kind(report.collectives) == sent[1, 1]
assert abs((temp[1] - temp[2]) / PARAMS - (1 - 2 / n)) < 0.05
mixed = jax.tree.leaves(jax.eval_shape(master_weights(adam).init, start))
mixed_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in mixed)
assert mixed_bytes == cost.ADAM_MIXED.optimizer * settings.parameters + COUNT

# %% [markdown]
# ## On real hardware
#
# - **Which stage?** The lowest one that fits. Stage 1 sends no more than plain data parallelism,
#   and a device updates 1/n of the parameters, which saves time, too (Xu et al. 2020, on TPUs).
#   Where there are many microbatches, as in pipelines (lesson 15), stages 2 and 3 would send for
#   each of them, and the pipelines of DeepSpeed refuse both.
# - **Between 2 and 3.** For Llama 3, parameters were gathered before the forward pass and kept for
#   the backward pass, so as not to gather twice (Grattafiori et al. 2024, section 3.3.2). In
#   PyTorch this is `reshard_after_forward=False`. Since parameters are sharded again after the
#   backward pass, it sends m times the bytes of stage 1.
# - **Gradients in float32.** Llama 3's training, and Megatron-LM unless told otherwise, add up and
#   reduce the gradients of bfloat16 parameters in float32. Then a parameter takes 18 bytes, and in
#   stage 1 a device holds 6 + 12/n of them (Megatron Core, *Distributed Optimizer*). A step of
#   stage 1 then sends 1.5 times as many bytes: 4 for the gradient and 2 for the parameter, in place
#   of 2 and 2.
# - **Overlap.** Gradients are reduced in buckets (lesson 05) during the backward pass. Stage 3
#   gathers the next layer while it computes one.
# - **Enough tokens.** A gather or a reduction sends the same bytes for any number of tokens, so
#   more tokens in a microbatch hide it better. (More microbatches do not: in stages 2 and 3 each of
#   them sends again.) At the peak of an H100, stage 3 hides with about 2,200 tokens on each device
#   of a node, and with 2,475 over many nodes with a network card for each GPU (Austin et al. 2025,
#   chapter on GPUs). So crossing nodes is no reason against stage 3, but slow links are: four home
#   machines with an RTX 4090 each and 10 Gb Ethernet need about 100,000. Where tokens are too few,
#   shard inside the node and replicate over nodes (lesson 10).
# - **What remains** are activations (lesson 08), buffers, and gaps between arrays that are too
#   small to be used (Rajbhandari et al. 2020, section 3.2).

# %% tags=["fold"]
home, h100 = find_cluster("rtx4090"), find_cluster("h100")
needed = {}
for name, cluster, devices in (("home", home, 4), ("node", h100, 8), ("nodes", h100, 1024)):
    layout = Layout(fsdp=devices)
    peak = cluster.device.peak_flops["bf16"]
    needed[name] = round(float(tokens_to_hide(layout, "fsdp", cluster, peak)))
# 2,200 and 2,475 are without the factor (n-1)/n of 8 devices, and of 128 nodes
assert needed == {"home": 99120, "node": 1923, "nodes": 2453}
one_gather = collective_seconds("all_gather", 2 * 8.03e9 / 64, Layout(fsdp=64), "fsdp", h100)
assert round(24 * float(one_gather), 1) == 0.8  # seconds, on paper 2
assert round(6 * 8.03e9 * 8 * 8192 / (0.4 * h100.device.peak_flops["bf16"]), 1) == 8.0

# %% [markdown]
# ## Exercises

# %%
exercises("09")

# %% [markdown]
# ## On paper
#
# 1. Llama 3 70B has 70.6 billion parameters. You train it with Adam in mixed precision on 256 H100
#    of 80 GB, with ZeRO alone. Which stages fit, and how much does a device hold in each?
#
# <details><summary>Answer</summary>
#
# Stage 1: 4 times 70.6 and 12/256 times 70.6, which is 285.7 GB. Stage 2: 2 times 70.6 and 14/256
# times 70.6, which is 145.1 GB. Stage 3: 16/256 times 70.6, which is 4.4 GB. Only stage 3 fits. The
# alternative is to split the model as well: with tensor parallelism of 8 (lesson 11) and stage 1
# over the other 32, it is 38.6 GB.
#
# </details>
#
# 2. Llama 3 8B has 8.03 billion parameters. In a step each of 64 H100 takes 8 microbatches of one
#    sequence of 8,192 tokens, and everything is sent in 16 bits. What does a device hold and send
#    in each stage? Which stage do you take?
#
# <details><summary>Answer</summary>
#
# 63/64 of 16.06 GB are 15.8 GB. Stage 1 holds 33.6 GB and sends 2 times 15.8 GB, which is 31.6 GB.
# Stage 2 holds 17.8 GB and sends 9 times 15.8 GB, 142 GB. Stage 3 holds 2.0 GB and sends 24 times
# 15.8 GB, 379 GB. If the activations fit beside 33.6 GB, take stage 1. If not, stage 3 is cheap
# here, because a microbatch has more than 2,475 tokens: sending takes 0.8 s by the cost model,
# beside 8.0 s of computing at 40% of the peak. Full recomputation (lesson 08) would add up to a
# third to what is computed.
#
# </details>
#
# 3. The optimizer Muon keeps one mean of the gradients, and needs products of whole matrices for
#    its update. How many bytes does a parameter take with it in mixed precision? Why can a device
#    not update 1/n of each matrix, and what can be split instead?
#
# <details><summary>Answer</summary>
#
# 2 for the parameter, 2 for the gradient, 4 for the master weight, 4 for the mean: 12. The update
# of any row needs the whole matrix, so Muon is not elementwise. Either each device updates some of
# the matrices, and these as a whole; or the shards of a matrix are gathered for the update, as in
# Liu et al. 2025.
#
# </details>
#
# ## Sources
#
# Austin et al. 2025, *How to Scale Your Model*. Grattafiori et al. 2024, *The Llama 3 Herd of
# Models*. Liu et al. 2025, *Muon is Scalable for LLM Training*. NVIDIA, *Megatron Core User Guide*,
# page "Distributed Optimizer". Pascanu, Mikolov and Bengio 2013, *On the Difficulty of Training
# Recurrent Neural Networks* (clipping). Rajbhandari et al. 2020, *ZeRO: Memory Optimizations Toward
# Training Trillion Parameter Models*, sections 3, 5 and 7. Xu et al. 2020, *Automatic Cross-Replica
# Sharding of Weight Update in Data-Parallel Training*. Zhao et al. 2023, *PyTorch FSDP: Experiences
# on Scaling Fully Sharded Data Parallel*.
#
# | here | PyTorch | DeepSpeed | Megatron-LM |
# |---|---|---|---|
# | stage 1 | `ZeroRedundancyOptimizer` | `stage: 1` | `--use-distributed-optimizer` |
# | stage 2 | `reshard_after_forward=False` (nearly) | `stage: 2` | Megatron-FSDP: `optim_grads` |
# | stage 3 | `fully_shard` | `stage: 3` | Megatron-FSDP: `optim_grads_params` |
# | `clip_shards` | `clip_grad_norm_` | `gradient_clipping` | `--clip-grad` |
#
# PyTorch's `ZeroRedundancyOptimizer` gives whole parameters to each device. DDP all-reduces their
# gradients before, and each device broadcasts its parameters after, so it sends 1.5 times as much
# as stage 1 here.
