# %% [markdown]
# # Lesson 23: adapters
#
# A model has been trained, and you want it to do something else: to answer in another style, or to
# read another kind of text. To train all of it again, which is called *full fine-tuning*, takes as
# much memory as its first training: Llama 3 8B needs 128 GB for its parameters, gradients and
# optimizer (lesson 04), before it sees a token. But the change that you want may be small. An
# *adapter* is a small number of new parameters beside the old ones, and only these are trained. The
# old parameters are *frozen*, which means that they stay as they are. We call them the *base*. The
# field calls such methods *parameter-efficient fine-tuning*, and Hugging Face's library for them is
# peft.
#
# Frozen parameters have no gradients, so devices have none to reduce, and the optimizer keeps no
# state for them. They are only read, so they may be stored in few bits (lesson 22). This lesson
# looks at what each kind of adapter trains, and at what many devices still have to send and to
# hold.

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import PartitionSpec as P

from jaxpar.cost.adapters import METHODS, adapter_of
from jaxpar.cost.models import find_model
from jaxpar.cost.zero import ADAM_MIXED, training_states
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.bars import Bars
from jaxpar.drawing.curves import Curves
from jaxpar.inspector import inspect
from jaxpar.model import Settings, init, loss_fn
from jaxpar.model.adapter import merged as merge_adapters
from jaxpar.parallel import adapters, data, fsdp
from jaxpar.parallel.tensor import enter
from jaxpar.quantize import nf4_dequantize, nf4_quantize
from jaxpar.train.text import read_library
from jaxpar.train.trained import replaced, trained

rng = np.random.default_rng(0)
llama = find_model("llama3-8b")


def normal(*shape):
    return rng.normal(size=shape).astype(np.float32)


# %% [markdown]
# ## The idea in one picture
#
# *LoRA* (low-rank adaptation) puts two thin matrices beside a frozen matrix w of d rows and f
# columns: a has d rows and r columns, and b has r rows and f columns. The layer computes
#
# $$y = x\,w + \frac{\alpha}{r}\,(x\,a)\,b$$
#
# In effect w changes by a matrix of d * f numbers, but only r * (d + f) numbers are trained. The
# *rank* r is small, usually 8 to 64. At first a is random and b is zero, so that training begins
# with the model as it was. The constant alpha says how much the adapter counts. It is divided by r,
# so that less has to be tuned anew when r changes (Hu et al. 2021, section 4.1). Our code has
# alpha/r as one number, the scale. (peft keeps a and b transposed, as `lora_A` and `lora_B`.)
#
# *QLoRA* does the same, and stores the frozen matrices of the layers in 4 bits.
#
# The picture shows what one device holds to train Llama 3 8B with Adam in mixed precision (lesson
# 07), without activations, in three ways: with all parameters trained, with LoRA of rank 16 at
# every matrix of every layer, and with QLoRA at the same matrices. The embedding and the head have
# no adapter, and stay in 16 bits. The line beside the bars is the memory of a card of 24 GB.

# %% tags=["fold"]
of_adapters = adapter_of(llama, method="lora", rank=16)
tables = 2 * llama.vocab * llama.hidden  # embedding and head stay in 16 bits
NF4_BITS = 4 + 32 / 64  # a float32 for each 64 weights
frozen = {"LoRA": 2 * llama.parameters}
frozen["QLoRA"] = 2 * tables + NF4_BITS / 8 * (llama.parameters - tables)


def held(base, parameters):
    """GB: a base, and parameters that are trained."""
    each = ADAM_MIXED
    parts = {"frozen base": base, "trained": each.params * parameters}
    parts |= {"gradients": each.gradients * parameters, "optimizer": each.optimizer * parameters}
    return {name: size / 1e9 for name, size in parts.items()}


bars = {"all parameters": held(0, llama.parameters)}
bars |= {name: held(base, of_adapters) for name, base in frozen.items()}
draw("23_memory", Bars("Training Llama 3 8B on one device", "GB", bars, ("24 GB card", 24)))

