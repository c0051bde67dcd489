"""`dynadiag values` as a user runs it: what it tells, its document, its exit code, and the program undisturbed."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.shared import shared_folder

pytestmark = pytest.mark.usefixtures("forked_interpreters")

PROGRAM = """
import os, sys, torch
import torch._inductor.config as config
if "relu" in sys.argv:
    config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"

def inner(x, w):
    hidden = torch.relu(x @ w)
    scaled = hidden @ w
    return torch.log(scaled.sum(0))

torch.manual_seed(0)
call = torch.compile(inner)
x, w = torch.ones(8, 16), torch.randn(16, 16, requires_grad=True)
for _ in range(2):
    out = call(x, w)
    out.nansum().backward()
print(out.tolist(), w.grad.sum().item(), torch.rand(1).item())
if "end" in sys.argv:
    os._exit(3)
sys.exit(5)
"""


def dynadiag(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dynadiag", *words], cwd=cwd, capture_output=True, text=True, timeout=500, check=False
    )


def document(folder: Path, *words: str) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    done = dynadiag("values", "--force", "-o", "run.dynadiag", "--json", "v.json", *words, cwd=folder)
    return json.loads((folder / "v.json").read_text()), done


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program and its recorded values, which one worker makes for all."""
    made = tmp_path_factory.mktemp("values")
    with shared_folder("values") as kept:
        if not (kept / "ended.json").exists():
            (kept / "prog.py").write_text(PROGRAM)
            _, done = document(kept, "--full", "relu|log", "prog.py")
            (kept / "ended.json").write_text(json.dumps([done.returncode, done.stdout]))
        return shutil.copytree(kept, made, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def sound(folder: Path) -> tuple[dict[str, Any], int, str]:
    """The document, the exit code, and what was printed."""
    return json.loads((folder / "v.json").read_text()), *json.loads((folder / "ended.json").read_text())


def test_the_program_is_as_without_us(folder: Path, sound: Any) -> None:
    bare = subprocess.run([sys.executable, "prog.py"], cwd=folder, capture_output=True, text=True, check=False)
    assert sound[1] == bare.returncode == 5
    assert sound[2].startswith(bare.stdout)
    assert sound[0]["exit_code"] == 5


def test_the_first_nan_has_its_line_and_its_cause(sound: Any) -> None:
    found, _, printed = sound
    node = found["nodes"][found["first_nan"]]
    assert (node["node"], node["graph"], node["call"]) == ("log", "forward", 0)
    assert PROGRAM.splitlines()[node["line"] - 1].strip() == "return torch.log(scaled.sum(0))"
    assert node["cause"].startswith("log of -")
    assert [found["nodes"][each]["node"] for each in node["inputs"]] == ["sum_1"]
    assert "not finite[0/0]: log (log) has" in printed
    assert found["first_wrong"] is None
    assert found["kernel"] is None
    assert "1 other call without a finding; --all shows them" in printed
    assert "backward 0/0, call 0" not in printed


def test_the_first_call_of_each_graph_is_recorded_forward_and_backward(sound: Any) -> None:
    found = sound[0]
    assert found["calls"] == 2
    assert {(node["graph"], node["call"]) for node in found["nodes"]} == {("forward", 0), ("backward", 0)}
    stored = [node["node"] for node in found["nodes"] if node["stored"] is not None and node["graph"] == "forward"]
    assert "log" in stored
    assert len(stored) > 1
    assert all(len(node["samples"]) <= 64 for node in found["nodes"])


def test_whole_values_are_beside_the_recording(folder: Path, sound: Any) -> None:
    assert sound[0]["calls"] == 2
    made = sorted(file.name for file in (folder / "run.values").iterdir())
    assert made == ["0_0-backward-0.safetensors", "0_0-forward-0.safetensors"]


def test_whole_values_of_an_earlier_run_are_not_overwritten(folder: Path, sound: Any) -> None:
    assert sound[0]["calls"] == 2
    done = dynadiag("values", "--force", "-o", "run.dynadiag", "--full", "relu", "prog.py", cwd=folder)
    assert done.returncode == 2
    assert "values of an earlier run are there" in done.stderr


def test_a_recording_shows_the_same(folder: Path, sound: Any) -> None:
    done = dynadiag("values", "run.dynadiag", "--json", "-", cwd=folder)
    assert done.returncode == 0
    assert json.loads(done.stdout)["nodes"] == sound[0]["nodes"]


@pytest.mark.parametrize("option", ["--calls", "--nodes", "--full"])
def test_an_option_on_what_to_record_is_refused_for_a_recording(folder: Path, sound: Any, option: str) -> None:
    assert sound[0]["calls"] == 2
    done = dynadiag("values", option, "1", "run.dynadiag", cwd=folder)
    assert done.returncode == 2
    assert f"run.dynadiag: it is recorded already: {option} is for a program" in done.stderr


def test_a_wrong_lowering_is_named_with_its_line_and_kernel(folder: Path) -> None:
    (folder / "other").mkdir(exist_ok=True)
    (folder / "other" / "prog.py").write_text(PROGRAM)
    found, done = document(folder / "other", "--calls", "1", "--nodes", "hidden,scaled", "prog.py", "relu", "end")
    assert done.returncode == 3
    node = found["nodes"][found["first_wrong"]]
    assert (node["node"], node["call"]) == ("hidden", 1)
    assert PROGRAM.splitlines()[node["line"] - 1].strip() == "hidden = torch.relu(x @ w)"
    assert "relu" in found["kernel"]
    assert {each["node"] for each in found["nodes"]} == {"hidden", "scaled"}
    assert f"kernel {found['kernel']} gives a wrong hidden (relu)" in done.stdout.replace("\n                  ", " ")


def test_what_draws_random_numbers_of_its_own_is_not_called_rounding(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(
        "import torch\nf = torch.compile(lambda x: torch.dropout(x, 0.5, True) @ x)\nf(torch.randn(8, 8))\n"
    )
    found, done = document(tmp_path, "--full", "nothere", "prog.py")
    whole = "inference 0/0, call 0: no value is kept whole: --full matches no name of a node"
    assert whole in found["notes"]
    found["notes"].remove(whole)
    (dropout,) = [each for each in found["nodes"] if each["node"] == "dropout"]
    assert dropout["stored"]["off_float64"] is None
    assert found["notes"] == ["inference 0/0, call 0: not judged (random numbers, or no value in float64): dropout"]
    assert "not judged" in next(line for line in done.stdout.splitlines() if line.startswith("dropout"))
    printed = " ".join(done.stdout.split())
    assert printed.startswith("No NaN is returned, and none of 1 value that compiled code stored is wrong: 3 nodes")
    assert "1 more is not judged." in printed
    assert "Later calls are not recorded" in printed


def test_a_compiled_call_that_raises_has_its_uncompiled_values(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(
        "import torch\nf = torch.compile(lambda x, i: torch.exp(x)[i])\nf(torch.ones(2), torch.tensor([5]))\n"
    )
    found, done = document(tmp_path, "prog.py")
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr
    assert "watch.py" not in done.stderr  # the traceback is the program's own
    assert [(node["node"], node["max"]) for node in found["nodes"]][:2] == [("l_x_", 1), ("l_i_", 5)]
    assert "exp" in [node["node"] for node in found["nodes"]]
    assert any("compiled code raises: RuntimeError" in note for note in found["notes"])
    printed = " ".join(done.stdout.split())
    assert "No NaN is known, in" in printed
    assert "No value of compiled code was judged. " in printed
    assert "The notes below say what was not looked at." in printed


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_backward_of_another_backend_is_said_to_be_missing(tmp_path: Path, backend: str) -> None:
    program = (
        f"torch.compile(lambda x: (x * 2).sum(), backend='{backend}')(torch.ones(1, requires_grad=True)).backward()"
    )
    (tmp_path / "prog.py").write_text(f"import torch\n{program}\ntorch.compile(lambda x: x * 3)(torch.ones(1))\n")
    found, done = document(tmp_path, "prog.py")
    assert {(node["compile_id"], node["graph"]) for node in found["nodes"]} == {
        ("0/0", "forward"),
        ("1/0", "inference"),
    }
    assert sum("the backward has no values" in note for note in found["notes"]) == 1, found["notes"]
    assert "the backward has no values" in done.stdout


def test_a_recording_without_values_says_how_to_get_them(folder: Path) -> None:
    (folder / "plain.py").write_text(
        "import torch\nprint(torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)))"
    )
    assert dynadiag("record", "-o", "plain.dynadiag", "plain.py", cwd=folder).returncode == 0
    done = dynadiag("values", "plain.dynadiag", cwd=folder)
    assert done.returncode == 2
    assert "it has no values; record it again: dynadiag record --values" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("values", "--calls", "3..1", "prog.py"), "--calls 3..1: give numbers and ranges"),
        (("values", "--nodes", "(", "prog.py"), "--nodes (: not a regular expression"),
        (("record", "--full", "x", "prog.py"), "--full is about recorded values: add --values"),
        (("values",), "values: name a program"),
    ],
)
def test_bad_words_are_said(folder: Path, words: tuple[str, ...], message: str) -> None:
    done = dynadiag(*words, cwd=folder)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


