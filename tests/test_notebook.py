"""dynadiag in a notebook, in a real kernel: cells are named by their number, and the magic shows a report."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

pytest.importorskip("ipykernel")
from jupyter_client.manager import start_new_kernel  # it comes with ipykernel

_SECONDS = 300  # of one cell: torch is imported and compiles, on a machine that may be busy
_SETUP = """\
import torch, dynadiag
%load_ext dynadiag
def step(x):
    y = x.sin()
    print("seen")
    return y * 2"""


class Notebook:
    """A kernel whose cells have run up to now."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, cell: str) -> tuple[int, dict[str, str]]:
        """Run a cell. Return its number, and its output by kind: stdout, stderr, error, traceback, text/plain, ...

        ``failed`` is the exception by which a notebook knows to run no cell below.
        """
        output: dict[str, str] = {}

        def hear(message: dict[str, Any]) -> None:
            content = message["content"]
            match message["msg_type"]:
                case "stream":
                    output[content["name"]] = output.get(content["name"], "") + content["text"]
                case "error":
                    shown = f"{content['ename']}: {content['evalue']}"
                    output["error"] = f"{output['error']}\n{shown}" if "error" in output else shown
                    output["traceback"] = "\n".join(content["traceback"])
                case "execute_result" | "display_data":
                    output.update(content["data"])

        reply = self._client.execute_interactive(cell, timeout=_SECONDS, output_hook=hear)["content"]
        if reply["status"] == "error":
            output["failed"] = reply["ename"]
        return reply["execution_count"], output


@pytest.fixture(scope="module")
def notebook() -> Iterator[Notebook]:
    manager, client = start_new_kernel()
    try:
        made = Notebook(client)
        made.run(_SETUP)
        yield made
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_recorded_cell_is_named_by_its_number(notebook: Notebook, tmp_path: Path) -> None:
    number, _ = notebook.run(
        f"with dynadiag.record({str(tmp_path / 'run.dynadiag')!r}) as path:\n"
        '    torch.compile(step, backend="eager")(torch.ones(3))'
    )
    assert "Not one graph" in notebook.run("opened = dynadiag.open(path)\nopened")[1]["text/html"]
    _, shown = notebook.run("print(opened.report())\nopened.breaks")
    report = shown["stdout"]
    assert "    --> In[1]:5:5" in report
    assert '5 |     print("seen")' in report
    assert f"= called: In[{number}]:2 in <module>" in report
    assert "ipykernel" not in report
    assert "cpu: the notebook" in report
    assert ">In[1]:5:5</td>" in shown["text/html"]
    _, files = notebook.run("print({item.span.file for item in opened.breaks}, opened.source('<In[1]>') is not None)")
    assert files["stdout"] == "{'<In[1]>'} True\n"


def test_the_magic_runs_a_cell_and_shows_its_report(notebook: Notebook) -> None:
    cell = '%%dynadiag --live\nstepped = torch.compile(step, backend="eager")(torch.ones(5))'
    _, shown = notebook.run(cell)
    assert "Not one graph: 1 graph break in the way." in shown["text/html"]
    assert shown["stdout"] == "seen\n"
    assert "compiling" in shown["stderr"]
    assert "step at In[1]:3" in shown["stderr"]
    assert notebook.run("stepped.shape")[1]["text/plain"] == "torch.Size([5])"


def test_the_magic_explains_a_cell_that_raises(notebook: Notebook) -> None:
    number, shown = notebook.run("%%dynadiag\ntorch.compile(step)(torch.ones(2), 1)")
    assert shown["error"].startswith("TypeError")
    assert f"The program raised TypeError at In[{number}]:2" in shown["text/plain"]
    assert notebook.run("1 / 0")[1]["error"].startswith("ZeroDivisionError")


@pytest.mark.parametrize("line", ["1 / 0", "return 3", "%nosuch", "raise KeyboardInterrupt"])
def test_a_cell_that_raises_fails_as_without_the_magic_so_that_no_cell_below_runs(
    notebook: Notebook, line: str
) -> None:
    plain, told = notebook.run(line)[1], notebook.run(f"%%dynadiag\n{line}")[1]
    assert told["failed"] == plain["failed"]
    for stream in ("error", "stderr"):  # shown once
        assert told.get(stream, "").count("\n") == plain.get(stream, "").count("\n")


