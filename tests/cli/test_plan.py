"""`jaxpar plan`: what it prints, draws and refuses."""

import re
from pathlib import Path
from typing import Any

import pytest

LLAMA = ["plan", "--model", "llama3-8b", "--hardware", "h100", "--devices", "64"]
LLAMA += ["--sequence", "8192", "--batch", "256"]
HOME = ["plan", "--hardware", "rtx4090", "--devices", "4"]


def test_a_table_of_plans_and_why_the_first_wins(run: Any) -> None:
    ended = run(*LLAMA, "--top", "3")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("llama3-8b, 8,030,261,248 parameters, on 64 x h100 (8 nodes of 8)")
    for words in ("MFU", "First of ", "Bound by ", "Goodput 99", "ZeRO-3, FSDP"):
        assert words in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80


def test_adapters_beside_a_base_in_4_bits_fit_where_the_model_does_not(run: Any) -> None:
    large = ["plan", "--model", "llama3-70b", "--hardware", "rtx4090", "--devices", "8"]
    large += ["--batch", "16", "--sequence", "2048", "--offload", "none"]
    assert "takes 149.0 GB of a device's 24.0 GB" in run(*large).err
    ended = run(*large, "--adapter", "lora:16", "--base-bits", "4")
    assert ended.code == 0
    assert "and 0.29% as many in adapters, which are" in ended.out
    assert run(*large, "--base-bits", "4").err.startswith("plan: --base-bits 4 without --adapter")


def test_an_optimizer_in_8_bits_takes_less(run: Any) -> None:
    given = [*LLAMA, "--mesh", "dp=64", "--zero", "1", "--remat", "full", "--json"]
    usual, small = (
        run(*given, "--optimizer", name).json["plans"][0]["terms"]["memory_bytes"]["optimizer"]
        for name in ("adamw", "adam8bit")
    )
    assert small / usual == pytest.approx((4 + 2 + 8 / 256) / 12, rel=1e-3)
    assert "use one of adamw, adam8bit, sgd" in run(*LLAMA, "--optimizer", "lion").err
    decoder = ["plan", "--model", "gpt2", "--mesh", "dp=2", "--batch", "4", "--export", "jaxpar"]
    assert " --optimizer sgd" in run(*decoder, "--optimizer", "sgd").out


def test_a_model_may_be_given_by_its_sizes(run: Any) -> None:
    sizes = ["--layers", "24", "--hidden", "2048", "--heads", "32", "--ffn", "4096", "--gated"]
    ended = run("plan", *sizes, "--vocab", "50257", "--devices", "8")
    assert ended.out.startswith("24 layers of 2048, 1,212,585,984 parameters, on 8 x h100")
    assert "--layers without --hidden; give it" in run("plan", *sizes[:2]).err
    both = run("plan", "--model", "gpt2", *sizes[:2])
    assert (both.code, both.err) == (
        2,
        "plan: --model gpt2 with --layers; give a model or its sizes\n",
    )


def test_gradients_of_4_bytes_take_more_and_send_more(run: Any) -> None:
    given = [*LLAMA, "--mesh", "dp=64", "--zero", "0", "--remat", "full", "--microbatch", "1"]
    two, four = (
        run(*given, "--adapter", "lora:8", "--gradient-bytes", size, "--json").json["plans"][0]
        for size in "24"
    )
    held = [plan["terms"]["memory_bytes"]["gradients"] for plan in (two, four)]
    assert held[1] == pytest.approx(2 * held[0], abs=1)
    assert four["sent_bytes"] == pytest.approx(2 * two["sent_bytes"], rel=1e-3)
    assert "sent in 2 bytes (--gradient-bytes)" in " ".join(run(*LLAMA).out.split())
    larger = run(*LLAMA, "--gradient-bytes", "4").out
    assert "in 4 bytes (--gradient-bytes)" in " ".join(larger.split())
    assert "--gradient-bytes is 3; use one of 2, 4" in run(*LLAMA, "--gradient-bytes", "3").err


