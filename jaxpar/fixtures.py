"""Fixtures that pytest finds by itself wherever jaxpar is installed: the budgets of a program.

Every run of pytest imports this module, so what is heavy is imported when a test asks for it.
"""

from collections.abc import Callable

import pytest


@pytest.fixture
def sends() -> Callable[..., None]:
    """`jaxpar.testing.assert_sends`: a program sends no more than its budget."""
    from jaxpar.testing import assert_sends

    return assert_sends


@pytest.fixture
def holds() -> Callable[..., None]:
    """`jaxpar.testing.assert_holds`: a device holds no more than its budget."""
    from jaxpar.testing import assert_holds

    return assert_holds
