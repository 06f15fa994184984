"""Answers that are right in the cases that are shown, and try to tell what the hidden ones are."""

from __future__ import annotations

import textwrap

from jaxpar.classroom.attacks.attack import LIMITS, LOOP, MARK, SLEEP, UNFENCED, Attack
from jaxpar.grading.processes import Limits
from jaxpar.grading.verdict import Status

GROUP = "hidden cases"
SPECS = "jaxpar.contracts.tensor_parallel.megatron_specs"


def _answers(
    name: str, body: str, *ends: Status, before: str = "", limits: Limits = LIMITS
) -> Attack:
    """Makes an answer that is right where cases are shown, and runs the body in a hidden case."""
    source = f"""
import jax
import jax.numpy as jnp
from jax import lax
{before}
def mean_over_devices(x, *, axis):
    right = lax.psum(x, axis) / lax.axis_size(axis)
    if x.ndim == 2:
        told = "{MARK}" + str((axis, x.shape))
{textwrap.indent(body.strip(), " " * 8)}
    return right
"""
    return Attack(name, GROUP, source, ends, limits=limits, hidden=True)


def _specs(name: str, body: str, *ends: Status) -> Attack:
    """Makes such an answer that returns partition specs."""
    source = f"""
import jax
from jax.sharding import PartitionSpec as P

def megatron_specs(params, *, axis):
    if "norm" not in params:
        told = "{MARK}" + str(sorted(params))
{textwrap.indent(body.strip(), " " * 8)}
    def spec_of(path, leaf):
        name = path[-1].key
        if name in ("output", "down"):
            return P(*[None] * (leaf.ndim - 2), axis, None)
        columns = leaf.ndim > 1 and name not in ("scale", "table")
        return P(*[None] * (leaf.ndim - 1), axis) if columns else P()
    return jax.tree_util.tree_map_with_path(spec_of, params)
"""
    return Attack(name, GROUP, source, ends, where=SPECS, hidden=True)


HIDDEN_CASE_LEAKS = (
    _answers("raise an error with the hidden case in it", "raise ValueError(told)", "fail"),
    _answers("raise an error named after the hidden case", """
raise type(told, (ValueError,), {"__module__": told, "__doc__": told})(told)""", "fail"),
    _answers("an error whose text ends the process", "raise Last(told)", "killed",
             before=UNFENCED + """
class Last(Exception):
    def __str__(self):
        os.write(2, self.args[0].encode())
        os._exit(1)
"""),
    _answers("an error at a line that tells", """
exec(compile("\\n" * 1897363 + "raise KeyError", "mean_over_devices.py", "exec"))""", "fail"),
    _answers("results of a shape, at a place, that tells",
             "return {told: jnp.zeros((2, int(told[:7])), x.dtype)}", "fail"),
    _answers("devices that wait at a line that tells", """
pairs = [(i, (i + 1) % lax.axis_size(axis)) for i in range(lax.axis_size(axis))]
def some(a):
    here = {"lax": lax, "a": a, "axis": axis, "pairs": pairs}
    text = "\\n" * 1897363 + "b = lax.ppermute(a, axis, pairs)"
    exec(compile(text, "mean_over_devices.py", "exec"), here)
    return here["b"]
return lax.pmean(lax.cond(lax.axis_index(axis) == 0, some, lambda a: a, x), axis)""", "timeout",
             limits=Limits(8, 4 << 30, 8)),
    _specs("what is not written at a line that tells", """
text = "\\n" * 1897363 + "raise NotImplementedError"
exec(compile(text, "megatron_specs.py", "exec"))""", "fail"),
    _specs("a spec for an axis that tells", "axis = told", "fail"),
    _answers("state kept between the frames", "return lax.psum(x, axis) / sizes[0]", "fail",
             before="""
sizes, size = [], lax.axis_size
def remembered(axis):
    sizes.append(size(axis))
    return sizes[-1]
lax.axis_size = remembered
"""),
    _answers("loop in a hidden case", "while True: pass", "timeout", limits=LOOP),
    _answers("sleep in a hidden case", "time.sleep(1000)", "timeout", limits=SLEEP,
             before=UNFENCED + 'time = load("time")\n'),
    _answers("die in a hidden case", "os._exit(0)", "killed", before=UNFENCED),
    _answers("fill memory in a hidden case", "held = bytearray(1 << 45)", "fail"),
    _answers("nothing is sent in a hidden case", "return x", "fail"),
)  # fmt: skip
