"""The compiles as a tree: call stacks at the top, then compiles, then the artifacts of each compile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count, duration
from dynadiag.explanation.rules import Rule
from dynadiag.recording.code_origin import original_name
from dynadiag.recording.records import Break, Compile, Frame, Graph, Kernel, Recompile, Span
from dynadiag.recording.torch_text.failures import parse_compiler_output
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.readable_graph import graph_titles
from tui.location import Location
from tui.overview import guard_change_fragments
from tui.styled_text import Fragment, Line, line, one_line
from tui.widgets.tree import Branch

_OUTCOME = {
    "ok": ("✓ ok", "good"),
    "break": ("⚠ break", "break"),
    "error": ("✗ error", "error"),
    "skipped": ("- skipped", "dim"),
    "running": ("● running", "good"),
}
_GAVE_UP = ("✗ gave up", "error")  # torch records such a compile as a skipped frame
_MAX_COMPILES = 200  # compiles listed in the detail of one call; the tree has all of them
_MAX_REASON_LINES = 12  # lines of an error that no compiler wrote; the end of the details has the rest
_MAX_MESSAGE_LINES = 1000  # lines of all of it
_MAX_ERRORS = 5  # further errors of a compiler
_MAX_PATH_WIDTH = 48  # columns of the path of a call: its function's name has to fit beside it
_MAX_KERNELS = 200  # kernels of one compile in the tree; the Kernels screen has all of them


@dataclass(slots=True)
class CompileTree:
    """The data of the tree: the explanation, indexed by compile id."""

    explanation: Explanation
    graphs: Callable[[str], Sequence[Graph]]  # of a compile id; called when a branch opens
    kernels: Callable[[str], Sequence[Kernel]]  # of a compile id; called when a branch opens
    payload: Callable[[int], str]  # of an event
    breaks: dict[str, list[Break]] = field(default_factory=dict)
    recompiles: dict[str, Recompile] = field(default_factory=dict)
    calls: dict[str, tuple[tuple[Frame, ...], tuple[Compile, ...]]] = field(default_factory=dict)  # by branch key

    @classmethod
    def build(
        cls,
        explanation: Explanation,
        graphs: Callable[[str], Sequence[Graph]],
        kernels: Callable[[str], Sequence[Kernel]],
        payload: Callable[[int], str],
    ) -> CompileTree:
        """Index the breaks and recompiles of an explanation by compile id."""
        made = cls(explanation, graphs, kernels, payload)
        for item in explanation.breaks:
            made.breaks.setdefault(item.compile_id, []).append(item)
        made.recompiles.update((one.compile_id, one) for one in explanation.recompiles)
        return made

    def callers(self, item: Compile) -> Sequence[Frame]:
        """The frames that led to a compile: in torch's own logs as its breaks name them, which leave out none."""
        found = list(_flat(item.user_stack))
        callers = found[:-1] if found and found[-1].file == item.file else found  # a function of torch is not in it
        for met in self.breaks.get(item.compile_id, ()):
            frames = list(_flat(met.user_stack))
            names = [_identity(frame) for frame in frames]
            above = names.index(_identity(found[-1])) if found and _identity(found[-1]) in names else 0
            callers = max(callers, frames[:above], key=len)
        return callers

    @property
    def cwd(self) -> str | None:
        """The working directory of the recorded program."""
        return self.explanation.run.cwd


@dataclass(slots=True)
class _CallNode:
    """A user frame that led to compiles."""

    children: dict[Frame, _CallNode] = field(default_factory=dict)
    compiles: list[Compile] = field(default_factory=list)
    order: list[_CallNode | Compile] = field(default_factory=list)
    frame: Frame | None = None


def compile_branches(tree: CompileTree) -> list[Branch]:
    """Return the root branches of the tree."""
    root = _CallNode()
    for item in tree.explanation.compiles:
        here = root
        for frame in tree.callers(item):
            if frame not in here.children:
                here.children[frame] = _CallNode(frame=frame)
                here.order.append(here.children[frame])
            here = here.children[frame]
        here.order.append(item)
    return _child_branches(root, "", tree)


