"""Answers in which Python or JAX raises an error: the kind of error, and the body.

The line that the explanation must name ends in `# here`.
"""

PROGRAMS = (
    ("nothing-returned", "lax.pmean(x, axis)"),
    ("carry-varying", "return lax.fori_loop(0, 3, lambda i, c: c + x, jnp.zeros(x.shape))  # here"),
    (
        "carry-varying",
        """def hop(carry, _):
            return lax.ppermute(carry + x, axis, [(0, 1)]), None
        carry = jnp.zeros(x.shape)
        return lax.scan(hop, carry, None, length=3)[0]  # here""",
    ),
    (
        "carry-varying",
        """pair = (jnp.zeros(x.shape), jnp.ones(x.shape))
        return lax.fori_loop(0, 3, lambda i, c: (c[0] + x, c[1] * x), pair)[0]  # here""",
    ),
    ("carry-varying", "return lax.fori_loop(0, 2, lambda i, c: lax.psum(c, axis), x)  # here"),
    (
        "carry-type",
        "return lax.fori_loop(0, 2, lambda i, c: jnp.concatenate([c, c]), x)  # here",
    ),
    ("carry-type", "return lax.scan(lambda c, _: ((c, c), None), x, None, length=3)[0]  # here"),
    ("scan-pair", "return lax.scan(lambda c, _: c, x, None, length=3)[0]  # here"),
    (
        "branch-varying",
        "return lax.cond(lax.axis_index(axis) == 0, lambda: x, lambda: jnp.zeros((2, 3)))  # here",
    ),
    (
        "branch-varying",
        "return lax.switch(lax.axis_index(axis), [lambda: x, lambda: jnp.ones((2, 3))])  # here",
    ),
    (
        "branch-type",
        "return lax.cond(lax.axis_index(axis) == 0, lambda: x, lambda: x[:1])  # here",
    ),
    ("while-gradient", "return lax.fori_loop(0, lax.axis_index(axis), lambda i, c: c + x, x)"),
    (
        "traced-bool",
        """if lax.axis_index(axis) == 0:  # here
            return x
        return 2 * x""",
    ),
    (
        "traced-bool",
        """i = lax.axis_index(axis)
        return jnp.where(i > 0 and i < 2, x, 0)  # here""",
    ),
    ("traced-index", "return x * [1, 2, 3, 4][lax.axis_index(axis)]  # here"),
    ("traced-index", "return x * {0: 1, 1: 2}[lax.axis_index(axis)]  # here"),
    (
        "traced-index",
        """for _ in range(lax.axis_index(axis)):  # here
            x = 2 * x
        return x""",
    ),
    (
        "traced-slice",
        """i = lax.axis_index(axis)
        return x[i:i + 1]  # here""",
    ),
    ("traced-shape", "return jnp.zeros(lax.axis_index(axis)) + x  # here"),
    ("traced-mask", "return x[x > 0]  # here"),
    ("traced-numpy", "return np.sin(x)  # here"),
    ("traced-numpy", "return x * np.arange(4)[lax.axis_index(axis)]  # here"),
    ("traced-number", "return x * int(lax.axis_index(axis))  # here"),
    ("traced-number", "return x * x[0, 0].item()  # here"),
    (
        "immutable",
        """x[0] = 1  # here
        return x""",
    ),
    ("permute-twice", "return lax.ppermute(x, axis, [(0, 1), (0, 0)])  # here"),
    ("permute-twice", "return lax.ppermute(x, axis, [(0, 1), (1, 1)])  # here"),
    (
        "permute-traced",
        """i = lax.axis_index(axis)
        return lax.ppermute(x, axis, [(i, (i + 1) % 2)])  # here""",
    ),
    ("permute-traced", "return lax.ppermute(x, axis, jnp.array([[0, 1]]))  # here"),
    ("permute-range", "return lax.ppermute(x, axis, [(i, i + 1) for i in range(2)])  # here"),
    ("permute-range", "return lax.ppermute(x, axis, [(0, 1, 0)])  # here"),
    ("permute-pairs", "return lax.pshuffle(x, axis, [0, 0])  # here"),
    ("no-derivative", "return lax.pmax(x, axis)  # here"),
    ("no-derivative", "return lax.pmin(x, axis)  # here"),
    (
        "custom-gradient",
        """copy = jax.custom_vjp(lambda a: a)
        copy.defvjp(lambda a: (a, None), lambda _, g: (lax.psum(g, axis),))
        return copy(x)  # here""",
    ),
    ("pcast", "return lax.pcast(x, axis, to='varying')  # here"),
    ("axes-mixed", "return lax.psum(x, ('dp', 'tp'))  # here"),
    ("axes-mixed", "return lax.psum_scatter(x, ('dp', 'tp'), tiled=True)  # here"),
    ("axes-mixed", "return lax.pcast(x, ('dp', 'tp'), to='varying')  # here"),
    ("axis-name", "return lax.psum(x, 'rows')  # here"),
    ("axis-name", "return x + lax.axis_index('rows')  # here"),
    ("axis-name", "return lax.all_gather(x, 'rows')  # here"),
    ("groups", "return lax.psum(x, axis, axis_index_groups=[[0], [1]])  # here"),
    (
        "inner-mesh",
        """mesh = jax.make_mesh((2,), ("dp",), axis_types=(jax.sharding.AxisType.Auto,))
        copy = jax.shard_map(lambda a: a, mesh=mesh, in_specs=P("dp"), out_specs=P("dp"))
        return copy(x)  # here""",
    ),
    ("shape", "return x + jnp.ones((5, 7))  # here"),
    ("shape", "return x @ jnp.ones((11, 2))  # here"),
    ("shape", "return x.reshape(7, 5)  # here"),
    ("shape", "return jnp.concatenate([x, jnp.ones((3, 2))])  # here"),
    ("shape", "return jnp.stack([x, x[0]])  # here"),
    ("shape", "return jnp.where(jnp.ones(5) > 0, x, jnp.ones((2, 3)))  # here"),
    ("shape", "return x.at[0].set(jnp.ones(17))  # here"),
    ("shape", "return x[0, 0, 0]  # here"),
    ("shape", "return lax.psum_scatter(x[:1], axis)  # here"),
    ("shape", "return lax.all_to_all(x, axis, 1, 0)  # here"),
    ("shape", "return lax.dynamic_slice(x, (0, 0), (9, 9))  # here"),
    ("shape", "return jnp.split(x, 5)[0]  # here"),
    ("dtype", "return lax.add(x, jnp.ones(x.shape, jnp.int32))  # here"),
    ("not-implemented", "raise NotImplementedError('add x over the axis')  # here"),
    ("name", "return lax.psum(x, axes)  # here"),
    ("name", "return lax.pvary_all(x, axis)  # here"),
    ("name", "return x.mirrored()  # here"),
    ("torch", "return (2 * x).to(x.dtype)  # here"),
    ("torch", "return lax.all_reduce(x, axis)  # here"),
    (
        "torch",
        """loss = (x * x).sum()
        loss.backward()  # here
        return x.grad""",
    ),
    ("torch", "return np.float32(2) * jax.device_put(np.ones(3)).detach()  # here"),
    (
        "torch",
        """import optax
        optimizer = optax.sgd(0.1)
        optimizer.step()  # here
        return x""",
    ),
    (
        "pytree",
        """total = 0
        for part in {"inputs": x, "targets": x}:
            total += part["inputs"]  # here
        return total""",
    ),
    ("torch", "return jnp.cat([x, x])  # here"),
    ("torch", "return jnp.zeros(x.size(0)) + x  # here"),
    ("torch", "return jnp.zeros(x.shape()) + x  # here"),
    ("torch", "return x.view(-1)  # here"),
    ("torch", "return x.view(3, 2)  # here"),
    ("torch", "return x.sum(dim=0, keepdim=True)  # here"),
    ("torch", "return lax.gather(x, axis)  # here"),
    (
        "name",
        """y = y + x  # here
        return y""",
    ),
    (
        "module",
        """import nowhere  # here
        return x""",
    ),
    ("recursion", "return answer(x, axis=axis)  # here"),
    ("exit", "raise SystemExit(3)  # here"),
    ("memory", "return x + np.zeros(2**50)  # here"),
    ("result", "return 'the sum'"),
    (
        "callback",
        """shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(np.asarray, shape, x)  # here""",
    ),
    (
        "callback",
        """jax.debug.callback(np.asarray, x)  # here
        return x""",
    ),
    (
        "ragged",
        """ones = jnp.full_like(x[0], 1, dtype=jnp.int32)[:2]
        return lax.ragged_all_to_all(x, x, ones, ones, ones, ones, axis_name=axis)  # here""",
    ),
    (
        "custom-call",
        """call = jax.ffi.ffi_call("my_kernel", jax.ShapeDtypeStruct((2, 3), x.dtype))
        return call(x[:, :3])""",
    ),
    ("called", "return x(0)  # here"),
    ("jit", "return jax.jit(lambda y, axis: lax.psum(y, axis))(x, axis=axis)  # here"),
    (
        "unknown",
        """ranks = [0, 1]
        return x * ranks[5]  # here""",
    ),
)
