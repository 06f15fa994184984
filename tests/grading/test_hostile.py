"""Whatever a file does, there is one clear verdict, in time, and no process is left."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jaxpar.grading.judge import judge
from jaxpar.grading.processes import Cancelled, Limits, Pool
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Verdict

WHERE = "jaxpar.contracts.collectives.mean_over_devices"
HEAD = "import jax\nimport jax.numpy as jnp\nimport numpy as np\nfrom jax import lax\n"
BODY = HEAD + "def mean_over_devices(x, *, axis):\n"


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool() as pool:
        yield pool


def verdict_on(body: str, pool: Pool, where: str = WHERE) -> Verdict:
    source = body if "def " in body else BODY + textwrap.indent(body, "    ")
    return judge(where, Submission(Path("answer.py"), source.encode()), pool=pool)


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ("return (x", "error", "line 6: SyntaxError"),
        (HEAD + "def mean(x, *, axis):\n    return x", "error", "no function named"),
        (HEAD + "def mean_over_devices(x):\n    return x", "error", "axis"),
        ("raise SystemExit(0)", "error", "line 6"),
        ("import collections\ncollections._sys.exit(0)", "error", "ends Python"),
        ("jax._src.lib.xla_client.os._exit(0)", "killed", "ended early"),
        ("y = np.ones(1 << 36)\nreturn x + y[0]", "memory", "more memory"),
        (
            "return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(x.shape, x.dtype), x)",
            "error",
            "callback",
        ),
        ("import os\nreturn x", "error", "may not import os"),
        ("from jaxpar.collectives import mean_over_devices as f\nreturn f(x)", "error", "import"),
        (
            "f = __import__('jaxpar.collectives', fromlist=['mean_over_devices'])\nreturn x",
            "error",
            "import",
        ),
        (
            "import collections\ns = collections._sys\nb = s.modules['builtins']\n"
            "s.meta_path[:] = s.meta_path[1:]\n"
            "b.__import__('jaxpar.collectives.reductions')\nreturn x",
            "error",
            "may not read",
        ),
        ("import jaxpar.mesh\nopen(jaxpar.mesh.__file__)\nreturn x", "error", "may not read"),
        ("open('notes.txt', 'w')\nreturn x", "error", "may not write"),
        # The same words, whether or not it is there and whoever may read it.
        ("open('/etc/passwd')\nreturn x", "error", "An answer may not read files"),
        ("open('/no/such/file')\nreturn x", "error", "An answer may not read files"),
        ("np.load('/no/such/file')\nreturn x", "error", "An answer may not read files"),
        ("return lax.pmean(x, axis)('the mean')", "error", "as if it were a function"),
        ("input('Which axis? ')\nreturn x", "error", "nobody is there"),
        ("breakpoint()\nreturn x", "error", "nobody is there"),
        ("import collections\ncollections._sys.stdin.readline()[0]", "error", "IndexError"),
        (
            "jax.config.update('jax_enable_x64', True)\n"
            "return lax.pmean(x, axis).astype(jnp.float64)",
            "fail",
            "float64",
        ),
        ("return lax.pmean(x, axis)[..., :0]", "fail", "shape"),
        ("return lax.pmean(x, axis) * 1j", "fail", "complex64"),
        ("return lax.pmean(x, axis).astype(jnp.float8_e4m3fn)", "fail", "float8_e4m3fn"),
        ("return lax.pmean(x, axis).astype(jnp.int4)", "fail", "int4"),
        ("return jax.random.key(0)", "fail", "key"),
        ("return [lax.pmean(x, axis)] * 300", "fail", "300 arrays"),
        ("return jnp.zeros((1 << 29, 1 << 9))", "fail", "a dim may have at most"),
        ("return x + jnp.asarray(np.random.rand(1 << 20))[0]", "fail", "at most 2 MiB"),
    ],
)
def test_one_clear_verdict(pool: Pool, body: str, status: str, says: str) -> None:
    verdict = verdict_on(body, pool)
    first = verdict.first_failure()
    assert first is not None
    assert verdict.status == status, verdict
    assert says in f"{first.message} {verdict.diagnosis}"
    assert verdict.score == 0


def test_what_only_a_script_would_run_is_not_held_against_an_answer(pool: Pool) -> None:
    script = "\n\nif __name__ == '__main__':\n    import os\n    os.system('true')\n"
    verdict = verdict_on(f"{BODY}    return lax.pmean(x, axis)\n{script}", pool)
    assert verdict.status == "pass", verdict


def test_prints_are_kept_and_harmless(pool: Pool) -> None:
    verdict = verdict_on(
        "print('seen', x.shape)\njax.debug.print('axis {a}', a=axis)\nprint('y' * 10_000)\n"
        "return lax.pmean(x, axis)",
        pool,
    )
    assert verdict.passed
    assert verdict.printed.startswith("seen (1200,)\naxis tp\nyyy")
    assert len(verdict.printed) == 4096


def test_what_is_printed_cannot_steer_the_terminal(pool: Pool) -> None:
    verdict = verdict_on(
        "print('\\x1b[2J\\x07ok')\nraise ValueError('\\x1b[31m' + 'y' * 10**7)", pool
    )
    assert verdict.printed == "?[2J?ok\n" * 2
    assert verdict.diagnosis.startswith("line 7: ValueError: ?[31myyy")
    assert len(verdict.diagnosis) < 400


def test_modules_of_an_answer_work_as_usual(pool: Pool) -> None:
    source = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from jax import lax\n\n@dataclass\nclass Ring:\n    axis: str\n\n"
        "def mean_over_devices(x, *, axis):\n    return lax.pmean(x, Ring(axis).axis)\n"
    )
    assert verdict_on(source, pool).passed


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise SystemExit", "ends Python"),
        ("seen.append(rank)\n    return len(seen)", "depends on earlier calls"),
    ],
)
def test_a_value_is_called_twice_in_fresh_processes(pool: Pool, body: str, says: str) -> None:
    where = "jaxpar.contracts.devices_and_meshes.device_coordinates"
    source = f"seen = []\ndef device_coordinates(rank, sizes):\n    {body}"
    verdict = verdict_on(source, pool, where)
    assert verdict.status == "fail"
    assert says in f"{verdict.properties[0].message} {verdict.diagnosis}"


def test_an_endless_loop_ends() -> None:
    with Pool(Limits(wall_seconds=4)) as short:
        verdict = verdict_on("while True: pass", short)
    assert (verdict.status, verdict.score) == ("timeout", 0)
    assert "4 seconds" in verdict.diagnosis


def test_devices_that_disagree_are_told_so() -> None:
    with Pool(Limits(wall_seconds=6)) as short:
        verdict = verdict_on(
            "pairs = [(i, (i + 1) % lax.axis_size(axis)) for i in range(lax.axis_size(axis))]\n"
            "y = lax.cond(lax.axis_index(axis) == 0,\n"
            "    lambda a: lax.ppermute(a, axis, pairs), lambda a: a, x)\n"
            "return lax.pmean(y, axis)",
            short,
        )
    assert verdict.status == "timeout"
    assert verdict.diagnosis.startswith("Devices disagree about a collective: permute (line 8)")


def test_a_seed_repeats_the_run(pool: Pool) -> None:
    answer = Submission(Path("answer.py"), (BODY + "    return lax.psum(x, axis)").encode())
    first = judge(WHERE, answer, pool=pool, seed=11)
    again = judge(WHERE, answer, pool=pool, seed=11)
    other = judge(WHERE, answer, pool=pool)
    assert first.properties == again.properties
    assert first.seed == 11
    assert other.properties[0].got != first.properties[0].got


def test_cancel_ends_the_children(pool: Pool) -> None:
    threading.Timer(1.0, pool.cancel).start()
    started = time.monotonic()
    with pytest.raises(Cancelled):
        verdict_on("while True: pass", pool)
    assert time.monotonic() - started < Limits().wall_seconds
    assert verdict_on("return lax.pmean(x, axis)", pool).passed


SCRIPT = """
import sys
from pathlib import Path
from jaxpar.grading.judge import judge
from jaxpar.grading.processes import Pool
from jaxpar.grading.submission import Submission
with Pool() as pool:
    pool.warm()
    print("started", flush=True)
    judge({where!r}, Submission(Path("answer.py"), {source!r}.encode()), pool=pool)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_killing_the_judge_leaves_no_child() -> None:
    script = SCRIPT.format(where=WHERE, source=BODY + "    return 10 ** 10 ** 10 * x")
    judging = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert judging.stdout is not None
    judging.stdout.readline()
    time.sleep(3)
    children = _descendants(judging.pid)
    assert len(children) == 2
    judging.kill()
    judging.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < deadline, "a child outlived the judge"
        time.sleep(0.1)
    judging.stdout.close()


def _descendants(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found
