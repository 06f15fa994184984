"""`jaxpar memory`: what it answers, prints and refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from jaxpar.cli import memory
from jaxpar.cost.estimators import ESTIMATORS

LLAMA = ("memory", "--model", "llama3-8b")
COLD = ("--parameters", "1e9", "--zero", "3", "--devices", "8", "--estimator", "deepspeed")
GIB = 2**30


def answer(run: Any, *arguments: str) -> dict[str, Any]:
    ended = run("memory", *arguments, "--json")
    assert ended.err == ""
    data = ended.json
    assert data["memory_bytes"] == sum(data["terms"].values())
    return data


def test_help_names_every_estimator() -> None:
    assert memory.ESTIMATORS.split(", ") == list(ESTIMATORS)


def test_states_of_a_number_of_parameters(run: Any) -> None:
    data = answer(run, "--parameters", "128e9", "--devices", "1024", "--zero", "2")
    assert data == {
        "memory_bytes": 257_750_000_000,
        "terms": {
            "parameters": 256_000_000_000,
            "gradients": 250_000_000,
            "optimizer": 1_500_000_000,
            "activations": 0,
        },
        "parameters": 128_000_000_000,
        "devices": 1024,
        "mesh": {"dp": 1024},
    }


def test_other_optimizers_have_smaller_states(run: Any) -> None:
    def held(*options: str) -> int:
        return answer(run, "--parameters", "64e8", *options)["terms"]["optimizer"]

    assert held() == held("--optimizer", "adamw") == 12 * 64e8
    assert held("--optimizer", "adam8bit") == (4 + 2 + 8 / 256) * 64e8
    assert held("--optimizer", "sgd") == 4 * 64e8
    gradients = [
        answer(run, "--parameters", "64e8", *given)["terms"]["gradients"]
        for given in ([], ["--gradient-bytes", "4"])
    ]
    assert gradients == [2 * 64e8, 4 * 64e8]
    assert "gradients in 2 bytes" in run("memory", *LLAMA[1:]).out
    assert (
        "--gradient-bytes with --inference says nothing"
        in run("memory", *LLAMA[1:], "--inference", "--gradient-bytes", "4").err
    )
    assert "SGD in mixed precision" in run("memory", *LLAMA[1:], "--optimizer", "sgd").out


def test_adapters_alone_have_gradients_and_moments(run: Any) -> None:
    llama = ["memory", "--model", "llama3-8b", "--adapter", "lora:16", "--json"]
    whole, coded = (run(*llama, *more).json["terms"] for more in ([], ["--base-bits", "4"]))
    assert whole["gradients"] == coded["gradients"] == 2 * 41_943_040
    assert whole["optimizer"] == 12 * 41_943_040
    assert coded["parameters"] < 0.4 * whole["parameters"]
    assert coded["decoded"] == 2 * 218_112_000
    ended = run("memory", "--model", "llama3-8b", "--adapter", "lora:16", "--base-bits", "4")
    assert "8,030,261,248 parameters of 4 bits, with LoRA of rank 16, trained with" in ended.out


def test_korthikanti_s_22b(run: Any) -> None:
    """Figure 1 in GiB: states, and activations with tensor parallelism, then with the rest."""
    options = ["--model", "megatron-22b", "--mesh", "tp=8", "--microbatch", "4"]
    data = answer(run, *options)
    assert data["terms"]["activations"] == 59.25 * GIB
    lighter = answer(run, *options, "--sequence-parallel", "--remat", "selective")
    assert lighter["terms"]["activations"] == 9.5625 * GIB


def test_what_the_mesh_leaves_is_dp_or_fsdp(run: Any) -> None:
    for zero, axis in (("1", "dp"), ("3", "fsdp")):
        data = answer(run, *LLAMA[1:], "--mesh", "tp=2", "--devices", "16", "--zero", zero)
        assert (data["devices"], data["mesh"]) == (16, {axis: 8, "tp": 2})
    assert answer(run, *LLAMA[1:], "--mesh", "fsdp=4")["mesh"] == {"fsdp": 4}
    data = answer(run, *LLAMA[1:], "--mesh", "dp=2", "--devices", "8", "--zero", "3")
    assert data["mesh"] == {"dp": 2, "fsdp": 4}


def test_models_by_sizes_and_by_config(run: Any, tmp_path: Path) -> None:
    sizes = ["--layers", "32", "--hidden", "4096", "--heads", "32", "--kv-heads", "8"]
    sizes += ["--ffn", "14336", "--vocab", "128256", "--gated"]
    by_name, by_sizes = answer(run, *LLAMA[1:]), answer(run, *sizes)
    config = {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14_336,
        "vocab_size": 128_256, "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    by_config = answer(run, "--config", str(tmp_path))
    assert by_name["parameters"] == 8_030_261_248
    assert by_name == by_sizes == by_config


def test_inference(run: Any) -> None:
    options = ["--inference", "--sequence", "8192", "--batch", "4", "--mesh", "tp=4"]
    terms = answer(run, *LLAMA[1:], *options)["terms"]
    assert list(terms) == ["parameters", "kv_cache", "activations", "logits"]
    assert terms["kv_cache"] == GIB
    fewer = ["--weight-bits", "4", "--group", "32", "--cache-bits", "8"]
    lighter = answer(run, *LLAMA[1:], *options, *fewer)["terms"]
    assert lighter["kv_cache"] == GIB / 2
    assert lighter["parameters"] + lighter["scales"] == terms["parameters"] * 4.5 / 16
    thumb = answer(run, "--parameters", "7e9", "--inference")
    assert thumb["memory_bytes"] == 16_800_000_000
    assert "1.2 times the weights, 19.3 GB, over" in run(*LLAMA, "--inference").out


def test_offload_is_counted_in_the_host(run: Any) -> None:
    data = answer(run, *LLAMA[1:], "--offload", "optimizer")
    assert data["terms"]["optimizer"] == 0
    assert data["host_terms"] == {"optimizer": 12 * 8_030_261_248}
    assert data["host_bytes"] == 12 * 8_030_261_248
    printed = run(*LLAMA, "--offload", "optimizer").out
    assert "In the memory of its host, for each device: 96.4 GB" in printed


def test_whether_it_fits_and_what_would(run: Any) -> None:
    fitting = answer(run, *LLAMA[1:], "--devices", "8", "--zero", "3", "--hardware", "h100")
    assert (fitting["hardware"], fitting["fits"]) == ("h100", True)
    assert fitting["device_bytes"] == 80_000_000_000
    assert "nearest" not in fitting

    large = [*LLAMA, "--devices", "8", "--hardware", "h100"]
    ended = run(*large)
    assert ended.code == 1
    assert "h100 has 80.0 GB on a device: it does not fit, 59.7 GB are missing" in ended.out
    ended = run(*large, "--json")
    assert (ended.code, ended.json["fits"]) == (1, False)
    nearest = ended.json["nearest"].split()
    again = run(*large, *nearest, "--json")
    assert (again.code, again.json["fits"]) == (0, True)


def test_a_device_that_is_nearly_full(run: Any) -> None:
    options = ["--parameters", "4.9e9", "--hardware", "h100"]
    assert "Tight: the runtime, buffers" in run("memory", *options).out
    options = ["--parameters", "4e9", "--hardware", "h100"]
    assert "Tight" not in run("memory", *options).out


def test_other_tools(run: Any) -> None:
    cold = ["--parameters", "2851e6", "--largest-layer", "32e6", "--devices", "8", "--zero", "3"]
    for offload, gpu, cpu in (("all", 0.12, 71.69), ("optimizer", 0.78, 63.72)):
        data = answer(run, *cold, "--offload", offload, "--estimator", "deepspeed")
        assert round(data["memory_bytes"] / GIB, 2) == gpu
        assert round(data["host_bytes"] / GIB, 2) == cpu
    stage_2 = ["--parameters", "2851e6", "--devices", "8", "--zero", "2", "--estimator"]
    printed = [run("memory", *stage_2, tool).out for tool in ("deepspeed", "deepspeed-docs")]
    assert "(a GB is 1e9 bytes), 11.28 GiB" in printed[0]
    assert "(a GB is 1e9 bytes), 15.93 GiB" in printed[1]
    xl = ["--model", "gpt2-xl", "--sequence", "1024", "--estimator", "megatron"]
    assert round(answer(run, *xl)["memory_bytes"] / 2**20, 2) == 29_485.06
    loaded = [*LLAMA[1:], "--inference", "--weight-bits", "4", "--estimator", "accelerate"]
    assert answer(run, *loaded)["memory_bytes"] == (8_030_261_248 - 128_256 * 4096) / 2


def test_every_term_has_its_formula(run: Any) -> None:
    lines = run(*LLAMA, "--devices", "8", "--zero", "1").out.splitlines()
    assert lines[0] == (
        "llama3-8b, 8,030,261,248 parameters, trained with Adam in mixed precision, gradients in "
        "2 bytes"
    )
    assert lines[1].startswith("8 devices: mesh dp=8, ZeRO 1, remat none, microbatch 1; 2,048 ")
    assert lines[3] == "Memory of a device: 55.4 GB (a GB is 1e9 bytes), 51.62 GiB"
    (at,) = (i for i, line in enumerate(lines) if line.startswith("  optimizer  "))
    assert [" ".join(line.split()) for line in lines[at : at + 3]] == [
        "optimizer 12.0 GB 21.7%",
        "each_bytes * (layers * layer + outside) / shards",
        "= 12 * (32 * 218,112,000 + 1,050,677,248) / 8",
    ]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "no model; give one of --model, --config, --parameters, or --layers with"),
        (["--model", "llama3-8c"], "nearest: llama3-8b"),
        (["--model", "llama3-8b", "--parameters", "3"], "--model and --parameters; give one of"),
        (["--layers", "4"], "--layers without --hidden; give it, too"),
        (["--layers", "4", "--hidden", "100", "--heads", "3"], "nearest that does is 2"),
        (["--parameters", "nan"], "as in 128e9"),
        (["--config", "nowhere"], "nowhere"),
        ([*LLAMA[1:], "--mesh", "tp=3"], "tp=3: it must divide heads, 32; use tp=2"),
        ([*LLAMA[1:], "--mesh", "tp=8", "--devices", "12"], "use --devices 16"),
        ([*LLAMA[1:], "--mesh", "dp=8", "--devices", "16"], "use --devices 8"),
        ([*LLAMA[1:], "--mesh", "node=2"], "use one of pp, dp, fsdp, ep, cp, tp"),
        ([*LLAMA[1:], "--mesh", "tp"], "write axis=size"),
        ([*LLAMA[1:], "--zero", "4"], "use one of 0, 1, 2, 3"),
        ([*LLAMA[1:], "--remat", "all"], "use one of none, selective, alternate, full"),
        ([*LLAMA[1:], "--offload", "disk"], "use one of none, optimizer, all"),
        ([*LLAMA[1:], "--mesh", "fsdp=2", "--zero", "1"], "use --zero 3"),
        ([*LLAMA[1:], "--mesh", "dp=4", "--batch", "6"], "use a batch of 8"),
        ([*LLAMA[1:], "--inference", "--zero", "1"], "--zero with --inference"),
        ([*LLAMA[1:], "--cache-bits", "8"], "--cache-bits with --training"),
        ([*LLAMA[1:], "--weight-bits", "8"], "--weight-bits with --training"),
        ([*LLAMA[1:], "--largest-layer", "8"], "--largest-layer with no --estimator deepspeed"),
        ([*LLAMA[1:], "--hardware", "h1000"], "nearest: h100"),
        ([*LLAMA[1:], "--estimator", "fairscale"], "use one of deepspeed"),
        (["--model", "gpt2", "--sequence", "2048"], "use 1,024 at most"),
        (["--parameters", "1e308"], "1e+18 at most"),
        ([*LLAMA[1:], "--mesh", "pp=2000000000"], "more than 1,048,576 devices"),
        ([*LLAMA[1:], "--mesh", "pp=1000000"], "use pp=32"),
        ([*LLAMA[1:], "--devices", "99999999999999999999"], "use 1,048,576 at most"),
        ([*LLAMA[1:], "--inference", "--batch", "99999999999999999999"], "use 16,777,216 at most"),
        ([*LLAMA[1:], "--optimizer", "lion"], "use one of adamw, adam8bit, sgd"),
        ([*LLAMA[1:], "--inference", "--optimizer", "sgd"], "--inference says nothing"),
        ([*COLD, "--optimizer", "sgd"], "which counts Adam on all"),
        ([*COLD, "--largest-layer", "nan"], "give how many parameters there are"),
        ([*COLD, "--largest-layer", "-3"], "give how many parameters there are"),
    ],
)
def test_bad_use_is_one_line_and_ends_with_2(run: Any, arguments: list[str], line: str) -> None:
    ended = run("memory", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert line in ended.err
    assert ended.err.count("\n") == 1
    ended = run("memory", *arguments, "--json")
    assert (ended.code, ended.err) == (2, "")
    assert line in ended.json["error"]


@pytest.mark.parametrize(
    ("arguments", "rest"),
    [
        (["--parameters", "1e18"], "not found up to 16,384 devices"),
        (["--parameters", "1e12", "--inference"], "none on one device; give a model, which"),
        ([*LLAMA[1:], "--inference", "--sequence", "900000000"], "devices; try a shorter --seq"),
        ([*LLAMA[1:], "--sequence", "900000000"], "devices; try a shorter --sequence, or cp"),
    ],
)
def test_what_is_left_to_try_where_nothing_fits(run: Any, arguments: list[str], rest: str) -> None:
    last = run("memory", *arguments, "--hardware", "rtx4090").out.splitlines()[-1]
    assert last.startswith("Nearest that fits: ") and rest in last
    assert last.endswith(", or cp") == rest.endswith(", or cp")
    assert ("try" in last) == ("try" in rest)


def test_a_config_that_no_file_can_be_cannot_be_read(run: Any) -> None:
    ended = run("memory", "--config", "x" * 5000)
    assert ended.code == 2 and "cannot be read: File name too long" in ended.err