# %% [markdown]
# ## Predict
#
# Llama 3 8B has 32 layers. In each, the matrices of queries and of the output have 4096 rows and
# 4096 columns, and those of keys and values have 4096 rows and 1024 columns. Of the three matrices
# of the MLP, two have 4096 rows and 14,336 columns, and one has 14,336 rows and 4096 columns.

# %%
of_lora = ask("Parameters that LoRA of rank 16 trains, at all seven matrices of a layer", "count")

# %% [markdown]
# Eight devices fine-tune this model with data parallelism, and all-reduce gradients in float32. If
# all 8.03 billion parameters were trained, each device would send 56.2 GB in a step.

# %%
of_dp = ask("Sent by each of 8 devices in a step, with LoRA of rank 16")

# %% [markdown]
# Now a model of four layers, each a matrix of 256 rows and 256 columns in float32, is trained with
# FSDP (lesson 10) on eight devices. In a step, each device sends 2,752,512 bytes.

# %%
of_fsdp = ask("Sent by each of 8 devices for the matrices, if these are frozen")

# %% [markdown]
# Last, the operations. A product of x, [128, 256], with w, [256, 512], takes 33.6 million
# floating-point operations. Training takes three such products: one forward, one for the gradient
# of x, and one for the gradient of w.

# %%
of_flops = ask("FLOPs, forward and backward, with w frozen and LoRA of rank 8 beside it", "count")

# %% [markdown]
# ## Implement
#
# ### One step by hand: an adapter of a split matrix
#
# In tensor parallelism, w may be split by columns (lesson 11). How is its adapter split? Each
# device needs `(x @ a) @ b` for its own columns only. So b is split by columns, like w, and every
# device has all of a. The step below is one step of gradient descent with such a layer, and the
# backward pass is written out. Nothing in it computes a gradient of w. And one line sends
# something, the `psum`: each device knows only the part of a's gradient that comes from its own
# columns. (This x is an input of the model, so it needs no gradient.)

# %%
T, D, F, R, SCALE, RATE = 128, 256, 512, 8, 2.0, 0.5
mesh = make_mesh("tp=8")
columns = P(None, "tp")


def step_by_hand(w, a, b, x, target):
    hidden = x @ a  # [T, R], the same on all devices
    y = x @ w + SCALE * hidden @ b  # this device's columns
    g = 2 * (y - target) / (T * F)  # the gradient of the mean squared error
    of_b = SCALE * hidden.T @ g  # its own columns: nothing to send
    of_a = lax.psum(SCALE * x.T @ (g @ b.T), "tp")
    return a - RATE * of_a, b - RATE * of_b


specs = (columns, P(), columns, P(), columns)
by_hand = jax.jit(jax.shard_map(step_by_hand, mesh=mesh, in_specs=specs, out_specs=(P(), columns)))

# %% [markdown]
# ### The library's form
#
# The library's function is the product alone. It works on whole matrices and on shards, and JAX
# derives the backward pass. The step below it uses `enter` (lesson 11), which marks x as varying
# over the axis tp. That sends nothing forward, and in the backward pass JAX sums the gradient of a
# over the devices, as the `psum` above does. Both steps must give the same a and b.

# %%
show(adapters.lora_linear)


# %%
def step(w, a, b, x, target):
    def loss(a, b):
        y = adapters.lora_linear(enter(x, axis="tp"), w, a, b, scale=SCALE)
        return ((y - target) ** 2).sum() / (T * F)

    of_a, of_b = jax.grad(loss, argnums=(0, 1))(a, b)
    return a - RATE * of_a, b - RATE * of_b


by_library = jax.jit(jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=(P(), columns)))
arrays = normal(D, F), normal(D, R), normal(R, F), normal(T, D), normal(T, F)
for one, other in zip(by_hand(*arrays), by_library(*arrays), strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)

