"""torch's private names that the recorder uses, with the versions that they were seen in.

The recorder listens to torch's structured trace. For certain events it reads the local variables of the torch function
that emitted them. So it depends on the name of a logger, of some functions, and of their locals. Each was read in torch
2.11.0, 2.13.0 and 2.15.0 unless its comment says otherwise. A test per entry runs on the installed torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from dynadiag.torch_private.exception_frames import traceback_frames

# The functions that emit an event, and the local variable that has more than the event.
BREAK_EMITTERS = {
    "log_graph_break": "exc",  # InstructionTranslatorBase, symbolic_convert.py
    "unimplemented_with_warning": "e",  # exc.py
    "__call__": "e",  # ConvertFrame, convert_frame.py: breaks that make Dynamo skip the whole frame
}
ERROR_EMITTER = ("_compile", "e")  # convert_frame.py: artifact dynamo_error
SOFT_FAILURES = ("Unsupported", "UserError")  # exceptions of exc.py for which torch leaves a frame to Python
START_EMITTER = ("log_dynamo_start", "code")  # convert_frame.py: dynamo_start
GRAPH_EMITTER = ("compile_and_call_fx_graph", "gm")  # OutputGraph, output_graph.py: dynamo_output_graph
GUARDS_EMITTER = ("__init__", "sorted_guards")  # CheckFunctionManager, guards.py: dynamo_cpp_guards_str
# In guards.py: artifact recompile_reasons.
RECOMPILE_EMITTER = ("get_and_maybe_log_recompilation_reasons", "frame")
# graph.py of Inductor: inductor_output_code; `self` is the lowered graph
CODE_EMITTER = ("_compile_to_module_lines", "wrapper_code")

# Functions whose `self` is Dynamo's translator of one user frame, with `f_code` and `current_instruction`.
TRANSLATOR_FRAMES = frozenset({"run", "step", "inline_call_"})

_MAX_EMITTER_DISTANCE = 14  # frames between a logging handler and the emitting function; the most seen is 9
_MAX_MANAGER_DISTANCE = 40  # frames between a logging handler and the manager of CUDA graphs
_MAX_OPERATOR_DISTANCE = 60  # frames between a logging handler and the operator; the most seen is 37
_FAKE_TENSOR = "/torch/_subclasses/fake_tensor.py"
_HIGHER_ORDER = "/torch/_dynamo/variables/higher_order_ops.py"
_DYNAMO = "/torch/_dynamo/"  # the user's functions may have the same names; their locals are not read


def emitter_locals(
    function: str,
    local: str,
    start: FrameType | None,
    *,
    package: str = _DYNAMO,
    within: int = _MAX_EMITTER_DISTANCE,
) -> dict[str, Any] | None:
    """Return the locals of the nearest caller named ``function`` that has a local named ``local``, or None.

    It is looked for among the next ``within`` frames. A function that has another name in another release has both
    names here, with a ``|`` in between.
    """
    names = function.split("|")
    frame, distance = start, 0
    while frame is not None and distance < within:
        if frame.f_code.co_name in names and package in frame.f_code.co_filename and local in frame.f_locals:
            return dict(frame.f_locals)
        frame, distance = frame.f_back, distance + 1
    return None


def dispatched_operator(start: FrameType | None) -> tuple[str, tuple[Any, ...]] | None:
    """Return the name and the arguments of the outermost operator that is run on fake tensors around a frame.

    It is ``FakeTensorMode.dispatch`` (fake_tensor.py). None where a line of the program's decides, and no operator.
    """
    found, frame, distance = None, start, 0
    while frame is not None and distance < _MAX_OPERATOR_DISTANCE:
        if frame.f_code.co_name == "dispatch" and frame.f_code.co_filename.endswith(_FAKE_TENSOR):
            found = str(frame.f_locals["func"]), tuple(frame.f_locals["args"])
        frame, distance = frame.f_back, distance + 1
    return found


def sizes_of(tensor: Any) -> tuple[str, ...]:
    """Return the sizes of a fake tensor, a symbol where tracing knows no number for it."""
    return tuple(str(each.node._expr) if hasattr(each, "node") else str(each) for each in tensor.shape)


def instruction_translators(start: FrameType | None, failure: BaseException | None) -> Iterator[Any]:
    """Yield Dynamo's instruction translators of the user's frames, outermost first.

    First those that are running, then those in the traceback of ``failure``.
    """
    live: list[Any] = []
    frame = start
    while frame is not None:
        if _translates(frame):
            live.append(frame.f_locals.get("self"))
        frame = frame.f_back
    seen: set[int] = set()
    for tx in [*reversed(live), *_translators_in_traceback(failure)]:
        if hasattr(tx, "current_instruction") and id(tx) not in seen:
            seen.add(id(tx))
            yield tx


def unfinished_graphs(failure: BaseException) -> list[Any]:
    """Return the graphs that Dynamo was tracing when it failed: that of the frame, then those of operators' functions.

    ``output`` of a translator is the ``OutputGraph``, the first of its ``tracers`` that of the frame. The function of a
    higher-order operator (a checkpoint, a branch) has a tracer of its own, ``subtracer`` in higher_order_ops.py. None,
    if Dynamo gave its graph to the backend before: the trace has that. A graph without an operation tells nothing.
    """
    frames = list(traceback_frames(failure))
    if any(frame.f_code.co_name == GRAPH_EMITTER[0] and _DYNAMO in frame.f_code.co_filename for frame in frames):
        return []
    outputs = (getattr(tx, "output", None) for tx in _translators_in_traceback(failure))
    tracers = [each for output in outputs for each in getattr(output, "tracers", ())[:1]]
    inner = (frame for frame in frames if frame.f_code.co_filename.endswith(_HIGHER_ORDER))
    tracers += [frame.f_locals["subtracer"] for frame in inner if "subtracer" in frame.f_locals]
    graphs = {id(graph): graph for each in tracers if (graph := getattr(each, "graph", None)) is not None}
    return [graph for graph in graphs.values() if any(node.op.startswith("call_") for node in graph.nodes)]


def exception_traceback(tx: Any) -> list[tuple[str, int | None, str]]:
    """File, line and function of each frame that the exception which Dynamo traces has passed, outermost first.

    The exception is ``exn_vt_stack.get_current_exception()`` (symbolic_convert.py), its ``__traceback__`` a chain of
    ``TracebackVariable`` (variables/misc.py, 2.12 and up). ``var_getattr`` is ``tp_getattro_impl`` in 2.15. Empty if
    torch does not keep one.
    """
    current = getattr(getattr(tx, "exn_vt_stack", None), "_current_exception", None)
    read = getattr(current, "tp_getattro_impl", None) or getattr(current, "var_getattr", None)
    link: Any = None if read is None else read(tx, "__traceback__")
    found = []
    while (summary := getattr(getattr(link, "frame_summary", None), "frame_summary", None)) is not None:
        found.append((str(summary.filename), summary.lineno, str(summary.name)))
        link = link.tb_next
    return found


def traced_operator(failure: BaseException) -> str | None:
    """Return the innermost higher-order operator ("tag_activation_checkpoint") whose function was traced at a failure.

    Its variable is ``self`` in variables/higher_order_ops.py, with the operator as ``value``.
    """
    frames = (each for each in traceback_frames(failure) if each.f_code.co_filename.endswith(_HIGHER_ORDER))
    operators = [getattr(frame.f_locals.get("self"), "value", None) for frame in frames]
    return next((str(name) for each in reversed(operators) if (name := getattr(each, "__name__", None))), None)


def dispatch_modes() -> list[str]:
    """Return the classes of the dispatch modes that are on, the outermost first, without torch's own for tracing.

    ``_get_current_dispatch_mode_stack`` of torch.utils._python_dispatch.
    """
    from torch.utils import _python_dispatch

    modes = _python_dispatch._get_current_dispatch_mode_stack()
    return [type(mode).__name__ for mode in modes if not mode.is_infra_mode()]


def is_skipped_for_good(start: FrameType | None) -> bool:
    """Whether a function that Dynamo skips for a dispatch mode stays skipped: until 2.13, whose code is marked.

    From 2.14 on ``apply_to_code`` of ``ConvertFrameAssert.__call__`` (convert_frame.py) is False there.
    """
    return bool((emitter_locals("__call__", "apply_to_code", start) or {}).get("apply_to_code", True))


def named_lines(failure: BaseException) -> dict[tuple[str, str], int | None]:
    """The line of each frame, by file and function, in the stack of the user's that torch prints for a break.

    It is ``TorchDynamoException.real_stack`` (exc.py). The innermost of several frames of one function counts.
    """
    stack = getattr(failure, "real_stack", None)
    return {(each.filename, each.name): each.lineno for each in stack or ()}


def _translates(frame: FrameType) -> bool:
    return frame.f_code.co_name in TRANSLATOR_FRAMES and _DYNAMO in frame.f_code.co_filename


def _translators_in_traceback(failure: BaseException | None) -> Iterator[Any]:
    """The instruction translators in the traceback of ``failure``, and of the exceptions that it was raised from."""
    for frame in traceback_frames(failure):
        if _translates(frame):
            yield frame.f_locals.get("self")


# Inductor logs here why it makes no CUDA graph (cudagraph_utils.py). At run time it has no other event for it.
CUDA_GRAPH_LOGGER = "torch._inductor.cudagraph_utils.__cudagraphs"


def current_compile_id() -> str | None:
    """Return torch's id of the compile that this thread runs, None outside any."""
    from torch._guards import CompileContext

    found = CompileContext.current_compile_id()
    return None if found is None else str(found)


