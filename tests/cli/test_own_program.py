"""`plan module:function` as a user calls it, and everything that can be wrong with it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jaxbench.cli.main import main as run_command
from jaxbench.cli.own_program import is_own_program, plan_own_program, simulate_own_program
from jaxbench.cli.own_program_load import read_axes
from jaxbench.errors import InputError

EXAMPLES = Path(__file__).parents[2] / "examples"

MODULE = """
import jax, jax.numpy as jnp
from jax import lax
from jax.sharding import AbstractMesh, AxisType, PartitionSpec as P

MESH = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
VECTOR = jax.ShapeDtypeStruct((8,), jnp.float32)

def mapped(body, mesh=MESH):
    return jax.shard_map(body, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False)

good = mapped(lambda v: lax.psum(v @ v, "x"))
good_arguments = (VECTOR,)

jitted = jax.jit(good)
jitted_arguments = lambda: [VECTOR]

foreign = mapped(lambda v: lax.psum(v, "y"))
foreign_arguments = (VECTOR,)

plain = lambda v: v + 1
plain_arguments = (VECTOR,)

bare = mapped(lambda v: v)

number = 3

shaped = mapped(lambda v: v @ jnp.ones(5))
shaped_arguments = (VECTOR,)

texts = mapped(lambda v: v)
texts_arguments = ("eight",)

def factory(mesh):
    return mapped(lambda v: lax.psum(v, mesh.axis_names), mesh)

def factory_arguments(mesh):
    return (jax.ShapeDtypeStruct((mesh.size,), jnp.float32),)

def broken(mesh):
    raise RuntimeError("no such mesh")

broken_arguments = (VECTOR,)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a user's modules, as the current one. Module names are never used again."""
    number = abs(hash(str(tmp_path)))
    (tmp_path / f"own_{number}.py").write_text(MODULE)
    (tmp_path / f"faulty_{number}.py").write_text("import no_such_package_here")
    (tmp_path / f"syntax_{number}.py").write_text("def (")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def module(folder: Path, kind: str = "own") -> str:
    return next(folder.glob(f"{kind}_*.py")).stem


