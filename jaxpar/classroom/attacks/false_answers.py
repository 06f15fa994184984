"""Answers that are false: objects that lie, constants, state, patches, texts that inject."""

from __future__ import annotations

import textwrap

from jaxpar.classroom.attacks.attack import (
    COORDINATES,
    LOOP,
    MEAN,
    PROGRAM_POINTS,
    UNFENCED,
    VALUE,
    VALUE_POINTS,
    Attack,
)
from jaxpar.grading.verdict import Status

INJECTION = "\\x1b[2J\\x07\\r\\n::error::x\\n=HYPERLINK(1)<script>alert(1)</script>\\u202e\\ud800"


def _coordinates(
    name: str, body: str, *ends: Status, group: str = "answers", honest: int = 0, before: str = ""
) -> Attack:
    """Makes an attack from a body of `device_coordinates`; it may call the right one, `right`."""
    right = COORDINATES.replace("device_coordinates", "right")
    function = f"def device_coordinates(rank, sizes):\n{textwrap.indent(body.strip(), '    ')}\n"
    return Attack(name, group, f"{right}{before}{function}", ends, honest, VALUE, LOOP)


def _patched(
    name: str, patch: str, *ends: Status, honest: int = 0, answer: str = "return x"
) -> Attack:
    """Makes an attack from a patch and a body of `mean_over_devices`; if empty, the right one."""
    source = f"{UNFENCED}import jax\nimport jax.numpy as jnp\nimport numpy as np\n{patch}\n"
    body = f"def mean_over_devices(x, *, axis):\n    {answer}\n"
    return Attack(name, "patching", source + MEAN + body * bool(answer), ends, honest)


