"""What in the program changed a cache key: from torch's components to an option, a source line, a size, a variable.

A change explains the ones that follow from it: sizes that became symbolic also change the graph and its inputs. What
none of them explains is told by the component's own name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace

from dynadiag.caches.key_changes import (
    ABSENT,
    JOB_VARIABLES,
    Cause,
    ChangedComponent,
    KeyComparison,
    RunSide,
    input_change,
    is_symbolic,
)
from dynadiag.caches.source_changes import (
    changed_definitions,
    definition_line,
    only_changed_statement,
)
from dynadiag.explanation.formatting import brief, count
from dynadiag.explanation.source_search import call_span, definition_span, option_span
from dynadiag.recording.records import Guard, Node, Span
from dynadiag.recording.torch_text.guards import guarded_value
from dynadiag.recording.torch_text.sources import input_names, is_global, source_text

_CURE = "Pass the value as an argument, or keep it out of the graph."
_SAME_CODE = "Start both runs with the same code and the same choice of it."
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|\b(?:True|False|None)\b|[-+]?\d[\d.e+-]*")
_SET = "a set of strings has another order in each process, unless PYTHONHASHSEED is set."
_WORD, _NUMBER = re.compile(r"[\w./:-]+"), re.compile(r"(?<=[A-Za-z_])\d+")  # a number that ends or parts a name
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


def graph_values(compared: KeyComparison) -> Iterator[Cause]:
    """The value that changed: one that Dynamo guards on, else what differs in the text of the graph."""
    change = compared.of("gm")[0]
    found = _guarded(list(_changed_values(compared)), compared.after.sources) or _printed(change)
    accident = own_of_process(change, compared)
    yield replace(
        found,
        text=found.text + (f"; {accident}" if accident else ""),
        span=found.span or _first_new_node(change, compared.after.nodes),
        cure=found.cure or _CURE,
    )


def _printed(change: ChangedComponent) -> Cause:
    if change.before == change.after:
        return Cause("the graph is the same text, an object in it is another one (a tensor constant, or a module)")
    if len({_VALUE.sub("", text) for text in (change.was, change.now)}) > 1:
        return Cause("the graph computes something else", cure=_SAME_CODE)
    return Cause(f"a value that is fixed into the graph changed: {change.was} → {change.now}")


def _changed_values(compared: KeyComparison) -> Iterator[tuple[Guard, str, str]]:
    """The values that Dynamo guards on and that differ: it compiles them into the graph."""
    values = [
        {
            guard.source: (guard, value)
            for guard in side.guards
            if (value := guarded_value(guard.expression)) is not None
        }
        for side in (compared.before, compared.after)
    ]
    for source, (guard, now) in values[1].items():
        was = values[0].get(source, (guard, now))[1]
        if was != now:
            yield guard, was, now


def _guarded(values: Sequence[tuple[Guard, str, str]], sources: Mapping[str, str]) -> Cause | None:
    """What the values are called, where they are set or else read, and the cure for those in another order."""
    if not values:
        return None
    guard, was, now = values[0]
    name = source_text(guard.source)
    text = f"{name} went from {brief(was)} to {brief(now)}, and the graph has its value"
    variable = name.partition("[")[0]
    span = definition_span(sources, variable) if is_global(guard.source) and variable.isidentifier() else None
    span = span or (Span(guard.file, guard.line) if guard.line else None)
    same = [each for each in values if source_text(each[0].source).partition("[")[0] == variable]
    if len(same) > 1 and sorted(each[1] for each in same) == sorted(each[2] for each in same):
        return Cause(f"the order of {variable} changed: {text}", span, f"Sort {variable}: {_SET}")
    return Cause(text + (f" (and {count(len(values) - 1, 'other value')})" if len(values) > 1 else ""), span)


def own_of_process(change: ChangedComponent, compared: KeyComparison) -> str | None:
    """What of the process's own is in a part of the key: an address, its folder, its rank or another variable."""
    if _ADDRESS.search(change.now) and _ADDRESS.search(change.was):
        return "an address of this process is in it"
    words = [Counter(_WORD.findall(text)) + Counter(_NUMBER.findall(text)) for text in (change.was, change.now)]
    stale, fresh = words[0] - words[1], words[1] - words[0]
    cwd = compared.after.run.cwd
    if cwd and cwd != compared.before.run.cwd and any(word.startswith(cwd) for word in fresh):
        return "the folder that the program runs in is in it"
    old, new = compared.before.environment, compared.after.environment
    for name in (*JOB_VARIABLES.values(), *sorted(new)):
        now = new.get(name, "")
        if now in fresh and old.get(name) != now and (name not in old or old[name] in stale):
            return f"{name} of this process ({now}) is in it"
    for argument in compared.after.run.argv[1:]:
        if argument in fresh and argument not in compared.before.run.argv:
            return f"an argument of the program ({argument}) is in it"
    if re.search(rf"(?<!\d){compared.after.run.pid}(?!\d)", change.now):
        return "the process id is in it"
    if any("group" in word for word in fresh) or "_c10d_functional" in change.now:
        return (
            "a process group's name is in it: give the group a name of its own (group_desc) or make groups in one order"
        )
    return None


