"""A failure in Dynamo is reduced to a few lines of source, by the command as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from dynadiag.bisection.budget import SearchBudget
from dynadiag.minify import source_minimizer, source_trials
from dynadiag.minify.minify_result import MinifyResult
from dynadiag.minify.source_match import same_failure_of_source, values_differ
from dynadiag.minify.source_program import read_program
from dynadiag.minify.source_trials import SourceTrials
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.program import Program
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits
from dynadiag.trial.typed_json import dump
from minifier.source import MergeError, SourceReduction, count_lines, count_tokens

UNSUPPORTED = """
import torch
from helpers import Scaler

def main():
    scaler = Scaler(2.0)
    step = torch.compile(scaler.run, backend="eager", fullgraph=True)
    for width in (2, 3):
        values = torch.ones(width)
        print("before", float(values.sum()))
        step(values)

if __name__ == "__main__":
    main()
"""
HELPERS = """
import torch

class Scaler:
    def __init__(self, factor):
        self.factor = factor
        self.calls = []

    def scaled(self, values):
        return values * self.factor

    def run(self, values):
        values = self.scaled(values)
        torch._dynamo.graph_break()
        return values + 1
"""


def _minify(folder: Path, program: str, *options: str) -> tuple[int, str, dict[str, Any], str]:
    target, repro, document = folder / "train.py", folder / "out" / "repro.py", folder / "out.json"
    repro.parent.mkdir()
    target.write_text(program)
    words = ["-o", str(repro), "--recording", str(folder / "m.dynadiag"), "--json", str(document), *options]
    command = [sys.executable, "-m", "dynadiag", "minify", *words, str(target)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500)
    data = json.loads(document.read_text()) if document.exists() else {}
    return done.returncode, repro.read_text() if repro.exists() else "", data, done.stderr


@pytest.mark.usefixtures("forked_interpreters")
def test_an_unsupported_call_two_modules_deep_becomes_a_few_lines(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS)
    code, text, data, told = _minify(tmp_path, UNSUPPORTED)
    assert code == 0, told
    assert (data["rung"], data["level"], data["proved"], data["minimal"]) == ("eager", "source", True, True)
    assert (data["lines_after"], data["tokens_after"]) == (count_lines(text), count_tokens(text))
    assert data["tokens_after"] <= 30
    assert data["nodes_after"] is None
    assert "torch._dynamo.graph_break()" in text
    assert str(tmp_path) not in text


def _failure(message: str, frame: str = "torch/_dynamo/x.py:1 in f", **other: Any) -> Signature:
    return Signature("exception", "Unsupported", message, cause="Unsupported", frames=(frame, "program"), **other)


def test_names_of_the_program_and_numbers_do_not_count() -> None:
    whole, small = (
        _failure("'Feature' object has no attribute '_value_' 3"),
        _failure("'A' object has no attribute '_value_' 5"),
    )
    assert same_failure_of_source(small, whole, "class A: pass", "class Feature: pass")
    assert not same_failure_of_source(small, whole, "pass", "class Feature: pass")


def test_names_that_a_message_does_not_quote_do_not_count() -> None:
    whole, small = (_failure(f"Recompiling function {name} in program.py:{n}") for name, n in (("loss", 116), ("f", 3)))
    assert same_failure_of_source(small, whole, "def f(): pass", "def loss(): pass")
    assert not same_failure_of_source(small, whole, "pass", "def loss(): pass")


def test_a_word_of_torchs_that_is_also_a_name_of_the_whole_program_does_not_count_against_a_smaller_one() -> None:
    message = _FAKE_CALL + "call_function as_tensor(*(), **{}): got RuntimeError('a non-zero number of elements')"
    assert same_failure_of_source(_failure(message), _failure(message), "pass", "number = 1")


def test_the_module_of_a_name_does_not_count() -> None:
    whole, small = (_failure(f"no key\n  Explanation: of `<class '{name}.Job'>`") for name in ("pkg.jobs", "__main__"))
    assert same_failure_of_source(small, whole, "class Job: pass", "class Job: pass")
    assert not same_failure_of_source(small, whole, "pass", "class Other: pass")


def test_what_an_export_lists_counts_and_numbers_in_it_do_not() -> None:
    said = "Constraints violated (n)!\n  - {} n as dynamic, but {}"
    constant, other, related = (
        _failure(said.format(*words), export="torch.export.export")
        for words in (("You marked", 1), ("You marked", 5), ("Not all", 2))
    )
    assert same_failure_of_source(other, constant, "", "")
    assert not same_failure_of_source(related, constant, "", "")


def test_another_raising_place_is_another_failure() -> None:
    here, there = _failure("no"), _failure("no", frame="torch/_dynamo/y.py:1 in g")
    assert not same_failure_of_source(there, here, "", "")


def test_another_operator_that_breaks_its_promise_is_another_failure() -> None:
    said = "expected size 2==2, stride 1==2 at dim=0\nError in op: torch.ops.moe.{}.default\nThis error"
    one, other = (_failure(said.format(name)) for name in ("gate_backward", "gate"))
    assert same_failure_of_source(one, one, "def gate(): pass", "def gate_backward(): pass")
    assert not same_failure_of_source(other, one, "def gate(): pass", "def gate_backward(): pass")


def test_a_recursion_without_end_through_other_frames_is_another_failure() -> None:
    message = "RecursionError: maximum recursion depth exceeded in comparison"
    asked, other = (
        Signature("exception", "E", message, frames=("torch/a.py:1 in f", "program", frame))
        for frame in ("torch/b.py:1 in g", "torch/c.py:1 in h")
    )
    assert same_failure_of_source(asked, asked, "", "")
    assert not same_failure_of_source(other, asked, "", "")


def test_helpers_that_raise_for_their_caller_do_not_count_as_the_place() -> None:
    helper = "torch/_dynamo/exc.py:9 in unimplemented"
    one, two = (
        Signature("exception", "Unsupported", "no", frames=(helper, f"torch/_dynamo/{name}.py:1 in f"))
        for name in ("x", "y")
    )
    assert not same_failure_of_source(one, two, "", "")
    assert same_failure_of_source(one, one, "", "")


_OBSERVED = "Observed exception\n  Developer debug context: raised exception "
_FAKE_CALL = "RuntimeError when making fake tensor call\n  Explanation: failed to run FX node with fake tensors: "


@pytest.mark.parametrize(
    ("asked", "same", "other"),
    [
        (
            _FAKE_CALL + "call_function <method cat at 0x7f2f>(*([a],), **{}): got RuntimeError('size [3] of 3')",
            _FAKE_CALL + "call_function <method cat at 0x1>(*([b],), **{}): got RuntimeError('size [4, 5] of 20')",
            _FAKE_CALL + "call_function <function matmul>(*(a, b), **{}): got RuntimeError('size [3] of 3')",
        ),
        (
            _FAKE_CALL + "call_method view(*(x, 17), **{}): got RuntimeError(\"shape '[17]' is invalid\")",
            _FAKE_CALL + "call_method view(*(y, 3), **{}): got RuntimeError(\"shape '[3]' is invalid\")",
            _FAKE_CALL + "call_method view(*(x, 17), **{}): got TypeError('not a size')",
        ),
        (
            _OBSERVED + "TypeError(\"unsupported operand type(s) for +: 'int' and 'NoneType'\")",
            _OBSERVED + "TypeError(\"unsupported operand type(s) for +: 'str' and 'NoneType'\")",
            _OBSERVED + "TypeError(\"'int' object is not iterable\")",
        ),
        (
            _OBSERVED + "TypeError('object of type int has no len()')",
            _OBSERVED + "TypeError('object of type int has no len()')",
            _OBSERVED + "TypeError('unhashable type')",
        ),
        (_OBSERVED + "KeyError('left')", _OBSERVED + "KeyError('a')", _OBSERVED + "IndexError('a')"),
        (
            "Unsupported\n  Explanation: cannot trace the builtin `_thread.lock` of 3",
            "Unsupported\n  Explanation: cannot trace the builtin `_thread.lock` of 5",
            "Unsupported\n  Explanation: cannot trace the builtin `_socket.socket` of 3",
        ),
    ],
)
def test_what_the_explanation_is_about_is_a_part_of_the_failure(asked: str, same: str, other: str) -> None:
    assert same_failure_of_source(_failure(same), _failure(asked), "", "")
    assert not same_failure_of_source(_failure(other), _failure(asked), "", "")


def test_a_failing_assertion_of_the_program_keeps_its_message_if_that_is_asked() -> None:
    one, two = (Signature("exception", "AssertionError", text, frames=("program",)) for text in ("leaked", "lost"))
    assert not same_failure_of_source(two, one, "", "")
    assert same_failure_of_source(two, one, "", "", own_words=False)


def test_outputs_that_differ_in_words_are_another_failure_than_outputs_that_differ_in_values() -> None:
    assert values_differ("total tensor([1., -2.e-05]) True", "total tensor([1.5000, -2.e-05]) True")
    assert values_differ("x.is_leaf True", "x.is_leaf False")
    assert not values_differ("<function f.<locals>.g at 0x>, MulBackward0", "<function h at 0x>, AddBackward1")


def test_candidates_have_copies_of_the_data_files_that_the_program_names(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "size.txt").write_text("3")
    (tmp_path / "unnamed.txt").write_text("4")
    (tmp_path / "train.py").write_text("n = int(open('data/size.txt').read())\nopen('missing.txt')\n")
    source = read_program(Program(str(tmp_path / "train.py")))
    assert source.files == {"data/size.txt": tmp_path / "data" / "size.txt"}
    runner = MagicMock()
    runner.scratch = tmp_path
    with SourceTrials(MagicMock(), runner, source.text, None, files=source.files)._file("pass") as file:
        assert (file.parent / "data" / "size.txt").read_text() == "3"
        (file.parent / "data" / "size.txt").write_text("5")
    assert (tmp_path / "data" / "size.txt").read_text() == "3"


def test_relative_imports_of_a_packages_main_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suite" / "parts").mkdir(parents=True)
    files = {"__init__": "V = 1", "data": "D = 2", "parts/__init__": "from .one import P", "parts/one": "P = 3"}
    for name, text in files.items():
        (tmp_path / "suite" / f"{name}.py").write_text(text)
    (tmp_path / "suite" / "__main__.py").write_text("from . import V, data\nfrom .parts import P\nprint(V, data.D, P)")
    monkeypatch.chdir(tmp_path)
    text = read_program(Program("suite", module=True)).text
    assert "import" not in text
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout == "1 2 3\n"


def test_a_module_that_has_no_python_source_is_refused() -> None:
    with pytest.raises(MergeError, match="has no Python source"):
        read_program(Program("itertools", module=True))


@pytest.mark.parametrize("kind", ["FileNotFoundError", None])
def test_what_the_program_lacks_as_one_file_is_told(kind: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = None if kind is None else Signature("exception", kind, "No such file: 'data.txt'\nmore", cause=kind)
    monkeypatch.setattr(SourceTrials, "run", lambda *_: Outcome(found))
    trials = SourceTrials(*3 * (MagicMock(),), _failure("no"))
    assert trials.first_failure("open('data.txt')") is None
    told = "it passes" if kind is None else "it fails with FileNotFoundError: No such file: 'data.txt'"
    assert trials.notes == [f"as one file in an empty folder, {told}"]


def test_candidates_that_take_far_longer_than_the_smallest_program_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {"compiled": Outcome(_failure("no"), cpu_seconds=2.0), "uncompiled": Outcome(cpu_seconds=3.0)}
    monkeypatch.setattr(SourceTrials, "run", lambda _self, _text, _plan, label: ends[label])
    search = MagicMock(budget=SearchBudget())
    search.runner.limits = Limits(seconds=600.0, memory=0)
    trials = SourceTrials(search, search.runner, "", _failure("no"))
    assert trials.fails("f()")
    assert trials.runner.limits.seconds == 12.0
    ends["compiled"], ends["uncompiled"] = Outcome(_failure("no"), cpu_seconds=0.2), Outcome(cpu_seconds=0.1)
    assert trials.fails("g()")
    assert trials.runner.limits.seconds == 0.8
    ends["compiled"] = Outcome(_failure("no"), cpu_seconds=1.9)
    assert trials.fails("h()")
    assert trials.runner.limits.seconds == 0.8


def test_a_candidate_whose_kernel_is_in_no_cache_yet_is_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that is in the cache needs no C++ compiler."""
    ends = {"compiled": Outcome(_failure("no"), cpu_seconds=0.2), "uncompiled": Outcome(cpu_seconds=0.1)}
    monkeypatch.setattr(SourceTrials, "run", lambda _self, _text, _plan, label: ends[label])
    search = MagicMock(budget=SearchBudget())
    search.runner.limits = Limits(seconds=600.0, memory=0)
    trials = SourceTrials(search, search.runner, "", _failure("no"), rung="inductor")
    assert trials.fails("f()")
    assert trials.runner.limits.seconds >= 10.0