def test_python_that_launches_each_kernel_takes_longer(run: Any) -> None:
    small = ("plan", "--model", "gpt2", "--devices", "8", "--mesh", "dp=8", "--microbatch", "1")
    compiled, eager = (run(*small, *more).out for more in ((), ("--eager",)))
    assert "(--eager), the first plan takes" in " ".join(compiled.split())
    assert "--eager" not in eager and "host " in eager
    large = run("plan", "--model", "llama3-70b", "--mesh", "dp=8,fsdp=32", "--sequence", "8192").out
    assert "--eager" not in large


def test_what_no_measured_run_has_is_marked(run: Any) -> None:
    output = run("plan", "--model", "gpt2-xl", "--hardware", "rtx4090", "--devices", "2").out
    assert (
        "Beyond what was measured (docs/predictions.md): this kind of hardware (ada)."
        in " ".join(output.split())
    )
    output = run("plan", "--devices", "16", "--mesh", "tp=16", "--hardware", "b200").out
    assert "tp across nodes" in output


def test_the_first_plan_under_each_schedule(run: Any) -> None:
    staged = ("plan", "--model", "llama3-70b", "--devices", "64", "--mesh", "pp=4,dp=2,tp=8")
    ended = run(*staged, "--batch", "64", "--schedules", "--top", "1")
    assert "pp=4,dp=2,tp=8 under each schedule:" in ended.out and "zb-h1 " in ended.out
    assert max(map(len, ended.out.splitlines())) <= 80
    rows = run(*staged, "--batch", "64", "--schedules", "--json").json["schedules"]
    assert {"gpipe", "1f1b", "zb-v"} <= {row["name"] for row in rows}
    refused = run("plan", "--devices", "8", "--mesh", "dp=8", "--schedules")
    assert refused.code == 2 and "--schedules with dp=8: it has no pipeline" in refused.err


def test_json_has_plans_best_first(run: Any) -> None:
    found = run(*LLAMA, "--json").json["plans"]
    assert len(found) == 10
    times = [plan["step_seconds"] for plan in found]
    assert times == sorted(times)
    assert 0.2 < found[0]["mfu"] < 0.8


def test_a_layout_that_is_given_is_evaluated(run: Any) -> None:
    given = ["--mesh", "tp=8,pp=8,dp=24", "--remat", "full", "--chunks", "2", "--microbatch", "1"]
    given += ["--zero", "1", "--sequence-parallel", "--sequence", "2048", "--batch", "2304"]
    ended = run("plan", "--model", "gpt3-175b", "--hardware", "a100", *given, "--json")
    (plan,) = ended.json["plans"]
    assert plan["mesh"] == {"pp": 8, "dp": 24, "tp": 8}
    assert (plan["zero"], plan["remat"], plan["chunks"]) == (1, "full", 2)
    assert (plan["microbatches"], plan["microbatch"], plan["sequence_parallel"]) == (96, 1, True)


def test_what_is_left_open_is_searched(run: Any) -> None:
    found = run(*LLAMA, "--mesh", "tp=4", "--no-sequence-parallel", "--json").json["plans"]
    assert len({str(plan["mesh"]) for plan in found}) == len(found) > 3
    assert {plan["mesh"]["tp"] for plan in found} == {4}
    assert not any(plan["sequence_parallel"] for plan in found)


def test_every_term_has_its_formula(run: Any) -> None:
    ended = run(*LLAMA, "--mesh", "dp=8,tp=8", "--zero", "1", "--explain")
    for words in ("Memory of a device: ", "Time of a step: ", "parameters  ", "bubble", "MFU"):
        assert words in ended.out
    assert "each_bytes * (layers * layer + outside)" in ended.out
    assert re.search(r"layer inputs  .* GB\n +[\d,]+ x all_gather over tp of ", ended.out)
    explained = run(*LLAMA, "--mesh", "dp=8,tp=8", "--explain", "--json").json["plans"][0]
    assert explained["terms"]["memory_bytes"]["gradients"]["formula"]


