"""Other inputs for a compiled call: special values, other sizes, other modes, made in the same way in every process.

A variant has a name, and the name alone decides what it does, so that the unchanged program and a candidate make the
same inputs in processes of their own. Leaves are addressed by their position among the call's arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from dynadiag.trial.reference_run import Arguments, ReplayableCall, tensors_in

OWN = "the program's inputs"
_SIZES = 4  # distinct sizes that are changed
_LEAVES = 4  # tensors, and numbers, that are changed one at a time
_INTEGERS = ("smallest", "largest", "reversed", "extreme")
_MASKS = ("empty", "full", "inverted")
_SMALL_INTEGERS = (torch.uint8, torch.int8, torch.int16)
_SCALES = tuple(10.0**power for power in (-6, -4, -3, -2, -1, 1, 2, 3, 4, 6))
_RANDOM_SEARCHES = 24
_MUCH_LARGER = 5  # times a size
_NUDGED = "nudged"


def variant_names(call: ReplayableCall) -> list[str]:
    """The names of all variants that make sense for a call."""
    leaves = pytree.tree_leaves((call.args, call.kwargs))
    tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    floats = [i for i in tensors if leaves[i].is_floating_point()]
    names = _float_names(floats, leaves) if floats else []
    names += [f"{what} integers" for what in _INTEGERS] if any(_is_whole(leaves[i]) for i in tensors) else []
    names += [f"{what} masks" for what in _MASKS] if any(leaves[i].dtype is torch.bool for i in tensors) else []
    names += [f"argument {i} {what}" for i in _numbers(leaves)[:_LEAVES] for what in _number_names(leaves[i])]
    smaller = () if any(_may_index_on_a_device(leaves[i]) for i in tensors) else (1, 0)
    names += [f"size {size} to {new}" for size in _sizes(leaves)[:_SIZES] for new in (size + 1, 2 * size, *smaller)]
    names += [f"state {what}" for what in ("zeros", "nan", "negative", "large")] if _float_state(call) else []
    names += ["other mode"] if _modules(call) else []
    return [*names, "no_grad" if torch.is_grad_enabled() else "grad mode"]


def _float_names(floats: Sequence[int], leaves: Sequence[Any]) -> list[str]:
    names = ["zeros", "ones", "nan", "inf", "-inf", "negative", "scaled 1000.0", "scaled 0.001"]
    names += ["random 0", "random 1", "equal", "double"]
    names += [f"zero argument {i}" for i in floats[:_LEAVES] if len(floats) > 1]
    names += ["requires grad"] if any(not leaves[i].requires_grad for i in floats) else []
    return names + (["requires no grad"] if any(leaves[i].requires_grad for i in floats) else [])


def meets_edges(name: str) -> bool:
    """Whether inputs of this name may meet the edge of a branch on purpose: the program's own, equal numbers, zeros.
    Scaled and random numbers do not.
    """
    return name.removeprefix("state ").partition(" ")[0] not in ("large", "scaled", "random")


def search_names(call: ReplayableCall) -> Iterator[str]:
    """Further variants, for a branch of which one side was not taken yet."""
    for size in _sizes(pytree.tree_leaves((call.args, call.kwargs)))[:_SIZES]:
        yield f"size {size} to {_MUCH_LARGER * size}"
    for scale in _SCALES:
        yield f"scaled {scale}"
        yield f"state scaled {scale}"
    for seed in range(2, _RANDOM_SEARCHES):
        yield f"random {seed}"


def variant(
    name: str,
    call: ReplayableCall,
    arguments: Arguments,
    function: Callable[..., Any],
    as_tensors: Collection[str] = (),
    tensors: Collection[int] | None = None,
    *,
    nudged: bool = False,
) -> tuple[Any, Any]:
    """The function and the arguments of a variant. ``arguments`` are copies of the call's, and may be changed.

    ``as_tensors`` are attributes that the unchanged program has as numbers, which no variant changes. ``tensors`` are
    the positions of the arguments that are tensors in the unchanged program; ``None`` for all of them. ``nudged`` moves
    each float of the arguments and of the state by its last bit, up or down.
    """
    if name == OWN and not nudged:
        return function, arguments
    leaves, spec = pytree.tree_flatten(arguments)
    _carry_marks(pytree.tree_leaves((call.args, call.kwargs)), leaves)
    positions = range(len(leaves)) if tensors is None else tensors
    if not name.startswith("state ") and name not in (OWN, "other mode", "no_grad", "grad mode"):
        before = list(leaves)
        with torch.no_grad():
            _change_leaves(name, leaves, positions)
        _carry_marks(before, leaves)
    if nudged:
        _change_leaves(_NUDGED, leaves, positions)
        function = _before(lambda: _change_state(call, _NUDGED, as_tensors), function)
    return _in_other_state(name, call, function, as_tensors), pytree.tree_unflatten(leaves, spec)


def _carry_marks(originals: Sequence[Any], leaves: Sequence[Any]) -> None:
    """Put the marks of `mark_dynamic` on the copies: they are attributes of a tensor."""
    for original, leaf in zip(originals, leaves, strict=True):
        if isinstance(original, torch.Tensor) and isinstance(leaf, torch.Tensor) and original is not leaf:
            for key, value in vars(original).items() if hasattr(original, "__dict__") else ():
                if key.startswith("_dynamo_"):
                    setattr(leaf, key, value)


def _change_leaves(name: str, leaves: list[Any], tensors: Collection[int]) -> None:
    first, _, rest = name.partition(" ")
    floats = [i for i in tensors if _is_float(leaves[i])]
    if first == "argument":
        position, _, what = rest.partition(" ")
        leaves[int(position)] = _other_number(leaves[int(position)], what)
    elif first == "size":
        old, _, new = rest.partition(" to ")
        leaves[:] = [_resized(leaf, int(old), int(new)) for leaf in leaves]
    elif rest == "integers":
        for i in tensors:
            _change_integers(leaves[i], first)
    elif rest == "masks":
        for i in tensors:
            _change_mask(leaves[i], first)
    elif first == "equal":
        _make_equal([leaves[i] for i in floats])
    elif first == "requires":
        for i in floats:
            leaves[i] = leaves[i].detach().requires_grad_(rest == "grad")
    elif name == "double":
        for i in floats:
            leaves[i] = leaves[i].detach().double().requires_grad_(leaves[i].requires_grad)
    elif first == "zero":
        _fill(leaves[int(rest.removeprefix("argument "))], "zeros", 0)
    else:
        for i in floats:
            _fill(leaves[i], name, i)


def _fill(leaf: torch.Tensor, name: str, position: int) -> None:
    """Change the values of a tensor in place, outside of autograd."""
    first, _, rest = name.partition(" ")
    data = leaf.data
    special = {"zeros": 0.0, "ones": 1.0}
    if first in special:
        data.fill_(special[first])
    elif first in ("nan", "inf", "-inf") and data.numel():
        data[(0,) * data.dim()] = float(first)
    elif first in ("negative", "large", "scaled"):
        data.mul_({"negative": -1.0, "large": 1e4}.get(first) or float(rest))
    elif name == _NUDGED:
        up = torch.randint(2, data.shape, generator=torch.Generator().manual_seed(position))
        data.mul_((1 + torch.finfo(data.dtype).eps * (2.0 * up.double() - 1)).to(data.device))
    elif first == "random":
        generator = torch.Generator().manual_seed(1000 * position + int(rest))
        values = torch.randn(data.shape, generator=generator, dtype=torch.float64)
        data.copy_(values * 3.0 ** (int(rest) % 5 - 1))


def _make_equal(tensors: Sequence[torch.Tensor]) -> None:
    for tensor in tensors[1:]:
        if tensor.shape == tensors[0].shape:
            tensor.data.copy_(tensors[0].data)


def _change_integers(leaf: Any, what: str) -> None:
    """Other integers of those that the program uses: beyond them they may be no valid index. Types of up to 16 bits
    also hold their largest value, beyond which arithmetic on tensors wraps and that on numbers does not.
    """
    if not _is_whole(leaf) or not leaf.numel():
        return
    if what == "reversed":
        leaf.copy_(leaf.flatten().flip(0).reshape(leaf.shape).clone())
    elif what != "extreme":
        leaf.fill_(int(leaf.min() if what == "smallest" else leaf.max()))
    elif leaf.dtype in _SMALL_INTEGERS:
        leaf.fill_(torch.iinfo(leaf.dtype).max)


def _is_whole(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32, *_SMALL_INTEGERS)


def _may_index_on_a_device(value: Any) -> bool:
    """Whether a GPU may use a tensor as an index. There an index beyond a size ends all later work of the process."""
    return _is_whole(value) and value.device.type != "cpu"


def _change_mask(leaf: Any, what: str) -> None:
    if isinstance(leaf, torch.Tensor) and leaf.dtype is torch.bool:
        leaf.logical_not_() if what == "inverted" else leaf.fill_(what == "full")


def _numbers(leaves: Sequence[Any]) -> list[int]:
    """Positions of numbers, and of tensors that a candidate may have made of them."""
    return [i for i, leaf in enumerate(leaves) if type(leaf) in (bool, int, float)]


def _number_names(value: float) -> list[str]:
    if isinstance(value, bool):
        return ["inverted"]
    return ["+1", "-1", "0", "7"] if isinstance(value, int) else ["0.0", "-0.5", "2.5", "nan"]


def _other_number(value: Any, what: str) -> Any:
    """The changed number; of a tensor that holds a number a tensor."""
    number = value.item() if isinstance(value, torch.Tensor) else value
    if what == "inverted":
        changed: float = not number
    elif what in ("+1", "-1"):
        changed = number + int(what)
    else:
        changed = float(what) if "." in what or what == "nan" else int(what)
    return torch.full_like(value, changed) if isinstance(value, torch.Tensor) else changed


def _sizes(leaves: Sequence[Any]) -> list[int]:
    """The sizes of tensors. The ragged dimensions of nested tensors are left out: their sizes are no numbers."""
    found = (size for leaf in leaves if isinstance(leaf, torch.Tensor) for size in leaf.shape)
    return list(dict.fromkeys(size for size in found if isinstance(size, int) and size > 0))


def _resized(leaf: Any, old: int, new: int) -> Any:
    """The tensor with each dimension of size ``old`` made ``new``, by repeating or leaving out what it has."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided or old not in leaf.shape:
        return leaf
    made = leaf.detach()
    for dimension, size in enumerate(leaf.shape):
        if size == old:
            made = made.index_select(dimension, torch.arange(new, device=leaf.device) % old)
    return made.contiguous().requires_grad_(leaf.requires_grad)


