"""What Canvas, Moodle and Gradescope let an instructor download is read as it is."""

import io
import shutil
import zipfile
from pathlib import Path

import pytest

from jaxpar.classroom.downloads import METADATA, submissions_in
from jaxpar.classroom.handins import LATE, Handin, read_handin

WANTED = ["gather", "scatter"]


def handin_zip(**answers: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in answers.items():
            archive.writestr(f"exercises/02_collectives/{name}.py", data)
    return buffer.getvalue()


CANVAS = {
    "doejane_340934_208490284_scatter.py": b"jane",
    "doejane_340934_208490285_gather-1.py": b"jane again",
    "roebert_LATE_334244_394803489_handin.zip": handin_zip(scatter=b"bert"),
    "smith_jo_1_2_scatter.py": b"jo",
}
MOODLE = {
    "Jane Doe_12345_assignsubmission_file_/scatter.py": b"jane",
    "Jane Doe_12345_assignsubmission_onlinetext_/onlinetext.html": b"<p>hello</p>",
    "Zo\u00eb O'Neil_777_assignsubmission_file/lab/handin.zip": handin_zip(gather=b"zoe"),
}
MOODLE_FLAT = {
    "Jane Doe_12345_assignsubmission_file_scatter.py": b"jane",
    "Zo\u00eb O'Neil_777_assignsubmission_file_handin.zip": handin_zip(gather=b"zoe"),
}
GRADESCOPE = {
    f"assignment_5_export/{METADATA}": b"""---
submission_123456:
  :submitters:
  - :name: Jane Doe
    :sid: '17'
    :email: jane@example.edu
  - :name: Bert Roe
    :sid: '18'
    :email: bert@example.edu
  :created_at: 2024-09-01 12:34:56.123456000 Z
  :score: 0.0
  :results:
    tests: []
submission_123457:
  :submitters:
  - :name: Zoe
    :sid: '19'
    :email:
""",
    "assignment_5_export/submission_123456/scatter.py": b"jane and bert",
    "assignment_5_export/submission_123457/handin.zip": handin_zip(gather=b"zoe"),
}
PLAIN = {"anna/scatter.py": b"anna", "bert.zip": handin_zip(scatter=b"bert"), "notes.txt": b""}
FORMS = {
    "canvas": (CANVAS, {
        "doejane_340934": {"scatter": b"jane", "gather": b"jane again"},
        "roebert_334244": {"scatter": b"bert"},
        "smith_jo_1": {"scatter": b"jo"},
    }),
    "moodle": (MOODLE, {
        "Jane Doe_12345": {"scatter": b"jane"}, "Zo\u00eb O'Neil_777": {"gather": b"zoe"},
    }),
    "moodle_flat": (MOODLE_FLAT, {
        "Jane Doe_12345": {"scatter": b"jane"}, "Zo\u00eb O'Neil_777": {"gather": b"zoe"},
    }),
    "gradescope": (GRADESCOPE, {
        "jane@example.edu": {"scatter": b"jane and bert"},
        "bert@example.edu": {"scatter": b"jane and bert"},
        "19": {"gather": b"zoe"},
    }),
    "plain": (PLAIN, {"anna": {"scatter": b"anna"}, "bert": {"scatter": b"bert"}}),
}  # fmt: skip


def made(files: dict[str, bytes], folder: Path, *, as_zip: bool) -> Path:
    """Writes a download, as a folder or as the zip file that the platform makes."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    if not as_zip:
        return folder
    return Path(shutil.make_archive(f"{folder}", "zip", folder))


def handins(path: Path) -> dict[str, Handin]:
    with submissions_in(path) as found:
        return {work.student: read_handin(work, WANTED) for work in found.works}


@pytest.mark.parametrize("as_zip", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_each_student_has_their_files(tmp_path: Path, form: str, as_zip: bool) -> None:
    files, expected = FORMS[form]
    found = handins(made(files, tmp_path / "submissions", as_zip=as_zip))
    assert {
        student: {name: file.source for name, file in handin.files.items()}
        for student, handin in found.items()
    } == expected


def test_canvas_says_who_was_late(tmp_path: Path) -> None:
    found = handins(made(CANVAS, tmp_path / "submissions", as_zip=False))
    assert [name for name, handin in found.items() if LATE in handin.notes] == ["roebert_334244"]


def test_what_is_nobodys_is_named(tmp_path: Path) -> None:
    files = PLAIN | {"grades.csv": b"", ".DS_Store": b""}
    with submissions_in(made(files, tmp_path / "class", as_zip=False)) as found:
        assert found.unused == ["grades.csv", "notes.txt"]


@pytest.mark.parametrize(
    "text", [b"- 1", b"a: [", b"submission_1: {}", b"submission_1:\n  :submitters: 3"]
)
def test_metadata_that_gradescope_did_not_write(tmp_path: Path, text: bytes) -> None:
    folder = made({METADATA: text, "submission_1/a.py": b""}, tmp_path / "class", as_zip=False)
    with pytest.raises(ValueError, match="is not what Gradescope writes"):
        handins(folder)


def test_a_zip_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "submissions.zip").write_bytes(b"<html>")
    with pytest.raises(ValueError, match="is no zip file; download it again"):
        handins(tmp_path / "submissions.zip")


def test_a_link_at_the_top_of_a_zip_file_is_told(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        link = zipfile.ZipInfo("anna")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc")
        archive.writestr("bert/scatter.py", "x")
    found = handins(tmp_path / "class.zip")
    assert "(a link)" in found["anna"].refused["scatter"]
    assert list(found["bert"].files) == ["scatter"]