def _flat(stack: Sequence[Frame]) -> Iterator[Frame]:
    """Yield the frames without those of the rest of a function, which Dynamo calls as functions after each break."""
    last: Frame | None = None
    for frame in stack:
        if last is None or _identity(frame) != _identity(last):
            yield frame
            last = frame


def _identity(frame: Frame) -> tuple[str, str]:
    """The function of a frame; the rest of a function after a break is the same one."""
    return frame.file, original_name(frame.function)


def _child_branches(call: _CallNode, path: str, made: CompileTree) -> list[Branch]:
    return [
        _compile_branch(item, made) if isinstance(item, Compile) else _call_branch(item, f"{path}/{place_}", made)
        for place_, item in enumerate(call.order)
    ]


def _call_branch(call: _CallNode, path: str, made: CompileTree) -> Branch:
    """Return the branch of a frame. Frames with a single caller share one line with it."""
    frames = [call.frame]
    while len(call.order) == 1 and isinstance(call.order[0], _CallNode):
        call = call.order[0]
        frames.append(call.frame)
    made.calls[f"call{path}"] = (tuple(frame for frame in frames if frame), tuple(_compiles_below(call)))
    last = frames[-1]
    at = fit_path(source_location(last.file, last.line, None, made.cwd), _MAX_PATH_WIDTH) if last else "?"
    name = one_line(last.function) if last else "?"
    parts: list[Fragment] = [(at, ""), (f" in {name}", "dim")]
    if len(frames) > 1:
        parts.append((f"  ({count(len(frames) - 1, 'call')} above)", "dim"))
    target = Location("code", document=f"source:{last.file}", line=last.line) if last else None
    return Branch(f"call{path}", tuple(parts), target, lambda: _child_branches(call, path, made), expanded=True)


def _compiles_below(call: _CallNode) -> Iterator[Compile]:
    """Yield the compiles that a call led to, directly or not."""
    for item in call.order:
        yield from (item,) if isinstance(item, Compile) else _compiles_below(item)


def _outcome(item: Compile, made: CompileTree) -> Fragment:
    """How a compile ended."""
    again = made.recompiles.get(item.compile_id)
    return _GAVE_UP if again is not None and again.limit_reached else _OUTCOME.get(item.outcome, (item.outcome, ""))


def _compile_branch(item: Compile, made: CompileTree) -> Branch:
    mark, role = _outcome(item, made)
    seconds = duration(item.seconds.total) if item.seconds.total is not None else "-"
    breaks = made.breaks.get(item.compile_id, [])
    parts: list[Fragment] = [
        (f"{one_line(item.compile_id):<5} ", "key"),
        (f"{mark:<9} ", role),
        (f"{seconds:>7}  ", ""),
        (one_line(item.function), "strong"),
        (f":{item.line}" if item.line else "", "dim"),
        ("".join(f"  {name}" for name in dict.fromkeys(one_line(each.gb_id or "break") for each in breaks)), "break"),
        (f"  {item.attempts} attempts" if item.attempts > 1 else "", "dim"),
        *_change_fragments(made.recompiles.get(item.compile_id)),
    ]
    target = Location("code", compile_id=item.compile_id)
    return Branch(f"compile/{item.index}", _non_empty(parts), target, lambda: _compile_children(item, made))


def _change_fragments(item: Recompile | None) -> Sequence[Fragment]:
    """Why a function was compiled again."""
    return [("  ↻ ", "recompile"), *guard_change_fragments(item)] if item else []


def _compile_children(item: Compile, made: CompileTree) -> list[Branch]:
    key, id_ = f"compile/{item.index}", item.compile_id
    found = [
        Branch(
            f"{key}/break/{one.index}",
            _non_empty([(one_line(one.gb_id or "break"), "break"), (f" {one_line(one.gb_type)}", "")]),
            Location("breaks", item=one.index if one.cause is None else one.cause),
        )
        for one in made.breaks.get(id_, [])
    ]
    graphs = made.graphs(id_)
    for graph, title in zip(graphs, graph_titles(graphs), strict=True):
        parts: list[Fragment] = [
            (one_line(title.text), ""),
            (f"  {count(graph.nodes, 'node')}, {count(graph.ops, 'op')}", "dim"),
        ]
        found.append(
            Branch(f"{key}/graph/{graph.index}", tuple(parts), Location("code", id_, document=f"event:{graph.event}"))
        )
    found.append(Branch(f"{key}/guards", ((count(item.guards, "guard"), ""),), Location("guards", id_)))
    for kernel in made.kernels(id_)[:_MAX_KERNELS]:
        parts = [(f"{kernel.language} ", "dim"), (one_line(kernel.name), "")]
        target = Location("kernels", item=kernel.index)
        found.append(Branch(f"{key}/kernel/{kernel.index}", tuple(parts), target, is_name=True))
    return found


