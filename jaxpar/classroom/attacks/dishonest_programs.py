"""Programs that hide what they send, ask for too much, or are not those that were asked for."""

from __future__ import annotations

import textwrap

from jaxpar.classroom.attacks.attack import PROGRAM_POINTS, READ_LOOP, UNFENCED, WORKER, Attack
from jaxpar.grading.processes import Limits
from jaxpar.grading.verdict import Status

VALUES_AND_REST = 7  # right, but for what it sends
_HEAD = "import jax\nimport jax.numpy as jnp\nfrom jax import lax\n"
_MEAN = "mean = lambda x, axis: lax.psum(x, axis) / lax.axis_size(axis)\n"


def _answer(
    name: str,
    body: str,
    *ends: Status,
    honest: int = 0,
    group: str = "hidden communication",
    before: str = "",
    limits: Limits = READ_LOOP,
    says: str = "",
) -> Attack:
    """Makes an attack from a body of `mean_over_devices`, which may call the right one, `mean`."""
    function = f"def mean_over_devices(x, *, axis):\n{textwrap.indent(body.strip(), '    ')}\n"
    source = f"{_HEAD}{_MEAN}{before}{function}"
    return Attack(name, group, source, ends, honest, limits=limits, says=says)


HIDDEN_COMMUNICATION = (
    _answer("gather all, and compute everything everywhere",
            "return lax.all_gather(x, axis).mean(0)", "fail", honest=VALUES_AND_REST),
    _answer("gather by an all-reduce of what is mostly zero", """
n, i = lax.axis_size(axis), lax.axis_index(axis)
whole = jnp.zeros((n, *x.shape), x.dtype).at[i].set(x)
return lax.psum(whole, axis).mean(0)""", "fail", honest=VALUES_AND_REST),
    _answer("a ring of whole arrays", """
n = lax.axis_size(axis)
total = x
for _ in range(n - 1):
    x = lax.ppermute(x, axis, [(i, (i + 1) % n) for i in range(n)])
    total = total + x
return total / n""", "fail", honest=VALUES_AND_REST),
    _answer("an all-to-all in place of an all-reduce", """
n = lax.axis_size(axis)
copies = jnp.broadcast_to(x, (n, *x.shape))
return lax.all_to_all(copies, axis, 0, 0).mean(0)""", "fail", honest=VALUES_AND_REST),
    _answer("a collective in a branch that is never taken", """
extra = lax.cond(x.ravel()[0] > 1e30, lambda a: lax.pcast(lax.psum(a, axis), axis, to="varying"),
                 lambda a: a, x)
return mean(x, axis) + 0 * extra""", "fail", honest=VALUES_AND_REST),
    _answer("a dead collective", """
lax.all_gather(x, axis)
return mean(x, axis)""", "pass", "fail", honest=PROGRAM_POINTS),
    _answer("a loop that says it runs once", """
n = lax.axis_size(axis)
def hop(state):
    i, k, moving, total = state
    moving = lax.ppermute(moving, axis, [(j, (j + 1) % n) for j in range(n)])
    return jnp.where(k < n - 2, 0, i + 1), k + 1, moving, total + moving
start = (jnp.int32(0), jnp.int32(0), x, x)
return lax.while_loop(lambda state: state[0] < 1, hop, start)[3] / n""",
            "fail", honest=VALUES_AND_REST),
    _answer("fewer bits on the wire", """
small = mean(x.astype(jnp.bfloat16), axis)
return small.astype(x.dtype)""", "fail"),
    _answer("two numbers in one", """
half = x.astype(jnp.float16)
return mean(half, axis).astype(x.dtype)""", "fail"),
    _answer("nothing is sent", "return x", "fail"),
    _answer("sums over the other axis, too", """
return lax.pmean(x, tuple(varying_axes(x)))""", "fail",
            before="from jaxpar.mesh import varying_axes\n"),
    _answer("locations in files of others", """
code = compile("y = lax.all_gather(x, axis)", "/etc/passwd", "exec")
there = {"lax": lax, "x": x, "axis": axis}
exec(code, there)
return there["y"].mean(0)""", "fail", honest=VALUES_AND_REST),
)  # fmt: skip
REFUSED = tuple(
    _answer(name, body, "fail", group="programs", says=says)
    for name, body, says in (
        ("an array of 8 GB", "return mean(x, axis) + 0 * jnp.ones(1 << 31).sum()", "2147483648"),
        ("a result of another dtype", "return mean(x, axis).astype(jnp.bfloat16)", "bfloat16"),
        ("one result too many", "return mean(x, axis), x", "2 arrays"),
        ("a result of another shape", "return mean(x, axis)[..., None]", "shape"),
        (
            "a gigabyte of results",
            """
more = [jnp.broadcast_to(x.ravel()[:1], (5_000_000,)) * i for i in range(7)]
return [mean(x, axis), *more]""",
            "results take",
        ),
        ("a result that is no number", "return x / 0 - x / 0", "nan"),
        ("a result that is infinite", "return x / 0", "inf"),
        ("LAPACK", "return x + 0 * jnp.linalg.qr(jnp.ones((3, 3)))[0].sum()", "custom_call"),
        ("constants in place of results", "return jnp.zeros_like(x)", "must be"),
    )
)
BOMBS = (
    _answer("a program that never ends", """
y = mean(x, axis)
return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] * 0, c[1] + 1), (jnp.int32(0), y))[1]""",
            "timeout", "fail", group="programs"),
    _answer("devices that wait for each other", """
pairs = [(i, (i + 1) % lax.axis_size(axis)) for i in range(lax.axis_size(axis))]
y = lax.cond(lax.axis_index(axis) == 0,
             lambda a: lax.ppermute(a, axis, pairs), lambda a: a, x)
return mean(y, axis)""", "timeout", group="programs",
            limits=Limits(8, 4 << 30, 8)),
    _answer("a program that asks for 8 GB", """
y = jnp.broadcast_to(x.ravel()[:1], (1 << 27,)) * jnp.arange(1 << 27, dtype=x.dtype)
return mean(x, axis) + 0 * jnp.sort(y)[:1].sum()""", "fail", "memory", "timeout",
            group="programs"),
    _answer("a compile bomb of constants", """
big = jnp.arange(1 << 24, dtype=x.dtype)
for _ in range(6):
    big = lax.sort(lax.reduce_window(jnp.sin(big), 0.0, lax.add, (4096,), (1,), "SAME"))
return mean(x, axis) + 0 * big[0]""", "timeout", "fail", "killed", group="programs"),
    _answer("a matrix product that runs for hours", """
big = jnp.broadcast_to(x.ravel()[:1], (2048, 2048))
far = lax.fori_loop(0, 10_000, lambda i, a: a @ a, big)
return mean(x, axis) + 0 * far[0, 0]""", "timeout", "fail", group="programs"),
    _answer("loops in loops, too deep", """
def nested(depth, y):
    return y if depth == 0 else lax.fori_loop(0, 2, lambda i, c: nested(depth - 1, c), y)
return nested(110, mean(x, axis))""", "fail", "error", "killed", group="programs",
            before=UNFENCED + "sys.setrecursionlimit(10**6)\n"),
)  # fmt: skip


