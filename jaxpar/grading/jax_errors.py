"""The errors of JAX that newcomers meet: kind, what it looks like, what it means in plain words.

Each rule is a kind of error, a pattern, and a message for the learner. `translate` searches the
pattern in `<place> <type of error>: <text>`, where the place is `raised`, `inside`, `later` or
`outside` and tells who raised the error. Named groups of the pattern fill the message.
"""

_CARRY = (
    r"carry (?:component )?\S+ has type (?P<start>.+?) but the corresponding output carry "
    r"component has type (?P<end>.+?), so the "
)
_BRANCH = (
    r"The output of .+? has type (?P<one>.+?) but the corresponding output of .+? "
    r"has type (?P<other>.+?), so the "
)

CONTROL_FLOW = (
    (
        "carry-varying",
        _CARRY + r"manual axis types do not match.*might be fixed",
        "The carry of this loop goes in equal on all devices, {start}, and comes out different on "
        "each, {end}. Start from a value that varies too: `jnp.zeros_like(x)` of a varying x, or "
        '`lax.pcast(start, axis, to="varying")`.',
    ),
    (
        "carry-varying",
        _CARRY + r"manual axis types",
        "The carry of this loop goes in different on each device, {start}, and comes out equal "
        'on all, {end}. Return `lax.pcast(carry, axis, to="varying")` from the loop\'s function.',
    ),
    (
        "carry-type",
        _CARRY,
        "The carry of this loop goes in as {start} and comes out as {end}. A loop keeps one shape "
        "and one dtype: make the start value and the returned value alike.",
    ),
    (
        "carry-type",
        r"carry input and carry output must have the same pytree structure",
        "The carry of this loop comes out as a different collection than it went in. Return as "
        "many carries, nested in the same way, as the loop starts with.",
    ),
    (
        "scan-pair",
        r"body output must be a pair",
        "The function given to `lax.scan` must return two things: the next carry, and what to "
        "stack. Write `return carry, None` when nothing is stacked.",
    ),
    (
        "branch-varying",
        _BRANCH + r"manual axis types",
        "One branch gives {one}, the other {other}: one differs by device (V), the other is equal "
        "on all. Write `jnp.where(condition, a, b)`, or "
        '`lax.pcast(value, axis, to="varying")` in the branch that is equal.',
    ),
    (
        "branch-type",
        _BRANCH,
        "One branch gives {one}, the other {other}. Both must give the same shape and dtype.",
    ),
    (
        "while-gradient",
        r"Reverse-mode differentiation does not work for lax\.while_loop",
        "This loop has no gradient, because its number of rounds is known only when the program "
        "runs. Give `lax.fori_loop` plain numbers, such as `lax.axis_size(axis)`, or use "
        "`lax.scan`.",
    ),
)

TRACED_VALUES = (
    (
        "traced-bool",
        r"TracerBoolConversionError",
        "Python's `if`, `while`, `and`, `or`, `not` and `assert` need a truth value now, but this "
        "one, such as a comparison with `lax.axis_index`, exists only when the program runs. All "
        "devices run one program: choose with `jnp.where(condition, a, b)`.",
    ),
    (
        "traced-index",
        r"TracerIntegerConversionError|unhashable type: '\w*Tracer'",
        "A Python list, dict, `range` or size needs a plain number, but this one, such as "
        "`lax.axis_index`, exists only when the program runs. Index an array instead: "
        "`jnp.asarray(table)[i]`. For the number of devices write `lax.axis_size(axis)`.",
    ),
    (
        "traced-slice",
        r"(Slice entries must be static integers|must have static start/stop/step)",
        "The bounds of a slice must be plain numbers, but these exist only when the program runs. "
        "Write `lax.dynamic_slice_in_dim(x, start, size, 0)`, or `x[i]` for a single row.",
    ),
    (
        "traced-shape",
        r"Shapes must be 1D sequences of concrete values",
        "A shape must be made of plain numbers, but this one holds a value that exists only when "
        "the program runs. Use `x.shape`, or `lax.axis_size(axis)` for the number of devices.",
    ),
    (
        "traced-mask",
        r"NonConcreteBooleanIndexError",
        "`x[mask]` has a shape that depends on the values, which JAX cannot compile. Write "
        "`jnp.where(mask, x, 0)`.",
    ),
    (
        "traced-numpy",
        r"TracerArrayConversionError",
        "numpy needs the values now, but they exist only when the program runs. Use `jax.numpy`; "
        "to index a numpy table, write `jnp.asarray(table)[i]`.",
    ),
    (
        "traced-number",
        r"ConcretizationTypeError",
        "`int`, `float`, `.item` and `.tolist` need the value now, but it exists only when the "
        "program runs. Keep it an array; to change its type write `x.astype(dtype)`.",
    ),
    (
        "leak",
        r"UnexpectedTracerError|Too many leaves for PyTreeDef",
        "A value from one run of the function was kept, in a global or an outer list say, and "
        "used in another. Pass every value in as an argument, and out with return.",
    ),
    (
        "immutable",
        r"do not support in-place item assignment",
        "JAX arrays cannot be changed. Write `x = x.at[i].set(value)`.",
    ),
)

