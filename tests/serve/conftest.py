"""Programs of the tests here are compiled quickly."""

from typing import Any

import jax
import pytest

from tests.compile_options import QUICKLY


@pytest.fixture(autouse=True)
def compile_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_as_told = jax.stages.Lowered.compile

    def compile_with(lowered: jax.stages.Lowered, **_: Any) -> jax.stages.Compiled:
        return compile_as_told(lowered, compiler_options=QUICKLY)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_with)