def cuda_graph_compile_id(start: FrameType | None) -> str | None:
    """Return the id of the compile whose code the manager of CUDA graphs runs, None outside of it (2.11 to 2.15).

    ``CUDAGraphTreeManager._run`` (cudagraph_trees.py) has the number of the code as ``function_id``. Its caller
    ``deferred_cudagraphify``, which warns about many sizes, has the id among its ``kwargs``.
    """
    run = _manager_locals("_run", "function_id", start)
    known = getattr(run.get("self"), "id_to_compile_id", {})
    deferred = _manager_locals("deferred_cudagraphify", "kwargs", start)
    found = known.get(run.get("function_id")) or deferred.get("kwargs", {}).get("compile_id")
    return None if found is None else str(found)


def cuda_graph_mismatch(start: FrameType | None) -> str | None:
    """Return why the manager of CUDA graphs records code again that it had recorded, None where it has no reason.

    ``_run`` has it as ``unexpected_rerecord_reason``: a text, or what makes one of inputs that are gone by now, whose
    last argument is the kind of mismatch (``CheckInvariantStatus``, which prints as a text).
    """
    reason = _manager_locals("_run", "unexpected_rerecord_reason", start).get("unexpected_rerecord_reason")
    given = getattr(reason, "args", ())
    return reason if isinstance(reason, str) else str(given[-1]) if given else None


