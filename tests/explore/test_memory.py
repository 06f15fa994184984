"""The explorer of memory: the figures of `jaxpar memory` and `jaxpar plan`, and what fits."""

from typing import Any
from xml.etree import ElementTree

import pytest

from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.memory import training_memory
from jaxpar.cost.models import find_model
from jaxpar.cost.step import step_terms
from jaxpar.cost.terms import total
from jaxpar.explore import answer
from jaxpar.explore.clusters import CLUSTERS
from jaxpar.layout import Layout

FORM = {"model": "llama3-8b", "tp": 2, "pp": 2, "dp": 4, "zero": "1", "batch": 128}
LAYOUT = Layout(tp=2, pp=2, dp=4, zero=1)
MODEL = find_model("llama3-8b")


def test_terms_are_those_of_the_library() -> None:
    answered = answer("memory", FORM)
    held = training_memory(MODEL, LAYOUT, batch=128, sequence=2048)
    spent = step_terms(MODEL, LAYOUT, find_cluster("h100"), batch=128, sequence=2048)
    told = [
        (term["of"], term["name"], pytest.approx(term["value"]), term["formula"])
        for term in answered["terms"]
    ]
    assert told == [
        *(("memory", term.name, float(term.value), term.formula) for term in held),
        *(("time", term.name, float(term.value), term.formula) for term in spent),
    ]
    assert answered["memory_bytes"] == pytest.approx(float(total(held)))
    assert answered["step_seconds"] == pytest.approx(float(total(spent)))


def test_each_term_is_in_the_picture() -> None:
    answered = answer("memory", FORM)
    told = {(term["of"], term["name"]) for term in answered["terms"]}
    groups = ElementTree.fromstring(answered["svg"]).iter("{http://www.w3.org/2000/svg}g")
    drawn = {
        (group.attrib["data-of"], term.attrib["data-term"])
        for group in groups
        if "data-of" in group.attrib
        for term in group.iter()
        if "data-term" in term.attrib
    }
    assert drawn <= told
    assert {("memory", "optimizer"), ("time", "products")} <= drawn


def test_the_nearest_that_fits_is_a_form_that_fits() -> None:
    form = {"model": "llama3-70b", "dp": 8, "zero": "0"}
    answered = answer("memory", form)
    assert not answered["fits"]
    near = answer("memory", form | answered["nearest"]["form"])
    assert near["fits"]
    assert near["nearest"] is None


@pytest.mark.parametrize("hardware", CLUSTERS)
def test_every_cluster_that_is_offered_is_known(hardware: str) -> None:
    answered = answer("memory", {"hardware": hardware, "zero": "3"})
    assert answered["limit_bytes"] == find_cluster(hardware).device.memory_bytes


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"tp": 3}, "memory: tp=3: it must divide"),
        ({"fsdp": 8}, "over fsdp everything is sharded; use zero 3"),
        ({"batch": ""}, "memory: batch is empty; use a whole number"),
        ({"batch": 7}, "8 here, must divide it; use a batch of 8"),
        (
            {"model": "gpt2", "sequence": 4096},
            "memory: sequence 4,096; gpt2 has a table of 1,024 positions; use 1,024 at most",
        ),
        ({"zero": "4"}, "ZeRO is '4'; use one of 0, 1, 2, 3"),
        ({"sequence_parallel": "yes"}, "sequence parallel is 'yes'; use one of False, True"),
    ],
)
def test_bad_forms_are_explained(form: dict[str, Any], words: str) -> None:
    assert words in answer("memory", form)["error"]
