"""The figures of makers, each with its source, and a cluster of one's own."""

import tomllib
from importlib.resources import files
from itertools import combinations
from math import prod

import pytest

from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.hardware_file import hardware_text

TABLES = tomllib.loads(files("jaxpar.cost").joinpath("hardware.toml").read_text(encoding="utf-8"))

OWN = """
devices_per_node = 4
links_per_node = 2
host_bytes = 64e9
device = "rtx3090"
inside = { bytes_per_second = 50e9, latency_seconds = 2e-6 }
between = "ethernet-25g"
host = "pcie4"
"""

OWN_DEVICE = """
[device]
label = "Card"
efficiency = "ada"
memory_bytes = 16e9
memory_bytes_per_second = 500e9
peak_flops = { bf16 = 100e12 }
"""


def own(tmp_path, text):
    path = tmp_path / "lab.toml"
    path.write_text(text)
    return find_cluster(str(path))


@pytest.mark.parametrize(
    ("name", "peak", "memory", "rate", "inside", "between"),
    [  # rates of links in one direction
        ("v100", 125e12, 32e9, 900e9, 150e9, 6.25e9),
        ("a100-40gb", 312e12, 40e9, 1555e9, 300e9, 25e9),
        ("a100-80gb", 312e12, 80e9, 2039e9, 300e9, 25e9),
        ("h100", 989e12, 80e9, 3350e9, 450e9, 50e9),
        ("h200", 989e12, 141e9, 4800e9, 450e9, 50e9),
        ("b200", 2250e12, 180e9, 8000e9, 900e9, 50e9),
        ("gb200", 2500e12, 186e9, 8000e9, 900e9, 50e9),
        ("rtx4090", 165.2e12, 24e9, 1008e9, 31.5e9, 1.25e9),
        ("rtx4090-2x", 165.2e12, 24e9, 1008e9, 31.5e9, 0.625e9),
        ("tpu-v4", 275e12, 32 * 2**30, 1200e9, 45e9, 6.25e9),
        ("tpu-v5e", 197e12, 16e9, 819e9, 50e9, 3.125e9),
        ("tpu-v5p", 459e12, 95e9, 2765e9, 100e9, 6.25e9),
        ("tpu-v6e", 918e12, 32e9, 1638e9, 100e9, 12.5e9),
        ("tpu-v7x", 2307e12, 192 * 2**30, 7380e9, 100e9, 12.5e9),
        ("jean-zay", 312e12, 80e9, 2039e9, 300e9, 6.25e9),
    ],
)
def test_published_figures(name, peak, memory, rate, inside, between):
    cluster = find_cluster(name)
    peaks = cluster.device.peak_flops
    assert peaks.get("bf16", peaks.get("fp16")) == peak
    assert cluster.device.memory_bytes == memory
    assert cluster.device.memory_bytes_per_second == rate
    assert cluster.inside.bytes_per_second == inside
    assert cluster.between.bytes_per_second == between


@pytest.mark.parametrize(
    ("name", "both_ways"), [("v5e", 400e9), ("v5p", 1200e9), ("v6e", 800e9), ("v7x", 1200e9)]
)
def test_links_of_a_torus_add_up_to_what_is_printed_for_a_chip(name, both_ways):
    cluster = find_cluster(f"tpu-{name}")
    assert 2 * 2 * len(cluster.torus) * cluster.inside.bytes_per_second == both_ways
    assert prod(cluster.torus) == cluster.devices_per_node


@pytest.mark.parametrize(
    ("name", "cores", "operations", "hertz"),
    [  # tensor cores, multiplications and additions of one in a cycle
        ("v100", 640, 128, 1.53e9),
        ("a100-80gb", 432, 512, 1.41e9),
        ("h100", 528, 1024, 1.83e9),
        ("rtx3090", 328, 128, 1.695e9),
        ("rtx4090", 512, 128, 2.52e9),
    ],
)
def test_peaks_are_what_the_cores_do_without_sparsity(name, cores, operations, hertz):
    peaks = find_cluster(name).device.peak_flops
    assert peaks["fp16"] == pytest.approx(cores * operations * hertz, rel=3e-3)


@pytest.mark.parametrize("name", TABLES["accelerators"])
def test_no_peak_is_the_sparse_one(name):
    peaks = TABLES["accelerators"][name]["peak_flops"]
    # Makers print twice as much with sparsity: if one of two were sparse, their ratio were 1 or 4.
    for narrow, wide in (("fp8", "bf16"), ("bf16", "tf32"), ("int8", "fp16")):
        if narrow in peaks and wide in peaks:
            consumer = narrow == "int8" and name.startswith("rtx")  # half speed with sums in fp32
            assert peaks[narrow] / peaks[wide] == pytest.approx(4 if consumer else 2, rel=5e-3)
    assert peaks.get("fp16", 0) in (0, peaks.get("bf16", peaks.get("fp16")))


def test_every_figure_has_a_source():
    for name, table in TABLES["accelerators"].items():
        figures = {key for key in table if key.startswith(("peak_", "memory_"))}
        assert table["sources"].keys() == figures, name
        assert all(len(source) > 4 for source in table["sources"].values()), name
    for section in ("links", "clusters"):
        for name, table in TABLES[section].items():
            assert len(table["source"]) > 10, name


