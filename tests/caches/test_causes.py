"""A changed cache key is traced back to the change in the program."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dynadiag.caches.causes import find_causes
from dynadiag.caches.key_changes import Cause, ChangedComponent, RunSide, changed_components, input_change
from dynadiag.recording.records import Compile, Guard, KeyComponent, Node, Run, Seconds, Span

PROGRAM = """import torch
import torch._inductor.config as inductor_config

CLIP = 4.0


def scaled(x):
    return x * 2


class Net(torch.nn.Module):
    def forward(self, x):
        return scaled(x).clamp(max=CLIP)


model = torch.compile(Net())
"""
RENAMED = "in scaled x is now called v: AOTAutograd's key has the names of the graph's nodes"
TENSOR = "TensorMetadata(dtype=torch.float32, shape=torch.Size([{0}]), stride=({1}, 1), device=device(type='{2}'), x=1)"


RUN = Run("p.py", (), "/u", "2.13.0", None, None, "cpu", None, 7, None, None, 0, True, ())


def side(source: str = PROGRAM, *, function: str = "Net.forward", **more: Any) -> RunSide:
    compiled = Compile(0, "0/0", "p.py", 12, function, (), "ok", 1, Seconds(), 0, None, None, None)
    run: dict[str, Any] = more.pop("run", {})
    return RunSide(replace(RUN, **run), compiled, {"p.py": source}, **more)


def change(name: str, was: str, now: str) -> ChangedComponent:
    (found,) = changed_components([KeyComponent(name, "1", was)], [KeyComponent(name, "2", now)])
    return found


def causes(changes: list[tuple[str, str, str]], before: RunSide, after: RunSide) -> list[Cause]:
    return list(find_causes([change(*each) for each in changes], before, after))


def test_only_components_whose_hashes_differ_are_changed() -> None:
    old = [KeyComponent("a", "1", "x"), KeyComponent("b", "2", "y"), KeyComponent("c", "3", "z")]
    new = [KeyComponent("a", "1", "other text"), KeyComponent("b", "9", "y"), KeyComponent("d", "4", "w")]
    found = changed_components(old, new)
    assert [each.component for each in found] == ["b", "d", "c"]
    assert found[0].was.startswith("y (another object)")
    assert changed_components((), new) == ()


def test_of_a_key_that_was_recorded_in_part_nothing_is_said_to_be_gone() -> None:
    """Where the recording ends in the compile, what AOTAutograd shares with the cache below it is missing."""
    own = [KeyComponent("gm", "1", "x"), KeyComponent("example_inputs[0]", "2", "y")]
    whole = [*own, KeyComponent("example_inputs[1]", "3", "z"), KeyComponent("torch_version", "4", "2.13")]
    assert [each.component for each in changed_components(whole, own)] == ["example_inputs[1]"]
    assert [each.component for each in changed_components(own, whole)] == ["example_inputs[1]"]


def test_a_vector_has_one_size() -> None:
    old, new = (TENSOR.format(size, 1, "cpu").replace("1, 1", "1,") for size in (4, 5))
    assert input_change(old, new)["shape"] == ("(4,)", "(5,)")


def test_an_input_differs_in_its_shape_stride_or_device() -> None:
    fields = input_change(TENSOR.format("4, 8", 8, "cpu"), TENSOR.format("5, 8", 9, "cuda"))
    assert fields == {"shape": ("(4, 8)", "(5, 8)"), "stride": ("(8, 1)", "(9, 1)"), "device": ("cpu", "cuda")}


@pytest.mark.parametrize(
    "line",
    [
        "inductor_config.epilogue_fusion = False",
        "torch.compile(Net(), options={'epilogue_fusion': False})",
        "inductor_config.patch(epilogue_fusion=False)",
    ],
)
def test_an_option_is_led_back_to_the_line_that_sets_it(line: str) -> None:
    changed = [("inductor_config[epilogue_fusion]", "True", "False"), ("fx_kwargs[a]", "1", "2")]
    (found,) = causes(changed, side(), side(PROGRAM + line))
    assert found.text == "torch._inductor.config.epilogue_fusion went from True to False"
    assert found.span == Span("p.py", PROGRAM.count("\n") + 1)


def test_an_option_that_no_line_sets_may_come_from_a_variable() -> None:
    after = side(environment={"TORCHINDUCTOR_MAX_AUTOTUNE": "1"})
    (found,) = causes([("inductor_config[max_autotune]", "False", "True")], side(), after)
    assert found.text.endswith("by TORCHINDUCTOR_MAX_AUTOTUNE (not set → 1)")


def test_deterministic_algorithms_are_one_cause() -> None:
    """torch sets an option of Inductor's with them."""
    changed = [
        ("deterministic_algorithms_settings", "(False, False, True)", "(True, False, True)"),
        ("inductor_config[deterministic]", "False", "True"),
    ]
    (found,) = causes(changed, side(), side("import torch\ntorch.use_deterministic_algorithms(True)\n"))
    assert found.text == "deterministic algorithms went from False to True"
    assert found.span == Span("p.py", 2)


