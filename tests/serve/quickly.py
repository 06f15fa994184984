"""Compiles what is lowered first, as engines do, without optimizing the machine code."""

from typing import Any

import jax
import pytest

from tests.compile_options import QUICKLY


def compile_all_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, in one test."""
    compile_as_told = jax.stages.Lowered.compile

    def compile_with(lowered: jax.stages.Lowered, **_: Any) -> jax.stages.Compiled:
        return compile_as_told(lowered, compiler_options=QUICKLY)

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_with)
