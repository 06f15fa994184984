"""How fast a class is graded, what that costs in processor time, and whether memory stays flat.

`python -m benchmarks.class_throughput [STUDENTS [EXERCISES]]` grades a class of that size, 200
students and all exercises unless said; `python -m benchmarks` takes a sample of it.
"""

import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import Row
from benchmarks.sides import synthetic_class
from jaxpar.classroom.sandbox import levels
from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.grading.judge import judge
from jaxpar.grading.processes import READER, Pool
from jaxpar.grading.submission import Submission

STUDENTS, SAMPLE = 200, 2
EACH = 4  # processor time is measured on every fourth exercise
COMPILES = """
import time
from jaxpar.grading import reader
from jaxpar.grading.lifetime import importing

with importing():
    from jaxpar.grading import program_reader
compile_program = program_reader.compile_program


def timed(lowered):
    start = time.process_time()
    try:
        return compile_program(lowered)
    finally:
        with open({path!r}, "a") as file:
            print(time.process_time() - start, file=file)


program_reader.compile_program = timed
reader.main()
"""


@dataclass
class Graded:
    """One run of the grader.

    Attributes:
        seconds: from start to end.
        files: files judged.
        memory: MB that the grader held, each second.
    """

    seconds: float = 0.0
    files: int = 0
    memory: list[float] = field(default_factory=list)

    def growth(self) -> float:
        """How many MB more the grader holds at the end than half way through."""
        late = self.memory[len(self.memory) // 2 : -1]  # the last may be of a process that ends
        return late[-1] - late[0]


def grade(students: int, exercises: list[Exercise]) -> Graded:
    """Grades a class as an instructor does, and samples the memory of the grader."""
    found = Graded()
    with synthetic_class.folder() as place:
        synthetic_class.make(place / "class", students, exercises)
        start = time.perf_counter()
        process = synthetic_class.begin(place, "out", [row.id for row in exercises])
        while process.poll() is None:
            found.memory.append(_held(process.pid))
            time.sleep(1)
        found.seconds = time.perf_counter() - start
        assert process.returncode == 0
        found.files = len(list((place / "out").glob("journal/records/*.json")))
    return found


def _held(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    match = re.search(r"VmRSS:\s+(\d+)", status)
    return int(match.group(1)) / 1024 if match else 0.0


def cpu_seconds(row: Exercise) -> tuple[float, float]:
    """Processor time of a second judgement: all except compiling, and compiling."""
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "compiles"

        def start(module: str) -> subprocess.Popen[bytes]:
            run = ["-m", module]
            if module == READER:
                run = ["-c", COMPILES.format(path=str(times))]
            pipe = subprocess.PIPE
            return subprocess.Popen(
                [sys.executable, "-P", *run], stdin=pipe, stdout=pipe, stderr=pipe, cwd="/",
                env=levels.environment(), start_new_session=True,
            )  # fmt: skip

        submission = Submission(Path(f"{row.id}.py"), synthetic_class.right(row)[0].encode())
        for _ in range(2):  # the oracle is compiled once for a class
            times.write_text("")
            begun = _cpu()
            with Pool(start=start) as pool:
                verdict = judge(row.where, submission, pool=pool, seed=1, hidden_seed=1)
            total = _cpu() - begun
            assert verdict.status == "pass", verdict
        compiling = sum(map(float, times.read_text().split()))
    return total - compiling, compiling


def _cpu() -> float:
    usages = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def table(graded: Graded, students: int, costs: list[tuple[float, float]]) -> list[Row]:
    """The measurements as rows."""
    each = graded.seconds / graded.files
    hours = each * STUDENTS * len(EXERCISES) / 3600
    beside, compiling = zip(*costs, strict=True)
    return [
        Row(
            f"grading a class, {students} students, {graded.files} files",
            "reported",
            f"{3600 / each:.0f} files an hour; {STUDENTS} students x {len(EXERCISES)} exercises "
            f"in {hours:.1f} h at most",
        ),
        Row(
            f"processor time of a judgement beside compiling, mean of {len(costs)} exercises",
            "1.5 s",
            f"{statistics.mean(beside):.2f} s (most {max(beside):.2f} s; compiling "
            f"{statistics.mean(compiling):.2f} s)",
        ),
        Row(
            "memory of the grader, end against half-way",
            "flat",
            f"{graded.growth():+.0f} MB of {graded.memory[-2]:.0f} MB",
        ),
    ]


def rows(students: int = SAMPLE, exercises: int = len(EXERCISES)) -> list[Row]:
    chosen = list(EXERCISES)[:: max(1, len(EXERCISES) // exercises)][:exercises]
    return table(grade(students, chosen), students, [cpu_seconds(row) for row in chosen[::EACH]])


if __name__ == "__main__":
    for row in rows(*map(int, sys.argv[1:] or [str(STUDENTS)])):
        print(row.what, row.target, row.measured, sep=" | ")