def test_threads_come_from_the_environment_or_a_call() -> None:
    changed = [("cpp_runtime_thread_count", "2", "1")]
    sides = [side(environment={"OMP_NUM_THREADS": number}) for number in ("2", "1")]
    (found,) = causes(changed, *sides)
    assert found.text.startswith("the number of threads went from 2 to 1, by OMP_NUM_THREADS (2 → 1)")
    (found,) = causes(changed, side(), side("import torch\ntorch.set_num_threads(1)\n"))
    assert found.span == Span("p.py", 2)


@pytest.mark.parametrize(
    ("was", "now", "line", "told"),
    [
        ("CLIP = 4.0", "CLIP = 3.0", 4, "CLIP went from 4.0 to 3.0"),
        ("x * 2", "x * 3", 8, "the source of scaled changed"),
        ("scaled(x).clamp", "scaled(-x).clamp", 13, "the source of Net.forward changed"),
        ("scaled(x):\n    return x", "scaled(v):\n    return v", 7, RENAMED),
        ("return x * 2", "return torch.sin(x) * 2", 8, "the source of scaled changed"),
    ],
)
def test_a_graph_is_led_back_to_the_source_that_changed(was: str, now: str, line: int, told: str) -> None:
    changed = [("gm", "def forward(a):\n  x", "def forward(a):\n  y")]
    (found,) = causes(changed, side(), side(PROGRAM.replace(was, now)))
    assert (found.text, found.span) == (told, Span("p.py", line))
    assert bool(found.diff) == (not told.startswith("CLIP"))


def test_source_that_the_function_does_not_reach_is_no_cause() -> None:
    nodes = [Node(0, "clamp", "call_method", "clamp", (), "", None, None, None, Span("p.py", 13))]
    code = "def forward(self, x):\n    clamp = x.clamp(max = {0});  x = None"
    changed = [("gm", code.format("4"), code.format("5"))]
    (found,) = causes(changed, side(), side(f"{PROGRAM}OTHER = 1\n", nodes=nodes))
    assert found.text.startswith("a value that is fixed into the graph changed: clamp = x.clamp(max = 4)")
    assert found.span == Span("p.py", 13)


@pytest.mark.parametrize(
    ("before", "after", "value", "told"),
    [
        ({"environment": {"RANK": "0"}}, {"environment": {"RANK": "1"}}, "1", "RANK of this process (1) is in it"),
        (
            {"environment": {"RANK": "0"}},
            {"environment": {"RANK": "3"}},
            "worker3",
            "RANK of this process (3) is in it",
        ),
        ({"run": {"cwd": "/a"}}, {"run": {"cwd": "/b"}}, "/b/cache", "the folder that the program runs in is in it"),
        ({}, {"run": {"pid": 4242}}, "4242", "the process id is in it"),
        ({}, {}, "f_at_0x7f00aa11bb22", "an address of this process is in it"),
    ],
)
def test_what_only_one_process_has_is_named(
    before: dict[str, Any], after: dict[str, Any], value: str, told: str
) -> None:
    old = "f_at_0x7f00aa11bbff" if "0x" in value else "0"
    changed = [("gm", f"  y = g(x, {old})", f"  y = g(x, {value})")]
    (found,) = causes(changed, side(**before), side(**after))
    assert found.text.endswith(told)


def test_of_the_settings_of_products_the_one_that_changed_is_told() -> None:
    changed = [("cuda_matmul_settings", "('none', True, True)", "('tf32', True, True)")]
    (found,) = causes(changed, side(), side())
    assert found.text == "the precision of matrix products went from none to tf32"


@pytest.mark.parametrize(("rank", "named"), [("0", True), ("2", False)])
def test_a_rank_that_is_part_of_a_name_is_named(rank: str, named: bool) -> None:
    changed = [("gm", "  y = worker0.shift(p_0)", "  y = worker3.shift(p_0)")]
    (found,) = causes(changed, side(environment={"RANK": rank}), side(environment={"RANK": "3"}))
    assert found.text.endswith("RANK of this process (3) is in it") == named


