# %% [markdown]
# # Lesson 14: long sequences
#
# In attention, every position looks at itself and at every position before it. So the matrix of
# scores of a sequence of s positions has `s*s` numbers for each head. Nothing else in a transformer
# grows with the square of the length. Llama 3 8B has 32 heads. At 8,192 positions, the scores of
# one layer take 8.6 GB in float32. At 131,072 positions, the longest on which Llama 3 was trained,
# they take 2.2 TB.
#
# Two techniques make such lengths possible. *FlashAttention* computes attention on one device, and
# never holds all scores. *Context parallelism* splits the positions of each example over the
# devices of an axis `cp`. Both use the same idea, first inside a device and then between devices.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import P, lax
from jax.experimental import pallas as pl

from jaxpar import flash, nn
from jaxpar.cost.hardware import find_cluster
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask, sent_by
from jaxpar.drawing.lanes import Lanes
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import Report, inspect, stablehlo
from jaxpar.parallel import context
from jaxpar.schedules.overlap import COMPUTE, Task, exposed_seconds, step_seconds
from jaxpar.schedules.overlap import run as run_tasks

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
n, mesh = 8, make_mesh("cp=8")
rng = np.random.default_rng(0)


def random(*shape):
    return rng.normal(size=shape).astype(np.float32)


# %% tags=["fold"]
of_8b = [4 * 32 * s**2 for s in (8_192, 131_072)]  # bytes of scores
assert [float(f"{size:.2g}") for size in of_8b] == [8.6e9, 2.2e12]

# %% [markdown]
# ## The idea in one picture
#
# Cut the positions of a sequence into 8 blocks. The scores of one block of queries with one block
# of keys are a *tile*: `5:2` is the tile of query block 5 and key block 2. Under a causal mask no
# query sees a key after it, so only a triangle of tiles is needed.


# %%
def folded(pair, step, blocks=8):  # the row and the column of the tile that comes in this step
    return (pair, step) if step <= pair else (blocks - 1 - pair, step - pair - 1)


rectangle = [[folded(pair, step) for step in range(9)] for pair in range(4)]

# %% tags=["fold"]
rows, columns = np.indices((8, 8))
seen = columns <= rows
cells = np.array([[f"{i}:{j}" if j <= i else "." for j in range(8)] for i in range(8)])
pairs = np.minimum(rows, 7 - rows)
parts = np.array([["{}:{}".format(*tile) for tile in row] for row in rectangle])
triangle = panel("The tiles of a causal mask", [cells], [np.where(seen, pairs, NOBODY)], names=[""])
title = "Folded: after the tiles of row 0 those of row 7, after row 1 row 6, and so on"
draw(
    "14_fold",
    Panels(
        "A triangle is a rectangle", [triangle, panel(title, [parts], [np.arange(4)], names=[""])]
    ),
)
assert sorted(tile for row in rectangle for tile in row) == [
    (i, j) for i in range(8) for j in range(i + 1)
]

# %% [markdown]
# The whole lesson rests on two facts.
#
# 1. **Softmax can be taken tile by tile.** The result for a query can be computed from one tile
#    after another, in any order. Beside the result so far, one or two numbers for each query are
#    carried along.
# 2. **The triangle can be folded.** Row 0 has one tile and row 7 has eight. Together they have
#    nine, and so have rows 1 and 6, rows 2 and 5, and rows 3 and 4.
#
# FlashAttention uses the first fact, so that a device holds one tile of scores at a time. Ring
# attention uses it between devices: there the keys of the next tile come from a neighbour. The
# letters show what the second fact is for: if each of four devices, a to d, takes a row of the
# rectangle, all have equal work.
#
# ## Predict
#
# The first two questions are about one device. It has one example with 1,024 positions, 8 heads for
# queries and 2 for keys and values (GQA, lesson 11), and 32 numbers in a head, in float32.

# %%
all_scores = ask("Bytes of the scores of all heads")
needed = ask("Tiles of 128 x 128 scores in which some query sees some key, in each head", "count")

# %% [markdown]
# Now there are eight devices with 64 positions each. There are 32 heads for queries, and 8 numbers
# in a head, in float32. In *ring attention*, keys and values travel around the ring of devices
# until each device has seen all of them. In *Ulysses*, an all-to-all of queries, keys and values
# gives each device 1/8 of the heads, for all positions. After attention, an all-to-all of the
# result does the opposite.

# %%
ring_gqa = ask("Bytes that a device sends forward in a ring, 8 heads of keys and values")
ulysses_gqa = ask("Bytes that a device sends forward in Ulysses, 8 heads of keys and values")
ring_mha = ask("Bytes that a device sends forward in a ring, 32 heads of keys and values")
ulysses_mha = ask("Bytes that a device sends forward in Ulysses, 32 heads of keys and values")

# %% [markdown]
# The devices of a ring work in 8 rounds, and a round takes as long as its slowest device. Device 0
# has the first 64 positions, device 1 the next 64, and so on. The mask is causal. A tile of 64
# queries and 64 keys takes a time of 1, and one on the diagonal, half of which is masked, 0.5.

# %%
lockstep = ask("Time of the 8 rounds, divided by the time that an average device computes", "count")

