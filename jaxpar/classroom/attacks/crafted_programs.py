"""Programs that JAX did not export: an honest one with its text changed, or other bytes."""

from __future__ import annotations

from dataclasses import dataclass

from jaxpar.classroom.attacks.attack import PROGRAM_POINTS, READ_LOOP, WORKER, Attack
from jaxpar.grading.verdict import Status


@dataclass(frozen=True)
class Change:
    """A change of the text of an honest program of `mean_over_devices`.

    Attributes:
        name: the name of the attack.
        pattern: what is replaced, at its first match.
        replacement: what takes its place, as `re.sub` reads it.
        says: a pattern of what the refusal says.
        ends: the statuses that may come of it.
    """

    name: str
    pattern: str
    replacement: str
    says: str
    ends: tuple[Status, ...] = ("fail",)


_RETURN = r"( *)sdy\.return "
_RESULT = r"( *)sdy\.return (%\d+) : (tensor<[^>]*>)"
_END = r"([\s\S]*)\}\s*\Z"
_FIRST = (
    "%y = stablehlo.slice %x [{}] : ({}) -> {}\n%z = stablehlo.reshape %y : ({}) -> tensor<f32>"
)


def _insert(name: str, lines: str, says: str) -> Change:
    """Adds lines to the body of the manual computation."""
    return Change(name, _RETURN, f"{lines}\n\\1sdy.return ", says)


def _added(name: str, lines: str, says: str) -> Change:
    """Adds a number %z to the result, so that nobody can leave it out."""
    add = (
        "%zb = stablehlo.broadcast_in_dim %z, dims = [] : (tensor<f32>) -> \\3\n"
        "%zr = stablehlo.add \\2, %zb : \\3\n"
    )
    return Change(name, _RESULT, f"{lines}\n{add}sdy.return %zr : \\3", says)


def _custom_call(target: str) -> Change:
    line = f"%z = stablehlo.custom_call @{target}() : () -> tensor<f32>"
    return _added(f"custom call {target}", line, "custom_call")


def _large(name: str, shape: str, first: str, one: str, says: str) -> Change:
    large, small = f"tensor<{shape}xf32>", f"tensor<{one}xf32>"
    line = f"%x = stablehlo.constant dense<0.0> : {large}\n"
    return _added(name, line + _FIRST.format(first, large, small, small), says)


_TOKEN = "%t = stablehlo.create_token : !stablehlo.token\n"
_DOUBLED = "".join(
    f"func.func private @f{i}() {{\n func.call @f{i + 1}() : () -> ()\n"
    f" func.call @f{i + 1}() : () -> ()\n return\n}}\n"
    for i in range(30)
)
CHANGES = (
    _custom_call("xla_ffi_python_cpu_callback"),
    _custom_call("lapack_sgeqrf_ffi"),
    _custom_call("TopK"),
    _custom_call("Sharding"),
    _insert("infeed", _TOKEN + '%z:2 = "stablehlo.infeed"(%t) : (!stablehlo.token) -> '
            "(tensor<f32>, !stablehlo.token)", "create_token|infeed"),
    _insert("outfeed", _TOKEN + '%u = "stablehlo.outfeed"(%t) : (!stablehlo.token) -> '
            "!stablehlo.token", "create_token|outfeed"),
    _insert("send", _TOKEN + '%u = "stablehlo.send"(%t) {channel_handle = '
            "#stablehlo.channel_handle<handle = 1, type = 2>, is_host_transfer = true} : "
            "(!stablehlo.token) -> !stablehlo.token", "create_token|send"),
    _added("random numbers", "%k = stablehlo.constant dense<1> : tensor<2xui64>\n"
           "%a, %b = stablehlo.rng_bit_generator %k, algorithm = DEFAULT : "
           "(tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)\n"
           "%x = stablehlo.convert %b : (tensor<4xui32>) -> tensor<4xf32>\n"
           + _FIRST.format("0:1", "tensor<4xf32>", "tensor<1xf32>", "tensor<1xf32>"), "rng"),
    _large("a constant of 2 GB", "536870912", "0:1", "1", "536870912 elements"),
    _large("a shape that overflows", "4294967296x4294967296", "0:1, 0:1", "1x1", "elements"),
    _added("a dynamic shape", "%o = stablehlo.constant dense<0.0> : tensor<f32>\n"
           "%n = stablehlo.constant dense<4> : tensor<1xi32>\n"
           "%w = stablehlo.dynamic_broadcast_in_dim %o, %n, dims = [] : "
           "(tensor<f32>, tensor<1xi32>) -> tensor<?xf32>\n"
           "%z = stablehlo.reduce(%w init: %o) applies stablehlo.add across dimensions = [0] : "
           "(tensor<?xf32>, tensor<f32>) -> tensor<f32>", "dynamic|static"),
    Change("a mesh of more axes", r'"dp"=3, "tp"=2\]', '"dp"=3, "tp"=2, "zz"=1]',
           "not for one mesh"),
    Change("a mesh in another order", r'("dp"=3, "tp"=2)\]',
           r"\1], device_ids=[1, 0, 2, 3, 4, 5]", "ids"),
    Change("swapped shardings", r'\{"dp"\}, \{"tp"\}', '{"tp"}, {"dp"}', "shardings"),
    Change("arguments that are not split",
           r'sdy\.sharding = (#sdy\.sharding<@mesh, )\[\{"dp", "tp"\}',
           r"sdy.sharding = \1[{}", "shardings"),
    Change("a computation outside of the mesh", r"( +)return (%\d+) : (tensor<[^>]*>)",
           r"\1%other = stablehlo.add \2, \2 : \3\n\1return %other : \3", "more than one"),
    Change("another result than the mesh's", r"( +)return (%\d+) : (tensor<[^>]*>)",
           r"\1%other = stablehlo.constant dense<0.0> : \3\n\1return %other : \3",
           "more than one|other than"),
    Change("a function that calls itself", r"sdy\.return " + _END,
           r"func.call @f() : () -> ()\nsdy.return \1"
           "func.func private @f() {\n func.call @f() : () -> ()\n return\n}\n}", "calls itself"),
    Change("calls that double thirty times", r"sdy\.return " + _END,
           rf"func.call @f0() : () -> ()\nsdy.return \1{_DOUBLED}"
           "func.func private @f30() {\n return\n}\n}", "operations|processor time",
           ("fail", "timeout")),
    Change("a name of 5000 letters", r"\}\s*\Z",
           f"func.func private @{'f' * 5000}() {{\n return\n}}\n}}", "too long"),
)  # fmt: skip

