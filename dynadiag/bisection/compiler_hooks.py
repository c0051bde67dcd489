"""Hooks in the compiler, in the trial's process: each decision that a trial can switch off.

Each hook asks `TRIAL.is_on(kind, key, ...)` at the moment the compiler decides. If the plan says off, the decision
goes the conservative way: a lowering falls back to ATen, two kernels are not fused, a pattern or a pass is skipped, an
operator is not decomposed, a kernel is written without vectors, a value is stored before it is read. No cache folder is
touched.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import GraphModule, Node

from dynadiag.bisection import aot_hooks, divergence, fake_kernel_check
from dynadiag.bisection.pass_changes import GraphBefore
from dynadiag.bisection.split_autograd import split_autograd
from dynadiag.bisection.user_passes import hook_user_passes
from dynadiag.capture.code_locations import user_callers
from dynadiag.torch_private import aot
from dynadiag.torch_private import bisect as torch_private
from dynadiag.torch_private.exports import is_exporting, packages_call
from dynadiag.torch_private.trial import wrap_call_user_compiler
from dynadiag.trial.context import TRIAL
from dynadiag.trial.events import LoweringFailed
from dynadiag.trial.plan import INTERMEDIATES, LOWER_RUNG

_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool, int, float)
# Passes that are no optimizations: a graph with their operators cannot be lowered without them.
_MANDATORY_PASSES = ("decompose_", "stable_sort", "fix_auto_functionalized")
_compiling: list[GraphModule] = []  # graphs that Inductor is compiling, the innermost last
_mandatory: list[str] = []  # mandatory passes that are running, the innermost last


def install() -> None:
    """Install the hooks in torch, once per process."""
    torch_private.wrap_frame(_frame)
    TRIAL.skips_compile = _skips_fullgraph_call
    aot_hooks.install()
    aot.wrap_python_kernels(_python_kernel_on)
    fake_kernel_check.install()
    divergence.install()
    wrap_call_user_compiler(_compile_dynamo_graph)
    torch_private.wrap_subsystem(_disables_subsystem)
    torch_private.wrap_observed_pass(_pass)
    torch_private.wrap_inner_compile(_compile_inner_graph)
    torch_private.wrap_run_node(_lower_node)
    torch_private.abbreviate_nested_kernels()
    torch_private.wrap_pattern_check(_pattern)
    torch_private.wrap_fallback(_leave_to_aten)
    torch_private.wrap_can_fuse(_fusion)
    torch_private.wrap_cpp_kernel(_kernel)
    TRIAL.wraps_backend = aot_hooks.compiler_of_nodes


def _position(graph: str | None = None) -> dict[str, Any]:
    return {"compile_id": torch_private.compile_id(), "graph": graph or torch_private.graph_kind()}


def _key(*parts: object, here: dict[str, Any]) -> str:
    """The key of a decision. It names the subgraph, since the branches of a conditional may have nodes of the same
    names.
    """
    return "/".join(
        str(part) for part in (here["compile_id"], here["graph"], *torch_private.current_subgraph(), *parts)
    )


def _user_lines(nodes: Iterable[Node]) -> list[tuple[str, int]]:
    """The user's lines of these nodes, each once.

    If all lines are torch's: the line of the enclosing node, else the line of the call.
    """
    lines = torch_private.user_lines(nodes) or torch_private.user_lines(torch_private.enclosing_nodes())[:1]
    return lines or [(frame["file"], frame["line"]) for frame in user_callers(sys._getframe())[-1:]]


def _first_line(*graphs: GraphModule) -> list[tuple[str, int]]:
    """The user's line where a graph begins."""
    return _user_lines(node for gm in graphs for node in gm.graph.nodes)[:1]


def _disables_subsystem(_backend: str, subsystem: str, debug_info: Callable[[], str] | None) -> bool:
    """The answer to torch's own question whether this part of the compiler is disabled."""
    if subsystem == "lowerings":
        return not _lowering_on(torch_private.current_node())
    if subsystem == "decomposition" and debug_info is not None:
        return not _decomposition_on(debug_info())
    if subsystem == "cudagraphs":
        here = _position()
        describe = lambda: {"name": "cudagraphs", "lines": _first_line(*_compiling[-1:]), **here}  # noqa: E731
        return not TRIAL.is_on("cudagraphs", _key(here=here), describe)
    return False


def _lowering_on(node: Node | None) -> bool:
    value = None if node is None else node.meta.get("val", node)
    # An assertion has no value, and a number no tensor that an ATen kernel could return.
    if node is None or value is None or isinstance(value, _NUMBERS):
        return True
    if is_exporting() and not packages_call(node.target):
        return True
    here = _position()
    key = _key(node.name, here=here)
    describe = lambda: {  # noqa: E731
        "name": node.name,
        "target": str(node.target),
        "lines": _user_lines([node]),
        "reads": tuple(read.name for read in node.all_input_nodes),
        **here,
    }
    return TRIAL.is_on("lowering", key, describe)


