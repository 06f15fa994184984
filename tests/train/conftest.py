"""What several tests of training compare with."""

import pytest

from jaxpar.train.recipe import make_recipe
from tests.train.runs import trained


@pytest.fixture(scope="session")
def expected() -> list[float]:
    """Losses of one device in float32."""
    return trained(make_recipe("dp=1")).losses
