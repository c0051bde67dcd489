"""A function that computes tensors of whole numbers (places, bounds, masks), and that torch cannot trace (a loop over
`grid.tolist()`): one operator of the graph.

The operator runs the function as it is, so its results are right. What torch has to know before is their types and
sizes. While it compiles, the function runs on the arguments, and on smaller and changed ones: a size that stays the
same is a constant, one that is always that of an argument is that size, and any other becomes a symbol. Where a later
call has others, the operator raises, and makes nothing of a wrong size. A function that takes other tensors than whole
numbers, that writes to its arguments, whose results share memory with them or have gradients, is left to a graph break:
what a model computes belongs into the graph. So is one whose arguments the call has written to: torch computes them
while it compiles, and would write twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from dynadiag.fixes.candidate import Candidate, Site
from dynadiag.fixes.edits import ParsedSource
from dynadiag.fixes.rewrites.definitions import Definition, Helpers, body_of, giving_object
from dynadiag.recording.records import Span

# Breaks that the values of a tensor cause: its numbers, a size, a branch.
_OF_VALUES = ("GB0033", "GB0036", "GB0124", "GB0170")
_WHY = "the operator runs the function as it is, and checks the types and sizes that torch was told of its results"
_HELPERS = (
    '''

class _Calls:
    """The functions that graphs call as operators, and their calls as torch compiled them, each under a name."""

    given = ()  # the objects among the arguments of the next call
    written = False  # whether one of its tensors was written to


'''
    + giving_object("_give_object", "_Calls")
    + '''

def _note_writes(context):
    """Note whether the local variable `value` comes of a tensor that is written to. To know its values torch computes
    it while it compiles, and would write once more.
    """
    nodes = [context.get_local("value")._i_will_not_complain_if_bc_breaks_VariableTracker().realize().as_proxy().node]
    for node in nodes:
        example = node.meta.get("example_value")
        if isinstance(example, torch.Tensor):  # one of inference mode has no version
            known = not example.is_inference()
            _Calls.written |= example._version > 0 if known else node.op not in ("placeholder", "get_attr")
        nodes += [each for each in node.all_input_nodes if each not in nodes]


@torch.compiler.assume_constant_result
def _is_written():
    written, _Calls.written = _Calls.written, False
    return written


def _results(call, tensors):
    """The results of a call, each a tensor with memory of its own and without a gradient."""
    written = [each for each in tensors if not each.is_inference()]  # the others have no version
    versions = [each._version for each in written]
    made = call(*tensors)
    results = list(made) if isinstance(made, (tuple, list)) else [made]
    if [each._version for each in written] != versions:
        raise RuntimeError("it writes to its arguments")
    if not results or not all(isinstance(each, torch.Tensor) and not each.requires_grad for each in results):
        raise RuntimeError("it returns something else than tensors without gradients")
    memory = {each.untyped_storage().data_ptr() for each in tensors}
    if any(each.numel() and each.untyped_storage().data_ptr() in memory for each in results):
        raise RuntimeError("its results share memory with its arguments")
    return results, not isinstance(made, (tuple, list))


def _other_arguments(tensors):
    """Arguments with one row less in all dimensions of a size, with larger integers, and with smaller ones."""
    for size in sorted({size for each in tensors for size in each.shape if size > 1}):
        smaller = list(tensors)
        for place, each in enumerate(tensors):
            for dimension in [number for number, found in enumerate(each.shape) if found == size]:
                smaller[place] = smaller[place].narrow(dimension, 0, size - 1)
        yield smaller
    for change in (lambda each: each * 2, lambda each: each // 2):
        yield [each if each.dtype is torch.bool else change(each) for each in tensors]


def _forms(call, tensors):
    """Of each result the type, the device and its sizes: a constant, the argument and dimension that have it, or None
    for one that depends on the values.
    """
    devices = {each.device for each in tensors if each.is_cuda}
    with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=devices):
        tensors = [each.clone() for each in tensors]
        seen = [(tensors, *_results(call, tensors))]
        for other in _other_arguments(tensors):
            with contextlib.suppress(Exception):  # it does not take these
                seen.append((other, *_results(call, [each.clone() for each in other])))
    places = [(number, dimension) for number, each in enumerate(tensors) for dimension in range(each.dim())]
    forms = []
    for place, result in enumerate(seen[0][1]):
        sizes = []
        for dimension in range(result.dim()):
            made = [results[place].shape[dimension] for _, results, _ in seen]
            same = [each for each in places if made == [given[each[0]].shape[each[1]] for given, _, _ in seen]]
            sizes.append(same[0] if same else made[0] if len(set(made)) == 1 else None)
        forms.append((result.dtype, result.device, tuple(sizes)))
    return forms, seen[0][2]


def _size_of(size, tensors):
    return tensors[size[0]].shape[size[1]] if isinstance(size, tuple) else size


@torch.library.custom_op(
    f"{__name__.replace('.', '_')}::_python_call",
    mutates_args=(),
    schema="(str name, Tensor[] tensors) -> Tensor[]",
)
def _python_call(name, tensors):
    call, forms, _ = getattr(_Calls, name)
    results, _ = _results(call, tensors)
    for (dtype, _, sizes), each in zip(forms, results, strict=True):
        known = [_size_of(size, tensors) for size in sizes]
        fits = len(known) == each.dim() and all(one in (None, size) for one, size in zip(known, each.shape))
        if dtype != each.dtype or not fits:
            raise RuntimeError(f"a result is {each.dtype} {list(each.shape)}; torch compiled for {dtype} {known}")
    return [each.clone(memory_format=torch.contiguous_format) for each in results]


@_python_call.register_fake
def _known_results(name, tensors):
    symbols = torch.library.get_ctx()._shape_env
    results = []
    for dtype, device, sizes in getattr(_Calls, name)[1]:
        known = [_size_of(size, tensors) for size in sizes]
        shape = [torch._library.fake_impl.allocate_size(symbols) if size is None else size for size in known]
        results.append(torch.empty(shape, dtype=dtype, device=device))
    return results


@torch.compiler.assume_constant_result
def _call_name(key, is_object, *values):
    """The name of the call with these arguments; empty where it is no operator. Torch calls this while it compiles."""
    function, names = getattr(_Calls, key)
    given = list(_Calls.given[len(_Calls.given) - sum(is_object) :])
    _Calls.given = ()
    given += [None] * (sum(is_object) - len(given))  # behind a graph break nothing is given
    values = [given.pop(0) if known else value for known, value in zip(is_object, values)]
    tensors = [each for each in values if isinstance(each, torch.Tensor)]
    unknown = any(known and value is None for known, value in zip(is_object, values))
    if unknown or not tensors or any(each.is_floating_point() or each.is_complex() for each in tensors):
        return ""

    held = [None if isinstance(each, torch.Tensor) else each for each in values]
    is_tensor = [isinstance(each, torch.Tensor) for each in values]

    def call(*tensors):
        left = iter(tensors)
        arguments = [next(left) if tensor else value for tensor, value in zip(is_tensor, held)]
        return function(**dict(zip(names, arguments)))

    name = f"call_{len(vars(_Calls))}"
    with contextlib.suppress(Exception):  # whatever it is, the call itself raises it
        setattr(_Calls, name, (call, *_forms(call, tensors)))
        return name
    return ""


def _as_operator(function, *names):
    """The function, called with the arguments of these names, as one operator of the graph that torch traces."""
    key = f"function_{len(vars(_Calls))}"
    setattr(_Calls, key, (function, names))
    uncompiled = torch._dynamo.disable(function)
    plain = (torch.Tensor, bool, int, float, str, tuple, list, dict, torch.dtype, torch.device, type(None))

    def call(*values):
        is_object = tuple([not isinstance(value, plain) for value in values])
        for value in values:
            if not isinstance(value, plain):
                id(value)  # torch guards on the object
                torch._dynamo.comptime.comptime(_give_object)
            elif isinstance(value, torch.Tensor):
                torch._dynamo.comptime.comptime(_note_writes)
        known = [None if each else value for each, value in zip(is_object, values)]
        name = "" if _is_written() else _call_name(key, is_object, *known)
        if not name:
            return uncompiled(**dict(zip(names, values)))
        made = _python_call._opoverload(name, [value for value in values if isinstance(value, torch.Tensor)])
        return made[0] if getattr(_Calls, name)[2] else tuple(made)

    return call
'''
)
_NAMES = (
    "_Calls",
    "_give_object",
    "_note_writes",
    "_is_written",
    "_results",
    "_other_arguments",
    "_forms",
    "_size_of",
    "_python_call",
    "_known_results",
    "_call_name",
    "_as_operator",
)
_AS_OPERATOR = Helpers(_HELPERS, _NAMES, ("contextlib", "torch", "torch._dynamo.comptime"))


def function_at(file: ParsedSource, span: Span) -> cst.FunctionDef | None:
    """The function of the module, or of a class, in which a graph breaks; none of one in another function."""
    around = [each for each in file.nodes(cst.FunctionDef) if file.holds(each, span.line)]
    return around[0] if len(around) == 1 else None


def candidates(site: Site[cst.FunctionDef]) -> Iterator[Candidate]:
    """The function as an operator. First tests that return what the caller already has stay in front of it."""
    file, function = site.file, site.node
    call = _call_of(file, function) if site.problem.gb_id in _OF_VALUES else None
    if call is None:
        return
    name, owner = function.name.value, file.enclosing(function, cst.ClassDef)
    text = f"{owner.name.value}.{name}" if isinstance(owner, cst.ClassDef) else name
    arguments = ", ".join([text, *(f'"{each}"' for each in call.passed)])
    made = Definition.of(file, _AS_OPERATOR, f"_{name.strip('_')}", arguments, function)
    edits = made.before(file, call.first, f"return {{call}}({', '.join(call.passed)})")
    moved_out = _operators(file, function)
    yield Candidate(f"run `{name}` as one operator of the graph", "source", edits, _WHY, moved_out=moved_out)


def _operators(file: ParsedSource, function: cst.FunctionDef) -> int:
    """How many operators of the function may have run in graphs before: those in its text, and in that of the functions
    of the module that it calls.
    """
    functions = {each.name.value: each for each in file.module.body if isinstance(each, cst.FunctionDef)}
    calls = [each.func.value for each in file.nodes(cst.Call, function) if isinstance(each.func, cst.Name)]
    texts = [function, *(functions[name] for name in calls if name in functions)]
    kinds = cst.Call, cst.BinaryOperation, cst.Subscript, cst.Comparison
    return sum(1 for text in texts for kind in kinds for _ in file.nodes(kind, text))


@dataclass(frozen=True, slots=True)
class _Call:
    """The statement in front of which the function is called as an operator, and the parameters that are passed."""

    first: cst.BaseStatement
    passed: list[str]


def _call_of(file: ParsedSource, function: cst.FunctionDef) -> _Call | None:
    body, params = body_of(function), function.params
    inside = [each for each in file.nodes(cst.Return, function) if file.enclosing(each, cst.FunctionDef) is function]
    if not body or function.decorators or function.asynchronous or None in [each.value for each in inside]:
        return None
    if not inside or next(file.nodes(cst.Yield, function), None) is not None or params.posonly_params:
        return None
    every = [*params.params, *params.kwonly_params]
    rest = [each for each in (params.star_arg, params.star_kwarg) if isinstance(each, cst.Param)]
    for skipped in range(_tests(file, body), -1, -1):
        used = _names(file, body[skipped:])
        passed = [each.name.value for each in every if each.name.value in used]
        left_out = [each for each in every if each.name.value not in used and each.default is None]
        known = _names(file, body[:skipped])
        if passed and not left_out and not known & set(passed) and not any(each.name.value in used for each in rest):
            return _Call(body[skipped], passed)
    return None


def _tests(file: ParsedSource, body: Sequence[cst.BaseStatement]) -> int:
    """How many statements at the beginning are tests that may return."""
    number = 0
    while number < len(body) - 1 and isinstance(body[number], cst.If) and any(file.nodes(cst.Return, body[number])):
        number += 1
    return number


def _names(file: ParsedSource, statements: Sequence[cst.BaseStatement]) -> set[str]:
    return {each.value for statement in statements for each in file.nodes(cst.Name, statement)}
