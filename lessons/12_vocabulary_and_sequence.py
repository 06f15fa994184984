# %% [markdown]
# # Lesson 12: vocabulary and sequence
#
# Tensor parallelism (lesson 11) splits the matrices of each layer over the devices of an axis `tp`.
# Two things were left open there. The first is how to split the vocabulary: the embedding, which
# turns ids of tokens into vectors, and the head, which turns vectors into *logits*, one number for
# each token of the vocabulary. The second is the activations between two blocks (a *block* is
# attention or an MLP). Norms, dropout and residuals work on them, and every device still holds them
# all.
#
# Llama 3 8B has 128,256 tokens in its vocabulary, so the logits of 8,192 positions take 4.2 GB in
# float32. *Vocabulary parallelism* splits the embedding, the head and the logits over the
# vocabulary. *Sequence parallelism* splits the activations between the blocks over the positions.
# Neither needs a new axis: both use the devices of `tp`.

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
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.network import collective_seconds
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask, sent_by
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import compiled, inspect, program
from jaxpar.layout import Layout
from jaxpar.model import Settings, Split, init, loss_fn, split_specs
from jaxpar.parallel import ring_matmul, sequence, vocabulary
from jaxpar.parallel.remat import scan_layers

n, mesh = 8, make_mesh("tp=8")
rng = np.random.default_rng(0)
replicated = P()
rows = P("tp")  # dim 0 is split
columns = positions = P(None, "tp")  # dim 1 is split


def on_devices(function, takes, gives, on=mesh):  # a program from the function of one device
    return jax.jit(jax.shard_map(function, mesh=on, in_specs=takes, out_specs=gives))


# %% [markdown]
# ## The idea in one picture
#
# Here is an MLP with sequence parallelism on four devices. The rows are four positions. Vectors of
# x have two numbers, and those of h, the hidden layer, have four, one for each device. The last
# letter of a cell says which device has computed it.

# %% tags=["fold"]
four = np.arange(4)
own = [np.array([[f"x{i}", f"x{i}"]]) for i in four]
everyone = [np.array([[f"x{i}", f"x{i}"] for i in four])] * 4
hidden = [np.array([[f"h{i}"] for i in four])] * 4
partial_sums = [np.array([[f"p{i}", f"p{i}"] for i in four])] * 4
result = [np.array([[f"y{i}", f"y{i}"]]) for i in four]
title = "1. Between the blocks: full vectors of its own position. Norm, dropout, residual"
first = panel(title, own)
second = panel("2. After an all-gather: all positions", everyone, [four] * 4)
title = "3. Inside the block: h, for all positions, from its own column of the first matrix"
third = panel(title, hidden)
title = "4. h times its own row of the second matrix: a partial sum for every position"
fourth = panel(title, partial_sums)
last = panel("5. After a reduce-scatter: the sum of all p, for its own position", result)
draw(
    "12_sequence", Panels("An MLP with sequence parallelism", [first, second, third, fourth, last])
)

# %% [markdown]
# Without sequence parallelism all devices have all positions all the time, and an all-reduce adds
# up the partial sums. An all-reduce is a reduce-scatter and then an all-gather (lesson 02).
# Sequence parallelism does the norms, dropout and residuals between these two, when each device has
# only its own positions.
#
# ## Predict
#
# We shall measure a GPT on 8 devices, in float32 and without dropout: b = 2 examples of s = 64
# positions, vectors of d = 64 numbers, a vocabulary of v = 256.
#
# First the loss. Each device has 32 of the 256 logits of every position. The loss of a position is
#
# `loss = log(sum(exp(logits - largest))) + largest - logit of the label`
#
# where `largest` is the largest of the 256 logits, and `sum` adds up all 256 exponentials. All
# devices know the label. No device needs all logits: it needs the largest, the sum, and the logit
# of the label.

# %%
gathered = ask("Bytes that each device sends to gather all logits of these 128 positions")
three = ask("Bytes that each device sends for their loss, if all-reduces find these three numbers")

