"""Records the values of compiled calls, in the recorded process (``--values``).

Each graph that Dynamo gives to its backend, and each backward graph that Inductor compiles, is watched. A call that the
options take is run once more before it, in a fork of the program: compiled, with the buffers that its kernels store,
and uncompiled, node by node. If CUDA is in use no process can be forked: the program's own call shows its buffers then,
and the uncompiled run is made after it, in the program's process, on copies.

torch is changed for the length of the process: the two functions that compile a graph are wrapped, the caches of
compiled graphs are off, since the modules in them lack the lines that show their buffers, and such lines are added to
the modules that Inductor generates. The kernels are the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.fx import GraphModule, Node

from dynadiag.capture.breaks import parse_compile_id
from dynadiag.capture.recorder import Recorder
from dynadiag.capture.settings import ValueOptions
from dynadiag.node_values.gradients import ForwardCall, NotCompared, wrong_gradient
from dynadiag.node_values.isolated import ForkFailed, run_in_fork
from dynadiag.node_values.judgement import Judgement, Judgements, StoredValue, agrees, judge, judge_apart, wrong_within
from dynadiag.node_values.node_run import NodeRun
from dynadiag.node_values.summary import distance, have_same_bits, is_summarized, summary_of
from dynadiag.node_values.writes import mutates, writers
from dynadiag.torch_private import bisect as compile_hooks
from dynadiag.torch_private import graph_calls, kernel_codegen
from dynadiag.torch_private import trial as backend_hooks
from dynadiag.torch_private.minify import copy_graph_module
from dynadiag.trial.reference_run import copy_tensors, has_random_state, random_state, set_random_state

_MAX_ERROR = 500  # characters of an error that are recorded
_MAX_NAMES = 5  # nodes of one note
_NO_BACKWARD = "the backward has no values: Inductor did not compile this graph, and values are read from what it makes"
_NOT_COMPARED = "its gradients are not compared with autograd"


def watch(recorder: Recorder, options: ValueOptions) -> None:
    """Record the values of the compiled calls of this process, from now on."""
    backend_hooks.bypass_caches()
    _install(_Watcher(recorder, options))


@contextlib.contextmanager
def watching(recorder: Recorder, options: ValueOptions) -> Iterator[None]:
    """Record the values of what is compiled and called in a block. torch is as before after it."""
    with graph_calls.hooks_removed_after():
        watcher = _Watcher(recorder, options)
        _install(watcher)
        try:
            yield
        finally:
            watcher.is_ended = True


def _install(watcher: _Watcher) -> None:
    backend_hooks.start_autograd()
    backend_hooks.wrap_call_user_compiler(watcher.compile_frame)
    compile_hooks.wrap_inner_compile(watcher.compile_graph)
    is_active = lambda: bool(watcher.compiling)  # noqa: E731
    kernel_codegen.wrap_kernel_call(is_active, None, watcher.label)
    kernel_codegen.wrap_library_call(is_active, watcher.label)


@dataclass(slots=True)
class _Graph:
    """A graph that is watched. ``graph`` is "forward", "backward" or "inference", and None until it is known of a graph
    that Inductor does not compile. The backward of such a graph is not seen.
    """

    module: GraphModule
    compile_id: str
    graph: str | None
    calls: int = 0
    lacks_backward: bool = False
    frame: _Graph | None = None  # of a backward graph: Dynamo's graph
    backward: _Graph | None = None  # of Dynamo's graph: its backward graph, once that is compiled
    forward: ForwardCall | None = None  # of a backward graph: the forward call of the call that is recorded now


class _Watcher:
    """Watches the graphs of one process. ``compiling`` are the graphs that Inductor compiles now: compiles nest.

    Each has the names of its nodes if it is a backward graph, else None.
    """

    def __init__(self, recorder: Recorder, options: ValueOptions) -> None:
        self.compiling: list[frozenset[str] | None] = []
        self.is_ended = False
        self._recorder, self._options = recorder, options
        self._frames: list[_Graph] = []
        self._of_compile: dict[str, _Graph] = {}
        self._bytes = 0
        self._is_observing = False
        # By the node of autograd's graph that will call the backward: it is freed with that.
        self._forwards = WeakKeyDictionary[Any, ForwardCall]()

    def compile_frame(self, inner: Callable[..., Any], output: Any, gm: GraphModule, *args: Any, **kwargs: Any) -> Any:
        """Compile a graph of Dynamo's. Returns the compiled graph, whose calls are observed."""
        frame = _Graph(copy_graph_module(gm), compile_hooks.compile_id(), None)
        self._of_compile[frame.compile_id] = frame
        self._frames.append(frame)
        try:
            compiled = inner(output, gm, *args, **kwargs)
        finally:
            self._frames.pop()

        return _outside_tracebacks(lambda *given: self._observed(frame, lambda each: compiled(*each), given))

    def compile_graph(self, inner: Callable[..., Any], gm: GraphModule, args: Any, kwargs: Any) -> Any:
        """Compile a graph of AOTAutograd's with Inductor. The calls of a backward graph are observed."""
        kind = compile_hooks.inner_graph_kind(kwargs)
        watched = None
        if kind == "backward":
            watched = _Graph(copy_graph_module(gm), compile_hooks.compile_id(), kind)
            watched.frame = self._of_compile.get(watched.compile_id)
            if watched.frame is not None:
                watched.frame.backward = watched
        if watched is None and self._frames:
            self._frames[-1].graph = kind
        self.compiling.append(None if watched is None else frozenset(node.name for node in gm.graph.nodes))
        try:
            compiled = inner(gm, *args, **kwargs)
        finally:
            self.compiling.pop()
        if watched is not None:
            graph_calls.replace_call(
                compiled, lambda call: _outside_tracebacks(lambda given: self._observed(watched, call, given))
            )
        return compiled

    def label(self, node: Node, _computed: kernel_codegen.KernelNodes, kernel: str | None) -> str:
        """Name a buffer: the graph that it is in, the kernel if it stores it, the node whose value it has, and whether
        that is still to be cast or reshaped.
        """
        names = self.compiling[-1]
        name: tuple[str | None, bool]
        if graph_calls.is_lowering_subgraph():  # a loop's body has nodes with the names of its outer graph's
            name = None, False
        else:
            name = (
                graph_calls.final_source(node) if names is None else (graph_calls.backward_source(node, names), False)
            )
        return json.dumps(["forward" if names is None else "backward", kernel, *name])

    def _observed(self, graph: _Graph, call: Callable[[Any], Any], arguments: Any) -> Any:
        """Make a call of a compiled graph, and record its values if the options take it."""
        if self.is_ended or self._is_observing or graph_calls.is_tracing(arguments):
            return call(arguments)
        number, graph.calls = graph.calls, graph.calls + 1
        is_taken = self._options.takes(number) and self._bytes <= self._options.limit
        forward = self._forward_call(graph, arguments)
        before = graph_calls.input_history(arguments) if forward is not None else set()
        returned = self._recorded(graph, number, call, arguments) if is_taken else call(arguments)
        if forward is not None and (node := graph_calls.compiled_backward(returned, before)) is not None:
            self._forwards[node] = forward
        return returned

    def _forward_call(self, graph: _Graph, arguments: Any) -> ForwardCall | None:
        """Return what is needed to repeat a forward call. None if the values of its backward will not be recorded.

        Which call's backward comes next is the program's choice: one may have none, or come in another order.
        """
        if graph.graph != "forward" or graph.lacks_backward or not torch.is_grad_enabled():
            return None
        calls = graph.backward.calls if graph.backward is not None else 0
        if not self._options.takes_from(calls) or self._bytes > self._options.limit:
            return None
        return ForwardCall.of(graph.module, arguments, random_state())

    def _recorded(self, graph: _Graph, number: int, call: Callable[[Any], Any], arguments: Any) -> Any:
        """Make a call of a compiled graph, and record its values."""
        self._is_observing = True
        if graph.graph is None:
            graph.lacks_backward = torch.is_grad_enabled() and any(
                isinstance(each, torch.Tensor) and each.requires_grad for each in arguments
            )
            graph.graph = "forward" if graph.lacks_backward else "inference"
        if graph.frame is not None and (node := graph_calls.current_backward()) is not None:
            graph.forward = self._forwards.pop(node, None)
        try:
            if torch.cuda.is_initialized():
                return self._observe_here(graph, number, call, arguments)
            self._observe_in_fork(graph, number, call, arguments)
        finally:
            self._is_observing = False
            graph.forward = None
        return call(arguments)

    def _observe_in_fork(self, graph: _Graph, number: int, call: Callable[[Any], Any], arguments: Any) -> None:
        began, state = time.monotonic(), random_state()
        thread = graph_calls.ThreadState()

        def describe() -> bytes:
            self._recorder.mute()
            with thread.restored():
                given = list(arguments)
                # A compiled backward reuses the memory of what the forward saved.
                is_written = graph.graph == "backward" or mutates(graph.module)
                own = given if graph.graph == "backward" else tuple(given)
                own = copy_tensors(own) if is_written else own
                shown, raised = _Shown({}, (), ()), None
                try:
                    shown = _shown_by(call, own, graph)
                except Exception as error:  # noqa: BLE001 - the uncompiled values may show why
                    raised = _text_of(error)
                set_random_state(state)
                described = self._describe(graph, number, given, shown, state)
                is_ended = described.pop("is_ended")
                if raised is not None:
                    alone = ", and uncompiled code does not" if is_ended else ""
                    described["notes"].append(f"compiled code raises{alone}: {raised}")
                elif not is_ended:
                    described["notes"].append("compiled code comes to its end, where uncompiled code does not")
                return json.dumps(described, allow_nan=False).encode()

        def first_values() -> bytes:
            self._recorder.mute()
            with thread.restored():
                return json.dumps(_program_values(graph.module, arguments)).encode()

        try:
            self._check(graph)
            described = run_in_fork(describe).decode()
            if (own := graph_calls.program_operators(graph.module)) and _has_wrong(described):
                described = without_unrepeatable(described, own, json.loads(run_in_fork(first_values)))
            self._append(graph, number, described, began, state)
        except Exception as error:  # noqa: BLE001 - the program's call comes next, whatever became of ours
            self._append_failure(graph, number, error)
        except BaseException as error:  # Ctrl-C: the program's to handle
            self._append_failure(graph, number, error)
            raise

    def _observe_here(self, graph: _Graph, number: int, call: Callable[[Any], Any], arguments: Any) -> Any:
        """The same without a fork: the program's own call shows its buffers."""
        began, before = time.monotonic(), random_state()
        try:
            self._check(graph)
            given = copy_tensors(list(arguments))
        except Exception as error:  # noqa: BLE001 - as above
            self._append_failure(graph, number, error)
            return call(arguments)
        if not kernel_codegen.can_read_tensors():
            return call(arguments)
        shown = _shown_by(call, arguments, graph)
        after = random_state()
        try:
            set_random_state(before)
            made = self._describe(graph, number, given, shown, before)
            del made["is_ended"]
            described = json.dumps(made, allow_nan=False)
            if (own := graph_calls.program_operators(graph.module)) and _has_wrong(described):
                described = without_unrepeatable(described, own, {})  # the program's call was the first
            self._append(graph, number, described, began, before)
        except Exception as error:  # noqa: BLE001 - as above
            self._append_failure(graph, number, error)
        finally:
            set_random_state(after)
        return shown.returned

    def _check(self, graph: _Graph) -> None:
        """Raises `ForkFailed` if the graph must not run twice."""
        if graph_calls.has_collective(graph.module):
            raise ForkFailed("the graph communicates with other processes, so it is not run a second time")

    def _describe(self, graph: _Graph, number: int, given: list[Any], shown: _Shown, state: Any) -> dict[str, Any]:
        """Run the graph uncompiled, and describe its values and those of compiled code.

        It runs in the program's own mode of gradients, which `torch.func.grad` in a graph heeds, but on inputs without
        gradients, so that nothing is kept for a backward.
        """
        given = [each.detach() if is_summarized(each) else each for each in given]
        whole: dict[str, torch.Tensor] = {}

        def keep(name: str, value: torch.Tensor) -> None:
            if self._options.keeps_whole(name):
                whole[name] = value.detach().clone()

        names = {node.name for node in graph.module.graph.nodes}
        if graph.frame is None:
            names = {*shown.stored, *(node.name for node in _output_nodes(graph.module)), *writers(graph.module)}
        run = NodeRun(graph.module, named=self._options.names, wanted=frozenset(names), whole=keep)
        failure = None
        try:
            run.run(*(copy_tensors(tuple(given)) if mutates(graph.module) else given))
        except Exception as error:  # noqa: BLE001 - what ran is described all the same
            failure = f"the graph does not run uncompiled to its end: {_text_of(error)}"
        run.add_flow()
        self._add_stored(graph, run, given, shown, state)
        if whole and self._options.folder is not None:
            place = f"{graph.compile_id.replace('/', '_')}-{graph.graph}-{number}.safetensors"
            save_tensors(Path(self._options.folder, place), whole)
        if self._options.full is not None and not whole:
            run.notes["no value is kept whole: --full matches no name of a node"] = None
        if run.left_out and run.nodes:
            run.notes[f"nodes that --nodes does not name, and so have no values: {run.left_out}"] = None
        notes = [*run.notes, *((failure,) if failure else ()), *((_NO_BACKWARD,) if graph.lacks_backward else ())]
        return {"nodes": run.nodes, "stacks": run.stacks, "notes": notes, "is_ended": failure is None}

    def _add_stored(self, graph: _Graph, run: NodeRun, given: list[Any], shown: _Shown, state: Any) -> None:
        """Add to each node what compiled code stored for it."""
        stored: Mapping[str, StoredValue] = {**shown.stored, **_final_values(graph.module, run, shown)}
        is_pure = has_random_state(state) and not mutates(graph.module)
        stored = {name: each.like(run.values.get(name)) for name, each in stored.items()}
        apart = [
            name for name, each in stored.items() if name in run.values and not agrees(run.values[name], each.value)
        ]
        if not apart:
            judged = Judgements({}, {})
        elif is_pure:
            judged = judge_apart(graph.module, tuple(given), stored, run.values, apart, state)
        else:
            judged = judge(graph.module, tuple(given), stored, state)
        judgements = dict(judged.of)
        otherwise = {} if graph.frame is not None else _returned_otherwise(graph.module, run, shown.returned)
        judgements |= otherwise
        unjudged = [name for name in apart if (one := judgements.get(name)) is None or one.wrong is None]
        unjudged = [name for name in unjudged if name not in otherwise]
        if unjudged:
            more = f" and {len(unjudged) - _MAX_NAMES} more" if len(unjudged) > _MAX_NAMES else ""
            names = ", ".join(unjudged[:_MAX_NAMES])
            run.notes[f"not judged (random numbers, or no value in float64): {names}{more}"] = None
        stored = {**stored, **self._narrowed(graph, run, given, stored, judged, judgements, state)}
        if graph.frame is not None and not torch.cuda.is_initialized():
            stored |= self._compared_with_autograd(graph, run, given, stored, judgements)
        for node in run.nodes:
            each = stored.get(node["node"])
            judgement = judgements.get(node["node"])
            if each is None or (judgement is None and node["node"] not in run.values):
                continue
            if judgement is not None:
                off = judgement.off
            else:
                off = None if node["node"] in unjudged else distance(each.value, run.values[node["node"]])
            node["stored"] = {
                **summary_of(each.value),
                "kernel": each.kernel,
                "off": off,
                "wrong": bool(judgement is not None and judgement.wrong),
            }
            if node["stored"]["wrong"] and (kernel := each.overwritten) is not None:
                told = f"kernel {kernel} stored another {node['node']}: its memory is written to before it is read"
                run.notes[told] = None

    def _narrowed(
        self,
        graph: _Graph,
        run: NodeRun,
        given: list[Any],
        stored: Mapping[str, StoredValue],
        judged: Judgements,
        judgements: dict[str, Judgement],
        state: Any,
    ) -> dict[str, StoredValue]:
        """The value of the first wrong node, where its kernel does not store it; its judgement is added."""
        wrong = next((node for node in run.nodes if (one := judged.of.get(node["node"])) and one.wrong), None)
        if wrong is None or torch.cuda.is_initialized():  # nothing is compiled in the program's own process
            return {}
        if not graph_calls.can_compile():
            run.notes[f"what lies before {wrong['node']} is not compiled once more: another thread compiles"] = None
            return {}
        inputs = zip((node.name for node in graph.module.graph.find_nodes(op="placeholder")), given, strict=True)
        try:
            first = wrong_within(graph.module, wrong["node"], stored, {**judged.values, **dict(inputs)}, run, state)
        except Exception as error:  # noqa: BLE001 - the compiler may refuse a part; the stored value is known
            run.notes[f"what lies before {wrong['node']} is not compiled once more: {_text_of(error)}"] = None
            return {}
        if first is None or first[0] == wrong["node"]:
            return {}
        name, value = first
        kernel = stored[wrong["node"]].kernel
        run.notes[f"{name} is not stored: what its kernel computes was compiled once more, each value returned"] = None
        judgements[name] = Judgement(None, wrong=True)
        return {name: StoredValue(value, kernel)}

    def _compared_with_autograd(
        self,
        graph: _Graph,
        run: NodeRun,
        given: list[Any],
        stored: Mapping[str, StoredValue],
        judgements: dict[str, Judgement],
    ) -> dict[str, StoredValue]:
        """The first value of a backward graph that autograd contradicts; its judgement is added."""
        if any(judgement.wrong for judgement in judgements.values()):
            return {}
        if (forward := graph.forward) is None:
            run.notes[f"{_NOT_COMPARED}: its forward call was not seen"] = None
            return {}
        for name in graph_calls.operators_with_own_backward(forward.module):
            run.notes[f"the backward of {name} is the program's own: torch.autograd.gradcheck checks it"] = None
        returned = {name: each.value for name, each in stored.items()}
        try:
            wrong = wrong_gradient(forward, graph.module, given, returned)
        except Exception as error:  # noqa: BLE001 - a graph that autograd cannot differentiate again
            run.notes[f"{_NOT_COMPARED}: {_text_of(error)}"] = None
            return {}
        if wrong is None:
            return {}
        described = next((node for node in run.nodes if node["node"] == wrong.node), {})
        described |= {"gradient_of": wrong.of, "gradient_off": wrong.off}
        described |= {"autograd": _texts(wrong.autograd), "compiled": _texts(wrong.compiled)}
        judgements[wrong.node] = Judgement(None, wrong=True)
        known = stored.get(wrong.node)
        return {} if known is not None else {wrong.node: StoredValue(run.values[wrong.node], None)}

    def _append(self, graph: _Graph, number: int, described: str, began: float, state: Any) -> None:
        self._bytes += len(described)
        data = {
            "graph": graph.graph,
            "call": number,
            "seconds": round(time.monotonic() - began, 3),
            "seed": hashlib.blake2b(state[0].numpy(), digest_size=8).hexdigest(),
        }
        if self._bytes > self._options.limit:
            data["note"] = f"later calls have no values: the summaries passed {self._options.limit:,} bytes"
        self._recorder.append("values", data, parse_compile_id(graph.compile_id), described)

    def _append_failure(self, graph: _Graph, number: int, error: BaseException) -> None:
        """Append why a call has no values. Such an event has no seconds. Never raises."""
        data = {"graph": graph.graph, "call": number, "note": _text_of(error)}
        try:
            self._recorder.append("values", data, parse_compile_id(graph.compile_id))
        except Exception as other:  # noqa: BLE001 - we are called out of the user's program
            self._recorder.give_up(other)


