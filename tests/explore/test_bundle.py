"""The library as a browser has it: one zip, no other package, and the answers of CPython."""

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxpar.course.catalog import EXERCISES
from jaxpar.course.stubs import stub
from jaxpar.explore import answer
from jaxpar.explore.bundle import bundle
from jaxpar.explore.verdict import JUDGED
from tests.explore import in_page
from tests.explore.drawn_forms import EXPLORERS, drawn

IDS = [id for ids in JUDGED.values() for id in ids]
OWN_DRAWS = ("serving_metrics",)
"""Its times are exponentially distributed, which the stand-in for numpy draws in another way."""
WORDS = ("message", "expected", "got")


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "jaxpar.zip"
    path.write_bytes(bundle())
    return path


def asked(packed: Path, questions: list[dict[str, Any]]) -> list[Any]:
    """The replies of a Python that can import nothing but the zip and its own library."""
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    command = [sys.executable, "-S", "-I", in_page.__file__, str(packed)]
    ended = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def through_json(answered: Any) -> Any:
    return json.loads(json.dumps(answered, allow_nan=False))


def test_equal_files_make_equal_bytes() -> None:
    assert bundle() == bundle()


def test_it_holds_what_the_forms_need_and_little_else() -> None:
    names = zipfile.ZipFile(io.BytesIO(bundle())).namelist()
    assert {"numpy/__init__.py", "numpy/random.py", "jaxpar/cost/hardware.toml"} <= set(names)
    assert not [name for name in names if name.startswith(("jaxpar/parallel", "jaxpar/course"))]


@pytest.mark.parametrize("name", EXPLORERS)
def test_drawn_forms_have_the_answers_of_cpython(packed: Path, name: str) -> None:
    forms = [{}, *drawn(name, 50)]
    here = [through_json(answer(name, form)) for form in forms]
    assert sum("error" not in answered for answered in here) > len(forms) / 4
    for form, right, got in zip(
        forms, here, asked(packed, [{"form": [name, form]} for form in forms]), strict=True
    ):
        assert got == right, form


@pytest.mark.parametrize("exercise", IDS)
def test_verdicts_are_those_of_cpython(packed: Path, exercise: str) -> None:
    (got,), right = asked(packed, [{"verdicts": exercise}]), in_page.verdicts(exercise)
    if exercise in OWN_DRAWS:
        for verdict in (*got.values(), *right.values()):
            for row in verdict["properties"]:
                row.update(dict.fromkeys(WORDS))
    assert got == right
    assert right.pop("reference")["status"] == "pass"
    assert {verdict["status"] for verdict in right.values()} == {"fail"}


def test_stubs_have_the_verdicts_of_cpython(packed: Path) -> None:
    rows = [row for row in EXERCISES if row.id in IDS]
    forms = [{"exercise": row.id, "source": stub(row), "seed": 3} for row in rows]
    replies = asked(packed, [{"form": ["verdict", form]} for form in forms])
    for form, got in zip(forms, replies, strict=True):
        right = through_json(answer("verdict", form))
        assert (got["status"], got["score"]) == ("fail", 0)
        assert got["lines"][1:] == right["lines"][1:]  # the first one has the time
        assert "Nothing is written here yet" in "\n".join(got["lines"])


SEEDS = (0, 1, 20, 2**32 - 1, 2**32, 2**70, [3, 4], [1, 2, 3, 4, 5, 6], *range(100, 140))


def test_the_stand_in_draws_what_numpy_does(packed: Path) -> None:
    got = asked(packed, [{"draws": seed} for seed in SEEDS])
    assert got == [in_page.draws(np.random.default_rng(seed)) for seed in SEEDS]