# %% [markdown]
# Now one layer. The activations between two blocks are `x`, `b*s*d` numbers. For its backward pass
# a layer keeps 16 arrays of this size; the scores of attention are computed again (*selective*
# recomputation, lesson 08). Four of the 16 are between the blocks: the input of the layer, x after
# attention has been added, and the outputs of the two norms. Twelve are inside the blocks, where
# tensor parallelism has already split them: queries, keys, values, the output of attention, and in
# the MLP two arrays that are four times as wide.
#
# The gradient with respect to the first matrix of a block is a product with all positions. With
# sequence parallelism a device keeps only its own positions, so the backward pass has to gather all
# again, once in each of the two blocks.

# %%
held_tp = ask("Bytes that a device keeps of one layer, with tensor parallelism alone")
held_sp = ask("Bytes that a device keeps of one layer, with sequence parallelism too")
sent_sp = ask("Bytes that it sends in one layer, forward and backward, with sequence parallelism")

# %% [markdown]
# ## Implement
#
# ### The embedding
#
# The table of the embedding has a row for each token, `[v, d]`. Device i holds the rows of the ids
# from `i*v/n` to `(i+1)*v/n - 1`. All devices get the same ids. Each looks up those whose rows it
# holds, and takes zeros for all others. The sum over the devices is the embedding. Here it is on
# four devices, with a vocabulary of 8 and rows of two numbers:

# %%
ids, embedding = np.array([6, 0, 3, 5]), np.arange(10.0, 26).reshape(8, 2)


def look_up(ids, shard):  # ids: [4], equal on all devices; shard: [2, 2], two rows of the table
    found = vocabulary.partial_embedding(ids, shard, axis="tp")
    return found[None], lax.psum(found, "tp")


on_four = on_devices(look_up, (replicated, rows), (rows, replicated), make_mesh("tp=4"))
found, total = jax.device_get(on_four(ids, embedding))
np.testing.assert_array_equal(total, embedding[ids])

# %% tags=["fold"]
owner = ids // 2
names = [f"ids {2 * i} and {2 * i + 1}" for i in four]
shards = panel("The shards of the table", np.split(embedding, 4), names=names)
given = panel("The ids: a letter says who has the row", [ids] * 4, [owner] * 4)
part = panel(
    "What each device finds", found, [np.where(owner == i, i, NOBODY)[:, None] for i in four]
)
whole = panel("After an all-reduce: the rows of all ids", [total] * 4, [owner[:, None]] * 4)
draw("12_embedding", Panels("An embedding of ids 6, 0, 3, 5", [shards, given, part, whole]))

# %% [markdown]
# With sequence parallelism a device needs only its own positions of this sum. Then a reduce-scatter
# is enough, which sends half as much.
#
# ### The head
#
# The head is a matrix `[d, v]`, and device i holds the columns of its ids. Its product with all
# positions is the logits of its own ids, `[b, s, v/n]`.

# %%
show(vocabulary.vocab_parallel_logits)

# %% [markdown]
# The `pcast` is f of lesson 11: its backward pass sums the gradient with respect to x over `tp`.
# Many models have a *tied* head, which is the transposed embedding. Its split is already right:
# rows of the table, transposed, are columns of the head, for the same ids.
#
# ### The loss
#
# By definition the loss of a position is `log(sum(exp(logits))) - logit of the label`. The formula
# above gives the same number. It subtracts the largest logit before the exponential, which in
# float32 is infinite from 89 on.
#
# Each device computes its part of the three numbers from its own logits, and the devices combine
# the parts: the largest by a maximum, the others by sums. Here is one position with 8 logits on
# four devices. The label is id 5, which device 2 has.

