# %% [markdown]
# # Lesson 22: smaller models
#
# A trained model is usually kept in 16 bits for each number, sometimes in 32. Does it need so many?
# With 4 bits in place of 16, a model about four times as large fits into the same memory, a server
# reads its weights in about a quarter of the time (lesson 21), and a device that sends weights
# sends about a quarter of the bytes. There are three ways to make a model smaller. *Quantization*
# takes fewer bits for each number. *Pruning* sets some of the numbers to 0. *Distillation* trains a
# smaller model to imitate the large one.
#
# All three lose something. So for quantization and pruning we ask what they save, in bytes, and
# what they lose, in the loss of a model that we have trained ourselves. Of distillation, which
# needs a training run of its own, we only look at the loss.
#
# In the simplest form of quantization, a number is kept as a small integer, its *code*, and several
# codes share one float, their *scale*. A code times its scale is nearly the number that it stands
# for. Here are four numbers that share a scale, with codes of 4 bits, from -7 to 7. The largest
# magnitude becomes 7, so the scale is 1.40 / 7 = 0.20.
#
# | number | 0.37 | -0.84 | 1.40 | 0.08 |
# |---|---|---|---|---|
# | code: number / 0.20, rounded | 2 | -4 | 7 | 0 |
# | read back: code * 0.20 | 0.40 | -0.80 | 1.40 | 0.00 |

# %%
from jaxpar.mesh import make_mesh, simulate_devices

simulate_devices(8)

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import P, lax

from jaxpar.cost.models import find_model
from jaxpar.cost.quantized import quantized_bits
from jaxpar.course.lesson import exercises, show, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.course.smaller_losses import read_smaller
from jaxpar.drawing.curves import Points
from jaxpar.inspector import inspect
from jaxpar.microscaling import mx_dequantize, mx_quantize
from jaxpar.parallel.quantized import int8_all_gather, quantized_layers
from jaxpar.post_training import awq, gptq, round_columns
from jaxpar.prune import prune_2_4
from jaxpar.quantize import (
    decode_blocks,
    dequantize_blocks,
    dynamic_codebook,
    encode_blocks,
    nf4_dequantize,
    nf4_quantize,
    normal_codebook,
    quantize_blocks,
)

jax.config.update("jax_disable_most_optimizations", True)  # compiles sooner
n, mesh = 8, make_mesh("tp=8")
rng = np.random.default_rng(0)


def random(*shape):
    return rng.normal(size=shape).astype(np.float32)


def relative_error(found, right):
    return float(jnp.linalg.norm(found - right) / jnp.linalg.norm(right))


# %% [markdown]
# ## The idea in one picture
#
# A decoder of two layers was trained for 900 steps on the sources of Python's library. Then the
# matrices of its layers were made smaller in one way after another, each time from the trained
# ones, and without any further training. The embedding, the head and the norms stayed as they were.
# The loss was computed with the rounded numbers, as floats: it shows what rounding loses, and not
# how fast a kernel would be. This takes minutes, so we read what `python -m
# benchmarks.losses_when_smaller --write` has measured.
#
# Each point is one way. Across, on a logarithmic scale, are the bits of a number, with its part of
# the scales and of all else that is kept beside the codes. Upwards is the loss on held-out text, so
# the best place is at the lower left. The way that loses most is left out here, and is in the table
# at the end of "Measure". The lesson explains the names one by one.

# %%
measured = read_smaller()
trained = measured["as trained"].loss
rise = {name: one.loss - trained for name, one in measured.items()}
points = {name: (one.bits, one.loss) for name, one in measured.items() if rise[name] < 0.4}
draw("22_losses", Points("One decoder, made smaller", "bits of a number", "held-out loss", points))

# %% [markdown]
# ## Predict
#
# In *NF4*, a format of 4 bits that is explained below, each number has a code of 4 bits, and every
# 64 numbers share one float32.

# %%
nf4_weights = ask("Bytes of 8.03 billion parameters in NF4")

