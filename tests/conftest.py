"""Every test runs on simulated CPU devices and refuses numpy's silent rank promotion.

Unless `--all` is given, only a part of the tests runs on what has not changed since it was last
proved; `tests/proofs.py` says how that is known.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import hypothesis
import jax
import pytest

from jaxpar.mesh import simulate_devices
from tests import proofs

simulate_devices(16)
jax.devices()  # starts JAX, so that no test starts it with fewer
jax.config.update("jax_numpy_rank_promotion", "raise")
hypothesis.settings.register_profile("suite", deadline=None)  # no test depends on time
hypothesis.settings.load_profile("suite")

SUBJECT = "subject"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every test, proved or not")
    parser.addoption("--record", action="store_true", help="record what this run proves")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "subject(name): what a test proves, if not its own file")
    config.addinivalue_line("markers", "full: left out while its subject is as proved")
    config.addinivalue_line("markers", "always: never left out")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Takes the hashes before anything runs, since what is edited meanwhile is not proved."""
    config = session.config
    whole_files = not any("::" in argument for argument in config.args)
    if config.option.record and whole_files and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reports(proofs.Recorder()))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells each process of pytest-xdist what is proved, so that only one has to find out."""
    subjects = [] if node.config.option.all else proofs.subjects()
    node.workerinput["proved"] = [subject for subject in subjects if proofs.is_proved(subject)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Groups the tests by their subjects, and leaves out those that are not needed."""
    subjects = Counter(map(_subject, items))
    places = {subject: place for place, subject in enumerate(subjects)}
    items.sort(key=lambda item: places[_subject(item)])
    for item in items:
        subject = _subject(item)
        item.user_properties.append((SUBJECT, (subject, subjects[subject])))
    if config.option.all:
        return
    functions: set[str] = set()
    kept, left_out = [], []
    for item in items:
        function = item.nodeid.partition("[")[0]
        first = function not in functions or bool(item.get_closest_marker("always"))
        needed = first and not item.get_closest_marker("full")
        functions.add(function)
        (kept if needed or not _is_proved(item) else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


class Reports:
    """Tells a recorder how each test has ended, also those that other processes ran."""

    def __init__(self, recorder: proofs.Recorder) -> None:
        self._recorder = recorder

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == SUBJECT and (report.failed or report.when == "teardown"):
                self._recorder.ended(*value, passed=not report.failed)


@pytest.fixture(autouse=True, scope="module")
def _forget_programs() -> Iterator[None]:
    """Frees what JAX has traced and compiled; it would keep hundreds of megabytes to the end."""
    yield
    jax.clear_caches()


def _subject(item: pytest.Item) -> str:
    """What a test proves: the subject that its mark names, or its own file."""
    mark = item.get_closest_marker("subject")
    return mark.args[0] if mark else item.path.relative_to(proofs.ROOT).as_posix()


def _is_proved(item: pytest.Item) -> bool:
    subject = _subject(item)
    if hasattr(item.config, "workerinput"):
        return subject in item.config.workerinput["proved"]
    return proofs.is_proved(subject)
