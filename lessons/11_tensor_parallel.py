# %% [markdown]
# # Lesson 11: tensor parallelism
#
# Data parallelism and FSDP split the batch, and each device computes entire layers for its own
# examples. That ends where there are more devices than examples, or where the activations of one
# example do not fit. *Tensor parallelism* splits the layers: a device holds 1/n of every matrix and
# multiplies by that. So n devices work on the same example at once, and no weight is ever gathered.
#
# But now the result of a product is spread over devices. They must exchange activations inside
# every layer, while the next product waits. How much they exchange depends on how each matrix is
# split. We build the split that Megatron-LM found, count what it sends, and see why two others send
# more.

# %%
from jaxpar.mesh import make_mesh, simulate_devices, varying_axes

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import P, lax
from jax.sharding import NamedSharding

from jaxpar import nn
from jaxpar.cost.communication import wire_bytes
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.network import collective_seconds
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.lanes import Lanes
from jaxpar.drawing.layout import NOBODY, Panels, panel
from jaxpar.inspector import compiled, inspect, program
from jaxpar.layout import Layout
from jaxpar.model import Settings, Split, init, loss_fn, split_specs
from jaxpar.parallel import tensor
from jaxpar.parallel.data import data_parallel_gradients
from jaxpar.schedules.overlap import Task, exposed_seconds, step_seconds
from jaxpar.schedules.overlap import run as run_tasks

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
n, mesh = 8, make_mesh("tp=8")
replicated, columns, rows = P(), P(None, "tp"), P("tp")
rng = np.random.default_rng(0)
random = partial(rng.standard_normal, dtype=np.float32)

# %% [markdown]
# ## The idea in one picture
#
# An MLP has two matrices: `relu(x @ w_up) @ w_down`. Here are four devices, a to d, and two tokens,
# which are the rows of x. The letter behind a number names the device that has it. x and y have no
# letter, because every device has them.

# %%
x = np.array([[1, 2], [-1, 1]])
w_up = np.array([[1, -1, 2, 0], [1, 1, 0, 2]])
w_down = np.array([[1, 0], [0, 1], [1, 1], [-1, 1]])
hidden = np.maximum(x @ w_up, 0)  # relu
parts = [hidden[:, [i]] @ w_down[[i]] for i in range(4)]  # column i times row i

# %% tags=["fold"]
four = np.arange(4)[None]
whose, names = [NOBODY, four, four, four.T], ["x", "w_up", "relu(x @ w_up)", "w_down"]
panels = (
    panel("Columns, then rows", [x, w_up, hidden, w_down], whose, names=names, columns=2),
    panel("What each device adds to y", parts, names=[f"device {name}" for name in "abcd"]),
    panel("y: their sum, by one all-reduce", [sum(parts)], [NOBODY], names="y"),
)
draw("11_mlp", Panels("An MLP by columns and rows", panels))
np.testing.assert_array_equal(sum(parts), hidden @ w_down)
rows_first = [x[:, [i]] @ w_up[[i]] for i in range(2)]
assert all(part.any() for part in parts)

# %% [markdown]
# `w_up` is split by columns. Column j of `x @ w_up` depends on column j of `w_up` only, and relu
# works on each number alone. `w_down` is split by rows, and its row j is multiplied by column j of
# the hidden numbers only. So a device with column j of one and row j of the other needs nothing
# from the others. It computes one summand of y, and the summands are added at the end.
#
# ## Predict
#
# Our decoder has 4 layers of attention and MLP, and gets b = 8 examples of s = 32 tokens. Between
# blocks each token has d = 64 numbers in float32, so the input of a layer takes X = 65,536 bytes.
# The matrices of attention and MLP, the embedding and the head are split over the 8 devices of axis
# `tp`. Attention is split as the MLP is: its first matrices by columns, its last one by rows. The
# scales of norms are replicated, because every device has all d numbers of a token there.
#
# When you count, do not forget the backward pass: the layer below needs the gradient with respect
# to x.