# %% [markdown]
# Adam keeps two numbers for each parameter, its moments. In the 8-bit form of Adam, each of them is
# a code of 8 bits, and every 256 codes share one float32.

# %%
adam_state = ask("Bytes that 8-bit Adam keeps for 8.03 billion parameters")

# %% [markdown]
# Eight devices hold 64 rows each of a matrix with 512 rows and 512 columns. An all-gather gives all
# rows to all devices, as in FSDP (lesson 10), but the rows are sent as int8, with a float32 for
# every 128 numbers of a row. In the backward pass a reduce-scatter sends the gradient in float32:
# it is summed over the devices, and each keeps its own rows.

# %%
sent_forward = ask("Bytes that a device sends forward")
sent_backward = ask("Bytes that a device sends backward")

# %% [markdown]
# Sixteen layers of one 512 x 512 matrix each are kept in int8. To compute a layer, its matrix is
# needed in float32. We count only the float32 matrices that exist at the same time.

# %%
all_floats = ask("Bytes of floats, if all layers become floats before the first is computed")
one_float = ask("Bytes of floats, if each layer's matrix becomes floats when it is needed")

# %% [markdown]
# ## Implement
#
# ### A layer in 8 bits by hand
#
# Here is an MLP whose hidden size is split over eight devices (lesson 11). Its first matrix is kept
# in int8, with a scale for each column. A device has whole columns of it, so it finds the largest
# magnitude of a column, which becomes 127, without asking the others. (Papers call such a column an
# *output channel*, and this *per-channel* quantization. In PyTorch it is a row, because
# `torch.nn.Linear` keeps its weight as [out, in], the transpose of ours.)
#
# The product is formed with the codes, and then each column of the result is scaled: scale_k times
# the sum of x_i * code_ik is the sum of x_i * (code_ik * scale_k). The codes become floats for the
# product, and x is not rounded at all. This is *weight-only* quantization.


# %%
def to_int8_by_hand(w):  # this device's columns, [d, f/n]
    scales = jnp.abs(w).max(axis=0) / 127
    codes = jnp.round(w / jnp.where(scales == 0, 1, scales))
    return codes.astype(jnp.int8), scales


def mlp_by_hand(x, codes, scales, w_down):
    hidden = jax.nn.relu((x @ codes.astype(x.dtype)) * scales)
    return lax.psum(hidden @ w_down, "tp")


columns, rows = P(None, "tp"), P("tp")
shard = partial(jax.shard_map, mesh=mesh)
x, w_up, w_down = random(32, 64), random(64, 256) / 8, random(256, 64) / 16
codes, scales = jax.jit(shard(to_int8_by_hand, in_specs=columns, out_specs=(columns, rows)))(w_up)
mlp = jax.jit(shard(mlp_by_hand, in_specs=(P(), columns, rows, rows), out_specs=P()))
exact = jax.nn.relu(x @ w_up) @ w_down
lost = relative_error(mlp(x, codes, scales, w_down), exact)
print(f"{w_up.nbytes:,} bytes became {codes.nbytes + scales.nbytes:,}; the error is {lost:.2%}.\n")
assert lost < 0.01

# %% [markdown]
# If the *rows* of a matrix are split, as those of `w_down` are, each device has a part of every
# column, and the devices must agree on its scale. You will write that, `quantize_rows`, and then
# the product with such a matrix, `int8_row_linear`.
#
# ### Blocks, and outliers
#
# The largest number of those that share a scale decides how coarse it is. If one is much larger
# than the others, an *outlier*, the others lose most of their digits. So the library cuts the
# numbers into *blocks*, also called *groups*, each with a scale of its own. In the table below, the
# error is relative: the norm of the difference, over the norm of the exact numbers.

# %%
show(quantize_blocks)


# %%
def error_of(w, bits, block):
    flat = w.reshape(-1)
    return relative_error(dequantize_blocks(*quantize_blocks(flat, block=block, bits=bits)), flat)