# %% tags=["fold"]
eight = np.array([1.0, 3, 2, 0, 5, 4, 1, 2]).reshape(4, 2)
own_largest = eight.max(axis=1)
own_sum = np.exp(eight - own_largest.max()).sum(axis=1)
own_label = np.array([0.0, 0, 4, 0])
steps = [("logits", *(f"{a:.0f}, {b:.0f}" for a, b in eight), "not sent")]
for name, values, combined in (
    ("the largest", own_largest, own_largest.max()),
    ("sum of exp(logit - 5)", own_sum, own_sum.sum()),
    ("logit of the label", own_label, own_label.sum()),
):
    steps.append((name, *(f"{value:.3g}" for value in values), f"{combined:.3g}"))
table("One position", ("", *(f"device {i}" for i in four), "all-reduce"), steps)
of_position = np.log(own_sum.sum()) + 5 - 4
print(f"Its loss is log({own_sum.sum():.3g}) + 5 - 4 = {of_position:.3g}.\n")
np.testing.assert_allclose(of_position, nn.cross_entropy(eight.reshape(8), np.int32(5)), rtol=1e-6)

# %% [markdown]
# The same for many positions, with loops in place of devices:


# %%
def loss_by_loops(shards, labels):  # shards[i]: [positions, v/n], the logits of device i
    count, size = shards[0].shape
    largest = np.full(count, -np.inf)
    total, found = np.zeros(count), np.zeros(count)
    for shard in shards:  # the first all-reduce, a maximum
        largest = np.maximum(largest, shard.max(axis=1))
    for shard in shards:  # the second, a sum
        total += np.exp(shard - largest[:, None]).sum(axis=1)
    for device, shard in enumerate(shards):  # the third, a sum in which one device has the label
        for position, label in enumerate(labels):
            if label // size == device:
                found[position] += shard[position, label % size]
    return np.log(total) + largest - found


scores, labels = 50 * rng.normal(size=(6, 32)).astype(np.float32), rng.integers(0, 32, 6)
losses = loss_by_loops(np.split(scores, n, axis=1), labels)
np.testing.assert_allclose(losses, nn.cross_entropy(scores, labels), rtol=1e-5)

# %% [markdown]
# The backward pass sends nothing. The gradient with respect to a logit is its softmax,
# `exp(logit - largest) / sum`, minus 1 if it is the label's, and the device that has the logit has
# all of these. No gradient goes through `largest`: with any other number in its place, the loss is
# the same except for rounding.
#
# Written for devices, this is `vocab_parallel_cross_entropy`, which is yours to write.
#
# ### A block by hand
#
# Now sequence parallelism. Here is the attention block of a layer, with its norm and its residual.
# A device gets its own positions of x, `[b, s/n, d]`, and returns the same positions of the result.
# The matrices are split as in lesson 11: `query`, `key` and `value` by columns, so that a device
# has some of the heads, and `output` by rows.

# %%
HEAD = 8  # numbers of a head


def own_heads(y):  # [b, s, d/n] -> [b, own heads, s, HEAD]
    return y.reshape(*y.shape[:2], -1, HEAD).swapaxes(1, 2)


def attention_by_hand(x, scale, query, key, value, output):
    scale = lax.pcast(scale, "tp", to="varying")  # each device uses it for its own positions
    normed = nn.rms_norm(x, scale)  # [b, s/n, d]
    full = lax.all_gather(normed, "tp", axis=1, tiled=True)  # [b, s, d]: all positions
    q, k, v = (own_heads(full @ w) for w in (query, key, value))
    heads = nn.attention(q, k, v).swapaxes(1, 2)  # [b, s, own heads, HEAD]
    hidden = heads.reshape(*full.shape[:2], -1)  # [b, s, d/n]
    part = hidden @ output  # [b, s, d]: a partial sum for every position
    return x + lax.psum_scatter(part, "tp", scatter_dimension=1, tiled=True)  # [b, s/n, d]


def attention_on_one_device(x, scale, query, key, value, output):
    normed = nn.rms_norm(x, scale)
    q, k, v = (own_heads(normed @ w) for w in (query, key, value))
    return x + nn.attention(q, k, v).swapaxes(1, 2).reshape(x.shape) @ output


