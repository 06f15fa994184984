"""Programs of the tests here are compiled quickly."""

import pytest

from tests.serve.quickly import compile_all_quickly


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all_quickly(monkeypatch)