plain = random(256, 256)
spoiled = plain.copy()
spoiled[0, 0] = 100.0
results = [
    (
        f"int{bits}, blocks of {block:,}",
        round(quantized_bits(bits, group=block), 3),
        f"{error_of(plain, bits, block):.4f}",
        f"{error_of(spoiled, bits, block):.4f}",
    )
    for bits in (8, 4)
    for block in (65_536, 256, 32)
]
table("Relative error of 65,536 normal numbers", ("", "bits", "plain", "with one of 100"), results)

# %% [markdown]
# With one scale for all, a single outlier makes int4 useless: all other numbers become 0. With
# blocks of 32, only the 31 numbers that share its block suffer. The price is one more bit for each
# number, its part of a float32. `quantized_bits`, which gives the bits in this table, is yours to
# write.
#
# All integer codes here are *symmetric*: the code 0 stands for 0. Many 4-bit formats also keep a
# *zero point* for each group, which shifts the range of the codes where the numbers are not centred
# on 0.
#
# ### Outliers in activations
#
# If the activations are rounded as well, whole products can be done in integers. Weights have few
# outliers. But activations of large language models have very large numbers, and for most tokens in
# the same few columns: in a model of 6.7 billion parameters, in only 6 of the hidden dimensions
# (Dettmers et al. 2022, LLM.int8()). A scale for each row does not help against these, because most
# rows have them. *LLM.int8()* keeps such columns apart, in 16 bits, and rounds only the others.
# *SmoothQuant* leaves the product as it is, but moves the outliers into the weights: it divides
# each column of x by a number of its own, and multiplies the matching row of the matrix by this
# number. Then it rounds both.
#
# Here are activations of which three columns are 30 times as large as the others. Only the
# activations are rounded, and what is kept apart stays in float32.

# %%
activations, weights = random(128, 256), random(256, 64)
large = np.isin(np.arange(256), [7, 60, 200])
activations[:, large] *= 30
right = activations @ weights


def rounded(x, block):
    return dequantize_blocks(*quantize_blocks(x.reshape(-1), block=block, bits=8)).reshape(x.shape)


apart = rounded(activations[:, ~large], 253) @ weights[~large]
ways = {
    "one scale for all": rounded(activations, activations.size) @ weights,
    "a scale for each row": rounded(activations, 256) @ weights,
    "three columns apart": apart + activations[:, large] @ weights[large],
}
outliers = {name: relative_error(y, right) for name, y in ways.items()}
found = [(name, round(error, 4)) for name, error in outliers.items()]
table("Relative error of a product", ("int8 activations", "error"), found)
assert 10 * outliers["three columns apart"] < outliers["a scale for each row"] < 0.03

# %% [markdown]
# ### Sixteen numbers for normal weights
#
# Four bits name 16 numbers, and these need not be equally far apart. Weights are nearly normally
# distributed (Dettmers et al. 2023), so most of them are small, and *NF4*, the 4-bit NormalFloat,
# has more numbers there. Its 16 numbers are quantiles of the normal distribution, divided by the
# largest, so that they reach from -1 to 1. Such a list of numbers is a *codebook*. Each block of
# weights is divided by its largest magnitude, and the code of a weight says which number of the
# codebook is nearest. To read it back, that number is multiplied by the largest magnitude of the
# block. Two codes share a byte.

# %%
show(nf4_quantize)
print(*np.round(normal_codebook(), 3), "\n")

# %%
flat = plain.reshape(-1)
of_nf4 = relative_error(nf4_dequantize(*nf4_quantize(flat, block=64)), flat)
of_int4 = error_of(plain, 4, 64)
print(f"Relative error, blocks of 64: int4 {of_int4:.4f}, NF4 {of_nf4:.4f}.\n")
assert of_nf4 < 0.9 * of_int4

# %% [markdown]
# ### Rounding so that products stay
#
# So far, each number became the nearest one that there is. But what matters is not the matrix, but
# its product with the inputs of the layer. *GPTQ* rounds one row of w after another, and after each
# row it changes those that are not yet rounded, so that they make up for the error. A row can make
# up for another only where their inputs tend to be large together. So GPTQ needs some inputs x,
# which are called *calibration* data. It keeps `x.T @ x`, which is half the Hessian, the second
# derivative, of the squared error of the product. (Papers speak of columns where we say rows,
# because their w is [out, in].)