# %% [markdown]
# The `all_gather` stands where lesson 11 had f, and the `psum_scatter` where it had g. With
# `tiled=True` they add no dim, but join and split dim 1. A device computes the norm and the
# residual for 1/n of the positions. What does the gradient of this block send? As a loss we take
# the sum of the squares of its result, and differentiate with respect to all six arguments.

# %%
shapes = ((2, 64, 64), (64,), (64, 64), (64, 64), (64, 64), (64, 64))
block_args = [rng.normal(size=shape).astype(np.float32) / 8 for shape in shapes]
specs = (positions, replicated, columns, columns, columns, rows)


def gradient(block):
    def loss(*args):
        return (block(*args) ** 2).sum()

    return jax.grad(loss, argnums=(0, 1, 2, 3, 4, 5))


by_hand = on_devices(gradient(attention_by_hand), specs, specs)
report = inspect(by_hand, *block_args)
rows_found = [(c.kind, c.operand_bytes, c.wire_bytes) for c in report.collectives]
table("One attention block, forward and backward", ("", "operand, bytes", "sent"), rows_found)

# %% tags=["fold"]
from_devices = jax.device_get(by_hand(*block_args))
on_one = jax.device_get(jax.jit(gradient(attention_on_one_device))(*block_args))
for one, other in zip(from_devices, on_one, strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)

# %% [markdown]
# The first two lines are the forward pass, and the next two the backward pass, where the
# reduce-scatter becomes an all-gather, and the all-gather a reduce-scatter (lesson 02). The small
# all-reduce is for the scale of the norm: each device has the gradient with respect to it from its
# own positions, and these are added up. Korthikanti et al. (2022) call the pair g and g bar; this g
# is not the g of lesson 11.
#
# | | where | forward | backward |
# |---|---|---|---|
# | g | into a block | all-gather | reduce-scatter |
# | g bar | out of a block | reduce-scatter | all-gather |
#
# Dropout between the blocks works on a device's own positions as well, so each device draws a mask
# of its own.
#
# ### The library's form
#
# For its backward pass the block by hand keeps `full`, all positions, which is what we wanted to
# avoid. The library keeps only the shard, and gathers again in the backward pass. That is the
# function `_gathered_again` below, whose backward pass is written by hand (`jax.custom_vjp`, lesson
# 08). With `keep="gathered"` the library does as the block by hand does. (`vary_alike` is a `pcast`
# of the arguments that do not vary yet.)

# %%
show(sequence.gathered_linear, Split.total)

# %% [markdown]
# ### The ring matmul
#
# The product has to wait for the all-gather. In rounds it need not wait: while a device multiplies
# the rows that it has, it sends them on to the next device, and receives other rows. After n rounds
# it has multiplied all rows, and never held all of them. This is the *ring matmul*, or collective
# matmul, and it is an exercise. The end of a block works the other way round: in each round a
# device computes the product for the rows of one device, and adds it to a partial sum that goes
# from device to device.

# %%
show(ring_matmul.matmul_ring)

# %% [markdown]
# ## Measure
#
# ### The loss
#
# Here are two ways to the loss of the same logits, `[2, 64, 256]`, whose vocabulary is split. The
# first gathers all logits, and does what one device would do. The second is the library's.


# %%
def gathered_loss(shard, labels):
    # [b, s, v], and typed as equal on all devices
    logits = lax.all_gather(shard, "tp", axis=2, tiled=True, to="invarying")
    return nn.cross_entropy(logits, labels).mean()


def split_loss(shard, labels):
    return vocabulary.vocab_parallel_cross_entropy(shard, labels, axis="tp").mean()


logits = rng.normal(size=(2, 64, 256)).astype(np.float32)
labels = rng.integers(0, 256, (2, 64))
of_loss = {}
for name, loss in {"logits gathered": gathered_loss, "three numbers": split_loss}.items():
    takes = P(None, None, "tp"), replicated
    run = on_devices(jax.value_and_grad(loss), takes, (replicated, takes[0]))
    of_loss[name] = inspect(run, logits, labels)
    print(f"{name}: a loss of {float(run(logits, labels)[0]):.5f}")
    for one in of_loss[name].collectives:
        print(f"    {one.kind} of {one.operand_bytes:,} bytes, sends {one.wire_bytes:,}")