def _has_wrong(described: str) -> bool:
    return any(node.get("stored", {}).get("wrong") for node in json.loads(described)["nodes"])


def _program_values(module: GraphModule, arguments: Any) -> dict[str, str]:
    """The hash of what each operator of the program returns when it is called for the first time."""
    names = {node.name for node in graph_calls.program_operators(module)}
    run = NodeRun(module, named=names.__contains__, wanted=frozenset(), whole=lambda *_: None)
    given = [each.detach() if is_summarized(each) else each for each in arguments]
    with contextlib.suppress(Exception):  # what ran is known
        run.run(*copy_tensors(given))
    return {node["node"]: node["hash"] for node in run.nodes}


def without_unrepeatable(described: str, own: Sequence[Node], first: Mapping[str, str]) -> str:
    """Return the description of a call without the accusation of what depends on an operator of the program that gives
    another value each time, until a value after it was stored.

    The uncompiled run calls the operators ``own`` for the second time. ``first`` has the hashes of their first values.
    """
    data = json.loads(described)
    nodes = {node["node"]: node for node in data["nodes"]}
    known = {node.name: nodes.get(node.name, {}).get("hash") for node in own}
    changing = {name for name, value in known.items() if value is None or first.get(name) != value}
    affected, cleared = set[str](changing), list[str]()
    for node in own[0].graph.nodes if own else ():
        described_node = nodes.get(node.name, {})
        stored = described_node.get("stored")
        reads = {*(each.name for each in node.all_input_nodes), *described_node.get("inputs", ())}
        if node.name not in changing and affected.isdisjoint(reads):
            continue
        if stored is not None and stored["wrong"]:
            stored |= {"wrong": False, "off": None}
            cleared.append(node.name)
        if stored is None or (node.name in cleared and node.name not in changing):
            affected.add(node.name)
        else:
            affected.discard(node.name)  # what reads it was judged on the stored value
    if cleared:
        which = ", ".join(sorted(changing))
        data["notes"].append(
            f"not judged (whether {which} gives the same value in each call is not known, or it does not): "
            f"{', '.join(cleared[:_MAX_NAMES])}"
        )
    return json.dumps(data, allow_nan=False)