def cuda_graph_moved_inputs(start: FrameType | None) -> tuple[list[tuple[str, str]], int]:
    """Return the inputs whose memory moved since the code was recorded, and how many inputs the code has.

    Of each its name in AOTAutograd's graph and the stack trace of its first use. What makes the reason (see above) has
    the inputs' descriptions, the addresses of then and the positions that it compares; the node that is being recorded
    (``CUDAGraphNode.__init__``) has the addresses of now.
    """
    reason = _manager_locals("_run", "unexpected_rerecord_reason", start).get("unexpected_rerecord_reason")
    given: tuple[Any, ...] = getattr(reason, "args", ())
    if len(given) < 4:  # another reason, or the text of one, which torch makes where its debug log is on
        return [], 0
    described, _, then, positions = given[:4]
    node = _manager_locals("__init__", "recording_inputs", start).get("self")
    now = getattr(node, "static_input_data_ptrs", None)
    moved = [each for each in positions if then[each] != now[each]] if now and len(now) == len(then) else []
    return [(described[each].name, _first_use(described[each])) for each in moved], len(described)


def _first_use(described: Any) -> str:
    """The stack trace of an input, or of the first operator that reads it (``PlaceholderInfo``, cudagraph_utils.py)."""
    return next((each.stack_trace for each in (described, *described.users) if each.stack_trace), "")