# %% [markdown]
# Where w is split by rows, a is split by rows, too, and every device has all of b. You will write
# this one: `lora_row_linear`.
#
# After training, the adapter can be *merged*: its product is added to w, once. Then the model has
# the form that it had before, and is as fast:

# %%
show(adapters.merge)

# %% [markdown]
# ### Four bits
#
# QLoRA stores each number of the base as the nearest of 16 numbers, times the largest magnitude of
# its block of 64. In this format, *NF4*, the 16 numbers are quantiles of a normal distribution,
# because weights are nearly normal (lesson 22). To train, the codes must become floats again: only
# where a product needs them, a few columns at a time, and once more in the backward pass, where the
# gradient of x needs the same matrix. No gradient has to go through the rounding, since what was
# rounded is frozen. `nf4_linear` is yours to write. Here we only look at what the codes take, and
# at how far they are from w.

# %%
w = jnp.asarray(arrays[0])
codes = nf4_quantize(w, block=64)
lost = jnp.linalg.norm(nf4_dequantize(*codes) - w) / jnp.linalg.norm(w)
bits = 8 * sum(part.nbytes for part in codes) / w.size
print(f"{bits} bits for each weight, with an error of {100 * lost:.1f}%")

# %% tags=["fold"]
assert bits == NF4_BITS == 4.5 and 0.085 < lost < 0.1

# %% [markdown]
# ### Other adapters
#
# - *Prefix tuning* learns keys and values of P additional positions in each layer. They stand
#   before the first token, and every query sees them. *P-tuning v2* does the same, for models of
#   any size and also for tasks other than writing text (Liu et al. 2022). In tensor parallelism, a
#   device has the prefixes of its own heads, so nothing more is sent. You will write
#   `prefix_attention`.
# - *Prompt tuning* learns P vectors that stand before the embeddings of the input. Later layers
#   have nothing of their own.
# - *BitFit* trains the biases that are there already, and nothing else. Llama has none.

# %%
gpt2 = find_model("gpt2-xl")
rows = []
for method in METHODS:
    counts = [adapter_of(model, method=method, rank=16, prefix=100) for model in (llama, gpt2)]
    rows.append((method, *(round(count / 1e6, 2) for count in counts)))
table("Millions of parameters, rank 16 or a prefix of 100", ("", llama.name, gpt2.name), rows)

# %% [markdown]
# A prefix and a prompt take up positions, which cost time in attention and room in the cache of
# keys and values (lesson 21). LoRA takes none. Once it is merged, it costs nothing at all. But it
# need not be merged: a server can hold one base and many adapters.
#
# ## Measure
#
# ### Three ways to multiply
#
# The same function can be computed in three ways: with two thin products beside that with w, with a
# merged matrix that is made anew in every step, or with the product of a and b as a second matrix
# beside w. For each, the inspector counts the operations, and the memory of intermediate results,
# without arguments and results. The backward pass computes the gradients of x, a and b, and none of
# w.

# %%
ways = {
    "thin: x @ w + (x @ a) @ b": partial(adapters.lora_linear, scale=SCALE),
    "merged: x @ (w + a @ b)": lambda x, w, a, b: x @ adapters.merge(w, a, b, scale=SCALE),
    "apart: x @ w + x @ (a @ b)": lambda x, w, a, b: x @ w + x @ (SCALE * a @ b),
}
w, a, b, x, target = arrays
rows, flops = [], {}
for name, way in ways.items():
    forward = inspect(way, x, w, a, b)

    def gradients(x, w, a, b, g, way=way):
        y, pull = jax.vjp(lambda x, a, b: way(x, w, a, b), x, a, b)
        return y, pull(g)

    both = inspect(gradients, x, w, a, b, target)
    flops[name] = both.flops
    megaflops = (round(report.flops / 1e6, 1) for report in (forward, both))
    kilobytes = (round(report.memory.temp_bytes / 1e3) for report in (forward, both))
    rows.append((name, *megaflops, *kilobytes))