print()

# %% [markdown]
# What the second sends does not depend on the vocabulary.
#
# ### A whole model
#
# Now a GPT with a tied head, its loss and its gradients, in three ways. We compile it with 4 layers
# and with 32; the difference, divided by 28, is what one layer adds. `lower` traces the program,
# and the two functions of the inspector after it compile it and read it.

# %%
batch = rng.integers(0, 256, (2, 65))
gpt = partial(Settings, d_model=64, heads=8, mlp="gelu", positions="learned", tied=True)


def random_params(layers):
    like = jax.eval_shape(partial(init, gpt(layers=layers)), jax.random.key(0))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda leaf: np.float32(rng.normal(0, 0.1, leaf.shape)), like)


def compile_gpt(split, layers):
    settings, params = gpt(layers=layers), random_params(layers)
    specs = split_specs(settings, params, axis="tp", n=n)
    loss = loss_fn(settings, partial(scan_layers, remat="selective"), split)
    run = on_devices(jax.value_and_grad(loss), (specs, replicated), (replicated, specs))
    lowered = run.lower(params, batch)
    ready = compiled.compile_program(lowered)
    return ready, program.inspect_compiled(lowered, ready)


# %% [markdown]
# Compiling takes most of the time, so two programs are compiled at once.

# %%
ways = {
    "tensor parallel": Split("tp"),
    "sequence parallel": Split("tp", sequence=True),
    "same, gathered kept": Split("tp", sequence=True, keep="gathered"),
}
with ThreadPoolExecutor(2) as pool:
    few = dict(zip(ways, pool.map(compile_gpt, ways.values(), [4] * 3), strict=True))
    many = dict(zip(ways, pool.map(compile_gpt, ways.values(), [32] * 3), strict=True))

sent_in_layer, kept_in_layer = {}, {}
for way in ways:
    (_, small), (_, large) = few[way], many[way]
    before = sent_by(small)
    difference = {kind: (sent - before[kind]) / 28 for kind, sent in sent_by(large).items()}
    sent_in_layer[way] = {kind: sent for kind, sent in difference.items() if sent}
    kept_in_layer[way] = (large.memory.temp_bytes - small.memory.temp_bytes) / 28
X = 4 * 2 * 64 * 64  # bytes of x

# %% tags=["fold"]
measured = []
for way in ways:
    kept, sent = kept_in_layer[way], sum(sent_in_layer[way].values())
    measured.append((way, round(kept), round(kept / X, 2), round(sent), round(sent / X, 2)))
headers = ("", "kept, bytes", "/ x", "sent, bytes", "/ x")
table(f"What one layer adds on each of 8 devices; x has {X:,} bytes", headers, measured)

# %% [markdown]
# ### The ring matmul
#
# Last, a product of two matrices of 256 x 256, at both ends of a block, each with a collective and
# in rounds.

# %%
into, out_of = (rows, columns), (columns, rows)  # of x and w; the result is as w is
products = {
    "gather, multiply": (into, lambda x, w: lax.all_gather(x, "tp", tiled=True) @ w),
    "ring_matmul": (into, partial(ring_matmul.ring_matmul, axis="tp")),
    "multiply, scatter": (out_of, lambda x, w: lax.psum_scatter(x @ w, "tp", tiled=True)),
    "matmul_ring": (out_of, partial(ring_matmul.matmul_ring, axis="tp")),
}
x, w = rng.normal(size=(2, 256, 256)).astype(np.float32)
in_rounds = []
for name, (specs, function) in products.items():
    run = on_devices(function, specs, specs[1])
    np.testing.assert_allclose(jax.device_get(run(x, w)), x @ w, rtol=1e-3, atol=1e-3)
    report = inspect(run, x, w)
    in_rounds.append((name, sum(sent_by(report).values()), report.memory.temp_bytes))
table("A product of 256 x 256 matrices", ("", "bytes sent", "temp bytes"), in_rounds)

