"""A fresh course folder for each test."""

from pathlib import Path

import pytest

from jaxpar.course.folder import Course
from tests.course.fakes import make_course


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path)
