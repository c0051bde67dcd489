"""Guards of two releases of torch."""

from __future__ import annotations

import pytest

from dynadiag.diff.guard_changes import GuardDifference, guard_change_text, guard_differences
from dynadiag.recording.records import Guard


def state(text: str) -> Guard:
    return Guard(0, "0/0", "GLOBAL_STATE", "", f"___check_global_state() against {text}", None, None)


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ('{"grad_mode":true}', '{"grad_mode":true,"cuda_matmul_precision":0}', False),
        ('{"grad_mode":true,"old":1}', '{"grad_mode":true,"new":0}', False),
        ('{"grad_mode":true}', '{"grad_mode":false,"new":0}', True),
    ],
)
def test_a_release_that_checks_more_of_the_state_is_no_difference(before: str, after: str, differ: bool) -> None:
    assert bool(guard_differences([state(before)], [state(after)])) == differ


def test_a_value_that_became_true_is_one_change() -> None:
    guards = [
        [Guard(0, "0/0", f"{kind}_MATCH", "L['flag']", f"L['flag'] == {value}", "p.py", 3)]
        for kind, value in (("FALSE", "False"), ("TRUE", "True"))
    ]
    (found,) = guard_differences(*guards)
    assert (found.before, found.after) == (guards[0][0], guards[1][0])


@pytest.mark.parametrize(
    ("expression", "differs"),
    [
        ("G['__import_torch_dot_nn_dot_modules_dot_linear'].F is G['F']", False),
        ("___check_obj_id(G['__builtins_dict___66']['print'], 7), type=<class 'builtin_function_or_method'>", False),
        ("___check_obj_id(G['__builtins_dict___6']['range'], 7), type=<class 'range'>", False),
        ("___check_obj_id(G['hooks']['act'], 7), type=<class 'function'>", True),
        ("___check_obj_id(G['Tools'], 7), type=<class '__main__.Tools'>", False),
        ("___check_obj_id(dict(G['Tools'].__dict__)['act'].__func__.__code__, 7), type=<class 'code'>", False),
        ("___check_obj_id(G['tools'], 7), type=<class '__main__.Tools'>", True),
        ("L['x'] is L['y']", True),
        ("G['cache'] is G['other']", True),
        ("not ___dict_contains('merge', L['self']._modules['block'].__dict__)", False),
        ("not ___dict_contains('merge', L['options'])", True),
    ],
)
def test_which_module_or_method_was_called_is_no_difference(expression: str, differs: bool) -> None:
    guard = Guard(0, "0/0", "LAMBDA_GUARD", "", expression, None, None)
    assert bool(guard_differences([], [guard])) == differs


@pytest.mark.parametrize(
    ("was", "now", "differ"),
    [
        ("G['SCALE'] == 2.0", "G['__import___main__'].SCALE == 2.0", False),
        ("G['SCALE'] == 2.0", "G['__import_helper'].SCALE == 3.0", True),
        ("G['net'].training == True", "L['net'].training == True", False),
        (
            "___check_type_id(L['m'], 7), type=<class 'dict'>",
            "___check_type_id(L['m'], 8), type=<class 'dict'> (HINT: type dict)",
            False,
        ),
        (
            "___check_fake_script_type(L['group'], 7), type=<class 'ProcessGroup'>",
            "___check_fake_script_type(L['group'], 8), type=<class 'ProcessGroup'>",
            False,
        ),
        ("___check_metadata_7_c0/0", "___check_metadata_8_c1/0", False),
        (
            """___check_obj_id(G['f'].__code__, 7), type=<code object inner at 0x7f, file "/a/torch/x.py", line 284>""",
            """___check_obj_id(G['g'].__code__, 8), type=<code object inside at 0x8f, file "/b/y.py", line 287>""",
            False,
        ),
    ],
)
def test_where_a_function_stands_and_hints_are_no_difference(was: str, now: str, differ: bool) -> None:
    guards = [
        [Guard(0, "0/0", "EQUALS_MATCH", text.partition(" ==")[0] * (" ==" in text), text, "p.py", 3)]
        for text in (was, now)
    ]
    assert bool(guard_differences(*guards)) == differ


_TENSOR = (
    "check_tensor(L['x'], Tensor, DispatchKeySet(CPU), torch.{}, device=None, "
    "requires_grad={}, size=[{}, 8], stride=[8, 1])"
)


@pytest.mark.parametrize(
    ("kind", "source", "was", "now", "told"),
    [
        ("EQUALS_MATCH", "L['o']['act']", "L['o']['act'] == 'relu'", "L['o']['act'] == 'tanh'",
         "o['act'] is 'tanh', was 'relu'"),
        ("TENSOR_MATCH", "L['x']", _TENSOR.format("float32", "False", 4), _TENSOR.format("float32", "True", "None"),
         "x has size [any, 8], had [4, 8], and requires_grad True, had False"),
        ("EQUALS_MATCH", "list(dict.keys(L['self']._modules['a']._modules))[2]", None,
         "list(dict.keys(L['self']._modules['a']._modules))[2] == '2'", "a new guard: self.a has the key '2'"),
        ("SEQUENCE_LENGTH", "L['xs']", "len(L['xs']) == 2", "len(L['xs']) == 3", "len(xs) is 3, was 2"),
        ("TYPE_MATCH", "L['k']", None, "___check_type_id(L['k'], 7), type=<class 'int'>",
         "a new guard: k is of type int"),
        ("ID_MATCH", "G['F']", "___check_obj_id(G['F'], 7), type=<class 'set'>", None,
         "a guard is gone: F is the same object, of type set"),
    ],
)  # fmt: skip
def test_a_guard_is_told_as_the_program_writes_it(
    kind: str, source: str, was: str | None, now: str | None, told: str
) -> None:
    guards = [None if text is None else Guard(0, "0/0", kind, source, text, "p.py", 3) for text in (was, now)]
    assert guard_change_text(GuardDifference(*guards)) == told


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        ('{"default_dtype":6}', '{"default_dtype":15}', "the default dtype was torch.float32, is torch.bfloat16"),
        (
            '{"autocast_state":{"dtype":[15,5],"enabled":[false,false]}}',
            '{"autocast_state":{"dtype":[15,5],"enabled":[true,false]}}',
            "autocast was off, is on",
        ),
    ],
)
def test_a_setting_is_told_by_the_names_of_its_values(was: str, now: str, told: str) -> None:
    assert guard_change_text(GuardDifference(state(was), state(now))) == told


def test_a_value_that_torch_checks_twice_is_one_guard() -> None:
    once = Guard(0, "0/0", "EQUALS_MATCH", "L['eps']", "L['eps'] == 1e-05", "p.py", 3)
    again = Guard(1, "0/0", "SHAPE_ENV", "", "L['eps'] == 1e-05", None, None)
    assert not guard_differences([once], [once, again])
