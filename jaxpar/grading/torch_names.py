"""Errors caused by names of PyTorch, and what JAX calls the same.

Each rule is a kind of error, a pattern, and a message for the learner. `translate` searches the
pattern in `<place> <type of error>: <text>`, where the place is `raised`, `inside`, `later` or
`outside` and tells who raised the error. Named groups of the pattern fill the message.
"""

_IN_JAX = {
    "to": "x.astype(dtype)",
    "float": "x.astype(jnp.float32)",
    "clone": "x",
    "contiguous": "x",
    "detach": "lax.stop_gradient(x)",
    "unsqueeze": "jnp.expand_dims(x, dim)",
    "permute": "jnp.transpose(x, dims)",
    "expand": "jnp.broadcast_to(x, shape)",
    "chunk": "jnp.split(x, number)",
    "numel": "x.size",
    "dim": "x.ndim",
    "cat": "jnp.concatenate(arrays)",
    "all_reduce": "lax.psum(x, axis)",
    "reduce_scatter": "lax.psum_scatter(x, axis)",
    "get_rank": "lax.axis_index(axis)",
    "get_world_size": "lax.axis_size(axis)",
    "backward": "loss, gradients = jax.value_and_grad(loss_fn)(params, batch)",
    "grad": "jax.grad(loss_fn)(params, batch)",
}
_OF_JAX = r"(\w*Tracer|'[\w.]*ArrayImpl' object|module 'jax[\w.]*')"

TORCH_NAMES = (
    *(
        (
            "torch",
            rf"AttributeError: {_OF_JAX} has no attribute '?{name}'?$",
            f"`{name}` is PyTorch's name. In JAX write `{instead}`.",
        )
        for name, instead in _IN_JAX.items()
    ),
    (
        "torch",
        r"AttributeError: .* has no attribute '?(?P<name>step|zero_grad)'?$",
        "`{name}` is PyTorch's name. In JAX gradients are no part of params, and optax returns: "
        "`updates, state = optimizer.update(gradients, state, params)`, then "
        "`params = optax.apply_updates(params, updates)`.",
    ),
    (
        "torch",
        r"TypeError: '(int|tuple|numpy\.dtypes\.\w+)' object is not callable",
        "A number, a tuple or a dtype is called like a function. `x.size`, `x.shape`, `x.ndim` and "
        "`x.dtype` have no parentheses; PyTorch's `x.size(0)` is `x.shape[0]`.",
    ),
    (
        "torch",
        r"argument of array\.view\(\) is not supported|Cannot interpret '[-(\d].*' as a data type",
        "In JAX, `x.view` reads the same bytes as another dtype. Write `x.reshape(shape)`.",
    ),
    (
        "torch",
        r"^inside TypeError: .*unexpected keyword argument '(?P<name>dim|keepdim)'",
        "`{name}` is PyTorch's name. `jax.numpy` says `axis=` and `keepdims=`.",
    ),
    (
        "torch",
        r"^inside TypeError: (?P<name>scatter|gather|reduce)\(\) (missing|got|takes)",
        "`lax.{name}` works on the array of one device. Between devices there are `lax.psum`, "
        "`lax.psum_scatter`, `lax.all_gather`, `lax.all_to_all` and `lax.ppermute`.",
    ),
)
