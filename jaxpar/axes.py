"""The names of mesh axes, and meshes written as text; nothing here imports JAX."""

from collections.abc import Mapping

# The slowest link is outermost. The last five are the extra tensor-parallel axes and the axes of
# two-level meshes.
AXES = ("pp", "dp", "fsdp", "ep", "cp", "tp", "tpx", "tpy", "tpz", "node", "device")


def parse_mesh(text: str) -> dict[str, int]:
    """Parses the axis sizes of a mesh, in order: "dp=2,tp=4" is {"dp": 2, "tp": 4}.

    Raises:
        ValueError: `text` is malformed, repeats an axis, or has an unknown axis or a size below 1.
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
    """The divisors of `size` up to 128, written as in an error message: "1, 2, 5, 10" for 10."""
    return ", ".join(str(k) for k in range(1, min(size, 128) + 1) if size % k == 0)


def check_axis(where: str, axis: str) -> None:
    """Raises a ValueError that begins with `where` if the axis is not one of `AXES`."""
    if axis not in AXES:
        raise ValueError(f"{where}: mesh axis {axis!r} is unknown; use one of {', '.join(AXES)}")


def check_sizes(where: str, sizes: Mapping[str, int]) -> None:
    """Raises a ValueError that begins with `where` if an axis is unknown or a size is below 1."""
    for axis, size in sizes.items():
        check_axis(where, axis)
        if size < 1:
            raise ValueError(f"{where}: mesh axis {axis} has size {size}; use 1 or more")


def show_mesh(sizes: Mapping[str, int]) -> str:
    """Writes axis sizes in the form that `parse_mesh` reads, as in "dp=2,tp=4"."""
    return ",".join(f"{axis}={size}" for axis, size in sizes.items())