def cuda_graph_splits(lowered: Any) -> list[dict[str, Any]]:
    """Return what Inductor leaves out of the CUDA graphs of code that it splits: the reason, operator and stack trace,
    and in how many graphs the code is. Inductor's checks of sizes (``AssertScalar``) are left out: they are where the
    operator is that makes the size.

    ``Scheduler.should_partition`` (scheduler.py, 2.11 to 2.15) has the reason for each node. None is left out where
    the code is not split, or nothing of it runs on a GPU.
    """
    from torch._inductor import config, ir

    parts = getattr(lowered, "partition_maps", None)
    if not (config.graph_partition and config.triton.cudagraphs and parts) or not lowered.device_types - {
        "cpu",
        "meta",
    }:
        return []
    found = []
    for group in fused_operations(lowered):
        for node in group:
            if node.node is None or isinstance(node.node, ir.AssertScalar):
                continue
            if reason := lowered.scheduler.should_partition(node):
                own = (one for one in node.node.get_origins() if one.graph is lowered.graph)  # all there is of a `cond`
                origin = node.node.get_origin_node() or max(own, default=None)
                trace = "" if origin is None else str(origin.meta.get("stack_trace") or "")
                operator = "" if origin is None else str(origin.target)
                found.append({"reason": reason, "operator": operator, "stack": trace, "graphs": len(parts)})
    return found


def _manager_locals(function: str, local: str, start: FrameType | None) -> dict[str, Any]:
    """The locals of a function of the manager of CUDA graphs; empty where it is not running."""
    package = "/torch/_inductor/cudagraph_trees"
    return emitter_locals(function, local, start, package=package, within=_MAX_MANAGER_DISTANCE) or {}


def ends_in_exception(failure: BaseException, *, one_graph: bool) -> bool:
    """Whether a failed compile ends in an exception. If not, torch leaves the frame to Python and continues.

    ``ConvertFrame.__call__`` (convert_frame.py) raises what is not a soft failure. It raises any failure if the program
    asks for it: ``fullgraph=True``, or ``torch._dynamo.error_on_graph_break`` at the location of the failure.
    """
    from torch._dynamo import config

    name = type(failure).__name__
    if one_graph or name == "UncapturedHigherOrderOpError":
        return True
    if name not in SOFT_FAILURES and not config.suppress_errors:
        return True
    output = getattr(failure, "_torch_dynamo_tracer_output", None)
    return bool(getattr(output, "error_on_graph_break", False))


def cached_entries(emitter: dict[str, Any], start: FrameType | None) -> list[Any]:
    """Return the cache entries that a recompile was checked against.

    2.13 gives its emitter a list ``cache_entries``. 2.11 has a linked list, which it has walked to the end when it
    logs, but its caller ``_compile`` still has the first entry as ``cache_entry``.
    """
    if "cache_entries" in emitter:
        return list(emitter["cache_entries"])
    caller = emitter_locals("_compile", "cache_entry", start) or {}
    entries, entry = [], caller.get("cache_entry")
    while entry is not None:
        entries.append(entry)
        entry = entry.next
    return entries


def compiled_locals(start: FrameType | None) -> dict[str, Any]:
    """Return the locals of the frame that is compiled: ``locals`` of ``_compile`` (convert_frame.py)."""
    found = emitter_locals("_compile", "locals", start) or {}
    return found.get("locals") or {}