# %% [markdown]
# ## Implement
#
# ### One device: softmax in parts
#
# The result of attention for one query is a mean of the values, weighted by `exp(score)`. Split the
# keys into parts. For each part we compute this mean over the keys of the part alone, and the
# *log-sum-exp* of their scores, `lse = log(sum(exp(score)))`. Then the mean over all keys is the
# mean of the parts' means, weighted by `exp(lse)`. The table has one query with six keys in three
# parts, where each value is one number:

# %% tags=["fold"]
scores, values = np.array([[1.0, 3], [2, 0], [5, 4]]), np.array([[1.0, 2], [3, 4], [5, 6]])
lse = np.log(np.exp(scores).sum(axis=1))
means = (np.exp(scores - lse[:, None]) * values).sum(axis=1)
whole = np.log(np.exp(lse).sum())
weights = np.exp(lse - whole)
shown = [
    ("scores", *(f"{a:.0f}, {b:.0f}" for a, b in scores), ""),
    ("values", *(f"{a:.0f}, {b:.0f}" for a, b in values), ""),
    ("lse", *(f"{one:.3f}" for one in lse), f"{whole:.3f}"),
    ("mean of the values", *(f"{one:.3f}" for one in means), f"{weights @ means:.3f}"),
    ("weight in the whole", *(f"{one:.3f}" for one in weights), f"{weights.sum():.3f}"),
]
table("One query", ("", "part 0", "part 1", "part 2", "all"), shown)
softmax = np.exp(scores) / np.exp(scores).sum()
np.testing.assert_allclose(weights @ means, (softmax * values).sum())

# %% [markdown]
# `attend` computes one part, and `merge` joins two parts:

# %%
show(flash.attend, flash.merge)

# %% [markdown]
# A masked score is -1e30, not minus infinity. Otherwise, for a query that sees no key of a part,
# `exp(lse - lse)` would be NaN.
#
# ### One device: chunks of keys
#
# With these, a loop over chunks of queries, and in it a loop over chunks of keys, needs memory for
# the scores of one tile only. For the gradient JAX would still keep all tiles, so both loops are
# checkpointed (lesson 08).

# %%
show(flash.chunked_attention)

# %% [markdown]
# This is the *memory-efficient attention* of Rabe and Staats (2021), which is in xformers as a
# kernel. It has two faults. It also computes the tiles above the diagonal, which count for nothing.
# And because one checkpoint is inside another, the forward pass is computed three times.
#
# ### One device: FlashAttention
#
# FlashAttention (Dao et al. 2022) mends both faults. It computes only the tiles of the triangle,
# and its backward pass is written by hand. Beside q, k and v, the forward pass keeps only the
# result o and the lse of each query. Why do these suffice? Let `do` be the gradient with respect to
# o. For each tile, the backward pass computes
#
#     p  = exp(q @ k.T / sqrt(h) - lse)
#     dv = p.T @ do
#     ds = p * (do @ v.T - delta) / sqrt(h)
#     dq = ds @ k
#     dk = ds.T @ q
#
# The first line gives the final weights of the tile at once, because lse is that of the whole row.
# In the third line, delta comes from the derivative of softmax. It is the mean of a row of `do @
# v.T`, weighted by p, over *all* keys, so it seems to need every tile. But this mean is the product
# of do with the mean of the values, which is o: `delta = sum(do * o)`, one number for each query.

# %% tags=["fold"]
q, k, v, do = random(4, 64, 16)
past = np.tril(np.ones((64, 64), bool))
lse = np.log(np.where(past, np.exp(q @ k.T / 4), 0).sum(axis=1))
p = np.where(past, np.exp(q @ k.T / 4 - lse[:, None]), 0)
ds = p * (do @ v.T - (do * (p @ v)).sum(axis=1)[:, None]) / 4
one_head = lambda q, k, v: nn.attention(*(x[None, None] for x in (q, k, v)))[0, 0]  # noqa: E731
by_jax = jax.jit(lambda *qkv: jax.vjp(one_head, *qkv)[1](do))(q, k, v)
for by_formula, right in zip((ds @ k, ds.T @ q, p.T @ do), by_jax, strict=True):
    np.testing.assert_allclose(by_formula, right, rtol=1e-3, atol=1e-5)

# %% [markdown]
# These are 5 matrix products, and the forward pass has 2. If p were kept, 4 would suffice.
# FlashAttention is faster all the same, because it neither writes the scores to memory nor reads
# them again.
#
# The forward pass of FlashAttention divides only once. For each query it carries the largest score
# so far, the sum of `exp(score - largest)`, and the sum of the values with these weights. When a
# tile has a larger score, both sums are first multiplied by `exp(old - new)`. After the last tile,
# the second sum is divided by the first. This is the *online softmax*.
#
# ### One device: only half of the tiles
#
# Row i of the triangle has i + 1 tiles. If i is traced, the length of `lax.fori_loop(0, i + 1,
# ...)` is known only when the program runs. Such a loop has no reverse-mode derivative, and its
# FLOPs cannot be read from the program. The fold gives loops of fixed length: each of the 4 pairs
# of rows takes 9 steps, and `folded` says which tile comes next. On one device there is a simpler
# way: the library lists the tiles of the triangle, and loops over the list. (The multiprocessors of
# a GPU take the rows in parallel. FlashAttention's newer kernels give out the longest rows first.)
#
# `flash_attention`, with its backward pass, is yours to write.
#
# ### One device: a kernel
#
# On a GPU, our loop would write each tile of scores to the memory of the device, and read it again.
# A *kernel* keeps the tile in the small, fast memory on the chip. Here is the forward pass in
# Pallas, which is for JAX what Triton is for PyTorch. `kernel` runs once for each head and block of
# queries (the `grid`; `pl.program_id` says which one). Each `BlockSpec` says which part of an array
# a run sees, as a *ref* that is read and written by index.