def call_lines(key: str, made: CompileTree) -> list[Line]:
    """Return the details of a call: its callers and the compiles that it led to."""
    found = [
        made.calls[one]
        for end in range(len(key) + 1)
        if (one := key[:end]) in made.calls and (end == len(key) or key[end] == "/")
    ]
    if not found:
        return []
    compiles = found[-1][1]
    spent = sum(item.seconds.total or 0.0 for item in compiles)
    frames = [frame for frames, _ in found for frame in frames]
    return [
        line((count(len(compiles), "compile"), "strong"), f", {duration(spent)}"),
        Line(),
        *_section("called", [_frame_line(frame, made) for frame in frames]),
        *_section("compiled", [_compile_line(item, made) for item in compiles[:_MAX_COMPILES]]),
    ]


def _compile_line(item: Compile, made: CompileTree) -> Line:
    mark, role = _outcome(item, made)
    parts = (f"{one_line(item.compile_id):<6} ", "key"), (f"{mark:<10}", role), one_line(item.function)
    return line(*parts, to=Location("compiles", compile_id=item.compile_id))


def compile_lines(item: Compile, made: CompileTree) -> list[Line]:
    """Return the details of one compile."""
    mark, role = _outcome(item, made)
    code = Location("code", item.compile_id)
    spent = item.seconds
    parts = (
        ("total", spent.total),
        ("Dynamo", spent.dynamo),
        ("backend" if _only_backend(item, made) else "AOTAutograd and below", spent.aot),
        ("Inductor and below", spent.inductor),
        ("code generation", spent.codegen),
    )
    known = [line(f"{duration(value):>8}  {name}") for name, value in parts if value is not None]
    lines = [
        line(
            (f"{one_line(item.compile_id)}  ", "key"),
            (one_line(item.function), "strong"),
            ("  ", ""),
            (mark, role),
            to=code,
        ),
        line((source_location(item.file, item.line, None, made.cwd), "dim")),
        *_failure_lines(item, made),
        Line(),
        *(known or [line(("no compile time was recorded", "dim"))]),
        line(
            f"{count(item.attempts, 'attempt')}, ", count(item.guards, "guard"), to=Location("guards", item.compile_id)
        ),
        *([line(f"FX graph cache: {one_line(item.cache)}")] if item.cache else []),
        Line(),
    ]
    found = _section("called from", [_frame_line(frame, made) for frame in made.callers(item)])
    if made.explanation.run.is_foreign:
        found[-1:] = [line(("torch's own log leaves out the last of these calls", "dim")), Line()]
    lines += found
    lines += _section("breaks", [_break_line(one, made) for one in made.breaks.get(item.compile_id, [])])
    graphs = made.graphs(item.compile_id)
    titles = (title.text for title in graph_titles(graphs))
    lines += _section("graphs", [_graph_line(one, title) for one, title in zip(graphs, titles, strict=True)])
    lines += _section("kernels", [_kernel_line(one) for one in made.kernels(item.compile_id)[:_MAX_KERNELS]])
    said, texts = parse_compiler_output(item.reason or ""), (item.reason or "").split("\n")
    if said is not None:
        return lines + _section("the compiler's command", [line((one_line(said.command), "dim"))])
    whole = texts[:_MAX_MESSAGE_LINES] if len(texts) > _MAX_REASON_LINES else []
    return lines + _section("the whole message", [line(f"  {text}") for text in whole])


