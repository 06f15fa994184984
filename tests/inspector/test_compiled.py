"""Compiling may be interrupted."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from jaxpar.inspector.compiled import compile_program


def test_an_interrupt_while_xla_still_dumps_stays_an_interrupt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def not_empty(*_: Any, **__: Any) -> None:
        raise OSError("Directory not empty")

    class Interrupted:
        def compile(self, compiler_options: dict[str, Any]) -> None:
            monkeypatch.setattr(os, "rmdir", not_empty)
            raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    lowered: Any = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        compile_program(lowered)