def faults(*words: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as caught:
        plan_own_program(words)
    return caught.value.faults


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert plan_own_program([*words, "--format=json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_word_with_a_colon_is_a_program() -> None:
    assert is_own_program(["a.b:c", "--hardware", "h100"])
    assert not is_own_program(["--flagfile=a:b", "--mesh", "data=2", "stray"])


@pytest.mark.parametrize("name", ["good", "jitted"])
def test_a_shard_map_or_a_jit_of_one(folder: Path, name: str, capsys) -> None:
    found = planned(capsys, f"{module(folder)}:{name}")
    assert found["mesh"] == {"x": 4} and found["flops"] == {"float32": 16.0}
    assert [row["kind"] for row in found["collectives"]] == ["all_reduce"]


def test_a_function_of_the_mesh(folder: Path, capsys) -> None:
    found = planned(capsys, f"{module(folder)}:factory", "--mesh=rows=512,columns=4")
    (row,) = found["collectives"]
    assert (row["group_size"], row["elements"], row["axis"]) == (2048, 2048, "rows+columns")


def test_the_example_as_its_text_says(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(EXAMPLES)
    assert plan_own_program(["transformer_step:step", "--hardware=gh200"]) == 0
    text = capsys.readouterr().out
    assert "times of gh200 at MFU 0.4" in text and "8 ranks; per rank and call" in text
    assert "block forward 8, block backward 8" in text and "useful" not in text
    wide = planned(capsys, "transformer_step:make_step", "--mesh=data=256,tensor=4")
    assert wide["mesh"] == {"data": 256, "tensor": 4}


def test_plan_and_simulate_take_it(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(EXAMPLES)
    assert run_command(["plan", "transformer_step:step"]) == 0
    assert "transformer_step:step, data=2,tensor=4" in capsys.readouterr().out
    assert run_command(["simulate", "transformer_step:step", "--system=alps"]) == 0
    assert "of the step is transfer and latency" in capsys.readouterr().out
    assert run_command(["plan", "transformer_step:stop"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("jaxbench plan: 2 faults:") and "did you mean 'step'?" in said


def test_guesses_and_what_is_left_out_are_printed(folder: Path, capsys) -> None:
    (folder / "guess_me.py").write_text(
        MODULE + "\ng = jax.jit(lambda v: mapped(lambda w: jnp.fft.fft(w).real)(v * 2))"
        "\ng_arguments = (VECTOR,)\n"
    )
    assert plan_own_program(["guess_me:g"]) == 0
    text = capsys.readouterr().out
    assert "guessed    as memory traffic, since their work isn't known: fft x 1" in text
    assert "warning    outside of shard_map, and not counted: mul x 1" in text


def test_hardware_of_a_system(folder: Path, capsys) -> None:
    slow = planned(capsys, f"{module(folder)}:good", "--hardware=a100_80", "--mfu=0.1")
    fast = planned(capsys, f"{module(folder)}:good", "--system=dgx_a100", "--mfu=1")
    assert slow["rank_compute_s"]["max"] >= fast["rank_compute_s"]["max"] > 0
    (fault,) = faults(f"{module(folder)}:factory", "--mesh=x=9", "--system=dgx_a100")
    assert fault.startswith("system dgx_a100 has 8 devices, but the mesh of own_")
    (fault,) = faults(f"{module(folder)}:good", "--system=dgx_a100", "--hardware=h100")
    assert fault.startswith("system dgx_a100 has hardware a100_")


FAULTY: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "everything at once": (
        (
            "{own}:gud",
            "--hardware=h10",
            "--mfu=2",
            "--memory_efficiency=x",
            "--batch=3",
            "--format=xml",
        ),
        (
            "plan module:function has no flag '--batch'",
            "unknown format 'xml'; known: json, text",
            "unknown hardware 'h10'; did you mean 'h100'?",
            "--mfu is 2; it must be greater than 0 and at most 1",
            "--memory_efficiency is 'x'; it must be a number",
            "unknown function of module {own} 'gud'; known: broken, factory, foreign, good, ",
            "{own}:gud_arguments is missing: the arguments to call gud with",
        ),
    ),
    "no module": (("no_such_thing:f",), ("there is no module 'no_such_thing', neither in ",)),
    "its own import": (
        ("{faulty}:f",),
        ("module '{faulty}' can't be imported: ModuleNotFoundError: No module",),
    ),
    "its syntax": (("{syntax}:f",), ("module '{syntax}' can't be imported: SyntaxError: ",)),
    "its name": (("a:b:c",), ("'a:b:c' isn't module:function, as in transformer_step:step",)),
    "two of them": (
        ("a:b", "c:d"),
        ("plan module:function takes 1 arguments, module:function; got 2",),
    ),
    "no arguments": (("{own}:bare",), ("{own}:bare_arguments is missing",)),
    "no function": (
        ("{own}:number",),
        (
            "{own}:number is a int; it must be a shard_map function",
            "{own}:number_arguments is miss",
        ),
    ),
    "no shard_map": (("{own}:plain",), ("{own}:plain isn't a shard_map, and calls none",)),
    "unknown axis": (
        ("{own}:foreign",),
        ("{own}:foreign uses the axis 'y', which its mesh hasn't",),
    ),
    "wrong shape": (
        ("{own}:shaped",),
        ("{own}:shaped can't be traced with its arguments: TypeError",),
    ),
    "wrong argument": (
        ("{own}:texts",),
        ("{own}:texts_arguments holds a str; write arrays or jax.",),
    ),
    "mesh missing": (("{own}:factory",), ("{own}:factory takes a mesh: give --mesh",)),
    "mesh too many": (("{own}:good", "--mesh=x=2"), ("{own}:good has a mesh of its own",)),
    "mesh unreadable": (
        ("{own}:factory", "--mesh=x=2,x=3,y=0"),
        ("--mesh names the axis 'x' twice", "--mesh has 'y=0'; write axis=size"),
    ),
    "mesh refused": (
        ("{own}:broken", "--mesh=x=2"),
        ("{own}:broken fails with its mesh: RuntimeError: no such mesh",),
    ),
    "system unknown": (("{own}:good", "--system=dgx"), ("unknown system 'dgx'; known: ",)),
}


@pytest.mark.parametrize("name", FAULTY)
def test_faults_are_told_all_at_once(folder: Path, name: str) -> None:
    words, wanted = FAULTY[name]
    names = {kind: module(folder, kind) for kind in ("own", "faulty", "syntax")}
    found = faults(*(word.format(**names) for word in words))
    assert len(found) == len(wanted), found
    for fault, start in zip(found, wanted, strict=True):
        assert fault.startswith(start.format(**names)), fault


def test_axes_of_any_name() -> None:
    assert read_axes("rows=2, columns = 3") == ((("rows", 2), ("columns", 3)), [])
    mesh, wrong = read_axes("2=3,a")
    assert mesh is None and len(wrong) == 2


# --- simulate -----------------------------------------------------------------------------------


def simulated(capsys: pytest.CaptureFixture[str], *words: str) -> dict:
    assert simulate_own_program([*words, "--format=json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_program_on_a_system(folder: Path, capsys) -> None:
    """Its parts add up, and spreading it over groups makes its sum slower."""
    name = f"{module(folder)}:factory"
    near = simulated(capsys, name, "--mesh=x=64", "--system=alps")
    far = simulated(capsys, name, "--mesh=x=64", "--system=alps", "--placement=inter-group")
    for found in (near, far):
        m = found["metrics"]
        parts = ("compute_s", "skew_s", "bubble_s", "transfer_exposed_s", "latency_s")
        assert sum(m[part] for part in parts) == pytest.approx(m["step_s"])
    assert far["metrics"]["step_s"] > near["metrics"]["step_s"] > 0
    assert "inter-group" in far["costs"]


def test_what_simulate_prints_and_writes(folder: Path, capsys) -> None:
    words = [f"{module(folder)}:jitted", "--system=alps", "--timeline=t.json", "--chakra=et"]
    assert simulate_own_program(words) == 0
    text = capsys.readouterr().out
    assert "times of gh200" in text and "one communication stream" in text
    assert re.search(r"all_reduce +x +1 +4 +1 +4 B", text)
    trace = json.loads((folder / "t.json").read_text())
    names = {event.get("name") for event in trace["traceEvents"]}
    assert any("dot_general" in str(name) for name in names)
    assert len(list((folder / "et").glob("*.et"))) == 4


def test_faults_of_simulate_are_told_all_at_once(folder: Path) -> None:
    with pytest.raises(InputError) as caught:
        simulate_own_program(
            [
                f"{module(folder)}:factory",
                "--mesh=x=16",
                "--system=dgx_a100",
                "--placement=far",
                "--algorithm=fast",
                "--comm_streams=two",
                "--timeline=no_such_folder/t.json",
                "--mfu=0",
                "--fits=no_such_file",
            ]
        )
    text = "\n".join(caught.value.faults)
    for part in ("no_such_folder", "--mfu is 0", "no_such_file"):
        assert part in text
    with pytest.raises(InputError) as caught:
        simulate_own_program(
            [
                f"{module(folder)}:factory",
                "--mesh=x=16",
                "--system=dgx_a100",
                "--placement=far",
                "--algorithm=fast",
                "--comm_streams=two",
            ]
        )
    text = "\n".join(caught.value.faults)
    for part in ("'far'", "'fast'", "'two'", "dgx_a100 has 1"):
        assert part in text


def test_a_system_is_needed(folder: Path) -> None:
    with pytest.raises(InputError, match="--system is missing; known: alps"):
        simulate_own_program([f"{module(folder)}:good"])