# %% [markdown]
# The bytes are the same, and the memory is less than a third. A CPU shows no gain in time.
#
# ## Compare

# %%
gathered.compare(sum(sent_by(of_loss["logits gathered"]).values()), {"7 shards of 16,384": 114_688})
three.compare(sum(sent_by(of_loss["three numbers"]).values()), {"largest, sum, label": 3 * 896})
parts = {"4 arrays, replicated": 4 * X, "1/8 of 12 arrays": 12 * X / n}
held_tp.compare(kept_in_layer["tensor parallel"], parts)
held_sp.compare(kept_in_layer["sequence parallel"], {"1/8 of 16 arrays": 16 * X / n})
in_layer = sent_in_layer["sequence parallel"]
sent_sp.compare(sum(in_layer.values()), in_layer)

# %% [markdown]
# Let X be the bytes of x. In a layer, tensor parallelism sends four all-reduces of x, `4 * 2 * 7/8`
# X = 7X. With sequence parallelism each becomes a reduce-scatter and an all-gather, 7X again. Two
# more all-gathers fetch the positions that were not kept, so a device sends 8.75X, and 896 bytes
# for the scales of the two norms. It keeps 2X (27 bytes less in the measurement, where the small
# buffers of the two programs differ). If the gathered outputs of the norms are kept, it sends 7X
# and the 896 bytes, and keeps two whole arrays and 1/8 of 14: 3.75X.
#
# To gather the logits, a device sends 43 times as much as for the three numbers. With the
# vocabulary of Llama 3 it would be 21,376 times.

