"""Two runs are the same, or the first stage at which they differ leads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dynadiag.__main__ import main
from tests.diff.programs import BASE, recorded

Compare = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("diff")


@pytest.fixture(scope="module")
def base(folder: Path) -> Path:
    return recorded(folder, "base", BASE)


@pytest.fixture
def compare(folder: Path, base: Path) -> Compare:
    """Record another program and compare the base with it."""

    def run(program: str) -> dict[str, Any]:
        other = recorded(folder, f"other{len(list(folder.iterdir()))}", program)
        document = folder / "out.json"
        code = main(["diff", "--json", str(document), str(base), str(other)])
        found: dict[str, Any] = json.loads(document.read_text())
        assert code == (not found["same"])
        return found

    return run


def _first(found: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = found["differences"][found["first"]]
    return first


def _edited(old: str, new: str) -> str:
    assert old in BASE
    return BASE.replace(old, new)


def _line(program: str, text: str) -> int:
    return next(number for number, line in enumerate(program.splitlines(), 1) if text in line)


def test_the_same_program_is_the_same_and_nothing_is_said(compare: Compare, capsys: pytest.CaptureFixture[str]) -> None:
    found = compare(BASE)
    assert (found["same"], found["first"], found["differences"], found["notes"]) == (True, None, [], [])
    assert capsys.readouterr().out == ""


def test_other_names_lines_and_comments_are_no_difference(compare: Compare) -> None:
    program = BASE.replace("Block", "Stage").replace("first", "projection").replace("h =", "hidden =  ")
    program = program.replace("return h", "# the residual\n        return hidden").replace("SETTINGS", "OPTIONS")
    program = program.replace("(self, x)", "(self, given)").replace("(x)", "(given)").replace("+ x", "+ given")
    assert compare("# a comment\n" + program)["same"]


def test_a_print_is_a_break_at_its_line(compare: Compare, capsys: pytest.CaptureFixture[str]) -> None:
    program = _edited("        return h", '        print("mean", h.mean())\n        return h')
    found = compare(program)
    assert (_first(found)["stage"], _first(found)["line"]) == ("break", _line(program, "print("))
    lines = capsys.readouterr().out.splitlines()
    assert "mean" in lines.pop(0), "what the program prints"
    assert lines[0].startswith("first difference: break, ")
    assert {item["stage"] for item in found["differences"]} >= {"environment", "break", "dynamo", "aot"}


def test_a_value_that_is_read_is_a_guard_at_its_line(compare: Compare) -> None:
    program = _edited("        return h", '        if SETTINGS["trace"]:\n            h = h.clone()\n        return h')
    first = _first(compare(program))
    assert (first["stage"], first["line"]) == ("guard", _line(program, '["trace"]'))
    assert "SETTINGS" in first["text"]


def test_another_operator_leads_before_the_guards_on_its_function(compare: Compare) -> None:
    program = _edited("torch.relu(", "torch.tanh(")
    first = _first(compare(program))
    assert (first["stage"], first["line"]) == ("dynamo", _line(program, "torch.tanh"))
    operators = [node for node in first["nodes"] if node["kind"] == "changed" and "relu" in node["before"]]
    assert ["tanh" in node["after"] for node in operators] == [True]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        h = torch.relu(self.first(x))", "        h = hidden(self.first, x)"),  # a helper
        ("        h =", "        assert x.shape[1] == 4\n        rows = x.shape[0]\n        h ="),  # x is read earlier
        ('torch.compile(Block(), backend="aot_eager")', 'Block()\nblock.compile(backend="aot_eager")'),
        ('backend="aot_eager")', 'backend="aot_eager", fullgraph=True)'),
    ],
)
def test_another_way_to_write_it_is_no_difference(compare: Compare, old: str, new: str) -> None:
    helper = "def hidden(layer, x):\n    return torch.relu(layer(x))\n\n\nclass Block"
    found = compare(_edited(old, new).replace("class Block", helper))
    assert found["differences"] == []


@pytest.mark.parametrize(
    ("old", "new", "stage", "at", "told"),
    [
        (
            "block(torch.ones(2, 4))",
            "block.double()(torch.ones(2, 4).double())",
            "guard",
            "torch.relu",
            "x has dtype torch.float64, had torch.float32",
        ),
        (
            "block(torch.ones(2, 4))",
            "block(torch.ones(6, 4))",
            "guard",
            "torch.relu",
            "x has size [6, 4], had [2, 4]",
        ),
        ('"scale": 2.0', '"scale": 3.0', "guard", '["scale"]', "SETTINGS['scale'] is 3.0, was 2.0"),
        (".sum().backward()", ".sum()", "", "", ""),
        (
            "block(torch.ones(2, 4)).sum().backward()",
            "torch.no_grad()(block)(torch.ones(2, 4))",
            "guard",
            "forward",
            "grad mode was on, is off",
        ),
        ("return h + x", "return torch.sum(h + x, 0, dtype=torch.float64)", "dynamo", "return", "torch.sum"),
        ("return h + x", "return x + h", "dynamo", "return", "h + x became x + h"),
        ("return h + x", "return x - h", "dynamo", "return", "is gone (2 operators differ)"),
        (
            "self.first(x)) *",
            "self.spare(x)) *",
            "dynamo",
            "torch.relu",
            "`self.spare.weight` where it read `self.first.w",
        ),
        ("self.first(x)) *", "self.first(x)).add(1) *", "dynamo", "add(", "add(1)"),
    ],
)
def test_what_changed_is_in_the_text(compare: Compare, old: str, new: str, stage: str, at: str, told: str) -> None:
    program = _edited(old, new)
    found = compare(program)
    if not stage:
        assert found["same"]
        return
    assert (_first(found)["stage"], _first(found)["line"]) == (stage, _line(program, at))
    assert told in _first(found)["text"]


SUBTRACT = """import torch