def test_two_plans_side_by_side(run: Any) -> None:
    arguments = [*LLAMA, "--mesh", "dp=8,tp=8", "--compare", "fsdp=64"]
    printed = run(*arguments).out
    assert "dp=8,tp=8" in printed and "fsdp=64" in printed and "times as fast as" in printed
    meshes = [plan["mesh"] for plan in run(*arguments, "--json").json["plans"]]
    assert meshes == [{"dp": 8, "tp": 8}, {"fsdp": 64}]


def test_two_plans_side_by_side_and_every_term_of_the_first(run: Any) -> None:
    printed = run(*LLAMA, "--mesh", "dp=8,tp=8", "--compare", "fsdp=64", "--explain").out
    side_by_side, explained = printed.split("times as fast as")
    assert "fsdp=64" in side_by_side and "Memory of a device: " in explained


def test_the_first_plan_as_a_command(run: Any) -> None:
    arguments = ["plan", "--mesh", "pp=2,dp=2,tp=2", "--batch", "16", "--export", "jaxpar"]
    ended = run(*arguments)
    note, command = ended.out.splitlines()
    assert (ended.code, note[:13]) == (0, "# The decoder")
    assert command.startswith("jaxpar train --mesh pp=2,dp=2,tp=2 --zero ")
    assert run(*arguments, "--json").json == {"command": command, "note": note[2:]}
    elsewhere = run(*arguments[:-1], "megatron").out.splitlines()
    assert elsewhere[0].startswith("# Add data, a tokenizer of 128,256 tokens")
    assert elsewhere[-1].startswith("torchrun --nproc-per-node=8 --nnodes=1 pretrain_gpt.py --num-")
    refused = run(*arguments[:-1], "slurm")
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "--export is 'slurm'; use" in refused.err