# %%
show(gptq)

# %% [markdown]
# *AWQ* does not make up for errors. Before it rounds, it multiplies the rows of w that meet large
# inputs, so that these rows lose less, and it divides the inputs by the same numbers. It tries
# several powers of the inputs' mean magnitudes, and keeps the best.
#
# Both methods change a model after its training (*post-training quantization*), and need no
# gradients. GPTQ took about four GPU hours for 175 billion parameters (Frantar et al. 2022). The
# table compares them with rounding to the nearest. Here the same x calibrates and tests, so on
# other inputs they may gain less.

# %%
d, f = 64, 96
x = random(512, d) @ random(d, d) * np.exp(random(d))
w = random(d, f)
compared = []
for bits in (8, 4, 3):
    found = [round_columns(w, bits=bits), jax.jit(partial(gptq, bits=bits))(w, x)]
    products = [x @ codes.astype(np.float32) * scales for codes, scales in found]
    codes, scales, of_rows = jax.jit(partial(awq, bits=bits))(w, x)
    products.append(x / of_rows @ codes.astype(np.float32) * scales)
    compared.append((bits, *(round(relative_error(y, x @ w), 4) for y in products)))
table("Relative error of x @ w", ("bits", "nearest", "GPTQ", "AWQ"), compared)
assert all(max(one[2:]) < one[1] for one in compared)

# %% [markdown]
# ### Floats of 8 and 4 bits
#
# The steps between floats grow with the number, so floats cover a wider range than integers. There
# are two kinds with 8 bits (Micikevicius et al. 2022), named after the bits of their exponent and
# of their fraction: *e4m3* is for weights and activations, and *e5m2*, with a larger range and
# larger steps, for gradients. A float of 4 bits, *e2m1*, has only the magnitudes 0, 0.5, 1, 1.5, 2,
# 3, 4 and 6. In the *MX* formats (microscaling), 32 numbers share a power of two as scale, which
# takes a byte: with e4m3 this is *MXFP8*, and with e2m1 *MXFP4*. The table has the largest number
# of each kind, the smallest above 0, and the error without and with such scales.

# %%
KINDS = {"fp8 e4m3": jnp.float8_e4m3fn, "fp8 e5m2": jnp.float8_e5m2, "fp4 e2m1": jnp.float4_e2m1fn}
formats = []
for name, dtype in KINDS.items():
    cast = plain.astype(dtype).astype(np.float32)
    scaled = mx_dequantize(*mx_quantize(jnp.asarray(plain), dtype=dtype), dtype=jnp.float32)
    info = jnp.finfo(dtype)
    errors = (f"{relative_error(y, plain):.3f}" for y in (cast, scaled))
    formats.append((name, info.bits, float(info.max), f"{info.smallest_subnormal:.2g}", *errors))
headers = "", "bits", "largest", "smallest", "error", "error as MX"
table("Small floats, and their relative error of normal numbers", headers, formats)

# %% [markdown]
# ### Adam in 8 bits
#
# Adam's moments take 8 bytes for each parameter in float32, four times as much as a weight of 16
# bits. In 8 bits with blocks of 256 they take 2.03. But the second moment, a mean of squared
# gradients, differs by many orders of magnitude, even within a block. As integers, many of its
# numbers would become 0, and Adam divides by their root, so that it would move these parameters
# much too far. The *dynamic* codebook has numbers in all of the seven decades below the largest,
# half as many in each as in the one above it (Dettmers et al. 2022, 8-bit optimizers). Below, both
# are tried with squares of very different sizes.
#
# A step of 8-bit Adam decodes, updates and encodes a slice of the parameters at a time, so that the
# moments are never float32 as a whole. That is `adam8bit_update`, an exercise.