# The reader does not refuse this one, so the limits on its process must hold the compiler.
COMPILE_BOMB = Change(
    "a compile bomb of calls", r"stablehlo\.divide (%\d+), %\d+ : (tensor<[^>]*>)([\s\S]*)\}\s*\Z",
    r"func.call @f0(\1) : (\2) -> \2\3"
    + "".join(rf"func.func private @f{i}(%a: \2) -> \2 {{\n %b = func.call @f{i + 1}(%a) : (\2) -> "
              rf"\2\n %c = func.call @f{i + 1}(%b) : (\2) -> \2\n return %c : \2\n}}\n"
              for i in range(15))
    + r"func.func private @f15(%a: \2) -> \2 {\n %b = stablehlo.sine %a : \2\n return %b : \2\n"
      "}\n}",
    "", ("timeout", "fail", "memory", "killed"),
)  # fmt: skip

_CHANGING = """
from jax.extend.mlir import deserialize_portable_artifact
from jax.interpreters.mlir import ir, make_ir_context
to_bytes = load("jax._src.export._export", fromlist=["export"])._module_to_bytecode

def craft(said, blob):
    with make_ir_context() as context:
        text = str(deserialize_portable_artifact(blob))
        context.allow_unregistered_dialects = True
        return to_bytes(ir.Module.parse(re.sub(PATTERN, REPLACEMENT, text, count=1)))
"""
# The changes are written for the cases of the stub; drawn cases get honest programs.
_SENDING = """
for _ in frames():
    for described, blob in exported():
        send(described, blob if job["first"] else craft(described, blob))
"""


def _changed(change: Change) -> Attack:
    constants = f"PATTERN, REPLACEMENT = {change.pattern!r}, {change.replacement!r}\n"
    source = f"{WORKER}{constants}{_CHANGING}{_SENDING}"
    return Attack(change.name, "crafted programs", source, change.ends, limits=READ_LOOP,
                  says=change.says)  # fmt: skip


def _bytes(name: str, body: str, *, says: str = "", harmless: bool = False) -> Attack:
    """Makes an attack from the body of a function that changes the bytes of honest programs.

    Harmless bytes may run; they are judged by what they compute, and earn what that is worth.
    """
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    source = f"{WORKER}\ndef craft(said, blob):\n{lines}{_SENDING}"
    ends: tuple[Status, ...] = ("fail", "killed", "pass") if harmless else ("fail",)
    return Attack(name, "crafted programs", source, ends, PROGRAM_POINTS * harmless, says=says)


_NO_PROGRAM = "not a serialized program"
BYTES = (
    _bytes("no bytes", "return b''", says=_NO_PROGRAM),
    _bytes("noise as a program", "return os.urandom(4096)", says=_NO_PROGRAM),
    _bytes("half of a program", "return blob[:len(blob) // 2]", says=_NO_PROGRAM),
    _bytes("a pickle", "return load('pickle').dumps(os.system)", says=_NO_PROGRAM),
    _bytes("a program in words", """
from jax.extend.mlir import deserialize_portable_artifact
from jax.interpreters.mlir import make_ir_context
with make_ir_context():
    return str(deserialize_portable_artifact(blob)).encode()""", says=_NO_PROGRAM),
    _bytes("a program of a future version", """
return re.sub(rb"StableHLO_v1\\.\\d+", b"StableHLO_v9.99", blob)""", harmless=True),
    *(_bytes(f"a program with byte {place} in 32 flipped", f"""
place = len(blob) * {place} // 32
return blob[:place] + bytes([blob[place] ^ 0xFF]) + blob[place + 1:]""", harmless=True)
      for place in (3, 11, 19, 27)),
)  # fmt: skip
CRAFTED_PROGRAMS = tuple(map(_changed, (*CHANGES, COMPILE_BOMB))) + BYTES