heads = "", "MFLOP forward", "and backward", "kB forward", "and backward"
table("A product and its adapter", heads, rows)

# %% tags=["fold"]
(_, thin, both_thin, kb, both_kb), merged, apart = rows
assert 2 * T * D * F / 1e6 == 33.554432 and both_thin < 2.15 * 33.6 < 3 * 33.6 < merged[2]
assert merged[2] / both_thin > 1.48 and apart[2] / both_thin > 2.4 and apart[1] / thin > 1.9
assert 200 < merged[3] - kb < 300 and abs(merged[4] / both_kb - 2.6) < 0.3
assert round(4 * D * F / 1e3) == 524 and round(4 * T * F / 1e3) == 262

# %% [markdown]
# Forward, the thin products and the merged matrix take about as many operations. The merged form
# holds a matrix as large as w, 524 kB. The thin form holds a second result, here 262 kB, which
# grows with the rows of x. Backward, the merged form also computes the gradient of the merged
# matrix, from which those of a and b are made: with it, both passes take half as many operations
# again, and 2.6 times the memory. The third form is the most expensive, because it multiplies x by
# two full matrices. So a trainer keeps the products thin, and merging is for inference.
#
# With a frozen w and a thin adapter, training takes two products of the size of w, one forward and
# one for the gradient of x, in place of three. The thin products add little. So a third of the work
# is saved, and not two thirds: the gradient of x must go through all frozen matrices to reach the
# adapters of earlier layers.

# %% [markdown]
# ### What is left to send
#
# Now the communication. Eight devices train four layers of 256 by 256, with adapters of rank 8, by
# data parallelism and by FSDP: all of it, or the adapters alone. With FSDP, every device has all
# adapters, because they are small, and their gradients are all-reduced. In the last row the base is
# stored and gathered as NF4 codes.

# %%
LAYERS, WIDTH = 4, 256
on_dp = make_mesh("dp=8")
stack = normal(LAYERS, WIDTH, WIDTH) / 16
low = {"a": normal(LAYERS, WIDTH, R) / 16, "b": normal(LAYERS, R, WIDTH) / 16}
batch, rows_of = normal(8 * 4, WIDTH), P("dp")


def adapted(w, adapter, x):
    return jnp.tanh(adapters.lora_linear(x, w, adapter["a"], adapter["b"], scale=SCALE))


def adapted_codes(codes, adapter, x):
    return adapted(nf4_dequantize(*codes), adapter, x)


def through(layer):
    def loss(base, low, x):
        return (lax.scan(lambda x, one: (layer(*one, x), None), x, (base, low))[0] ** 2).mean()

    return loss


def all_by_fsdp(flat_shards, x):
    like = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32)

    def loss(shards):
        y = fsdp.fsdp_apply(lambda w, x: jnp.tanh(x @ w), like, shards, x, axis="dp")
        return (y**2).mean()

    return jax.grad(loss)(flat_shards)


def adapters_by_fsdp(layer, shards, low, x):
    def loss(low):
        return (adapters.fsdp_lora_apply(layer, shards, low, x, axis="dp") ** 2).mean()

    return jax.grad(loss)(low)


split = P(None, "dp")
plain = through(lambda w, _, x: jnp.tanh(x @ w))
packed = nf4_quantize(jnp.asarray(stack), block=64)
programs = {
    "dp, all trained": (
        lambda w, x: data.data_parallel_gradients(lambda w, x: plain(w, low, x), w, x, axis="dp"),
        (stack, batch), (P(), rows_of), P(),
    ),
    "dp, LoRA": (
        partial(adapters.adapter_gradients, through(adapted), axis="dp"),
        (stack, low, batch), (P(), P(), rows_of), P(),
    ),
    "FSDP, all trained": (
        all_by_fsdp, (stack.reshape(LAYERS, -1), batch), (split, rows_of), split,
    ),
    "FSDP, LoRA": (
        partial(adapters_by_fsdp, adapted), (stack, low, batch), (split, P(), rows_of), P(),
    ),
    "FSDP, QLoRA": (
        partial(adapters_by_fsdp, adapted_codes), (packed, low, batch), (split, P(), rows_of), P(),
    ),
}  # fmt: skip
sent = {}
for name, (function, args, takes, gives) in programs.items():
    program = jax.shard_map(function, mesh=on_dp, in_specs=takes, out_specs=gives)
    found = dict.fromkeys(("all_gather", "reduce_scatter", "all_reduce"), 0.0)
    for one in inspect(program, *args).collectives:
        found[one.kind] += one.total_wire_bytes
    sent[name] = found
