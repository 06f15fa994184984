"""Inspecting a data-parallel gradient step of Llama-3-8B's shapes on 256 simulated devices.

Nothing of that size is allocated or run: the arguments are shapes.
"""

import math
import resource
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding

from benchmarks import Row
from jaxpar.inspector import Report, inspect
from jaxpar.mesh import make_mesh, simulate_devices, spec

DEVICES, SEQUENCE = 256, 2048
LAYERS, D, F, VOCABULARY = 32, 4096, 14336, 128256
HEADS, KV_HEADS, HEAD = 32, 8, 128

LAYER = {
    "query": (D, HEADS * HEAD),
    "key": (D, KV_HEADS * HEAD),
    "value": (D, KV_HEADS * HEAD),
    "output": (HEADS * HEAD, D),
    "gate": (D, F),
    "up": (D, F),
    "down": (F, D),
}
SHAPES = {name: (LAYERS, *shape) for name, shape in LAYER.items()} | {
    "embedding": (VOCABULARY, D),
    "head": (D, VOCABULARY),
}


def layer(x, w):  # x [t, d]
    q = (x @ w["query"]).reshape(-1, KV_HEADS, HEADS // KV_HEADS, HEAD)
    k = (x @ w["key"]).reshape(-1, KV_HEADS, HEAD)
    v = (x @ w["value"]).reshape(-1, KV_HEADS, HEAD)
    weights = jax.nn.softmax(jnp.einsum("tkgh,skh->kgts", q, k))
    x += jnp.einsum("kgts,skh->tkgh", weights, v).reshape(x.shape) @ w["output"]
    x += (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]
    return x, None


def loss(params, tokens):  # tokens [1, t + 1]
    inputs, targets = tokens[0, :-1], tokens[0, 1:]
    layers = {name: params[name] for name in LAYER}
    x, _ = lax.scan(jax.checkpoint(layer), params["embedding"][inputs], layers)
    logits = jax.nn.log_softmax((x @ params["head"]).astype(jnp.float32))
    return -jnp.take_along_axis(logits, targets[:, None], axis=1).mean()


def gradient_step(params, tokens):
    local = lax.pcast(params, "dp", to="varying")
    return lax.pmean(jax.grad(loss)(local, tokens), "dp")


def inspected() -> Report:
    simulate_devices(DEVICES)
    mesh = make_mesh({"dp": DEVICES})

    def shaped(shape, dtype, layout):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec(layout)))

    params = {name: shaped(shape, jnp.bfloat16, "") for name, shape in SHAPES.items()}
    tokens = shaped((DEVICES, SEQUENCE + 1), jnp.int32, "b_dp t")
    step = jax.shard_map(
        gradient_step, mesh=mesh, in_specs=(spec(""), spec("b_dp t")), out_specs=spec("")
    )
    return inspect(step, params, tokens)


def rows() -> list[Row]:
    start = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.inspect_llama"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak = time.perf_counter() - start, int(done.stdout) / 2**30
    what = f"inspect a Llama-3-8B gradient step on {DEVICES} simulated devices, shapes only"
    return [Row(what, "15 s, 6 GiB", f"{seconds:.1f} s, {peak:.2f} GiB")]


def main() -> None:
    """Inspects, checks the count, prints the peak of this process's memory in bytes."""
    report = inspected()
    gradients = 2 * sum(math.prod(shape) for shape in SHAPES.values())
    assert sum(one.operand_bytes for one in report.collectives) == gradients
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(peak if sys.platform == "darwin" else 1024 * peak)


if __name__ == "__main__":
    main()