@torch.compile(backend="aot_eager")
def f(x, y):
    return torch.exp(x) - y


f(torch.ones(3), torch.ones(3))
"""


@pytest.mark.parametrize(
    ("new", "line"),
    [("torch.exp(y) - x", 6), ("torch.exp(x) - x * y", 6), ("torch.exp(x) - (y if y.shape else x)", None)],
)
def test_exchanged_inputs_are_a_difference(folder: Path, new: str, line: int | None) -> None:
    paths = [folder / "before.dynadiag", folder / "after.dynadiag"]
    for path, program in zip(paths, (SUBTRACT, SUBTRACT.replace("torch.exp(x) - y", new)), strict=True):
        path.unlink(missing_ok=True)
        recorded(folder, path.stem, program)
    document = folder / "exchanged.json"
    assert main(["diff", "--json", str(document), *map(str, paths)]) == (line is not None)
    found = json.loads(document.read_text())
    assert line is None or (_first(found)["stage"], _first(found)["line"]) == ("dynamo", line)


def test_one_more_result_is_told_at_the_return(folder: Path) -> None:
    both = SUBTRACT.replace("return torch.exp(x) - y", "h = torch.exp(x)\n    return h - y, h")
    one = both.replace("h - y, h", "h - y")
    paths = recorded(folder, "one_result", one), recorded(folder, "two_results", both)
    document = folder / "results.json"
    assert main(["diff", "--json", str(document), *map(str, paths)]) == 1
    first = _first(json.loads(document.read_text()))
    assert (first["stage"], first["line"]) == ("dynamo", _line(both, "return"))


RECOMPUTED = """import torch
import torch._functorch.config


@torch.compile(backend="aot_eager_decomp_partition")
def f(x):
    for _ in range(4):
        x = (x @ x).sin()
    return x.sum()


with torch._functorch.config.patch(activation_memory_budget=1.0):
    f(torch.ones(8, 8, requires_grad=True))