def test_nothing_compiled_in_a_cell_is_not_said_of_a_call_of_older_code(notebook: Notebook, tmp_path: Path) -> None:
    path = str(tmp_path / "run.dynadiag")
    notebook.run('torch.compiler.reset()\nolder = torch.compile(step, backend="eager")\nolder(torch.ones(3))')
    notebook.run(f"%%dynadiag {path}\nolder(torch.ones(3))")
    report = notebook.run(f"print(dynadiag.open({path!r}).report())")[1]["stdout"]
    assert "compiled before the recording began" in report
    assert "No call reached" not in report
    notebook.run("torch.compiler.reset()")
    assert "compiled before" not in notebook.run("%%dynadiag\n1 + 1")[1]["text/html"]


def test_what_a_cell_returns_stays_the_notebooks(notebook: Notebook) -> None:
    notebook.run("%%dynadiag\ntorch.ones(7).shape")
    assert notebook.run("_")[1]["text/plain"] == "torch.Size([7])"


def test_an_exception_of_a_cell_has_no_frames_of_the_kernel(notebook: Notebook, tmp_path: Path) -> None:
    path = str(tmp_path / "run.dynadiag")
    notebook.run(f"%%dynadiag {path}\ndef fails():\n    1 / 0\nfails()")
    report = notebook.run(f"print(dynadiag.open({path!r}).report())")[1]["stdout"]
    assert "= called: In[" in report
    assert "site-packages" not in report


def test_a_cell_under_the_magic_is_called_by_nothing(notebook: Notebook, tmp_path: Path) -> None:
    path = str(tmp_path / "run.dynadiag")
    cell = 'torch.compiler.reset()\ntorch.compile(step, backend="eager")(torch.ones(3))'
    number, _ = notebook.run(f"%%dynadiag {path}\n{cell}")
    report = notebook.run(f"print(dynadiag.open({path!r}).report())")[1]["stdout"]
    assert [line.strip() for line in report.splitlines() if "= called:" in line or "in <module>" in line] == [
        f"= called: In[{number}]:3 in <module>"
    ]
    assert "more frames" not in report


def test_a_terminal_prints_the_report() -> None:
    program = """
        from IPython.terminal.interactiveshell import TerminalInteractiveShell
        shell = TerminalInteractiveShell.instance()
        shell.run_cell("import torch\\n%load_ext dynadiag")
        shell.run_cell("%%dynadiag\\ntorch.compile(lambda x: print(x), backend='eager')(torch.ones(3))")
    """
    told = subprocess.run([sys.executable, "-c", dedent(program)], check=True, capture_output=True, text=True)
    assert "\nhelp: " in told.stdout


def test_another_magic_may_stand_below_the_magic(notebook: Notebook) -> None:
    _, shown = notebook.run("%%dynadiag\n%%time\ntorch.compile(step, backend='eager')(torch.ones(6, 6)).shape")
    assert "Wall time" in shown["stdout"]
    assert "failed" not in shown


def test_a_cell_that_is_no_python_is_named(notebook: Notebook) -> None:
    number, shown = notebook.run("%%dynadiag\nreturn 3")
    assert f"The program raised SyntaxError at In[{number}]:2" in shown["text/plain"]


def test_an_error_of_ours_in_a_cell_is_the_cells(notebook: Notebook) -> None:
    _, shown = notebook.run(
        "%%dynadiag\ntorch.compile(step, backend='eager')(torch.ones(4))\ndynadiag.open('absent.dynadiag')"
    )
    assert shown["error"].startswith("UnreadableInput: absent.dynadiag")
    assert "UsageError" not in shown.get("stderr", "")
    assert "The program raised" in shown["text/plain"]


def test_a_cell_that_awaits_is_refused_with_what_works_instead(notebook: Notebook, tmp_path: Path) -> None:
    _, shown = notebook.run("import asyncio\nran = False")
    _, shown = notebook.run("%%dynadiag\nran = True\nawait asyncio.sleep(0)")
    assert "UsageError: the cell was not run: it awaits" in shown["stderr"]
    path = str(tmp_path / "run.dynadiag")
    _, shown = notebook.run(f"with dynadiag.record({path!r}):\n    await asyncio.sleep(0)\nran")
    assert shown["text/plain"] == "False"


@pytest.mark.parametrize("line", ["run.txt", "a.dynadiag b.dynadiag", "--lively", "/absent/run.dynadiag"])
def test_the_magic_refuses_what_it_cannot_do_in_one_line(notebook: Notebook, line: str) -> None:
    _, shown = notebook.run(f"%%dynadiag {line}\nran = True")
    assert "UsageError: " in shown["stderr"]
    assert "Traceback" not in shown["stderr"]