COLLECTIVES = (
    (
        "permute-twice",
        r"ppermute sources and destinations must be unique, got (?P<pairs>.{,200}\))",
        "Counted modulo n, this permute names a source or a destination twice: {pairs}. In one "
        "permute a device sends to at most one and receives from at most one.",
    ),
    (
        "permute-traced",
        r"primitive ppermute, the value of parameter perm|`perm` passed to `jax\.lax\.ppermute`",
        "The pairs of a permute are part of the program, the same on every device: a list of "
        "plain numbers, with no `lax.axis_index` in it. Write all of them: "
        "`[(i, (i + 1) % n) for i in range(n)]` with `n = lax.axis_size(axis)`.",
    ),
    (
        "permute-range",
        r"^later (IndexError: \w+ index out of range|ValueError: too many values to unpack)",
        "A pair of this permute is not (source, destination) with both from 0 to n - 1. On a ring "
        "take positions modulo n; elsewhere leave such pairs out.",
    ),
    (
        "permute-pairs",
        r"^inside ValueError: `perm` does not represent a permutation",
        "`lax.pshuffle` needs each position once. Use `lax.ppermute` with (source, destination) "
        "pairs.",
    ),
    (
        "no-derivative",
        r"Differentiation rule for 'p(?P<name>max|min)' not implemented",
        "`lax.p{name}` has no derivative in JAX. Where it only shifts the values, write "
        "`lax.p{name}(lax.stop_gradient(x), axis)`; otherwise build the result from collectives "
        "that have one.",
    ),
    (
        "no-derivative",
        r"Differentiation rule for '(?P<name>\w+)' not implemented",
        "`{name}` has no derivative in JAX, and the gradient is judged here. Build the result "
        "from other operations, or wrap what needs no gradient in `lax.stop_gradient`.",
    ),
    (
        "result-varying",
        r"given out_specs which require replication.+?(?P<spec>out_specs\S*) is (?P<layout>P\(.*?\)"
        r"|PartitionSpec\(.*?\)) which implies .+? replicated across mesh ax[ei]s (?P<axes>.+?),",
        "{spec} is {layout}: the result must be equal on all devices of {axes}, but by its type "
        "it may differ. If each device holds its own part, name the axis in out_specs. If it must "
        'be equal, end with `lax.psum` or `lax.all_gather(..., to="invarying")`.',
    ),
    (
        "custom-gradient",
        r"Custom VJP bwd rule .+ of type (?P<got>.+?) corresponding to an input of type "
        r"(?P<want>[^,]+(?:,[\d,]+\])?(?:\{.*?\})?)",
        "The backward rule returns {got} for an input of type {want}. V names the axes over which "
        "a value differs by device; both must agree: add over an axis with `lax.psum`, or cast "
        'with `lax.pcast(..., to="varying")`.',
    ),
    (
        "pcast",
        r"Unsupported pcast from=varying, to='varying'",
        "This value already differs by device, so there is nothing to cast. Remove the `pcast`: "
        "`jnp.zeros_like(y)` differs by device if y does, and only what is equal on all devices, "
        "such as `jnp.zeros(shape)`, needs one.",
    ),
    (
        "axes-mixed",
        r"lax\.pcast can only accept axis_name which.+?Got input type: (?P<type>.+?), axes: "
        r"(?P<axes>.+?) and input state",
        "This value, {type}, already differs by device over the axes after V. Cast it over the "
        "others of {axes} only.",
    ),
    (
        "axes-mixed",
        r"lax\.(?P<name>\w+) can only accept axis_name which.+?Got input type: (?P<type>.+?), "
        r"axes: (?P<axes>.+?) and input state",
        "`lax.{name}` over {axes} is given {type}. This value differs by device over the axes "
        "after V, and is equal on all devices over the others. Name only the axes after V; where "
        "each of the equal copies shall count, first cast it over the others: "
        '`lax.pcast(x, axis, to="varying")`.',
    ),
    (
        "axis-name",
        r"unbound axis name: \w(?:\. To fix|$)",
        "An axis name was read letter by letter. `jnp.sum`, `jnp.mean` and their like work along "
        "array dims of one device; over the devices of a mesh axis use `lax.psum(x, axis)`. "
        "`lax.pbroadcast` reads it so, too, and does not run on CPUs: send with `lax.ppermute`.",
    ),
    (
        "axis-name",
        r"unbound axis name: (?P<axis>.+?)(?:\. To fix|$)",
        "The mesh has no axis `{axis}`. Use the axis that the function is given.",
    ),
    (
        "axis-name",
        r"^inside AssertionError: $",
        "JAX stops here without a word. Most often the mesh has no axis of this name: use the one "
        "that the function is given. Or `jnp.sum` was given a mesh axis: it adds along array dims "
        "of one device; over the devices use `lax.psum(x, axis)`.",
    ),
    (
        "groups",
        r"^inside NotImplementedError: $",
        "JAX does not support this call inside `shard_map`; `axis_index_groups` is the usual "
        "reason. Use permutes with pairs, or the axes of the mesh.",
    ),
    (
        "inner-mesh",
        r"The context mesh .+ should match the mesh|should be of type `Manual`",
        "The function already runs on each device, inside `jax.shard_map`. Use collectives over "
        "the given axis; make no mesh, `pmap` or `shard_map` in it.",
    ),
)

