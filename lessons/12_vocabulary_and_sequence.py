# %% [markdown]
# # Lesson 12: vocabulary and sequence
#
# Tensor parallelism (lesson 11) splits the matrices of every layer. Two things it leaves whole on
# every device: the tables of tokens, with the logits of all tokens; and what lies between the
# matrices, which is norms, dropout, residuals, and the activations that they keep. The first is
# split by *vocabulary parallelism*, the second by *sequence parallelism*.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import P, lax

from jaxpar import nn
from jaxpar.cost.activations import activation_bytes
from jaxpar.cost.communication import wire_bytes
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import NOBODY, draw, panel
from jaxpar.inspector import compiled, inspect, program
from jaxpar.model import Settings, Split, init, loss_fn, split_specs
from jaxpar.parallel import ring_matmul, sequence, vocabulary
from jaxpar.parallel.remat import scan_layers

n, mesh = 8, make_mesh("tp=8")
whole, positions = P(), P(None, "tp")
columns, rows = P(None, "tp"), P("tp")


def on_devices(function, takes, gives, mesh=mesh):
    split = jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives)
    return jax.jit(split)


# %% [markdown]
# ## The idea in one picture
#
# Four positions (rows) and four devices. Between the blocks a device has its positions, and whole
# vectors. Inside it has all positions, but its part of each vector: its columns of what the first
# matrix gives.


# %%
def moment(title, mark, mine):
    held = [np.broadcast_to(mine == device, (4, 4)) for device in range(4)]
    owners = [np.where(one, device, NOBODY) for device, one in enumerate(held)]
    return panel(title, [np.where(one, mark, ".") for one in held], owners)


of_positions, of_columns = np.arange(4)[:, None], np.arange(4)[None]
draw(
    "12_sequence",
    "The stream x through an MLP with hidden activations h",
    moment("Norm. Then an all-gather (g)", "x", of_positions),
    moment("First matrix. The second gives partial sums", "h", of_columns),
    moment("Reduce-scatter (g bar). Then dropout, residual", "x", of_positions),
)

# %% [markdown]
# ## Predict
#
# Your turn, before you read on. Llama 3 8B has d = 4096 and v = 128,256 tokens in its vocabulary.
#
# 1. For 8192 tokens in a batch: how many bytes do the logits take, in float32? How many does a
#    layer keep for its gradient, in 16 bits? (Lesson 08: 34 bytes for each number of x.)
# 2. Every device has the logits of v/n tokens. What must devices tell each other about a position,
#    so that all know its loss?
# 3. Sequence parallelism has an all-gather and a reduce-scatter in place of each all-reduce. Does
#    it send more bytes? Does it keep fewer?

