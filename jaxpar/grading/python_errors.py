"""The errors of Python, and those of the worker, in plain words.

Each rule is a kind of error, a pattern, and a message for the learner. `translate` searches the
pattern in `<place> <type of error>: <text>`, where the place is `raised`, `inside`, `later` or
`outside` and tells who raised the error. Named groups of the pattern fill the message.
"""

PYTHON_ERRORS = (
    (
        "nothing-returned",
        r"TypeError: the answer returns nothing",
        "The function returns nothing. End it with `return` and the result.",
    ),
    (
        "not-implemented",
        r"^raised NotImplementedError: ",
        "Nothing is written here yet. Replace the `raise NotImplementedError` line.",
    ),
    (
        "name",
        r"NameError: name '(?P<name>\w+)' is not defined",
        "`{name}` is not defined. Check its spelling, or import or assign it first.",
    ),
    (
        "name",
        r"UnboundLocalError: .*?variable '(?P<name>\w+)'",
        "`{name}` is used before it gets a value. Assign it first.",
    ),
    (
        "name",
        r"AttributeError: module '(?P<module>[\w.]+)' has no attribute '(?P<name>\w+)'",
        "`{module}` has no `{name}`. Check its spelling, and that it belongs to the JAX of today.",
    ),
    (
        "name",
        r"AttributeError: \w*Tracer has no attribute (?P<name>\w+)",
        "Arrays of JAX have no `.{name}`. Check its spelling, or look for it in `jax.numpy`.",
    ),
    (
        "module",
        r"ModuleNotFoundError: No module named '(?P<name>[\w.]+)'",
        "There is no module `{name}` here. An answer may import jax, numpy, optax, flax, "
        "`jaxpar.mesh`, and what its file lists.",
    ),
    (
        "signature",
        r"^outside TypeError: (?P<name>\w+)\(\) (?P<text>(got|missing|takes) .+)",
        "`{name}` cannot be called as the exercise calls it: it {text}. Put back the first line "
        "of the function as it was.",
    ),
    (
        "result",
        r"^outside TypeError: (Value|Argument) (?P<text>'.{,80}?').* not a valid JAX (array )?type",
        "The function must return arrays, not {text}.",
    ),
    (
        "recursion",
        r"RecursionError",
        "This function calls itself without an end. Use a loop over `range(n)`.",
    ),
    (
        "nobody",
        r"EOFError: EOF when reading a line|BdbQuit",
        "This line waits for somebody to type, and nobody is there while an answer is judged. "
        "Leave it out here. `jaxpar run` runs your function in your own terminal, where "
        "breakpoint() stops at real values.",
    ),
    (
        "called",
        r"TypeError: '(\w*Tracer|ArrayImpl)' object is not callable",
        "This line calls an array as if it were a function. Elements are in square brackets, "
        "`x[0]`; and round ones that are left of `raise NotImplementedError(...)` must go, too.",
    ),
    ("exit", r"SystemExit", "This line ends Python. Return the result instead."),
    (
        "memory",
        r"MemoryError",
        "This line asks for more memory than there is. Compute shapes from `x.shape` and the "
        "number of devices.",
    ),
    (
        "missing",
        r"^outside NameError: the file defines no function named (?P<name>\w+)",
        "The file defines no function named {name}. Put back its first line as it was.",
    ),
    (
        "import",
        r"ImportError: an answer may not import (?P<name>[\w.]+)",
        "An answer may not import `{name}`. It may import jax, numpy, optax, flax, `jaxpar.mesh`, "
        "and what its file lists.",
    ),
    (
        "refused",
        r"RuntimeError: (?P<text>\w+: the library's own .+)",
        "{text}.",
    ),
    (
        "refused",
        r"PermissionError: an answer may not (?P<text>(read|write|call) .+)",
        "An answer may not {text}. It needs only its arguments.",
    ),
)
