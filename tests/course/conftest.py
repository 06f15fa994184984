"""Fixtures: a fresh course folder for each test, and a sitting in it."""

from pathlib import Path

import pytest

from jaxpar.course.folder import Course
from jaxpar.course.session import Session
from tests.course.fakes import make_course
from tests.course.sittings import start, type_keys


@pytest.fixture
def course(tmp_path: Path) -> Course:
    return make_course(tmp_path)


@pytest.fixture
def session(course: Course) -> Session:
    """A sitting at the first exercise, after its lesson has been read."""
    session = start(course)
    type_keys(session, "\n")
    return session