_MADE_AGAIN = """\
import json, subprocess, sys, tempfile
from pathlib import Path
from dynadiag.fixes.pickled_call import project_of_call
with tempfile.TemporaryDirectory() as folder:
    project = project_of_call(chosen, (torch.ones(3),), {}, Path(folder))
    name, = (file.name for file in Path(folder).iterdir() if "def chosen" in file.read_text())
    text = project.source(name).replace("x.sin()", "torch.cos(x) * json.three")
    with tempfile.TemporaryDirectory() as copy:
        root = project.copy_to(Path(copy)).root
        (root / name).write_text("import json\\nsetattr(json, 'three', 3)\\n" + text)
        call = "import dynadiag_call; fn, args, _ = dynadiag_call.call(); print(fn(*args).tolist(), fn.__code__)"
        done = subprocess.run([sys.executable, "-c", call], cwd=root, capture_output=True, text=True)
print(done.stdout, done.stderr)"""


def test_a_call_is_made_again_from_the_cells_that_it_needs(notebook: Notebook) -> None:
    notebook.run("SCALE = torch.full((), 2.0)\nclass Sizes:\n    low = SCALE\nsizes = Sizes()\nsizes.low = SCALE / 4")
    number, _ = notebook.run(
        "%%time\ndef chosen(x, sizes=sizes):\n    y = x.sin() * sizes.low\n    return y + Sizes.low\n"
        "raise SystemExit('what else is in the cell is not run again')"
    )
    said = notebook.run(_MADE_AGAIN)[1]["stdout"]
    value = 3 * math.cos(1) / 2 + 2
    assert json.loads(said.partition("]")[0] + "]") == pytest.approx([value] * 3), said
    assert f'/In[{number}].py", line 4' in said


def test_an_error_of_ours_is_one_line(notebook: Notebook, tmp_path: Path) -> None:
    _, shown = notebook.run(f"with dynadiag.record({str(tmp_path)!r}):\n    pass")
    assert shown["traceback"] == f"DynadiagError: record: {tmp_path} is a folder: name a file"


def test_a_call_that_no_cell_can_make_again_is_refused_by_the_name_of_what_it_uses(notebook: Notebook) -> None:
    notebook.run("handle = open('/dev/null')\ndef reads(x):\n    return x, handle")
    assert "`handle`, which the call uses, cannot be pickled" in notebook.run("dynadiag.fix(reads, 1)")[1]["error"]
    notebook.run("for _ in range(1):\n    def inner(x):\n        return x")
    assert "no cell of this notebook defines inner" in notebook.run("dynadiag.fix(inner, 1)")[1]["error"]


@pytest.mark.parametrize("ending", ["raise KeyboardInterrupt", "pass"])
def test_a_training_that_no_callback_sees_end_is_recorded_until_the_end_of_its_cell(
    notebook: Notebook, tmp_path: Path, ending: str
) -> None:
    paths = [str(tmp_path / name) for name in ("steps.dynadiag", "next.dynadiag")]
    notebook.run(
        "from dynadiag.integrations.step_recording import StepRecording\n"
        f"steps = StepRecording({paths[0]!r}, 1, 9, {{}})\n"
        "steps.begin_training(force=True)\n"
        "steps.before_step(1)\n"
        "torch.compiler.reset()\n"
        'torch.compile(step, backend="eager")(torch.ones(3))\n' + ending
    )
    _, shown = notebook.run(f"with dynadiag.record({paths[1]!r}):\n    pass\ndynadiag.open({paths[0]!r}).report()")
    assert "error" not in shown
    assert ("was interrupted" in shown["text/plain"]) == (ending != "pass")


def test_a_verdict_names_the_cell(notebook: Notebook) -> None:
    number, shown = notebook.run(
        "from dynadiag.api import _with_cells_named\nfrom dynadiag.bisection.verdict import Culprit, Verdict\n"
        "def relus(x):\n    return torch.relu(x) + 1\n"
        'culprit = Culprit("lowering", "relu", lines=((relus.__code__.co_filename, 4),))\n'
        '_with_cells_named(Verdict("found", {}, "inductor", culprits=(culprit,)))'
    )
    assert f"--> In[{number}]:4\n     |\n   4 |     return torch.relu(x) + 1" in shown["text/plain"]