# %%
def kernel(tile, q_ref, k_ref, v_ref, o_ref):
    i, place = pl.program_id(1), jnp.arange(tile)
    q = q_ref[0] / q_ref.shape[-1] ** 0.5

    def visit(j, state):
        o, largest, total = state
        keys = pl.ds(j * tile, tile)
        past = (j * tile + place)[None] <= (i * tile + place)[:, None]
        scores = jnp.where(past, q @ k_ref[0, keys].T, -1e30)
        new = jnp.maximum(largest, scores.max(axis=1))
        weights, shrink = jnp.exp(scores - new[:, None]), jnp.exp(largest - new)
        o = o * shrink[:, None] + weights @ v_ref[0, keys]
        return o, new, total * shrink + weights.sum(axis=1)

    start = jnp.zeros(q.shape), jnp.full(tile, -1e30), jnp.zeros(tile)
    o, _, total = lax.fori_loop(0, i + 1, visit, start)
    o_ref[0] = o / total[:, None]


def by_kernel(q, k, v, tile=128):  # [heads, s, h]
    (heads, s, h), group = q.shape, len(q) // len(k)
    block = pl.BlockSpec((1, tile, h), lambda head, i: (head, i, 0))
    whole = pl.BlockSpec((1, s, h), lambda head, i: (head // group, 0, 0))
    specs = {"in_specs": [block, whole, whole], "out_specs": block, "out_shape": q}
    call = pl.pallas_call(partial(kernel, tile), grid=(heads, s // tile), interpret=True, **specs)
    return call(q, k, v)


# %% tags=["fold"]
q, k, v = random(8, 256, 32), random(2, 256, 32), random(2, 256, 32)
difference = jax.jit(by_kernel)(q, k, v) - jax.jit(nn.attention)(q[None], k[None], v[None])[0]
print(f"The kernel and plain attention differ by at most {abs(difference).max():.0e}.\n")
assert abs(difference).max() < 1e-5

# %% [markdown]
# This is the online softmax, with a loop to the diagonal. `interpret=True` lets it run on a CPU. On
# a real GPU or TPU the keys must be loaded tile by tile as well, and the sizes of tiles must suit
# the matrix units. JAX cannot differentiate such a kernel by itself, so the backward pass is
# another kernel.
#
# ### Several devices: shift first, then split
#
# Now each device has some of the positions of every example. Norms, the MLP and all products with
# weights treat each position alone, and need no change. But three things depend on *where* a
# position is: its label, its rotary angles, and the mask. So each device gets the numbers of its
# positions as an array. And the labels are made while the sequence is still whole: **shift first,
# then split**. Then any order of the positions gives the right result. We use *zig-zag*, an order
# whose reason comes below.


# %%
def zigzag(s):  # all positions, those of device 0 first, then those of device 1, and so on
    chunks = np.arange(s).reshape(2 * n, -1)
    return np.concatenate([chunks[[i, 2 * n - 1 - i]].ravel() for i in range(n)])


b, s = 8, 128
tokens = rng.integers(0, 256, (b, s + 1))
inputs, labels, places = tokens[:, :-1], tokens[:, 1:], np.arange(s)  # shifted
order = zigzag(s)
batch = inputs[:, order], labels[:, order], places[order]  # ready to be split

# %% [markdown]
# ### Several devices: a step by hand
#
# Here is a whole training step of a model with one layer of attention. Each device gathers the keys
# and values of all positions, and attends with its own queries. The gradients are summed over cp as
# they are over dp, since the devices have different tokens and the same parameters.

# %%
RATE, HEADS, SIZE = 0.5, 4, 16


def heads_of(x):  # [b, t, d] -> [b, HEADS, t, SIZE]
    return x.reshape(*x.shape[:2], HEADS, SIZE).swapaxes(1, 2)


def loss_by_hand(weights, inputs, labels, places):
    x = weights["table"][inputs]  # [b, t, d]: of this device's positions
    q, k, v = (heads_of(x @ weights[name]) for name in ("query", "key", "value"))
    q, k = nn.rotary(q, places), nn.rotary(k, places)
    k, v = (lax.all_gather(y, "cp", axis=2, tiled=True) for y in (k, v))  # of all positions
    past = lax.all_gather(places, "cp", tiled=True)[None] <= places[:, None]  # [t, s]
    scores = jnp.where(past[None, None], q @ k.mT / SIZE**0.5, -jnp.inf)
    o = jax.nn.softmax(scores) @ v  # [b, HEADS, t, SIZE]
    x = x + o.swapaxes(1, 2).reshape(x.shape) @ weights["output"]
    return nn.cross_entropy(x @ weights["table"].T, labels).mean() / lax.axis_size("cp")


def step_by_hand(weights, *batch):
    own = jax.tree.map(lambda w: lax.pcast(w, "cp", to="varying"), weights)  # lesson 05
    loss, found = lax.psum(jax.value_and_grad(loss_by_hand)(own, *batch), "cp")
    return jax.tree.map(lambda w, g: w - RATE * g, weights, found), loss


takes = P(), P(None, "cp"), P(None, "cp"), P("cp")
by_hand = jax.jit(jax.shard_map(step_by_hand, mesh=mesh, in_specs=takes, out_specs=P()))

# %% tags=["fold"]
d = HEADS * SIZE
first = {name: random(d, d) / 8 for name in ("query", "key", "value", "output")}
first["table"] = random(256, d) / 4
step_on_one = jax.jit(
    jax.shard_map(step_by_hand, mesh=make_mesh("cp=1"), in_specs=takes, out_specs=P())
)
after, loss = jax.device_get(by_hand(first, *batch))
expected, right = jax.device_get(step_on_one(first, inputs, labels, places))
print(f"Eight devices, zig-zag, find a loss of {loss:.6f}; one device, in order, {right:.6f}.\n")
np.testing.assert_allclose(loss, right, rtol=1e-5)
jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5), after, expected)

# %% [markdown]
# ### Several devices: gathered keys and values
#
# The library's function works for any layout of the positions. If several documents are packed into
# one sequence, it also takes, for each of all positions, the number of its document. Every device
# knows these numbers, so nothing is sent for them:

# %%
show(context.gather_attention)

# %% [markdown]
# `_gathered` makes a `Pattern`, which says where the queries and keys are, and which tiles are
# computed. Under zig-zag these tiles are the fold once more. Llama 3 was trained with keys and
# values gathered in zig-zag (section 3.3.2 of its paper), for two reasons. Every mask is easy, even
# one that keeps documents apart. And with GQA, keys and values are small: what is sent grows with
# s, and what is computed grows with `s*s`. The price is that each device holds all keys and values
# of the layer for a while.
#
# ### Several devices: the ring
#
# In *ring attention* (Liu et al. 2023) a device holds only its own keys and values, and those that
# have just arrived. In round r, device i has those of device i - r. It attends to them, and merges
# the part into its result. Meanwhile it sends them on to the next device, which is a *hop*. Here
# are the rounds, with loops in place of devices:


# %%
def ring_by_loops(q, k, v):  # each a list with a shard for each device: [b, a, t, h]
    n, t = len(q), q[0].shape[2]
    own = jnp.tril(jnp.ones((1, t, t), bool))
    parts = [flash.attend(q[i], k[i], v[i], own) for i in range(n)]  # round 0
    for r in range(1, n):
        k, v = k[-1:] + k[:-1], v[-1:] + v[:-1]  # all pass theirs to the next device
        for i in range(r, n):  # the keys of devices before r are of later positions
            parts[i] = flash.merge(parts[i], flash.attend(q[i], k[i], v[i]))
    return [o for o, _ in parts]


# %% tags=["fold"]
q, k, v = random(1, 4, 64, 8), random(1, 2, 64, 8), random(1, 2, 64, 8)
in_parts = jax.jit(ring_by_loops)(*(np.split(x, 4, axis=2) for x in (q, k, v)))
whole = jax.jit(nn.attention)(q, k, v)
np.testing.assert_allclose(np.concatenate(in_parts, axis=2), whole, atol=1e-5)

# %% [markdown]
# The backward pass needs all keys and values again. Either each device has kept those of all
# devices, or they travel again. If they travel, their gradients dk and dv travel with them, and
# each device adds its part, until dk and dv are home. So the backward pass sends twice as much as
# the forward pass.
#
# ### Several devices: zig-zag
#
# In `ring_by_loops`, device 0 has nothing to do after round 0, but has to wait. The fold mends
# this. Cut the positions into 2n chunks, and give device i chunks i and 2n-1-i: a row of the folded
# rectangle. The picture has four devices. A cell has the number of the round in which the tile is
# computed, and the letter of the device.

# %%
four = np.arange(4)
CHUNKS = {"contiguous": (2 * four, 2 * four + 1), "zig-zag": (four, 7 - four)}

# %% tags=["fold"]
tiles, owners, work = [], [], []
for low, high in CHUNKS.values():
    owner = np.empty(8, int)
    owner[low] = owner[high] = four
    rounds = (owner[:, None] - owner[None]) % 4
    tiles.append(np.where(seen, rounds.astype(str), "."))
    owners.append(np.where(seen, owner[:, None], NOBODY))
    at = [[(rounds == r) & (owner == i)[:, None] & seen for i in four] for r in four]
    work.append(np.sum(at, axis=(2, 3)))
title = "Tiles by round and device: rows are chunks of queries, columns chunks of keys"
first_panel = panel(title, tiles, owners, names=[*CHUNKS])
counts = panel(
    "Number of tiles: rows are rounds, columns devices", work, [four[None]] * 2, names=[*CHUNKS]
)
draw("14_rounds", Panels("A causal ring of four devices", [first_panel, counts]))
assert [list(one.max(axis=1)) for one in work] == [[3, 4, 4, 4], [3, 2, 2, 2]]

# %% [markdown]
# In each round the slowest device decides. Its tiles add up to 15 over the rounds of the contiguous
# layout, and to 9 in zig-zag. In zig-zag, each device has two tiles in each round after round 0,
# and nothing in them is masked. *Which* two depends only on whether the keys come from a device
# before it or after it. So no condition around the products is needed: the program can choose their
# inputs. (A permute must not stand under such a condition. The devices that skip it would let the
# others wait for ever.) `ring_attention` and `zigzag_ring_attention` are yours to write.
#
# *Striped attention* (Brandon et al. 2023) gives device i positions i, i+n, i+2n and so on. Then
# every device has a triangle of scores in every round. The work is nearly equal in this layout,
# too, but only if the masked half of each square is skipped.
#
# ### Several devices: Ulysses
#
# *Ulysses* (Jacobs et al. 2023) goes another way. Outside of attention a device has all heads of
# its own positions. Inside attention it has its own heads of all positions, as in tensor
# parallelism. An all-to-all leads from one to the other (lesson 02). The letters name the devices
# that had a part before it.

# %% tags=["fold"]
before = [np.array([[f"h{head} p{i}"] for head in four]) for i in four]
exchanged = [np.array([[f"h{i} p{place}" for place in four]]) for i in four]
have = panel("All heads of its own positions", before)
get = panel(
    "After an all-to-all: its own head of all positions", exchanged, [four[None]] * 4, columns=2
)
draw("14_ulysses", Panels("Ulysses: 4 heads (h), 4 blocks of positions (p)", [have, get]))

# %% [markdown]
# Between the two all-to-alls, any kernel for one device can compute the attention. But each device
# needs as many heads as the others, so n must divide the number of heads. If there are fewer kv
# heads than devices, they are repeated before the exchange until there are n.
#
# Both can be combined on two axes: Ulysses inside a node, and a ring between nodes (Fang and Zhao
# 2024; in the library, `hybrid_attention`). `ulysses_attention` is yours to write.
#
# ### Several devices: few queries
#
# A model that generates text has one new query in each step, and the keys of all positions (lesson
# 21). Then the keys and values stay where they are. Each device attends to its own, and all-reduces
# merge the parts. This is `attention_over_shards`, which is yours to write.
#
# ## Measure
#
# ### One device
#
# The inspector reads both passes of plain attention, of attention in chunks, and of the library's
# `flash_attention`.


# %%
def both_passes(attention):
    def run(q, k, v, do):
        y, pull = jax.vjp(attention, q, k, v)
        return y, *pull(do)

    return run


q, do = random(2, 1, 8, 1024, 32)
k, v = random(2, 1, 2, 1024, 32)
ONE_DEVICE = {
    "plain": nn.attention,
    "chunked": partial(flash.chunked_attention, chunk=128),
    "flash": partial(flash.flash_attention, tile=128),
}
on_one = {name: inspect(both_passes(way), q, k, v, do) for name, way in ONE_DEVICE.items()}

# %% tags=["fold"]
shown = [(name, one.memory.temp_bytes, one.flops) for name, one in on_one.items()]
table("Attention to 1,024 positions, both passes", ("", "temp bytes", "FLOPs"), shown)
forward = 2 * 2 * 8 * 1024 * 1024 * 32  # FLOPs of two products with all scores
expected = {"plain": 3 * forward, "chunked": 5 * forward, "flash": 3.5 * forward * 36 / 64}
assert {name: one.flops for name, one in on_one.items()} == expected
temp = {name: one.memory.temp_bytes for name, one in on_one.items()}
assert temp["plain"] > 3 * 4 * 8 * 1024**2 and temp["plain"] > 15 * temp["flash"]

# %% [markdown]
# Plain attention holds three arrays as large as all scores; the others hold none. Let F be the
# FLOPs of the forward pass over all tiles. Plain attention computes 3F, because its backward pass
# has twice as many products. In chunks it is 5F. FlashAttention computes 3.5F, but only for 36 of
# 64 tiles: 1.97F.
#
# ### Eight devices
#
# Now we read the library's functions on 8 devices, with the sizes of the predictions.

# %%
own = P(None, None, "cp")  # of q, k, v and the result
WAYS = {
    "gather": partial(context.gather_attention, axis="cp"),
    "ring": partial(context.ring_attention, axis="cp"),
    "zig-zag ring": partial(context.zigzag_ring_attention, axis="cp"),
    "Ulysses": partial(context.ulysses_attention, axis="cp"),
}


def lower(function, *arrays, over=mesh):
    run = jax.shard_map(function, mesh=over, in_specs=own, out_specs=own)
    return jax.jit(run).lower(*arrays)


def read(program):  # the bytes that a device sends, and its FLOPs
    module = program.compiler_ir("stablehlo")
    sent = sum(sent_by(Report(stablehlo.read_module(module))).values())
    return int(sent), stablehlo.count_flops(module)


q, do = random(2, 1, 32, 512, 8)
k, v = random(2, 1, 8, 512, 8)
programs = {name: lower(way, q, k, v) for name, way in WAYS.items()}
forward = {name: read(one) for name, one in programs.items()}
both = {name: read(lower(both_passes(way), q, k, v, do)) for name, way in WAYS.items()}

# %% tags=["fold"]
whole = jax.device_get(jax.jit(nn.attention)(q, k, v))
for name, one in programs.items():
    order = zigzag(512) if name in ("gather", "zig-zag ring") else np.arange(512)
    found = jax.device_get(one.compile()(*(x[:, :, order] for x in (q, k, v))))
    np.testing.assert_allclose(found, whole[:, :, order], atol=1e-5)
shown = []
for name, (sent, flops) in forward.items():
    shown.append((name, sent, both[name][0] - sent, flops, both[name][1] - flops))
headers = "", "sent, forward", "backward", "FLOPs, forward", "backward"
table("Attention over 8 devices, on each", headers, shown)
every = 2 * 2 * 32 * 64 * 512 * 8  # FLOPs of two products with all scores of a device
assert forward["ring"][1] == every
assert forward["zig-zag ring"][1] == forward["gather"][1] == every * 17 / 32
assert both["ring"][0] == 3 * forward["ring"][0] == both["zig-zag ring"][0]
assert round(forward["ring"][1] / forward["zig-zag ring"][1], 2) == 1.88
assert both["Ulysses"][0] == 2 * forward["Ulysses"][0]
assert forward["gather"][0] == forward["ring"][0]

# %% [markdown]
# In zig-zag, each device computes (2n+1)/4n of the scores of its queries, here 17/32. So does
# `gather_attention`, which uses this layout, too. In the contiguous ring of the library, each
# device computes in every round, and throws away what is masked. In all, that is 1.88 times as much
# as in zig-zag. With a condition, a device would save this work, but would have to wait all the
# same.
#
# ### Bytes by the number of kv heads


# %%
bytes_of = {}
for devices in (4, 8):
    for kv_heads in (8, 32):
        sizes = (1, 32, 64 * devices, 8), *[(1, kv_heads, 64 * devices, 8)] * 2
        arrays = [jax.ShapeDtypeStruct(size, jnp.float32) for size in sizes]
        for name in ("ring", "Ulysses"):
            program = lower(WAYS[name], *arrays, over=make_mesh(f"cp={devices}"))
            bytes_of[devices, kv_heads, name] = read(program)[0]

# %% tags=["fold"]
shown = []
for devices, kv_heads in ((4, 8), (8, 8), (4, 32), (8, 32)):
    pair = [bytes_of[devices, kv_heads, name] for name in ("ring", "Ulysses")]
    shown.append((devices, kv_heads, *pair, round(pair[0] / pair[1], 2)))
headers = "devices", "kv heads", "ring", "Ulysses", "ratio"
table("Bytes sent forward, 32 heads of queries, 64 positions on each device", headers, shown)
for (devices, kv_heads, name), sent in bytes_of.items():
    units = 2 * (devices - 1) * kv_heads
    if name == "Ulysses":
        units = (devices - 1) / devices * (2 * 32 + 2 * max(kv_heads, devices))
    assert sent == units * 64 * 8 * 4

# %% [markdown]
# ## Compare

# %%
all_scores.compare(4 * 8 * 1024**2)
needed.compare(36, {"on the diagonal": 8, "below it": 28})
hop = 2 * 8 * 64 * 8 * 4  # bytes of the keys and values of a device
ring_gqa.compare(forward["ring"][0], {"7 hops of its keys and values": 7 * hop})
parts = {"7/8 of queries": 7 / 8 * 65_536, "of the result": 7 / 8 * 65_536}
ulysses_gqa.compare(forward["Ulysses"][0], parts | {"of keys and values": 7 / 8 * hop})
ring_mha.compare(bytes_of[8, 32, "ring"], {"7 hops, 4 times as large": 7 * 4 * hop})
parts["of keys and values, 4 times as large"] = 7 / 8 * 4 * hop
ulysses_mha.compare(bytes_of[8, 32, "Ulysses"], parts)
mean = 8 * 8 / 2 / 8  # half of 8 x 8 tiles, over 8 devices
lockstep.compare((0.5 + 7 * 1) / mean)

# %% [markdown]
# In units of one head of a device's positions, a ring sends `2*(n-1)*k` for k kv heads, and Ulysses
# `(n-1)/n*(2*a + 2*max(k, n))` for a heads of queries. So the bytes of a ring grow with n, and
# those of Ulysses hardly do. With MHA, Ulysses sends less from 3 devices on. With the 32 and 8
# heads of Llama 3 8B, the ring sends less on 4 devices, and Ulysses on 8. But a ring sends *while*
# it computes, and in Ulysses attention has to wait for the all-to-all.
#
# ### What users tripped over
#
# Many reports of wrong results are about a device that treats its shard as a whole sequence. We
# give our step by hand three such inputs, in contiguous shards. The table has the loss of the first
# step, and the error of its update: the norm of its difference from the right update, divided by
# the norm of the right one.

# %%
in_shards = inputs.reshape(b, n, -1)
MISTAKES = {
    "none": (inputs, labels, places),
    "labels made after the split": (inputs, np.roll(in_shards, -1, axis=2).reshape(b, s), places),
    "labels shifted twice": (inputs, np.roll(labels, -1, axis=1), places),
    "every device counts from 0": (inputs, labels, places % (s // n)),
}

# %% tags=["fold"]
right, _ = jax.device_get(by_hand(first, inputs, labels, places))
norm = lambda one, two: sum(((one[k] - two[k]) ** 2).sum() for k in one) ** 0.5  # noqa: E731
shown = []
for name, batch in MISTAKES.items():
    after, loss = jax.device_get(by_hand(first, *batch))
    shown.append((name, round(float(loss), 3), round(norm(after, right) / norm(right, first), 3)))
table("The first step with a mistake", ("mistake", "loss", "error of the update"), shown)
losses, errors = zip(*(row[1:] for row in shown), strict=True)
assert max(losses) < 1.01 * min(losses) and errors[0] == 0 and min(errors[1:]) > 0.25

# %% [markdown]
# The losses differ by less than 1%, so nobody would see a mistake in them. But the three wrong
# updates have errors of more than a quarter.
#
# | what went wrong | where it was | what helps |
# |---|---|---|
# | the last label of each shard was lost | transformers 36607, 48493 | shift first, then split |
# | labels were shifted twice | ms-swift 9977 | one place that shifts |
# | rotary angles of a shard, of packed documents | Megatron-LM 560, 5243 | positions as an array |
# | a length that 2n does not divide | torchtitan 757, torchtune 2668 | padding |
# | too few heads for Ulysses | verl 1226 | kv heads repeated; a second axis |
# | an option that split nothing, silently | verl 7476 | ask the inspector |
#
# (The numbers are those of issues and pull requests on GitHub. The names are those of
# repositories.)
#
# ## On real hardware
#
# ### Does the ring hide?
#
# Can the time of the hops be hidden behind compute? Take attention in one layer of Llama 3 8B: 32
# heads, 8 kv heads, 128 numbers in a head, in 16 bits. 32,768 positions are split over 8 H100 of
# different nodes, so each sends by a network card of its own, at 50 GB/s. Products run at 400
# TFLOP/s (lesson 11), and masked tiles are skipped. Our simulated devices share a few cores and
# show no overlap, so we compute the times:

# %% tags=["fold"]
h100, RATE_OF_8B = find_cluster("h100"), 400e12
NETWORK, NVLINK = h100.between.bytes_per_second, h100.inside.bytes_per_second


def round_seconds(t):  # half of a block of t queries and t keys, 32 heads of 128
    return 2 * t**2 * 128 * 32 / RATE_OF_8B


def tasks_of(way, t, bytes_per_second):
    tasks, last = [], ()
    unit = 2 * t * 128 / bytes_per_second  # one head of a device's positions
    hop = unit * 2 * 8  # keys and values

    def then(kind, label, lane, seconds, *after):
        tasks.append(Task(kind, label, lane, seconds, after))
        return tasks[-1:]

    if way == "gather":
        for _ in range(7):
            last = then("inputs of attention", "", "network", hop)
        then("attention", "all rounds", COMPUTE, 8 * round_seconds(t), *last)
    elif way == "Ulysses":
        last = then("inputs of attention", "", "network", 7 / 8 * (unit * 32 + hop))
        last = then("attention", "all rounds", COMPUTE, 8 * round_seconds(t), *last)
        then("results", "", "network", unit * 7 / 8 * 32, *last)
    else:
        computed = ()
        for r in range(8):
            seconds, here = round_seconds(t) * (2 if r and way == "contiguous ring" else 1), last
            if r < 7:  # sent on while it is used, into the room of the round before
                last = then("inputs of attention", "", "network", hop, *here, *computed)
            computed = then("attention", str(r), COMPUTE, seconds, *here)
    return run_tasks(tasks)


names = "contiguous ring", "zig-zag ring", "gather", "Ulysses"
lanes = {name: tasks_of(name, 4096, NETWORK) for name in names}
draw(
    "14_overlap",
    Lanes("Attention of a layer of Llama 3 8B, forward, on the last device", "ms", lanes),
)

# %% tags=["fold"]
took = {name: round(1e3 * step_seconds(spans), 2) for name, spans in lanes.items()}
assert took == {"contiguous ring": 5.15, "zig-zag ring": 2.75, "gather": 5.1, "Ulysses": 4.22}
assert exposed_seconds(lanes["zig-zag ring"]) < 1e-9
inside = {name: 1e3 * step_seconds(tasks_of(name, 4096, NVLINK)) for name in names[1:]}
assert [round(one, 2) for one in inside.values()] == [2.75, 3.01, 2.91]

# %% [markdown]
# The zig-zag ring hides every hop, but only just. Gathering first takes nearly twice as long, and
# so does the contiguous ring. Ulysses is in between. Inside a node, where NVLink carries 450 GB/s,
# the last three take 2.75, 3.01 and 2.91 ms: there the choice hardly matters.
#
# For t positions on each device and heads of h numbers, a hop carries `4*t*h*k` bytes. A round of
# the zig-zag takes `2*t*t*h*a` FLOPs. At F FLOP/s and B bytes/s, the hop is hidden if t is at least
# `2*(k/a)*F/B`, for a heads and k kv heads. Neither h nor the number of devices matters.

# %% tags=["fold"]
shown = []
for words, bandwidth in (("NVLink", NVLINK), ("a network card", NETWORK)):
    shown.append((words, *(round(2 * k / 32 * RATE_OF_8B / bandwidth) for k in (8, 32))))
table("Positions on each H100 that hide a hop", ("over", "8 of 32 kv heads", "32 kv heads"), shown)
assert shown[0][1:] == (444, 1778) and shown[1][1:] == (4000, 16_000)

# %% [markdown]
# For the attention of Llama 3.1 8B on 8 H800, both passes, the authors of ring-flash-attention
# measured 54% of the speed of FlashAttention without a ring for contiguous shards, 83% for striped
# ones and 90% for zig-zag. For contiguous shards, the waiting in each round alone would leave
# 1/1.88 = 53%.
#
# ### In practice
#
# - **FlashAttention** is in PyTorch as `scaled_dot_product_attention`. In JAX on GPUs it is
#   `jax.nn.dot_product_attention` with `implementation="cudnn"`, in 16 bits only. (If no
#   implementation is named, all scores are held.) On TPUs it is splash attention, a Pallas kernel.
#   `jaxpar.kernels` uses them where they fit. Both can also return the lse, which a ring needs.
# - **Recomputation.** A checkpointed layer (lesson 08) runs its whole ring again, unless o and lse
#   are kept, as `--remat products` and `selective` do.
# - **Precision.** In 16 bits, keys and values travel in 16 bits. But dk and dv are sums over the
#   devices, and travel in float32. Then the backward pass sends three times as much as the forward
#   pass.
# - **Documents.** If several are packed into a sequence, scores between documents are masked, and
#   the devices of a zig-zag no longer have equal work.
#
# Try it: `jaxpar train --mesh cp=4 --context zigzag`, and `ring`, `gather` or `ulysses` in its
# place.
#
# ## Exercises

# %%
exercises("14")

# %% [markdown]
# ## On paper
#
# 1. Plain attention on an H100 writes the scores to memory, reads them for the softmax, writes the
#    weights, and reads them for the second product. How many bytes does it move in this way in a
#    layer of Llama 3 8B, for 8,192 positions in 16 bits, and how long does that take at 3.35 TB/s?
#    How long do the two products take at 400 TFLOP/s, with all tiles?
#
# <details><summary>Answer</summary>
#
# The scores take 32 * 8,192 * 8,192 * 2 bytes, 4.3 GB, and four times that 17.2 GB: 5.1 ms. The
# products are 4 * 8,192 * 8,192 * 128 * 32 = 1.1 TFLOPs: 2.7 ms. So plain attention is limited by
# the memory, even if its two products are computed meanwhile.
#
# </details>
#
# 2. Llama 3 405B was trained on 131,072 positions with tp=8 and cp=16, and gathered keys and
#    values. A GPU has 16 of the 128 heads, of 128 numbers each, and 1 of the 8 kv heads. How many
#    bytes does it send forward in a layer, in 16 bits, and how long does that take at 50 GB/s? How
#    long does attention take at 400 TFLOP/s, in zig-zag? What would MHA change?
#
# <details><summary>Answer</summary>
#
# Each GPU has 8,192 positions: 2 * 8,192 * 128 * 2 bytes of keys and values, 4.2 MB. It sends 15
# times that: 63 MB, in 1.3 ms. Attention takes 2 * 8,192 * 131,072 * 128 * 16 = 4.4 TFLOPs, 11 ms.
# So if nothing is hidden, gathering adds 11%. With 128 kv heads it would be 16 times as much, 20
# ms: longer than attention itself.
#
# </details>
#
# 3. You train Llama 3 8B on 64 H100 in 8 nodes, cp=64. Why does Ulysses alone not work? How many
#    positions does each GPU need, so that a zig-zag ring over all 64 hides its hops? And with
#    Ulysses inside the nodes and a ring of 8 between them?
#
# <details><summary>Answer</summary>
#
# Ulysses needs at least one head for each device, and there are only 32. In the ring of 64, some
# hops go from node to node, and all devices wait for these: 4,000 positions, as in the table. With
# both, inside attention a GPU has the positions of its whole node, for 4 of the 32 heads and 1 of
# the 8 kv heads. These positions must be 4,000, so 500 for each GPU. And there are 7 hops in place
# of 63.
#
# </details>
#
# ## Sources
#
# Milakov and Gimelshein 2018, *Online normalizer calculation for softmax*. Rabe and Staats 2021,
# *Self-attention Does Not Need O(n^2) Memory*. Dao et al. 2022, *FlashAttention: Fast and
# Memory-Efficient Exact Attention with IO-Awareness*. Dao 2023, *FlashAttention-2: Faster Attention
# with Better Parallelism and Work Partitioning*, section 3.1. Liu, Zaharia and Abbeel 2023, *Ring
# Attention with Blockwise Transformers for Near-Infinite Context*. Brandon et al. 2023, *Striped
# Attention: Faster Ring Attention for Causal Transformers*. zhuzilin/ring-flash-attention: README,
# and issue 2 (zig-zag). Jacobs et al. 2023, *DeepSpeed Ulysses*. Fang and Zhao 2024, *USP: A
# Unified Sequence Parallelism Approach for Long Context Generative AI*. Grattafiori et al. 2024,
# *The Llama 3 Herd of Models*, section 3.3.2 and table 4. Dao-AILab/flash-attention:
# `flash_attn/cute/tile_scheduler.py`. JAX documentation: Pallas, `jax.nn.dot_product_attention`.
# Sizes of Llama 3: table 3 of its paper. Issues: the repositories huggingface/transformers,
# modelscope/ms-swift, NVIDIA/Megatron-LM, pytorch/torchtitan, pytorch/torchtune, verl-project/verl.
#
# | here | PyTorch | Megatron-LM: `--cp-comm-type` | MaxText | others |
# |---|---|---|---|---|
# | `chunked_attention` | - | - | - | xformers: memory-efficient attention |
# | `flash_attention` | `scaled_dot_product_attention` | - | `attention: flash` | flash-attn |
# | cp | `context_parallel` | `--context-parallel-size` | `ici_context_parallelism` | - |
# | `gather_attention` | rotate method `allgather` | `all_gather` | `all_gather` | Llama 3 |
# | ring, in zig-zag | rotate method `alltoall` | `p2p` | `ring` | ring-flash-attention |
# | `ulysses_attention` | - | `a2a` | `ulysses` | DeepSpeed: `DistributedAttention` |
# | `hybrid_attention` | - | `a2a+p2p` | `usp` | yunchang |
