"""`jaxpar serve`: what it starts, what it refuses, and how it ends."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import jax
import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, init
from jaxpar.serve import libraries, server, trained
from jaxpar.serve.engine import Request
from jaxpar.serve.server import listen
from jaxpar.serve.text import Bytes
from jaxpar.serve.trained import TrainedModel
from jaxpar.train import setup
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.recipe import make_recipe
from jaxpar.train.run import begin
from jaxpar.train.text import read_library
from tests.serve.quickly import compile_all_quickly
from tests.serve.serving import events
from tests.train.runs import compile_quickly

SETTINGS = Settings(layers=1, d_model=32, heads=2)
SMALL = "--port 0 --slots 2 --context 32 --chunk 8 --page-size 4"
MORE = "--steps 7 --queue 3 --timeout 9 --grace 4 --allow-kill"


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    jax.devices()  # a command that needs one device would simulate no more
    compile_all_quickly(monkeypatch)


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a short training run makes, without the run; returns what was asked for."""
    asked: list[Any] = []

    def train(*given: Any, **how: Any) -> TrainedModel:
        asked.append((*given, how))
        params = jax.tree.map(np.asarray, init(SETTINGS, jax.random.key(0)))
        return TrainedModel(SETTINGS, params, Bytes(), ("a note",))

    monkeypatch.setattr(trained, "from_training", train)
    return asked


@pytest.fixture
def signalled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Servers that are ended at once by a signal; returns what they served."""
    served: list[Any] = []

    def run(service: Any, listener: Any, *, grace_seconds: float) -> int:
        with listener:
            served.append((service, grace_seconds))
        return signal.SIGTERM

    monkeypatch.setattr(server, "run", run)
    return served


def test_the_options_are_what_is_served(run: Any, decoder: list, signalled: list) -> None:
    ended = run("serve", *SMALL.split(), *MORE.split())
    assert ended.code == 128 + signal.SIGTERM
    assert ended.out.startswith("http://127.0.0.1:") and ended.out.count("\n") == 1
    assert ended.err == "a note\n"
    assert decoder == [(7, None, {"data": None, "tokenizer": None, "seed": 0})]
    ((service, grace),) = signalled
    limits = service.limits
    assert (limits.slots, limits.queue, limits.seconds, limits.kill) == (2, 3, 9.0, True)
    assert (service.served.name, service.served.context, grace) == ("trained", 32, 4.0)


def test_the_cache_and_what_guesses_are_chosen(run: Any, decoder: list, signalled: list) -> None:
    run("serve", *SMALL.split(), "--cache", "int8", "--speculate", "ngram:2")
    ((service, _),) = signalled
    (engine,) = service._engines
    assert engine._model._cache[0].keys.dtype == np.int8
    engine.submit(Request("one", (1, 2, 1, 2, 1), 8))
    while engine.busy:
        engine.step()
    assert engine.stats.drafted > 0
    refused = run("serve", "--speculate", "ngram")
    assert refused.code == 2
    assert "serve: --speculate ngram: write what guesses" in refused.err
    trained_before = len(decoder)
    told = run("serve", "--cache", "int4").err
    assert told == "serve: --cache is 'int4'; use one of model, int8\n"
    assert len(decoder) == trained_before


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--mesh", "dp=2"], "serve: --mesh dp=2 has axis dp"),
        (["--mesh", "tp=2", "--replicas", "99"], "serve: 99 replicas with --mesh tp=2 need 198"),
        (["--checkpoint", "nowhere"], "serve: --checkpoint nowhere: there is no such folder"),
        (["--checkpoint", ".", "--steps", "3"], "serve: --steps with --checkpoint"),
        (["--host", "no.such.host.invalid"], "serve: --host no.such.host.invalid --port 0: "),
        (["--mesh", "tp=3"], "serve: "),
    ],
)
def test_bad_use(run: Any, decoder: list, signalled: list, options: list[str], word: str) -> None:
    ended = run("serve", *SMALL.split(), *options)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(word)
    assert ended.err.count("\n") == 1


def test_a_port_that_is_taken(run: Any, decoder: list) -> None:
    with listen("127.0.0.1", 0) as taken:
        ended = run("serve", "--port", str(taken.getsockname()[1]))
    assert ended.code == 2
    assert "use a port that is free" in ended.err
    assert not decoder


@pytest.mark.parametrize("verb", [["serve"], ["load", "http://127.0.0.1:1"]])
def test_without_the_libraries(
    run: Any, verb: list[str], decoder: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(libraries, "find_spec", lambda name: None)
    ended = run(*verb)
    assert ended.code == 2
    assert ended.err == (
        f"{verb[0]}: the library starlette is not installed; run pip install 'jaxpar[serve]'\n"
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("serve") / "run1"
    with patch.object(setup, "compile_program", compile_quickly):
        run = begin(
            SETTINGS, make_recipe("dp=1"), make_mesh("dp=1"), read_library()[:5000],
            seed=3, keeping=Keeping(folder),
        )  # fmt: skip
    for _ in run.proceed(1):
        pass
    run.close()
    return folder


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="it has no such signals")
@pytest.mark.parametrize("options", [[], ["--mesh", "tp=2", "--replicas", "2"]])
def test_a_server_from_start_to_sigterm(
    saved: Path, options: list[str], process: Callable[..., subprocess.Popen[str]]
) -> None:
    serving = process("serve", "--checkpoint", str(saved), *SMALL.split(), *options)
    assert serving.stdout
    address = serving.stdout.readline().strip()
    body = {"prompt": "def ", "max_tokens": 20, "temperature": 0, "stream": True}
    with httpx.Client(base_url=address, timeout=60) as client:
        assert client.get("/v1/models").json()["data"][0]["id"] == "run1"
        with client.stream("POST", "/v1/completions", json=body) as response:
            parts = events(response.iter_lines())
            next(parts)
            serving.send_signal(signal.SIGTERM)
            *_, end = parts
    assert end is None
    assert serving.wait(60) == 128 + signal.SIGTERM
    assert "Traceback" not in serving.communicate()[1]


@pytest.fixture
def process() -> Any:
    """Starts a command as a process of its own."""
    started = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "jaxpar.cli", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, text=True, **pipes))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.communicate()