def _first_new_node(change: ChangedComponent, nodes: Sequence[Node]) -> Span | None:
    """The user's line of the first node that only the second run's graph has."""
    spans = {node.name: node.span for node in nodes if node.span.file}
    old = set(change.before.splitlines())
    for line in change.after.splitlines():
        name = re.match(r" +(\w+)(?::[^=]*)? = ", line)
        if name is not None and line not in old and name[1] in spans:
            return spans[name[1]]
    return None


_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_SOURCE = re.compile(r"local_name='([^']*)'|member='([^']*)'|index='([^']*)'|global_name='([^']*)'")
_KEEP = "Start both runs with the same {0}: the second one finds what the first one compiled."
_THREAD_COUNT = "cpp_runtime_thread_count"
_THREAD_OPTIONS = ("inductor_config[cpp.threads]", "inductor_config[cpp.dynamic_threads]")  # without them it counts
_DETERMINISTIC = ("deterministic_algorithms", "deterministic_algorithms_settings")
_DETERMINISTIC_OPTION = "inductor_config[deterministic]"  # torch.use_deterministic_algorithms sets it too
_OF_GRAPH = "fx_kwargs"  # options of one graph, such as whether it is for inference
_ONE_PLACE = "; the program's source changed in one place only"
_SEVERAL = (*_DETERMINISTIC, "cuda_matmul_settings")  # components with several settings
_OFF = {ABSENT: "off"}


def find_causes(
    changes: Sequence[ChangedComponent], before: RunSide, after: RunSide, above: Sequence[Cause] = ()
) -> tuple[Cause, ...]:
    """Return what changed the key of the second run, the deepest first. Empty if no component changed.

    ``above`` are the causes of the AOTAutograd lookup of the same compile. They explain a graph that differs below,
    and its inputs: AOTAutograd chooses those.
    """
    if any(change.component in _THREAD_OPTIONS for change in changes):
        changes = [change for change in changes if change.group != _THREAD_COUNT]
    if any(change.group in _DETERMINISTIC for change in changes):
        changes = [change for change in changes if change.component != _DETERMINISTIC_OPTION]
    compared = KeyComparison(tuple(changes), before, after)
    found: list[Cause] = []
    explained: set[str] = set()
    for groups, explain, follows in _EXPLAINERS:
        if any(change.group in groups and change.component not in explained for change in changes):
            causes = list(above) if above and explain in (_inputs, graph_values) else list(explain(compared))
            found += (each for each in causes if each not in found)
            if causes:
                explained |= {change.component for change in changes if change.group in (*groups, *follows)}
    left = [change for change in changes if change.component not in explained]
    found += (_by_name(change) for change in left[:3] if not (above and change.group == _OF_GRAPH))
    return tuple(_placed(found, compared)) or tuple(above)