def _failure_lines(item: Compile, made: CompileTree) -> list[Line]:
    """Return where and why a compile failed. Where comes first: a message of torch may be longer than a screen."""
    if not item.reason and not item.error:
        return []
    head = line((one_line(item.error or item.outcome), "error" if item.outcome == "error" else "strong"))
    said = parse_compiler_output(item.reason or "")
    mine = _section("at this line of yours" if said is None else "your lines in this graph", _user_lines(item, made))
    if said is None:
        texts = (item.reason or "").split("\n")
        cut = [line(("  … all of it is below", "dim"))] if len(texts) > _MAX_REASON_LINES else []
        shown = [line(f"  {text}") for text in texts[:_MAX_REASON_LINES]]
        return [*([Line(), *mine] if mine else []), head, *shown, *cut]
    lines = [head, line("  ", (one_line(said.error), "error")), Line()]
    lines += [line(("  also: ", "dim"), one_line(text)) for text in said.more[:_MAX_ERRORS]]
    if said.code:
        target = _generated_line(item, said.code, made)
        where = f"line {target.line:,} of the generated code" if target else "in the generated code"
        lines += _section(where, [line(f"  {said.code}", to=target)])
    return (lines + mine)[:-1]


def _generated_line(item: Compile, code: str, made: CompileTree) -> Location | None:
    """Return where a line of generated code is, or ``None`` if the recording does not have it."""
    events = dict.fromkeys(kernel.event for kernel in made.kernels(item.compile_id) if kernel.event is not None)
    for event in events:
        texts = made.payload(event).split("\n")
        number = next((number for number, text in enumerate(texts, 1) if text.strip() == code), None)
        if number is not None:
            return Location("code", item.compile_id, document=f"event:{event}", line=number)
    return None


def _user_lines(item: Compile, made: CompileTree) -> list[Line]:
    """Return the lines of the program that the finding on a failed compile names; of one that names none, its own."""
    found = (each for each in made.explanation.findings if each.rule == Rule.FAILED_COMPILE)
    mine = next((each for each in found if item.compile_id in each.compile_ids), None)
    if mine is None:
        return []
    spans = [fact.span for fact in mine.evidence if fact.label == "line" and fact.span] or [mine.span]
    return [_user_line(item, span, made) for span in spans if span.file and span.line]


def _user_line(item: Compile, span: Span, made: CompileTree) -> Line:
    texts = made.explanation.sources.get(span.file or "", "").split("\n")
    text = texts[span.line - 1].strip() if span.line and span.line <= len(texts) else ""
    target = Location("code", item.compile_id, document=f"source:{span.file}", line=span.line)
    return line(f"  {source_location(span.file, span.line, None, made.cwd)}  ", text, to=target)


def _only_backend(item: Compile, made: CompileTree) -> bool:
    """Whether a backend was called, of which AOTAutograd is not known to be a part."""
    timed = made.explanation.timing.spent if made.explanation.timing else ()
    return any(share.part == "backend" for each in timed if each.compile.index == item.index for share in each.shares)


def _section(title: str, lines: Sequence[Line]) -> list[Line]:
    return [line((title, "title"), (f"  {len(lines)}", "dim")), *lines, Line()] if lines else []


def _frame_line(frame: Frame, made: CompileTree) -> Line:
    target = Location("code", document=f"source:{frame.file}", line=frame.line)
    return line(
        source_location(frame.file, frame.line, None, made.cwd), (f" in {one_line(frame.function)}", "dim"), to=target
    )


def _break_line(item: Break, made: CompileTree) -> Line:
    at = source_location(item.span.file, item.span.line, None, made.cwd)
    target = Location("breaks", item=item.index if item.cause is None else item.cause)
    return line((f"{one_line(item.gb_id or 'break')} ", "break"), one_line(item.gb_type), (f"  {at}", "dim"), to=target)


def _graph_line(item: Graph, title: str) -> Line:
    target = Location("code", item.compile_id, document=f"event:{item.event}")
    size = f"{count(item.nodes, 'node'):>14}, {count(item.ops, 'op')}"
    return line(f"{one_line(title):<26}", (size, "dim"), to=target)


def _kernel_line(item: Kernel) -> Line:
    return line((f"{item.language:<8}", "dim"), one_line(item.name), to=Location("kernels", item=item.index))


def _non_empty(parts: Sequence[Fragment]) -> tuple[Fragment, ...]:
    return tuple(part for part in parts if part[0])