SHAPES = (
    (
        "pytree",
        r"^inside TypeError: string indices must be integers",
        "A name was read as if it held arrays: `for` over a dict gives its keys. To take slice "
        "after slice along dim 0 of every array of a pytree, write `lax.scan(step, start, tree)`.",
    ),
    (
        "shape",
        r"(?i)Error: (?P<text>[^\n]*?("
        r"incompatible (shapes|types) for broadcasting|contracting dimensions"
        r"|Size of label|cannot reshape array|Cannot (concatenate|stack)|must have the same shape"
        r"|must be divisible by|must match shard count|requires the size of the mapped axis"
        r"|shape must be smaller|must be less than or equal to operand shape"
        r"|same number of dimensions|Too many indices|different leading axis sizes"
        r"|does not result in an equal division|must match number of operand dimensions"
        r")[^\n]*)",
        "The shapes do not fit: {text}. Here x is the block of one device, not the whole array; "
        "`print(x.shape)` shows it.",
    ),
    (
        "dtype",
        r"Error: (?P<text>[^\n]*requires arguments to have the same dtypes[^\n.]*)",
        "The dtypes differ: {text}. Write `value.astype(x.dtype)`, or make zeros and ones with "
        "`x.dtype`.",
    ),
)

EXPORT = (
    (
        "callback",
        r"serialization of host_callbacks",
        "The program calls back into Python while it runs, which cannot be judged. Remove "
        "`pure_callback`, `io_callback` and `jax.debug.callback`.",
    ),
    (
        "ragged",
        r"custom calls whose targets .+@ragged_all_to_all",
        "`ragged_all_to_all` cannot be exported, and the exported program is what is judged. Use "
        "`lax.all_to_all` or permutes.",
    ),
    (
        "custom-call",
        r"custom calls whose targets .+custom_call @(?P<name>\w+)",
        "`{name}` runs outside what JAX can export, and the exported program is what is judged. "
        "Write it with `jax.numpy` and `jax.lax`.",
    ),
)

JIT = (
    (
        "jit",
        r"interpreting argument to <function (?P<function>\S+) at .*and was passed to the function "
        r"at path (?P<argument>[^\s.]+)",
        "`jax.jit` takes arrays, and `{argument}` of `{function}` is none. Leave `jax.jit` out, "
        "since the judge compiles the whole program; or name it in `static_argnames`.",
    ),
)

JAX_ERRORS = CONTROL_FLOW + TRACED_VALUES + COLLECTIVES + EXPORT + SHAPES + JIT