def dynamic_sizes(start: FrameType | None) -> str | None:
    """Return what torch is to do with sizes that change: "always", "never", or "automatic" from the first change on.

    ``dynamic=True`` and ``dynamic=False`` of `torch.compile` set these options for the call (``set_enable_dynamic``,
    eval_frame.py), whose ``compile_wrapper`` has the argument in ``self``. "off": the program set the option itself.
    """
    from torch._dynamo import config

    if not config.assume_static_by_default:
        return "always"
    if config.automatic_dynamic_shapes:
        return "automatic"
    call = emitter_locals("compile_wrapper", "self", start, within=sys.maxsize)
    return None if call is None else "never" if getattr(call["self"], "_dynamic", None) is False else "off"


_INLINE = "wrap_inline.<locals>.inner"  # torch's function around a callable whose own code it does not compile


def wrapped_callable(start: FrameType | None) -> Any:
    """Return the argument of ``torch.compile`` if it has no Python code that Dynamo can take, else None.

    For builtins, partials, callable objects and modules of ``torch.nn`` Dynamo compiles ``inner`` of ``wrap_inline``
    (external_utils.py), whose only cell is ``fn``. ``_compile`` has the cells of the compiled function as ``closure``,
    and what skips a frame (``ConvertFrameAssert.__call__``) has the ``frame``.
    """
    found = emitter_locals("_compile", "closure", start) or {}
    frame = None if found else (emitter_locals("__call__", "frame_state", start) or {}).get("frame")
    code = found.get("code", getattr(frame, "f_code", None))
    cells = found.get("closure", getattr(frame, "closure", None))
    if not (cells and getattr(code, "co_qualname", None) == "wrap_inline.<locals>.inner"):
        return None
    return cells[0].cell_contents


def size_symbols(shape_env: Any) -> dict[str, dict[str, str]]:
    """Return range and example value of each backed symbol of a ShapeEnv (``var_to_val`` until 2.11, then renamed)."""
    values = getattr(shape_env, "backed_var_to_val", None)
    if values is None:
        values = shape_env.var_to_val
    ranges = shape_env.var_to_range
    return {str(symbol): {"range": str(ranges.get(symbol)), "hint": str(value)} for symbol, value in values.items()}


def is_compiled(fn: object) -> bool:
    """Whether ``fn`` is a result of ``torch.compile`` or a module on which ``Module.compile()`` was called."""
    from torch._dynamo.eval_frame import OptimizedModule

    found = vars(fn) if hasattr(fn, "__dict__") else {}
    return isinstance(fn, OptimizedModule) or any(found.get(name) is not None for name in _COMPILED_ATTRIBUTES)


def frames_begun() -> int:
    """Return how many frames Dynamo has begun to compile since the last ``torch.compiler.reset()``."""
    utils = sys.modules.get("torch._dynamo.utils")  # to import it here would take a second of each recording
    return 0 if utils is None else int(utils.curr_frame)


# Of a compiled function, and of a module after compile().
_COMPILED_ATTRIBUTES = ("_torchdynamo_orig_callable", "_compiled_call_impl")
STANCE_HOOK = "_callback_from_stance"  # of torch._dynamo.eval_frame; it is called at the start of every compiled call


def call_before_compiled_calls(hook: Callable[[Any], None]) -> Callable[[], None]:
    """Call ``hook`` before each call of a compiled function, with an object that is that function's own.

    It slows every compiled call. It is for programs whose calls are counted. Returns a function that ends it.
    """
    from torch._dynamo import eval_frame

    original = getattr(eval_frame, STANCE_HOOK)
    hooks = [hook]

    def counted(callback: Any) -> Any:
        if callable(callback):  # None and False stand for `torch.compiler.disable` and run-only
            for each in hooks:
                each(callback)
        return original(callback)

    def stop() -> None:
        hooks.clear()
        if getattr(eval_frame, STANCE_HOOK) is counted:  # else another one stands on top
            setattr(eval_frame, STANCE_HOOK, original)

    setattr(eval_frame, STANCE_HOOK, counted)
    return stop


