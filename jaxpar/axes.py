"""Names of mesh axes, and meshes as text; nothing here imports JAX."""

from collections.abc import Mapping

# Slowest link outermost. The last five: extra tensor-parallel axes, and meshes of two levels.
AXES = ("pp", "dp", "fsdp", "ep", "cp", "tp", "tpx", "tpy", "tpz", "node", "device")


def parse_mesh(text: str) -> dict[str, int]:
    """The axis sizes that `text` names, in its order: "dp=2,tp=4" is {"dp": 2, "tp": 4}.

    Raises:
        ValueError: `text` is malformed, or names an unknown axis, an axis twice or a size below 1.
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, equals, size = (word.strip() for word in part.partition("="))
        if not (equals and size.isascii() and size.isdigit()):
            raise ValueError(
                f"parse_mesh: {part!r} in {text!r}; write axis=size, as in 'dp=2,tp=4'"
            )
        if name in sizes:
            raise ValueError(f"parse_mesh: axis {name} appears twice in {text!r}; name it once")
        sizes[name] = int(size)
    check_sizes("parse_mesh", sizes)
    return sizes


def few_divisors(size: int) -> str:
    """The divisors of `size` up to 128, as an error lists them: "1, 2, 5, 10" for 10."""
    return ", ".join(str(k) for k in range(1, min(size, 128) + 1) if size % k == 0)


def check_axis(where: str, axis: str) -> None:
    """Raises ValueError if no mesh has such an axis."""
    if axis not in AXES:
        raise ValueError(f"{where}: mesh axis {axis!r} is unknown; use one of {', '.join(AXES)}")


def check_sizes(where: str, sizes: Mapping[str, int]) -> None:
    """Raises ValueError if no mesh has such an axis, or a size is below 1."""
    for axis, size in sizes.items():
        check_axis(where, axis)
        if size < 1:
            raise ValueError(f"{where}: mesh axis {axis} has size {size}; use 1 or more")


def show_mesh(sizes: Mapping[str, int]) -> str:
    """The sizes as `parse_mesh` reads them."""
    return ",".join(f"{axis}={size}" for axis, size in sizes.items())