rows = [(name, *map(round, (*found.values(), sum(found.values())))) for name, found in sent.items()]
heads = "", "all-gather", "reduce-scatter", "all-reduce", "together"
table("Bytes that a device sends in a step", heads, rows)

# %% [markdown]
# With LoRA, data parallelism sends a sixteenth of the bytes: the adapter of a layer has 4,096
# numbers, and its matrix has 65,536. FSDP still sends two thirds of its bytes, and the gradients of
# the adapters come on top. It gathers each layer twice, as before, and only the reduce-scatter of
# the layer's gradients is gone. So with FSDP a frozen base saves little, unless it is stored in few
# bits: the codes take a seventh of the bytes of float32. (Against a base in 16 bits, it would be 16
# / 4.5 = 3.6 times less.) You will write the two functions that train adapters here,
# `adapter_gradients` and `fsdp_lora_apply`.
#
# In tensor parallelism, activations and their gradients are sent, and a frozen base changes nothing
# about these. An adapter adds one thing, the gradient of the factor that every device has in full:
# a where w is split by columns, and b where it is split by rows. Here it is measured for one layer
# of each kind.

# %%
WIDE = 512
x, w, g = normal(T, WIDE), normal(WIDE, WIDE), normal(T, WIDE)
a, b = normal(WIDE, R), normal(R, WIDE)


def by_columns(x, w, *ab):
    x = enter(x, axis="tp")
    return adapters.lora_linear(x, w, *ab, scale=SCALE) if ab else x @ w


def by_rows(x, w, *ab):
    if ab:
        return adapters.lora_row_linear(x, w, *ab, axis="tp", scale=SCALE)
    return lax.psum(x @ w, "tp")


down = P("tp")
splits = {
    "columns": (by_columns, (P(), columns), (P(), columns), columns),
    "rows": (by_rows, (columns, down), (down, P()), P()),
}
rows = []
for name, (layer, of_base, of_adapter, of_result) in splits.items():
    for adapter, takes in (((), of_base), ((a, b), of_base + of_adapter)):
        trains = (0, 2, 3)[: 1 + len(adapter)]  # x, a and b

        def backward(g, *args, layer=layer, trains=trains):
            def of_trained(*some):
                given = list(args)
                for place, one in zip(trains, some, strict=True):
                    given[place] = one
                return layer(*given)

            y, pull = jax.vjp(of_trained, *(args[place] for place in trains))
            return y, pull(g)

        gives = of_result, tuple(takes[place] for place in trains)
        runs = (layer, takes, of_result), (backward, (of_result, *takes), gives)
        forward, both = (
            inspect(jax.shard_map(f, mesh=mesh, in_specs=i, out_specs=o), *args)
            for (f, i, o), args in zip(runs, ((x, w, *adapter), (g, x, w, *adapter)), strict=True)
        )
        numbers = [report.wire_bytes_by_axis().get(("tp",), 0) for report in (forward, both)]
        what = f"{name}, with LoRA" if adapter else f"{name}, w alone"
        rows.append((what, round(numbers[0]), round(numbers[1] - numbers[0])))
table("Bytes that each of 8 devices sends in tensor parallelism", ("", "forward", "backward"), rows)

