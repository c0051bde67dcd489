"""The programs on which advice on exports was tried: as they are, where the export fails, and as the advice says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim, export
from torch.utils import _pytree as pytree

Program = Callable[[Any], Any]


def exports(
    forward: Callable[..., Any],
    *args: Any,
    shapes: Any = None,
    strict: bool = False,
    state: Any = None,
    tensors: Callable[[Any], Any] = lambda result: result,
) -> Program:
    """A program that exports a module with this ``forward`` and calls the exported program.

    It calls the module where the export fails. ``state`` are its submodules and parameters; ``tensors`` takes the
    tensors out of what it returns.
    """

    class Exported(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, value in (state or {}).items():
                setattr(self, name, value)

    Exported.forward = forward

    def program(_compiled: Any) -> Any:
        module = Exported()
        try:
            return tensors(export(module, args, dynamic_shapes=shapes, strict=strict).module()(*args))
        except Exception:  # noqa: BLE001 - the recorder has it
            return tensors(module(*args))

    return program


x, flat = torch.linspace(-1.0, 3.0, 12).reshape(4, 3), torch.linspace(-1.0, 3.0, 8)
counts, some = torch.tensor([2, 1, 3, 1]), torch.tensor(3)
six, batch, recurrent = torch.ones(6), torch.linspace(-1.0, 1.0, 12).reshape(2, 3, 2), nn.GRU(2, 4, batch_first=True)
position = nn.Parameter(torch.linspace(0.0, 1.0, 6).reshape(1, 6, 1))


def asserts_order(self: Any, v: Any) -> Any:
    assert (v[1:] >= v[:-1]).all(), "not in order"
    return v * 2


def asserts_order_in_the_graph(self: Any, v: Any) -> Any:
    torch._assert_async((v[1:] >= v[:-1]).all(), "not in order")
    return v * 2


def counts_what_is_left(self: Any, v: Any, w: Any) -> Any:
    if v[v > 0].numel() != w.numel():
        raise ValueError("not as many")
    return v + w.sum()


def counts_in_the_graph(self: Any, v: Any, w: Any) -> Any:
    torch._check(v[v > 0].numel() == w.numel())
    return v + w.sum()


def reads_packed(self: Any, v: Any, lengths: Any) -> Any:
    packed = nn.utils.rnn.pack_padded_sequence(v, lengths, batch_first=True)
    _, last = self.rnn(packed)
    return last[-1]


def reads_padded(self: Any, v: Any, lengths: Any) -> Any:
    out, _ = self.rnn(v)
    return out[torch.arange(len(lengths)), lengths - 1]


def branches(self: Any, v: Any) -> Any:
    if v.min() == v.max():
        return v
    return v - v.min()


def chooses(self: Any, v: Any) -> Any:
    return torch.where(v.min() == v.max(), v, v - v.min())


def takes_one_side(self: Any, v: Any) -> Any:
    return torch.cond(v.min() == v.max(), lambda one: one.clone(), lambda one: one - one.min(), (v,))


def returns_in_a_loop(self: Any, v: Any) -> Any:
    for _ in range(3):
        v = v.sin()
        if v.max() < 0.8:
            return v
    return v


def makes_all_steps(self: Any, v: Any) -> Any:
    done = v.max() > v.max()
    for _ in range(3):
        v = torch.where(done, v, v.sin())
        done = done | (v.max() < 0.8)
    return v


def branches_on_a_size(self: Any, v: Any, sizes: Any) -> Any:
    longest = sizes.max().item()
    kept = v[:longest]
    if longest > 2:
        kept = kept * 2
    return kept.sum(0)


def compares_beside_a_size(self: Any, v: Any, sizes: Any) -> Any:
    most = sizes.max()
    kept = v[: most.item()]
    return torch.where(most > 2, kept * 2, kept).sum(0)


def halves_while(self: Any, v: Any) -> Any:
    while v.max() > 0.8:
        v = v / 2
    return v


def halves_in_the_graph(self: Any, v: Any) -> Any:
    return torch.while_loop(lambda v: v.max() > 0.8, lambda v: (v / 2,), (v.clone(),))[0]


def converts_a_tensor(self: Any, v: Any, sizes: Any) -> Any:
    length = int(sizes.sum())
    return v.mean() + torch.zeros(length)


def takes_an_item(self: Any, v: Any, sizes: Any) -> Any:
    length = sizes.sum().item()
    return v.mean() + torch.zeros(length)


def converts_a_size(self: Any, v: Any) -> Any:
    return v + torch.zeros(int(v.shape[0]), 1)


def takes_a_size(self: Any, v: Any) -> Any:
    return v + torch.zeros(v.shape[0], 1)


def views_a_slice(self: Any, v: Any, length: Any) -> Any:
    n = length.item()
    return v[:, :n].view(v.shape[0] * n)


def views_a_checked_slice(self: Any, v: Any, length: Any) -> Any:
    n = length.item()
    torch._check(n > 0)
    return v[:, :n].view(v.shape[0] * n)


def adds_positions(self: Any, v: Any) -> Any:
    return v + self.position


def adds_its_positions(self: Any, v: Any) -> Any:
    return v + self.position[:, : v.shape[1]]


def adds_every_second(self: Any, v: Any, w: Any) -> Any:
    return v + w[::2]


def averages(self: Any, v: Any) -> Any:
    return (v * 2).mean(0)


def multiplies(self: Any, v: Any, w: Any) -> Any:
    return v * w


def splits_in_windows(self: Any, v: Any) -> Any:
    return v.view(v.shape[0] // 4, 4).sum(1)


@torch.library.custom_op("answers::unseen", mutates_args=())
def unseen(v: torch.Tensor) -> torch.Tensor:
    return v * 2


@torch.library.custom_op("answers::seen", mutates_args=())
def seen(v: torch.Tensor) -> torch.Tensor:
    return v * 2


@seen.register_fake
def _(v: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(v)


@dataclass
class Unknown:
    keys: torch.Tensor


@dataclass
class Known(Unknown):
    pass


class UnknownCache:
    def __init__(self, keys: torch.Tensor) -> None:
        self.keys = keys


class KnownCache(UnknownCache):
    pass


torch.export.register_dataclass(Known)
pytree.register_pytree_node(
    KnownCache,
    lambda cache: ([cache.keys], None),
    lambda tensors, _: KnownCache(*tensors),
    serialized_type_name="KnownCache",
    flatten_with_keys_fn=lambda cache: ([(pytree.GetAttrKey("keys"), cache.keys)], None),
)


def returns(kind: Any) -> Callable[[Any, Any], Any]:
    def forward(self: Any, v: Any) -> Any:
        doubled = v * 2
        return kind(doubled)

    return forward


def reads_keys(self: Any, v: Any, cache: Any) -> Any:
    return v + cache.keys


def loops_over_an_item(self: Any, v: Any, lengths: Any) -> Any:
    state = torch.zeros_like(v[:, 0])
    for step in range(lengths.max().item()):
        state = state.sin() + v[:, step]
    return state


def loops_over_all(self: Any, v: Any, lengths: Any) -> Any:
    state = torch.zeros_like(v[:, 0])
    for step in range(v.shape[1]):
        state = torch.where(step < lengths.max(), state.sin() + v[:, step], state)
    return state


def attends_to_what_is_kept(self: Any, v: Any, kept: Any, memory: Any) -> Any:
    chosen = v[kept].unsqueeze(0)
    return self.attend(chosen, memory, memory, need_weights=False)[0]


def attends_to_some(self: Any, v: Any, kept: Any, memory: Any) -> Any:
    chosen = v[kept].unsqueeze(0)
    torch._check(chosen.shape[1] != 0)
    return self.attend(chosen, memory, memory, need_weights=False)[0]


def multiplies_sparsely(self: Any, v: Any, w: Any) -> Any:
    return torch.sparse.mm(v, w)


@torch.library.custom_op("answers::sparse_product", mutates_args=())
def sparse_product(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sparse.mm(v, w)


@sparse_product.register_fake
def _(v: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return w.new_empty(v.shape[0], w.shape[1])


n, m = Dim("n", max=64), Dim("m", max=64)
steps = torch.linspace(0.0, 1.0, 12).reshape(2, 6, 1)
fixed = exports(adds_positions, steps, shapes=({1: Dim("length", max=512)},), state={"position": position})
windows = exports(splits_in_windows, torch.arange(16.0), shapes=({0: Dim("width", min=8, max=256)},))

attention = {"attend": nn.MultiheadAttention(4, 2, batch_first=True).eval()}
queries = (torch.linspace(0.0, 1.0, 24).reshape(6, 4), torch.tensor([1, 0, 1, 1, 0, 0]) > 0, torch.ones(1, 3, 4))
kept: dict[str, Any] = {"shapes": ({0: n}, {0: n}, None), "state": attention}


def checks_a_maximum(self: Any, v: Any) -> Any:
    if v.max() > 9:
        raise ValueError("too large")
    return v * 2


def asserts_a_maximum(self: Any, v: Any) -> Any:
    torch._assert_async(v.max() <= 9, "too large")
    return v * 2


def cuts(self: Any, v: Any) -> Any:
    first = v.argmax()
    if first > 2:
        return v[:first]
    return v


def cuts_in_the_graph(self: Any, v: Any) -> Any:
    first = v.argmax()
    return torch.cond(first > 2, lambda v, n: v[: n.item()].clone(), lambda v, n: v.clone(), (v, first))


def doubles_what_is_left(self: Any, v: Any) -> Any:
    kept = torch.nonzero(v > 0).squeeze(-1)
    if kept.numel() == 0:
        return v.new_zeros(1)
    return v[kept] * 2


def doubles_what_is_always_left(self: Any, v: Any) -> Any:
    kept = torch.nonzero(v > 0).squeeze(-1)
    torch._check(kept.numel() != 0)
    return v[kept] * 2


def doubles_in_the_graph(self: Any, v: Any) -> Any:
    kept = torch.nonzero(v > 0).squeeze(-1)
    return torch.cond(kept.numel() == 0, lambda v, _: v.new_zeros(1), lambda v, kept: v[kept] * 2, (v, kept))


def doubles_what_is_short(self: Any, v: Any) -> Any:
    if v.shape[0] < 32:
        return v * 2
    return v


def doubles_or_copies(self: Any, v: Any) -> Any:
    return torch.cond(v.shape[0] < 32, lambda v: v * 2, lambda v: v.clone(), (v,))


def subtracts_the_one_before(self: Any, v: Any) -> Any:
    return v[1:] - v[:-1]


def adds_both(self: Any, batch: Any, w: Any) -> Any:
    return batch["v"] + w


short = exports(subtracts_the_one_before, flat, shapes=({0: Dim("n", min=0, max=64)},))
both = ({"v": x}, x)

PROGRAMS: dict[str, tuple[Program, Program]] = {
    "exports_both_sides": (
        exports(doubles_what_is_short, x, shapes=({0: n},)),
        exports(doubles_or_copies, x, shapes=({0: n},)),
    ),
    "exports_a_difference": (
        short,
        exports(subtracts_the_one_before, flat, shapes=({0: Dim("n", min=3, max=64)},)),
    ),
    "exports_with_a_key_missing": (
        exports(adds_both, *both, shapes={"batch": {"v": {0: n}}}),
        exports(adds_both, *both, shapes={"batch": {"v": {0: n}}, "w": {0: n}}),
    ),
    "exports_with_a_dimension_too_many": (
        exports(adds_both, *both, shapes={"batch": {"v": {0: n, 2: m}}, "w": {0: n}}),
        exports(adds_both, *both, shapes={"batch": {"v": {0: n}}, "w": {0: n}}),
    ),
    "exports_a_tensor_branch": (exports(branches, x), exports(chooses, x)),
    "exports_a_loop_that_returns": (exports(returns_in_a_loop, x), exports(makes_all_steps, x)),
    "exports_a_branch_on_a_size": (
        exports(branches_on_a_size, x, counts),
        exports(compares_beside_a_size, x, counts),
    ),
    "exports_a_while": (exports(halves_while, x), exports(halves_in_the_graph, x)),
    "exports_an_assert": (exports(asserts_order, flat), exports(asserts_order_in_the_graph, flat)),
    "exports_a_check_of_a_size": (exports(counts_what_is_left, flat, six), exports(counts_in_the_graph, flat, six)),
    "exports_a_packed_sequence": (
        exports(reads_packed, batch, torch.tensor([3, 2]), state={"rnn": recurrent}),
        exports(reads_padded, batch, torch.tensor([3, 2]), state={"rnn": recurrent}),
    ),
    "exports_a_check": (exports(checks_a_maximum, x), exports(asserts_a_maximum, x)),
    "exports_a_slice_or_all": (exports(cuts, flat), exports(cuts_in_the_graph, flat)),
    "exports_as_always": (exports(doubles_what_is_left, flat), exports(doubles_what_is_always_left, flat)),
    "exports_a_choice_by_how_many": (exports(doubles_what_is_left, flat), exports(doubles_in_the_graph, flat)),
    "exports_one_side": (exports(branches, x), exports(takes_one_side, x)),
    "exports_an_int_of_a_tensor": (exports(converts_a_tensor, x, counts), exports(takes_an_item, x, counts)),
    "exports_an_int_of_a_size": (
        exports(converts_a_size, x, shapes=({0: n},)),
        exports(takes_a_size, x, shapes=({0: n},)),
    ),
    "exports_a_view_of_a_slice": (
        exports(views_a_slice, x, some, shapes=({0: n, 1: m}, None)),
        exports(views_a_checked_slice, x, some, shapes=({0: n, 1: m}, None)),
    ),
    "exports_a_batch_of_one": (
        exports(averages, x[:1], shapes=({0: n},)),
        exports(averages, x[:1].repeat(2, 1), shapes=({0: n},)),
    ),
    "exports_a_dynamic_batch_of_one": (
        exports(averages, x[:1], shapes=({0: Dim.DYNAMIC},)),
        exports(averages, x[:1].repeat(2, 1), shapes=({0: Dim.DYNAMIC},)),
    ),
    "exports_a_fixed_length": (
        fixed,
        exports(adds_its_positions, steps, shapes=({1: Dim("length", max=6)},), state={"position": position}),
    ),
    "exports_a_length_that_is_static": (fixed, exports(adds_positions, steps, state={"position": position})),
    "exports_a_length_that_is_automatic": (
        fixed,
        exports(adds_positions, steps, shapes=({1: Dim.AUTO},), state={"position": position}),
    ),
    "exports_two_sizes_that_are_one": (
        exports(multiplies, x, x + 1, shapes=({0: n}, {0: m}), strict=True),
        exports(multiplies, x, x + 1, shapes=({0: n}, {0: n}), strict=True),
    ),
    "exports_a_strided_sum": (
        exports(adds_every_second, flat[:4], flat, shapes=({0: Dim("n")}, {0: Dim("m")})),
        exports(adds_every_second, flat[:4], flat, shapes=({0: Dim("n")}, {0: Dim("m", min=3)})),
    ),
    "exports_windows": (
        windows,
        exports(splits_in_windows, torch.arange(16.0), shapes=({0: 4 * Dim("_width", min=2, max=64)},)),
    ),
    "exports_windows_automatically": (
        windows,
        exports(splits_in_windows, torch.arange(16.0), shapes=({0: Dim.AUTO},)),
    ),
    "exports_a_dataclass": (
        exports(returns(Unknown), x, tensors=lambda result: result.keys),
        exports(returns(Known), x, tensors=lambda result: result.keys),
    ),
    "exports_a_class_that_is_returned": (
        exports(returns(UnknownCache), x, strict=True, tensors=lambda result: result.keys),
        exports(returns(KnownCache), x, strict=True, tensors=lambda result: result.keys),
    ),
    "exports_a_tuple": (
        exports(returns(UnknownCache), x, tensors=lambda result: result.keys),
        exports(returns(lambda keys: (keys,)), x, tensors=lambda result: result[0]),
    ),
    "exports_a_class_that_is_given": (
        exports(reads_keys, x, UnknownCache(x), shapes=({0: n}, None)),
        exports(reads_keys, x, KnownCache(x), shapes=({0: n}, [{0: n}])),
    ),
    "exports_a_class_with_a_shape": (
        exports(reads_keys, x, UnknownCache(x), shapes=({0: n}, {0: n})),
        exports(reads_keys, x, KnownCache(x), shapes=({0: n}, [{0: n}])),
    ),
    "exports_a_loop": (
        exports(loops_over_an_item, x, torch.tensor([2, 3]), shapes=({0: n}, None)),
        exports(loops_over_all, x, torch.tensor([2, 3]), shapes=({0: n}, None)),
    ),
    "exports_attention_over_what_is_kept": (
        exports(attends_to_what_is_kept, *queries, **kept),
        exports(attends_to_some, *queries, **kept),
    ),
    "exports_a_sparse_product": (
        exports(multiplies_sparsely, torch.eye(4).to_sparse(), x, shapes=({0: n, 1: n}, {0: n})),
        exports(lambda self, v, w: sparse_product(v, w), torch.eye(4).to_sparse(), x, shapes=({0: n, 1: n}, {0: n})),
    ),
    "exports_an_operator_without_a_fake": (
        exports(lambda self, v: unseen(v) + 1, x),
        exports(lambda self, v: seen(v) + 1, x),
    ),
}
