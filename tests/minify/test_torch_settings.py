from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest
import torch
import torch._inductor.config as inductor_config
import torch._inductor.lowering as lowering
from torch._inductor.lowering import mul, register_lowering
from torch.testing._internal.distributed.fake_pg import FakeStore

from dynadiag.minify.source_export import SourceExporter
from dynadiag.minify.torch_settings import (
    TorchSetting,
    TorchSnapshot,
    changed_settings,
    settings_source,
    use_fake_process_groups,
)
from dynadiag.torch_private.minify import group_ranks
from dynadiag.torch_private.monkeypatches import foreign_functions


@pytest.fixture
def before() -> Iterator[TorchSnapshot]:
    """A snapshot of torch, restored after the test."""
    snapshot = TorchSnapshot.take()
    yield snapshot
    for setting in changed_settings(snapshot, None):
        setting.undo()
    assert not _named(snapshot)


def _named(before: TorchSnapshot) -> dict[str, TorchSetting]:
    return {setting.name: setting for setting in changed_settings(before, None)}


def test_nothing_is_found_where_nothing_was_changed(before: TorchSnapshot) -> None:
    assert _named(before) == {}


def test_an_option_is_found_written_and_undone(before: TorchSnapshot) -> None:
    inductor_config.cpp.inject_relu_bug_TESTING_ONLY = "compile_error"
    name = "torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY"
    setting = _named(before)[name]
    assert settings_source([setting], SourceExporter(before.expression_of)).split("\n") == [
        "import torch._inductor.config",
        f"{name} = 'compile_error'",
    ]
    setting.undo()
    assert inductor_config.cpp.inject_relu_bug_TESTING_ONLY is None


def test_the_default_dtype_and_grad_mode_are_settings(before: TorchSnapshot) -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    assert set(_named(before)) == {"torch.set_default_dtype(torch.float64)", "torch.set_grad_enabled(False)"}


def test_a_replaced_lowering_comes_with_the_one_that_it_calls(before: TorchSnapshot) -> None:
    operator = torch.ops.aten.exp.default
    original = lowering.lowerings[operator]

    def replaced(*args: object, **kwargs: object) -> object:
        return original(*args, **kwargs)

    lowering.lowerings[operator] = replaced
    place = "torch._inductor.lowering.lowerings[torch.ops.aten.exp.default]"
    setting = _named(before)[place]
    lines = settings_source([setting], SourceExporter(before.expression_of)).splitlines()
    assert f"original = {place}" in lines
    assert lines[-1] == f"{place} = replaced"
    setting.undo()
    assert lowering.lowerings[operator] is original


def test_a_lowering_whose_decorator_registers_it_is_not_registered_twice(before: TorchSnapshot) -> None:
    @register_lowering(torch.ops.aten.relu.default)
    def halved_relu(x):  # type: ignore[no-untyped-def]  # as Inductor's lowerings are written
        return mul(x, 0.5)

    setting = _named(before)["torch._inductor.lowering.lowerings[torch.ops.aten.relu.default]"]
    text = settings_source([setting], SourceExporter(before.expression_of))
    assert "from torch._inductor.lowering import mul, register_lowering\n" in text
    assert "\n@register_lowering(torch.ops.aten.relu.default)\n" in text
    assert "lowerings[" not in text


def test_the_number_of_threads_belongs_to_a_crash() -> None:
    names = [setting.name for setting in changed_settings(TorchSnapshot(), 2)]
    assert "torch.set_num_threads(2)" in names


def test_a_decomposition_that_was_taken_out_is_a_setting(before: TorchSnapshot) -> None:
    from torch._inductor.decomposition import decompositions

    operator = torch.ops.aten.sigmoid_backward.default
    original = decompositions.pop(operator)
    setting = _named(before)["torch._inductor.decomposition.decompositions[torch.ops.aten.sigmoid_backward.default]"]
    line = "torch._inductor.decomposition.decompositions.pop(torch.ops.aten.sigmoid_backward.default)"
    assert settings_source([setting], SourceExporter(before.expression_of)).splitlines()[-1] == line
    setting.undo()
    assert decompositions[operator] is original


