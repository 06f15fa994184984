"""Programs that no compiler of ours wrote: an honest one with its text changed, or other bytes."""

from __future__ import annotations

from dataclasses import dataclass

from jaxpar.grading.attacks.base import READ_LOOP, WORKER, Attack
from jaxpar.grading.processes import Limits
from jaxpar.grading.attacks.base import LIMITS
from jaxpar.grading.verdict import Status

VERSION = "1.9.0"


@dataclass(frozen=True)
class Change:
    """One change of the text of an honest program of `mean_over_devices`.

    Attributes:
        name: of the attack.
        pattern: the first match is replaced.
        replacement: by this, as `re.sub` reads it.
        says: a pattern of what the refusal says.
    """

    name: str
    pattern: str
    replacement: str
    says: str


_RETURN = r"( *)sdy\.return "
_END = r"\}\s*\Z"


def _insert(name: str, lines: str, says: str) -> Change:
    """Adds lines to the body of the manual computation."""
    return Change(name, _RETURN, f"{lines}\n\\1sdy.return ", says)


def _custom_call(target: str) -> Change:
    line = f"%z = stablehlo.custom_call @{target}() : () -> tensor<f32>"
    return _insert(f"custom call {target}", line, "custom_call")


CHANGES = (
    _custom_call("xla_ffi_python_cpu_callback"),
    _custom_call("lapack_sgeqrf_ffi"),
    _custom_call("TopK"),
    _custom_call("Sharding"),
    _insert(
        "infeed",
        "%t = stablehlo.create_token : !stablehlo.token\n"
        '%z:2 = "stablehlo.infeed"(%t) : (!stablehlo.token) -> '
        "(tensor<f32>, !stablehlo.token)",
        "create_token|infeed",
    ),
    _insert(
        "outfeed",
        "%t = stablehlo.create_token : !stablehlo.token\n"
        '%u = "stablehlo.outfeed"(%t) : (!stablehlo.token) -> !stablehlo.token',
        "create_token|outfeed",
    ),
    _insert(
        "send",
        "%t = stablehlo.create_token : !stablehlo.token\n"
        '%u = "stablehlo.send"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, '
        "type = 2>, is_host_transfer = true} : (!stablehlo.token) -> !stablehlo.token",
        "create_token|send",
    ),
    _insert(
        "random numbers",
        "%k = stablehlo.constant dense<1> : tensor<2xui64>\n"
        "%a, %b = stablehlo.rng_bit_generator %k, algorithm = DEFAULT : "
        "(tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)",
        "rng",
    ),
    _insert(
        "a constant of 2 GB",
        "%z = stablehlo.constant dense<0.0> : tensor<536870912xf32>",
        "536870912 elements",
    ),
    _insert(
        "a shape that overflows",
        "%z = stablehlo.constant dense<0.0> : tensor<4294967296x4294967296xf32>",
        "elements",
    ),
    _insert("a dynamic shape", '%z = "stablehlo.constant"() {value = dense<0.0> : tensor<f32>} : '
            "() -> tensor<f32>\n%y = stablehlo.constant dense<4> : tensor<1xi32>\n"
            "%w = stablehlo.dynamic_broadcast_in_dim %z, %y, dims = [] : "
            "(tensor<f32>, tensor<1xi32>) -> tensor<?xf32>", "dynamic|static"),
    Change("another mesh", r'"dp"=3, "tp"=2', '"dp"=2, "tp"=3', "not for one mesh"),
    Change("a mesh in another order", r'("dp"=3, "tp"=2)\]',
           r"\1], device_ids=[1, 0, 2, 3, 4, 5]", "ids"),
    Change("swapped shardings", r'\{"dp"\}, \{"tp"\}', '{"tp"}, {"dp"}', "shardings"),
    Change("results that are not split", r'out_shardings=\[<@mesh, \[\{"dp"\}',
           "out_shardings=[<@mesh, [{}", "shardings|type"),
    Change("a computation outside of the mesh", r"( +)return (%\d+) : (tensor<[^>]*>)",
           r"\1%other = stablehlo.add \2, \2 : \3\n\1return %other : \3", "more than one"),
    Change("a function that calls itself", r"sdy\.return ([\s\S]*)\}\s*\Z",
           r"func.call @f() : () -> ()\n      sdy.return \1"
           "func.func private @f() {\n func.call @f() : () -> ()\n return\n}\n}", "calls itself"),
    Change("calls that double thirty times", r"sdy\.return ([\s\S]*)\}\s*\Z",
           r"func.call @f0() : () -> ()\n      sdy.return \1"
           + "".join(f"func.func private @f{i}() {{\n func.call @f{i + 1}() : () -> ()\n"
                     f" func.call @f{i + 1}() : () -> ()\n return\n}}\n" for i in range(30))
           + "func.func private @f30() {\n return\n}\n}", "operations"),
    Change("a call of nobody", r"( *)sdy\.return ",
           r"\1func.call @nobody() : () -> ()\n\1sdy.return ", ""),
    Change("another dialect", r"( *)sdy\.return ", r'\1"llvm.inline_asm"() : () -> ()\n\1sdy.return ',
           "llvm|not a"),
    Change("a long name", _END, f"func.func private @{'f' * 5000}() {{\n return\n}}\n}}", "too long"),
)  # fmt: skip

# Programs that are let through, and take too long or too much when they are compiled or run.
_WHILE = (
    "%i0 = stablehlo.constant dense<0> : tensor<i32>\n"
    "%w = stablehlo.while(%i = %i0) : tensor<i32>\n"
    "cond {\n %c = stablehlo.compare LT, %i, %BOUND, SIGNED : "
    "(tensor<i32>, tensor<i32>) -> tensor<i1>\n stablehlo.return %c : tensor<i1>\n} do {\n"
    "STEP stablehlo.return %j : tensor<i32>\n}"
)
DEADLY = ()

_SEND = """
from jax.extend.mlir import deserialize_portable_artifact, serialize_portable_artifact
from jax.interpreters.mlir import ir, make_ir_context

def changed(blob):
    with make_ir_context():
        text = str(deserialize_portable_artifact(blob))
    new = re.sub(PATTERN, REPLACEMENT, text, count=1)
    with make_ir_context():
        return serialize_portable_artifact(ir.Module.parse(new), VERSION)

for described, blob in exported():
    send(described, craft(blob))
send({"done": True})
end()
"""


def _changed(change: Change) -> Attack:
    constants = (
        f"PATTERN, REPLACEMENT = {change.pattern!r}, {change.replacement!r}\n"
        f"VERSION = {VERSION!r}\ncraft = lambda blob: changed(blob)\n"
    )
    return Attack(change.name, "crafted programs", f"{WORKER}{constants}{_SEND}", ("fail",),
                  says=change.says)  # fmt: skip
