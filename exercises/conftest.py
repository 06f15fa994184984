"""`pytest exercises` judges the answers in this folder: one item for each property."""

from jaxpar.course.pytest_plugin import (  # noqa: F401
    pytest_collect_file,
    pytest_terminal_summary,
    pytest_unconfigure,
    pytest_xdist_make_scheduler,
)