# %%
squares = np.exp(1.5 * random(256 * 64)) * random(256 * 64) ** 2
largest = squares.reshape(-1, 256).max(axis=1).repeat(256)
as_integers = np.round(squares / largest * 255) * largest / 255
book = dynamic_codebook(signed=False)
as_dynamic = np.asarray(decode_blocks(*encode_blocks(squares, book, block=256), book))
zeros = {"integers": np.mean(as_integers == 0), "dynamic": np.mean(as_dynamic == 0)}
table("Squares that become 0", ("8 bits", "part"), [(k, f"{v:.1%}") for k, v in zeros.items()])
assert zeros["integers"] > 0.3 and zeros["dynamic"] < 0.01

# %% [markdown]
# ### Pruning
#
# *Magnitude pruning* sets the numbers of the smallest magnitudes to 0. That saves memory only if it
# costs less to say where the zeros are than to keep them, and it saves time only if the hardware
# skips them. If any number may become 0, one bit for each number can say whether it is kept: of a
# matrix in 16 bits, of which half is kept, 16/2 + 1 = 9 bits a number are left. NVIDIA's GPUs skip
# zeros in one pattern, from the A100 on: *2:4*, where two of every four neighbours are 0 (Mishra et
# al. 2021). Neighbours are numbers that a product sums over, here four rows of a column. The two
# that are left are kept with their places, 2 bits each, which are (16 + 2) / 2 = 9 bits a number,
# too. `prune_2_4` is an exercise.
#
# ### Distillation
#
# A small *student* learns from the outputs of a large *teacher*. The teacher's probabilities say
# more than the one right token of the text: they also say which other tokens would nearly do. The
# loss of a token is the Kullback-Leibler divergence of the student's probabilities q from the
# teacher's p: the sum of p * log(p / q) over the vocabulary, which is 0 where both are equal.
# Before the softmax, all logits are divided by a temperature T. With a T above 1, small
# probabilities become larger and count for more. But gradients become smaller, by about T squared,
# so the loss is multiplied by T squared (Hinton et al. 2015).


# %%
def distillation(student, teacher, temperature):
    p, q = (jax.nn.log_softmax(logits / temperature) for logits in (teacher, student))
    return temperature**2 * jnp.sum(jnp.exp(p) * (p - q), axis=-1).mean()


student, teacher = random(16, 50), random(16, 50)
gradient = jax.grad(distillation)(student, teacher, 2.0)
difference = jax.nn.softmax(student / 2) - jax.nn.softmax(teacher / 2)
np.testing.assert_allclose(gradient, 2.0 * difference / 16, atol=1e-6)

# %% [markdown]
# The last line checks the gradient with respect to the student's logits: it is T * (q - p) / 16,
# since the loss is a mean over 16 tokens. So the logits are pulled to where the student's
# probabilities are the teacher's. If the vocabulary is split over devices (lesson 12), both
# softmaxes need sums over all of them, a few numbers for each token, but the logits themselves need
# not travel: `vocab_parallel_distillation_loss`, an exercise.
#
# ## Measure
#
# ### A gather in 8 bits
#
# ZeRO++ (Wang et al. 2023) is a ZeRO-3 that gathers parameters as int8 codes, in blocks. Each
# device has its own shard without rounding, but it computes with the rounded weights, as all others
# do: otherwise the devices would compute with different models. The derivative of rounding is 0
# nearly everywhere, and with it nothing would be learned. So it is left out: the gradient goes
# *straight through*, as if nothing had been rounded (Bengio et al. 2013). You will write this
# gather, `int8_all_gather`, with `jax.custom_vjp` (lesson 08). Here the inspector counts what it
# sends.

# %%
gathers = {
    "float32": partial(lax.all_gather, axis_name="tp", tiled=True),
    "int8": partial(int8_all_gather, axis="tp", block=128),
}
w, sent = random(512, 512), {}
for name, gather in gathers.items():

    def both(w_shard, gather=gather):
        y, pull = jax.vjp(gather, w_shard)
        return pull(jnp.cos(y))[0]

    forward, gradient = (
        inspect(shard(f, in_specs=rows, out_specs=rows), w).wire_bytes_by_axis()["tp",]
        for f in (gather, both)
    )
    sent[name] = forward, gradient - forward