def _placed(found: Sequence[Cause], compared: KeyComparison) -> list[Cause]:
    """The causes. Those without a line get that of the one statement that changed, if nothing else was given."""
    before, after = compared.before, compared.after
    given = [(side.environment, side.run.argv[1:], side.run.torch, side.run.device) for side in (before, after)]
    span = only_changed_statement(before.files, after.files) if given[0] == given[1] else None
    first = next((each for each in found if each.span is None), None) if span else None
    return [
        each if each.span or not span else replace(each, text=each.text + _ONE_PLACE * (each is first), span=span)
        for each in found
    ]


def _by_name(change: ChangedComponent) -> Cause:
    return Cause(f"{change.component} went from {change.was} to {change.now}", None, None)


def _torch(compared: KeyComparison) -> Iterator[Cause]:
    old, new = compared.before.run, compared.after.run
    pairs = {"torch": (old.torch, new.torch), "Triton": (old.triton, new.triton), "device": (old.device, new.device)}
    changed = [f"{name} went from {was} to {now}" for name, (was, now) in pairs.items() if was != now]
    if changed:
        yield Cause("; ".join(changed), None, "A cache serves one installation and one kind of device only.")
    elif compared.of("torch_version"):
        yield Cause("torch's own source changed: another build, or files of it were edited", None, None)
    else:
        change = compared.of("system_info")[0]
        yield Cause(
            f"the system went from {change.was} to {change.now}", None, "A cache serves one kind of device only."
        )


def _options(compared: KeyComparison) -> Iterator[Cause]:
    for change in compared.of("inductor_config", "inductor_config_comms"):
        option = change.component.partition("[")[2].removesuffix("]")
        yield _option(compared, f"torch._inductor.config.{option}", option, change.was, change.now)


def _functorch_options(compared: KeyComparison) -> Iterator[Cause]:
    old, new = (side.options.get("functorch_config", {}) for side in (compared.before, compared.after))
    for option in sorted(old.keys() | new.keys()):
        if old.get(option) != new.get(option):
            name = f"torch._functorch.config.{option}"
            yield _option(compared, name, option, str(old.get(option)), str(new.get(option)))


def _option(compared: KeyComparison, name: str, option: str, was: str, now: str) -> Cause:
    # An option as programs write it: ``config.triton.cudagraphs``, or ``"triton.cudagraphs"`` as a key.
    spans = [
        option_span(side.sources, (option, option.rpartition(".")[2])) for side in (compared.after, compared.before)
    ]
    variable = None if any(spans) else _changed_variable(compared, ("TORCHINDUCTOR_", "TORCH_", "TRITON_"))
    mode = call_span(compared.after.sources, ("compile",), keyword="mode") if not any(spans) else None
    text = f"{name} went from {was} to {now}" + (f", by {variable}" if variable else "")
    return Cause(text, spans[0] or mode or spans[1], _KEEP.format("value"))


def _changed_variable(compared: KeyComparison, prefixes: tuple[str, ...]) -> str | None:
    old, new = compared.before.environment, compared.after.environment
    changed = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    found = [name for name in changed if name.startswith(prefixes)]
    return None if not found else f"{found[0]} ({old.get(found[0], 'not set')} → {new.get(found[0], 'not set')})"


def _threads(compared: KeyComparison) -> Iterator[Cause]:
    change = compared.of(_THREAD_COUNT)[0]
    variable = _changed_variable(compared, _THREADS)
    span = None if variable else call_span(compared.after.sources, ("set_num_threads",))
    by = f", by {variable}" if variable else ""
    yield Cause(
        f"the number of threads went from {change.was} to {change.now}{by}: C++ kernels are generated for one number",
        span,
        _KEEP.format("number of threads")
        + " Or set torch._inductor.config.cpp.dynamic_threads, which makes keys free of it.",
    )


def _passes(compared: KeyComparison) -> Iterator[Cause]:
    for change in compared.of(*_PASSES):
        option = change.component.partition("[")[0]
        span = definition_span(compared.after.sources, "uuid") or option_span(compared.after.sources, (option,))
        own = own_of_process(change, compared)
        yield Cause(
            f"the uuid() of the custom pass {option} went from {change.was} to {change.now}{f'; {own}' if own else ''}",
            span,
            "Let uuid() depend on the pass's own code alone: get_hash_for_files((__file__,)).",
        )


