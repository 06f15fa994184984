"""What a right answer to each exercise is, and what is known to be wrong: a file an exercise."""

from pathlib import Path


def find(exercise: str) -> str | None:
    """The module of an exercise's contract, if there is such an exercise."""
    found = next(Path(__file__).parent.glob(f"*/{exercise}.py"), None)
    return found and f"{__name__}.{found.parent.name}.{exercise}"