def test_only_what_somebody_put_there_is_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the imports of a module of torch that was loaded meanwhile."""
    import torch._dynamo.backends.distributed
    import torch._inductor.cudagraph_trees

    torch.compile(lambda x: x.sin() + 1)(torch.ones(8))  # loads a module that Inductor wrote
    assert not {found.path for found in foreign_functions()}

    @functools.wraps(torch._inductor.utils.ceildiv)
    def mine(*args: int) -> int:
        return 1

    monkeypatch.setattr(torch._inductor.utils, "ceildiv", mine)
    assert "torch._inductor.utils.ceildiv" in {found.path for found in foreign_functions()}


class _Mine:
    """What a program may put in the place of a method of torch's."""

    @staticmethod
    def twice(x: str) -> str:
        return f"({x} + {x})"


def test_a_method_in_the_place_of_torchs_is_written_as_what_it_was(before: TorchSnapshot) -> None:
    from torch._inductor.codegen.cpp import CppOverrides

    original = vars(CppOverrides)["rsqrt"]
    CppOverrides.rsqrt = staticmethod(lambda x: f"1 / {x}")
    place = "torch._inductor.codegen.cpp.CppOverrides.rsqrt"
    setting = _named(before)[place]
    lines = settings_source([setting], SourceExporter(before.expression_of)).splitlines()
    assert lines[0] == "import torch._inductor.codegen.cpp"
    assert lines[-1] == f"{place} = staticmethod((lambda x: f'1 / {{x}}'))"
    setting.undo()
    assert vars(CppOverrides)["rsqrt"] is original


def test_a_function_in_the_place_of_torchs_comes_with_the_one_that_it_calls(before: TorchSnapshot) -> None:
    import torch._inductor.utils

    original = torch._inductor.utils.ceildiv

    @functools.wraps(original)
    def mine(*args: int) -> int:
        return original(*args) + 1

    torch._inductor.utils.ceildiv = mine
    place = "torch._inductor.utils.ceildiv"
    text = settings_source([_named(before)[place]], SourceExporter(before.expression_of))
    assert f"\noriginal = {place}\n" in text
    assert "return original(*args) + 1" in text
    assert text.splitlines()[-1] == f"{place} = mine"


def test_a_method_that_torch_does_not_have_is_taken_away_again(before: TorchSnapshot) -> None:
    from torch._inductor.scheduler import Scheduler

    Scheduler.of_mine = _Mine.twice
    _named(before)["torch._inductor.scheduler.Scheduler.of_mine"].undo()
    assert not hasattr(Scheduler, "of_mine")


def test_a_module_that_was_loaded_meanwhile_may_have_been_changed(before: TorchSnapshot) -> None:
    import torch._inductor.utils

    place = "torch._inductor.utils.ceildiv"
    later = TorchSnapshot(before.configs, before.tables, {}, before.modules - {"torch._inductor.utils"})
    assert place not in later.functions_without_original()
    torch._inductor.utils.ceildiv = _Mine.twice
    assert later.functions_without_original() == [place]
    assert place not in _named(later)


def test_process_groups_become_fake_ones_of_the_same_names(before: TorchSnapshot) -> None:
    distributed = torch.distributed
    distributed.init_process_group("fake", rank=1, world_size=4, store=FakeStore())
    distributed.new_group([2, 3])
    distributed.new_group([0, 1])
    for _ in range(2):
        assert group_ranks() == [[0, 1, 2, 3], [], [0, 1]]
        setting = _named(before)["process groups"]
        text = settings_source([setting], SourceExporter())
        assert 'init_process_group("fake", rank=1, world_size=4' in text
        use_fake_process_groups()
    setting.undo()
    assert group_ranks() == []