# Switches of torch: the component, what it is, the calls that set it.
_SWITCHES = {
    "grad_enabled": (
        "whether gradients are recorded",
        ("no_grad", "set_grad_enabled", "inference_mode", "enable_grad"),
    ),
    "autocast_state": ("autocast", ("autocast",)),
    "default_dtype": ("the default dtype", ("set_default_dtype",)),
    "deterministic_algorithms": ("deterministic algorithms", ("use_deterministic_algorithms",)),
    "deterministic_algorithms_settings": ("deterministic algorithms", ("use_deterministic_algorithms",)),
    "cuda_matmul_settings": ("the precision of matrix products", ("set_float32_matmul_precision",)),
    "default_cuda_device_index": ("the current GPU", ("set_device",)),
    "cache_key_tag": ("torch.compiler.config.cache_key_tag", ()),
    "precompile_enabled": ("torch._functorch.config.bundled_autograd_cache", ()),
    "provenance_tracking_level": ("torch._inductor.config.trace.provenance_tracking_level", ()),
}


def _changed_settings(compared: KeyComparison) -> Iterator[Cause]:
    told = set()
    for change in compared.of(*_SWITCHES):
        what, calls = _SWITCHES[change.group]
        if what not in told:
            told.add(what)
            option = what.rpartition(".")[2]
            span = call_span(compared.after.sources, calls) or option_span(compared.after.sources, (option,))
            span = span or call_span(compared.before.sources, calls)
            was, now = (_OFF.get(value, value) for value in _first_values(change))
            yield Cause(f"{what} went from {was} to {now}", span, _KEEP.format("setting"))


def _first_values(change: ChangedComponent) -> tuple[str, str]:
    """The two values; of several settings in one component the first that changed."""
    parts = [value.strip("()").split(", ") for value in (change.was, change.now)]
    changed = [(old.strip("'"), new.strip("'")) for old, new in zip(*parts, strict=False) if old != new]
    return changed[0] if change.group in _SEVERAL and changed else (change.was, change.now)


def _dynamic(compared: KeyComparison) -> Iterator[Cause]:
    """Sizes that are symbols in one run only. The graph, its inputs and what is static among them change with that."""
    old, new = (_has_symbols(compared, side) for side in ("before", "after"))
    if old == new:
        return
    sources = compared.after.sources
    span = call_span(sources, ("compile",), keyword="dynamic") or call_span(sources, ("mark_dynamic", "mark_unbacked"))
    span = span or call_span(compared.before.sources, ("compile",), keyword="dynamic")
    was, now = ("symbolic", "fixed") if old else ("fixed", "symbolic")
    yield Cause(f"sizes went from {was} to {now} (dynamic shapes)", span, _KEEP.format("setting of dynamic"))


def _has_symbols(compared: KeyComparison, side: str) -> bool:
    return any(is_symbolic(getattr(change, side)) for change in compared.of("example_inputs"))


def _inputs(compared: KeyComparison) -> Iterator[Cause]:
    old, names = _names_of_side(compared.before), _names_of_side(compared.after)
    for change in compared.of("example_inputs"):
        index = int(re.sub(r"\D", "", change.component) or 0)
        if sorted(old) == sorted(names) and old[index : index + 1] != names[index : index + 1]:
            continue  # the graph reads the same inputs in another order
        if ABSENT in (change.before, change.after):
            has, side = ("has a new", names) if change.before == ABSENT else ("no longer has the", old)
            name = side[index] if index < len(side) else f"{index} of the first run"
            yield Cause(f"the graph {has} input {name}", None, _KEEP.format("inputs"))
            continue
        fields = input_change(change.before, change.after)
        named = f"input {names[index]}" if index < len(names) else f"input {index} of the graph"
        what = "; ".join(
            f"{name} went from {was} to {now}" for name, (was, now) in fields.items() if not _follows(name, fields)
        )
        yield Cause(
            f"{named}: {what or f'it went from {change.was} to {change.now}'}",
            None,
            "Warm the cache with the sizes that the program is started with, or compile with dynamic=True."
            if "shape" in fields
            else _KEEP.format("kind of input"),
        )