def test_a_page_is_written(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "plans.html"
    assert run(*LLAMA, "--top", "2", "--html", str(path)).code == 0
    text = path.read_text()
    assert text.startswith("<!DOCTYPE html>") and text.count("<svg") == 2
    wide = len(re.findall("<svg|<table", text))
    assert len(re.findall('<div class="wide">\\s*<(?:svg|table)', text)) == wide > 2
    ended = run(*LLAMA, "--html", str(tmp_path))
    assert ended.code == 2 and "give a file that can be written" in ended.err
    ended = run(*LLAMA, "--html", str(tmp_path / "new" / "plans.html"))
    assert ended.code == 2 and f"there is no folder {tmp_path / 'new'}; make it" in ended.err


def test_home_machines_get_their_answer(run: Any) -> None:
    ended = run(*HOME)
    assert ended.code == 0
    assert "on 4 x rtx4090 (4 nodes of 1)" in ended.out
    assert "a node has one device" in ended.out
    assert "wait on the host" in ended.out
    (zero3,) = (line for line in ended.out.splitlines() if line.startswith("ZeRO-3, FSDP"))
    assert "times as long: links" in zero3


def test_failures_and_overlap(run: Any) -> None:
    often = run(*LLAMA, "--mtbf-hours", "1000", "--json").json["plans"][0]
    seldom = run(*LLAMA, "--overlap", "--json").json["plans"][0]
    assert often["goodput"] < seldom["goodput"] < 1
    assert seldom["step_seconds"] < often["step_seconds"]


def test_sites_average_over_a_line(run: Any) -> None:
    arguments = [*HOME, "--model", "gpt2", "--batch", "64", "--sites", "2", "--line", "1"]
    printed = run(*arguments).out
    assert "2 sites with this plan each, joined by lines of 1 Gb/s and 50.0 ms:" in printed
    assert "(messages*latency + sent_bytes/bandwidth)/local_steps" in printed
    assert max(map(len, printed.splitlines())) <= 80
    found = run(*arguments, "--json").json
    rows = {row["way"]: row for row in found["sites"]}
    every, rarely = rows["fp32, every step"], rows["fp32, every 100 steps"]
    assert every["averaging_seconds"] == pytest.approx(100 * rarely["averaging_seconds"])
    assert every["step_seconds"] > found["plans"][0]["step_seconds"] + 3
    assert rarely["steps_ratio"] > 2
    assert "sites" not in run(*HOME, "--json").json


def test_a_model_may_be_a_file(run: Any) -> None:
    config = Path(__file__).parents[1] / "cost" / "configs" / "llama-7b.json"
    ended = run("plan", "--model", str(config), "--top", "1")
    assert ended.code == 0 and "6,738,415,616 parameters, on 8 x h100" in ended.out


def test_a_name_in_brackets_is_shown(run: Any, tmp_path: Path) -> None:
    (tmp_path / "[red]llama").mkdir()
    config = Path(__file__).parents[1] / "cost" / "configs" / "llama-7b.json"
    (tmp_path / "[red]llama" / "config.json").write_text(config.read_text())
    assert run("plan", "--model", str(tmp_path / "[red]llama")).out.startswith("[red]llama, ")


@pytest.mark.parametrize(("model", "tokens"), [("gpt2", "1,024"), ("opt-13b", "2,048")])
def test_tokens_default_to_the_positions_of_the_model(run: Any, model: str, tokens: str) -> None:
    """OPT has 2,050 positions, but two of them are for padding."""
    assert f"256 x {tokens} tokens" in run("plan", "--model", model).out.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "llma3-8b"], "nearest: llama3-8b"),
        (["--hardware", "h10"], "nearest: h100"),
        (["--mesh", "tp=3"], "use tp=2"),
        (["--mesh", "tp=8,pp=8,dp=24"], "use a batch of 240 or 264"),
        (["--mesh", "node=2"], "use one of pp, dp, fsdp, ep, cp, tp"),
        (["--mesh", "tp"], "write axis=size"),
        (["--zero", "4"], "use one of 0, 1, 2, 3"),
        (["--remat", "most"], "use one of none, selective, alternate, full"),
        (["--mtbf-hours", "0"], "above 0"),
        (["--model", "gpt2", "--sequence", "4096"], "use 1,024 or fewer"),
        (["--model", "gpt3-175b", "--devices", "8", "--sequence", "2048"], "GB short; use "),
        (["--compare", "tp=5"], "use tp=4"),
        (["--sites", "2"], "--sites 2 with --line None: a line joins two sites or more; give both"),
        (["--line", "1"], "--sites None with --line 1.0: a line joins"),
        (["--sites", "1", "--line", "1"], "a line joins two sites or more"),
        (["--sites", "2", "--line", "nan"], "--line is nan Gb/s; use a number from 0.001"),
        (["--sites", "99999999999999999999", "--line", "1"], "use 1,073,741,824 at most"),
        (["--mtbf-hours", "1e308"], "from 1e-6 to 1e12"),
        (["--model", "nowhere.json"], "nowhere.json: cannot be read"),
        (["--mesh", "pp=1000000"], "use pp=32"),
        (["--mesh", "pp=100000000000,tp=8"], "more than 1,048,576 devices"),
        (["--compare", "tp=99999999999999999999"], "more than 1,048,576 devices"),
        (["--devices", "1048577"], "use 1,048,576 at most"),
        (["--batch", "99999999999999999999"], "use 16,777,216 at most"),
        (["--sequence", "99999999999999999999"], "use 1,073,741,824 at most"),
        (["--microbatch", "99999999999999999999"], "use 1,073,741,824 at most"),
    ],
    ids=str,
)
def test_bad_use_names_what_is_near(run: Any, arguments: list[str], message: str) -> None:
    ended = run("plan", *arguments)
    assert ended.code == 2 and not ended.out
    assert message in ended.err
    assert message in run("plan", *arguments, "--json").json["error"]


@pytest.mark.parametrize("option", ["--model", "--hardware"])
def test_a_name_that_no_file_can_have_is_unknown(run: Any, option: str) -> None:
    ended = run("plan", option, "x" * 5000)
    assert ended.code == 2 and " is unknown; " in ended.err