def test_names_lead_to_one_cluster_each():
    names = [(*its.get("aliases", ()), name) for name, its in TABLES["clusters"].items()]
    assert not any(set(one) & set(other) for one, other in combinations(names, 2))
    for known in names:
        assert {find_cluster(name).name for name in known} == {known[-1]}
    assert {find_cluster(name).device.name for name in TABLES["accelerators"]} == {
        table["label"] for table in TABLES["accelerators"].values()
    }


@pytest.mark.parametrize(
    ("typed", "name"),
    [("H100", "h100"), ("RTX 4090", "rtx4090"), ("a100", "a100-80gb"), ("A100 40GB", "a100-40gb"),
     ("dgx_a100", "a100-80gb"), ("TPU v5e", "tpu-v5e"), ("Selene", "a100-80gb")],
)  # fmt: skip
def test_as_people_type_it(typed, name):
    assert find_cluster(typed).name == name


def test_an_unknown_name():
    with pytest.raises(ValueError, match=r"'h10' is unknown; nearest: h100, .*one of a100-40gb"):
        find_cluster("h10")
    with pytest.raises(ValueError, match=r"'abacus' is unknown; use one of .* or a TOML file"):
        find_cluster("abacus")
    with pytest.raises(ValueError, match=r"none\.toml: cannot be read"):
        find_cluster("none.toml")


def test_a_cluster_of_ones_own(tmp_path):
    cluster = own(tmp_path, OWN)
    assert cluster.name == "lab"
    assert cluster.device == find_cluster("rtx3090").device
    assert cluster.inside.bytes_per_second == 50e9
    assert cluster.between.bytes_per_second == 2 * 3.125e9 / 4
    assert cluster.efficiency == find_cluster("rtx3090").efficiency


@pytest.mark.parametrize("name", ["h100", "a100", "gb200", "tpu-v5p"])
def test_a_file_of_a_cluster_says_what_its_devices_reach(tmp_path, name):
    cluster, path = find_cluster(name), tmp_path / "cluster.toml"
    path.write_text(hardware_text(cluster, {}))
    reached = find_cluster(str(path)).efficiency
    assert vars(reached) == vars(cluster.efficiency) | {"kind": "its own"}


def test_a_device_of_ones_own(tmp_path):
    text = OWN.replace('device = "rtx3090"', "") + OWN_DEVICE
    cluster = own(tmp_path, text)
    assert cluster.device.name == "Card"
    assert cluster.device.peak_flops == {"bf16": 100e12}
    assert cluster.efficiency == find_cluster("rtx4090").efficiency
    assert cluster.efficiency.attention is None  # as fast as products


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("host_bytes = 64e9", "", r"lab\.toml: host_bytes is missing; give bytes, as 64e9"),
        ("= 4\n", "= 0\n", r"lab\.toml: devices_per_node = 0; it must be a whole number"),
        ("= 4\n", "= 4.5\n", r"devices_per_node = 4\.5; it must be a whole number"),
        ("= 4\n", "= true\n", r"devices_per_node = True; it must be"),
        ("links_per_node", "link_per_node", r"lab\.toml: links_per_node is missing"),
        ("rtx3090", "rtx309", r"device = 'rtx309' is unknown; nearest: rtx3090"),
        ("50e9", "nan", r"lab\.toml, inside: bytes_per_second = nan; it must be of one direction"),
        ("50e9", "-1", r"inside: bytes_per_second = -1; it must be"),
        ("2e-6", "2", r"inside: latency_seconds = 2; it must be seconds, as 5e-6"),
        ("= 4\n", "= 4\ntorus = [3, 2]\n", r"torus = \[3, 2\]; it must be .* = 4"),
        ("= 4\n", "= 4\ntorus = [4, 1]\n", r"torus = \[4, 1\]; it must be sizes above 1"),
        ("host_bytes", "hosts = 1\nhost_bytes", r"there is no key 'hosts'; nearest: host"),
        ("64e9", "64e9 GB", r"lab\.toml: cannot be read: .*line 4"),
    ],
)
def test_a_wrong_file(tmp_path, old, new, message):
    assert old in OWN
    with pytest.raises(ValueError, match=message):
        own(tmp_path, OWN.replace(old, new))


@pytest.mark.parametrize("value", ["[" * 20_000, "9" * 5000], ids=["deep", "long"])
def test_a_file_that_the_parser_gives_up_on(tmp_path, value):
    with pytest.raises(ValueError, match=r"lab\.toml: cannot be read"):
        own(tmp_path, OWN.replace("64e9", value))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("16e9", "16", r"lab\.toml, device: memory_bytes = 16; it must be bytes, as 24e9"),
        ("100e12", "100", r"device, peak_flops: bf16 = 100; .* dense, as 312e12"),
        ("bf16", "fp32", r"device, peak_flops: bf16 or fp16 is missing"),
        ("bf16", "bf61", r"peak_flops: there is no key 'bf61'; nearest: bf16"),
        ("label", "sparse = true\nlabel", r"lab\.toml, device: there is no key 'sparse'"),
        ('"ada"', '"adda"', r"device: efficiency = 'adda' is unknown; nearest: ada"),
    ],
)
def test_a_wrong_device(tmp_path, old, new, message):
    text = OWN.replace('device = "rtx3090"', "") + OWN_DEVICE
    with pytest.raises(ValueError, match=message):
        own(tmp_path, text.replace(old, new))