LOOP = """
import torch
@torch.compile
def double(x):
    carried = (torch.tensor(0), x.cos())
    return torch._higher_order_ops.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), carried)
print(double(torch.ones(3)))
"""


def test_the_body_of_a_loop_does_not_stand_for_what_goes_into_it(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    made, done = document(tmp_path, "loop.py")
    assert made["first_wrong"] is None, done.stdout
    assert [node["node"] for node in made["nodes"] if node["stored"]] != []


OVERWRITTEN = """
import torch
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
own = PythonWrapperCodegen.generate_kernel_call
def call(self, kernel, arguments, *args, **kwargs):
    own(self, kernel, arguments, *args, **kwargs)
    if "sin" in kernel:
        self.writeline(f"{[each for each in arguments if each.startswith('buf')][-1]}[0].add_(0.25)")
PythonWrapperCodegen.generate_kernel_call = call

@torch.compile
def step(x, w, v, b):
    waves = torch.sin(x)
    product = waves @ w
    moved = torch.nn.functional.linear(waves.transpose(1, 2), v, b)
    return torch.relu(product), torch.relu(moved)
step(torch.randn(2, 4, 8), torch.randn(8, 8), torch.randn(4, 4, requires_grad=True), torch.randn(4))
"""


def test_memory_that_is_written_to_before_it_is_read_accuses_no_kernel(tmp_path: Path) -> None:
    (tmp_path / "overwritten.py").write_text(OVERWRITTEN)
    made, _ = document(tmp_path, "overwritten.py")
    wrong = [(node["node"], node["stored"]["kernel"]) for node in made["nodes"] if (node["stored"] or {}).get("wrong")]
    assert wrong == [("waves", None)]  # the bias of `moved` is added after its product is stored
    assert any("sin" in note and "stored another waves" in note for note in made["notes"])
    kernels = {node["node"]: node["stored"]["kernel"] for node in made["nodes"] if node["stored"]}
    assert kernels["product"] == "mm"  # which stores it before it is viewed


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("--nodes", "zzz"), "Nothing is known of the values: no node has a name that --nodes matches."),
        (("--calls", "7..8"), "No call of a compiled graph has values: graphs were compiled, but none of the calls"),
    ],
)
def test_what_was_not_looked_at_is_not_good(folder: Path, words: tuple[str, ...], answer: str) -> None:
    done = dynadiag("values", "--force", "-o", "none.dynadiag", *words, "prog.py", cwd=folder)
    assert done.returncode == 5
    assert "No NaN" not in done.stdout
    assert answer in " ".join(done.stdout.split())


