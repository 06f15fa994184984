"""What several tests of training compare with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxpar.train.recipe import make_recipe
from tests.train.runs import trained


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache of texts and tokens for these tests alone."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(folder))
        yield folder / "jaxpar"


@pytest.fixture(scope="session")
def expected() -> list[float]:
    """Losses of one device in float32."""
    return trained(make_recipe("dp=1")).losses