def test_a_process_id_in_the_uuid_of_a_pass_is_named() -> None:
    changed = [("post_grad_custom_post_pass", "count-12", "count-4242")]
    (found,) = causes(changed, side(), side(run={"pid": 4242}))
    assert found.text.endswith("count-4242; the process id is in it")


def test_symbolic_sizes_explain_the_graph_and_its_inputs() -> None:
    changed = [
        ("example_inputs[0]", TENSOR.format("4, 8", 8, "cpu"), "s77"),
        ("gm", "a", "b"),
        ("aot_config", "False", "True"),
        ("fx_kwargs[static_input_idxs]", "[1]", "[2]"),
    ]
    (found,) = causes(changed, side(), side(PROGRAM.replace("Net())", "Net(), dynamic=True)")))
    assert found.text == "sizes went from fixed to symbolic (dynamic shapes)"
    assert found.span == Span("p.py", 16)


def test_another_size_explains_the_graph() -> None:
    changed = [
        ("example_inputs[0]", TENSOR.format("4, 8", 8, "cpu"), TENSOR.format("5, 8", 8, "cpu")),
        ("gm", "a", "b"),
    ]
    nodes = [Node(0, "l_x_", "placeholder", "L_x_", (), "", None, None, None, Span(None, None))]
    (found,) = causes(changed, side(nodes=nodes), side(nodes=nodes))
    assert found.text == "input L_x_: shape went from (4, 8) to (5, 8)"


def test_a_renamed_argument_is_found_at_its_function() -> None:
    names = "(0, [LocalSource(local_name='{0}', is_input=True)])"
    renamed = PROGRAM.replace("def forward(self, x)", "def forward(self, features)")
    (found,) = causes([("aot_config", names.format("x"), names.format("features"))], side(), side(renamed))
    assert found.text.startswith("x is now called features")
    assert found.span == Span("p.py", 12)


def test_a_renamed_layer_is_told_by_its_two_names() -> None:
    names = (
        "[DictGetItemSource(base=UnspecializedNNModuleSource(base=AttrSource(base=LocalSource(local_name='self', "
        "is_input=True), member='_modules'), index='{0}'), index='weight')]"
    )
    (found,) = causes([("aot_config", names.format("one"), names.format("first"))], side(), side())
    assert found.text.startswith("one is now called first")


def test_the_inputs_of_a_graph_below_follow_from_the_cause_above() -> None:
    changed = [("example_inputs[1]", TENSOR.format("4, 16", 16, "cpu"), TENSOR.format("8, 4", 4, "cpu"))]
    above = Cause("input x: requires_grad went from True to False")
    assert find_causes([change(*each) for each in changed], side(), side(), [above]) == (above,)


def test_the_uuid_of_a_pass_and_the_rest_by_name() -> None:
    source = f"{PROGRAM}class Own:\n    def uuid(self):\n        return b'2'\n"
    changed = [("post_grad_custom_post_pass", "b'1'", "b'2'"), ("unheard_of", "1", "2")]
    found = causes(changed, side(), side(source))
    assert [each.text for each in found] == [
        "the uuid() of the custom pass post_grad_custom_post_pass went from b'1' to b'2'",
        "unheard_of went from 1 to 2; the program's source changed in one place only",
    ]
    assert found[0].span == Span("p.py", 18)


def test_functorchs_options_have_names_in_the_metrics() -> None:
    sides = [side(options={"functorch_config": {"activation_memory_budget": value}}) for value in (1.0, 0.5)]
    (found,) = causes([("autograd_config", "\x80\x02", "\x80\x03")], *sides)
    assert found.text == "torch._functorch.config.activation_memory_budget went from 1.0 to 0.5"


def test_another_torch_explains_its_options_too() -> None:
    changed = [("torch_version", "a", "b"), ("inductor_config[new]", "not there", "1")]
    (found,) = causes(changed, side(), side(run={"torch": "2.14.0"}))
    assert found.text == "torch went from 2.13.0 to 2.14.0"


def test_the_option_of_threads_explains_their_number() -> None:
    changed = [("inductor_config[cpp.threads]", "-1", "1"), ("cpp_runtime_thread_count", "2", "not there")]
    (found,) = causes(changed, side(), side())
    assert found.text == "torch._inductor.config.cpp.threads went from -1 to 1"