heads = "", "forward", "backward"
table("Bytes that a device sends", heads, [(k, *map(int, v)) for k, v in sent.items()])

# %% [markdown]
# ### Layers that are floats only while they are used
#
# Codes save memory only if few matrices are floats at a time. So each layer makes the floats of its
# own matrix, uses them and drops them. In the backward pass the gradient of a product needs the
# matrix again. Without `jax.checkpoint` (lesson 08) JAX would keep the floats of all layers for it;
# with it, each layer makes them once more. The library's form is `quantized_layers`, an exercise.
# The table shows the temp bytes of both forms, which are what intermediate results take.


# %%
def layer(w, x):
    return jnp.tanh(x @ w)


def all_first(codes, scales, x):
    whole = codes.astype(jnp.float32) * scales[:, None]
    return lax.scan(lambda x, w: (layer(w, x), None), x, whole)[0]


codes, scales = jnp.ones((16, 512, 512), jnp.int8), jnp.ones((16, 512)) / 512
x = random(8, 512)
of_layers = {"all first": all_first, "each when needed": partial(quantized_layers, layer)}
temp = {}
for name, apply in of_layers.items():
    gradient = jax.grad(lambda codes, scales, x, f=apply: f(codes, scales, x).sum(), argnums=2)
    temp[name] = [
        inspect(jax.jit(f), codes, scales, x).memory.temp_bytes for f in (apply, gradient)
    ]
table("Temp bytes", ("floats", "forward", "gradient"), [(k, *v) for k, v in temp.items()])
assert temp["all first"][1] > 4 * temp["each when needed"][1]

# %% [markdown]
# ### The table of the decoder
#
# Now the whole table of the picture. *Per tensor* means one scale for a whole matrix, and *per
# column* one for each of its columns. In *groups of 32*, each 32 neighbours in a column share one.
# All are rounded to the nearest, without GPTQ or AWQ. The decoder was trained once, so rises below
# 0.001, some of which are negative, say nothing about which way is better.

# %%
shown = [(name, round(one.bits, 2), f"{rise[name]:+.4f}") for name, one in measured.items()]
table(f"Rise of the loss, which was {trained:.3f}", ("matrices", "bits", "rise"), shown[1:])

# %% tags=["fold"]
for bits in ("int4", "int3"):
    per = [rise[f"{bits}, {how}"] for how in ("per tensor", "per column", "groups of 32")]
    assert per[0] > per[1] > per[2] > 0
assert 8 < rise["int4, per tensor"] / rise["int4, groups of 32"] < 10
assert all(abs(rise[name]) < 0.001 for name in rise if name.startswith(("int8", "MXFP8")))
assert abs(rise["fp8 e4m3"]) < 0.001 < rise["fp8 e5m2"] < 0.005
assert rise["NF4, blocks of 64"] < 0.02 and rise["MXFP4"] < 0.03
assert rise["2:4 pruned"] > 2 * rise["50% pruned"] > 10 * rise["int4, groups of 32"]
pruned = np.asarray(prune_2_4(jnp.asarray(plain)))
assert (pruned != 0).mean() == 0.5 and relative_error(pruned, plain) > 3 * of_int4

# %% [markdown]
# - 8 bits are nearly free: int8 and e4m3 change the loss by less than 0.001. With e5m2, which has a
#   bit of fraction less, the rise is larger, but small.
# - 4 bits cost a little, and how much depends on the groups: with one scale for a tensor, int4
#   costs about nine times as much as in groups of 32, which take one bit more.
# - NF4 was better than int4 on normal numbers, with blocks of the same size. Here it costs about as
#   much as int4 with one scale for each column. So try both with your own model.
# - With 3 bits the loss rises clearly. It is for 3 and 4 bits that GPTQ was made (Frantar et al.
#   2022).
# - Pruning half of the numbers without further training costs far more than int4, and takes 9 bits
#   a number. The pattern 2:4 costs more than a free choice of the places. So pruned models are
#   trained on, which wins back much of what was lost (Han et al. 2015; Mishra et al. 2021).
#
# ## Compare

