# %% [markdown]
# # Lesson 12: vocabulary and sequence
#
# Tensor parallelism (lesson 11) splits the matrices of layers. Two things are still replicated.
# *Vocabulary parallelism* splits the first: the tables of tokens, and with them the logits.
# *Sequence parallelism* splits the second: the norms, dropout and residuals between the blocks, and
# what they keep.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import numpy as np
from jax import P, lax

from jaxpar import nn
from jaxpar.cost.activations import activation_bytes
from jaxpar.cost.communication import wire_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import compiled, inspect, program
from jaxpar.model import Settings, Split, init, loss_fn, split_specs
from jaxpar.parallel import ring_matmul, sequence, vocabulary
from jaxpar.parallel.remat import scan_layers

n, mesh = 8, make_mesh("tp=8")
replicated, rows, columns = P(), P("tp"), P(None, "tp")


def on_devices(function, takes, gives, mesh=mesh):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives))


# %% [markdown]
# ## The idea in one picture
#
# Four positions (rows) on four devices. Between blocks a device has the full vectors of its own
# positions; inside a block it has, for all positions, the outputs of its own columns of the first
# matrix.


# %%
def moment(title, mark, mine):
    held = [np.broadcast_to(mine == device, (4, 4)) for device in range(4)]
    owners = [np.where(one, device, NOBODY) for device, one in enumerate(held)]
    return panel(title, [np.where(one, mark, ".") for one in held], owners)


positions, columns_of_h = np.arange(4)[:, None], np.arange(4)[None]
first = moment("Norm, then an all-gather (g)", "x", positions)
inside = moment("Columns of one matrix, rows of the next", "h", columns_of_h)
last = moment("A reduce-scatter (g bar), dropout", "x", positions)
draw("12_sequence", Panels("The stream x, and an MLP's hidden h", [first, inside, last]))

# %% [markdown]
# ## Predict
#
# Your turn, before you read on. Llama 3 8B has d = 4096 and v = 128,256 tokens in its vocabulary.
#
# 1. For 8192 tokens in a batch: how many bytes do the logits take, in float32? How many does a
#    layer keep for its gradient, in 16 bits? (Lesson 08: 34 bytes for each number of x.)
# 2. Every device has the logits of v/n tokens. What must the devices send each other about each
#    position?
# 3. Sequence parallelism has an all-gather and a reduce-scatter in place of each all-reduce. Does
#    it send more bytes? Does it keep fewer?