def _in_other_state(
    name: str, call: ReplayableCall, function: Callable[..., Any], as_tensors: Collection[str]
) -> Callable[..., Any]:
    """The function, with the state that it reaches changed before it runs; `run_call` restores that afterwards."""
    if name.startswith("state "):
        return _before(lambda: _change_state(call, name.removeprefix("state "), as_tensors), function)
    if name == "other mode":
        return _before(lambda: _switch_mode(call), function)
    if name in ("no_grad", "grad mode"):
        return _under(lambda: torch.set_grad_enabled(name == "grad mode"), function)
    return function


def _before(change: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        change()
        return function(*args, **kwargs)

    return run


def _under(
    context: Callable[[], contextlib.AbstractContextManager[Any]], function: Callable[..., Any]
) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return run


def _change_state(call: ReplayableCall, name: str, as_tensors: Collection[str]) -> None:
    for position, tensor in enumerate(_float_state(call, as_tensors)):
        _fill(tensor, name, position)


def _float_state(call: ReplayableCall, as_tensors: Collection[str] = ()) -> list[torch.Tensor]:
    left = [tensor for path, tensor in call.named_state().items() if path.rpartition(".")[2] in as_tensors]
    return [tensor for tensor in call.state if _is_float(tensor) and not any(tensor is one for one in left)]


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.layout is torch.strided


def _modules(call: ReplayableCall) -> list[torch.nn.Module]:
    return [held for held in call.containers if isinstance(held, torch.nn.Module)]


def _switch_mode(call: ReplayableCall) -> None:
    for module in _modules(call):
        module.training = not module.training


def bytes_of(call: ReplayableCall) -> int:
    """The bytes of a call's arguments and state."""
    held = [*tensors_in((call.args, call.kwargs)), *call.state]
    return sum(tensor.numel() * tensor.element_size() for tensor in held)