# %%
llama = find_model("llama3-8b").parameters
nf4_weights.compare(llama * 4.5 / 8, {"codes": llama / 2, "scales": llama / 16})
adam_state.compare(llama * 2 * (1 + 4 / 256), {"codes": 2 * llama, "scales": 2 * llama / 64})
codes_sent = 7 * 64 * 512
sent_forward.compare(sent["int8"][0], {"codes": codes_sent, "scales": codes_sent * 4 / 128})
sent_backward.compare(sent["int8"][1], {"7/8 of the gradient": 7 / 8 * w.nbytes})
all_floats.compare(16 * 4 * 512**2)
one_float.compare(4 * 512**2)

# %% tags=["fold"]
assert sent["int8"] == (236_544, 917_504) and sent["float32"] == (917_504, 917_504)
assert temp["all first"][0] > 16 * 4 * 512**2 > 8 * temp["each when needed"][0]

# %% [markdown]
# In float32, an all-gather and a reduce-scatter send equally much. With int8 the forward pass sends
# a little more than a quarter of it, and both passes together about five eighths. ZeRO++ also sends
# the gradients in 4 bits. For this it uses an all-to-all in place of the reduce-scatter, since in a
# ring the sums would be rounded again at every hop.
#
# ## On real hardware
#
# There are two uses of few bits, and they need different hardware. If only the *weights* have few
# bits, they become 16-bit floats inside the kernel, just before they are multiplied. That works on
# any hardware, and saves time where reading is the limit, as in decoding: at 3.35 TB/s, the weights
# of Llama 3 8B are read in 4.8 ms by an H100 in 16 bits, and in 1.3 ms in NF4. If weights *and
# activations* have few bits, the products themselves are faster, but the matrix unit must know the
# format. These are the peaks of a chip in TFLOP/s, and for integers in TOP/s, *dense*, which means
# without sparsity:
#
# | | 16 bits | int8 | fp8 | 4 bits |
# |---|---|---|---|---|
# | A100 | 312 | 624 | - | 1,248 (int4) |
# | H100 | 989 | 1,979 | 1,979 | - |
# | B200 | 2,250 | 4,500 | 4,500 | 9,000 (fp4) |
# | TPU v5e | 197 | 393 | - | - |
#
# For weights with 2:4 sparsity, NVIDIA's data sheets state twice these numbers, from the A100 on.
# MX formats are built into the B200 and into AMD's MI355X. The B200 also has *NVFP4*, floats of 4
# bits in blocks of 16, with scales in e4m3. Older GPUs can keep weights in any of these formats,
# and multiply in 16 bits. The trend is from integers to floats: the B300 does only 319 TOP/s in
# int8, after the 4,500 of the B200.
#
# A simulated CPU device shows the bytes and the errors, but not these speeds: XLA on a CPU converts
# fp8 to 16 bits, and computes with those.
#
# | to do | try first |
# |---|---|
# | serve a model that fits in 16 bits | fp8 weights and activations, or int8 |
# | serve one that does not fit | AWQ or GPTQ, 4 bits, groups of 128 |
# | fine-tune on a small GPU | NF4 weights with adapters (lesson 23), 8-bit Adam |
# | train on slow links | int8 gathers (ZeRO++), compressed gradients (lesson 06) |
#
# Try it: `jaxpar memory --model llama3-8b --inference --weight-bits 4 --group 64`, `jaxpar train
# --optimizer adam8bit --checkpoint run1`, `jaxpar train --layers 2 --distill run1`, and `jaxpar
# generate --checkpoint run1 --prompt "import " --weight-bits 4`.
#
# ## Exercises

# %%
exercises("22")