# %%
tokens, d, v = 8192, 4096, 128_256
logits = 4 * tokens * v
layer = activation_bytes(1, tokens, d, 32, 1, tp=1, sequence_parallel=False, remat="selective")
held = {"one layer keeps": layer, "logits": logits, "logits of v/8 tokens": logits / n}
sent = {
    "gather all logits": wire_bytes("all_gather", logits // n, n),
    "three numbers a position": 3 * wire_bytes("all_reduce", 4 * tokens, n),
}
shown = [(name, round(size / 1e6, 1)) for name, size in (held | sent).items()]
table("On each device, held, or sent to 7 others", ("", "MB"), shown)
assert layer == 34 * tokens * d and logits > 3 * layer

# %% [markdown]
# Logits are the largest array of a step, and their gradient is as large. Three numbers: the largest
# logit, the sum of exponentials, and the logit of the label. Answer 3 is for our decoder below, in
# float32 and without dropout. X are the bytes of x, and bytes are for one layer and one step.
#
# A layer keeps 16 arrays: of size X its input, the stream between attention and MLP, and what the
# two norms make of them; then queries, keys, values, attention's result, and twice 4 in the MLP.

# %%
b, s, d = 2, 64, 64
X = 4 * b * s * d
pair = wire_bytes("all_gather", X // n, n) + wire_bytes("reduce_scatter", X, n)
assert pair == wire_bytes("all_reduce", X, n)
ways = {  # of the 16 arrays, 12 are inside, where every way has 1/n of them
    "tensor parallel": (Split("tp"), 4, 0, 0),
    "sequence, shard kept": (Split("tp", sequence=True), 0, 4, 2),
    "sequence, gathered kept": (Split("tp", sequence=True, keep="gathered"), 2, 2, 0),
}
predicted = {}
for name, (_, entire, parts, again) in ways.items():
    more = again * wire_bytes("all_gather", X // n, n)
    predicted[name] = 4 * pair + more, entire * X + (parts + 12) * X // n
shown = [(k, *two, round(two[1] / X, 2)) for k, two in predicted.items()]
table(f"Predicted, X = {X:,}", ("", "bytes sent", "bytes kept", "/ X"), shown)

# %% [markdown]
# An all-reduce is a reduce-scatter and an all-gather; sequence parallelism does the norm in
# between. So it sends the same bytes. But the gradient of the first matrix needs all positions.
# Either they are kept as they were gathered, or the shard is kept, and gathered again.
#
# ## Implement
#
# **Embedding.** Device i has rows i*v/n to (i+1)*v/n - 1 of the table. It looks up the tokens that
# it has, and gives zeros for all others:

# %%
show(vocabulary.partial_embedding)
ids, small = jnp.array([6, 0, 3, 5]), jnp.arange(16).reshape(8, 2) + 10.0
look_up = partial(vocabulary.partial_embedding, axis="tp")
parts = on_devices(
    lambda ids, rows: look_up(ids, rows)[None], (whole, rows), rows, make_mesh("tp=4")
)(ids, small)
owners = [np.where(part > 0, device, NOBODY) for device, part in enumerate(parts)]
title = f"Tokens {', '.join(map(str, ids))} of a vocabulary of 8"
draw("12_embedding", title, panel("What each of four devices finds", parts, owners))
np.testing.assert_array_equal(parts.sum(axis=0), small[ids])

# %% [markdown]
# The sum over the devices is the embedding. To write it is your first exercise. With sequence
# parallelism the sum is a reduce-scatter: nobody ever has more than its positions.
#
# **Head.** Its columns are tokens. Each device multiplies x by its columns, and has the logits of
# its tokens. A *tied* head is the transposed embedding: the rows of a device are these very
# columns, so that nothing is sent, and the gradients of both uses meet on the same device.
#
# **Loss.** Here with an explicit loop over devices. Without the largest logit the exponential
# overflows, at 89 in float32. Any number near it would do: it changes nothing but the rounding, so
# no gradient goes through it.


# %%
def loss_of_all(shards, labels):  # shards[i] is [t, v/n], of device i
    tokens, size = shards[0].shape
    largest, total, found = np.full(tokens, -np.inf), np.zeros(tokens), np.zeros(tokens)
    for shard in shards:  # the first all-reduce, a maximum
        largest = np.maximum(largest, shard.max(axis=1))
    for shard in shards:  # the second, a sum
        total += np.exp(shard - largest[:, None]).sum(axis=1)
    for device, shard in enumerate(shards):  # the third: one device has something to add
        for position, label in enumerate(labels):
            if label // size == device:
                found[position] += shard[position, label % size]
    gradients = [np.exp(shard - largest[:, None]) / total[:, None] for shard in shards]
    for position, label in enumerate(labels):
        gradients[label // size][position, label % size] -= 1
    return np.log(total) + largest - found, gradients


rng = np.random.default_rng(0)
scores, labels = 50 * rng.normal(size=(6, 32)).astype(np.float32), rng.integers(0, 32, 6)
losses, gradients = loss_of_all(np.split(scores, n, axis=1), labels)
on_one = partial(jax.vjp, partial(nn.cross_entropy, targets=labels))
right, pull = jax.jit(on_one)(scores)
np.testing.assert_allclose(losses, right, rtol=1e-5, atol=1e-5)
(right,) = jax.jit(pull)(np.ones_like(right))
np.testing.assert_allclose(np.concatenate(gradients, axis=1), right, atol=1e-5)
with np.errstate(over="ignore"):
    assert np.isinf(np.exp(np.float32(89))) and np.isfinite(np.exp(np.float32(88)))

# %% [markdown]
# The gradient, softmax less 1 at the label, needs only what the device knows already: backward
# nothing is sent.
#
# **Sequence.** A norm, dropout and a residual do the same for each position, whoever has it. Before
# the first matrix positions are gathered, after the second they are summed and scattered; each of
# the two is the other's derivative:
#
# | | forward | backward |
# |---|---|---|
# | f, enters the block (lesson 11) | nothing | all-reduce |
# | f bar, leaves it (there: g) | all-reduce | nothing |
# | g, enters with sequence parallelism | all-gather | reduce-scatter |
# | g bar, leaves | reduce-scatter | all-gather |
#
# For the first matrix (or several, which share one gather):

# %%
show(sequence.gathered_linear)

# %% [markdown]
# Here it is around the gated MLP of Llama, with norm, dropout and residual. The mask is cut as x
# is: each device draws its own. The scale of the norm is equal on all devices, and each finds the
# gradient of its positions; typed as varying once, it is summed once.


# %%
def block(x, scale, gate, up, down, mask):
    normed = nn.rms_norm(x, lax.pcast(scale, "tp", to="varying"))
    hidden = nn.swiglu(*sequence.gathered_linear(normed, gate, up, axis="tp"))
    y = sequence.scatter_sequence(nn.matmul(hidden, down), axis="tp")
    return x + mask * y


def whole_block(x, scale, gate, up, down, mask):
    normed = nn.rms_norm(x, scale)
    return x + mask * nn.matmul(nn.swiglu(normed @ gate, normed @ up), down)


def gradients_of(function):  # of the sum of squares, by scale and gate
    return jax.grad(lambda *args: (function(*args) ** 2).sum(), (1, 2))


sizes = (2, 16, 8), (8,), (8, 32), (8, 32), (32, 8)
args = [rng.normal(size=size).astype(np.float32) / 4 for size in sizes]
args.append((rng.random(sizes[0]) < 0.9).astype(np.float32) / 0.9)
takes = positions, whole, columns, columns, rows, positions
run = on_devices(gradients_of(block), takes, (whole, columns))
for got, right in zip(run(*args), jax.jit(gradients_of(whole_block))(*args), strict=True):
    np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)

# %% [markdown]
# ## Measure
#
# A GPT with a tied head, in three ways: its loss and gradients. What one layer adds is the
# difference of 8 layers and 4. *Selective* recomputation keeps the 16 arrays.

# %%
batch = rng.integers(0, 256, (b, s + 1))
gpt = partial(Settings, d_model=d, heads=8, mlp="gelu", positions="learned", tied=True)
selective = partial(scan_layers, remat="selective")


def random_params(layers):
    like = jax.eval_shape(partial(init, gpt(layers=layers)), jax.random.key(0))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: rng.normal(0, 0.1, leaf.shape).astype(np.float32), like)


def measure(split, layers):
    settings, params = gpt(layers=layers), random_params(layers)
    specs = split_specs(settings, params, axis="tp", n=n)
    step = jax.value_and_grad(loss_fn(settings, selective, split))
    lowered = on_devices(step, (specs, whole), (whole, specs)).lower(params, batch)
    ready = compiled.compile_program(lowered)
    return program.inspect_compiled(lowered, ready), ready.executable(params, batch)


splits = [split for split, *_ in ways.values()]
with ThreadPoolExecutor(2) as pool:  # compiling takes nearly all the time of this lesson
    few, many = (list(pool.map(measure, splits, [layers] * 3)) for layers in (4, 8))
measured = {}
for name, (less, _), (more, _) in zip(ways, few, many, strict=True):
    sent, kept = (
        [sum(report.wire_bytes_by_axis().values()), report.memory.temp_bytes]
        for report in (less, more)
    )
    measured[name] = tuple((more - less) // 4 for less, more in zip(sent, kept))
shown = [(k, *two, round(two[1] / X, 2)) for k, two in measured.items()]
table(f"Measured, X = {X:,}", ("", "bytes sent", "bytes kept", "/ X"), shown)

# %% [markdown]
# ## Compare
#
# Memory is as predicted, within 2%. Bytes are, too, but for the gradients of the two norms' scales:
# with sequence parallelism each device finds the part of its positions, and an all-reduce adds them
# up. The loss is that of one device.

# %%
norms = 2 * wire_bytes("all_reduce", 4 * d, n)
for name, (split, *_) in ways.items():
    sent, kept = predicted[name]
    assert measured[name][0] == sent + norms * split.sequence
    np.testing.assert_allclose(measured[name][1], kept, rtol=0.02)
one_device = jax.jit(loss_fn(gpt(layers=8)))(random_params(8), batch)
for report, (loss, gradients) in many:
    np.testing.assert_allclose(loss, one_device, rtol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), gradients, many[0][1][1])
    of_loss = [c for c in report.collectives if c.operand_bytes == 4 * b * s]
    assert [(c.kind, c.times) for c in of_loss] == 3 * [("all_reduce", 1)]

# %% [markdown]
# For the loss there are three all-reduces of one number for each position, and no more.
#
# In 16 bits and with two masks of dropout, of a byte for each number, the 16 arrays are the 34
# bytes of Korthikanti et al. Plain tensor parallelism has 10 of them whole on every device, so that
# more devices help less and less:

# %%
kept = partial(activation_bytes, 1, 1, 1, 1, 1, remat="selective")  # for each number of x
shown = []
for devices in (1, 2, 4, 8, 64):
    plain, by_sequence = (kept(tp=devices, sequence_parallel=way) for way in (False, True))
    assert plain == 10 + 24 / devices and by_sequence == 34 / devices
    shown.append((devices, round(plain, 2), round(by_sequence, 2)))
table("Bytes kept for each number of x", ("n", "tensor", "and sequence"), shown)

# %% [markdown]
# **The ring matmul.** Between gathering and multiplying nothing overlaps: the product waits for the
# last position. In rounds it need not. While the rows that are here are multiplied, they travel to
# the next device; and no device ever holds all rows. That is an exercise. The other end of the
# block is its mirror image: in each round a device adds its product to the sum that arrives.

# %%
show(ring_matmul.matmul_ring)
ways_in = {
    "gather, then multiply": lambda x, w: lax.all_gather(x, "tp", tiled=True) @ w,
    "ring_matmul": partial(ring_matmul.ring_matmul, axis="tp"),
}
ways_out = {
    "multiply, then reduce-scatter": lambda x, w: lax.psum_scatter(x @ w, "tp", tiled=True),
    "matmul_ring": partial(ring_matmul.matmul_ring, axis="tp"),
}
x, w = rng.normal(size=(2, 256, 256)).astype(np.float32)
shown = []
for name, function in (ways_in | ways_out).items():
    takes = (rows, columns) if name in ways_in else (columns, rows)
    run = on_devices(function, takes, takes[1])
    np.testing.assert_allclose(run(x, w), x @ w, rtol=1e-3, atol=1e-3)
    report = inspect(run, x, w)
    (sent,) = report.wire_bytes_by_axis().values()
    shown.append((name, sent, report.memory.temp_bytes))
table("A product of 256 x 256 matrices on 8 devices", ("", "bytes sent", "temp bytes"), shown)
assert len({sent for _, sent, _ in shown}) == 1
assert shown[1][2] < shown[0][2] and shown[3][2] < shown[2][2]

# %% [markdown]
# The same bytes, in 7 steps, and less memory. What it saves in time a CPU cannot show.
#
# ## On real hardware
#
# - **Sequence parallelism is always on** where tensor parallelism is: same bytes, fewer norms on
#   each device, and less memory. Megatron keeps the shard, and hides the second gather behind the
#   product with the transposed weights, which does not need it.
# - **The vocabulary is padded**, as n must divide it, and small matrices are slow unless their
#   sizes are multiples of 64 or so. GPT-2's 50,257 tokens become 50,304 with Megatron's 128.
# - **Logits in parts.** Even v/n of the logits may be too many: kernels that compute the loss for
#   some positions at a time, from x and the head, never hold all of them.
# - `jaxpar train --mesh tp=4 --sequence-parallel`, or `--mesh dp=2,tp=4`.
#
# ## Exercises

# %%
assert -(-50_257 // 128) * 128 == 50_304
exercises("12")

# %% [markdown]
# ## Sources
#
# Shoeybi et al. 2019, *Megatron-LM*. Korthikanti et al. 2022, *Reducing Activation Recomputation in
# Large Transformer Models*. Wang et al. 2023, *Overlap Communication with Dependent Computation via
# Decomposition in Large Deep Learning Models*.
#
# | here | Megatron | others |
# |---|---|---|
# | parallel embedding | `VocabParallelEmbedding` | PyTorch: `RowwiseParallel` |
# | parallel loss | `vocab_parallel_cross_entropy` | PyTorch: `loss_parallel` |
# | sequence parallelism | `--sequence-parallel` | PyTorch: `SequenceParallel` |
# | ring matmul | `--tp-comm-overlap` | XLA: collective matmul; PyTorch: async tensor parallelism |