@pytest.mark.parametrize("ended", ["interrupted", "out_of_time"])
def test_the_best_so_far_of_what_is_printed_becomes_an_assertion_after_the_end(
    ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that prints something else is no repro, so all that was reduced would be lost."""
    monkeypatch.setattr(source_minimizer, "_asserting_programs", lambda *_: ["assert f() == 1"])
    monkeypatch.setattr(SourceTrials, "_fails", lambda *_: True)
    search = MagicMock(budget=SearchBudget())
    trials = SourceTrials(search, search.runner, "", source_trials.OUTPUT_DIFFERS)
    setattr(trials, ended, True)
    found = source_minimizer._with_assertion(trials, SourceReduction("print(f())", minimal=False))
    assert found is not None
    assert found.text.strip() == "assert f() == 1"
    assert trials.stopped


def test_what_ran_ahead_is_not_run_again() -> None:
    search = MagicMock(budget=SearchBudget())
    search.runner.limits = Limits(seconds=600.0, memory=0)
    search.runner.scratch = None
    search.runner.run_programs.side_effect = lambda _, places: [Outcome(_failure("no"))] * len(places)
    trials = SourceTrials(search, search.runner, "", _failure("no"))
    trials.run_ahead(["f()", "g()"])
    trials.run_ahead(["f()", "g()"])
    assert not trials.fails("f()")  # uncompiled too it fails
    runs = [(plan.rung, len(places)) for plan, places in (call.args for call in search.runner.run_programs.mock_calls)]
    assert runs == [("eager", 2), ("uncompiled", 1)]


def test_after_the_budget_only_trials_of_the_resumed_search_count(monkeypatch: pytest.MonkeyPatch) -> None:
    search = MagicMock(budget=SearchBudget())
    search.runner.limits = Limits(seconds=600.0, memory=0)
    ends = {"compiled": Outcome(_failure("no")), "uncompiled": Outcome()}
    search.runner.run_programs.side_effect = lambda plan, _: [
        ends["compiled" if plan.rung == "eager" else "uncompiled"]
    ]
    search.runner.scratch = None
    first = SourceTrials(search, search.runner, "", _failure("no"))
    assert first.fails("known()")
    known = {call.args[0]: dump(call.args[1]) for call in search.log.add.call_args_list}
    search.budget = SearchBudget(-1.0)
    resumed = SourceTrials(search, search.runner, "", _failure("no"), known=known)
    assert resumed.fails("known()")
    assert (resumed.cached, resumed.stopped) == (2, False)
    assert not resumed.fails("new()")
    assert resumed.stopped


def test_the_header_of_an_exception_without_words_ends_in_its_type() -> None:
    base = MinifyResult("reduced", rung="eager", torch="2.13.0")
    lines = source_minimizer.header(base, _failure("")).splitlines()
    assert lines[1] == "# Unsupported"
    assert source_minimizer.header(base, _failure("no")).splitlines()[1] == "# Unsupported: no"


@pytest.mark.parametrize(("forks", "budget", "ends"), [(False, None, True), (True, None, False), (False, 900.0, False)])
def test_where_each_trial_is_a_fresh_interpreter_the_reduction_ends_with_what_it_has(
    *, forks: bool, budget: float | None, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_trials, "_FRESH_LEAST", -1.0)
    monkeypatch.setattr(source_trials, "_FRESH_FACTOR", 0.0)
    search = MagicMock(budget=SearchBudget(budget))
    search.runner.limits = Limits(seconds=600.0, memory=0)
    search.runner.scratch = None
    search.runner.has_forks = forks
    search.runner.run_programs.side_effect = lambda plan, _: [Outcome(_failure("no") if plan.rung == "eager" else None)]
    trials = SourceTrials(search, search.runner, "", _failure("no"))
    assert trials.first_failure("whole()") is not None
    assert trials.fails("part()") is not ends
    assert (trials.stopped, bool(trials.notes)) == (ends, ends)
    trials.use_kept_time()
    assert trials.fails("part()")


def test_the_last_trials_may_use_what_is_kept_for_the_proof() -> None:
    search = MagicMock(budget=SearchBudget(100.0))
    search.budget.keep_back(200.0)
    trials = SourceTrials(search, MagicMock(), "", _failure("no"), out_of_time=True)
    trials.use_kept_time()
    assert not trials.stopped


ENDLESS_FAKE = """
import torch

@torch.library.custom_op("shop::tile", mutates_args=())
def tile(x: torch.Tensor) -> torch.Tensor:
    return x.repeat(2)

@tile.register_fake
def _(x):
    size = x.shape[0]
    while not isinstance(size, int):
        size = size + 1 - 1
    return x.new_empty(size * 2)

def model(x):
    return (torch.ops.shop.tile(x.sin() + 1) * 2).sum()

compiled = torch.compile(model)
for rows in (4, 5):
    print(compiled(torch.ones(rows)))
"""


@pytest.mark.slow
def test_a_hang_while_sizes_are_symbols_names_the_backend_that_is_enough_in_the_last_of_its_time(
    tmp_path: Path,
) -> None:
    code, text, data, told = _minify(tmp_path, ENDLESS_FAKE, "--timeout", "10", "--budget", "120")
    assert code == (0 if data["proved"] else 6), told  # a busy machine does not end the proof
    assert (data["rung"], data["failure"]["kind"], data["level"]) == ("eager", "hang", "source")
    assert "backend='eager'" in text, told


@pytest.mark.parametrize(
    ("stopped", "enough", "text", "notes"),
    [
        (False, "f(700)\n", "f(700)\n", ()),
        (False, "", "f(7)", ("the repro takes less than 45 s",)),
        (True, "", "f(7)", ()),
    ],
)
def test_a_repro_of_a_hang_is_short_only_where_longer_ones_were_tried(
    monkeypatch: pytest.MonkeyPatch, stopped: bool, enough: str, text: str, notes: tuple[str, ...]
) -> None:
    tried: list[str] = []

    class Trials(SourceTrials):
        def __init__(self) -> None:
            self.interrupted, self.out_of_time = False, stopped

        def limit_seconds(self, seconds: float, most: float | None = None) -> None:
            pass

        def fails(self, text: str) -> bool:
            tried.append(text)
            return text == enough

    monkeypatch.setattr(source_minimizer, "read_program", MagicMock())
    monkeypatch.setattr(source_minimizer, "source_trials", lambda *_: nullcontext(Trials()))
    hang = Signature("hang", "hang", "timeout")
    ended = MinifyResult("reduced", text="f(7)", rung="eager", failure=hang, reduced=hang)
    longer = source_minimizer.enlarge_hang(MagicMock(), ended)
    assert longer.text.endswith(text)
    assert longer.notes == notes
    assert tried[:2] == ["f(70)\n", "f(700)\n"]