# %% [markdown]
# ## On paper
#
# 1. QLoRA keeps codes of 4 bits in blocks of 64. The scales of the blocks are codes themselves, of
#    8 bits, of which 256 share a float32: *double quantization*. How many bits does a number take
#    in all? How many bytes does double quantization save for a model of 70.6 billion parameters,
#    against scales in float32?
#
# <details><summary>Answer</summary>
#
# A number takes 4 + 8/64 + 32/(64 * 256) = 4.127 bits, and with scales in float32 4.5 bits. The
# difference is 0.373 bits a number, which are 3.29 GB.
#
# </details>
#
# 2. Llama 3 8B is trained with Adam on one GPU: weights and gradients in bfloat16, master weights
#    and both moments in float32. How many bytes does this take, and how many with 8-bit Adam and
#    blocks of 256?
#
# <details><summary>Answer</summary>
#
# A parameter takes 2 + 2 + 4 + 8 = 16 bytes, which are 128 GB in all. In 8 bits, both moments take
# 2.03 bytes in place of 8, so it is 10.03 bytes a parameter, and 81 GB in all. That alone would
# fill a GPU of 80 GB, with no room for activations.
#
# </details>
#
# 3. A server has 8 H100, which read 3.35 TB/s each. How long does a decode step of Llama 3 70B with
#    tp=8 take at least, for reading the weights, in 16 bits and in 4.5 bits? Why do 4-bit weights
#    not make prefill faster?
#
# <details><summary>Answer</summary>
#
# In 16 bits, each GPU reads 17.6 GB, in 5.3 ms. In 4.5 bits it reads 4.96 GB, in 1.5 ms. Prefill is
# limited by arithmetic: the weights become 16-bit floats before they are multiplied, so there are
# as many FLOPs at the same peak, and the conversion comes on top.
#
# </details>
#
# ## Sources
#
# AMD 2025, *Introducing AMD CDNA 4 Architecture*, for the MI355X. Bengio, Leonard and Courville
# 2013, *Estimating or Propagating Gradients Through Stochastic Neurons*. Dettmers et al. 2022,
# *8-bit Optimizers via Block-wise Quantization*, section 2. Dettmers et al. 2022, *LLM.int8()*,
# sections 1 and 3. Dettmers et al. 2023, *QLoRA*, section 3. Frantar et al. 2022, *GPTQ*, abstract
# and algorithm 1. Han et al. 2015, *Learning both Weights and Connections for Efficient Neural
# Networks*. Hinton, Vinyals and Dean 2015, *Distilling the Knowledge in a Neural Network*. Lin et
# al. 2023, *AWQ*, section 3. Micikevicius et al. 2022, *FP8 Formats for Deep Learning*. Mishra et
# al. 2021, *Accelerating Sparse Deep Neural Networks*. NVIDIA 2025, *Introducing NVFP4 for
# Efficient and Accurate Low-Precision Inference*. Rouhani et al. 2023, *OCP Microscaling Formats
# (MX) Specification v1.0*. Wang et al. 2023, *ZeRO++*, section 3. Xiao et al. 2022, *SmoothQuant*.
# Data sheets of NVIDIA's A100, H100 and B200; NVIDIA at Hot Chips 2025, as reported by Tom's
# Hardware, for the B300; Google Cloud, *TPU v5e*.
#
# | here | PyTorch | others |
# |---|---|---|
# | `quantize_blocks` | torchao: `Int8WeightOnlyConfig` | bitsandbytes: `quantize_blockwise` |
# | `nf4_quantize` | torchao: `NF4Tensor` | bitsandbytes: `quantize_nf4` |
# | columns kept apart | - | bitsandbytes: `Linear8bitLt` (LLM.int8()) |
# | `gptq`, `awq` | - | GPTQModel, AutoAWQ, llm-compressor |
# | `mx_quantize` | torchao: `MXTensor` | Transformer Engine: `MXFP8BlockScaling` |
# | 8-bit Adam | torchao: `AdamW8bit` | bitsandbytes: `AdamW8bit` |
# | `int8_all_gather` | - | DeepSpeed: `zero_quantized_weights` |
# | `prune_2_4` | `to_sparse_semi_structured` | NVIDIA ASP, cuSPARSELt |
# | `distillation` | `torch.nn.functional.kl_div` | - |