# %%
settings = Settings(layers=4, d_model=64, heads=8)
layers, d, b, s = settings.layers, settings.d_model, 8, 32
like = jax.eval_shape(partial(init, settings), jax.random.key(0))  # the shapes of the parameters
X, size = 4 * b * s * d, 4 * settings.parameters
norms = 4 * (2 * layers + 1) * d
print(f"The decoder has {size:,} bytes of parameters, of which norms have {norms:,}.\n")
held = ask("Bytes of parameters that each of the 8 devices holds")
sums = ask("All-reduces of X bytes in one layer, forward and backward together", "count")
sent = ask("Bytes that a device sends for one layer, forward and backward together")

# %% [markdown]
# Data parallelism sends the gradients of a layer once in a step, for any batch. What tensor
# parallelism sends grows with the batch.

# %%
of_layer = sum(leaf.size for leaf in jax.tree.leaves(like["layers"])) // layers
print(f"A layer of our decoder has {of_layer:,} parameters, and d is {d}.\n")
tokens_equal = ask("Tokens in a batch for which both send the same for a layer", "count")

# %% [markdown]
# ## Implement
#
# ### One step by hand
#
# Here is a whole step of an MLP: forward pass, gradients, update. On each device x is [tokens, d]
# and equal to that of the others, `w_up` is [d, f/n], and `w_down` is [f/n, d]. The layer before
# this one needs the gradient with respect to x, so the step returns that, too. Two comments name
# operators of Megatron-LM's paper, f and g, which are explained below. (The f of f/n is another
# one: the size of the hidden layer.)

# %%
RATE = 0.1


def loss_by_hand(weights, x, target):
    w_up, w_down = weights
    x = lax.pcast(x, "tp", to="varying")  # f: nothing here, an all-reduce backward
    hidden = jax.nn.gelu(x @ w_up)  # [tokens, f/n], of my columns
    y = lax.psum(hidden @ w_down, "tp")  # g: an all-reduce here, nothing backward
    return jnp.mean((y - target) ** 2)


def step_by_hand(weights, x, target):
    both = jax.value_and_grad(loss_by_hand, argnums=(0, 1))
    loss, (gradients, gradient_x) = both(weights, x, target)
    weights = jax.tree.map(lambda w, g: w - RATE * g, weights, gradients)
    return weights, gradient_x, loss


specs = (columns, rows)
takes, gives = (specs, replicated, replicated), (specs, replicated, replicated)
by_hand = jax.jit(jax.shard_map(step_by_hand, mesh=mesh, in_specs=takes, out_specs=gives))

# %% [markdown]
# Only two lines know of other devices. Let us compare the step with one device, and ask the
# inspector what it sends.

# %%
f = 4 * d
x, target = random((2, b * s, d))
weights = (random((d, f)) / 8, random((f, d)) / 16)
after, gradient_x, loss = jax.device_get(by_hand(weights, x, target))


def loss_alone(weights, x):
    return jnp.mean((jax.nn.gelu(x @ weights[0]) @ weights[1] - target) ** 2)


right, (of_weights, of_x) = jax.value_and_grad(loss_alone, argnums=(0, 1))(weights, x)
print(f"Eight devices find a loss of {loss:.5f}, one device {right:.5f}.")
for one in inspect(by_hand, weights, x, target).collectives:
    print(f"{one.kind} of {one.operand_bytes:,} bytes, sends {one.wire_bytes:,.0f}")
print()

# %% tags=["fold"]
np.testing.assert_allclose(gradient_x, of_x, atol=1e-6)
for new, old, gradient in zip(after, weights, of_weights, strict=True):
    np.testing.assert_allclose(new, old - RATE * gradient, atol=1e-6)
both_sums = inspect(by_hand, weights, x, target).collectives
assert [(one.kind, one.operand_bytes) for one in both_sums] == [("all_reduce", X)] * 2