# %% tags=["fold"]
dp_full, dp_lora, of_full, of_frozen, of_codes = (sum(found.values()) for found in sent.values())
assert round(dp_full / dp_lora) == 16 and WIDTH * WIDTH == 65_536 and 2 * WIDTH * R == 4_096
base_sent = of_frozen - sent["FSDP, LoRA"]["all_reduce"]
assert 3 * base_sent == 2 * of_full == 2 * 2_752_512
assert round(base_sent / sent["FSDP, QLoRA"]["all_gather"]) == 7
assert rows[0] == ("columns, w alone", 0, 458_752) and rows[2][1:] == (458_752, 0)
assert rows[1][2] - 458_752 == rows[3][2] == 28_672

# %% [markdown]
# ### On a decoder
#
# So far we have counted. What does an adapter learn? A decoder of two layers is trained on the text
# of Python's own library. Then it is fine-tuned on the same kind of text, but with capitals in
# place of small letters, and small letters in place of capitals: once with all parameters, and once
# with LoRA of rank 8 at all matrices of its layers. The library's decoder takes the rank as a
# setting, and then its parameters have an adapter beside each matrix. `trained` returns these
# adapters alone, and `replaced` puts others in their place.

# %%
jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
settings, steps = Settings(layers=2, d_model=32, heads=4, d_ff=64), 120
text = read_library()[:400_000].astype(np.int32)
swap = np.arange(256)
swap[65:91], swap[97:123] = np.arange(97, 123), np.arange(65, 91)


def batches(text, seed, count=steps):
    places = np.random.default_rng(seed).integers(0, len(text) - 33, (count, 16, 1))
    return text[places + np.arange(33)]


def trainer(loss, rate):
    optimizer = optax.adam(rate)

    def step(carry, batch):
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params, batch)
        updates, state = optimizer.update(gradient, state)
        return (optax.apply_updates(params, updates), state), value

    def train(params, batches):
        (params, _), losses = lax.scan(step, (params, optimizer.init(params)), batches)
        return params, losses

    return jax.jit(train)


loss = loss_fn(settings)
train_all = trainer(loss, 1e-2)
params = init(settings, jax.random.key(0))
for seed in range(3):
    params, _ = train_all(params, batches(text, seed))

# %%
with_lora = replace(settings, adapter_rank=R)
whole = replaced(init(with_lora, jax.random.key(1)), params)


def loss_of_adapters(low, batch):
    return loss_fn(with_lora)(replaced(whole, low), batch)


other = batches(swap[text], 3)
tuned, losses_of_all = train_all(params, other)
low, losses_of_lora = trainer(loss_of_adapters, 1e-2)(trained(whole), other)

old, new = (batches(one, 4, 8).reshape(-1, 33) for one in (text, swap[text]))
losses_of = jax.jit(lambda params: (loss(params, old), loss(params, new)))
plain, merged = merge_adapters(with_lora, replaced(whole, low))
assert plain == settings  # without adapters, as it was before
models = {"base": params, "all parameters": tuned, "LoRA": merged}
rows, found = [], {}
for name, one in models.items():
    trained_now = {"base": (), "all parameters": one, "LoRA": low}[name]
    found[name] = [round(float(value), 2) for value in losses_of(one)]
    rows.append((name, sum(leaf.size for leaf in jax.tree.leaves(trained_now)), *found[name]))
table("Losses on batches of another seed", ("", "trained parameters", "old text", "new text"), rows)

# %% tags=["fold"]
each = {"all parameters": losses_of_all, "LoRA": losses_of_lora}
smooth = {name: np.asarray(one).reshape(-1, 8).mean(axis=1) for name, one in each.items()}
at = range(8, steps + 1, 8)
draw("23_losses", Curves("Fine-tuning a small decoder", "step", "loss", at, smooth))

# %% tags=["fold"]
(old_base, new_base), (old_all, new_all), (old_lora, new_lora) = found.values()
assert old_base < new_all + 0.2 < new_lora < new_base - 0.6  # less learned by LoRA
assert abs(old_lora - old_all) < 0.3 < 0.6 < old_lora - old_base  # and both have forgotten much