@pytest.mark.parametrize("shape", ['["-1","x","²"]', '["' + "9" * 5000 + '"]'])
def test_a_shape_that_is_no_number_is_read(folder: Path, sound: Any, shape: str) -> None:
    """A recording from a stranger may hold anything."""
    assert sound[0]["calls"] == 2
    shutil.copy(folder / "run.dynadiag", folder / "strange.dynadiag")
    with contextlib.closing(sqlite3.connect(folder / "strange.dynadiag")) as database, database:
        database.execute("update node_value set summary_shape = ?", (shape,))
    done = dynadiag("values", "strange.dynadiag", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "has" in done.stdout.splitlines()[0]


def test_nodes_of_no_call_are_left_out(folder: Path, sound: Any) -> None:
    assert sound[0]["calls"] == 2
    shutil.copy(folder / "run.dynadiag", folder / "lost.dynadiag")
    with contextlib.closing(sqlite3.connect(folder / "lost.dynadiag")) as database, database:
        database.execute("update node_value set values_call = 999 where node = 'log'")
    done = dynadiag("values", "lost.dynadiag", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "log (log)" not in done.stdout


WRITES = """
import sys, torch
from torch._inductor import lowering
own, times = lowering.lowerings[torch.ops.aten.exp.default], lowering.lowerings[torch.ops.aten.mul.Tensor]
if "fault" in sys.argv:
    lowering.lowerings[torch.ops.aten.exp.default] = lambda *args, **kwargs: times(own(*args, **kwargs), 1.01)

@torch.compile
def averaged(x, kept):
    raised = torch.exp(x) + 1
    kept.view(-1).mul_(0.9).add_(raised.view(-1), alpha=0.1)
    return x / kept

@torch.compile
def returned(x):
    raised = torch.exp(x)
    rows = raised.view(4, 32)
    rows[1] = 3
    rows.mul_(2)
    return raised

@torch.compile
def kept(x, cache):
    cache[:, 1].copy_(torch.exp(x) * 3)

x = torch.randn(8, 16)
averaged(x, torch.ones(8, 16)), kept(x, torch.ones(8, 4, 16))
with torch.inference_mode():
    returned(torch.randn(8, 16))
"""


@pytest.mark.parametrize("fault", [True, False])
def test_what_is_written_to_in_place_is_judged_as_it_was_then(tmp_path: Path, fault: bool) -> None:
    """Also what no kernel stores, what is returned after a later write, and an input that the graph only writes to."""
    (tmp_path / "writes.py").write_text(WRITES)
    made, done = document(tmp_path, "writes.py", *(["fault"] if fault else []))
    wrong = {
        node["compile_id"]: node["node"] for node in reversed(made["nodes"]) if (node["stored"] or {}).get("wrong")
    }
    assert wrong == ({"0/0": "exp", "1/0": "exp", "2/0": "raised"} if fault else {}), done.stdout
    off = [node["off_float64"] for node in made["nodes"] if node["op"].endswith("exp")]
    assert len(off) == 3
    assert None not in off  # also in inference mode


INTERRUPTED = """
import os, signal, torch
program = os.getpid()

@torch.library.custom_op("ours::wait", mutates_args=())
def wait(x: torch.Tensor) -> torch.Tensor:
    turn = 0
    while os.getppid() == program:  # until the program ends
        if turn % 2000 == 0:  # once more where Python lost it, as in what it calls behind a fork
            os.kill(program, signal.SIGINT)
        signal.sigtimedwait([], 0.01)
        turn += 1
    return x + 1
wait.register_fake(torch.empty_like)
try:
    torch.compile(lambda x: wait(x) * 2, backend="aot_eager")(torch.ones(3))
except KeyboardInterrupt:
    raise SystemExit(7)
"""


def test_a_call_that_is_interrupted_while_its_values_are_recorded_says_so(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(INTERRUPTED)
    made, done = document(tmp_path, "prog.py")
    assert done.returncode == 7
    assert made["notes"] == ["inference 0/0, call 0: it has no values: KeyboardInterrupt"]
