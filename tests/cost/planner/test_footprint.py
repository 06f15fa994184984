"""What a person asks for, and what would make it fit."""

from dataclasses import replace
from typing import Any

import pytest

from jaxpar.cost.hardware import Cluster, find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.planner.footprint import Inference, Training, fits, nearest_that_fits, whole_bytes
from jaxpar.layout import Layout

GIB = 2**30
LLAMA = find_model("llama3-8b")
# GB for each device, 128e9 parameters: ZeRO, table 1; it cuts digits off.
ZERO = {4: (2048, 896, 704, 512), 64: (2048, 536, 284, 32), 1024: (2048, 513.5, 257.75, 2)}


def cluster(device_gb: float, host_gb: float = 0, per_node: int = 8) -> Cluster:
    own = find_cluster("h100")
    device = replace(own.device, memory_bytes=device_gb * 1e9)
    return replace(own, device=device, host_bytes=host_gb * 1e9, devices_per_node=per_node)


@pytest.mark.parametrize("devices", ZERO)
def test_states_of_a_number_of_parameters(devices: int) -> None:
    for zero, gb in enumerate(ZERO[devices]):
        terms = Training(128e9, Layout(dp=devices, zero=zero), 1).terms()
        assert sum(whole_bytes(terms).values()) == gb * 1e9


def test_tensor_and_pipeline_parallelism_split_states_evenly() -> None:
    spread = Training(128e9, Layout(dp=4, tp=8, pp=2, zero=1), 1)
    terms = {"parameters": 16e9, "gradients": 16e9, "optimizer": 24e9}
    assert whole_bytes(spread.terms()) == terms
    offloaded = replace(spread, layout=replace(spread.layout, offload="optimizer"))
    assert list(whole_bytes(offloaded.terms())) == ["parameters", "gradients"]
    assert whole_bytes(offloaded.host_terms()) == {"optimizer": 24e9}


def test_states_of_a_model_are_those_of_its_parameters() -> None:
    terms = whole_bytes(Training(LLAMA, Layout(dp=8, zero=1), 2048).terms())
    assert terms["parameters"] == terms["gradients"] == 2 * 8_030_261_248
    assert terms["optimizer"] == 12 * 8_030_261_248 / 8


def layout_of(footprint: Training | Inference | None) -> dict[str, Any]:
    assert footprint, "nothing fits"
    usual = vars(Layout())
    return {name: it for name, it in vars(footprint.layout).items() if it != usual[name]}


def test_the_nearest_that_fits_changes_least() -> None:
    eight = Training(LLAMA, Layout(dp=8), 8192)
    held = {gb: layout_of(nearest_that_fits(eight, cluster(gb))) for gb in (220, 120, 60, 30)}
    assert held == {
        220: {"dp": 8},
        120: {"dp": 8, "zero": 1},
        60: {"dp": 8, "zero": 1, "remat": "full"},
        30: {"dp": 16, "zero": 3, "remat": "full"},
    }


def test_scores_are_computed_again_where_they_are_kept() -> None:
    """GPT-3 keeps 5as^2 bytes of scores in a layer; fused attention keeps none to recompute."""
    gpt = Training(find_model("gpt3-13b"), Layout(dp=8), 2048)
    kept, without = (
        sum(whole_bytes(replace(gpt, layout=replace(gpt.layout, remat=remat)).terms()).values())
        for remat in ("none", "selective")
    )
    assert kept - without == 40 * 5 * 40 * 2048**2
    near = nearest_that_fits(gpt, cluster(without / 1e9))
    assert layout_of(near) == {"dp": 8, "remat": "selective"}
    fused = replace(gpt, model=LLAMA)
    assert {one.layout.remat for one in fused.lighter()} == {"none", "full"}


def test_what_it_says_fits_and_nothing_is_changed_that_fits() -> None:
    for gb in (16, 24, 80):
        for name, layout in (
            ("llama3-70b", Layout(dp=8, microbatch=4)),
            ("mixtral-8x7b", Layout(ep=8)),
            ("gpt2-xl", Layout()),
            ("llama3-405b", Layout(tp=8, pp=4)),
        ):
            near = nearest_that_fits(Training(find_model(name), layout, 1024), cluster(gb, 128))
            assert near
            near.check("test")
            assert fits(near, cluster(gb, 128))
            assert nearest_that_fits(near, cluster(gb, 128)) == near


def test_offload_needs_memory_of_the_host() -> None:
    one = Training(LLAMA, Layout(remat="full"), 2048)
    assert layout_of(nearest_that_fits(one, cluster(80, 100)))["offload"] == "optimizer"
    assert layout_of(nearest_that_fits(one, cluster(80, 90))) == {
        "dp": 2, "zero": 2, "remat": "full",
    }  # fmt: skip


def test_tensor_parallelism_stays_inside_a_node() -> None:
    large = Training(find_model("llama3-405b"), Layout(), 8192)
    meshes = {n: nearest_that_fits(large, cluster(24, per_node=n)) for n in (1, 4, 8)}
    assert meshes.pop(1) is None  # a layer, gathered, and its gradient
    assert [layout_of(near)["tp"] for near in meshes.values()] == [4, 8]


def test_inference_takes_fewer_bits_then_more_devices() -> None:
    one = Inference(find_model("llama3-70b"), Layout(), 8192)
    nearest = {}
    for gb in (150, 80, 40, 24):
        near = nearest_that_fits(one, cluster(gb))
        assert isinstance(near, Inference)
        nearest[gb] = (near.layout.tp, near.weight_bits)
    assert nearest == {150: (1, 16), 80: (1, 8), 40: (1, 4), 24: (2, 4)}
    assert nearest_that_fits(Inference(70e9, Layout(), 1), cluster(1)) is None


@pytest.mark.parametrize(
    ("footprint", "message"),
    [
        (Training(LLAMA, Layout(tp=3), 2048), "tp=3: it must divide heads, 32; use tp=2"),
        (Training(LLAMA, Layout(fsdp=2), 2048), "use --zero 3, or dp"),
        (Training(LLAMA, Layout(dp=4), 2048, 6), "batch 6; .* 4 here, .* use a batch of 8"),
        (Training(LLAMA, Layout(tp=8, sequence_parallel=True), 100), "cp [*] tp = 8"),
        (Training(find_model("gpt2"), Layout(), 2048), "a table of 1,024 positions"),
        (Training(1e9, Layout(ep=2), 1), "give a model"),
        (Inference(LLAMA, Layout(cp=2), 2048), "use tp=2 in place"),
        (Inference(1e9, Layout(tp=2), 1), "give a model"),
    ],
)
def test_what_cannot_be_is_refused(footprint: Training | Inference, message: str) -> None:
    with pytest.raises(ValueError, match=f"^here: .*{message}"):
        footprint.check("here")