# %% [markdown]
# The curves and the last column say that LoRA learns less than full training in as many steps and
# with the same learning rate. It trains a quarter of the parameters, so large a part only because
# the model is small. Both spoil the model for the old text, by about as much. But full training has
# overwritten the model, while an adapter can be taken off: then the loss on the old text is again
# what it was. (Each run was made once, and a small model that has to learn other letters needs more
# than a small change. On Llama 2, LoRA learns less as well, and also forgets less: Biderman et al.
# 2024.)
#
# ## Compare

# %%
of_lora.compare(of_adapters)
of_dp.compare(2 * 7 / 8 * 4 * of_adapters)
of_fsdp.compare(base_sent, {"forward": base_sent / 2, "backward": base_sent / 2})
product = 2 * T * D * F
parts = {"x @ w": product, "gradient of x": product}
thin_flops = flops["thin: x @ w + (x @ a) @ b"]
of_flops.compare(thin_flops, parts | {"adapter": thin_flops - 2 * product})

# %% tags=["fold"]
assert of_adapters == 41_943_040 and round(2 * 7 / 8 * 4 * llama.parameters / 1e9, 1) == 56.2

# %% [markdown]
# ## On real hardware
#
# Llama 3 8B on eight devices: the table says what each device holds of parameters, gradients and
# optimizer, in GB. In data parallelism and with ZeRO-1, each has the whole base. ZeRO-3, which is
# FSDP, shards the base, and here the adapters and their states as well.

# %%
rows = []
for name, base in {"all parameters": 0, **frozen}.items():
    count = of_adapters if base else llama.parameters
    by_stage = [training_states(count, ADAM_MIXED, 8, stage).total / 1e9 for stage in (0, 1, 3)]
    bases = (base / 1e9, base / 1e9, base / 8e9)
    rows.append((name, *(round(one + two, 1) for one, two in zip(by_stage, bases, strict=True))))
table("GB on each of 8 devices", ("", "data parallel", "ZeRO-1", "ZeRO-3"), rows)

# %% tags=["fold"]
assert rows == [
    ("all parameters", 128.5, 44.2, 16.1), ("LoRA", 16.7, 16.3, 2.1), ("QLoRA", 6.7, 6.3, 0.8),
]  # fmt: skip

# %% [markdown]
# - **ZeRO-1 and ZeRO-2** save next to nothing with adapters, because the optimizer's state and the
#   gradients are small already. What is left to shard is the base.
# - **FSDP or data parallelism?** With LoRA, data parallelism sends 0.3 GB in a step, where FSDP
#   gathers a base of 16 GB twice. So replicate the base wherever it fits. With QLoRA it fits more
#   often. Where it does not, shard the codes: PyTorch's FSDP with QLoRA trains models of 70B
#   parameters on two cards of 24 GB (Answer.AI 2024).
# - **Activations** are what they were: LoRA must keep the input of every matrix that has an
#   adapter, since the gradient of a needs it. Beside a frozen base they soon take the most memory,
#   so activation checkpointing (lesson 08) matters more than before.
# - **4 bits save memory, not time.** Every product turns codes into floats first, in the forward
#   and in the backward pass.
# - **Double quantization.** QLoRA quantizes the scales as well, to 8 bits in blocks of 256: a
#   weight then takes 4.127 bits, not 4.5. In all, QLoRA brought the fine-tuning of a model of 65B
#   parameters from more than 780 GB below 48 GB (Dettmers et al. 2023).
# - **Merging into codes** is not exact: the merged matrix has to be rounded again.
# - **Checkpoints are small.** LoRA of rank 4 at the queries and values of GPT-3 took 35 MB, where
#   the model takes 350 GB (Hu et al. 2021).
# - **Servers** keep one base and many adapters, and compute the thin products of each request with
#   its own adapter: thousands of adapters on one GPU (Sheng et al. 2023).
#
# Try it: `jaxpar train --mesh fsdp=8 --steps 200 --checkpoint run1`, then `jaxpar train --mesh
# fsdp=4,tp=2 --from run1 --adapter lora:8 --base-bits 4 --checkpoint run2`, and `jaxpar plan
# --model llama3-70b --hardware rtx4090 --devices 8 --adapter lora:16 --base-bits 4`.
#
# What a CPU cannot show: kernels for 4 bits, which turn codes into floats in the registers, just
# before they multiply. Here a slice of the weights is written to memory as floats, and read again.
#
# ## Exercises

