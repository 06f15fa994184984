"""The files of docs/cluster: each is parsed, and what can run on one machine runs there.

`ssh`, `srun` and `scontrol` are stand-ins on PATH, which start local processes. Where the script is
what is tested, a small program takes the place of jaxpar.
"""

import ast
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from jaxpar.train.manifest import MANIFEST, newest_whole

EXAMPLES = Path(__file__).parents[1] / "docs/cluster"
SSH, SLURM = EXAMPLES / "ssh_train.sh", EXAMPLES / "slurm_train.sh"
SIZES = ["--mesh=dp=2", "--layers=1", "--d-model=16", "--heads=2", "--sequence=16", "--batch=4"]
STAND_INS = {
    "ssh": '[[ $1 == -tt ]] && shift\nexec bash -c "$2"',
    # Two tasks, with what srun sets; the highest exit code of a task is its own.
    "srun": """shift
export SLURM_STEP_NODELIST=localhost SLURM_NTASKS=2
for task in 0 1; do SLURM_PROCID=$task SLURM_LOCALID=$task "$@" & started[task]=$!; done
code=0
for task in "${started[@]}"; do wait "$task"; ended=$?; ((ended > code)) && code=$ended; done
exit "$code\"""",
    "scontrol": 'echo "$@" >> requeued',
}
# Process 0 ends with the codes in CODES, one for each attempt, and saves in as many attempts as
# SAVES says. Process 1 waits for it to the end, unless it ends well or was asked to end.
FAKE = """
import os, sys, time
from pathlib import Path
folder = Path(sys.argv[sys.argv.index("--checkpoint") + 1])
codes = os.environ["CODES"].split()
attempts = lambda: len(list(Path().glob("attempt-*")))
if os.environ.get("JAX_PROCESS_ID", os.environ.get("SLURM_PROCID")) != "0":
    while "JAX_PROCESS_ID" in os.environ and codes[attempts() - 1] not in ("0", "143"):
        time.sleep(0.05)
    sys.exit(0)
attempt = attempts()
if attempt < int(os.environ["SAVES"]):
    saved = folder / f"step-{attempt + 1:08}"
    saved.mkdir(parents=True)
    (saved / "manifest.json").touch()
Path(f"attempt-{attempt}").write_text(" ".join(sys.argv[1:]))
sys.exit(int(codes[attempt]))
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the stand-ins on PATH, and another one with the program `fake`."""
    for name, text in STAND_INS.items():
        executable(tmp_path / "bin" / name, f"#!/usr/bin/env bash\n{text}\n")
    executable(tmp_path / "fake", f"#!{sys.executable}\n{FAKE}")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("HOSTS", "localhost localhost")
    monkeypatch.setenv("SLURM_JOB_ID", str(os.getpid()))  # it chooses the port
    monkeypatch.setenv("PORT", str(20000 + os.getpid() % 10000))
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    monkeypatch.delenv("JAX_NUM_CPU_DEVICES", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def started(script: Path, folder: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["bash", str(script), str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.full
@pytest.mark.timeout(1200)
def test_ssh_saves_on_sigterm_and_slurm_goes_on(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAXPAR", f"{Path(sys.executable).parent / 'jaxpar'}")
    folder = machine / "run"
    by_ssh = started(SSH, folder, *SIZES, "--every=5", "--steps", "100000")
    deadline = time.monotonic() + 300
    while not newest_whole(folder) and by_ssh.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    by_ssh.send_signal(signal.SIGTERM)
    out, _ = by_ssh.communicate(timeout=300)
    saved = newest_whole(folder)
    assert (by_ssh.returncode, bool(saved)) == (143, True), out
    assert saved
    by_slurm = started(SLURM, folder, *SIZES, "--every=5", "--steps", str(saved + 3), "--json")
    out, _ = by_slurm.communicate(timeout=300)
    assert by_slurm.returncode == 0, out
    assert f'"restored_step": {saved}' in out
    assert newest_whole(folder) == saved + 3
    assert not Path("requeued").exists()


@pytest.mark.parametrize(
    ("codes", "saves", "code", "attempts", "line"),
    [
        ("1 75 0", 2, 0, 3, "The run ended with 75; it goes on after "),
        ("1 75", 1, 75, 2, "The run ended with 75 and has saved nothing new; it is not started"),
        ("2", 1, 2, 1, ""),
        ("143", 1, 143, 1, ""),
    ],
)
def test_ssh_starts_again_while_there_is_progress(
    machine: Path,
    monkeypatch: pytest.MonkeyPatch,
    codes: str,
    saves: int,
    code: int,
    attempts: int,
    line: str,
) -> None:
    prepare(monkeypatch, machine, codes, saves)
    # A name with a space, which the shell of each host must not split.
    script = started(SSH, machine / "the run", "--data", "two words")
    out, _ = script.communicate(timeout=60)
    seen = [path.read_text() for path in sorted(machine.glob("attempt-*"))]
    assert (script.returncode, len(seen)) == (code, attempts), out
    assert [" --resume" in text for text in seen] == [n > 0 for n in range(attempts)]
    assert seen[0].startswith("train --data two words --watchdog 600")
    assert line in out


@pytest.mark.parametrize(
    ("code", "saves", "requeued"),
    [(143, 1, True), (75, 1, True), (75, 0, False), (2, 1, False), (0, 1, False)],
)
def test_slurm_queues_a_job_again_while_there_is_progress(
    machine: Path, monkeypatch: pytest.MonkeyPatch, code: int, saves: int, requeued: bool
) -> None:
    prepare(monkeypatch, machine, str(code), saves)
    script = started(SLURM, machine / "run")
    out, _ = script.communicate(timeout=60)
    assert script.returncode == (0 if requeued else code), out
    assert Path("requeued").exists() == requeued
    if requeued:
        assert Path("requeued").read_text() == f"requeue {os.getpid()}\n"
    assert ("has saved nothing new" in out) == (code == 75 and not requeued)


def prepare(monkeypatch: pytest.MonkeyPatch, machine: Path, codes: str, saves: int) -> None:
    monkeypatch.setenv("JAXPAR", str(machine / "fake"))
    monkeypatch.setenv("CODES", codes)
    monkeypatch.setenv("SAVES", str(saves))


def test_slurm_sends_sigterm_in_time_and_queues_what_is_preempted() -> None:
    asked = [
        line.split()[1] for line in SLURM.read_text().splitlines() if line.startswith("#SBATCH")
    ]
    assert {"--signal=TERM@120", "--requeue", "--open-mode=append", "--ntasks-per-node=1"} <= {
        *asked
    }


def test_the_jobset_is_one_and_names_its_first_pod() -> None:
    jobset = yaml.safe_load((EXAMPLES / "jobset_train.yaml").read_text())
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    spec = jobset["spec"]
    assert spec["network"]["enableDNSHostnames"] is True
    assert spec["failurePolicy"]["maxRestarts"] > 0
    assert [rule["action"] for rule in spec["failurePolicy"]["rules"]] == ["FailJobSet"]
    (group,) = spec["replicatedJobs"]
    job = group["template"]["spec"]
    assert job["completionMode"] == "Indexed"
    assert job["completions"] == job["parallelism"]
    assert job["backoffLimit"] == 0
    pod = job["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    variables: dict[str, Any] = {one["name"]: one for one in container["env"]}
    first = f"{jobset['metadata']['name']}-{group['name']}-0-0.{spec['network']['subdomain']}"
    port = container["ports"][0]["containerPort"]
    assert variables["JAX_COORDINATOR_ADDRESS"]["value"] == f"{first}:{port}"
    assert variables["JAX_NUM_PROCESSES"]["value"] == str(job["completions"])
    index = variables["JAX_PROCESS_ID"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert index == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    shell = container["command"][-1]
    assert subprocess.run(["bash", "-n", "-c", shell]).returncode == 0
    assert "exec jaxpar train" in shell and MANIFEST in shell


def test_ray_places_an_actor_for_each_process() -> None:
    tree = ast.parse((EXAMPLES / "ray_train.py").read_text())
    (actor,) = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [ast.unparse(one) for one in actor.decorator_list] == ["ray.remote"]
    called = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert {"placement_group", "PlacementGroupSchedulingStrategy", "ray.kill"} <= called
    names = {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for node in node.names
    }
    import jaxpar.train.launch as launch  # what it takes from there exists

    assert {"ADDRESS", "COUNT", "RANK", "FOLLOWS", "TERMINATED", "BAD_USE"} <= names & {
        *vars(launch)
    }


@pytest.mark.parametrize("script", [SSH, SLURM], ids=lambda path: path.name)
def test_scripts_parse(script: Path) -> None:
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
