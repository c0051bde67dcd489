"""The state that a call reaches beside its arguments is the same at the start of each run."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import torch

from dynadiag.trial.fp64_oracle import ResultDifference, compare_runs
from dynadiag.trial.reachable_state import expand_objects, find_scalars, find_scalars_in, walk_objects
from dynadiag.trial.reference_run import ReplayableCall, copy_tensors, run_call


def _judged(function: Any, wrong: Any, *args: Any) -> list[ResultDifference]:
    call = ReplayableCall(function, args, {})
    expected, actual = (run_call(call, one, call.copies()) for one in (function, wrong))
    return compare_runs(call, expected, actual, None)


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(4, 4)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.1)
        self.seen = 0
        self.losses: list[float] = []
        self.notes: OrderedDict[str, int] = OrderedDict()

    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = self.model(x).pow(2).mean()
        loss.backward()
        self.optimizer.step()
        self.seen += 1
        self.losses.append(loss.item())
        self.notes[str(self.seen)] = self.seen
        return loss


def test_each_run_of_a_training_step_starts_from_the_same_state() -> None:
    trainer, twin = Trainer(), Trainer()
    x = torch.ones(2, 4)
    twin.step(x)
    for trained in (trainer, twin):
        call = ReplayableCall(trained.step, (x,), {})
        first, second = (run_call(call, trained.step, call.copies()) for _ in range(2))
        assert first.error is None
        assert second.error is None
        assert first.gradients is None is second.gradients  # `backward` used the graph up
        assert compare_runs(call, first, second, None) == []
    twin_again = ReplayableCall(twin.step, (x,), {})
    run_call(twin_again, twin.step, twin_again.copies())
    assert (trainer.seen, trainer.losses, list(trainer.notes)) == (0, [], [])
    assert (twin.seen, len(twin.losses), list(twin.notes)) == (1, 1, ["1"])
    assert not trainer.optimizer.state
    assert all(p.grad is None for p in trainer.model.parameters())


def test_the_programs_own_run_keeps_its_effects() -> None:
    trainer, twin = Trainer(), Trainer()
    call = ReplayableCall(trainer.step, (torch.ones(2, 4),), {})
    run_call(call, trainer.step, call.copies())
    run_call(call, trainer.step, (call.args, call.kwargs), differentiate=False)
    twin.step(torch.ones(2, 4))
    assert trainer.seen == twin.seen
    torch.testing.assert_close(trainer.model.weight, twin.model.weight)


def test_a_wrong_step_of_optimizer_shows_in_its_parameters() -> None:
    trainer = Trainer()

    def wrong(x: torch.Tensor) -> torch.Tensor:
        loss = trainer.step(x)
        with torch.no_grad():
            trainer.model.weight.mul_(2)
        return loss

    assert [d.rounding for d in _judged(trainer.step, wrong, torch.ones(2, 4))] == [False]


@dataclass
class Output:
    value: torch.Tensor
    more: dict[str, list[torch.Tensor]] = field(default_factory=dict)


def test_results_in_an_object_of_the_users_own_are_compared() -> None:
    def function(x: torch.Tensor) -> Output:
        return Output(x + 1, {"twice": [x * 2]})

    def wrong(x: torch.Tensor) -> Output:
        return Output(x + 1, {"twice": [x * 3]})

    assert [d.rounding for d in _judged(function, wrong, torch.ones(3))] == [False]
    assert _judged(function, function, torch.ones(3)) == []


def test_tensors_that_only_one_run_keeps_are_not_compared() -> None:
    kept: list[torch.Tensor] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        kept.append(x + 1)
        return x * 2

    def otherwise(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert _judged(function, otherwise, torch.ones(2)) == []


def test_tensors_that_both_runs_keep_are_compared() -> None:
    kept: list[torch.Tensor] = []

    def function(x: torch.Tensor) -> torch.Tensor:
        kept.append(x + 1)
        return x * 2

    def wrong(x: torch.Tensor) -> torch.Tensor:
        kept.append(x + 2)
        return x * 2

    assert [d.rounding for d in _judged(function, wrong, torch.ones(2))] == [False]


def test_an_argument_that_holds_tensors_is_restored() -> None:
    cache = Output(torch.zeros(2))

    def function(into: Output, x: torch.Tensor) -> torch.Tensor:
        into.value.add_(x)
        into.more["new"] = [x]
        return into.value * 1

    assert _judged(function, function, cache, torch.ones(2)) == []
    assert (cache.value.sum().item(), cache.more) == (0, {})


def test_objects_of_other_libraries_are_left_alone() -> None:
    values = [1, "text", None, torch.ones(2), torch.float32, len]
    assert all(a is b for a, b in zip(expand_objects(values), values, strict=True))


def test_a_result_that_is_state_is_compared_as_it_was_returned() -> None:
    total = torch.zeros(2)

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total.add_(x.detach())
        return x * 2, total, total[:1]

    def copied(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        doubled, *rest = function(x)
        return doubled, *copy_tensors(rest)

    def stale(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = copy_tensors([total, total[:1]])
        return function(x)[0], *before

    x = torch.ones(2, requires_grad=True)
    assert _judged(function, function, x) == []
    assert _judged(function, copied, x) == []
    assert [d.text.partition(" differs")[0] for d in _judged(function, stale, x)] == ["output 1", "output 2"]


def test_copies_of_a_tensor_and_its_views_are_these() -> None:
    base = torch.arange(8.0)
    for given in ([base, base[2:].view(2, 3)], [base[2:].view(2, 3), base]):
        copies = {copy.dim(): copy for copy in copy_tensors(given)}
        assert copies[2]._base is copies[1]
        assert torch.equal(copies[2], base[2:].view(2, 3))
        copies[1].zero_()
        assert not copies[2].any()
    assert base[1:].all()


def test_copies_of_conjugated_and_negated_tensors_have_their_elements() -> None:
    value = torch.randn(4, dtype=torch.complex64).conj()
    assert torch.equal(copy_tensors([value])[0], value)
    assert torch.equal(copy_tensors([value.imag])[0], value.imag)


def test_a_copy_of_autograds_zeros_has_no_memory_either() -> None:
    (copy,) = copy_tensors([torch._efficientzerotensor(2)])
    assert copy._is_zerotensor()


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)])
        self.seen = {"mean": torch.zeros(2)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        self.seen["mean"].copy_(x.detach().mean(0))
        return x


def test_a_difference_is_named_as_the_function_names_the_tensor() -> None:
    block, scale = Block(), torch.ones(2, requires_grad=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        return block(x) * scale

    def wrong(x: torch.Tensor) -> torch.Tensor:
        result = block(x)
        block.layers[1].running_mean.data.add_(1)
        block.seen["mean"].data.add_(1)
        return result + (result - result.detach()) + result.detach() * 0 * scale

    told = {difference.text.partition(" differs")[0] for difference in _judged(step, wrong, torch.randn(8, 2))}
    assert "block.layers[1].running_mean afterwards" in told
    assert "block.seen['mean'] afterwards" in told
    assert {"gradient of block.layers[1].weight", "gradient of scale"} <= told


def test_what_dynamo_sets_on_a_compiled_module_is_no_state() -> None:
    compiled = torch.compile(torch.nn.Linear(2, 2), backend="eager")
    assert not [name for name in find_scalars_in(walk_objects([("run", compiled)])) if "_torchdynamo_" in name]


def test_sizes_tuples_and_lengths_are_state() -> None:
    held = [torch.Size([3]), (1, torch.float32), object()]
    found = find_scalars_in(walk_objects([("SEEN", held)]))
    assert found == {"len(SEEN)": 3, "SEEN[0]": torch.Size([3]), "SEEN[1][0]": 1, "SEEN[1][1]": torch.float32}


def _names(function: Any) -> set[str]:
    return {*ReplayableCall(function, (torch.ones(4),), {}).named_state(), *find_scalars(function, ())}


def test_what_a_compiled_function_in_a_closure_reaches_has_the_names_that_it_has_by_itself() -> None:
    trainer, notes = Trainer(), [1]

    def note() -> None:
        notes.append(1)

    def step(x: torch.Tensor) -> torch.Tensor:
        note()
        return trainer.step(x)

    def prepared(step: Any) -> Any:
        def call(x: torch.Tensor) -> Any:
            return step(x)

        return call

    found = _names(step)
    assert {"trainer.model.weight", "trainer.seen", "notes[0]"} <= found
    assert _names(prepared(torch.compile(step, backend="eager"))) == found


def test_a_tensor_that_an_optimizer_holds_too_keeps_its_name_where_a_function_is_split() -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()

    def rest(x: torch.Tensor) -> None:
        model(x).sum().backward()

    def prepared(rest: Any) -> Any:
        def call(x: torch.Tensor) -> None:
            optimizer.zero_grad()
            rest(x)

        return call

    assert _names(prepared(torch.compile(rest, backend="eager"))) == _names(step)


def test_a_compiled_module_has_the_names_of_the_module_alone() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    compiled = torch.compile(module, backend="eager")
    plain, made = (list(walk_objects([("model", one)])) for one in (module, compiled))
    assert find_scalars_in(made) == find_scalars_in(plain)
    assert _tensor_names(made) == _tensor_names(plain)
    assert [held for _, held in made if isinstance(held, torch.nn.Sequential)] == [module]
    assert not any(held is compiled for _, held in made)


def _tensor_names(found: list[tuple[str, Any]]) -> list[str]:
    return [name for name, held in found if isinstance(held, torch.Tensor)]


def test_variables_of_one_name_in_two_closures_have_two_names() -> None:
    def counter() -> Any:
        count = torch.zeros(())
        return lambda: count.add_(1)

    first, second = counter(), counter()

    def step(x: torch.Tensor) -> torch.Tensor:
        first()
        return x

    call = ReplayableCall(lambda x: (step(x), second()), (torch.ones(1),), {})
    assert sorted(call.named_state()) == ["count", "count (2)"]


def test_what_a_helper_in_a_closure_keeps_is_restored() -> None:
    notes: list[int] = []

    def note() -> None:
        notes.append(1)

    def step(x: torch.Tensor) -> torch.Tensor:
        note()
        return x * 2

    call = ReplayableCall(step, (torch.ones(1),), {})
    run_call(call, step, call.copies())
    assert notes == []
