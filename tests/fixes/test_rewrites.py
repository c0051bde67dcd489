"""The catalogue: what each rewrite makes of a piece of source, and which places it leaves alone."""

from __future__ import annotations

import collections
import enum
import importlib
import logging
import random
import re
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter, CompileCounterWithBackend

from dynadiag.fixes.candidate import Candidate, Refusal, Sources
from dynadiag.fixes.edits import Edit, apply_edits
from dynadiag.fixes.rewrites import CATALOGUE, effects
from dynadiag.fixes.rewrites.dynamic_sizes import dynamic_compiles
from dynadiag.recording.records import Frame, Span
from tests.fixes.build import HEAD, candidates, changed, considered, problem_at, project_of, recompile_of


def one(text: str, marked: str, tmp_path: Path, **fields: object) -> list[str]:
    """The lines that each candidate for a break adds."""
    made = changed(text, candidates(text, problem_at(text, marked, **fields), tmp_path))
    return ["\n".join(line.strip() for line in each.splitlines() if line not in text.splitlines()) for each in made]


ORDER = "_ORDER = torch.empty(0)  # each operator with an effect writes to it, by which they keep their order\n"


def operator_text(name: str) -> str:
    """The lines that are added for an operator with an effect that gets no value, but for its statement."""
    return (
        f'{ORDER}@torch.library.custom_op(\n"f::{name}",\nmutates_args=("order",),\n'
        'schema="(Tensor(a!) order) -> ()",\ntags=(torch.Tag.cudagraph_unsafe,),\n)\n'
        f"def {name}(order):\n{name}.register_fake(lambda order: None)\n"
    )


PRINTS = {
    'print(f"{x.shape[0]:>4} of {n!r} {{}}")': 'torch._higher_order_ops.print("{:>4} of {!r} {{}}", x.shape[0], n)',
    "print('a\"b', n)": "torch._higher_order_ops.print('a\"b {}', n)",
    'print("50% {done}")': 'torch._higher_order_ops.print("50% {{done}}")',
    'print(f"line\\n{n}")': 'torch._higher_order_ops.print("line\\n{}", n)',
    "print(f'\"a\\\" {n}')": "torch._higher_order_ops.print('\"a\" {}', n)",
    'print(f"\\x1b[1m\\t{n}\\\\")': 'torch._higher_order_ops.print("\\x1b[1m\\t{}\\\\", n)',
    'print("a\\rb", n)': 'torch._higher_order_ops.print("a\\rb {}", n)',
}


@pytest.mark.parametrize("call", PRINTS)
def test_a_print_becomes_reorderable_or_an_operator(call: str, tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, n):\n    {call}\n    return x\n"
    (first, *_, last) = one(text, call, tmp_path)
    assert [first, last] == ["torch._dynamo.config.reorderable_logging_functions.add(print)", PRINTS[call]]


def test_a_file_that_does_not_import_torch_gets_the_import(tmp_path: Path) -> None:
    text = "def note(x):\n    print('rows', x.shape)\n\n\ndef f(x):\n    note(x)\n    return x\n"
    made = changed(text, candidates(text, problem_at(text, "print('rows', x.shape)"), tmp_path))
    assert made
    assert all(re.search(r"^import torch(\._dynamo\.\w+)?$", each, re.M) for each in made if "torch." in each)


def test_each_number_of_a_list_is_checked(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, lengths):\n    sizes = lengths.tolist()\n    return torch.split(x, sizes)\n"
    hint = "Consider setting `torch._dynamo.config.capture_scalar_outputs = True`"
    found = candidates(text, problem_at(text, "lengths.tolist()", hints=(hint,)), tmp_path)
    (made,) = changed(text, [each for each in found if "not negative" in each.title])
    assert "tolist()\n    for each in sizes:\n        torch._check(each >= 0)\n" in made


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("y = x[best]", "y = x[best.reshape(1)][0]"),
        ("y = x[best, 0]", "y = x[best.reshape(1), 0][0]"),
        ("y = x[-1, order[0]]", "y = x[-1, order[0].reshape(1)][0]"),
        ("y = x[:, best + 1]", "y = x[:, (best + 1).reshape(1)].squeeze(1)"),
        ("y = x[a, b, 1:]", "y = x[a.reshape(1), b.reshape(1), 1:].squeeze(0)"),
        ("x[best] = y", "x[best.reshape(1)] = y"),
        ("x[best] -= y", "x[best.reshape(1)] -= y"),
        ("x[:, best] = y", None),
        ("y = x[0, :, best]", None),
        ("y = x[..., best]", None),
        ("y = x[None, best]", None),
        ("y = x[:best]", None),
        ("y = x[0]", None),
        ("del x[best]", None),
    ],
)
def test_an_index_that_is_read_as_a_number_gets_one_dimension(text: str, becomes: str | None, tmp_path: Path) -> None:
    source = f"{HEAD}def f(x, y, a, b, best, order):\n    {text}\n    return x\n"
    marked = text[text.index("x[") : text.rindex("]") + 1]
    found = candidates(source, problem_at(source, marked, gb_id="GB0033"), tmp_path)
    made = changed(source, [each for each in found if each.title == "give the index one dimension"])
    assert made == ([] if becomes is None else [source.replace(text, becomes)])


def test_what_a_print_formats_itself_is_formatted_before(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    print('shape', tuple(x.shape), x.dtype)\n    return x\n"
    made = one(text, "print('shape', tuple(x.shape), x.dtype)", tmp_path)
    assert made[1].endswith('print(\'shape\', f"{tuple(x.shape)}", f"{x.dtype}")')


ATTENTION = f"""{HEAD}def f(q, k, v, bounds, attend):
    lengths = bounds[1:] - bounds[:-1]
    parts = [torch.split(each, lengths.tolist(), dim=2) for each in (q, k, v)]
    outs = [attend(a, b, c, attention_mask=None, dim=a)[0] for a, b, c in zip(*parts)]
    out = torch.cat(outs, dim=2)
    return out
"""
EXPERTS = f"""{HEAD}def f(x, weights, index, experts):
    mask = torch.nn.functional.one_hot(index, num_classes=4).permute(2, 1, 0)
    # Which experts have tokens.
    hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    out = torch.zeros_like(x)
    for e in hit:
        # It has one element.
        e = e[0]
        # Its tokens.
        choice, token = torch.where(mask[e])
        state = experts[e](x[None, token].reshape(-1, 4))
        out.index_add_(0, token, state * weights[token, choice, None])
    return out
"""
SETUP = f"""{HEAD}def setup(model):
    \"\"\"Once.\"\"\"
    if getattr(model, "done", False):
        return

    with LOCK:
        model.done = True
"""


def test_segments_are_attended_to_at_once(tmp_path: Path) -> None:
    text = changed(ATTENTION, candidates(ATTENTION, problem_at(ATTENTION, "lengths.tolist()"), tmp_path))[0]
    space: dict[str, Any] = {}
    exec(text, space)
    own: dict[str, Any] = {}
    exec(ATTENTION, own)

    def attend(q: Any, k: Any, v: Any, attention_mask: Any = None, dim: Any = None) -> tuple[torch.Tensor]:
        assert dim is q
        scores = q @ k.transpose(-1, -2)
        return ((scores if attention_mask is None else scores + attention_mask).softmax(-1) @ v,)

    q, k, v = (torch.randn(1, 2, 7, 3) for _ in range(3))
    for bounds in ([0, 2, 7], [0, 7], [0, 3, 3, 7]):
        ends = torch.tensor(bounds, dtype=torch.int32)
        torch.testing.assert_close(space["f"](q, k, v, ends, attend), own["f"](q, k, v, ends, attend))
    for made in (own, space):
        with pytest.raises(RuntimeError):
            made["f"](q, k, v, torch.tensor([0, 3]), attend)


@pytest.mark.parametrize(
    "other", ["dim=1, attention_mask=mask", "attention_mask=None)[0] for a, b, c in zip(*parts) if a"]
)
def test_segments_of_another_form_stay(other: str, tmp_path: Path) -> None:
    text = ATTENTION.replace("attention_mask=None, dim=a", other.partition(")")[0])
    text = text.replace("zip(*parts)]", "zip(*parts) if a]") if "if a" in other else text
    found = candidates(text, problem_at(text, "lengths.tolist()"), tmp_path)
    assert not any("segments" in each.title for each in found)


def test_each_expert_is_computed_on_all_tokens(tmp_path: Path) -> None:
    """A token may choose one expert twice. An infinite token leaves the gradients of other experts finite."""
    (text,) = changed(EXPERTS, candidates(EXPERTS, problem_at(EXPERTS, "torch.where(mask[e])"), tmp_path)[:1])
    assert [line.strip() for line in text.splitlines() if "#" in line] == ["# Its tokens."]
    x, index = torch.randn(6, 4), torch.tensor([[0, 1], [1, 0], [0, 3], [3, 1], [0, 0], [2, 3]])
    x[5, 2] = float("inf")
    results = []
    for source in (EXPERTS, text):
        space: dict[str, Any] = {}
        exec(source, space)
        experts = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(4))
        for number, each in enumerate(experts.parameters()):
            torch.nn.init.normal_(each, generator=torch.manual_seed(number))
        out = space["f"](x, torch.rand(6, 2, generator=torch.manual_seed(0)), index, experts)
        out.sum().backward()
        results.append([out, *(each.grad for each in experts.parameters())])
    torch.testing.assert_close(*results, equal_nan=True)
    assert results[0][1].isfinite().all()


@pytest.mark.parametrize(
    ("text", "other"),
    [("return out", "return out, hit"), ("out.index_add_(0, token,", "out.index_add_(0, choice,")],
)
def test_a_loop_that_does_more_with_the_tokens_of_an_expert_stays(text: str, other: str, tmp_path: Path) -> None:
    source = EXPERTS.replace(text, other)
    found = candidates(source, problem_at(source, "torch.where(mask[e])"), tmp_path)
    assert not any("expert" in each.title for each in found)


RANGES = f"""{HEAD}def f(x, ends, weights):
    out = torch.zeros(x.shape[0], 3)
    for i in range(weights.shape[0]):
        start = ends[i]
        end = ends[i + 1]
        rows = x[start:end]
        result = rows @ weights[i]
        out[start:end] = result
    return out
"""


def test_rows_between_bounds_are_kept_of_all_rows(tmp_path: Path) -> None:
    (text,) = changed(RANGES, candidates(RANGES, problem_at(RANGES, "x[start:end]"), tmp_path)[:1])
    made: list[dict[str, Any]] = [{}, {}]
    exec(text, made[0])
    exec(RANGES, made[1])
    torch._dynamo.reset()
    made[0]["f"] = torch.compile(made[0]["f"], backend="eager", fullgraph=True)
    for ends in ([0, 2, 2, 5], [0, 0, 4, 9], [1, 3, 3, 3]):
        results = []
        for each in made:  # an infinite row leaves the gradient of other weights finite
            x, weights = torch.arange(20.0).view(5, 4), torch.ones(3, 4, 3, requires_grad=True)
            out = each["f"](x.where(x < 17, float("inf")), torch.tensor(ends), weights)
            results.append([out, *torch.autograd.grad(out.sum(), weights)])
        torch.testing.assert_close(*results)
    for other in (
        ("return out", "return out, start"),
        ("out = torch.zeros(x.shape[0], 3)", "out = x"),
        ("out[start:end] =", "out[start:] ="),
        ("rows @ weights[i]", "rows @ weights[i] + end"),
    ):
        text = RANGES.replace(*other)
        found = candidates(text, problem_at(text, "x[start:end]"), tmp_path)
        assert any("all rows" in each.title for each in found) == (other[0] == "return out")


def test_a_setup_is_called_while_torch_compiles(tmp_path: Path) -> None:
    (text,) = changed(SETUP, candidates(SETUP, problem_at(SETUP, "with LOCK"), tmp_path)[:1])
    space: dict[str, Any] = {"LOCK": threading.Lock()}
    exec(text, space)
    model = torch.nn.Linear(2, 2)

    def step(x: torch.Tensor) -> torch.Tensor:
        space["setup"](model)
        return model(x) if model.done else x

    x = torch.ones(2)
    torch.testing.assert_close(torch.compile(step, backend="eager", fullgraph=True)(x), model(x))
    assert model.done is True
    others = [torch.nn.Linear(2, 2) for _ in range(2)]

    def steps(x: torch.Tensor) -> None:
        for other in others:
            torch._dynamo.graph_break()  # each call of `setup` is compiled code of its own, which all objects share
            space["setup"](other)

    torch.compile(steps, backend="eager")(x)
    assert [other.done for other in others] == [True, True]
    for old, new in (("        return\n", "        return 1\n"), ("if getattr", "x = 1\n    if getattr")):
        text = SETUP.replace(old, new)
        assert not any(
            "while torch" in each.title for each in candidates(text, problem_at(text, "with LOCK"), tmp_path)
        )


def test_torch_is_imported_once_and_only_where_a_change_needs_it(tmp_path: Path) -> None:
    local = "def f(x):\n    import torch\n\n    torch._check_tensor_all(x)\n    return x\n"
    (text,) = changed(local, candidates(local, problem_at(local, "torch._check_tensor_all(x)"), tmp_path)[:1])
    assert text == local.replace("torch._check_tensor_all(x)", "torch._assert_async(x.all())")
    below = "def f(x, torch):\n    torch._check_tensor_all(x)\n    import torch\n    return x\n"
    (text,) = changed(below, candidates(below, problem_at(below, "torch._check_tensor_all(x)"), tmp_path)[:1])
    assert text.startswith("import torch\n")
    without = SETUP.removeprefix(HEAD)
    (text,) = changed(without, candidates(without, problem_at(without, "with LOCK"), tmp_path)[:1])
    assert text.count("import torch") == 1


def test_no_gradient_is_asked_for_of_a_value_that_the_function_makes(tmp_path: Path) -> None:
    source = f"{HEAD}def f(x):\n    return torch.zeros_like(x).requires_grad_() + x\n"
    (text,) = changed(
        source, candidates(source, problem_at(source, "torch.zeros_like(x).requires_grad_()"), tmp_path)[:1]
    )
    assert "return torch.zeros_like(x) + x" in text
    for other in ("requires_grad_(False)", "requires_grad_(flag)"):
        text = source.replace("requires_grad_()", other)
        found = candidates(text, problem_at(text, f"torch.zeros_like(x).{other}"), tmp_path)
        assert not any("leave out" in each.title for each in found)


GRID = f"""{HEAD}class Grid:
    step = 2

    def ids(self, grid, size, extra=None):
        \"\"\"The places.\"\"\"
        if extra is not None and (given := extra.get("ids")) is not None:
            return given
        found = []
        for h, w in grid.tolist():
            found.append(torch.arange(h * w).reshape(h, w)[:: self.step].flatten() + size)
        return torch.cat(found)


GRID = Grid()


def f(x, grid):
    return x[GRID.ids(grid, 1) % 4] * 2
"""


ROPE = """import torch


def update(self, x):
    length, device = x.max() + 1, x.device
    if length > self.limit:
        if not hasattr(self, "long"):
            self.long, _ = self.make(device, self.limit)
        self.register_buffer("scale", self.long, persistent=False)
    else:
        # it may have moved
        self.short = self.short.to(device)
        self.register_buffer("scale", self.short, persistent=False)
"""


class Rope(torch.nn.Module):
    update: ClassVar[Callable[[Rope, torch.Tensor], None]]

    def __init__(self) -> None:
        super().__init__()
        self.limit, self.made = 5, 0
        self.register_buffer("scale", torch.ones(1), persistent=False)
        self.short = self.scale

    def make(self, device: torch.device, size: int) -> tuple[torch.Tensor, float]:
        self.made += 1
        return torch.full((1,), float(size), device=device), 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.update(x)
        return x * self.scale