def test_a_switch_of_torch_is_led_back_to_its_call() -> None:
    (found,) = causes(
        [("default_dtype", "torch.float32", "torch.float64"), ("gm", "a", "b")],
        side(),
        side(f"{PROGRAM}torch.set_default_dtype(torch.float64)\n"),
    )
    assert found.span == Span("p.py", 17)


CALL = f"{PROGRAM}print(model(torch.ones(4, 8)))\n"
ANOTHER_SHAPE = [("example_inputs[0]", TENSOR.format("4, 8", 8, "cpu"), TENSOR.format("5, 8", 8, "cpu"))]
HASH = {"environment": {"PYTHONHASHSEED": "1"}}


def guard(source: str, value: str, line: int | None = None) -> Guard:
    return Guard(0, "0/0", "EQUALS_MATCH", source, f"{source} == {value}", "p.py", line)


@pytest.mark.parametrize(
    ("now", "more", "line"),
    [
        (CALL.replace("4, 8", "5, 8"), {}, 17),
        (
            CALL.replace("model(torch.ones(4, 8))", "\n    # five rows\n    model(\n        torch.ones(5, 8)\n    )\n"),
            {},
            20,
        ),
        (CALL.replace("4, 8", "5, 8"), HASH, None),
        (CALL.replace("4, 8", "5, 8"), {"run": {"argv": ("p.py", "5")}}, None),
        (CALL.replace("4, 8", "5, 8").replace("import torch\n", "import os, torch\n", 1), {}, None),
        (f"# text\n{CALL}", {}, None),
    ],
)
def test_a_cause_is_at_the_only_statement_that_changed(now: str, more: dict[str, Any], line: int | None) -> None:
    (found,) = causes(ANOTHER_SHAPE, side(CALL), side(now, **more))
    told = "" if line is None else "; the program's source changed in one place only"
    assert found.text == f"input 0 of the graph: shape went from (4, 8) to (5, 8){told}"
    assert (found.span and found.span.line) == line


def test_an_input_has_the_name_that_the_program_gives_it() -> None:
    nodes = [Node(0, "l_x_", "placeholder", "L_self_parameters_w_", (), "", None, None, None, Span(None, None))]
    guards = [Guard(0, "0/0", "TENSOR_MATCH", "L['self']._parameters['w']", "check_tensor(...)", None, None)]
    (found,) = causes(ANOTHER_SHAPE, side(), side(nodes=nodes, guards=guards))
    assert found.text.startswith("input self.w: shape")


@pytest.mark.parametrize(
    ("source", "was", "now", "line", "told"),
    [
        ("G['CLIP']", "4.0", "3.0", 4, "CLIP went from 4.0 to 3.0, and the graph has its value"),
        ("L['self'].gain", "4.0", "3.0", 13, "self.gain went from 4.0 to 3.0"),
        ("L['limit']", "4.0", "3.0", 13, "an argument of the program (3.0) is in it"),
    ],
)
def test_a_value_in_the_graph_has_its_name(source: str, was: str, now: str, line: int, told: str) -> None:
    sides = [side(guards=[guard(source, value, 13)], run={"argv": ("p.py", value)}) for value in (was, now)]
    (found,) = causes([("gm", f"  y = clamp(x, {was})", f"  y = clamp(x, {now})")], *sides)
    assert told in found.text
    assert found.span == Span("p.py", line)


def test_values_in_another_order_are_of_a_set() -> None:
    orders = (("'a'", "'b'"), ("'b'", "'a'"))
    sides = [side(guards=[guard(f"G['CLIP'][{i}]", name, 13) for i, name in enumerate(order)]) for order in orders]
    (found,) = causes([("gm", "x", "y")], *sides)
    assert found.text.startswith("the order of CLIP changed: CLIP[0] went from 'a' to 'b'")
    assert "PYTHONHASHSEED" in (found.cure or "")


def test_the_graph_below_follows_from_the_key_above() -> None:
    above = causes([("autocast_state[cpu]", "not there", "torch.bfloat16")], side(), side())
    assert above[0].text == "autocast went from off to torch.bfloat16"
    below = [change("gm", "a", "b"), change("fx_kwargs[is_inference]", "True", "False")]
    assert list(find_causes(below, side(), side(), above)) == above
    assert list(find_causes([change("inductor_config[a]", "1", "2")], side(), side(), above)) != above