# %% [markdown]
# One all-reduce forward, and one backward. For the weights nothing is sent: no other device has
# these columns and rows, so each device updates its own, and there is no all-reduce of gradients.
#
# ### f and g
#
# Where do the two all-reduces come from? Forward, each device has a *partial sum* of y, one of n
# summands, and `psum` adds them. Megatron's paper calls this step *g*. Its backward pass does
# nothing: the gradient with respect to y is equal on all devices, and each of them needs it.
#
# With x it is the other way round. Forward, every device has x and just uses it. Backward, each
# device computes how the loss depends on x through its own columns. That is a partial sum of the
# gradient with respect to x, and the summands must be added. The paper calls this step *f*: nothing
# forward, an all-reduce backward.
#
# JAX has f and g in its types. An array is typed as equal on all devices of an axis, or as varying
# over it. `pcast` to varying is f, and `psum` is g. This prints the types while JAX traces:


# %%
def typed_mlp(x, w_up, w_down):
    inside = lax.pcast(x, "tp", to="varying")
    part = jax.nn.gelu(inside @ w_up) @ w_down
    y = lax.psum(part, "tp")
    for name, array in (("x", x), ("f(x)", inside), ("part", part), ("g(part)", y)):
        print(f"{name:>8}: {'varies over tp' if varying_axes(array) else 'equal on all devices'}")
    return y


takes = (replicated, columns, rows)
jax.eval_shape(jax.shard_map(typed_mlp, mesh=mesh, in_specs=takes, out_specs=P()), x, *weights)
print()

# %% [markdown]
# If you leave f out, JAX inserts it at each use of x. The gradient is the same, but each f sends an
# all-reduce of its own. An MLP uses x once, a gated MLP twice, attention three times. On plain
# tensors PyTorch inserts nothing: without f, the gradient with respect to x is wrong there. (Its
# DTensor knows, as JAX does, which arrays are equal on all devices.)


# %%
def three_uses(enter, x, *weights):
    inside = enter(x)
    return lax.psum(sum((inside @ w).sum() for w in weights), "tp")


counts = {}
for name, enter in {"f once": partial(tensor.enter, axis="tp"), "no f": lambda x: x}.items():
    gradient = jax.grad(partial(three_uses, enter), argnums=(0, 1, 2, 3))
    specs = (replicated, columns, columns, columns)
    run = jax.jit(jax.shard_map(gradient, mesh=mesh, in_specs=specs, out_specs=specs))
    collectives = inspect(run, x, *[weights[0]] * 3).collectives
    counts[name] = sum(one.operand_bytes == X for one in collectives)
    print(f"{name}: {counts[name]} all-reduces of X bytes backward")
print()

# %% [markdown]
# ### Two splits that do not work as well
#
# *Rows first.* If `w_up` is split by rows, each device has a partial sum of `x @ w_up`, and relu of
# a sum is not the sum of relus. Take the first token of the picture and its second hidden number,
# relu(1 * -1 + 2 * 1) = 1. By rows, with two devices, one has relu(-1) = 0 and the other relu(2) =
# 2, which add up to 2. So a `psum` has to come before relu, and it sums f numbers for each token in
# place of d. f is often 4d, and a gated MLP has two such products, so there it sums 2f.
#
# *Columns twice.* If `w_down` is split by columns, too, the second product needs all hidden
# numbers, so an all-gather has to come before it, again of f numbers for each token.
#
# With columns first and rows second there is no sum before the down projection. Writing one there
# is a classic mistake: it adds hidden numbers of different columns, and the result is wrong.

# %% tags=["fold"]
assert [int(part[0, 1]) for part in rows_first] == [-1, 2]
assert sum(np.maximum(part, 0) for part in rows_first)[0, 1] == 2 and hidden[0, 1] == 1
assert counts == {"f once": 1, "no f": 3}

