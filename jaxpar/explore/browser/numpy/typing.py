"""numpy.typing, for annotations that are made when a module is imported."""

from typing import Any

ArrayLike = Any