@pytest.mark.parametrize(
    ("was", "now", "line", "told"),
    [
        ("return g * 2", "return g * 3", 6, "the source of Twice.backward changed"),
        ("return x * 4", "return x * 5", 2, "the source of four changed"),
    ],
)
def test_source_that_is_reached_through_a_class_or_in_another_file(was: str, now: str, line: int, told: str) -> None:
    files = {
        "p.py": "class Twice:\n    def forward(x):\n        return x * 2\n\n"
        "    def backward(g):\n        return g * 2\n"
        "def step(x):\n    return four(Twice.apply(x))\n",
        "helper.py": "def four(x):\n    return x * 4\n",
    }
    after = {file: text.replace(was, now) for file, text in files.items()}
    sides = [replace(side(function="step"), sources=sources) for sources in (files, after)]
    (found,) = causes([("gm", "a", "b")], *sides)
    assert (found.text, found.span and found.span.line) == (told, line)


LAYERS = """import torch


class Base(torch.nn.Module):
    GAIN = 1.5

    def scale(self, x):
        return x * self.GAIN


class Other(torch.nn.Module):
    GAIN = 7.0


class Net(Base):
    def forward(self, x):
        return self.scale(x)


def build():
    def step(x):
        return x + 1

    return torch.compile(step)


double = torch.compile(lambda x: x * 2)
"""


@pytest.mark.parametrize(
    ("was", "now", "function", "line", "told"),
    [
        ("GAIN = 1.5", "GAIN = 1.75", "Net.forward", 5, "Base.GAIN went from 1.5 to 1.75"),
        ("class Net(Base)", "class Net(Other, Base)", "Net.forward", 15, "the source of Net changed"),
        ("x + 1", "x + 2", "build.<locals>.step", 21, "the source of build changed"),
        ("x * 2", "x * 3", "<lambda>", 27, "double went from torch.compile(lambda x: x * 2) to"),
    ],
)
def test_a_change_in_a_class_or_in_a_function_within_another(
    was: str, now: str, function: str, line: int, told: str
) -> None:
    sides = [side(text, function=function) for text in (LAYERS, LAYERS.replace(was, now))]
    compiled_line = {"build.<locals>.step": 21, "<lambda>": 27}.get(function, 16)
    sides = [replace(each, compile=replace(each.compile, line=compiled_line)) for each in sides]
    (found,) = causes([("gm", "a", "b")], *sides)
    assert found.text.startswith(told)
    assert found.span == Span("p.py", line)


def test_a_docstring_and_annotations_are_no_cause() -> None:
    documented = PROGRAM.replace(
        "def scaled(x):\n", 'def scaled(x: torch.Tensor) -> torch.Tensor:\n    """Twice x."""\n'
    ).replace("CLIP = 4.0", "CLIP = 3.0")
    (found,) = causes([("gm", "a", "b")], side(), side(documented))
    assert found.text == "CLIP went from 4.0 to 3.0"


@pytest.mark.parametrize(
    ("other", "told"), [("mul(x, 3.0)", "fixed into the graph"), ("div(x, 2.0)", "something else")]
)
def test_a_value_of_the_graph_and_another_operator(other: str, told: str) -> None:
    (found,) = causes([("gm", "add = mul(x, 2.0)", f"add = {other}")], side(), side())
    assert told in found.text


def test_inputs_in_another_order_are_no_change_of_an_input() -> None:
    sides = [
        side(nodes=[Node(0, name, "placeholder", name, (), "", None, None, None, Span(None, None)) for name in names])
        for names in (("L_x_", "L_w_"), ("L_w_", "L_x_"))
    ]
    small, large = (TENSOR.format(size, 1, "cpu") for size in ("4, 8", "8, 8"))
    old, new = (f"[LocalSource(local_name='{one}'), LocalSource(local_name='{two}')]" for one, two in ("xw", "wx"))
    order = ("aot_config", old, new)
    inputs = [("example_inputs[0]", small, large), ("example_inputs[1]", large, small)]
    (found,) = causes([*inputs, order, ("gm", "mul(x, w)", "relu(w)")], *sides)
    assert found.text == "the graph computes something else"
    (found,) = causes([order], *sides)
    assert "reads its inputs in another order" in found.text


def test_an_input_that_is_gone() -> None:
    before = side(
        nodes=[Node(0, "L_y_", "placeholder", "L_y_", (), "", None, None, None, Span(None, None))],
        guards=[Guard(0, "0/0", "TENSOR_MATCH", "L['y']", "", None, None)],
    )
    key = [KeyComponent("example_inputs[0]", "1", TENSOR.format("4, 8", 1, "cpu"))], [KeyComponent("gm", "2", "same")]
    found = find_causes(changed_components(key[0], [*key[1]]), before, side())
    assert found[0].text == "the graph no longer has the input y"