def _outside_tracebacks(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function without this module's frames in the traceback of what it raises: the program prints it as without us.

    A bare ``raise`` adds no frame.
    """

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except BaseException as error:
            trace = error.__traceback__
            while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
                trace = trace.tb_next
            error.__traceback__ = trace
            raise

    return call


@dataclass(frozen=True, slots=True)
class _Shown:
    """What a call of compiled code showed: what its kernels stored, by node, its result, and the inputs that it may
    have written to, as they were then.
    """

    stored: Mapping[str, StoredValue]
    returned: Any
    inputs: tuple[Any, ...]


def _shown_by(call: Callable[[Any], Any], arguments: Any, graph: _Graph) -> _Shown:
    """Make a call of compiled code.

    A buffer is shown by the kernel that stores it and by those that read it. If they show different values, another
    kernel has written to it in between: the value that is read counts.
    """
    stored, unfinished = dict[str, StoredValue](), dict[str, StoredValue]()
    kind = "backward" if graph.graph == "backward" else "forward"
    computed = {node.name for node in graph.module.graph.nodes if node.op.startswith("call_")}
    inputs = tuple(arguments) if graph.frame is None and mutates(graph.module) else ()

    def on_value(label: str, value: Any) -> None:
        of, kernel, name, is_unfinished = json.loads(label)
        if of != kind or name not in computed or not is_summarized(value):
            return
        values = unfinished if is_unfinished else stored
        known = values.get(name)
        if known is None or not have_same_bits(known.value, value):
            overwritten = known.kernel or known.overwritten if known is not None and kernel is None else None
            values[name] = StoredValue(value.detach().clone(), kernel, overwritten)

    with kernel_codegen.intermediate_hook(on_value):
        returned = call(arguments)
    return _Shown(unfinished | stored, returned, inputs)


def _output_nodes(module: GraphModule) -> tuple[Any, ...]:
    (output,) = module.graph.find_nodes(op="output")
    found = output.args[0]
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def _returned_otherwise(module: GraphModule, run: NodeRun, returned: Any) -> dict[str, Judgement]:
    """The judgement of what compiled code returned in another type, or with another number of dimensions.

    The size of a dimension may depend on values, as that of ``x[x > 0]``: a note says that it is another.
    """
    found = dict[str, Judgement]()
    for node, value in zip(_output_nodes(module), returned if isinstance(returned, (tuple, list)) else (returned,)):  # noqa: B905
        own = run.values.get(node.name) if isinstance(node, Node) else None
        if own is None or not is_summarized(value) or (own.dtype, own.shape) == (value.dtype, value.shape):
            continue
        forms = [f"{str(each.dtype).removeprefix('torch.')} {tuple(each.shape)}" for each in (value, own)]
        run.notes[f"compiled code returns {forms[0]} for {node.name}, which is {forms[1]} uncompiled"] = None
        found[node.name] = Judgement(None, wrong=True if own.dtype != value.dtype or own.dim() != value.dim() else None)
    return found


def _final_values(module: GraphModule, run: NodeRun, shown: _Shown) -> dict[str, StoredValue]:
    """What compiled code returned and left in its inputs, by node.

    What was written to after it was computed is the value of the last node that wrote to it, as far as that did.
    """
    returned = shown.returned if isinstance(shown.returned, (tuple, list)) else (shown.returned,)
    placeholders = module.graph.find_nodes(op="placeholder")
    found = dict[str, StoredValue]()
    for node, value in (*zip(placeholders, shown.inputs), *zip(_output_nodes(module), returned)):  # noqa: B905
        if not isinstance(node, Node) or not is_summarized(value):
            continue
        write = run.writes.of.get(node)
        name = node.name if write is None else write.node
        part = value if write is None else write.part_of(value)
        if part is not None and (write is not None or node.op.startswith("call_")):
            known = shown.stored.get(name)
            found[name] = StoredValue(part.detach(), known.kernel if known is not None else None)
    return found


def _texts(numbers: Sequence[float]) -> list[str]:
    return [f"{number:.7g}" for number in numbers]


def _text_of(error: BaseException) -> str:
    text = (
        str(error)
        if isinstance(error, (ForkFailed, NotCompared))
        else f"{type(error).__name__}: {error}".removesuffix(": ")
    )
    said = text.partition("While executing %")[0] or text  # torch's interpreter adds its node and its stack
    return " ".join(said.split())[:_MAX_ERROR]


_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}
_ALIGNMENT = 8  # bytes; the header is filled up with spaces


def save_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a file of tensors by name. One of a type that the format lacks, such as complex64, is left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header, parts, end = {}, [], 0
    for name, tensor in tensors.items():
        if tensor.dtype in _NAMES:
            data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            offsets = [end, end + len(data)]
            header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": offsets}
            parts.append(data)
            end += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))