def test_a_buffer_that_a_branch_chooses_is_chosen_in_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = changed(ROPE, candidates(ROPE, problem_at(ROPE, "length > self.limit", function="update"), tmp_path))
    Path(tmp_path, "rope.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Rope, "update", importlib.import_module("rope").update, raising=False)
    model = Rope()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        results = [compiled(torch.tensor([value])).item() for value in (1.0, 9.0, 2.0)]
    assert (results, model.made) == ([1.0, 45.0, 2.0], 1)
    assert model.short.item() == 1.0
    assert not model.state_dict()
    assert [Rope()(torch.tensor([value])).item() for value in (1.0, 9.0)] == [1.0, 45.0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        # it may", "        self.count = 1\n        # it may"),
        ('"scale", self.short', '"other", self.short'),
        ("import torch\n", "import torch\n\nSEEN = hasattr(torch, 'long')\n"),
        ('if not hasattr(self, "long")', "if self.late"),
        ("self.short.to(device)", "self.first.to(device)"),
    ],
)
def test_a_buffer_is_not_chosen_where_a_side_does_more(old: str, new: str, tmp_path: Path) -> None:
    text = ROPE.replace(old, new)
    assert text != ROPE
    assert not candidates(text, problem_at(text, "length > self.limit", function="update"), tmp_path)


@pytest.mark.parametrize("before", ["x.add_(1)", "x[0] = 1", "self.seen = x", "x += 1", "y = x.sin()"])
def test_the_side_that_raises_need_not_be_seen_where_nothing_was_written(before: str, tmp_path: Path) -> None:
    text = (
        f"{HEAD}def f(self, x):\n    {before}\n    if x.sum() > 9:\n        raise ValueError('large')\n    return x\n"
    )
    within, after = candidates(text, problem_at(text, "x.sum() > 9"), tmp_path)
    assert within.conditions[0].sides == ((False,) if "y" in before else (True, False))
    assert after.conditions[0].sides == (True, False)


SIZES = f"""{HEAD}def f(x, given):
    shapes = torch.as_tensor([(2, 3), (1, 4)], device=x.device)
    starts = torch.cat((shapes.new_zeros((1,)), shapes.prod(1).cumsum(0)[:-1]))
    return g(x, shapes, starts)


def g(x, shapes, starts):
    places, lengths = [], [None] * 2
    for level, (h, w) in enumerate(shapes):
        places.append(torch.linspace(0.5, h - 0.5, h, device=x.device)[:, None] * torch.ones(w))
    for level in range(2):
        lengths[level] = starts[level + 1] - starts[level] if level == 0 else len(x) - starts[level]
    first, _ = torch.split(x, lengths)
    x = x[: sum([h * w for h, w in shapes])]
    return first.view(shapes[0][0], shapes[0][1]) * places[0]
"""
READS = (
    "torch.linspace(0.5, h - 0.5, h, device=x.device)",
    "torch.split(x, lengths)",
    "x[: sum([h * w for h, w in shapes])]",
    "first.view(shapes[0][0], shapes[0][1])",
)


def _with_numbers(text: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """The names of the text as a module, with the numbers in place of each tensor that sizes are read from."""
    found = [each for marked in READS for each in candidates(text, problem_at(text, marked, gb_id="GB0033"), folder)]
    edits = {edit for each in found if each.title.startswith("use the numbers") for edit in each.edits}
    return _module(apply_edits({"f.py": text}, edits)["f.py"], monkeypatch, folder)


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("dynamic", [None, False])
def test_numbers_that_the_graph_makes_of_constants_are_known(
    backend: str, dynamic: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    f = _with_numbers(SIZES, monkeypatch, tmp_path)["f"]
    compiled, x = torch.compile(f, backend=backend, fullgraph=True, dynamic=dynamic), torch.randn(10)
    torch.testing.assert_close(compiled(x, None), f(x, None))
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x, None), f(x, None))


@pytest.mark.parametrize("marked", ["x[:, n : n + h * w]", "n : n + h * w", "int(h)"])
def test_sizes_that_a_loop_gives_are_known_where_it_takes_them_from(marked: str, tmp_path: Path) -> None:
    text = (
        f"{HEAD}def f(x, sizes):\n    n = 0\n    for level, (h, w) in enumerate(sizes):\n"
        "        y = x[:, n : n + h * w].view(-1, int(h))\n        n += h * w\n    return y\n"
    )
    found = candidates(text, problem_at(text, marked, gb_id="GB0124"), tmp_path)
    (made,) = changed(text, [each for each in found if each.title.startswith("use the numbers")])
    assert "in enumerate(_known_numbers(sizes)):\n        y = x[:, n : n + h * w].view(-1, int(h))\n" in made


def test_calls_that_break_one_behind_the_other_are_changed_together(tmp_path: Path) -> None:
    text = (
        f"{HEAD}def f(x, h, w):\n    a = torch.arange(0, h) / h\n    b = torch.arange(0, w)\n    return a, x.view(b)\n"
    )
    found = candidates(text, problem_at(text, "torch.arange(0, h)", gb_id="GB0033"), tmp_path)
    (made,) = changed(text, [each for each in found if each.title.startswith("use the numbers")])
    assert "    a = torch.arange(0, _known_numbers(h)) / h\n    b = torch.arange(0, _known_numbers(w))\n" in made


def test_a_mask_that_the_function_makes_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        f"{HEAD}def f(x, mask):\n    if mask is None:\n        mask = torch.ones(x.shape[:1])\n"
        "    mask = (1.0 - nn.functional.pad(mask, (0, 2))[:, None]) * -9.0\n"
        "    some = (mask > 0).flatten().any().item()\n    return x * 2 if some else x * 3\n"
    )
    found = candidates(text, problem_at(text, "(mask > 0).flatten().any().item()", gb_id="GB0124"), tmp_path)
    (made,) = changed(text, [each for each in found if each.title.startswith("use the numbers")])
    f, x, mask = _module(made, monkeypatch, tmp_path)["f"], torch.randn(3), torch.ones(3)
    graphs = CompileCounter()
    compiled = torch.compile(f, backend=graphs)
    assert [torch.equal(compiled(x, None), x * 3), graphs.frame_count] == [True, 1]
    assert [torch.equal(compiled(x, 2 * mask), x * 2), graphs.frame_count] == [True, 3]