def _decomposition_on(name: str) -> bool:
    operator = torch_private.operator_name(name)
    here = _position("joint")
    describe = lambda: {"name": operator, "lines": torch_private.traced_user_lines(), **here}  # noqa: E731
    return TRIAL.is_on("decomposition", _key(operator, here=here), describe)


def _python_kernel_on(operator: Any) -> bool:
    """Whether a composite operator is traced by its kernel in Python: a decomposition that no table lists."""
    return not TRIAL.observes("decomposition") or _decomposition_on(str(operator))


def _pass(inner: Callable[..., Any], observer: Any, function: Callable[..., Any]) -> Any:
    """One pass over an FX graph, by torch or the user."""
    name = observer.passname
    if name.startswith(_MANDATORY_PASSES):
        _mandatory.append(name)
        try:
            return inner(observer, function)
        finally:
            _mandatory.pop()
    here = _position((observer.subsystem or "").removesuffix("_passes") or None)
    occurrence = TRIAL.occurrence("pass", _key(name, here=here))
    shown, lines = torch_private.describe_pass(name, function)
    describe = lambda: {"name": shown, "target": name, "lines": lines, **here}  # noqa: E731
    key = _key(name, occurrence, here=here)
    if not TRIAL.is_on("pass", key, describe):
        return None
    before = GraphBefore(observer.gm.graph)
    result = inner(observer, function)
    before.report_changes(key, observer.gm.graph)
    return result


def _pattern(check: Callable[..., Any], entry: Any, match: Any) -> Any:
    """Whether one match is replaced. A check that raises is a part of its pattern. A mandatory pass has no choice."""
    if _mandatory:
        return check(match)
    try:
        matches = check(match)
    except Exception:
        if _pattern_on(entry, match):
            raise
        return False
    return matches if matches is not False and _pattern_on(entry, match) else False


def _pattern_on(entry: Any, match: Any) -> bool:
    name = torch_private.pattern_name(entry)
    here = _position()
    node = match.output_node().name
    occurrence = TRIAL.occurrence("pattern", _key(name, node, here=here))
    describe = lambda: {"name": name, "target": name, "lines": _user_lines(match.nodes), **here}  # noqa: E731
    return TRIAL.is_on("pattern", _key(name, node, occurrence, here=here), describe)