"""


def test_what_the_backward_computes_again_is_told(folder: Path) -> None:
    less = RECOMPUTED.replace("budget=1.0", "budget=0.0")
    paths = recorded(folder, "kept", RECOMPUTED), recorded(folder, "recomputed", less)
    document = folder / "recomputed.json"
    assert main(["diff", "--json", str(document), *map(str, paths)]) == 1
    found = [each["text"] for each in json.loads(document.read_text())["differences"] if each["stage"] == "aot"]
    assert any(text.endswith("; the backward computes the rest again") for text in found)


@pytest.mark.parametrize("argument", ["dynamic=True", "mode='max-autotune-no-cudagraphs'"])
def test_an_argument_of_torch_compile_is_led_back_to_its_line(compare: Compare, argument: str) -> None:
    kept = 'backend="aot_eager", ' if "dynamic" in argument else ""
    program = _edited('backend="aot_eager"', f"{kept}{argument}")
    found = [each for each in compare(program)["differences"] if each["stage"] == "environment"]
    assert {each["line"] for each in found if ".config." in each["text"]} == {_line(program, argument)}


def test_an_option_of_torch_is_the_cause_of_another_graph(compare: Compare, capsys: pytest.CaptureFixture[str]) -> None:
    found = compare(_edited('backend="aot_eager"', 'backend="aot_eager_decomp_partition"'))
    assert _first(found)["stage"] == "aot"
    told = [item["text"] for item in found["differences"] if item["stage"] == "environment"]
    assert any("torch.compile.backend" in text and "decomp" in text for text in told)
    first = " ".join(capsys.readouterr().out.split("\n     |")[0].split())
    assert first.endswith("; given differently: torch.compile.backend")


def test_an_option_without_effect_is_all_that_differs(compare: Compare) -> None:
    program = "import torch._inductor.config\n" + BASE.replace(
        "\nblock =", "\nwith torch._inductor.config.patch(max_fusion_size=3):\n  block ="
    )
    program = program.replace("\nblock(torch", "\n  block(torch")
    found = compare(program)
    assert [item["stage"] for item in found["differences"]] == ["environment"]
    assert "max_fusion_size" in _first(found)["text"]
    assert _first(found)["line"] == _line(program, "max_fusion_size")


def test_a_second_shape_is_a_recompile_with_the_two_values(compare: Compare) -> None:
    program = BASE + "block(torch.ones(3, 4))\n"
    found = compare(program)
    assert _first(found)["stage"] == "recompile"
    assert "was 2, now 3" in _first(found)["text"]


def test_a_compile_that_fails_in_one_run(compare: Compare) -> None:
    program = BASE.replace('backend="aot_eager"', "backend=refuse").replace(
        "\nclass", "\ndef refuse(gm, inputs):\n    raise ValueError('no')\n\n\nclass", 1
    )
    program = program.replace("\nblock(torch", "\ntry:\n  block(torch").rstrip() + "\nexcept Exception:\n  pass\n"
    found = compare(program)
    assert any("fails to compile now" in item["text"] and "no" in item["text"] for item in found["differences"])


def test_two_programs_that_have_nothing_in_common(compare: Compare, capsys: pytest.CaptureFixture[str]) -> None:
    found = compare("import torch\ntorch.compile(lambda a: a.cumsum(0).sort(), backend='eager')(torch.ones(3))\n")
    assert not found["same"]
    assert capsys.readouterr().out.startswith("note: these are two different programs")


def test_a_program_that_compiles_nothing_is_said_to(compare: Compare, capsys: pytest.CaptureFixture[str]) -> None:
    found = compare(BASE.replace('torch.compile(Block(), backend="aot_eager")', "Block()"))
    assert found["notes"] == ["the second run compiled nothing"]
    assert _first(found)["text"] == "Block.forward is compiled only in the first run"


def test_a_log_is_compared_with_its_recording(base: Path, tmp_path: Path) -> None:
    log = tmp_path / "base.log"
    assert main(["export", "-o", str(log), str(base)]) == 0
    assert main(["diff", str(base), str(log)]) == 0


@pytest.mark.parametrize("which", ["missing.dynadiag", "missing.py", "no_such_target"])
def test_what_cannot_be_read_is_one_line(
    which: str, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", str(base), str(tmp_path / which)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert which in said[0]


def test_a_run_that_was_cut_short_is_said_to_be(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "whole.log"
    assert main(["export", "-o", str(log), str(base)]) == 0
    cut = tmp_path / "cut.dynadiag"
    cut.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-2]))
    assert main(["diff", str(base), str(cut)]) == 0
    assert "second run was cut short" in capsys.readouterr().out