# %% tags=["fold"]
all_reduce, gather = wire_bytes("all_reduce", X, n), wire_bytes("all_gather", X // n, n)
assert all_reduce == gather + wire_bytes("reduce_scatter", X, n)
scales = 2 * wire_bytes("all_reduce", 4 * 64, n)
again = {"tensor parallel": 0, "sequence parallel": 2, "same, gathered kept": 0}
copies = {"tensor parallel": 5.5, "sequence parallel": 2, "same, gathered kept": 3.75}
for way, split in ways.items():
    predicted = 4 * all_reduce + again[way] * gather + scales * split.sequence
    assert sum(sent_in_layer[way].values()) == predicted
    np.testing.assert_allclose(kept_in_layer[way], copies[way] * X, rtol=0.01)
assert (4 * all_reduce, 4 * all_reduce + 2 * gather) == (7 * X, 8.75 * X)
to_gather, to_reduce = (sum(sent_by(one).values()) for one in of_loss.values())
assert round(to_gather / to_reduce) == 43 and 128_256 / 6 == 21_376
for number in (0, 2):
    assert in_rounds[number][1] == in_rounds[number + 1][1]
    assert 3 * in_rounds[number + 1][2] < in_rounds[number][2]
one_device = float(jax.jit(loss_fn(gpt(layers=4)))(random_params(4), batch))
first_gradients = None
for ready, report in few.values():
    loss, gradients = jax.device_get(ready.executable(random_params(4), batch))
    np.testing.assert_allclose(loss, one_device, rtol=1e-5)
    first_gradients = first_gradients or gradients
    jax.tree.map(partial(np.testing.assert_allclose, atol=1e-5), gradients, first_gradients)
    sums = [c for c in report.collectives if c.operand_bytes == 4 * 2 * 64]
    assert [(c.kind, c.times) for c in sums] == 3 * [("all_reduce", 1)]
assert 88 < np.log(np.finfo(np.float32).max) < 89

# %% [markdown]
# ### In 16 bits, with dropout
#
# In 16 bits the 16 arrays take 32 bytes for each number of x, and two masks of dropout between the
# blocks take one byte each. Of these 34 bytes, 24 are inside the blocks, where tensor parallelism
# splits them, and 10 are between, where only sequence parallelism does (Korthikanti et al. 2022,
# table 2):

# %% tags=["fold"]
kept_rows = []
for devices in (1, 2, 4, 8, 16, 32, 64):
    kept = partial(activation_bytes, 1, 1, 1, 1, 1, tp=devices, remat="selective")
    alone, both = kept(sequence_parallel=False), kept(sequence_parallel=True)
    assert (alone, both) == (10 + 24 / devices, 34 / devices)
    kept_rows.append((devices, round(alone, 2), round(both, 2), round(alone / both, 1)))
headers = ("n", "tensor parallel: 10 + 24/n", "sequence parallel: 34/n", "ratio")
table("Bytes that a layer keeps for each number of x, selective", headers, kept_rows)

# %% [markdown]
# Tensor parallelism alone never comes below 10 bytes, however many devices there are. With sequence
# parallelism each of 8 devices keeps a third of what it keeps without, and each of 64 a twentieth.
#
# ## On real hardware
#
# How much can a ring matmul hide? In 16 bits, a gather of T positions sends `2*T*d*(n-1)/n` bytes
# at W bytes/s. A product with c columns takes `2*T*d*c/n` FLOPs at F FLOP/s. So sending can be
# hidden behind multiplying if `(n-1)*F < c*W`; T and d cancel out. Here are the gate and up
# matrices of Llama 3 8B, with c = 28,672 columns together, on H100 with F = 400 TFLOP/s (lesson
# 11):

# %% tags=["fold"]
h100, positions_of_8b, d_of_8b, c, flops = find_cluster("h100"), 8192, 4096, 28_672, 400e12
shown = []
for devices in (2, 4, 8):
    shard = 2 * positions_of_8b * d_of_8b / devices
    seconds = float(collective_seconds("all_gather", shard, Layout(tp=devices), "tp", h100))
    multiply = 2 * positions_of_8b * d_of_8b * c / devices / flops
    ratio = (devices - 1) * flops / (c * h100.inside.bytes_per_second)
    shown.append((f"tp={devices}", round(1e3 * multiply, 2), round(1e3 * seconds, 2)))
    assert abs(seconds / multiply - ratio) < 0.03 and ratio < 0.22
table("8,192 positions in one node", ("", "ms to multiply", "ms to gather"), shown)

# %% [markdown]
# A gather that is hidden costs no time. One that is not hidden adds more than a fifth with tp=8,
# even at the full bandwidth of the links. On 8 H100 an all-reduce of 58 MB, about as much as is
# gathered here, reached a third of that bandwidth (Austin et al. 2025, "GPUs").
#
# - **Megatron-LM** (`--sequence-parallel`) keeps the shard, and runs the second gather beside a
#   product that does not need it (Korthikanti et al. 2022, section 4.2.2). With the memory that it
#   saves, selective recomputation can replace full recomputation: a step of a model of 22B
#   parameters on 8 A100 took 1.10 s in place of 1.42 s (table 5).
# - **Scales of norms:** unless their gradients are summed over tp, the copies on the devices drift
#   apart. Here the backward pass of `pcast` sums them. Megatron-LM marks these parameters
#   (`sequence_parallel`), and sums after the backward pass. The same holds for biases that are
#   added after the reduce-scatter.
# - **Another sequence parallelism.** DeepSpeed's (Ulysses) splits no matrices: each device has its
#   own positions also inside a block, and an all-to-all before and after attention exchanges
#   positions for heads (lesson 14).
# - **The vocabulary is padded**, because n must divide it. Megatron-LM pads it to a multiple of 128
#   times tp (`--make-vocab-size-divisible-by`, by default 128). GPT-2's 50,257 tokens become 50,304
#   with tp=1, and 51,200 with tp=8.
# - **Logits in parts.** Fused kernels compute the loss for a few positions and a part of the
#   vocabulary at a time, and never store all logits. For Gemma 2 2B that took 1 MB in place of 24
#   GB (Wijmans et al. 2024, abstract).
#
# Try it: `jaxpar train --mesh tp=4 --sequence-parallel`.

# %% tags=["fold"]
padded = {tp: -(-50_257 // (128 * tp)) * 128 * tp for tp in (1, 8)}
assert padded == {1: 50_304, 8: 51_200}

# %% [markdown]
# ## Exercises

# %%
exercises("12")

# %% [markdown]
# ## On paper
#
# 1. The GPT of 22B parameters of Korthikanti et al. has 48 layers, d = 6144 and 64 heads. A
#    microbatch is b = 4 examples of s = 2048 positions, on 8 A100 with tp=8. An A100 "of 80 GB" has
#    85.9 GB (80 GiB). Parameters, gradients in float32 and Adam take 18 bytes for each parameter,
#    48.9 GB on each device. A layer keeps `b*s*d*(10 + 24/n)` bytes, and without selective
#    recomputation `b*s*d * 5*heads*s/(d*n)` more. Is there room with selective recomputation alone?
#    With sequence parallelism alone? With both?
#
# <details><summary>Answer</summary>
#
# `b*s*d` is 50.3 million, and 5 * 64 * 2048 / (6144 * 8) is 13.3 bytes. Selective alone: 13 bytes,
# 31.4 GB in 48 layers, in all 80.3 GB. That leaves 5.6 GB for the embedding, the logits, buffers
# and gaps between them: hardly enough. Sequence parallelism alone: 4.25 + 13.3 bytes, 42.5 GB, in
# all 91.4 GB: no. Both: 4.25 bytes, 10.3 GB, in all 59.2 GB: yes.
#
# </details>
#
# 2. Llama 3 8B has 128,256 tokens, d = 4096, and a head that is not tied. To which size does
#    Megatron-LM pad its vocabulary with tp=8? How many parameters does that add?
#
# <details><summary>Answer</summary>
#
# The next multiple of 128 * 8 = 1,024 is 129,024, which is 768 more. Two tables with 768 rows of
# 4,096 numbers are 6.3 million parameters, 0.08% of the model. The new ids are never a label, so
# training only pushes their logits down.
#
# </details>
#
# 3. The logits of Llama 3 8B for 8,192 positions, tp=8, in a node of H100: 450 GB/s, and 1.9 us for
#    each step of a ring. How long does it take to gather them in float32? And to send the three
#    numbers of each position?
#
# <details><summary>Answer</summary>
#
# All logits are 4.2 GB. A device sends seven eighths of that, 3.68 GB, in 8.2 ms. Three all-reduces
# of 32,768 bytes send 172,032 bytes in 0.4 us. But each has 14 steps, and 42 steps take 80 us. It
# is nearly all latency, and still 100 times as fast; and no device needs room for 4.2 GB.
#
# </details>
#
# ## Sources
#
# Shoeybi et al. 2019, *Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
# Parallelism*, section 3 (embedding, head and loss). Korthikanti et al. 2022, *Reducing
# Activation Recomputation in Large Transformer Models*, sections 4.2.2 and 5, tables 2 and 5.
# Wang et al. 2023, *Overlap Communication with Dependent Computation via Decomposition in Large
# Deep Learning Models* (the ring matmul). Jacobs et al. 2023, *DeepSpeed Ulysses: System
# Optimizations for Enabling Training of Extreme Long Sequence Transformer Models*. Wijmans et al.
# 2024, *Cut Your Losses in Large-Vocabulary Language Models*. NVIDIA/Megatron-LM:
# `_vocab_size_with_padding`, and `finalize_model_grads.py` (scales of norms). Austin et al. 2025,
# *How to Scale Your Model*. Sizes of Llama 3: Grattafiori et al. 2024, *The Llama 3 Herd of
# Models*, table 3.
#
# | here | Megatron-LM | PyTorch | others |
# |---|---|---|---|
# | `vocab_parallel_embedding` | `VocabParallelEmbedding` | `RowwiseParallel` | - |
# | `vocab_parallel_cross_entropy` | the same name | `loss_parallel` | - |
# | sequence parallelism | `--sequence-parallel` | `SequenceParallel` | - |
# | ring matmul | `--tp-comm-overlap` | async tensor parallelism | XLA: collective matmul |