# %%
tokens, d, v = 8192, 4096, 128_256
logits = 4 * tokens * v
kept = partial(activation_bytes, remat="selective")
layer = kept(1, tokens, d, 32, 1, tp=1, sequence_parallel=False)
layer_of_8 = kept(1, tokens, d, 32, 1, tp=n, sequence_parallel=False)
held = {"what one layer keeps": (layer, layer_of_8), "logits": (logits, logits / n)}
shown = [(name, *(round(size / 1e6, 1) for size in sizes)) for name, sizes in held.items()]
table("Held, MB", ("", "by one device alone", f"by each of {n}, tp={n}"), shown)
sent = {
    "to gather all logits": wire_bytes("all_gather", logits // n, n),
    "three numbers a position": 3 * wire_bytes("all_reduce", 4 * tokens, n),
}
shown = [(name, round(size / 1e6, 1)) for name, size in sent.items()]
table(f"Sent by each of {n}, MB", ("", "MB"), shown)
assert layer == 34 * tokens * d and layer_of_8 == 13 * tokens * d and logits > 3 * layer

# %% [markdown]
# Logits are the largest array of a step, and their gradient is as large. Answer 2: three numbers,
# the largest logit, the sum of exponentials, and the logit of the label.
#
# Answer 3, for a layer and a step of our decoder below, in float32 and without dropout; X is the
# number of bytes of x. Tensor parallelism has 4 all-reduces of X. A layer keeps 16 arrays of X.
# Four are between the blocks: the layer's input, the stream after attention, and the outputs of the
# two norms. The others are inside the blocks, where every way holds 1/n of them: queries, keys,
# values, the output of attention, and 2 times 4 arrays in the MLP.

# %%
b, s, d = 2, 64, 64
X = 4 * b * s * d
gather, all_reduce = wire_bytes("all_gather", X // n, n), wire_bytes("all_reduce", X, n)
assert all_reduce == gather + wire_bytes("reduce_scatter", X, n)
ways = {  # of 4 arrays of X: replicated, and split; then, how often one is gathered again
    "tensor parallel": (Split("tp"), 4, 0, 0),
    "sequence, shard kept": (Split("tp", True), 0, 4, 2),
    "sequence, gathered kept": (Split("tp", True, "gathered"), 2, 2, 0),
}
predicted = {
    name: (4 * all_reduce + again * gather, entire * X + (parts + 12) * X // n)
    for name, (_, entire, parts, again) in ways.items()
}
shown = [(k, *two, round(two[1] / X, 2)) for k, two in predicted.items()]
table(f"Predicted, X = {X:,}", ("", "bytes sent", "bytes kept", "/ X"), shown)

# %% [markdown]
# An all-reduce is a reduce-scatter and an all-gather; sequence parallelism puts the norm between
# the two. So it sends the same bytes. But the gradient with respect to the first matrix needs all
# positions. Either the gathered positions are kept, or only the shard is kept, and gathered again.
#
# ## Implement
#
# **Embedding.** Device i has the rows i*v/n to (i+1)*v/n - 1 of the table. It looks up the tokens
# that it has, and returns zeros for all others. On four devices:

# %%
ids, small = np.array([6, 0, 3, 5]), np.arange(10.0, 26).reshape(8, 2)
look_up = partial(vocabulary.partial_embedding, axis="tp")
run = on_devices(lambda *both: look_up(*both)[None], (replicated, rows), rows, make_mesh("tp=4"))
found = run(ids, small)
owners = [np.where(part > 0, i, NOBODY) for i, part in enumerate(found)]
draw("12_embedding", Panels("Tokens 6, 0, 3, 5 of 8", [panel("Found", found, owners)]))
np.testing.assert_array_equal(found.sum(axis=0), small[ids])

# %% [markdown]
# The sum over the devices is the embedding; with sequence parallelism it is a reduce-scatter.
#
# **Head.** Its columns are tokens: a device has the logits of its own tokens. A *tied* head is the
# transposed embedding, and the split of the embedding is already the right one for it; the
# gradients of both uses are computed on the same device.

# %%
show(vocabulary.vocab_parallel_logits)

# %% [markdown]
# **Loss.** Here it is written with explicit loops over devices. If the largest logit were not
# subtracted, the exponential would overflow, at 89 in float32. Any number near it would do: it
# changes only the rounding, so it needs no gradient. The backward pass sends nothing, because each
# device has all that it needs.


# %%
def loss_of_all(shards, labels):  # shards[i] is [t, v/n], of device i
    tokens, size = shards[0].shape
    total, found = np.zeros((2, tokens))
    largest = np.full(tokens, -np.inf)
    for shard in shards:  # the first all-reduce, a maximum
        largest = np.maximum(largest, shard.max(axis=1))
    for shard in shards:  # the second, a sum
        total += np.exp(shard - largest[:, None]).sum(axis=1)
    for device, shard in enumerate(shards):  # the third: one device has it
        for position, label in enumerate(labels):
            if label // size == device:
                found[position] += shard[position, label % size]
    return np.log(total) + largest - found


rng = np.random.default_rng(0)
scores, labels = 50 * rng.normal(size=(6, 32)).astype(np.float32), rng.integers(0, 32, 6)
losses = loss_of_all(np.split(scores, n, axis=1), labels)
np.testing.assert_allclose(losses, nn.cross_entropy(scores, labels), rtol=1e-5)
assert 88 < np.log(np.finfo(np.float32).max) < 89

# %% [markdown]
# **Sequence.** A norm, dropout and a residual treat each position separately, on whichever device
# it is. Before the first matrix the positions are gathered; after the second they are summed and
# scattered. Each of the two is the transpose of the other. (The paper calls them g and g bar; the g
# of lesson 11 is another one.)
#
# | | where | forward | backward |
# |---|---|---|---|
# | g | into a block | all-gather | reduce-scatter |
# | g bar | out of it | reduce-scatter | all-gather |
#
# The scale of a norm is replicated, and each device computes a gradient from its own positions. If
# the scale is typed as varying once, before the loop over layers, its gradient is summed only once.
# A mask of dropout is split like x, so each device draws its own: `dropout(y, rate, axis="tp",
# key=key)` of lesson 11.

# %%
show(sequence.gathered_linear, Split.total)

# %% [markdown]
# ## Measure
#
# The loss and gradients of a GPT with a tied head, in three ways. What one layer adds is the
# difference between 32 layers and 4, divided by 28. *Selective* recomputation keeps the 16 arrays.

# %%
batch = rng.integers(0, 256, (b, s + 1))
gpt = partial(Settings, d_model=d, heads=8, mlp="gelu", positions="learned", tied=True)


def random_params(layers):
    like = jax.eval_shape(partial(init, gpt(layers=layers)), jax.random.key(0))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: np.float32(rng.normal(0, 0.1, leaf.shape)), like)


def measure(split, layers):
    settings, params = gpt(layers=layers), random_params(layers)
    specs = split_specs(settings, params, axis="tp", n=n)
    loss = loss_fn(settings, partial(scan_layers, remat="selective"), split)
    run = on_devices(jax.value_and_grad(loss), (specs, replicated), (replicated, specs))
    lowered = run.lower(params, batch)
    ready = compiled.compile_program(lowered)
    report = program.inspect_compiled(lowered, ready)
    sizes = sum(report.wire_bytes_by_axis().values()), report.memory.temp_bytes
    return np.array(sizes), report, ready.executable(params, batch)


splits = [split for split, *_ in ways.values()]
with ThreadPoolExecutor(2) as pool:  # compiling takes nearly all of the time
    few, many = (list(pool.map(measure, splits, [layers] * 3)) for layers in (4, 32))
measured = {k: ((many[i][0] - few[i][0]) // 28).tolist() for i, k in enumerate(ways)}
shown = [(k, *two, round(two[1] / X, 2)) for k, two in measured.items()]
table(f"Measured, X = {X:,}", ("", "bytes sent", "bytes kept", "/ X"), shown)

# %% [markdown]
# ## Compare
#
# The memory is as predicted, within 1%. So are the bytes, except for the gradients with respect to
# the scales of the two norms: with sequence parallelism each device computes them from its own
# positions, and an all-reduce adds them up. The loss is that of one device; it took three
# all-reduces of one number for each position.

# %%
norms = 2 * wire_bytes("all_reduce", 4 * d, n)
assert [kept(1, 1, 1, 1, 1, tp=8, sequence_parallel=way) for way in (0, 1)] == [13, 4.25]
for name, (split, *_) in ways.items():
    sent, held = predicted[name]
    assert measured[name][0] == sent + norms * split.sequence
    np.testing.assert_allclose(measured[name][1], held, rtol=0.01)
one_device = jax.jit(loss_fn(gpt(layers=4)))(random_params(4), batch)
for _, report, (loss, gradients) in few:
    np.testing.assert_allclose(loss, one_device, rtol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), gradients, few[0][2][1])
    of_loss = [c for c in report.collectives if c.operand_bytes == 4 * b * s]
    assert [(c.kind, c.times) for c in of_loss] == 3 * [("all_reduce", 1)]

# %% [markdown]
# In 16 bits, and with two masks of dropout, the 16 arrays are the 34 bytes of Korthikanti et al.
# With tensor parallelism alone, 10 of these bytes are replicated: on 8 devices a device holds 13
# bytes, and with sequence parallelism 4.25.
#
# **The ring matmul.** Gathering and multiplying do not overlap: the product waits for the last
# position. In rounds it need not wait. While the rows that are here are multiplied, they travel to
# the next device, and no device ever holds all rows. That is an exercise. The other end of the
# block is its mirror image: in each round a device adds its product to the sum that arrives.

# %%
show(ring_matmul.matmul_ring)
enter, leave = (rows, columns), (columns, rows)  # x and w; the result is as w
products = {
    "gather, multiply": (enter, lambda x, w: lax.all_gather(x, "tp", tiled=True) @ w),
    "ring_matmul": (enter, partial(ring_matmul.ring_matmul, axis="tp")),
    "multiply, scatter": (leave, lambda x, w: lax.psum_scatter(x @ w, "tp", tiled=True)),
    "matmul_ring": (leave, partial(ring_matmul.matmul_ring, axis="tp")),
}
x, w = rng.normal(size=(2, 256, 256)).astype(np.float32)
shown = []
for name, (specs, function) in products.items():
    run = on_devices(function, specs, specs[1])
    np.testing.assert_allclose(run(x, w), x @ w, rtol=1e-3, atol=1e-3)
    report = inspect(run, x, w)
    shown.append((name, *report.wire_bytes_by_axis().values(), report.memory.temp_bytes))
table("A product of 256 x 256 matrices", ("", "bytes sent", "temp bytes"), shown)
assert len({sent for _, sent, _ in shown}) == 1
assert all(3 * shown[i + 1][2] < shown[i][2] for i in (0, 2))

# %% [markdown]
# The same bytes, in n - 1 = 7 rounds, and less than a third of the memory. A CPU shows no gain.
#
# ## On real hardware
#
# - **Use it with tensor parallelism**, as most large runs do: the same bytes forward, less memory,
#   less work in norms. Megatron keeps the shard, and hides the second gather behind a product.
# - **The vocabulary is padded**: n must divide it, and products like multiples of 64. Megatron-LM
#   pads to a multiple of 128 times tp (`--make-vocab-size-divisible-by 128`), so that each device
#   has a multiple of 128. GPT-2's 50,257 tokens become 50,304 with tp=1, and 51,200 with tp=8.
# - **Logits in parts.** Fused kernels go from x to the loss for a few positions at a time.
# - `jaxpar train --mesh tp=4 --sequence-parallel`, or `--mesh dp=2,tp=4`.
#
# ## Exercises

# %%
padded = {tp: -(-50_257 // (128 * tp)) * 128 * tp for tp in (1, 8)}
assert padded == {1: 50_304, 8: 51_200}
exercises("12")

# %% [markdown]
# ## Sources
#
# Shoeybi et al. 2019, *Megatron-LM*. Korthikanti et al. 2022, *Reducing Activation Recomputation*.
# Wang et al. 2023, *Overlap Communication with Dependent Computation via Decomposition*.
#
# | here | Megatron | others |
# |---|---|---|
# | parallel embedding | `VocabParallelEmbedding` | PyTorch: `RowwiseParallel` |
# | parallel loss | `vocab_parallel_cross_entropy` | PyTorch: `loss_parallel` |
# | sequence parallelism | `--sequence-parallel` | PyTorch: `SequenceParallel` |
# | ring matmul | `--tp-comm-overlap` | XLA: collective matmul; PyTorch: async TP |