@pytest.mark.parametrize(
    "made",
    [
        "torch.as_tensor([(2, 3), (1, 4)]) + given",
        "torch.randint(2, 3, (2, 2))",
        "torch.as_tensor([(2, 3), (1, 4)]).clone().fill_(2)",
        "torch.empty((2, 2), dtype=torch.long)\n    shapes[:] = 2",
        "torch.as_tensor([(2, 3), (1, 4)])\n    shapes[0][1] += given",
    ],
)
def test_other_numbers_stay_a_tensor(made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = SIZES.replace("torch.as_tensor([(2, 3), (1, 4)], device=x.device)", made)
    f, given = _with_numbers(text, monkeypatch, tmp_path)["f"], torch.tensor(0)
    for mode in (torch.enable_grad, torch.inference_mode):
        torch._dynamo.reset()
        graphs = CompileCounter()
        with mode():
            x = torch.randn(8)
            torch.testing.assert_close(torch.compile(f, backend=graphs)(x, given), f(x, given))
        assert graphs.frame_count > 1


def _module(text: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """The names of the text as a module: torch imports modules by their names while it traces."""
    Path(folder, "grids.py").write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "grids", raising=False)
    return vars(importlib.import_module("grids"))


def _operator_text(text: str, folder: Path) -> str:
    return changed(text, _as_operator(text, folder))[0]


def _as_operator(text: str, folder: Path) -> list[Candidate]:
    found = candidates(text, problem_at(text, "grid.tolist()", gb_id="GB0124"), folder)
    return [each for each in found if each.title == "run `ids` as one operator of the graph"]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_function_that_cannot_be_traced_is_one_operator(
    backend: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    space = _module(_operator_text(GRID, tmp_path), monkeypatch, tmp_path)
    compiled, x = torch.compile(space["f"], backend=backend, fullgraph=True), torch.randn(5, 3, requires_grad=True)
    for grid in ([[2, 3], [4, 2]], [[4, 1], [2, 5]], [[6, 3]]):
        made = compiled(x, torch.tensor(grid))
        torch.testing.assert_close(made, space["f"](x, torch.tensor(grid)))
        made.sum().backward()
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x, torch.tensor(grid)), space["f"](x, torch.tensor(grid)))
    space["GRID"].step = 3  # it is read when the graph runs
    torch.testing.assert_close(compiled(x, torch.tensor(grid)), space["f"](x, torch.tensor(grid)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("found = []", "found = [grid.add_(1).flatten()]"),
        ("torch.cat(found)", "grid"),
        ("torch.cat(found)", "len(found)"),
        ("torch.cat(found)", "torch.cat(found) * torch.ones(1, requires_grad=True)"),
    ],
)
def test_what_is_no_operator_is_left_to_a_break(
    old: str, new: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    space = _module(_operator_text(GRID.replace(old, new), tmp_path), monkeypatch, tmp_path)
    ids, grid, own = space["GRID"].ids, torch.tensor([[2, 3], [4, 2]]), torch.tensor([[2, 3], [4, 2]])
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(ids, backend="eager", fullgraph=True)(grid, 1)
    assert torch.equal(grid, own)
    torch._dynamo.reset()
    compiled = torch.compile(lambda *given: ids(*given), backend="eager")
    torch.testing.assert_close(compiled(grid, 1), ids(own, 1))
    assert torch.equal(grid, own)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("write", ["grid.add_(1)", "(grid.add_(1) + 0)", "torch.add(grid, 1, out=grid)"])
def test_what_the_call_writes_to_is_written_once(
    write: str, mode: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Torch computes a tensor while it compiles if the operator needs its values."""
    text = _operator_text(GRID.replace("GRID.ids(grid, 1)", f"GRID.ids({write}, 1)"), tmp_path)
    f = _module(text, monkeypatch, tmp_path)["f"]
    x, grids = torch.randn(5, 3), [torch.tensor([[2, 3], [4, 2]]) for _ in range(2)]
    with mode():
        torch.testing.assert_close(torch.compile(f, backend="eager")(x, grids[0]), f(x, grids[1]))
    assert torch.equal(*grids)


def test_an_operator_checks_the_sizes_that_torch_was_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = GRID.replace("return torch.cat(found)", "return torch.zeros(7 if self.step == 2 else 8)")
    space = _module(_operator_text(text, tmp_path), monkeypatch, tmp_path)
    compiled, grid = torch.compile(space["GRID"].ids, backend="eager", fullgraph=True), torch.tensor([[2, 3], [4, 2]])
    assert compiled(grid, 1).shape == (7,)
    space["GRID"].step = 3
    with pytest.raises(RuntimeError, match=r"\[8\]; torch compiled for torch.float32 \[7\]"):
        compiled(grid, 1)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    def ids", "    @staticmethod\n    def ids"),
        ("return torch.cat(found)", "yield torch.cat(found)"),
        ("return torch.cat(found)", "return"),
        ("found = []", "found = [*extra]"),
    ],
)
def test_a_function_of_another_form_is_no_operator(old: str, new: str, tmp_path: Path) -> None:
    found = _as_operator(GRID.replace(old, new), tmp_path)
    assert len(found) == ("extra" in new)  # a caller's mapping is passed like the rest


def test_the_message_of_a_check_has_no_numbers_in_compiled_code(tmp_path: Path) -> None:
    text = f'{HEAD}def f(x, n):\n    self.check(n > 0, F"{{{{{{n!r:>4}}}}}} of {{x.shape}}\\n")\n    return x\n'
    marked = 'F"{{{n!r:>4}}} of {x.shape}\\n"'
    assert one(text, marked, tmp_path) == [
        f'self.check(n > 0, ("{{…}} of …\\n" if torch.compiler.is_dynamo_compiling() else {marked}))'
    ]
    for old, new in (("self.check", "y = self.check"), ("self.check", "print"), ("> 0, F", "> 0, 2 * F")):
        other = text.replace(old, new)
        assert not any("message" in each.title for each in candidates(other, problem_at(other, marked), tmp_path))


CONFIGURATION = f"""{HEAD}import copy


class Config:
    def __init__(self):
        self.layers, self.decoder_layers, self.rate, self.names = 3, 2, 0.5, ["a"]

    def __getattribute__(self, key):
        return super().__getattribute__(key)

    def decoder(self, more=0):
        made = copy.deepcopy(self)
        for key in list(made.__dict__):
            if key.startswith("decoder_"):
                setattr(made, key.removeprefix("decoder_"), getattr(made, key) + more)
                delattr(made, key)
        return made


def f(x, config):
    first, second = config.decoder(), config.decoder(3)
    return x * first.layers + second.layers * second.rate + len(first.names)
"""


def test_a_copy_of_an_object_is_made_while_torch_compiles(tmp_path: Path) -> None:
    found = candidates(CONFIGURATION, problem_at(CONFIGURATION, "copy.deepcopy(self)"), tmp_path)
    (whole,) = (each for each in found if each.title == "call `decoder` while torch compiles")
    space: dict[str, Any] = {}
    exec(changed(CONFIGURATION, [whole])[0], space)
    config, x = space["Config"](), torch.ones(2)
    compiled = torch.compile(space["f"], backend="eager", fullgraph=True)
    for name, value in (("rate", 0.5), ("decoder_layers", 5), ("decoder_layers", 7), ("rate", 0.25), ("rate", 0.125)):
        setattr(config, name, value)
        torch.testing.assert_close(compiled(x, config), space["f"](x, config))
    config.names.append("b")
    torch.testing.assert_close(compiled(x, config), space["f"](x, config))


def test_one_import_binds_torch_where_helpers_need_a_module_of_it(tmp_path: Path) -> None:
    text = CONFIGURATION.removeprefix(HEAD)
    found = candidates(text, problem_at(text, "copy.deepcopy(self)"), tmp_path)
    (copied,) = (each for each in found if each.title.startswith("copy the object"))
    (made,) = changed(text, [copied])
    assert [line for line in made.splitlines() if line.startswith("import ")] == [
        "import copy",
        "import torch._dynamo.comptime",
    ]
    assert "made = _deepcopy(self) if torch.compiler.is_dynamo_compiling() else copy.deepcopy(self)\n" in made


def test_an_object_that_the_call_has_changed_is_copied_as_it_is_then(tmp_path: Path) -> None:
    text = CONFIGURATION.replace("    first, second", "    config.decoder_layers = 9\n    first, second")
    text = text.replace(
        "    return x *",
        "    first.rate = config.decoder_layers / 3\n    x = x * first.decoder().rate\n    return x *",
    )
    found = candidates(text, problem_at(text, "copy.deepcopy(self)"), tmp_path)
    (whole,) = (each for each in found if each.title == "call `decoder` while torch compiles")
    space: dict[str, Any] = {}
    exec(changed(text, [whole])[0], space)
    compiled, x = torch.compile(space["f"], backend="eager", fullgraph=True), torch.ones(2)
    for rate in (0.5, 0.5, 0.25):
        configs = [space["Config"](), space["Config"]()]
        for config in configs:
            config.rate = rate
        torch.testing.assert_close(compiled(x, configs[0]), space["f"](x, configs[1]))
        assert vars(configs[0]) == vars(configs[1])


class Form(enum.Enum):
    WIDE = 1


@pytest.mark.parametrize("held", [torch.ones(2), {1, 2}, len, int, Form.WIDE, "itself", {"deep": [{3}]}], ids=str)
def test_an_object_that_holds_more_than_constants_is_left_to_a_break(held: Any, tmp_path: Path) -> None:
    """Other programs of an overlay have other objects: a configuration with a set or a class."""
    found = candidates(CONFIGURATION, problem_at(CONFIGURATION, "copy.deepcopy(self)"), tmp_path)
    for each in [each for each in found if "while torch compiles" in each.title]:
        torch._dynamo.reset()
        space: dict[str, Any] = {}
        exec(changed(CONFIGURATION, [each])[0], space)
        config, x = space["Config"](), torch.ones(2)
        config.held = config if held == "itself" else held
        compiled = torch.compile(space["f"], backend="eager")
        for layers in (2, 5):
            config.decoder_layers = layers
            torch.testing.assert_close(compiled(x, config), space["f"](x, config))


def test_a_function_that_gets_a_tensor_is_left_to_a_break(tmp_path: Path) -> None:
    """torch guards on no value of a tensor."""
    text = CONFIGURATION.replace("config.decoder(3)", "config.decoder(x.sum())")
    found = candidates(text, problem_at(text, "copy.deepcopy(self)"), tmp_path)
    (whole,) = (each for each in found if each.title == "call `decoder` while torch compiles")
    space: dict[str, Any] = {}
    exec(changed(text, [whole])[0], space)
    compiled, config = torch.compile(space["f"], backend="eager"), space["Config"]()
    for x in (torch.ones(2), torch.zeros(2)):
        torch.testing.assert_close(compiled(x, config), space["f"](x, config))


WRITES = f"""{HEAD}def f(x, ids, mask):
    bad = torch.isnan(x) | ~(x < 9)
    bad = bad.to(x.device)
    if bad.any():
        x[bad] = -1.0
    return x
"""


@pytest.mark.parametrize("mask", ["x.sum(-1) == 0", "x.long()"])
def test_a_number_is_written_through_the_mask_itself(
    mask: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"{HEAD}def f(x):\n    y = x * 2\n    y[torch.where({mask})] = -1.0\n    return y\n"
    found = candidates(text, problem_at(text, f"torch.where({mask})", gb_id="GB0036"), tmp_path)
    (made,) = changed(text, [each for each in found if "through the mask" in each.title])
    f, x = _module(made, monkeypatch, tmp_path)["f"], torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    space: dict[str, Any] = {}
    exec(text, space)
    torch.testing.assert_close(torch.compile(f, backend="eager", fullgraph=True)(x), space["f"](x))


@pytest.mark.parametrize(
    ("old", "new"), [("= -1.0", "= x[0]"), ("= -1.0", "+= 1"), ("x > 0)", "x > 0, 1, 0)"), ("x > 0)", "x > 0)[0]")]
)
def test_other_writes_to_places_are_left_alone(old: str, new: str, tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    y = x * 2\n    y[torch.where(x > 0)] = -1.0\n    return y\n".replace(old, new)
    marked = text[text.index("torch.where(") : text.index(")", text.index("torch.where(")) + 1]
    found = candidates(text, problem_at(text, marked, gb_id="GB0036"), tmp_path)
    assert not any("through the mask" in each.title for each in found)


SPLINE = f"""{HEAD}def f(x, y):
    inside = x > 0
    out, more = x * 1, x * 2
    out[~inside] = y[~inside]
    out[inside], more[inside] = 1.0, 2.0
    return out
"""


def test_an_index_of_what_is_written_to_binds_no_name(tmp_path: Path) -> None:
    (made,) = _mask_copy(SPLINE.replace("\n    out[inside],", "\n    return\n    out[inside],"), tmp_path)
    assert "mask = ~inside\n    out.copy_(torch.where(mask[(" in made
    assert _mask_copy(SPLINE.replace("out[inside], more[inside] =", "return\n    inside, more ="), tmp_path) == []


MASK_COPY = f"""{HEAD}def f(x, y, mask: torch.BoolTensor):
    out = x * 1
    out[mask.view(len(x), -1)] = y[mask.view(len(x), -1)]
    return out
"""


def _mask_copy(text: str, folder: Path) -> list[str]:
    found = candidates(text, problem_at(text, text[text.index("= y[") + 2 : text.index("\n    return")]), folder)
    return changed(text, [each for each in found if "copy through" in each.title])


def test_a_tensor_is_copied_through_a_mask_in_one_graph(tmp_path: Path) -> None:
    (made,) = _mask_copy(MASK_COPY, tmp_path)
    spaces: list[dict[str, Any]] = [{}, {}]
    for space, text in zip(spaces, (MASK_COPY, made), strict=True):
        exec(text, space)
    compiled = torch.compile(spaces[1]["f"], backend="eager", fullgraph=True)
    for chance in (0.5, -1, 2):
        for sizes in ((2, 3), (2, 3, 2)):
            mask, given, results = torch.rand(2, 3) < chance, torch.randn(2, *sizes), []
            given[1, 0, 0] = float("nan")
            for f in (spaces[0]["f"], compiled):
                x, y = (each.clone().requires_grad_() for each in given)
                out = f(x, y, mask)
                results.append([out, *torch.autograd.grad(out.sum(), (x, y), allow_unused=True)])
            torch.testing.assert_close(*results, equal_nan=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (": torch.BoolTensor", ""),
        ("= y[mask.view(len(x), -1)]", "= y[mask]"),
        ("mask.view(len(x), -1)", "mask[0]"),
        ("mask.view(len(x), -1)", "0, mask"),
        ("mask.view(len(x), -1)", ":2"),
    ],
)
def test_a_copy_through_another_index_stays(old: str, new: str, tmp_path: Path) -> None:
    assert _mask_copy(MASK_COPY.replace(old, new), tmp_path) == []


def test_a_write_through_a_mask_needs_no_branch(tmp_path: Path) -> None:
    (write,) = (each for each in candidates(WRITES, problem_at(WRITES, "bad.any()"), tmp_path) if "write" in each.title)
    (text,) = changed(WRITES, [write])
    assert "\n    x[bad] = -1.0\n    return x\n" in text
    assert write.conditions == ()
    spaces: list[dict[str, Any]] = [{}, {}]
    exec(text, spaces[0])
    exec(WRITES, spaces[1])
    compiled = torch.compile(spaces[0]["f"], backend="eager", fullgraph=True)
    for x in (torch.ones(3), torch.tensor([1.0, float("nan"), 10.0])):
        torch.testing.assert_close(compiled(x.clone(), None, None), spaces[1]["f"](x.clone(), None, None))
    with_value = WRITES.replace("-1.0", "ids[0]")
    found = candidates(with_value, problem_at(with_value, "bad.any()"), tmp_path)
    (write,) = (each for each in found if "write" in each.title)
    assert [condition.sides for condition in write.conditions] == [(False,)]  # on the other one nothing changes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.isnan(x) | ~(x < 9)", "ids % 3"),  # integers name elements
        ("bad = bad.to(x.device)", "bad = bad.to(torch.long)"),
        ("bad = bad.to(x.device)", "bad &= x < 9"),
        ("bad = bad.to(x.device)", "bad, ids = ids, bad"),
        ("bad = bad.to(x.device)", "bad = mask"),
    ],
)
def test_a_mask_that_may_name_elements_is_asked_for_its_dtype(old: str, new: str, tmp_path: Path) -> None:
    text = WRITES.replace(old, new)
    (write,) = (each for each in candidates(text, problem_at(text, "bad.any()"), tmp_path) if "write" in each.title)
    (made,) = changed(text, [write])
    assert "\n    if bad.dtype == torch.bool or bad.any():\n        x[bad] = -1.0\n" in made
    spaces: list[dict[str, Any]] = [{}, {}]
    exec(made, spaces[0])
    exec(text, spaces[1])
    compiled = torch.compile(spaces[0]["f"], backend="eager")
    for mask in (torch.tensor([True, False, False]), torch.tensor([0, 0, 0]), torch.tensor([0, 2, 0])):
        given = [(torch.tensor([1.0, float("nan"), 10.0]), torch.tensor([0, 1, 2]), mask) for _ in range(2)]
        torch.testing.assert_close(compiled(*given[0]), spaces[1]["f"](*given[1]), equal_nan=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x[bad] = -1.0", "x[~bad] = -1.0"),
        ("x[bad] = -1.0", "x[bad] = ids.pop_()"),
        ("x[bad] = -1.0", "x[bad] += 1.0"),
        ("x[bad] = -1.0", "x[bad] = -1.0\n        x = x * 2"),
        ("x[bad] = -1.0", "x[bad] = -1.0\n    else:\n        x = x * 2"),
    ],
)
def test_what_need_not_be_a_write_through_a_mask(old: str, new: str, tmp_path: Path) -> None:
    text = WRITES.replace(old, new)
    assert not any("write through" in each.title for each in candidates(text, problem_at(text, "bad.any()"), tmp_path))


DROPS = f"""{HEAD}def f(x, layers, p):
    for layer in layers:
        drop = False
        number = torch.rand([])
        skip = drop or number < p
        if not skip:
            x = layer(x)
    return x
"""


def test_a_layer_that_is_never_dropped_has_no_branch(tmp_path: Path) -> None:
    found = candidates(DROPS, problem_at(DROPS, "not skip"), tmp_path)
    (chance,) = (each for each in found if "above 0" in each.title)
    (text,) = changed(DROPS, [chance])
    assert "skip = drop or (p > 0 and number < p)" in text
    plain = DROPS.replace("skip = drop or", "skip =")
    assert "skip = p > 0 and number < p" in "".join(
        changed(plain, candidates(plain, problem_at(plain, "not skip"), tmp_path))
    )
    spaces: list[dict[str, Any]] = [{}, {}]
    exec(text, spaces[0])
    exec(DROPS, spaces[1])
    layers, x = [torch.nn.Linear(2, 2) for _ in range(3)], torch.ones(2)
    compiled = torch.compile(spaces[0]["f"], backend="eager", fullgraph=True)
    for p, call in ((0.0, compiled), (0.5, spaces[0]["f"]), (1.0, spaces[0]["f"])):
        torch.manual_seed(0)
        got, drawn = call(x, layers, p), torch.rand(1)
        torch.manual_seed(0)
        torch.testing.assert_close((got, drawn), (spaces[1]["f"](x, layers, p), torch.rand(1)))


@pytest.mark.parametrize("call", ['print(n, sep="")', "print(*n)", 'print(f"{n:{x}}")', 'print(f"{n=}")'])
def test_a_print_that_is_no_format_string_stays(call: str, tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, n):\n    {call}\n    return x\n"
    assert not any("_higher_order_ops" in made for made in one(text, call, tmp_path))


@pytest.mark.parametrize("function", ["warnings.warn", "logging.info"])
def test_a_warning_and_a_log_of_the_root_logger_are_called_after_the_graph_or_in_it(
    function: str, tmp_path: Path
) -> None:
    text, name = f"{HEAD}def f(x):\n    {function}('long')\n    return x\n", f"_{function.partition('.')[2]}"
    line = f"torch._dynamo.config.reorderable_logging_functions.add({function})"
    after, within = one(text, f"{function}('long')", tmp_path)
    assert after == line
    assert within == operator_text(name) + f"{name}(_ORDER)"
    _, within = one(text.replace("'long'", "x"), f"{function}(x)", tmp_path)
    assert within.endswith(f"@_in_graph\ndef {name}(*args):\n{function}(*args)\n{name}(x)")


def test_the_class_of_a_warning_stays_in_the_function_that_warns(tmp_path: Path) -> None:
    call = "warnings.warn('old', FutureWarning)"
    text = f"import warnings\n{HEAD}def f(x):\n    {call}\n    return x.sin()\n"
    *_, within = changed(text, candidates(text, problem_at(text, call), tmp_path))
    space: dict[str, Any] = {}
    exec(within, space)
    assert "    _warn_futurewarning(_ORDER)\n" in within
    with pytest.warns(FutureWarning, match="^old$"):
        torch.compile(space["f"], backend="eager", fullgraph=True)(torch.ones(2))


KEEPS_MORE = """import torch
from torch import nn


class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen, self.scale, self.low = [], 0.5, nn.Linear(4, 4)

    def forward(self, x):
        y, rows = self.low(x), x.shape[0]
        self.seen.append((rows, self.scale, y.sum().item()))
        return y.relu()
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_what_runs_in_the_graph_does_so_with_each_backend(backend: str, tmp_path: Path) -> None:
    problem = problem_at(KEEPS_MORE, "y.sum().item()")
    found = [each for each in candidates(KEEPS_MORE, problem, tmp_path) if "in the graph" in each.title]
    (text,) = changed(KEEPS_MORE, found)
    space: dict[str, Any] = {"__name__": f"kept_{backend}"}
    exec(text, space)
    model, plain = space["A"](), space["A"]()
    plain.load_state_dict(model.state_dict())
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    torch._dynamo.reset()
    for rows in (2, 3, 5):
        x = torch.randn(rows, 4)
        assert torch.allclose(compiled(x), plain(x))
        compiled(x).sum().backward()
    model.scale = plain.scale = 0.7
    compiled(x), plain(x)
    kept = [(rows, scale, pytest.approx(value, abs=1e-5)) for rows, scale, value in plain.seen]
    assert [model.seen[0], model.seen[2], model.seen[4], model.seen[6]] == kept


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("shown", ["'a message'", "f'a {MESSAGE}'", "name"])
def test_what_has_no_tensor_runs_in_the_graph_with_each_backend(
    shown: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = f"warnings.warn({shown})"
    head = f"import warnings\n{HEAD}MESSAGE = 'message'\n\n\ndef f(x, w, name='a message'):\n"
    text = f"{head}    y = (x * 2 + 1).softmax(-1)\n    {call}\n    return y @ w\n"
    found = [each for each in candidates(text, problem_at(text, call), tmp_path) if "within the graph" in each.title]
    (made,) = changed(text, found)
    assert ("def _in_graph" in made) == (shown == "name")  # no type is said
    f = _module(made, monkeypatch, tmp_path)["f"]
    x, w = torch.randn(3, 4), torch.randn(4, 4, requires_grad=True)
    torch._dynamo.reset()
    with pytest.warns(UserWarning, match="a message"):
        result = torch.compile(f, backend=backend, fullgraph=True)(x, w)
    torch.testing.assert_close(result, (x * 2 + 1).softmax(-1) @ w)


SHOWS = """import torch

SEEN = []


def f(x, k: int = 3):
    rows, _ = x.shape
    SEEN.append((rows, k, len(x), x.sum().item(), float(x.detach().mean())))
    y = x * 2
    SEEN.append(y.sum().item())
    y = y + 1
    SEEN.append(y.mean().item())
    return y
"""


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_an_operator_keeps_its_place_and_takes_sizes_that_change(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources, edits = Sources(project_of(SHOWS, tmp_path)), dict[Edit, None]()
    for marked in ("x.sum().item()", "y.sum().item()", "y.mean().item()"):
        first = next(each for each in effects.candidates(problem_at(SHOWS, marked), sources) if "in the" in each.title)
        edits |= dict.fromkeys(first.edits)
    text = apply_edits({"f.py": SHOWS}, edits)["f.py"]
    assert ("_in_graph" in text, text.count("_ORDER = ")) == (False, 1)
    space, plain = _module(text, monkeypatch, tmp_path), dict[str, Any]()
    exec(SHOWS, plain)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(space["f"], backend=counter, fullgraph=True, dynamic=True)
    for rows in (2, 3, 4):
        x = torch.randn(rows, 4, requires_grad=True)
        torch.testing.assert_close(compiled(x), plain["f"](x))
    assert [type(each) for each in space["SEEN"][0]] == [int, int, int, float, float]
    torch.testing.assert_close(space["SEEN"], plain["SEEN"], atol=1e-4, rtol=1e-4)
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("with note() as n:\n        warnings.warn(f'{n}')", "f'{n}'"),
        ("import math\n    warnings.warn(f'{math.pi}')", "f'{math.pi}'"),
        ("n = 1\n    def g():\n        warnings.warn(f'{n}')\n    g()", "f'{n}'"),
    ],
)
def test_what_the_function_alone_has_is_given_by_the_helpers(body: str, shown: str, tmp_path: Path) -> None:
    text, call = f"import warnings\n{HEAD}def f(x):\n    {body}\n    return x\n", f"warnings.warn({shown})"
    *_, within = one(text, call, tmp_path)
    assert within.endswith(f"@_in_graph\ndef _warn(*args):\nwarnings.warn(*args)\n_warn({shown})")


@pytest.mark.parametrize(("kept", "read", "value"), [("order", "x.sum()", "value_1"), ("SEEN", "order", "order")])
def test_an_operator_takes_no_name_that_the_statement_uses(kept: str, read: str, value: str, tmp_path: Path) -> None:
    text = f"{HEAD}{kept} = []\n\n\ndef f(x, order):\n    {kept}.append({read}.item())\n    return x\n"
    text = text.replace(", order", "") if kept == "order" else text
    first = next(each for each in one(text, f"{read}.item()", tmp_path) if "_append.register_fake" in each)
    assert f"def _append(order_, {value}):\n" in first
    assert first.endswith(f"_append(_ORDER, {read})")


NOTES = "BY_STEP = {}\n\n\ndef note(name, value):\n    BY_STEP[name] = value\n\n\n"


def test_a_function_that_notes_a_number_runs_in_the_graph(tmp_path: Path) -> None:
    call = "note('second', x.max().item())"
    text = f"{HEAD}{NOTES}def f(x):\n    x = x.sin()\n    {call}\n    return x * 2\n"
    first = next(each for each in one(text, "x.max().item()", tmp_path) if "_note.register_fake" in each)
    assert first.endswith("_note(_ORDER, x.max())")


def test_a_guard_on_what_such_a_function_keeps_is_gone_where_it_runs_in_the_graph(tmp_path: Path) -> None:
    call = "note('second', x.max().item())"
    text = f"{HEAD}{NOTES}def f(x):\n    x = x.sin()\n    {call}\n    return x * 2\n"
    guarded = Span("f.py", 1 + text[: text.index("BY_STEP[name]")].count("\n"))
    made = one(text, call, tmp_path, kind="recompile", gb_id=None, guarded=guarded)
    assert any(each.endswith("_note(_ORDER, x.max())") for each in made)


@pytest.mark.parametrize(
    "note",
    [
        "def note(name, value):\n    return value + 1\n",  # its result may be what the call is for
        "def note(name, value):\n    name[0] = value\n",  # it writes to what it is given
        "def note(name, value):\n    first = name\n    first[0] = value\n",
    ],
)
def test_a_function_that_does_more_than_to_note_stays(note: str, tmp_path: Path) -> None:
    call = "note(x, x.max().item())"
    text = f"{HEAD}{note}\n\ndef f(x):\n    {call}\n    return x * 2\n"
    assert not any("_note" in each for each in one(text, "x.max().item()", tmp_path))


IN_ORDER = """

SEEN = []
whole = _in_graph(lambda a, b, n: SEEN.append((n, a.item(), b.item())))
single = _in_graph(lambda a: SEEN.append(a.item()))


def f(x):
    whole(x.sum(), x.detach().mean(), x.shape[0])
    y = x * 2
    single(y.sum())
    y = y + 1
    single(y.mean())
    return y
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_what_the_helpers_call_in_the_graph_keeps_its_order(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inductor of torch 2.11 to 2.14 moves operators with effects past each other, where that takes less memory."""
    found = candidates(KEEPS_MORE, problem_at(KEEPS_MORE, "y.sum().item()"), tmp_path)
    text = next(text for text in changed(KEEPS_MORE, found) if "@_in_graph" in text)
    space = _module(text + IN_ORDER, monkeypatch, tmp_path)
    torch._dynamo.reset()
    compiled = torch.compile(space["f"], backend=backend, fullgraph=True, dynamic=True)
    for rows in (2, 3):
        x = torch.randn(rows, 4, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        seen = [(rows, x.sum().item(), x.detach().mean().item()), (x * 2).sum().item(), y.mean().item()]
        assert space["SEEN"] == [pytest.approx(each, abs=1e-5) for each in seen]
        space["SEEN"].clear()


LEFT_TO_A_BREAK = """

SEEN = []
rows = _in_graph(lambda model, kept: SEEN.append(len(kept)))
mean = _in_graph(lambda model, y: SEEN.append(y.mean().item()))


def f(model, x):
    rows(model, [x])
    y = x.sin()
    mean(model, y)
    return y.cos()
"""


def test_a_call_that_is_left_to_a_break_gives_no_object_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = candidates(KEEPS_MORE, problem_at(KEEPS_MORE, "y.sum().item()"), tmp_path)
    text = next(text for text in changed(KEEPS_MORE, found) if "@_in_graph" in text)
    space = _module(text + LEFT_TO_A_BREAK, monkeypatch, tmp_path)
    torch._dynamo.reset()
    counter = CompileCounter()
    x = torch.zeros(3)
    assert torch.equal(torch.compile(space["f"], backend=counter)(space["A"](), x), torch.ones(3))
    assert (space["SEEN"], counter.frame_count) == ([1, 0.0], 1)


def test_a_message_that_is_logged_once_is_logged_while_torch_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.Logger, "warning_once", cache(logging.Logger.warning), raising=False)
    call = "log.warning_once('%s is old', 'f')"
    text = f"import logging\n{HEAD}log = logging.getLogger('a')\n\n\ndef f(x):\n    {call}\n    return x.sin()\n"
    first, *_ = changed(text, candidates(text, problem_at(text, call), tmp_path))
    space: dict[str, Any] = {}
    exec(first, space)
    compiled = torch.compile(space["f"], backend="eager", fullgraph=True)
    for rows in (2, 3):
        compiled(torch.ones(rows))
    assert [each.getMessage() for each in caplog.records if each.name == "a"] == ["f is old"]


def test_a_logger_is_called_by_a_function_of_the_module(tmp_path: Path) -> None:
    text = f"{HEAD}log = logging.getLogger('a')\n\n\ndef f(x):\n    log.info('%d', 3)\n    return x\n"
    after, within = one(text, "log.info('%d', 3)", tmp_path)
    assert after == (
        "@torch.compiler.disable\n"
        "def _log_info(*args):\n"
        "log.info(*args, stacklevel=3)\n"
        "torch._dynamo.config.reorderable_logging_functions.add(_log_info)\n"
        "_log_info('%d', 3)"
    )
    assert within == operator_text("_log_info") + "_log_info(_ORDER)"
    _, within = one(text.replace("3)", "x)"), "log.info('%d', x)", tmp_path)
    assert within.endswith("@_in_graph\ndef _log_info(*args):\nlog.info(*args)\n_log_info('%d', x)")
    within, after = one(text.replace("logging.getLogger('a')", "Report()"), "log.info('%d', 3)", tmp_path)
    assert within == operator_text("_info") + "_info(_ORDER)"
    assert after.startswith("@torch.compiler.disable\ndef _info():\n")


@pytest.mark.parametrize("logger", ["logging.getLogger('a')", "self.log"])
def test_a_logger_that_the_module_does_not_name_is_asked_for(logger: str, tmp_path: Path) -> None:
    net = "class A(nn.Module):\n    def __init__(self):\n        self.log = logging.getLogger('a')\n\n"
    text = f"{HEAD}{net}    def forward(self, x):\n        {logger}.info('%d', 3)\n        return x\n"
    first, _ = one(text, f"{logger}.info('%d', 3)", tmp_path)
    assert "def _log_info(*args):\nlogging.getLogger('a').info(*args, stacklevel=3)\n" in first
    assert first.endswith("_log_info('%d', 3)")


def test_a_logger_that_an_object_is_given_is_used_in_the_graph(tmp_path: Path) -> None:
    net = "class A(nn.Module):\n    def __init__(self, log):\n        self.log = log\n\n"
    text = f"{HEAD}{net}    def forward(self, x):\n        self.log.info('%d', 3)\n        return x\n"
    (within,) = one(text, "self.log.info('%d', 3)", tmp_path)
    assert "@_in_graph\ndef _info(self):\n" in within


def test_a_setting_that_the_program_turns_off_is_turned_on_there(tmp_path: Path) -> None:
    text = f"{HEAD}torch._dynamo.config.trace_numpy = False\n\n\ndef f(x):\n    return x[x > 0]\n"
    made = one(text, "x[x > 0]", tmp_path, hints=("Set `torch._dynamo.config.trace_numpy = True`",))
    assert made == ["torch._dynamo.config.trace_numpy = True"]


def test_a_setting_comes_from_torchs_hint_alone(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    return x[x > 0]\n"
    hint = "Enable it with `torch._dynamo.config.capture_dynamic_output_shape_ops = True`"
    line = "torch._dynamo.config.capture_dynamic_output_shape_ops = True"
    assert one(text, "x[x > 0]", tmp_path, hints=(hint,)) == [line]
    assert one(text, "x[x > 0]", tmp_path, hints=(hint.replace("config.", ""),)) == [line]
    assert one(text, "x[x > 0]", tmp_path) == []


def test_a_number_that_may_change_later_is_cloned(tmp_path: Path) -> None:
    text = f"{HEAD}def f(self, x):\n    return x * self.gain.item() + x.mean().item() * math.sqrt(float(x.sum()))\n"
    assert "x * self.gain.detach().clone() +" in one(text, "self.gain.item()", tmp_path)[0]
    assert "x.mean().detach() *" in one(text, "x.mean().item()", tmp_path)[0]
    assert "torch.sqrt(x.sum().detach())" in one(text, "float(x.sum())", tmp_path)[0]


def test_a_truth_stays_a_tensor(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, n):\n    known = bool((n > 2).any())\n    more = bool(n.sum())\n    return x, known, more\n"
    assert one(text, "bool((n > 2).any())", tmp_path) == ["known = (n > 2).any().detach()"]
    assert one(text, "bool(n.sum())", tmp_path) == ["more = n.sum().detach().to(torch.bool)"]


def test_a_math_function_of_two_numbers_has_two_tensors(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, y, n):\n    return math.atan2(x.sum().item(), float(y))\n"
    kept = "torch.atan2(x.sum().detach(), y.detach().clone())"
    exact = kept.replace("(),", "().double(),").replace("()))", "().double())").replace("clone())", "clone().double())")
    for read in ("x.sum().item()", "float(y)"):
        assert one(text, read, tmp_path) == [f"return {kept}", f"return {exact}"]
    for other in ("atan2(x.sum().item(), n)", "gamma(x.sum().item())"):
        assert one(text.replace("atan2(x.sum().item(), float(y))", other), "x.sum().item()", tmp_path) == []


SCALARS = "Consider setting `torch._dynamo.config.capture_scalar_outputs = True`"


def test_a_number_that_slices_is_a_symbol_that_is_not_negative(tmp_path: Path) -> None:
    text = f"{HEAD}def f(h, length):\n    n = int(length.max().item())\n    return h[:, :n]\n"
    made = one(text, "length.max().item()", tmp_path, hints=(SCALARS,))
    assert "torch._dynamo.config.capture_scalar_outputs = True\ntorch._check(n >= 0)" in made
    text = f"{HEAD}def f(h, length):\n    return h[:, :length.max().item()]\n"
    (*_, last) = one(text, "length.max().item()", tmp_path, hints=(SCALARS,))
    assert last.endswith("size = length.max().item()\ntorch._check(size >= 0)\nreturn h[:, :size]")


def test_a_function_with_effects_alone_is_called_after_the_graph(tmp_path: Path) -> None:
    text = f"{HEAD}def note(m):\n    sys.stderr.write(m)\n\n\ndef f(x):\n    note('a')\n    return x\n"
    after = "torch._dynamo.config.reorderable_logging_functions.add(note)"
    first, within, later, whole = one(text, "sys.stderr.write(m)", tmp_path)
    assert first == after
    assert within.endswith("@_in_graph\ndef _write(m):\n_write(m)")
    assert later.startswith("@torch.compiler.disable\ndef _write(value_1):\nsys.stderr.write(value_1)\n")
    assert later.endswith("add(_write)\n_write(m)")
    assert whole.endswith(f"return call\n{ORDER}@_in_graph")
    used = one(text.replace("    note('a')", "    y = note('a')"), "sys.stderr.write(m)", tmp_path)
    assert used == [within, later, whole]
    assert one(text.replace("    sys", "    return sys"), "sys.stderr.write(m)", tmp_path) == []


@pytest.mark.parametrize(
    "body", ["m.add_(1)", "m[0] = 1", "m += 1", "return m", "yield m", "n = torch.compile(note)", "self.m = m"]
)
def test_a_hook_that_only_notes_is_run_in_the_graph(body: str, tmp_path: Path) -> None:
    text = f"{HEAD}def note(self, m):\n    {body}\n    n = m.sum().item()\n    SEEN.append(n)\n"
    found = candidates(text, problem_at(text, "m.sum().item()"), tmp_path)
    made = changed(text, [each for each in found if each.title == "run `note` in the graph"])
    assert [each.endswith("\n\n@_in_graph\n" + text[len(HEAD) :]) for each in made] == [True] * (body == "self.m = m")


BEHIND = """{head}class A(nn.Module):
    def forward(self, x, k):
        y = x * 2
        self.seen.append(y.sum().item())
        print("mean", self.name, k, f"{{y.mean().item():.2f}}")
        return y, k


def main(x):
    net = torch.compile(A(), mode="default")
"""


def test_effects_are_made_behind_the_call_of_a_model(tmp_path: Path) -> None:
    text = BEHIND.format(head=HEAD)
    found = candidates(text, problem_at(text, "y.sum().item()"), tmp_path)
    made, kept = changed(text, [each for each in found if "behind the call" in each.title])
    assert "        result, value_1 = self._compiled_forward(x, k)\n        self.seen.append(value_1.item())\n" in kept
    assert '        print("mean", self.name, k, f"{y.mean().item():.2f}")\n        return (y, k), value_1\n' in kept
    assert (
        made
        == f"""{HEAD}class A(nn.Module):
    @torch.compile(mode="default")
    def _compiled_forward(self, x, k):
        y = x * 2
        value_1 = y.sum().detach()
        value_2 = y.mean().detach()
        return (y, k), value_1, value_2

    def forward(self, x, k):
        result, value_1, value_2 = self._compiled_forward(x, k)
        self.seen.append(value_1.item())
        print("mean", self.name, k, f"{{value_2.item():.2f}}")
        return result


def main(x):
    net = A()
"""
    )


@pytest.mark.parametrize("target", ['self.seen["mean"]', "self.last"])
def test_a_number_is_kept_behind_the_call(target: str, tmp_path: Path) -> None:
    text = BEHIND.format(head=HEAD).replace("self.seen.append(y.sum().item())", f"{target} = y.sum().item()")
    found = candidates(text, problem_at(text, "y.sum().item()"), tmp_path)
    made, *_ = changed(text, [each for each in found if "that are kept" in each.title])
    assert f"self._compiled_forward(x, k)\n        {target} = value_1.item()\n" in made


@pytest.mark.parametrize(
    "line",
    [
        "self.seen[k] = y.sum().item()",  # the key may be what is compiled for
        "self.last = y.sum().item()\n        y = y * self.last",
        "self.last = y.sum()",
        "last = y.sum().item()",
    ],
)
def test_what_is_read_or_no_number_is_not_kept_behind_the_call(line: str, tmp_path: Path) -> None:
    text = BEHIND.format(head=HEAD).replace("self.seen.append(y.sum().item())", line)
    found = candidates(text, problem_at(text, "y.sum()"), tmp_path)
    assert not any("that are kept" in each.title for each in found)


def test_effects_of_a_side_are_made_behind_the_call(tmp_path: Path) -> None:
    side = "self.hits += 1\n            print(self.hits, y.max().item())\n            y = y / 2"
    text = BEHIND.format(head=HEAD).replace(
        "        self.seen", f"        if y.sum() > 1:\n            {side}\n        self.seen"
    )
    found = candidates(text, problem_at(text, "y.sum() > 1"), tmp_path)
    made, _ = changed(text, [each for each in found if "behind the call" in each.title])
    assert (
        "        value_1 = y.sum() > 1\n        value_2 = y.max().detach()\n"
        "        y = torch.where(y.sum() > 1, y / 2, y)\n        value_3 = y.sum().detach()\n"
        "        value_4 = y.mean().detach()\n        return (y, k), value_1, value_2, value_3, value_4\n"
    ).replace("value_1 = y.sum() > 1", "condition = y.sum() > 1\n        value_1 = condition").replace(
        "where(y.sum() > 1,", "where(condition,"
    ) in made
    assert (
        "        if value_1:\n            self.hits += 1\n            print(self.hits, value_2.item())\n"
        "        self.seen.append(value_3.item())\n"
    ) in made
    read = text.replace("return y, k", "return y * self.hits, k")
    found = candidates(read, problem_at(read, "y.sum() > 1"), tmp_path)
    assert not any("behind the call" in each.title for each in found)


def test_effects_are_made_behind_a_function_that_is_decorated(tmp_path: Path) -> None:
    body = "    print('rows', x.shape[0])\n    x = x + 1\n    out.write(x.sum().item(), 'sum')\n    return x\n"
    text = f"{HEAD}@torch.compile(mode='default')\ndef f(x, out):\n{body}"
    found = candidates(text, problem_at(text, "x.sum().item()"), tmp_path)
    made, _ = changed(text, [each for each in found if "behind the call" in each.title])
    assert made == (
        f"{HEAD}@torch.compile(mode='default')\ndef _compiled_f(x, out):\n    value_1 = x.shape[0]\n    x = x + 1\n"
        "    value_2 = x.sum().detach()\n    return x, value_1, value_2\n\n\ndef f(x, out):\n"
        "    result, value_1, value_2 = _compiled_f(x, out)\n    print('rows', value_1)\n"
        "    out.write(value_2.item(), 'sum')\n    return result\n"
    )


def test_effects_are_made_behind_a_function_that_a_call_compiles(tmp_path: Path) -> None:
    body = "    LOG.write(x.sum().item())\n    return x * 2\n"
    text = f"{HEAD}def f(x):\n{body}\n\nfast = torch.compile(f, mode='default')\n"
    found = candidates(text, problem_at(text, "x.sum().item()"), tmp_path)
    (made,) = changed(text, [each for each in found if "behind the call" in each.title])
    assert made == (
        f"{HEAD}@torch.compile(mode='default')\ndef _compiled_f(x):\n    value_1 = x.sum().detach()\n"
        "    return x * 2, value_1\n\n\ndef f(x):\n    result, value_1 = _compiled_f(x)\n"
        "    LOG.write(value_1.item())\n    return result\n\n\nfast = f\n"
    )
    used = f"{text}print(f(torch.ones(1)))\n"
    found = candidates(used, problem_at(used, "x.sum().item()"), tmp_path)
    assert not any("behind the call" in each.title for each in found)


def test_effects_of_a_side_whose_condition_has_two_parts_stay(tmp_path: Path) -> None:
    text = BEHIND.format(head=HEAD).replace(
        "self.seen.append(y", "if k and y.sum() > 1:\n            self.seen.append(y"
    )
    found = candidates(text, problem_at(text, "y.sum() > 1"), tmp_path)
    assert not any("behind the call" in each.title for each in found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        y = x * 2\n", "        if k:\n            return x\n        y = x * 2\n"),
        ("        return y, k\n", ""),
        ("y = x * 2", "value_1 = y = x * 2"),
        ("y = x * 2", "seen = self\n        y = x * 2"),
        ("forward(self, x, k)", "forward(self, x, *k)"),
        ("net = torch.compile(A(), mode='default')", "net = [torch.compile(A()) for _ in x] + [torch.compile(A())]"),
    ],
)
def test_effects_stay_where_the_function_may_end_before_or_needs_more(old: str, new: str, tmp_path: Path) -> None:
    text = (
        BEHIND.format(head=HEAD).replace('"', "'").replace("self.seen.", "seen." if "seen = " in new else "self.seen.")
    )
    assert old in text
    found = candidates(text.replace(old, new), problem_at(text.replace(old, new), "y.sum().item()"), tmp_path)
    assert not any("behind the call" in each.title for each in found)


KEPT = "self.seen.append(y.sum().item())"
KEEPS = f"{HEAD}class A(nn.Module):\n    def forward(self, x):\n        y = x * 2\n        {KEPT}\n"


def test_a_statement_with_an_effect_alone_runs_in_the_graph(tmp_path: Path) -> None:
    text = f"{KEEPS}        return y\n"
    *_, made = changed(text, candidates(text, problem_at(text, "y.sum().item()"), tmp_path))
    function = f"@_in_graph\ndef _append(self, y):\n    {KEPT}\n\n\n"
    assert made.endswith(function + text[len(HEAD) :].replace(KEPT, "_append(self, y)"))
    for other in (f"z = {KEPT}", KEPT.replace("append", "step")):
        text = f"{KEEPS}        return y\n".replace(KEPT, other)
        assert not any("_in_graph" in each for each in one(text, "y.sum().item()", tmp_path))


def test_a_list_that_grows_is_kept_out_of_the_graph(tmp_path: Path) -> None:
    text = f"{KEEPS}        return y\n\n\ndef main(f, x):\n    y = f(x)\n"
    line = text[: text.index("self.seen")].count("\n") + 1
    *_, made = recompiled(text, "L['self'].seen", ("length 0", "length 1"), tmp_path, line)
    assert made.endswith("_append(self, y)")


def test_a_number_that_is_printed_by_itself_is_formatted(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    print('mean', x.mean().item(), f'{{x.sum().item():.3f}}')\n    return x\n"
    assert "print('mean', f\"{x.mean().detach()}\", f'" in one(text, "x.mean().item()", tmp_path)[0]
    assert "f'{x.sum().detach():.3f}')" in one(text, "x.sum().item()", tmp_path)[0]


def test_a_number_that_is_logged_is_a_tensor_that_is_logged_after_the_graph(tmp_path: Path) -> None:
    text = (
        f"{HEAD}log = logging.getLogger('a')\n\n\ndef f(x):\n    log.info('%f %f', x.sum().item(), float(x.mean()))\n"
    )
    first, both, _within, after, _whole = one(text, "x.sum().item()", tmp_path)
    assert "def _info(value_1, value_2):\nlog.info('%f %f', value_1.item(), float(value_2))\n" in after
    assert first == "log.info('%f %f', x.sum().detach(), float(x.mean()))"
    assert both.endswith("_log_info('%f %f', x.sum().detach(), x.mean().detach())")
    assert "reorderable_logging_functions.add(_log_info)" in both


def test_a_deep_copy_is_a_clone(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    return copy.deepcopy(x + 1)\n"
    assert one(text, "copy.deepcopy(x + 1)", tmp_path) == ["return (x + 1).detach().clone()", "return (x + 1).clone()"]


@pytest.mark.parametrize("bounds", ['{"from": -1, "to": n}', "{'to': 2.0}", "{**n}", '{"p": 1}'])
def test_bounds_of_uniform_are_given_by_position(bounds: str, tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, n):\n    return x.uniform_(**{bounds}) * 2\n"
    made = {'{"from": -1, "to": n}': "x.uniform_(-1, n)", "{'to': 2.0}": "x.uniform_(0.0, 2.0)"}.get(bounds)
    assert one(text, f"x.uniform_(**{bounds})", tmp_path) == ([f"return {made} * 2"] if made else [])


def test_digitize_counts_in_float64_and_its_array_becomes_a_tensor(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    n = np.digitize(x.numpy(), [0.1, 0.2])\n    return x / torch.from_numpy(n)\n"
    made = one(text, "np.digitize(x.numpy(), [0.1, 0.2])", tmp_path)
    edges = "torch.as_tensor([0.1, 0.2], dtype=torch.float64)"
    assert made == [f"n = torch.bucketize(x.double(), {edges}, right=True)\nreturn x / n"]


NUMPY = {
    "np.searchsorted(EDGES, x.numpy(), side='right')": (
        "torch.searchsorted(torch.as_tensor(EDGES, dtype=torch.float64), x.double(), right=True)"
    ),
    "np.nansum(x.numpy(), axis=1)": "torch.nansum(x, dim=1)",
    "np.nanmean(a=x.cpu().numpy(), keepdims=True)": "torch.nanmean(x, keepdim=True)",
    "np.isin(x.numpy(), [1, 2])": "torch.isin(x, torch.as_tensor([1, 2], device=x.device))",
    "np.trapezoid(x.numpy(), dx=0.5)": "torch.trapezoid(x, dx=0.5)",
    "np.trapezoid(x.numpy(), axis=0)": "torch.trapezoid(x, dim=0)",
    "np.nanpercentile(x.numpy(), 90, axis=0)": "torch.nanquantile(x, 90 / 100, dim=0)",
}


@pytest.mark.parametrize("call", NUMPY)
def test_a_numpy_function_becomes_torchs(call: str, tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    return torch.from_numpy({call})\n"
    assert one(text, call, tmp_path) == [f"return {NUMPY[call]}"]


def test_interpolation_is_a_function_of_the_module(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    return torch.from_numpy(np.interp(x.numpy(), [0.0, 1.0, 4.0], [2.0, 5.0, 5.5]))\n"
    problem = problem_at(text, "np.interp(x.numpy(), [0.0, 1.0, 4.0], [2.0, 5.0, 5.5])")
    (made,) = changed(text, candidates(text, problem, tmp_path))
    assert made.endswith("def f(x):\n    return _interp(x, [0.0, 1.0, 4.0], [2.0, 5.0, 5.5])\n")
    space: dict[str, Any] = {}
    exec(made, space)
    x = torch.tensor([[-1.0, 0.0, 0.3], [1.0, 3.7, 4.0], [9.0, float("nan"), float("inf")]])
    expected = np.interp(x.numpy(), [0.0, 1.0, 4.0], [2.0, 5.0, 5.5])
    assert space["f"](x).numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "call",
    [
        "np.nansum(axis=1)",
        "np.interp(x.numpy(), XP, FP, left=0)",
        "np.nansum(x.numpy(), where=m)",
        "np.cumsum(x.numpy())",
    ],
)
def test_a_call_that_torch_has_no_equal_of_stays(call: str, tmp_path: Path) -> None:
    assert one(f"{HEAD}def f(x, m):\n    return {call}\n", call, tmp_path) == []


@pytest.mark.parametrize("call", ["torch.bincount(t, minlength=self.n)", "t.bincount(minlength=self.n)"])
def test_counts_have_the_least_length(call: str, tmp_path: Path) -> None:
    text = f"{HEAD}def f(self, t):\n    return {call}.float()\n"
    assert one(text, call, tmp_path) == ["return t.new_zeros(self.n).scatter_add(0, t, torch.ones_like(t)).float()"]
    for other in ("torch.bincount(t)", "torch.bincount(g(t), minlength=3)", "torch.bincount(t, w, minlength=3)"):
        assert one(text.replace(call, other), other, tmp_path) == []


SIDES = {
    # source of the branch: what it becomes with torch.where, and with torch.cond
    "if c(x) > 0:\n        x = x * 2": (
        "x = torch.where(c(x) > 0, x * 2, x)",
        "x = torch.cond(c(x) > 0, lambda: x * 2, lambda: x.clone())",
    ),
    "if c(x) > 0:\n        y = x\n    else:\n        y = -x": (
        "y = torch.where(c(x) > 0, x, -x)",
        "y = torch.cond(c(x) > 0, lambda: x.clone(), lambda: -x)",
    ),
    "y = x if c(x) > 0 else -x": (
        "y = torch.where(c(x) > 0, x, -x)",
        "y = torch.cond(c(x) > 0, lambda: x.clone(), lambda: -x)",
    ),
    "if not (c(x) > 0).item():\n        x = x + 1": (
        "x = torch.where(torch.logical_not((c(x) > 0)), x + 1, x)",
        "x = torch.cond(torch.logical_not((c(x) > 0)), lambda: x + 1, lambda: x.clone())",
    ),
    "if self.training and (c(x) > 0):\n        x += 1": (
        "if self.training:\nx = torch.where((c(x) > 0), x + (1), x)",
        "if self.training:\nx = torch.cond((c(x) > 0), lambda: x + (1), lambda: x.clone())",
    ),
}


@pytest.mark.parametrize("branch", SIDES)
def test_a_branch_becomes_where_or_cond(branch: str, tmp_path: Path) -> None:
    text = f"{HEAD}def f(self, x, y=0):\n    {branch}\n    return x, y\n"
    assert tuple(one(text, "c(x) > 0", tmp_path)) == SIDES[branch]


def test_a_message_on_a_condition_is_printed_by_a_function_after_the_graph(tmp_path: Path) -> None:
    body = "        if h.max().item() > k:\n            warnings.warn(f'{h.max().item():.2f} is over {k} in {NAME}')\n"
    text = f"{HEAD}NAME = 'a'\n\n\n# the net\nclass A:\n    def f(self, h, k):\n{body}        return h\n"
    found = candidates(text, problem_at(text, "h.max().item() > k"), tmp_path)
    made, within = changed(text, [each for each in found if "function of its own" in each.title])
    helper = (
        "@torch.compiler.disable\ndef _warn_if(condition, value_1, value_2):\n    if condition:\n"
        "        warnings.warn(f'{value_1.item():.2f} is over {value_2} in {NAME}')\n\n\n"
        "torch._dynamo.config.reorderable_logging_functions.add(_warn_if)\n\n\n"
    )
    call = "        _warn_if(h.max() > k, h.max().detach(), k)\n"
    assert made == text.replace(body, call).replace("# the net", f"{helper}# the net")
    assert "@_in_graph\ndef _warn_if(condition, value_1, value_2):\n" in within


def test_values_that_are_unpacked_from_a_list_stay_tensors(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, q):\n    low, high = torch.quantile(x, q).tolist()\n    return (x - low) / high\n"
    made = one(text, "torch.quantile(x, q).tolist()", tmp_path)
    values = ["low, high = torch.quantile(x, q).detach()" + dtype for dtype in ("", ".double()")]
    assert made == [f"{each}.unbind()" for each in values]
    kept = text.replace("low, high =", "both =")
    assert one(kept, "torch.quantile(x, q).tolist()", tmp_path) == []


@pytest.mark.parametrize("use", ["sum({})", "[v * 2 for v in {}]"])
def test_values_that_are_gone_through_stay_tensors(use: str, tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    n = {use.format('x.tolist()')}\n    return x * n\n"
    kept = [use.format(f"x.detach().clone(){dtype}.unbind()") for dtype in ("", ".double()")]
    assert one(text, "x.tolist()", tmp_path) == [f"n = {each}" for each in kept]


CONDITIONS = {
    "any(v > 0 for v in x)": "torch.stack([v > 0 for v in x]).any()",
    "all([v > 0 for v in x if n])": "torch.stack([v > 0 for v in x if n]).all()",
    "torch.allclose(x, n, atol=0.5)": "torch.isclose(x, n, atol=0.5).all()",
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_on_several_values_is_one_tensor(condition: str, tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, n):\n    if {condition}:\n        x = x * 2\n    return x\n"
    assert one(text, condition, tmp_path)[0] == f"x = torch.where({CONDITIONS[condition]}, x * (2), x)".replace(
        "(2)", "2"
    )


def test_a_condition_on_a_random_number_is_a_tensor_with_the_same_number(tmp_path: Path) -> None:
    text = f"import random\n{HEAD}def f(x):\n    if random.random() < 0.5:\n        x = x * 2\n    return x\n"
    drawn, where, _ = one(text, "random.random()", tmp_path)
    assert drawn == "if random.uniform(0, 1) < 0.5:"
    assert where == "x = torch.where(torch.as_tensor(random.uniform(0, 1) < 0.5), x * 2, x)"
    state = random.getstate()
    first = random.random()
    random.setstate(state)
    assert random.uniform(0, 1) == first


COUNTS = """class A(nn.Module):
    def __init__(self):
        super().__init__()
        self.best, self.last = torch.zeros(()), None
        self.skipped = 0

    def forward(self, x):
        v = x.sum()
        if v > self.best:
            BODY
        return x
"""


def test_an_attribute_that_a_side_sets_keeps_its_value_on_the_other(tmp_path: Path) -> None:
    text = HEAD + COUNTS.replace("BODY", "self.best = v")
    assert one(text, "v > self.best", tmp_path) == [
        "self.best = torch.where(v > self.best, v, self.best)",
        "self.best = torch.cond(v > self.best, lambda: v.clone(), lambda: self.best.clone())",
    ]


def test_a_number_that_a_side_counts_is_a_buffer(tmp_path: Path) -> None:
    text = HEAD + COUNTS.replace("BODY", "self.skipped += 1")
    (found, *_) = candidates(text, problem_at(text, "v > self.best"), tmp_path)
    assert found.as_tensors == ("skipped",)
    assert one(text, "v > self.best", tmp_path)[0] == (
        'self.register_buffer("skipped", torch.tensor(0), persistent=False)\n'
        "self.skipped = torch.where(v > self.best, self.skipped + (1), self.skipped)"
    )


def test_a_side_that_reads_what_it_has_set_stays(tmp_path: Path) -> None:
    text = HEAD + COUNTS.replace("BODY", "self.best = v; x = x * self.best")
    (refused,) = considered(text, problem_at(text, "v > self.best"), tmp_path)
    assert isinstance(refused, Refusal)
    assert refused.why == "a side reads `self.best`, which it has set"


def test_a_result_of_pure_python_is_a_constant(tmp_path: Path) -> None:
    text = f"import bisect\n{HEAD}def f(x, n):\n    return x * bisect.bisect([2, 4], n)\n"
    assert one(text, "bisect.bisect([2, 4], n)", tmp_path) == [
        "@torch.compiler.assume_constant_result\ndef _bisect(*args, **kwargs):\n"
        "return bisect.bisect(*args, **kwargs)\nreturn x * _bisect([2, 4], n)"
    ]
    clock = text.replace("bisect.bisect([2, 4], n)", "bisect.clock(n)")
    assert one(clock, "bisect.clock(n)", tmp_path) == []


def test_what_a_library_logs_unseen_is_left_out(tmp_path: Path) -> None:
    library = tmp_path / "library.py"
    library.write_text("logger.warning_once('a')\n")
    text = f"{HEAD}def f(x):\n    return library.g(x)\n"
    hint = "Add the logging method to `torch._dynamo.config.ignore_logging_functions`."
    problem = replace(problem_at(text, "library.g(x)"), file=None, span=Span(str(library), 1, 0, 1, 24), hints=(hint,))
    (made,) = changed(text, candidates(text, problem, tmp_path))
    line = "torch._dynamo.config.ignore_logging_functions.add(logging.Logger.warning_once)\n"
    assert made == text.replace("import nn\n", f"import nn\nimport logging\n\n{line}", 1)


PROPERTY = "class A:\n    @property\n    def loss(self):\n        log.warning('a')\n{}"
SETTER = "\n    @loss.setter\n    def loss(self, value):\n        pass\n"


@pytest.mark.parametrize(("setter", "others"), [(SETTER, "model = 2\n"), ("", ""), (SETTER, "")])
def test_a_property_of_a_library_is_read_once_where_it_can_be_set(tmp_path: Path, setter: str, others: str) -> None:
    (tmp_path / "lib").mkdir()
    library = tmp_path / "lib" / "library.py"
    library.write_text(PROPERTY.format(setter))
    made = "    model = torch.compile(library.A())\n"
    text = f"{HEAD}{others}def main(x):\n{made}    return model(x)\n"
    stack = (Frame("f.py", text.count("\n"), "main"),)
    broken = replace(
        problem_at(text, "model(x)"), file=None, span=Span(str(library), 4), function="A.loss", stack=stack
    )
    line = "    model.loss = model.loss\n"
    expected = [text.replace(made, f"{made}{line}")] if setter else []
    assert changed(text, candidates(text, broken, tmp_path)) == expected
    twice = text.replace(made, made * 2)
    assert candidates(twice, replace(broken, stack=(replace(stack[0], line=twice.count("\n")),)), tmp_path) == []


def test_a_function_of_math_is_torchs(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    return x * math.log(x.sum())\n"
    assert one(text, "math.log(x.sum())", tmp_path)[0] == "return x * torch.log(x.sum().detach())"
    text = f"{HEAD}def f(x, y):\n    if math.isnan(x.item()):\n        y = y * 2\n    return y\n"
    assert one(text, "math.isnan(x.item())", tmp_path)[0] == "y = torch.where(torch.isnan(x), y * 2, y)"


def test_cond_gives_several_names_a_value(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, y):\n    if x.sum() > 0:\n        x = x * 2\n        y = y + 1\n    return x + y\n"
    cond = "x, y = torch.cond(x.sum() > 0, lambda: (x * 2, y + 1), lambda: (x.clone(), y.clone()))"
    assert one(text, "x.sum() > 0", tmp_path)[-1] == cond
    assert "torch.cond" not in one(text.replace("y + 1", "y + x"), "x.sum() > 0", tmp_path)[-1]


def test_a_condition_that_is_a_number_is_compared_with_zero(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    if (x > 0).sum():\n        x = x * 2\n    return x\n"
    assert one(text, "(x > 0).sum()", tmp_path)[0] == "x = torch.where((x > 0).sum() != 0, x * 2, x)"


def test_an_elif_has_a_condition_of_its_own_for_each_side(tmp_path: Path) -> None:
    sides = "if r < 1:\n        w = r * 2\n    elif r < 2:\n        w = r + 1\n    else:\n        w = r.sqrt()"
    text = f"{HEAD}def f(r):\n    {sides}\n    return w\n"
    made = [
        "condition_1 = r < 1\ncondition_2 = r < 2\n"
        "w = torch.where(condition_1, r * 2, torch.where(condition_2, r + 1, "
        "torch.where(~condition_1 & ~condition_2, r, 1.0).sqrt()))"
    ]
    assert one(text, "r < 1", tmp_path) == one(text, "r < 2", tmp_path) == made


def test_a_side_of_an_elif_that_sets_nothing_keeps_the_value(tmp_path: Path) -> None:
    text = f"{HEAD}def f(r, w):\n    if r < 1:\n        w = r * 2\n    elif r < 2:\n        w = r + 1\n    return w\n"
    made = (
        "condition_1 = r < 1\ncondition_2 = r < 2\n"
        "w = torch.where(condition_1, r * 2, torch.where(condition_2, r + 1, w))"
    )
    assert one(text, "r < 2", tmp_path) == [made]


def test_an_if_that_is_a_whole_side_goes_with_the_outer_one(tmp_path: Path) -> None:
    inner = "if a.max() > 1:\n            h = h / a\n        else:\n            h = h + 1"
    text = f"{HEAD}def f(a, h):\n    if a.mean() > 0:\n        {inner}\n    else:\n        h = -h\n    return h\n"
    outer = (
        "condition_1 = a.mean() > 0\ncondition_2 = a.max() > 1\n"
        "h = torch.where(condition_1 & condition_2, h / torch.where(condition_1 & condition_2, a, 1.0), "
        "torch.where(condition_1, h + 1, -h))"
    )
    assert one(text, "a.mean() > 0", tmp_path) == [outer]
    both = one(text, "a.max() > 1", tmp_path)
    assert both[0] == outer  # the outer condition may be no tensor, so the inner one alone is tried too
    assert both[1].startswith("condition = a.max() > 1")


def test_a_side_that_computes_and_prints_does_both(tmp_path: Path) -> None:
    sides = "print('high', y.max().item())\n        y = y / 2\n    else:\n        SEEN.append(y.min().item() * k)"
    text = f"{HEAD}def f(x, k):\n    y = x * k\n    if y.max() > 1:\n        {sides}\n    return y\n"
    found = candidates(text, problem_at(text, "y.max() > 1"), tmp_path)
    later, within = changed(text, [each for each in found if "function of its own" in each.title])
    function = (
        "def _print_if(condition, value_1, value_2, value_3):\n"
        "    if condition:\n        print('high', value_1.item())\n"
        "    else:\n        SEEN.append(value_2.item() * value_3)\n\n\n"
    )
    body = (
        "    condition = y.max() > 1\n    _print_if(condition, y.max().detach(), y.min().detach(), k)\n"
        "    y = torch.where(condition, y / 2, y)\n    return y\n"
    )
    assert f"@torch.compiler.disable\n{function}torch._dynamo.config.reorderable_logging_functions.add" in later
    assert f"@_in_graph\n{function}" in within
    assert later.endswith(body)
    assert within.endswith(body)


def test_a_variable_is_given_once_and_a_call_each_time(tmp_path: Path) -> None:
    shown = "log.error('%f %f', y.item(), draw().item())\n        print(y.item(), draw().item())"
    text = f"{HEAD}def f(y, draw):\n    if y > 1:\n        {shown}\n    return y\n".replace("log.", "LOG.")
    first, *_ = one(text, "y > 1", tmp_path)
    assert first.endswith("_error_if(y > 1, y.detach().clone(), draw().detach(), draw().detach())")
    assert "LOG.error('%f %f', value_1.item(), value_2.item())\nprint(value_1.item(), value_3.item())" in first
    changing = text.replace("draw().item()", "y.add_(1).item()")
    assert all(isinstance(each, Refusal) for each in considered(changing, problem_at(changing, "y > 1"), tmp_path))


def test_a_side_that_shows_what_it_sets_stays(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    if x.max() > 1:\n        x = x / 2\n        print(x.max())\n    return x\n"
    (said,) = considered(text, problem_at(text, "x.max() > 1"), tmp_path)
    assert isinstance(said, Refusal)


def test_effects_on_an_object_are_run_with_it_in_the_graph(tmp_path: Path) -> None:
    side = "self.hits += 1\n            self.log.append(x.sum())\n            x = x * 2"
    body = f"        if x.sum() > 0:\n            {side}\n        return x\n"
    text = f"{HEAD}class A(nn.Module):\n    def f(self, x):\n{body}"
    found = candidates(text, problem_at(text, "x.sum() > 0"), tmp_path)
    (made,) = changed(text, [each for each in found if "what is done on the condition" in each.title])
    lines = "    if condition:\n        self.hits += 1\n        self.log.append(x.sum())\n"
    assert f"@_in_graph\ndef _append_if(condition, self, x):\n{lines}" in made
    assert "        _append_if(condition, self, x)\n        x = torch.where(condition, x * 2, x)\n" in made
    read = text.replace("return x", "return x * self.hits")
    assert not any("what is done" in each.title for each in candidates(read, problem_at(read, "x.sum() > 0"), tmp_path))


TURNS: dict[str, Callable[[int], int]] = {
    "": lambda _: 1,
    "1": lambda _: 1,
    "-2": lambda _: -2,
    "n": lambda n: n,
    "n + 1": lambda n: n + 1,
}


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_deque_is_rotated_by_what_torch_takes(turn: str, size: int, tmp_path: Path) -> None:
    text = f"{HEAD}def f(queue, x, n):\n    queue.rotate({turn})\n    return x, list(queue)\n"
    (made,) = changed(text, candidates(text, problem_at(text, f"queue.rotate({turn})"), tmp_path))
    assert made.count("queue.extendleft([queue.pop() for _ in range(") == 1
    space: dict[str, Any] = {}
    exec(made, space)
    for n in (-4, 0, 2):
        queue = collections.deque(range(size), maxlen=3)
        wanted = queue.copy()
        wanted.rotate(TURNS[turn](n))
        torch._dynamo.reset()
        compiled = torch.compile(space["f"], backend="eager", fullgraph=True)
        assert compiled(queue, torch.ones(1), n)[1] == list(queue) == list(wanted)


@pytest.mark.parametrize("use", ["y = q.rotate(1)", "q.rotate(*n)", "q.pop().rotate(1)", "q.rotate(n=1)"])
def test_another_rotation_stays(use: str, tmp_path: Path) -> None:
    text = f"{HEAD}def f(q, n):\n    {use}\n    return q\n"
    found = candidates(text, problem_at(text, use.rpartition(" = ")[2]), tmp_path)
    assert not any("rotate" in each.title for each in found)


def test_a_raise_on_a_condition_is_a_function_in_the_graph(tmp_path: Path) -> None:
    body = "if h.isnan().any():\n            raise ValueError(f'not finite: {h.max()}')"
    text = f"{HEAD}class A(nn.Module):\n    def forward(self, h):\n        {body}\n        return h\n"
    made, later = changed(text, candidates(text, problem_at(text, "h.isnan().any()"), tmp_path))
    assert "reorderable_logging_functions.add(_raise_if)" in later
    assert "@_in_graph\ndef _raise_if(condition, value_1):\n    if condition:\n" in made
    assert "        raise ValueError(f'not finite: {value_1}')\n" in made
    assert "        _raise_if(h.isnan().any(), h.max())\n" in made


def test_an_assertion_is_a_function_in_the_graph(tmp_path: Path) -> None:
    text = f"{HEAD}def f(t, n):\n    assert int(t.max()) < n, f'{{int(t.max())}} of {{n}}'\n    return t * 2\n"
    (_, made, _) = one(text, "int(t.max()) < n", tmp_path)
    assert "if condition:\nraise AssertionError(f'{int(value_1)} of {value_2}')\n" in made
    called = "torch.logical_not(t.max().to(torch.int64) < n), t.max().detach(), n"
    assert made.endswith(f"_raise_if({called})")
    plain, _, made, _ = one(text.replace(", f'{int(t.max())} of {n}'", ""), "int(t.max()) < n", tmp_path)
    assert (plain, "raise AssertionError\n" in made) == ("assert t.max().to(torch.int64) < n", True)


def test_an_assertion_of_several_conditions_is_one_of_a_tensor(tmp_path: Path) -> None:
    test = "t.isnan().sum() == 0 and not t.isinf().any()"
    text = f"{HEAD}def f(t):\n    assert {test}, (\n        'not '\n        'finite'\n    )\n    return t * 2\n"
    found = candidates(text, problem_at(text, test), tmp_path)
    assert not any("as one tensor" in each.title for each in found)  # `not` of a number is no tensor
    text = text.replace("not t.isinf().any()", "t.max() < 9")
    (made,) = changed(
        text, candidates(text, problem_at(text, test.replace("not t.isinf().any()", "t.max() < 9")), tmp_path)[:1]
    )
    space: dict[str, Any] = {}
    exec(made, space)
    torch._dynamo.reset()
    compiled = torch.compile(space["f"], backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    for wrong in (float("nan"), 10.0):
        with pytest.raises(RuntimeError, match="not finite"):
            compiled(torch.tensor([1.0, wrong]))


RANGE = f"""{HEAD}class Range(nn.Module):
    def __init__(self):
        super().__init__()
        self.momentum, self.low, self.high = 0.5, nn.Buffer(torch.zeros(1)), nn.Buffer(torch.zeros(1))

    def forward(self, x):
        if self.low.min() == 0 and self.high.max() == 0:
            self.low = self.low + x.min()
            self.high = self.high + x.max()
        # a moving average
        elif self.momentum == -1:
            self.low = torch.min(self.low, x.min())
        else:
            self.low = self.low * self.momentum + x.min()
            self.high = self.high * self.momentum + x.max()
        return x * self.low + self.high
"""


@pytest.mark.parametrize("momentum", [0.5, -1])
def test_what_an_elif_of_numbers_does_is_done_and_chosen(momentum: float, tmp_path: Path) -> None:
    found = candidates(RANGE, problem_at(RANGE, "self.low.min() == 0 and self.high.max() == 0"), tmp_path)
    (text,) = changed(RANGE, [each for each in found if "torch.where" in each.title])
    assert "        # a moving average\n        if self.momentum == -1:\n" in text
    made: list[Any] = []
    for each in (text, RANGE):
        space: dict[str, Any] = {}
        exec(each, space)
        made.append(space["Range"]())
        made[-1].momentum = momentum
    torch._dynamo.reset()
    compiled = torch.compile(made[0], backend="eager", fullgraph=True)
    for factor in (1.0, 2.0, -3.0):
        x = torch.arange(1.0, 4.0) * factor
        torch.testing.assert_close(compiled(x), made[1](x))
        torch.testing.assert_close(made[0].low, made[1].low)


@pytest.mark.parametrize(
    "other",
    [
        "self.low += x.min()",
        "self.mean = x.mean()",
        "self.low = x.min() / x.max()",
        "return x",
        "print(x)",
    ],
)
def test_what_an_elif_may_not_do(other: str, tmp_path: Path) -> None:
    text = RANGE.replace("self.low = torch.min(self.low, x.min())", other)
    found = candidates(text, problem_at(text, "self.low.min() == 0 and self.high.max() == 0"), tmp_path)
    assert not any("torch.where" in each.title for each in found)


def test_a_number_in_a_condition_is_a_tensor(tmp_path: Path) -> None:
    test = "float(x.norm().item()) > int(n) + x.max().item()"
    text = f"{HEAD}def f(x, n):\n    if {test}:\n        x = x * 2\n    return x\n"
    assert one(text, "float(x.norm().item())", tmp_path)[-2] == (
        "x = torch.where(x.norm() > int(n) + x.max(), x * 2, x)"
    )


def test_an_early_return_takes_what_follows_as_its_other_side(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x):\n    if x.sum() > 0:\n        return x, 1\n    y = x - 1\n    return y * 2, 1\n"
    assert one(text, "x.sum() > 0", tmp_path) == ["return torch.where(x.sum() > 0, x, y * 2), 1"]


def test_operands_are_harmless_where_a_side_is_not_taken(tmp_path: Path) -> None:
    body = "if s > 0:\n        d = s.sqrt()\n        e = k / d\n    else:\n        e = s * k"
    text = f"{HEAD}def f(s, k):\n    {body}\n    return e\n"
    assert one(text, "s > 0", tmp_path) == [
        "condition = s > 0\n"
        "safe_s = torch.where(condition, s, 1.0)\n"
        "d = safe_s.sqrt()\n"
        "e = torch.where(condition, k / d, s * k)"
    ]


LEFT_ALONE = {
    # source of the branch: why it is not rewritten
    "if x.sum() > 0:\n        y = x.add_(1)": "`x.add_(1)` has an effect",
    "if x.sum() > 0:\n        x.y = x": "`x.y = x` has an effect",
    "if x.sum() > 0:\n        log(x)": "`log(x)` has an effect",
    "if x.sum() > 0:\n        z = x\n    y = z": "`z` has a value on one side alone",
    "if x.sum() > 0:\n        raise ValueError from x": "`raise ValueError from x` has an effect",
    "if x.sum() > 0:\n        return x\n    else:\n        y = x": "one side returns",
    "if 0 < x.sum() < 1:\n        y = x": "the condition is a chain",
    "if x.sum() > 0:\n        for z in y:\n            y = z": "a side has a loop",
    "if x.sum() > 0:\n        y = x\n    elif y:\n        x = 1": "another `if`, and its sides do more",
}


@pytest.mark.parametrize("branch", LEFT_ALONE)
def test_a_branch_that_does_more_than_compute_stays(branch: str, tmp_path: Path) -> None:
    text = f"{HEAD}def f(self, x, y=0):\n    {branch}\n    return y\n"
    (said,) = considered(text, problem_at(text, "x.sum()"), tmp_path)
    assert isinstance(said, Refusal)
    assert LEFT_ALONE[branch] in said.why


WITH = "        with self.lock:\n            x = x + 1\n\n            x = x * 2\n"
WITHOUT = "        x = x + 1\n\n        x = x * 2\n"


@pytest.mark.parametrize("call", ["y = model(x)", "print(model(x).sum())", "return model(x)"])
def test_a_context_is_entered_around_the_call(call: str, tmp_path: Path) -> None:
    net = f"{HEAD}class A(nn.Module):\n    def forward(self, x):\n{WITH}        return x\n\n\n"
    text = f"{net}def main(model, x):\n    {call}\n"
    stack = (Frame("f.py", text.count("\n"), "main"), Frame("f.py", 7, "forward"))
    problem = problem_at(text, "self.lock", function="A.forward", stack=stack)
    (made,) = changed(text, candidates(text, problem, tmp_path))
    around = f"    with model.lock:\n        {call}\n"
    assert made == f"{net.replace(WITH, WITHOUT)}def main(model, x):\n{around}"


def test_a_context_of_a_library_is_entered_with_the_calls_that_the_block_begins_with(tmp_path: Path) -> None:
    block = "with warnings.catch_warnings():\n        warnings.simplefilter('ignore')\n        y = x * 2"
    head = f"import warnings\n{HEAD}"
    text = f"{head}def f(x):\n    {block}\n    return y\n\n\ndef main(x):\n    y = f(x)\n"
    stack = (Frame("f.py", text.count("\n"), "main"), Frame("f.py", 7, "f"))
    problem = problem_at(text, "warnings.simplefilter('ignore')", stack=stack)
    around = f"{block.replace('y = x * 2', 'y = f(x)')}\n"
    assert changed(text, candidates(text, problem, tmp_path)) == [
        f"{head}def f(x):\n    y = x * 2\n    return y\n\n\ndef main(x):\n    {around}"
    ]


TIMED = """class A(nn.Module):
    def forward(self, x):
        began = time.perf_counter()
        y = x * 2
        self.seconds += time.perf_counter() - began
        return y


def main(x):
    model = A()
    step = torch.compile(model)
    CALL
"""


def timed(call: str, tmp_path: Path, more: str = "") -> list[str]:
    """The lines that a clock around the call adds."""
    text = f"{HEAD}{TIMED.replace('CALL', call)}{more}"
    stack = (Frame("f.py", text[: text.index(call)].count("\n") + 1, "main"), Frame("f.py", 6, "forward"))
    return one(text, "began = time.perf_counter()", tmp_path, function="A.forward", stack=stack)


def test_a_clock_is_read_around_the_call(tmp_path: Path) -> None:
    added = "step.seconds += time.perf_counter() - began"
    assert timed("y = step(x)", tmp_path) == [f"began = time.perf_counter()\n{added}"]
    assert timed("print(step(x + 1).sum())", tmp_path) == [
        f"argument = x + 1\nbegan = time.perf_counter()\nresult = step(argument)\n{added}\nprint(result.sum())"
    ]


@pytest.mark.parametrize("more", ["    step(x)\n", "    model(x)\n", "    check(model)\n", "    model.forward(x)\n"])
def test_a_clock_stays_where_something_else_may_call_the_function(more: str, tmp_path: Path) -> None:
    assert timed("y = step(x)", tmp_path, more) == []


@pytest.mark.parametrize("other", ["return y * 1", "seconds = time.perf_counter() - began", "total += y"])
def test_a_clock_stays_where_its_time_is_of_a_part(other: str, tmp_path: Path) -> None:
    line = "self.seconds += time.perf_counter() - began" if "return" not in other else "return y"
    text = f"{HEAD}{TIMED.replace('CALL', 'y = step(x)').replace(line, other)}"
    stack = (Frame("f.py", text.count("\n"), "main"), Frame("f.py", 6, "forward"))
    assert one(text, "began = time.perf_counter()", tmp_path, function="A.forward", stack=stack) == []


def test_a_clock_stays_where_the_function_may_return_before_it_is_read_again(tmp_path: Path) -> None:
    text = f"{HEAD}{TIMED.replace('CALL', 'y = step(x)').replace('y = x * 2', 'return x')}"
    stack = (Frame("f.py", text.count("\n"), "main"), Frame("f.py", 6, "forward"))
    assert one(text, "began = time.perf_counter()", tmp_path, function="A.forward", stack=stack) == []


def test_a_loop_is_no_branch(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, y=0):\n    while x.sum() > 0:\n        y = x\n    return y\n"
    assert considered(text, problem_at(text, "x.sum()"), tmp_path) == []


REQUESTED = {
    "torch._dynamo.graph_break()": "    y = x + 1\n    torch._dynamo.graph_break()\n",
    "scale(x + 1)": "    y = scale(x + 1)\n",
}


@pytest.mark.parametrize("marked", REQUESTED)
def test_a_break_that_is_asked_for_is_no_longer(marked: str, tmp_path: Path) -> None:
    helper = "@torch.compiler.disable(recursive=False)\ndef scale(x):\n    return x / 2\n\n\n"
    text = f"{HEAD}{helper}def f(x):\n{REQUESTED[marked]}    return y\n"
    (made,) = changed(text, candidates(text, problem_at(text, marked), tmp_path))
    removed = "    torch._dynamo.graph_break()\n" if "break" in marked else helper.partition("\n")[0] + "\n"
    assert made == text.replace(removed, "")


MODULE = "class A(nn.Module):\n    def forward(self, x, n):\n        return x * n\n\n\n"
LOOP = f"{HEAD}{MODULE}def main(f, x):\n    for n in range(3):\n        y = f(x, n)\n"


def recompiled(
    text: str, source: str, values: tuple[str, str], tmp_path: Path, guarded: int | None = None
) -> list[str]:
    function, call = text[: text.index("def forward")].count("\n") + 1, text[: text.index("y = f(")].count("\n") + 1
    problem = recompile_of(text, "A.forward", source, function, call, values, tmp_path)
    problem = replace(problem, guarded=Span("f.py", guarded))
    made = changed(text, candidates(text, problem, tmp_path))
    return ["\n".join(line.strip() for line in each.splitlines() if line not in text.splitlines()) for each in made]


def test_a_number_among_further_arguments_is_given_as_a_tensor(tmp_path: Path) -> None:
    text = LOOP.replace("forward(self, x, n)", "forward(self, x, **options)").replace("f(x, n)", "f(x, gain=n)")
    assert recompiled(text, "L['options']['gain']", ("0.5", "0.7"), tmp_path) == [
        f"y = f(x, gain=torch.tensor(n{dtype}))" for dtype in ("", ", dtype=torch.float64")
    ]


def test_a_branch_on_the_guarded_line_is_no_effect_to_keep(tmp_path: Path) -> None:
    branch = "    if random.random() < 0.5:\n        x = x * 2\n    return x\n"
    text = f"{HEAD}def f(x):\n{branch}c = torch.compile(f)\ny = c(1)\n"
    problem = recompile_of(text, "f", "L['x'].size()[1]", 5, 9, ("3", "4"), tmp_path)
    made = candidates(text, replace(problem, guarded=Span("f.py", 6)), tmp_path)
    assert not any("behind the call" in each.title for each in made)


def test_a_size_is_marked_where_the_function_is_called(tmp_path: Path) -> None:
    assert recompiled(LOOP, "L['x'].size()[1]", ("3", "4"), tmp_path) == [
        "torch._dynamo.mark_dynamic(x, 1)",
        "torch._dynamo.maybe_mark_dynamic(x, 1)",
    ]
    assert recompiled(LOOP, "L['x']['a'].b.size()[1]", ("3", "4"), tmp_path)[0] == (
        "torch._dynamo.mark_dynamic(x['a'].b, 1)"
    )
    assert recompiled(LOOP.replace("f(x, n)", "f(x + 1, n)"), "L['x'].size()[1]", ("3", "1"), tmp_path) == [
        f"x_given = x + 1\ntorch._dynamo.{mark}(x_given, 1)\ny = f(x_given, n)"
        for mark in ("mark_dynamic", "maybe_mark_dynamic", "decorators.mark_unbacked")
    ]


def test_an_argument_gets_one_name_for_all_changes_of_its_call(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, y):\n    return x * y\nc = torch.compile(f)\nz = c(torch.ones(3), torch.ones(3))\n"
    problem = recompile_of(text, "f", "L['x'].size()[0]", 5, 8, ("3", "4"), tmp_path)
    sources = Sources(project_of(text, tmp_path))
    for _ in range(3):
        made = [found for rewrite in CATALOGUE for found in rewrite.made(problem, sources)]
        first, *_ = changed(text, [each for each in made if isinstance(each, Candidate)])
        assert "x_given = torch.ones(3)\ntorch._dynamo.mark_dynamic(x_given, 0)\nz = c(x_given" in first


def test_the_function_behind_a_break_is_known_among_several_of_its_name(tmp_path: Path) -> None:
    other = "class B(nn.Module):\n    def forward(self, y):\n        return y\n\n\n"
    text = LOOP.replace(MODULE, other + MODULE)
    line, call = (text[: text.index(place)].count("\n") + 1 for place in ("return x * n", "y = f("))
    problem = recompile_of(text, "A.forward", "L['x'].size()[1]", line, call, ("3", "4"), tmp_path)
    first, *_ = changed(text, candidates(text, problem, tmp_path))
    assert "        torch._dynamo.mark_dynamic(x, 1)\n        y = f(x, n)" in first


def test_a_size_is_marked_where_a_function_of_a_library_is_called(tmp_path: Path) -> None:
    text = (
        f"{HEAD}def main(x):\n    f = torch.compile(nn.Sequential(nn.Linear(3, 3)))\n    y = f(x)\n    z = f(x * 2)\n"
    )

    def found(line: int) -> list[str]:
        problem = recompile_of(text, "Sequential.forward", "L['args'][0].size()[0]", 248, line, ("3", "4"), tmp_path)
        return changed(text, candidates(text, replace(problem, file=None), tmp_path))

    text = text.replace("y = f(x)", "y = nn.functional.relu(f(x))")
    assert found(7)[0] == text.replace("    y =", "    torch._dynamo.mark_dynamic(x, 0)\n    y =")
    twice = "    inputs = x * 2\n    torch._dynamo.mark_dynamic(inputs, 0)\n    z = f(inputs)"
    assert found(8)[0] == text.replace("    z = f(x * 2)", twice)
    assert found(8)[-1] == text.replace("nn.Linear(3, 3))", "nn.Linear(3, 3)), dynamic=True")


@pytest.mark.parametrize(("call", "marked"), [("f(mask=x)", "x"), ("f(1, **x)", 'x["mask"]')])
def test_a_size_of_a_named_argument_is_marked(call: str, marked: str, tmp_path: Path) -> None:
    text = f"{HEAD}def main(f, x):\n    y = {call}\n"
    source = "L['kwargs']['mask'].size()[1]"
    problem = replace(recompile_of(text, "Bert.forward", source, 9, 6, ("3", "4"), tmp_path), file=None)
    first, *_ = changed(text, candidates(text, problem, tmp_path))
    assert first == text.replace("    y =", f"    torch._dynamo.mark_dynamic({marked}, 1)\n    y =")
    behind = replace(problem, stack=(problem.stack[0], Frame("", 8, "forward"), problem.stack[1]))  # a library's call
    found = changed(text, candidates(text, behind, tmp_path))
    assert any("mark_dynamic" in each for each in found) == ("**" not in call)


def test_a_size_in_a_message_is_printed_from_within_the_graph(tmp_path: Path) -> None:
    text = LOOP.replace("        return x * n", '        print(f"rows {x.shape[0]}")\n        return x * n')
    line = text[: text.index("print")].count("\n") + 1
    found = recompiled(text, "L['x'].size()[0]", ("3", "4"), tmp_path, line)
    assert found[0] == 'torch._higher_order_ops.print("rows {}", x.shape[0])\ntorch._dynamo.mark_dynamic(x, 0)'
    assert len(found) == 3


@pytest.mark.parametrize("call", ["warnings.warn", "logging.info", "log.info"])
def test_a_size_in_a_warning_is_shown_from_within_the_graph(call: str, tmp_path: Path) -> None:
    shown = f'        {call}(\n            f"rows {{x.shape[0]}}"\n        )\n        return x * n'
    text = LOOP.replace("        return x * n", shown).replace("class ", "log = logging.getLogger('a')\n\n\nclass ", 1)
    line = text[: text.index("rows")].count("\n") + 1  # of the value: torch says where the number is needed
    first, *_ = recompiled(text, "L['x'].size()[0]", ("3", "4"), tmp_path, line)
    name = "_warn" if "warn" in call else "_log_info"
    assert f'def {name}(order, value_1):\n{call}(\nf"rows {{value_1}}"\n' in first.replace(f"    {call}", call)
    assert 'schema="(Tensor(a!) order, SymInt value_1) -> ()"' in first
    assert first.endswith(f"{name}(_ORDER, x.shape[0])\ntorch._dynamo.mark_dynamic(x, 0)")


def test_a_second_message_with_the_size_is_shown_from_within_the_graph_too(tmp_path: Path) -> None:
    lines = '        print(f"rows {x.shape[0]}")\n        warnings.warn(f"{x.shape[0]} rows")\n        return x * n'
    text = LOOP.replace("        return x * n", lines)
    found = recompiled(text, "L['x'].size()[0]", ("3", "4"), tmp_path, text[: text.index("print")].count("\n") + 1)
    assert ["warnings.warn" in each for each in found[:2]] == [False, True]
    assert "_warn(_ORDER, x.shape[0])" in found[1]


def test_what_is_printed_before_a_size_is_printed_from_within_the_graph_too(tmp_path: Path) -> None:
    lines = '        warnings.warn("a")\n        print(f"rows {x.shape[0]}")\n        return x * n'
    text = LOOP.replace("        return x * n", lines)
    line = text[: text.index("print")].count("\n") + 1
    first, second, *_ = recompiled(text, "L['x'].size()[0]", ("3", "4"), tmp_path, line)
    assert "_warn" not in first
    assert second.endswith(
        "_warn.register_fake(lambda order: None)\n_warn(_ORDER)\n"
        'torch._higher_order_ops.print("rows {}", x.shape[0])\ntorch._dynamo.mark_dynamic(x, 0)'
    )
    assert (
        len(recompiled(text.replace('("a")', '("a", stacklevel=2)'), "L['x'].size()[0]", ("3", "4"), tmp_path, line))
        == 3
    )


def test_a_number_is_given_as_a_tensor(tmp_path: Path) -> None:
    assert recompiled(LOOP, "L['n']", ("0", "1"), tmp_path) == ["y = f(x, torch.tensor(n))"]
    assert recompiled(LOOP, "L['n']", ("0.5", "1.5"), tmp_path) == [
        "y = f(x, torch.tensor(n))",
        "y = f(x, torch.tensor(n, dtype=torch.float64))",
    ]
    assert recompiled(LOOP, "L['n']", ("'a'", "'b'"), tmp_path) == []


def test_a_counter_becomes_a_buffer_that_is_not_written_in_place(tmp_path: Path) -> None:
    text = LOOP.replace(
        "    def forward", "    def __init__(self):\n        self.calls = 0\n\n    def forward"
    ).replace("return x * n", "self.calls += 1\n        return x * self.calls")
    assert recompiled(text, "L['self'].calls", ("0", "1"), tmp_path) == [
        'self.register_buffer("calls", torch.tensor(0), persistent=False)\nself.calls = self.calls + 1'
    ]


def test_an_integer_of_a_module_becomes_a_symbol_of_one_of_few_compiles(tmp_path: Path) -> None:
    text = LOOP + "\nfast = torch.compile(main)\n"
    line = "torch._dynamo.config.allow_unspec_int_on_nn_module = True"
    (found,) = recompiled(text, "L['model'].blocks[0].calls", ("0", "1"), tmp_path)
    assert found.strip().splitlines() == [line, "fast = torch.compile(main, dynamic=True)"]
    dynamic = "fast = torch.compile(main, dynamic=True)"
    assert recompiled(text, "L['model'].rate", ("0.5", "1.5"), tmp_path) == [dynamic]
    assert recompiled(text, "L['n']", ("0.5", "1.5"), tmp_path)[1] == dynamic  # float64 makes two graphs
    both = recompiled(text + "torch.compile(main)\n", "L['model'].calls", ("0", "1"), tmp_path)
    assert [each.strip().splitlines()[-1] for each in both] == [dynamic, "torch.compile(main, dynamic=True)"]
    assert recompiled(text + "torch.compile(main)\n" * 3, "L['model'].calls", ("0", "1"), tmp_path) == []


REST = "    y = x + len(kept) * k\n    return y\n"
HEAD_OF = "    size = 3\n    kept = bytearray(size)\n"


def split(text: str, tmp_path: Path, marked: str = "bytearray(size)", function: str = "f") -> list[str]:
    problem = problem_at(text, marked, function=function, nothing_before=True)
    return changed(text, [each for each in candidates(text, problem, tmp_path) if "in front of" in each.title])


def test_the_statements_in_front_of_what_is_compiled_are_split_off(tmp_path: Path) -> None:
    text = f"{HEAD}@torch.compile(dynamic=False)\ndef f(x, k=2):\n{HEAD_OF}{REST}"
    (made,) = split(text, tmp_path)
    assert made == (
        f"{HEAD}@torch.compile(dynamic=False)\ndef _rest_of_f(x, k, kept):\n{REST}\n\n"
        f"def f(x, k=2):\n{HEAD_OF}    return _rest_of_f(x, k, kept)\n"
    )


def test_what_torch_compile_makes_is_called_behind_the_first_statements(tmp_path: Path) -> None:
    made = "\n\ng = torch.compile(f, dynamic=False)\n"
    text = f'{HEAD}def f(x, k=2):\n    """Add."""\n{HEAD_OF}{REST}{made}'
    inner = "".join(f"    {line}\n" for line in HEAD_OF.splitlines())
    (after,) = split(text, tmp_path)
    assert after == (
        f'{HEAD}def f(x, k, kept):\n    """Add."""\n{REST}\n\n'
        f"def _prepared_f(f):\n    def _call(x, k=2):\n{inner}        return f(x, k, kept)\n\n    return _call\n"
        "\n\ng = _prepared_f(torch.compile(f, dynamic=False))\n"
    )


def test_a_function_inside_another_is_called_behind_the_first_statements(tmp_path: Path) -> None:
    made = "    whole = torch.compile(step, backend='eager')\n    return whole(state.step)\n"
    text = f"{HEAD}def main(a, state):\n    def step(x):\n        a.zero()\n        return x * 2\n\n{made}"
    (after,) = split(text, tmp_path, "a.zero()", "main.<locals>.step")
    assert after == (
        f"{HEAD}def main(a, state):\n    def step(x):\n        return x * 2\n\n"
        "    def _prepared_step(step):\n        def _call(x):\n            a.zero()\n            return step(x)\n\n"
        "        return _call\n\n"
        "    whole = _prepared_step(torch.compile(step, backend='eager'))\n    return whole(state.step)\n"
    )
    assert split(text.replace("whole(state.step)", "step"), tmp_path, "a.zero()", "main.<locals>.step") == []


def test_a_value_that_breaks_is_made_in_front_of_what_is_compiled(tmp_path: Path) -> None:
    text = f"{HEAD}def f(x, k):\n    if x.h():\n        return x\n    return k\n\n\ng = torch.compile(f)\n"
    (after,) = split(text, tmp_path, "x.h()")
    assert after == (
        f"{HEAD}def f(x, k, value):\n    if value:\n        return x\n    return k\n\n\n"
        "def _prepared_f(f):\n    def _call(x, k):\n        value = x.h()\n        return f(x, k, value)\n\n"
        "    return _call\n\n\ng = _prepared_f(torch.compile(f))\n"
    )


MODEL = """class A(nn.Module):
    def forward(self, x, k=None):
        BODY
        return x

"""
COMPILED = '\n\nmodel = A()\nf = torch.compile(model, backend="eager")\n'


def test_the_first_statements_of_a_model_stay_in_forward(tmp_path: Path) -> None:
    text = HEAD + MODEL.replace("BODY", "self.at = time.time()\n        y = x * k") + COMPILED
    problem = problem_at(text, "time.time()", function="A.forward", nothing_before=True)
    (made,) = changed(text, [each for each in candidates(text, problem, tmp_path) if "in front of" in each.title])
    body = "        y = x * k\n        return x\n"
    rest = f'    @torch.compile(backend="eager")\n    def _rest_of_forward(self, x, k):\n{body}'
    first = "        self.at = time.time()\n        return self._rest_of_forward(x, k)\n\n"
    head = MODEL[: MODEL.index("        BODY")]
    assert made == f"{HEAD}{head}{first}{rest}\n{COMPILED.replace(COMPILED[COMPILED.index('torch.c') :], 'model')}\n"


FLAGS = {
    # source of the guard: values, condition
    "L['self'].twice": (("False", "True"), "self.twice"),
    "L['k']": (("None", "Tensor(3,)"), "k is None"),
    "L['k'] ": (("'a'", "'b'"), "k == 'a'"),
}


@pytest.mark.parametrize("source", FLAGS)
def test_a_flag_chooses_one_of_two_compiled_methods(source: str, tmp_path: Path) -> None:
    values, condition = FLAGS[source]
    text = HEAD + MODEL.replace("BODY", "x = x * 2") + f"{COMPILED}y = f(1)\n"
    problem = recompile_of(text, "A.forward", source.strip(), 6, text.count("\n"), values, tmp_path)
    (made,) = changed(text, candidates(text, problem, tmp_path))
    assert f"        if {condition}:\n            return self._forward_if(x, k)\n" in made
    assert "        return self._forward_else(x, k)\n" in made
    assert made.count('    @torch.compile(backend="eager")\n') == 2
    assert "    def _forward(self, x, k=None):\n        x = x * 2\n" in made
    assert made.endswith("f = model\ny = f(1)\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"eager"', "BACKEND"),  # the class does not know it
        ("nn.Module", "Base"),  # it may have the names already
        ("x, k=None", "x, *k"),
        ("f = ", "g = torch.compile(model)\nf = "),
    ],
)
def test_a_model_that_is_compiled_otherwise_has_no_two_methods(old: str, new: str, tmp_path: Path) -> None:
    text = (HEAD + MODEL.replace("BODY", "x = x * 2") + f"{COMPILED}y = f(1)\n").replace(old, new)
    problem = recompile_of(text, "A.forward", "L['self'].on", 6, text.count("\n"), ("False", "True"), tmp_path)
    assert candidates(text, problem, tmp_path) == []


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        (f"def f(x, k):\n{HEAD_OF}{REST}g = torch.compile(f)\nf(1, 2)\n", "bytearray(size)"),
        (f"def f(x, *k):\n{HEAD_OF}{REST}g = torch.compile(f)\n", "bytearray(size)"),
        (f"def f(x, k):\n    if k:\n        kept = bytearray(3)\n{REST}g = torch.compile(f)\n", "bytearray(3)"),
        (f"def f(x, k):\n    kept = bytearray(x.sum())\n{REST}g = torch.compile(f)\n", "bytearray(x.sum())"),
        ("def f(x):\n    return bytearray(3) or x\ng = torch.compile(f)\n", "bytearray(3)"),
        ("def f(x): return bytearray(3)\ng = torch.compile(f)\n", "bytearray(3)"),
        ("def f(x):\n    y = g(x) + x.h()\n    return y\ng = torch.compile(f)\n", "x.h()"),
        (f"def f(x, k):\n    n = (k := 2)\n    kept = bytearray(k)\n{REST}g = torch.compile(f)\n", "bytearray(k)"),
    ],
)
def test_a_function_stays_whole(text: str, marked: str, tmp_path: Path) -> None:
    assert split(HEAD + text, tmp_path, marked) == []


GROWN = (
    f"{HEAD}@torch.compile\ndef f(x, bank: list, k=2) -> object:\n    rows = torch.cat(bank, 1)\n    return rows @ x\n"
)


def grown(text: str, tmp_path: Path) -> list[str]:
    line = text[: text.index("def f")].count("\n") + 1
    problem = recompile_of(text, "f", "L['bank']", line, line, ("a list of 1", "a list of 2"), tmp_path)
    return changed(text, candidates(text, problem, tmp_path))


def test_a_list_that_grows_becomes_one_tensor_in_front_of_the_compiled_part(tmp_path: Path) -> None:
    (made, *_) = grown(GROWN, tmp_path)
    assert made == (
        f"{HEAD}@torch.compile\ndef _compiled_f(x, rows: torch.Tensor, k=2) -> object:\n    return rows @ x\n\n\n"
        "def f(x, bank: list, k=2) -> object:\n    rows = torch.cat(bank, 1)\n"
        "    torch._dynamo.mark_dynamic(rows, 1)\n    return _compiled_f(x, rows, k)\n"
    )
    method = GROWN.replace("def f(x", "def f(self, x")
    assert "return _compiled_f(x, rows, k)\n" in grown(method, tmp_path)[0].replace("self._compiled_f", "_compiled_f")
    twice = GROWN.replace("rows @ x", "rows @ torch.cat(bank, 1)")
    assert "    rows = bank\n    return rows @ bank\n" in grown(twice, tmp_path)[0]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rows @ x", "rows @ x / len(bank)"),  # the number is code of its own
        ("bank: list", "bank=()"),
        ("bank, 1", "[*bank, x], 1"),
        ("bank, 1", "bank, k"),
        ("rows =", "bank = x\n    rows ="),
        ("rows =", "BANK.append(x)\n    rows ="),  # it may be the same list
    ],
)
def test_a_list_that_is_used_otherwise_stays_one(old: str, new: str, tmp_path: Path) -> None:
    assert grown(GROWN.replace(old, new), tmp_path) == []


def test_sizes_are_made_dynamic_where_the_program_says_that_they_are_not(tmp_path: Path) -> None:
    for said, made in (("False", ["torch.compile(main, dynamic=True)"]), ("True", []), ("flag", [])):
        text = f"fast = torch.compile(main, dynamic={said})\n"
        file = Sources(project_of(text, tmp_path)).file("f.py")
        assert file is not None
        edits = [edit for _, edit in dynamic_compiles(file)]
        assert [apply_edits({"f.py": text}, [each])["f.py"].strip().removeprefix("fast = ") for each in edits] == made