# %% [markdown]
# ### The library's form
#
# The library has both kinds of layers, with biases. The bias of the second one is added after the
# sum, or it would be added n times.

# %%
show(tensor.enter, tensor.column_linear, tensor.row_linear, tensor.parallel_mlp)

# %% tags=["fold"]
mlp, takes = partial(tensor.parallel_mlp, axis="tp"), (replicated, columns, rows)
run = jax.jit(jax.shard_map(mlp, mesh=mesh, in_specs=takes, out_specs=replicated))
y = run(x.reshape(b, s, d), *weights).reshape(b * s, d)
np.testing.assert_allclose(y, nn.gelu(x @ weights[0]) @ weights[1], atol=1e-4)

# %% [markdown]
# `parallel_swiglu`, the gated MLP of Llama, is for you to write.
#
# ### Attention: a device has its heads
#
# *Multi-head attention* (MHA) computes several attentions side by side, the *heads*. A head has its
# own columns of the matrices of queries, keys and values, and its own rows of the output matrix,
# and between these the heads do not meet. So it is columns, then rows, once more, with one
# all-reduce at the end.
#
# Many models have fewer heads of keys and values (*kv heads*) than of queries, because that saves
# memory when they generate text. In *grouped-query attention* (GQA) neighbouring query heads use
# the same kv head, and in *multi-query attention* (MQA) all use the same one. If there are fewer kv
# heads than devices, our library replicates the matrices of keys and values, and a device uses the
# columns of one head. (Megatron-LM keeps them split, and gathers queries, keys and values instead.)
#
# Below are 8 query heads on 4 devices. Under each stands the kv head that it uses. Its letter and
# its colour say which one that is.

# %% tags=["fold"]
q, k, v = random((3, 2, 8, 5, 4))  # of each [b, heads, t, h]
alone = [nn.attention(*(y[:, [a]] for y in (q, k, v))) for a in range(8)]
np.testing.assert_allclose(np.hstack(alone), nn.attention(q, k, v), rtol=1e-5)
panels = []
for kind, kv in (("MHA", 8), ("GQA", 4), ("GQA", 2), ("MQA", 1)):
    kv_heads = np.arange(8) * kv // 8  # of each query head
    cells = np.array(([f"q{a}" for a in range(8)], ["kv "] * 8))
    letters = np.stack([np.full(8, NOBODY), kv_heads])
    held_as = "split" if kv >= 4 else "replicated"
    title = f"{kind}, {kv} kv head{'s' * (kv > 1)}; w_k and w_v are {held_as}"
    panels.append(panel(title, *(np.split(a, 4, axis=1) for a in (cells, letters))))
draw("11_heads", Panels("Which kv head (letter) each query head uses", panels))

# %% [markdown]
# Of a replicated matrix each device computes a partial sum of the gradient, as with x, and the
# summands have to be added. JAX does this by itself; in plain PyTorch you write it.
# `parallel_attention` is for you to write.
#
# ### Dropout
#
# Where x is equal on all devices, its dropout mask must be equal, too, or the replicas diverge.
# Inside a block, where each device has its own heads or columns, the masks must differ. There the
# library folds the index of the device into the key.

# %%
show(tensor.dropout)

# %% tags=["fold"]


def masks(x):
    half = partial(tensor.dropout, x, 0.5, key=jax.random.key(0))
    same = lax.pcast(half(axis=None), "tp", to="varying")
    return jnp.stack([same, half(axis="tp")])[None] > 0


run = jax.jit(jax.shard_map(masks, mesh=mesh, in_specs=replicated, out_specs=rows))
kept = np.asarray(run(jnp.ones(1000)))
alike = 100 * np.mean(kept == kept[0], axis=2).T  # [way, device]
same, own = np.round(alike).astype(int).tolist()
shown = ("axis=None, for x", *same), ("axis='tp', inside", *own)
table("Percent of the mask that is as on device 0", ("", *"01234567"), shown)
assert set(same) == {100} and min(own) > 40 and max(own[1:]) < 60