_MODULE_CALLS = ("_call_impl", "_wrapped_call_impl")  # of torch.nn.Module: they call `forward`


def called_code(start: FrameType | None) -> CodeType | None:
    """Return the code of what the innermost compiled function that runs was made of; None outside of any.

    The ``compile_wrapper`` of eval_frame.py (2.11 to 2.15) has it as ``fn``: a function, a method that calls a module,
    or torch's own function around a callable of torch's.
    """
    frame = start
    while frame is not None and frame.f_code.co_name != "compile_wrapper":
        frame = frame.f_back
    called = None if frame is None else frame.f_locals.get("fn")
    if getattr(getattr(called, "__code__", None), "co_qualname", None) == _INLINE:
        called = called.__closure__[0].cell_contents  # type: ignore[union-attr]
    is_module_call = getattr(called, "__name__", None) in _MODULE_CALLS
    owner = getattr(called, "__self__", None) if is_module_call else called if _is_module(called) else None
    code = getattr(called if owner is None else type(owner).forward, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _is_module(value: object) -> bool:
    from torch.nn import Module

    return isinstance(value, Module)


# The artifacts that say that the warm-up is over, and that its last call is.
WARM_UP = {"name": "dynadiag_warm_up", "encoding": "string"}
LAST_WARM_CALL = {"name": "dynadiag_last_warm_call", "encoding": "string"}


def mark_warm(calls: int | None = None, artifact: dict[str, str] = WARM_UP) -> None:
    """Log an event that says that the warm-up is over, to whatever records torch's trace."""
    from torch._logging import trace_structured

    trace_structured(
        "artifact",
        metadata_fn=lambda: dict(artifact),
        payload_fn=lambda: "" if calls is None else str(calls),
    )


def call_at_end_of_call(start: FrameType | None, hook: Callable[[], None]) -> None:
    """Call ``hook`` when the compiled call that a frame belongs to ends, also by an exception.

    The ``compile_wrapper`` of eval_frame.py (2.11 to 2.15) calls what its local list ``cleanups`` holds.
    """
    frame = start
    while frame is not None and frame.f_code.co_name != "compile_wrapper":
        frame = frame.f_back
    cleanups = None if frame is None else frame.f_locals.get("cleanups")
    if isinstance(cleanups, list):
        cleanups.append(hook)


def leave_out_code_generation() -> None:
    """Let what `torch.compile` gives to Inductor run as AOTAutograd leaves it, with the backend "aot_eager".

    The wrapper of Inductor (``_TorchCompileInductorWrapper`` of torch/__init__.py) stays what the program compiles
    with, so that breaks and recompiles are the same. It cannot be undone.
    """
    import torch

    def call(_wrapper: Any, module: Any, inputs: Any, **_patches: Any) -> Any:
        from torch._dynamo.backends.debugging import aot_eager

        return aot_eager(module, inputs)

    torch._TorchCompileInductorWrapper.__call__ = call


_CONFIG_MODULES = ("torch._dynamo.config", "torch._functorch.config", "torch._inductor.config")


def changed_options() -> dict[str, dict[str, Any]]:
    """Return the options of torch's loaded configuration modules that differ from their defaults, by module."""
    modules = {name: sys.modules[name] for name in _CONFIG_MODULES if name in sys.modules}
    return {name: changed for name, module in modules.items() if (changed := module._get_dict(skip_default=True))}


def unwrapped_backend(backend: Any) -> Any:
    """Return a backend without torch's wrappers: `_TorchCompileInductorWrapper`, or what the program gave."""
    from torch._dynamo.eval_frame import innermost_backend

    found = innermost_backend(backend)
    return getattr(found, "compiler_fn", found)


def inductor_options(backend: Any) -> dict[str, Any]:
    """Return the Inductor options of a ``torch.compile`` call, with its mode expanded."""
    return dict(getattr(unwrapped_backend(backend), "config", None) or {})


def backend_label(backend: Any) -> str:
    """Return the name of a backend for a reader."""
    found = unwrapped_backend(backend)
    return str(getattr(found, "compiler_name", None) or getattr(found, "__name__", None) or type(found).__name__)


def interned_names() -> dict[str, int]:
    """Return torch's interned file names with their numbers. torch logs each name only once per process."""
    structured = sys.modules.get("torch._logging.structured")  # None: not loaded, so no name has a number
    return {} if structured is None else dict(structured.INTERN_TABLE)


def lowered_graph(start: FrameType | None) -> Any:
    """Return the lowered graph (``GraphLowering``) whose code is being emitted, or None if it came from a cache."""
    found = emitter_locals(*CODE_EMITTER, start, package="/torch/_inductor/")
    return None if found is None else found.get("self")


def fused_operations(lowered: Any) -> list[list[Any]]:
    """Return the scheduler's nodes in the order of the generated code, each as a list of fused operations."""
    return [list(node.get_nodes()) for node in lowered.scheduler.nodes]


def lowered_subgraphs(lowered: Any) -> list[Any]:
    """Return the lowered graphs of branches and loop bodies that have code of their own."""
    held = [value for node in lowered.scheduler.nodes for one in node.get_nodes() for value in vars(one.node).values()]
    found = [one for value in held for one in (value if isinstance(value, list | tuple) else [value])]  # a list: 2.15
    graphs = [one.graph for one in found if type(one).__name__ == "Subgraph"]
    return [graph for graph in graphs if getattr(graph, "scheduler", None) is not None]


def operation_provenance(node: Any, lowered: Any) -> tuple[list[str], list[str], str | None, list[str]]:
    """Return the buffers that an operation writes and reads, the node that it is, and the nodes that went into it.

    If a buffer is a mutated input, the input's name is among the outputs too. In a subgraph Inductor counts nodes
    outside it among the origins: they are left out. The other names get the subgraph's name as a prefix, as its buffers
    have.
    """
    outputs = [name for output in node.get_outputs() for name in (output.get_name(), *output.get_mutations())]
    reads = sorted({dependency.name for dependency in node.read_writes.reads})
    origin = node.node.get_origin_node()
    own = [one for one in node.node.get_origins() if lowered.name is None or one.graph is lowered.graph]
    origins = sorted(lowered.qualify_name(one.name) for one in own)
    return outputs, reads, None if origin is None else lowered.qualify_name(origin.name), origins


def fallback_reason(node: Any) -> str | None:
    """Return why an operation falls back to ATen, or None if it does not."""
    if type(node.node).__name__ != "FallbackKernel":
        return None
    from torch._inductor import lowering

    known = lowering.fallbacks
    operator = getattr(node.node, "op_overload", None)
    listed = operator in known or getattr(operator, "overloadpacket", None) in known
    return "Inductor has no lowering of it" if listed else "its lowering calls ATen for these arguments"


def dynamo_source_names(node: Any) -> list[str]:
    """Return the names of Dynamo's nodes that a node of a later graph (also a backward one) was made from."""
    found = [source.name for source in node.meta.get("from_node") or ()]
    for key in ("source_fn_stack", "fwd_source_fn_stack"):
        found = found or [pair[0] for pair in (node.meta.get(key) or ())[-1:]]
    return [name for name in found if isinstance(name, str)]


def instructions_backwards(translator: Any) -> Iterator[Any]:
    """Yield the current instruction, then the instructions before it in the code, the nearest first."""
    current = translator.current_instruction
    yield current
    at = translator.indexof.get(current) if hasattr(translator, "indexof") else None
    if at is not None:
        yield from reversed(translator.instructions[:at])