# %%
exercises("23")

# %% [markdown]
# ## On paper
#
# 1. Llama 3 70B has 80 layers, 64 query heads and 8 kv heads of 128, hidden size 8192, and a gated
#    MLP of 28,672. How many parameters has LoRA of rank 16 at all matrices of its layers? How much
#    do the states of the adapters take? And how much does the base take in 16 bits, or in NF4 at
#    4.5 bits, where the embedding and the head, two tables of 128,256 rows, stay in 16 bits?
#
# <details><summary>Answer</summary>
#
# A layer has 16 times (2 * 16,384 + 2 * 9,216 + 3 * 36,864) parameters, so there are 207 million in
# all. At 16 bytes each, their states take 3.3 GB. The base takes 141.1 GB in 16 bits. The tables
# have 2.1 billion parameters, so with NF4 it takes 38.5 GB for the matrices and 4.2 GB for the
# tables: 42.7 GB.
#
# </details>
#
# 2. Llama 3 8B is trained with FSDP on 8 devices, and gathers and reduces in 16 bits. How much does
#    each device send in a step? How much does it send for a frozen base, and how much if this has
#    6.0 GB of codes and tables, which are gathered as they are?
#
# <details><summary>Answer</summary>
#
# The model has 16.06 GB, of which each device sends 7/8 in each of two gathers and in a
# reduce-scatter: 42.2 GB. A frozen base leaves the gathers, 28.1 GB. With codes these take 10.5 GB.
#
# </details>
#
# 3. A hundred customers have an adapter each of Llama 3 8B, of rank 16, in 16 bits. How much memory
#    do base and adapters take unmerged, and how much do a hundred merged models? By how much do the
#    operations of a token grow if the adapters are not merged, and the matrices of the layers have
#    6.98 billion parameters?
#
# <details><summary>Answer</summary>
#
# An adapter has 84 MB, so a hundred take 8.4 GB beside the base of 16 GB. A hundred merged models
# take 1,606 GB. A token takes 2 operations for each parameter, so the adapter adds 0.6%.
#
# </details>
#
# ## Sources
#
# Answer.AI 2024, *You Can Now Train a 70b Language Model at Home*. Ben Zaken, Goldberg and Ravfogel
# 2022, *BitFit*. Biderman et al. 2024, *LoRA Learns Less and Forgets Less*. Dettmers et al. 2023,
# *QLoRA*. Hu et al. 2021, *LoRA*. Lester, Al-Rfou and Constant 2021, *The Power of Scale for
# Parameter-Efficient Prompt Tuning*. Li and Liang 2021, *Prefix-Tuning*. Liu et al. 2022, *P-Tuning
# v2*. Sheng et al. 2023, *S-LoRA*. Shoeybi et al. 2019, *Megatron-LM*. Zhao et al. 2023, *PyTorch
# FSDP*.
#
# | here | PyTorch and peft | others |
# |---|---|---|
# | `lora_linear` | peft `LoraConfig`, torchtune `LoRALinear` | Megatron: `LoRA` of NeMo |
# | `merge` | peft `merge_and_unload` | - |
# | `nf4_linear` | bitsandbytes `Linear4bit`, torchao `NF4Tensor` | - |
# | `prefix_attention` | peft `PrefixTuningConfig` | - |
# | prompt | peft `PromptTuningConfig` | - |
# | frozen base | `requires_grad_(False)`; FSDP1 with `use_orig_params=True`, or FSDP2 | - |
