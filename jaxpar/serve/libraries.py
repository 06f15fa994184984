"""Whether the libraries of the extra `serve` are installed. No JAX."""

from importlib.util import find_spec

LIBRARIES = ("starlette", "uvicorn", "httpx")


def need_libraries(where: str) -> None:
    """Refuses to go on without a library of the extra.

    Raises:
        ValueError: one is not installed.
    """
    for name in LIBRARIES:
        if find_spec(name) is None:
            raise ValueError(
                f"{where}: the library {name} is not installed; run pip install 'jaxpar[serve]'"
            )