def _leave_to_aten(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Let ATen compute an operator. Inductor refuses that for operators which it expects to be decomposed."""
    if TRIAL.plan.switch("decomposition") is not None:
        kwargs["override_decomp"] = True
    return inner(*args, **kwargs)


def _fusion(fusable: bool, first: Any, second: Any) -> bool:
    """Whether two kernels are fused: only if every part of both may be fused.

    There is one decision per part, not per pair. The same parts meet in many orders, and forbidding one order would
    only make Inductor take another.
    """
    if not fusable:
        return False
    here = _position()
    parts = [_fusable(part, here) for part in (*first.get_nodes(), *second.get_nodes())]
    return all(parts)  # all parts are asked, so that each is reported


def _fusable(part: Any, here: dict[str, Any]) -> bool:
    nodes = torch_private.origin_nodes(part)
    name = "+".join(node.name for node in nodes)
    key = _key(name, torch_private.index_among_same_origins(part), here=here)
    return TRIAL.is_on("fusion", key, lambda: {"name": name, "lines": _user_lines(nodes), **here})


def _kernel(nodes: Iterable[Any]) -> bool:
    """Whether a kernel is written with vectors and threads."""
    origins = sorted({node for part in nodes for node in torch_private.origin_nodes(part)})
    here = _position()
    name = "+".join(node.name for node in origins)
    return TRIAL.is_on("kernel", _key(name, here=here), lambda: {"name": name, "lines": _user_lines(origins), **here})


def _lower_node(inner: Callable[..., Any], lowering: Any, node: Node) -> Any:
    """Lower a node. If that fails, report it as the witness."""
    try:
        value = inner(lowering, node)
    except Exception:
        TRIAL.send(LoweringFailed(_key(node.name, here=_position()), node.name))
        raise
    if TRIAL.observes("inline") and torch_private.is_inlined(value) and not _inlining_on(node, value):
        torch_private.store(value)
    return value


def _inlining_on(node: Node, value: Any) -> bool:
    """Whether a value is computed inside the kernels of its readers, or stored in between, as its dtype."""
    here = _position()
    name = "+".join([node.name, *(user.name for user in node.users if user.op == "call_function")])
    describe = lambda: {"name": name, "target": str(value.get_dtype()), "lines": _user_lines([node]), **here}  # noqa: E731
    return TRIAL.is_on("inline", _key(node.name, here=here), describe)


def _compile_inner_graph(inner: Callable[..., Any], gm: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One graph after AOTAutograd, forward or backward: compiled by Inductor, or run uncompiled.

    Of an exported program a library is written: nothing can run in its place, and its kernels cannot call us.
    """
    if not is_exporting():
        TRIAL.before_inductor_graph()
    with torch_private.graph_kind_set(torch_private.inner_graph_kind(kwargs)):
        if is_exporting():
            return _compile_graph(inner, gm, args, kwargs)
        here = _position()
        occurrence = TRIAL.occurrence("graph", _key(here=here))
        describe = lambda: {"name": _graph_name(here), "lines": _first_line(gm), **here}  # noqa: E731
        if not TRIAL.is_on("graph", _key(occurrence, here=here), describe):
            return torch_private.boxed_graph(gm)
        compile_inner = functools.partial(_compile_graph, inner, gm, args, kwargs)
        return (
            divergence.compile_and_compare(compile_inner, _key(here=here))
            if TRIAL.observes(INTERMEDIATES)
            else compile_inner()
        )


def _compile_graph(inner: Callable[..., Any], gm: GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _compiling.append(gm)
    try:
        return inner(gm, *args, **kwargs)
    finally:
        _compiling.pop()


def _graph_name(here: dict[str, Any]) -> str:
    return f"{here['compile_id']} {here['graph'] or 'graph'}"


def _compile_dynamo_graph(inner: Callable[..., Any], output_graph: Any, gm: Any, *args: Any, **kwargs: Any) -> Any:
    """One graph that Dynamo captured: compiled at the rung of the trial, or at the rung below."""
    hook_user_passes(output_graph.compiler_fn)
    fake_kernel_check.correct_operators(gm)
    aot_hooks.report_nodes_of(gm)
    rung = TRIAL.plan.rung
    if rung not in LOWER_RUNG or not (TRIAL.observes("dynamo_graph") or TRIAL.observes("direction")):
        return inner(output_graph, gm, *args, **kwargs)
    here = _position("dynamo")
    frame = f"frame {here['compile_id'].split('/')[0]}"
    inference = not torch.is_grad_enabled() or not any(getattr(value, "requires_grad", False) for value in args[0])
    place = {**here, "graph": "inference"} if inference else here
    describe = lambda: {"name": here["compile_id"], "target": frame, "lines": _first_line(gm), **place}  # noqa: E731
    compiled = functools.partial(inner, output_graph)
    lower = functools.partial(torch_private.call_with_backend, inner, output_graph, LOWER_RUNG[rung])
    if TRIAL.is_on("dynamo_graph", _key(here=here), describe):
        return _compile_directions(_key(here=here), compiled, lower, gm, args, kwargs)
    return lower(gm, *args, **kwargs)


def _compile_directions(
    key: str, own: Callable[..., Any], lower: Callable[..., Any], gm: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Compile both directions at the rung, or one of them at the rung below.

    Without its backward a graph is traced as one that needs no gradient.
    """
    switch = TRIAL.plan.switch("direction")
    forward, backward = (switch is None or switch.is_on(f"{key}/{name}") for name in ("forward", "backward"))
    if forward and backward:
        return own(gm, *args, **kwargs)
    other = lower(GraphModule(gm, copy.deepcopy(gm.graph)), *args, **kwargs)
    with contextlib.nullcontext() if backward else torch.no_grad():
        compiled = own(gm, *args, **kwargs)
    return split_autograd(compiled if forward else other, compiled if backward else other)


@functools.lru_cache(maxsize=4096)
def _frame_key(code: Any) -> str:
    return f"{code.co_filename}:{code.co_firstlineno}:{code.co_name}"


def _frame(code: Any) -> bool:
    """Whether Dynamo compiles a frame, or leaves it to Python."""
    if not TRIAL.observes("frame"):
        return True
    name = code.co_name if code.co_name != "__call__" else code.co_qualname.rpartition("<locals>.")[2]
    describe = lambda: {"name": name, "lines": [(code.co_filename, code.co_firstlineno)]}  # noqa: E731
    return TRIAL.is_on("frame", _frame_key(code), describe)


def _skips_fullgraph_call(function: Callable[..., Any]) -> bool:
    """Whether a call with ``fullgraph=True`` runs uncompiled because its frame is off."""
    code = torch_private.code_of(function)
    return code is not None and not _frame(code)
