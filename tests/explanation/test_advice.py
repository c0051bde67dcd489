"""The advice fits the guard that failed. The guards are torch's own, from real recompiles."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from dynadiag.explanation.advice_on_recompiles import advise_on
from dynadiag.explanation.recompile_case import cases_of
from dynadiag.recording.records import GuardFailure, Recompile
from dynadiag.recording.torch_text.guards import completed, condition_of
from tests.explanation.build import a_failure, a_recompile

# Sentences that torch 2.13 wrote, and what must stand in the advice.
SENTENCES = {
    "0/0: tensor 'x' size mismatch at index 1. expected 4, actual 5": "mark_dynamic(x, 1)",
    "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 1": "sizes 0 and 1",
    "0/0: tensor 'x' rank mismatch. expected 1, actual 2": "number of dimensions",
    "0/0: tensor 'x' dtype mismatch. expected Float, actual BFloat16": "another dtype",
    "0/0: tensor 'x' stride mismatch at index 0. expected 3, actual 1": ".contiguous()",
    "0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0": "requires_grad",
    "0/0: GLOBAL_STATE changed: grad_mode ": "no_grad",
    "0/0: GLOBAL_STATE changed: autocast(cpu)_enabled ": "torch.autocast",
    "0/0: GLOBAL_STATE changed: num_threads ": "set_num_threads",
    "0/0: n == 3          # def f(x, n): return x + n  # g.py:33 in f": "integer `n`",
    "0/0: n == 3.0        # def f(x, n): return x + n  # g.py:33 in f": "float `n`",
    "0/0: m == 'a'        # def f(x, m): ...  # g.py:36 in f": "`m` is a constant",
    "0/0: len(xs) == 3    # def f(xs): return sum(xs)": "number of items",
    "0/0: len(d) != 1": "number of items",
    "0/0: list(dict.keys(d))[0] == 'a'": "other keys",
    "0/0: ___check_obj_id(f.__code__, 1406845), type=<class 'code'>  # f(x)": "`f` is another function",
    "0/0: ___check_type_id(o, 938915), type=<class '__main__.O'>  # o.a": "another type",
    "0/0: self.k == 1     # x * self.k (HINT: torch.compile considers ...)": "allow_unspec_int_on_nn_module",
    "0/0: self.f == 1.0   # x * self.f": "float attribute `self.f`",
    "0/0: self._modules['d'].training == True  # F.dropout(...)": "`self.d.training` switched",
    "0/0: G['SCALE'] == 1  # x + SCALE": "global `SCALE` changed, and its value is part of the code: pass it",
    "0/0: G['SCALE'] == 1.5  # x + SCALE": "torch makes such a number an input of the graph",
    "0/0: G['MODE'] == 'fast'  # x + len(MODE)": "set it once",
    "0/0: G['h'].__closure__[0].cell_contents == 2  # h(x)": "A variable that the function `h` closes over",
    "0/0: G['h'].__closure__[0].cell_contents == 2.5  # h(x)": "A float that the function `h` closes over",
    "0/0: 2 <= x.size()[1]  # x * 2": "mark_unbacked(x, 1)",
    "0/0: x.size()[1] >= 2  # x * 2": "mark_unbacked(x, 1)",
    "0/0: G['CONFIG'].heads == 2  # x * CONFIG.heads": "The integer attribute `CONFIG.heads`",
    "0/0: g.__defaults__[0] == 2  # g(x)": "each value of it is compiled apart",
    "0/0: tensor 'self._parameters['w']' requires_grad mismatch. expected requires_grad=1": "frozen or unfrozen",
    '0/0: Duplicate tensors found: ["x", "y"]': "same tensor",
    "0/0: x is y          # x + y": "same tensor",
    "0/0: set.__contains__(d, 3)  # 3 in d": "contains changed",
    "0/1: y.size()[0] == x.size()[0]  # (unknown var s17, please file a bug)": "y.size()[0] == x.size()[0]",
    "0/1: x.size()[0] <= 5  # if x.shape[0] > 5": "a branch on it",
    "0/0: Cache line invalidated because L['self'] got deallocated": "Make it once and use it again",
    "0/0: expected type of 'x' to be a tensor type, ' but found <class 'torch.nn.parameter.Parameter'>": "type",
    "0/0: expected type of 'x' to be a tensor type, ' but found <class 'NoneType'>": "None in one call",
    "0/0: self.bias is None  # if self.bias is not None": "`self.bias` was None in one call",
    "0/0: y is not None  # if y is not None": "None in one call",
    "0/0: check_tensor(y, Tensor, DispatchKeySet(CPU), torch.float32)": "another type",
    "0/0: self.param_groups[0]['lr'] == 0.001  # for group in self.param_groups": "`lr=torch.tensor(...)`",
    "0/0: self.param_groups[0]['momentum'] == 0.9  # for group in self.param_groups": "`cycle_momentum=False`",
}


def advise(recompile: Recompile, computed: Collection[str] = ()) -> tuple[str, ...]:
    return tuple(each.text for each in advise_on(cases_of(recompile, computed)))


@pytest.mark.parametrize(("sentence", "expected"), SENTENCES.items())
def test_advice_fits_the_sentence(sentence: str, expected: str) -> None:
    advice = advise(a_recompile(sentence))
    assert len(advice) == 1
    assert expected in advice[0]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_every_sentence_is_understood(sentence: str) -> None:
    assert a_failure(sentence).part != "other"


def test_an_object_that_is_gone_is_no_value_that_changed() -> None:
    sentence = "Cache line invalidated because L['self'] got deallocated"
    recorded = a_failure(sentence, source="L['self']", was="alive", now="deallocated")
    (advice,) = advise(a_recompile(reasons=(recorded,)))
    assert "is gone" in advice
    assert "changed" not in advice
    assert (a_failure(sentence)).source == "L['self']"


def test_fields_of_the_recorder_are_read_before_the_guards_text() -> None:
    guard = "check_tensor(L['x'], Tensor, DispatchKeySet(CPU), torch.float32, device=None, size=[4], stride=[1])"
    failure = a_failure(guard, source="L['x'].size()[0]", was="4", now="5")
    recompile = a_recompile(reasons=(failure,))
    assert "mark_dynamic(x, 0)" in advise(recompile)[0]
    assert completed(failure) == failure


def test_a_sentence_alone_gives_source_and_values() -> None:
    done = a_failure("0/0: tensor 'x' size mismatch at index 1. expected 4, actual 5")
    assert (done.source, done.was, done.now) == ("x.size()[1]", "4", "5")
    done = a_failure("tensor 'x' requires_grad mismatch. expected requires_grad=0")
    assert (done.source, done.was, done.now) == ("x.requires_grad", "False", "True")
    done = a_failure("0/0: GLOBAL_STATE changed: grad_mode ")
    assert (done.source, done.was, done.now) == ("grad_mode", None, None)


def test_a_guard_on_a_parameter_keeps_its_values() -> None:
    sentence = (
        "tensor 'self._parameters['w']' size mismatch at index 0. expected 4, actual 5. Guard failed on a parameter, "
        "consider using torch._dynamo.config.force_parameter_static_shapes = False to allow dynamism on parameters."
    )
    assert a_failure(sentence).now == "5"
    assert "force_parameter_static_shapes" in advise(a_recompile(sentence))[0]


def test_without_reasons_there_is_no_advice() -> None:
    assert advise(a_recompile()) == ()


def test_raising_the_limit_comes_last() -> None:
    what, limit = advise(a_recompile("m == 'a'", limit_reached=True))
    assert "`m`" in what
    assert "recompile_limit" in limit


def test_what_no_caller_has_is_not_to_be_marked() -> None:
    """The function had computed it before a break: what stands before the call cannot name it."""
    for sentence in (
        "0/0: 2 <= L['part'].size()[0]",
        "0/0: tensor 'L['part']' size mismatch at index 0. expected 4, actual 1",
    ):
        (given,) = advise(a_recompile(sentence), {"part"})
        assert given.startswith("`part` is computed before the graph break")
        assert "mark_unbacked" in advise(a_recompile(sentence))[0]


def test_what_torch_makes_a_symbol_is_said_of_nothing_else() -> None:
    found = {place: advise(a_recompile(f"0/0: {place}.k == 1"))[0] for place in ("L['o']", "G['o']")}
    assert {place: "makes it a symbol" in text for place, text in found.items()} == {"L['o']": True, "G['o']": False}


def test_strides_follow_from_sizes() -> None:
    both = a_recompile(
        "tensor 'x' size mismatch at index 0. expected 4, actual 5",
        "tensor 'x' stride mismatch at index 1. expected 4, actual 5",
    )
    assert not any("contiguous" in text for text in advise(both))


def test_the_static_entry_beside_a_dynamic_one_gives_no_advice() -> None:
    advice = advise(
        a_recompile("0/1: 2 <= x.size()[0] <= 5", "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 6")
    )
    assert len(advice) == 1
    assert "a branch on it" in advice[0]


def test_size_one_after_a_dynamic_entry_is_explained_as_such() -> None:
    advice = advise(
        a_recompile("0/1: 2 <= x.size()[0]", "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 1")
    )
    assert len(advice) == 1
    assert "mark_unbacked(x, 0)" in advice[0]


def test_a_size_that_stays_constant_is_not_to_be_marked_dynamic() -> None:
    advice = advise(
        a_recompile(
            "0/1: tensor 'x' size mismatch at index 0. expected 5, actual 6",
            "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 6",
        )
    )
    assert "dynamic=False" in advice[0]
    assert "mark_dynamic" not in advice[0]


def test_an_integer_that_changed_before_is_not_said_to_become_a_symbol() -> None:
    advice = advise(a_recompile("0/1: n == 4", "0/0: n == 3"))
    assert advice == tuple(dict.fromkeys(advice))
    assert "part of the code and changed, each value compiled apart" in advice[0]


def test_the_same_advice_is_given_once() -> None:
    assert len(advise(a_recompile("self.k == 1", "self.k == 2"))) == 1


def test_plain_takes_off_entry_comment_and_stack() -> None:
    text = "0/0: n == 3    # def f(x, n): return x + n  # g.py:3 in f\nUser stack trace:\n  File g.py"
    assert condition_of(text) == "n == 3"
    assert condition_of("m == '# a'") == "m == '# a'"


def test_a_value_left_from_before_a_break_is_blamed_on_the_break() -> None:
    failure = a_failure("L['___stack0'] == 6.4", source="L['___stack0']", was="6.4", now="7.5")
    assert "end that break" in advise(a_recompile(reasons=(failure,)))[0]


def test_a_condition_on_such_a_value_is_too() -> None:
    failure = a_failure("L['___stack0'] > 0.0", source="L['___stack0']", was="L['___stack0'] > 0.0", now="0.0")
    assert "end that break" in advise(a_recompile(reasons=(failure,)))[0]


@pytest.mark.parametrize(
    ("guard", "source"),
    [
        ("L['___stack0'] got deallocated", "L['___stack0']"),
        ("tensor 'L['___stack0']' size mismatch at index 0. expected 3, actual 5", "L['___stack0']"),
    ],
)
def test_a_value_without_a_name_is_blamed_on_the_break(guard: str, source: str) -> None:
    (advice,) = advise(a_recompile(reasons=((a_failure(guard, source=source)),)))
    assert "break" in advice


def test_an_expression_over_a_symbolic_number_is_read_as_one() -> None:
    failure = a_failure("L['s'] > 0.0", source="L['s']", was="L['s'] > 0.0", now="0.0")
    assert "`s > 0.0`" in advise(a_recompile(reasons=(failure,)))[0]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_completing_a_guard_twice_changes_nothing(sentence: str) -> None:
    once = a_failure(sentence)
    assert completed(once) == once
    assert advise(a_recompile(reasons=(once,))) == advise(a_recompile(sentence))


def test_another_type_of_number_is_another_type() -> None:
    failure = a_failure("L['n'] == 1", source="L['n']", was="1", now="1.0")
    assert "another type" in advise(a_recompile(reasons=(failure,)))[0]


def test_items_of_a_container_follow_from_its_length() -> None:
    reasons = (
        a_failure("len(L['d']) == 2", source="L['d']", was="length 2", now="length 1"),
        a_failure("L['d'][0] == 2", source="L['d'][0]", was="2", now="4"),
        a_failure("L['d'][1] exists", source="L['d'][1]", was="present", now="gone (IndexError)"),
    )
    advice = advise(a_recompile(reasons=reasons))
    assert len(advice) == 1
    assert "`d` has another number of items" in advice[0]


def sized(expression: str, against: str = "0/1") -> GuardFailure:
    return a_failure(expression, source="L['x'].size()[1]", was=expression, now="8", against=against)


def test_guards_on_the_same_sizes_are_advised_on_once() -> None:
    reasons = [sized(f"(L['x'].size()[1] // {n}) == 4") for n in (2, 3, 4)] + [sized("L['x'].size()[0] <= 5")]
    first, second = advise(a_recompile(reasons=tuple(reasons)))
    assert first.startswith(
        "The code is dynamic, but made for `(x.size()[1] // 2) == 4` (and 2 more guards on the same sizes)"
    )
    assert "`x.size()[0] <= 5`:" in second


def test_of_very_many_guards_on_sizes_few_are_advised_on() -> None:
    advice = advise(a_recompile(reasons=tuple(sized(f"L['x'].size()[{n}] <= 5") for n in range(9))))
    assert len(advice) == 2


def test_a_size_of_the_entry_that_lacked_nothing_else_is_what_to_mend() -> None:
    rows = {"source": "L['x'].size()[0]", "was": "2", "now": "3"}
    reasons = (a_failure("g", against="0/2", **rows), sized("L['x'].size()[1] <= 5", "0/2"), a_failure("g", **rows))
    (advice,) = advise(a_recompile(reasons=reasons))
    assert "mark_dynamic(x, 0)" in advice


def test_a_dtype_that_only_tells_variants_apart_gives_no_advice() -> None:
    rows = {"source": "L['x'].size()[0]", "was": "8", "now": "12"}
    kind = a_failure("g", source="L['x'].dtype", was="torch.bfloat16", now="torch.float32", against="0/1")
    (advice,) = advise(a_recompile(reasons=(kind, a_failure("g", against="0/1", **rows), a_failure("g", **rows))))
    assert "mark_dynamic(x, 0)" in advice


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("L['args'][0].size()[1]", "(`args[0]` is the first positional argument of the call)"),
        ("L['args'][4].size()[1]", "(`args[4]` is the fifth positional argument of the call)"),
        ("L['kwargs']['mask'].size()[1]", "(`kwargs['mask']` is the keyword argument `mask`)"),
        ("L['args'][0].x.size()[1]", "is the first positional argument of the call (part of it))"),
        ("L['x'].size()[1]", "mark_dynamic(x, 1)` before the first call, or"),
    ],
)
def test_the_arguments_of_a_wrapper_are_named_as_its_caller_would(source: str, words: str) -> None:
    (advice,) = advise(a_recompile(reasons=(a_failure("g", source=source, was="4", now="5"),)))
    assert words in advice


def test_a_condition_of_unknown_text_is_survived() -> None:
    (advice,) = advise(a_recompile(reasons=(a_failure("", was=""),)))
    assert "nothing more is known" in advice


def test_what_an_item_lacks_follows_from_the_keys() -> None:
    reasons = (
        a_failure("list(dict.keys(L['d']))[0] == 'a'", source="list(dict.keys(L['d']))[0]", was="'a'", now="'c'"),
        a_failure("L['d']['a'] exists", source="L['d']['a']", was="present", now="gone (KeyError)"),
    )
    (advice,) = advise(a_recompile(reasons=reasons))
    assert "`d` has other keys" in advice


def test_a_dtype_that_follows_from_the_default_one_gives_no_advice_of_its_own() -> None:
    changed = {"was": "torch.float32", "now": "torch.float64"}
    reasons = (
        a_failure("GLOBAL_STATE changed: default_dtype", source="default_dtype", **changed),
        a_failure("g", source="L['x'].dtype", **changed),
    )
    (advice,) = advise(a_recompile(reasons=reasons))
    assert advice == "The default dtype changed after the first compile: set it at the start."


def test_an_integer_attribute_that_changed_again_is_a_modules() -> None:
    (first,) = advise(a_recompile("0/0: self.k == 1"))
    (again,) = advise(a_recompile("0/1: self.k == 2", "0/0: self.k == 1"))
    assert "no module torch makes it a symbol" in first
    assert "symbol" not in again


@pytest.mark.parametrize("name", ["s", "self.s", "G['S']", "G['h'].__closure__[0].cell_contents"])
def test_a_float_that_changed_before_is_not_said_to_become_an_input(name: str) -> None:
    (again,) = advise(a_recompile(f"0/1: {name} == 2.5", f"0/0: {name} == 1.5"))
    assert "part of the code and changed, each value compiled apart" in again
    assert "From now on" not in again


def test_an_optimizers_number_that_changed_before_is_not_said_to_become_an_input() -> None:
    """The step of `SGD` needs the number of its learning rate, and `AdamW` with `foreach=True` as well."""
    for key in ("lr", "weight_decay"):
        place = f"self.param_groups[0]['{key}']"
        (again,) = advise(a_recompile(f"0/1: {place} == 0.5", f"0/0: {place} == 0.25"))
        assert "ach value is compiled apart, whatever `dynamic` is" in again
        assert "From now on" not in again


def test_what_torch_wrapped_is_told_as_another_callable_and_not_part_by_part() -> None:
    wrapper = "/env/site-packages/torch/_dynamo/external_utils.py"
    parts = [
        a_failure("___check_type_id(L['fn'], 1), type=<class 'P'>", was="P", now="S", file=wrapper, line=69),
        a_failure("L['fn'].args exists", now="gone", file=wrapper, line=69),
        a_failure("len(L['args']) == 2", now="length 1", file=wrapper, line=69),
    ]
    (advice,) = advise(a_recompile(reasons=tuple(parts)))
    assert advice.startswith("Another callable")


def test_a_number_that_became_an_input_and_was_needed_after_all_is_no_size() -> None:
    failure = a_failure("L['lo'] == 0.5", source="L['lo']", was="L['lo'] == 0.5", now="0.7", against="0/1")
    assert failure.was == "0.5"
    (advice,) = advise(a_recompile(reasons=(failure,)))
    assert "The float `lo` changed" in advice
    assert "sizes" not in advice


@pytest.mark.parametrize(
    ("guard", "is_range"), [("11 <= x.size()[0]", True), ("2*x.size()[0] > x.size()[1]", False), ("n <= 5", False)]
)
def test_a_range_is_proposed_only_for_one_size_itself(guard: str, is_range: bool) -> None:
    (advice,) = advise(a_recompile(f"0/1: {guard}  # if x.shape[0] > 5"))
    assert "made for" in advice
    assert ("states a range" in advice) is is_range
