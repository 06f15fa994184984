"""Every test runs on simulated CPU devices and refuses numpy's silent rank promotion.

Unless `--all` is given, only a part of the tests runs on what has not changed since it was last
proved; `tests/proofs.py` says how that is known.
"""

from collections.abc import Iterator
from typing import Any

import hypothesis
import jax
import pytest

from jaxpar.mesh import simulate_devices
from tests import proofs

simulate_devices(16)
jax.config.update("jax_numpy_rank_promotion", "raise")
hypothesis.settings.register_profile("suite", deadline=None)  # no test depends on time
hypothesis.settings.load_profile("suite")

HASHES = pytest.StashKey[dict[str, str]]()
SUBJECT = "proves"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run every test, proved or not")
    parser.addoption("--record", action="store_true", help="record what this run proves")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full(subject): left out while its subject is as proved")
    config.addinivalue_line("markers", "always: never left out")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Takes the hashes before anything runs, since what is edited meanwhile is not proved."""
    config = session.config
    option = config.option
    partly = option.keyword or option.markexpr or option.collectonly or option.maxfail
    whole = config.args_source == pytest.Config.ArgsSource.TESTPATHS and not partly
    if option.record and whole and not hasattr(config, "workerinput"):
        config.stash[HASHES] = {name: proofs.subject_hash(name) for name in proofs.subjects()}


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells each process of pytest-xdist what is proved, so that only one has to find out."""
    subjects = [] if node.config.option.all else proofs.subjects()
    node.workerinput["proved"] = [subject for subject in subjects if proofs.is_proved(subject)]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        item.user_properties += [(SUBJECT, subject) for subject in _subjects(item)]
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


@pytest.fixture(autouse=True, scope="module")
def _forget_programs() -> Iterator[None]:
    """Frees what JAX has traced and compiled; it would keep hundreds of megabytes to the end."""
    yield
    jax.clear_caches()


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    ended = exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if ended and HASHES in config.stash:
        stats = config.pluginmanager.get_plugin("terminalreporter").stats
        reports = [*stats.get("failed", ()), *stats.get("error", ())]
        properties = [getattr(report, "user_properties", ()) for report in reports]
        failures = [[value for name, value in of if name == SUBJECT] for of in properties]
        proofs.write(config.stash[HASHES], failures)


def _subjects(item: pytest.Item) -> list[str]:
    """The subjects that a test proves: the one that its mark names, if any, and its own file."""
    mark = item.get_closest_marker("full")
    return [*(mark.args if mark else ()), item.path.relative_to(proofs.ROOT).as_posix()]


def _is_proved(item: pytest.Item) -> bool:
    subject = _subjects(item)[0]
    if hasattr(item.config, "workerinput"):
        return subject in item.config.workerinput["proved"]
    return proofs.is_proved(subject)