def _follows(field: str, fields: Container[str]) -> bool:
    """Whether a property of a tensor says nothing beside the others: torch computes it from them."""
    return field == "storage_bytes" or (field == "memory_format" and "stride" in fields)


def _names_of_side(side: RunSide) -> list[str]:
    placeholders = (node.target for node in side.nodes if node.op == "placeholder")
    return input_names(placeholders, (guard.source for guard in side.guards))


def _names_of_inputs(compared: KeyComparison) -> Iterator[Cause]:
    change = compared.of("aot_config")[0]
    old, new = (["".join(found) for found in _SOURCE.findall(text)] for text in (change.before, change.after))
    reordered = old != new and sorted(old) == sorted(new)
    if reordered and compared.of("gm"):
        return  # it follows from the graph
    renamed = {was: now for was, now in zip(old, new, strict=False) if was != now}
    function = compared.after.compile
    line = definition_line(compared.after.sources.get(function.file or "", ""), function.function)
    span = Span(function.file, line or function.line)
    if reordered:
        yield Cause(f"{function.function} reads its inputs in another order", span, _KEEP.format("order"))
    elif len(old) == len(new) and renamed:
        told = ", ".join(f"{was} is now called {now}" for was, now in list(renamed.items())[:4])
        yield Cause(f"{told}: AOTAutograd's key has the names of arguments and attributes", span, _KEEP.format("names"))
    else:
        yield Cause(f"the inputs of {function.function} changed: {change.was} → {change.now}", span, None)


def _source_change(compared: KeyComparison) -> Iterator[Cause]:
    """The source of what is compiled: that changes the graph, and may change its inputs."""
    for each in changed_definitions(compared.before.files, compared.after.files):
        yield Cause(each.text, each.span, None, each.diff)


def _triton_source(compared: KeyComparison) -> Iterator[Cause]:
    change = compared.of("user_defined_triton_source", "triton_kernel_source_codes")[0]
    name = re.search(r"def (\w+)\(", change.after)
    span = None if name is None else definition_span(compared.after.sources, name[1])
    kernel = f"the Triton kernel {name[1]}" if name else "a Triton kernel"
    yield Cause(f"the source of {kernel} changed: {change.was} → {change.now}", span, None)


_Explain = Callable[[KeyComparison], Iterator[Cause]]
_PASSES = (
    "pre_grad_custom_pass",
    "post_grad_custom_pre_pass",
    "post_grad_custom_post_pass",
    "joint_custom_pre_pass",
    "joint_custom_post_pass",
    "_pre_fusion_custom_pass",
    "_post_fusion_custom_pass",
    "_fuse_ddp_communication_passes",
    "custom_backend_passes",
    "_custom_partitioner_fn",
)
# The groups of components that each looks at, the deepest causes first, and the others that follow from the cause.
_EXPLAINERS: tuple[tuple[tuple[str, ...], _Explain, tuple[str, ...]], ...] = (
    (("torch_version", "system_info"), _torch, ("inductor_config", "inductor_config_comms", "autograd_config")),
    (("inductor_config", "inductor_config_comms"), _options, ("fx_kwargs",)),
    (("autograd_config",), _functorch_options, ()),
    ((_THREAD_COUNT,), _threads, ()),
    (_PASSES, _passes, ()),
    (tuple(_SWITCHES), _changed_settings, ("gm", "aot_config", "fx_kwargs", "example_inputs")),
    (("user_defined_triton_source", "triton_kernel_source_codes"), _triton_source, ("gm",)),
    (("example_inputs",), _dynamic, ("gm", "aot_config", "fx_kwargs", "var_to_hint_override")),
    (("gm",), _source_change, ("aot_config", "fx_kwargs", "example_inputs")),
    (("example_inputs",), _inputs, ("gm", "fx_kwargs")),
    (("aot_config",), _names_of_inputs, ()),
    (("gm",), graph_values, ("fx_kwargs", "example_inputs", "aot_config")),
)
