"""What several tests of training compare with."""

import pytest

from jaxpar.train.plan import Plan
from tests.train.runs import trained


@pytest.fixture(scope="session")
def expected() -> list[float]:
    """Losses of plain data parallelism in float32."""
    return trained(Plan("dp=8"))[1]