# %% [markdown]
# ## Measure
#
# ### A decoder on three meshes
#
# The decoder takes `Split("tp")`, and then all its layers are split as above. `split_specs` returns
# the partition specs of its parameters; those of the layers come from `megatron_specs`, which is
# for you to write. We compute the loss and its gradients with data parallelism, with tensor
# parallelism, and with both: on `dp=2,tp=4`, four devices work on each half of the batch.

# %%
params = jax.tree.map(lambda leaf: random(leaf.shape) / 8, like)
tokens = rng.integers(0, 256, (b, s + 1), dtype=np.int32)
split_loss = partial(data_parallel_gradients, loss_fn(settings, split=Split("tp")), axis="dp")


def on_mesh(dp, tp):
    over = make_mesh({"dp": dp, "tp": tp})
    specs = split_specs(settings, like, axis="tp", n=tp)
    takes, gives = (specs, P("dp")), (replicated, specs)
    run = jax.jit(jax.shard_map(split_loss, mesh=over, in_specs=takes, out_specs=gives))
    return run, jax.tree.map(partial(NamedSharding, over), takes)


MESHES = {"dp=8": (8, 1), "tp=8": (1, 8), "dp=2,tp=4": (2, 4)}
programs = {name: on_mesh(*sizes) for name, sizes in MESHES.items()}

# %% [markdown]
# ### The compiler's version
#
# The fourth program is that of one device, with no collective in it. We give `jax.jit` the same
# specs as shardings of its arguments and results, and nothing else. The compiler splits the
# products, and inserts the collectives that this takes.

# %%
THEIRS = "tp=8, compiler"
_, where = programs["tp=8"]
given_back = (NamedSharding(make_mesh({"dp": 1, "tp": 8}), replicated), where[0])
whole = jax.value_and_grad(loss_fn(settings))
programs[THEIRS] = jax.jit(whole, in_shardings=where, out_shardings=given_back), where

# %%
reports, losses = {}, {}
for name, (run, where) in programs.items():
    given = jax.device_put((params, tokens), where)
    lowered = run.lower(*given)
    ready = compiled.compile_program(lowered)
    reports[name] = program.inspect_compiled(lowered, ready)
    losses[name] = float(ready.executable(*given)[0])

# %% tags=["fold"]
measured, shown = {}, []
for name, report in reports.items():
    wires, memory = report.wire_bytes_by_axis(), report.memory
    examples = tokens.nbytes // MESHES.get(name, (1, 8))[0]
    its_sent = wires.get(("tp",), 0), wires.get(("dp",), 0)
    measured[name] = memory.arguments_bytes - examples, *its_sent
    shown.append((name, *measured[name], memory.temp_bytes, round(losses[name], 4)))
headers = "", "parameters", "sent over tp", "sent over dp", "intermediate", "loss"
table(f"Bytes of a device, X = {X:,}", headers, shown)

# %% [markdown]
# ### In one layer


# %%
def in_a_layer(report):
    return [one for one in report.collectives if one.times == layers]  # in the loop over layers


for name in ("tp=8", THEIRS):
    inside = in_a_layer(reports[name])
    print(f"{name}: {len(inside)} all-reduces, {sum(one.wire_bytes for one in inside):,.0f} bytes")
print()

# %% [markdown]
# ## Compare

# %%
each = wire_bytes("all_reduce", X, n)
ours = in_a_layer(reports["tp=8"])
held.compare(measured["tp=8"][0], {"1/8 of the matrices": (size - norms) / n, "norms": norms})
ways = "attention forward", "MLP forward", "attention backward", "MLP backward"
sums.compare(len(ours), dict.fromkeys(ways, 1))
sent.compare(sum(one.wire_bytes for one in ours), dict.fromkeys(ways, each))
tokens_equal.compare(round(of_layer / (4 * d)))

