"""`advise` as a user calls it: a winner and why, JSON, a timeline, and all faults at once."""

from __future__ import annotations

import json

import pytest

from jaxbench.cli.advise import main, read_strategies, read_top
from jaxbench.errors import InputError

SMALL = ["--model=gpt2_l", "--system=dgx_a100", "--devices=8", "--batch=2", "--units=4"]


def test_a_winner_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--strategy=dp,fsdp", "--top=2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("winner     ") and "samples/s" in lines[0]
    text = "\n".join(lines)
    assert lines[1].startswith("why        ") and (" than " in text or "as fast as" in text)
    (memory,) = [line for line in lines if line.startswith("memory     ")]
    assert "of 72 GB usable a device: parameters" in memory
    assert "\nflags      --strategy=" in text
    assert "\nand 2 more (--top)\n" in text
    assert "combinations considered" in text and "were simulated" in text


@pytest.mark.slow
def test_the_flags_of_the_winner_simulate_it(capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed can be given to simulate, which then says the same throughput."""
    from jaxbench.cli.simulate import main as simulate

    assert main([*SMALL, "--strategy=dp_pp_tp", "--microbatches=2", "--format=json"]) == 0
    winner = json.loads(capsys.readouterr().out)["winner"]
    words = [*winner["flags"], "--model=gpt2_l", "--system=dgx_a100", "--format=json"]
    assert simulate(words) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["metrics"]["throughput"] == pytest.approx(winner["throughput"])


def test_everything_is_in_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--strategy=dp,fsdp", "--format=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["winner"] == found["ranking"][0] and found["reason"]
    throughputs = [row["throughput"] for row in found["ranking"]]
    assert throughputs == sorted(throughputs, reverse=True) and len(throughputs) == 4
    row = found["ranking"][0]
    assert row["memory_bytes"]["total"] <= row["usable_bytes"] and row["fits"]
    assert row["global_batch_tokens"] == row["global_batch"] * 1024 == 16 * 1024
    assert found["considered"] >= found["feasible"] >= found["fitting"] >= found["simulated"]


def test_nothing_fits_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model=llama3_405b", "--system=dgx_a100", "--devices=8"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("winner     none: nothing fits")
    assert "what doesn't fit, with the options that need least" in text
    assert "that are usable" in text and "0 fit, 0 were simulated" in text


def test_explain_shows_the_timeline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "--strategy=dp_pp", "--microbatches=2", "--explain"]) == 0
    text = capsys.readouterr().out
    assert "F forward, B backward" in text
    (first,) = [line for line in text.splitlines() if line.startswith("rank 0")]
    assert "F" in first and "B" in first and len(first) <= len("rank 0  ") + 100


def test_a_batch_beyond_the_critical_one_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model=vit_b16", "--system=dgx_a100", "--devices=8", "--batch=4000"]
    assert main([*words, "--strategy=dp", "--recompute"]) == 0
    text = capsys.readouterr().out
    assert "32,000 images is beyond the critical batch" in text and "warning    " in text


def test_all_faults_at_once() -> None:
    with pytest.raises(InputError) as caught:
        main(
            [
                "--model=llama",
                "--system=alp",
                "--devices=many",
                "--strategy=dp,pp",
                "--top=0",
                "--format=xml",
                "--fits=no_such_file",
                "--mesh=data=2",
                "--mfu=2",
            ]
        )
    text = "\n".join(caught.value.faults)
    for part in (
        "advise has no flag '--mesh'",
        "unknown format 'xml'",
        "unknown strategy 'pp'",
        "unknown model 'llama'",
        "unknown system 'alp'; did you mean 'alps'?",
        "--devices is 'many'; it must be a whole number",
        "--top is '0'; it must be",
        "no_such_file",
        "--mfu is 2",
    ):
        assert part in text, part
    assert len(caught.value.faults) == 9


def test_what_is_missing_is_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        main([])
    text = "\n".join(caught.value.faults)
    assert "--system is missing" in text and "--devices is missing" in text
    assert "--model is missing; known: " in text and len(caught.value.faults) == 3


def test_faults_of_the_place() -> None:
    with pytest.raises(InputError) as caught:
        main([*SMALL, "--placement=far", "--algorithm=fast", "--comm_streams=two"])
    assert len(caught.value.faults) == 3
    with pytest.raises(InputError, match="dgx_a100 has 8 devices"):
        main(["--model=gpt2_l", "--system=dgx_a100", "--devices=16"])


def test_readers() -> None:
    assert read_strategies("")[0] == ("dp", "fsdp", "dp_pp", "dp_pp_tp", "dp_pp_ep")
    assert read_strategies("dp, fsdp,dp") == (("dp", "fsdp"), [])
    assert read_top("12") == (12, []) and read_top("-1")[1] and read_top("x")[1]