LIES = (
    _coordinates("equal to everything", "return Yes()", "fail", before="""
class Yes(int):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__
"""),
    _coordinates("a tuple equal to everything", "return Yes([0])", "fail", before="""
class Yes(tuple):
    __eq__ = lambda self, other: True
    __len__ = lambda self: 1
"""),
    _coordinates("a number that spells itself as JSON", "return (Spelled(),)", "fail", before="""
class Spelled(float):
    __repr__ = lambda self: '1], "done": true, "x": [1'
    __str__ = __repr__
"""),
    _coordinates("an array whose list never ends", "return Endless()", "fail", before="""
class Endless:
    shape = ()
    def tolist(self): return self
"""),
    _coordinates("a dictionary with a loop in it", "return Loop()", "fail", before="""
class Loop(dict):
    def items(self):
        while True: pass
    __iter__ = keys = __len__ = items
    __bool__ = lambda self: True
"""),
    _coordinates("lists in themselves", "a = []; a.append(a); return a", "fail"),
    _coordinates("lists in lists, ten thousand deep", """
a = 0
for _ in range(10_000): a = [a]
return a""", "fail"),
    _coordinates("numbers of a megabyte", "return list(range(200_000))", "fail", "timeout"),
    _coordinates("not a number", "return (float('nan'),)", "fail"),
    _coordinates("an infinite number", "return (float('inf'),)", "fail"),
    _coordinates("a constant", "return (3,)", "fail"),
    _coordinates("a text", "return 'raises ValueError'", "fail"),
    _coordinates("state between calls", """
seen.append(rank)
return right(rank, sizes) if len(seen) % 2 else (0,)""", "fail", before="seen = []\n"),
    _coordinates("other results in each process", """
return right(rank, sizes) if id(object()) // 16 % 2 else (rank,)""", "fail", "pass",
                 honest=VALUE_POINTS),
    _coordinates("other behaviour when graded", """
if os.environ.get("HOME") is None or os.getuid() > 60_000:
    raise RuntimeError("only at home")
return right(rank, sizes)""", "fail", before=UNFENCED),
    _coordinates("the library's own function", "return mesh.device_coordinates(rank, sizes)",
                 "fail", "error", before="from jaxpar import mesh\n"),
)  # fmt: skip
TEXTS = (
    _coordinates("injection by an exception", f'raise ValueError("{INJECTION}" * 1000)', "fail",
                 group="injection"),
    _coordinates("injection by the name of an exception", f"""
raise type("{INJECTION}", (Exception,), {{}})("x")""".replace("\\ud800", ""), "fail",
                 group="injection"),
    _coordinates("injection by a result", f'return ["{INJECTION}", {{"{INJECTION}": 1}}]', "fail",
                 group="injection"),
    _coordinates("injection by what is printed", f"""
print("{INJECTION}".encode("utf-8", "replace"), "{INJECTION[:-6]}")
return right(rank, sizes)""", "pass", group="injection", honest=VALUE_POINTS),
    _coordinates("injection by the name of a type", f"""
return type("{INJECTION[:-6]}", (), {{"__module__": "{INJECTION[:-6]}"}})()""", "fail",
                 group="injection"),
    _coordinates("an exception that cannot be shown", "raise Unshown", "fail", "error", before="""
class Unshown(Exception):
    def __str__(self): raise Unshown
    __repr__ = __str__
"""),
    _coordinates("an exception that loops when it is shown", "raise Endless", "timeout", before="""
class Endless(Exception):
    def __str__(self):
        while True: pass
    __repr__ = __str__
"""),
    Attack("injection by a docstring and a name", "injection", f'''"""{INJECTION[:-6]}"""
{COORDINATES}
device_coordinates.__name__ = device_coordinates.__qualname__ = "{INJECTION}"
device_coordinates.__doc__ = "{INJECTION}"
''', ("pass",), VALUE_POINTS, VALUE),
)  # fmt: skip
_UNPARSED: tuple[Status, ...] = ("error", "memory", "timeout", "killed")
PARSER_BOMBS = tuple(
    Attack(name, "parser bombs", f"x = {text}\n{COORDINATES}", _UNPARSED, 0, VALUE, LOOP)
    for name, text in {
        "nested parentheses": "(" * 100_000,
        "a chain of minus signs": "-" * 200_000 + "1",
        "a chain of attributes": "a" + ".a" * 120_000,
        "a long sum": "1" + "+1" * 120_000,
        "an import of a name of 100,000 parts": "1; import a" + ".a" * 100_000,
        "an integer of 250,000 digits": "1" * 250_000,
    }.items()
)
PATCHES = (
    _patched("numpy says that all is close", """
for module in (np, jnp, np.testing):
    for name in ("allclose", "isclose", "array_equal", "assert_allclose", "assert_array_equal"):
        if hasattr(module, name):
            setattr(module, name, lambda *a, **k: True)""", "fail"),
    _patched("json writes another result", """
json = load("json")
honest = json.dumps
json.dumps = lambda value, **k: honest({"done": True, "status": "pass", "score": 10})""",
             "protocol", "fail"),
    _patched("json accepts NaN", """
json = load("json")
json.encoder.c_make_encoder = None
json.JSONEncoder.iterencode = lambda self, o, _one_shot=False: iter(["NaN"])
json.dumps = lambda *a, **k: "NaN" """, "protocol"),
    _patched("export returns other bytes", """
export = load("jax.export", fromlist=["export"])
class Forged:
    mlir_module_serialized = b"pass"
export.export = lambda *a, **k: lambda *inputs: Forged()""", "protocol"),
    _patched("the worker's functions say that all is done", """
done = lambda *a, **k: iter([({"done": True, "score": 10}, None)])
for found in gc.get_objects():
    if type(found) is type(done) and found.__name__ in ("_programs", "_failure", "_end"):
        found.__code__ = done.__code__""",
             "fail", "protocol"),
    _patched("collectives that do nothing", """
load("jax.lax", fromlist=["psum"]).psum = lambda x, axis: x""", "fail", answer=""),
    _patched("numbers of 64 bits", 'jax.config.update("jax_enable_x64", True)', "pass", "fail",
             honest=PROGRAM_POINTS, answer=""),
    _patched("a mesh that is turned round", """
for found in gc.get_objects():
    if type(found) is type(lambda: 0) and found.__name__ == "export_forward":
        honest = found.__globals__["make_mesh"]
        def turned(spec):
            mesh = honest(spec)
            return jax.sharding.Mesh(mesh.devices[::-1], mesh.axis_names, mesh.axis_types)
        found.__globals__["make_mesh"] = turned""", "pass", "fail", honest=PROGRAM_POINTS,
             answer=""),
)  # fmt: skip
FALSE_ANSWERS = LIES + TEXTS + PARSER_BOMBS + PATCHES