# %% [markdown]
# A layer has 4 all-reduces of `b*s*d` numbers, and each sends `2*(n-1)/n` of its array. Together
# they send `8*b*s*d*(n-1)/n` numbers (Narayanan et al. 2021, section 3.2). Data parallelism has one
# all-reduce, of the layer's p parameters. So the two send the same where `4*b*s*d = p`: here at 160
# tokens. Our batch has 256, so data parallelism sends less. The rest that goes over `tp` in the
# table is that of embedding, head and loss, which are split over the vocabulary (lesson 12).
#
# The compiler splits as we do, and holds as little. But it has no f: the gradients with respect to
# x that come through queries, keys, values, gate and up are summed over the devices one by one.
# That makes 5 all-reduces backward, where 2 are enough. In all, our program sends 0.60 of the bytes
# that the compiler's sends. This is XLA on CPU. On GPU a pass named `AllReduceReassociate` may
# merge some of them: it replaces a sum of two all-reduces by an all-reduce of the sum.
#
# Tensor parallelism takes more memory for intermediate results than data parallelism here. Between
# attention and MLP every device has the full activations of all b examples, and only what is inside
# of them is split. Lesson 12 splits the rest as well.

# %% tags=["fold"]


def predict(dp, tp):
    reduced = partial(wire_bytes, "all_reduce")
    held = norms + (size - norms) // tp
    over_tp = (4 * layers + 2) * reduced(X // dp, tp)  # 2 for the vocabulary
    over_tp += 3 * reduced(4 * b * s // dp, tp)  # in the loss
    return held, over_tp, reduced(held + 4, dp)  # of gradients and loss


assert {name: measured[name] for name in MESHES} == {k: predict(*v) for k, v in MESHES.items()}
assert measured[THEIRS][0] == measured["tp=8"][0]
assert round(measured["tp=8"][1] / measured[THEIRS][1], 2) == 0.6
np.testing.assert_allclose(list(losses.values()), losses["dp=8"], rtol=1e-5)
theirs = in_a_layer(reports[THEIRS])
assert {(one.kind, *one.axes) for one in (*ours, *theirs)} == {("all_reduce", "tp")}
assert (len(ours), len(theirs)) == (4, 2 + 5)
assert sum(one.wire_bytes for one in ours) == 4 * 8 * b * s * d * 7 / 8
assert reports["dp=8"].memory.temp_bytes < reports["tp=8"].memory.temp_bytes
assert of_layer == 10 * d * d + 2 * d and round(of_layer / (4 * d)) == 160 < b * s

# %% [markdown]
# ## On real hardware
#
# ### Which links
#
# A layer of Llama 3 8B has d = 4096 and 218 million parameters. Below is its forward pass for 4096
# tokens in bfloat16, on H100 in nodes of 8. Products run at 400 TFLOP/s, the rate at which Llama 3
# 405B was trained (table 4 of its paper). The sums are two all-reduces at the full bandwidth of the
# links: 450 GB/s for each GPU inside a node, and 50 GB/s for each of a node's 8 network cards, plus
# latencies.

# %%
h100, tokens_each, params_8b = find_cluster("h100"), 4096, 218e6
x_bytes = 2 * tokens_each * 4096


def sum_ms(layout, axis="tp"):
    return 1e3 * float(collective_seconds("all_reduce", x_bytes, layout, axis, h100))


def products_ms(parameters, k):
    return 1e3 * 2 * parameters * tokens_each / k / 400e12


shown = []
for k in (2, 4, 8, 16, 32):
    both = round(products_ms(params_8b, k), 2), round(2 * sum_ms(Layout(tp=k)), 2)
    shown.append((f"tp={k}", max(1, k // 8), *both))
apart = 2 * sum_ms(Layout(dp=8, tp=8), "dp")  # groups with one GPU on each of 8 nodes
shown.append(("8 GPUs, one on each node", 8, round(products_ms(params_8b, 8), 2), round(apart, 2)))
table("One layer, forward", ("", "nodes", "ms of products", "ms of sums"), shown)

# %% tags=["fold"]
assert [row[3] for row in shown] == [0.16, 0.25, 0.31, 0.33, 0.36, 2.46]
assert shown[2][2] > shown[2][3] and shown[3][2] < shown[3][3] < 1.1 * shown[2][3]
assert 4 * shown[2][2] < shown[5][3] and shown[5][3] > 7 * shown[2][3]
assert round(sum(shown[2][2:]) / sum(shown[3][2:]), 1) == 1.4

# %% [markdown]
# Over two nodes the sums take hardly longer than in one. Each GPU exchanges only 1/8 of the array
# with the other node, by a network card of its own, and in the best case NVLink works at the same
# time. But the products take half as long, so now the sums take longer than they do, and twice as
# many GPUs compute the layer only 1.4 times as fast. So tp is usually at most the number of GPUs
# that NVLink joins, often 8.
#
# If 8 GPUs are on 8 nodes, each sends everything by one card, and the sums take over four times as
# long as the products. So tp is the innermost axis of a mesh, and its groups fill nodes (Llama 3,
# section 3.3.2).
#
# ### What can be hidden
#
# In the forward pass, the next product has to wait for the sum, so nothing is hidden. Backward a
# part is. The backward pass of a block ends at its first matrices: queries, keys and values in
# attention, gate and up in the MLP. Megatron-LM first computes the gradient with respect to their
# input, and starts its all-reduce. Meanwhile it computes the gradients with respect to these
# matrices, which do not need the sum. (So that the GPU starts the all-reduce first, the code relies
# on `CUDA_DEVICE_MAX_CONNECTIONS=1`.)
#
# Here is one layer, forward and backward. Only products with weights are counted.

# %% tags=["fold"]
ATTENTION, MLP = 41.9e6, 176.2e6  # parameters


def layer_tasks(k):
    tasks = []

    def then(kind, label, milliseconds, *after):
        lane = "links" if kind == "all-reduce" else "compute"
        tasks.append(Task(kind, label, lane, milliseconds / 1e3, after))
        return tasks[-1]

    total, last = sum_ms(Layout(tp=k)), ()
    for label, part in (("A", ATTENTION), ("M", MLP)):
        done = then("products, forward", label, products_ms(part, k), *last)
        last = (then("all-reduce", "sum", total, done),)
    for label, part, first in (("M", MLP, 2 / 3), ("A", ATTENTION, 0.6)):
        early = products_ms(part, k) * (2 - first)
        done = then("products, backward", label, early, *last)
        last = (then("all-reduce", "sum", total, done),)
        then("gradients of first matrices", label, products_ms(part, k) * first, done)
    return run_tasks(tasks)


lanes = {f"tp={k}, {nodes}": layer_tasks(k) for k, nodes in ((8, "one node"), (16, "two nodes"))}
draw("11_sums", Lanes("A layer of Llama 3 8B: A attention, M the MLP", "ms", lanes))
waits = [exposed_seconds(spans) / step_seconds(spans) for spans in lanes.values()]
assert np.round(waits, 2).tolist() == [0.2, 0.36]
assert np.isclose(ATTENTION + MLP, params_8b, rtol=1e-3)

# %% [markdown]
# Computing waits a fifth of the time with tp=8, and over a third with tp=16. Lesson 12 has a
# product that sends while it computes.
#
# One more thing limits tp. Products become narrow: with tp=8 a GPU has 4 of the 32 query heads, 1
# of the 8 kv heads and 1,792 of the 14,336 hidden numbers, and small products use a GPU badly.
#
# Try `jaxpar train --mesh dp=2,tp=4`.
#
# ## Exercises

# %%
exercises("11")

# %% [markdown]
# ## On paper
#
# 1. Llama 3 70B has 64 query heads, 8 kv heads of 128 numbers, d = 8192, and 80 layers. You split
#    it with tp=16, as in this lesson. Which matrices are replicated, and how many bytes does a GPU
#    hold of them in bfloat16? How many would it have with tp=8?
#
# <details><summary>Answer</summary>
#
# With 16 devices and 8 kv heads, the matrices of keys and values are replicated: each has 8192
# times 1024 numbers, so the two take 33.6 MB in a layer and 2.7 GB in all layers. With tp=8 a GPU
# has one kv head of each, 1/8 of that: 0.34 GB. A device uses one head only, so a better program
# would hold 0.34 GB with tp=16, too.
#
# </details>
#
# 2. Llama 3 70B, tp=8 in a node of H100, 8,192 tokens in a step, bfloat16, and no recomputation.
#    How many bytes does a GPU send for its layers, how long does that take at 450 GB/s, and how
#    does it compare with the time for computing at 400 TFLOP/s?
#
# <details><summary>Answer</summary>
#
# A layer sends 8bsd(n-1)/n numbers: 8 * 8,192 * 8,192 * 7/8 are 470 million, or 0.94 GB. 80 layers
# send 75 GB, which takes 0.17 s. Computing takes 6 FLOPs for each parameter and token: 6 * 70.6e9 *
# 8,192 / 8 / 400e12 = 1.08 s. If nothing is hidden, the sums add 15 %.
#
# </details>
#
# 3. For a layer of Llama 3 8B, from how many tokens on does data parallelism send fewer bytes than
#    tensor parallelism? Llama 3 405B was trained on 16,384 GPUs, with 16 million tokens in a batch,
#    in sequences of 8,192. Why did it use tp=8, if data parallelism sends so much less?
#
# <details><summary>Answer</summary>
#
# They send as much where 4bsd = 218 million parameters: at 13,300 tokens for all devices together.
# A batch of 16 million has far more. But it has only 2,048 sequences, and data parallelism cannot
# split a sequence: so 8 of the 16,384 GPUs must work on each. Tensor parallelism and a pipeline
# (lesson 15) let them (table 4 of the paper: tp=8, pp=16, dp=128).
#
# </details>
#
# ## Sources
#
# Shoeybi et al. 2019, *Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
# Parallelism*, section 3. Narayanan et al. 2021, *Efficient Large-Scale Language Model Training on
# GPU Clusters Using Megatron-LM*, section 3.2. Shazeer 2019, *Fast Transformer Decoding: One
# Write-Head is All You Need* (MQA). Ainslie et al. 2023, *GQA: Training Generalized Multi-Query
# Transformer Models from Multi-Head Checkpoints*. Xu et al. 2021, *GSPMD: General and Scalable
# Parallelization for ML Computation Graphs*. Grattafiori et al. 2024, *The Llama 3 Herd of Models*,
# section 3.3.2 and table 4. openxla/xla: `all_reduce_reassociate.h`, and `gpu_compiler.cc`, which
# runs it. NVIDIA/Megatron-LM: `megatron/core/tensor_parallel/layers.py`,
# `LinearWithGradAccumulationAndAsyncCommunication` (what is hidden), and
# `megatron/core/transformer/attention.py` (fewer kv heads than devices).
#
# | here | PyTorch | Megatron-LM, MaxText |
# |---|---|---|
# | `column_linear` | `ColwiseParallel` | `ColumnParallelLinear` |
# | `row_linear` | `RowwiseParallel` | `RowParallelLinear` |
# | `pcast` to varying, f | DTensor: `Replicate` | `copy_to_tensor_model_parallel_region` |
# | `psum`, g | DTensor: `Partial` to `Replicate` | `reduce_from_tensor_model_parallel_region` |
# | `megatron_specs` | a plan for `parallelize_module` | MaxText: rules for logical axes |
# | tp | a dim of `init_device_mesh` | `--tensor-model-parallel-size` |