def _swapped(name: str, body: str, *ends: Status, honest: int = PROGRAM_POINTS) -> Attack:
    source = f"{WORKER}\nfor _ in frames():\n{textwrap.indent(body, '    ')}\n"
    return Attack(name, "programs for different ends", source, ends, honest)


SWAPPED = (
    _swapped("a patched shard_map, so that the compiler sends", """
import jax
import jax.numpy as jnp
def by_the_compiler(body, *, mesh, in_specs, out_specs, **_):
    sizes = tuple(mesh.shape.values())
    def whole(x):
        local = (x.shape[0] // mesh.size, *x.shape[1:])
        mean = x.reshape(*sizes, *local).mean(0, keepdims=True)
        return [jnp.broadcast_to(mean, (*sizes, *local))]
    return whole
honest = list(exported())
by_jax, jax.shard_map = jax.shard_map, by_the_compiler
for said, blob in honest:
    which, index = said["program"]
    if which == "forward":
        case = messages.decode(messages.Case, job["cases"][index - job["first"]])
        blob = programs._export(None, case, programs._inputs(case))
    send(said, blob)
jax.shard_map = by_jax""", "fail", honest=VALUES_AND_REST),
    _swapped("a gradient program that sends nothing", """
for said, blob in exported():
    if said["program"][0] == "forward": send(said, blob)
for said, blob in exported(lambda x, *, axis: x):
    if said["program"][0] == "gradient": send(said, blob)""", "fail"),
    _swapped("no program for the second case", """
for said, blob in exported():
    if said["program"][1] == 0: send(said, blob)""", "fail"),
    _swapped("the first case's program for both", """
first = {}
for said, blob in exported():
    kept = first.setdefault(said["program"][0], (said["outputs"], blob))
    send({"program": said["program"], "outputs": kept[0]}, kept[1])""", "fail"),
    _swapped("the forward program for the gradient", """
forward = None
for said, blob in exported():
    forward = blob if said["program"][0] == "forward" else forward
    send(said, forward)""", "fail"),
    _swapped("outputs of another dtype than the program's", """
for said, blob in exported():
    said["outputs"][0]["dtype"] = "int32"
    send(said, blob)""", "fail"),
    _swapped("outputs of another shape than the program's", """
for said, blob in exported():
    said["outputs"][0]["shape"] = [1] + said["outputs"][0]["shape"]
    send(said, blob)""", "fail"),
    _swapped("outputs said to be equal everywhere", """
for said, blob in exported(lambda x, *, axis: lax.pcast(mean(x, axis=axis), axis, to="varying")):
    said["outputs"][0]["varying"] = []
    send(said, blob)""", "fail"),
    _swapped("a second, better program after the first", """
for said, blob in list(exported(lambda x, *, axis: x))[:1] + list(exported()):
    send(said, blob)""", "protocol"),
)  # fmt: skip
DISHONEST_PROGRAMS = HIDDEN_COMMUNICATION + REFUSED + BOMBS + SWAPPED
