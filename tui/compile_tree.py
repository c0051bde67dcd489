"""The compiles as a tree: call stacks at the top, then compiles, then the artifacts of each compile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from dynadiag.explanation.explanation import Explanation
from dynadiag.explanation.formatting import count, duration
from dynadiag.explanation.rules import Rule
from dynadiag.grouping import grouped
from dynadiag.recording.records import Compile, Frame, Graph, Kernel, Span
from dynadiag.recording.torch_text.failures import CompilerOutput, parse_compiler_output
from dynadiag.render.paths import fit_path, source_location
from dynadiag.render.readable_graph import graph_titles
from tui.location import Location, source_place
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
_MAX_KERNELS = 200  # kernels of one compile that are listed; the Kernels screen has all of them


class CompileArtifacts(Protocol):
    """What is read of a recording when a branch opens."""

    def graphs(self, compile_id: str) -> Sequence[Graph]: ...
    def kernels(self, compile_id: str) -> Sequence[Kernel]: ...
    def payload(self, event: int) -> str: ...


@dataclass(slots=True)
class _CallNode:
    """A user frame that led to compiles."""

    frame: Frame | None = None
    children: dict[Frame, _CallNode] = field(default_factory=dict)
    order: list[_CallNode | Compile] = field(default_factory=list)

    def compiles(self) -> Iterator[Compile]:
        """Yield the compiles that the call led to, directly or not."""
        for item in self.order:
            yield from (item,) if isinstance(item, Compile) else item.compiles()


class CompileTree:
    """The branches of the tree, and the details of each."""

    def __init__(self, explanation: Explanation, artifacts: CompileArtifacts) -> None:
        self.explanation = explanation
        self._artifacts = artifacts
        self._cwd = explanation.run.cwd
        self._breaks = grouped((item.compile_id, item) for item in explanation.breaks)
        self._recompiles = {one.compile_id: one for one in explanation.recompiles}
        self._calls: dict[str, tuple[Sequence[Frame], Sequence[Compile]]] = {}  # by branch key

    def callers(self, item: Compile) -> Sequence[Frame]:
        """The frames that led to a compile: in torch's own logs as its breaks name them, which leave out none."""
        found = item.user_stack
        callers = found[:-1] if found and found[-1].file == item.file else found  # a function of torch is not in it
        for met in self._breaks.get(item.compile_id, ()):
            names = [(frame.file, frame.function) for frame in met.user_stack]
            own = (found[-1].file, found[-1].function) if found else None
            above = names.index(own) if own in names else 0
            callers = max(callers, met.user_stack[:above], key=len)
        return callers

    # Branches

    def branches(self) -> list[Branch]:
        root = _CallNode()
        for item in self.explanation.compiles:
            here = root
            for frame in self.callers(item):
                if frame not in here.children:
                    here.children[frame] = _CallNode(frame)
                    here.order.append(here.children[frame])
                here = here.children[frame]
            here.order.append(item)
        return self._below(root, "")

    def _below(self, call: _CallNode, path: str) -> list[Branch]:
        return [
            self._compile_branch(item) if isinstance(item, Compile) else self._call_branch(item, f"{path}/{place}")
            for place, item in enumerate(call.order)
        ]

    def _call_branch(self, call: _CallNode, path: str) -> Branch:
        """Return the branch of a frame. Frames with a single caller share one line with it."""
        frames = [call.frame]
        while len(call.order) == 1 and isinstance(call.order[0], _CallNode):
            call = call.order[0]
            frames.append(call.frame)
        self._calls[f"call{path}"] = [frame for frame in frames if frame], list(call.compiles())
        last = frames[-1]
        at = fit_path(source_location(last.file, last.line, None, self._cwd), _MAX_PATH_WIDTH) if last else "?"
        parts: list[Fragment] = [(at, ""), (f" in {one_line(last.function) if last else '?'}", "dim")]
        if len(frames) > 1:
            parts.append((f"  ({count(len(frames) - 1, 'call')} above)", "dim"))
        target = source_place(last.file, last.line) if last else None
        return Branch(f"call{path}", tuple(parts), target, lambda: self._below(call, path), expanded=True)

    def _compile_branch(self, item: Compile) -> Branch:
        mark, role = self._outcome(item)
        seconds = duration(item.seconds.total) if item.seconds.total is not None else "-"
        breaks = dict.fromkeys(one_line(each.gb_id or "break") for each in self._breaks.get(item.compile_id, ()))
        again = self._recompiles.get(item.compile_id)
        parts: list[Fragment] = [
            (f"{one_line(item.compile_id):<5} ", "key"),
            (f"{mark:<9} ", role),
            (f"{seconds:>7}  ", ""),
            (one_line(item.function), "strong"),
            (f":{item.line}" if item.line else "", "dim"),
            ("".join(f"  {name}" for name in breaks), "break"),
            (f"  {item.attempts} attempts" if item.attempts > 1 else "", "dim"),
            *([("  ↻ ", "recompile"), *guard_change_fragments(again)] if again else []),  # why it was compiled again
        ]
        key, target = f"compile/{item.index}", Location("code", compile_id=item.compile_id)
        return Branch(key, tuple(part for part in parts if part[0]), target, lambda: self._parts_of(item))

    def _parts_of(self, item: Compile) -> list[Branch]:
        """The branches below a compile: its breaks, graphs, guards and kernels."""
        sections = {"break": self._break_lines(item), "graph": self._graph_lines(item)}
        sections["guards"] = [line(count(item.guards, "guard"), to=Location("guards", item.compile_id))]
        sections["kernel"] = self._kernel_lines(item)
        return [
            Branch(f"compile/{item.index}/{name}/{number}", each.fragments, each.target, is_name=name == "kernel")
            for name, lines in sections.items()
            for number, each in enumerate(lines)
        ]

    # What a compile has, a line for each

    def _outcome(self, item: Compile) -> Fragment:
        again = self._recompiles.get(item.compile_id)
        return _GAVE_UP if again is not None and again.limit_reached else _OUTCOME.get(item.outcome, (item.outcome, ""))

    def _break_lines(self, item: Compile) -> list[Line]:
        made = []
        for one in self._breaks.get(item.compile_id, ()):
            at = source_location(one.span.file, one.span.line, None, self._cwd)
            parts = (f"{one_line(one.gb_id or 'break')} ", "break"), one_line(one.gb_type), (f"  {at}", "dim")
            made.append(line(*parts, to=Location("breaks", item=one.index if one.cause is None else one.cause)))
        return made

    def _graph_lines(self, item: Compile) -> list[Line]:
        graphs = self._artifacts.graphs(item.compile_id)
        made = []
        for one, title in zip(graphs, graph_titles(graphs), strict=True):
            size = f"{count(one.nodes, 'node'):>14}, {count(one.ops, 'op')}"
            target = Location("code", item.compile_id, document=f"event:{one.event}")
            made.append(line(f"{one_line(title.text):<26}", (size, "dim"), to=target))
        return made

    def _kernel_lines(self, item: Compile) -> list[Line]:
        return [
            line((f"{one.language:<8}", "dim"), one_line(one.name), to=Location("kernels", item=one.index))
            for one in self._artifacts.kernels(item.compile_id)[:_MAX_KERNELS]
        ]

    def _frame_lines(self, frames: Sequence[Frame]) -> list[Line]:
        made = []
        for one in frames:
            at = source_location(one.file, one.line, None, self._cwd)
            made.append(line(at, (f" in {one_line(one.function)}", "dim"), to=source_place(one.file, one.line)))
        return made

    # Details

    def call_lines(self, key: str) -> list[Line]:
        """Return the details of a call: its callers and the compiles that it led to."""
        found = [
            self._calls[one]
            for end in range(len(key) + 1)
            if (one := key[:end]) in self._calls and (end == len(key) or key[end] == "/")
        ]
        if not found:
            return []
        compiles, made = found[-1][1], []
        seconds = sum(item.seconds.total or 0.0 for item in compiles)
        for item in compiles[:_MAX_COMPILES]:
            mark, role = self._outcome(item)
            parts = (f"{one_line(item.compile_id):<6} ", "key"), (f"{mark:<10}", role), one_line(item.function)
            made.append(line(*parts, to=Location("compiles", compile_id=item.compile_id)))
        return [
            line((count(len(compiles), "compile"), "strong"), f", {duration(seconds)}"),
            Line(),
            *_section("called", self._frame_lines([frame for frames, _ in found for frame in frames])),
            *_section("compiled", made),
        ]

    def compile_lines(self, item: Compile) -> list[Line]:
        spent = item.seconds
        times = (
            ("total", spent.total),
            ("Dynamo", spent.dynamo),
            ("backend" if self._only_backend(item) else "AOTAutograd and below", spent.aot),
            ("Inductor and below", spent.inductor),
            ("code generation", spent.codegen),
        )
        known = [line(f"{duration(value):>8}  {name}") for name, value in times if value is not None]
        head = (f"{one_line(item.compile_id)}  ", "key"), (one_line(item.function), "strong"), "  ", self._outcome(item)
        attempts = f"{count(item.attempts, 'attempt')}, ", count(item.guards, "guard")
        called = _section("called from", self._frame_lines(self.callers(item)))
        if self.explanation.run.is_foreign:
            called[-1:] = [line(("torch's own log leaves out the last of these calls", "dim")), Line()]
        said, texts = parse_compiler_output(item.reason or ""), (item.reason or "").split("\n")
        whole = texts[:_MAX_MESSAGE_LINES] if said is None and len(texts) > _MAX_REASON_LINES else []
        return [
            line(*head, to=Location("code", item.compile_id)),
            line((source_location(item.file, item.line, None, self._cwd), "dim")),
            *self._failure_lines(item, said),
            Line(),
            *(known or [line(("no compile time was recorded", "dim"))]),
            line(*attempts, to=Location("guards", item.compile_id)),
            *([line(f"FX graph cache: {one_line(item.cache)}")] if item.cache else []),
            Line(),
            *called,
            *_section("breaks", self._break_lines(item)),
            *_section("graphs", self._graph_lines(item)),
            *_section("kernels", self._kernel_lines(item)),
            *_section("the compiler's command", [line((one_line(said.command), "dim"))] if said is not None else []),
            *_section("the whole message", [line(f"  {text}") for text in whole]),
        ]

    def _failure_lines(self, item: Compile, said: CompilerOutput | None) -> list[Line]:
        """Return where and why a compile failed. Where comes first: a message of torch may be longer than a screen."""
        if not item.reason and not item.error:
            return []
        head = line((one_line(item.error or item.outcome), "error" if item.outcome == "error" else "strong"))
        if said is None:
            mine = _section("at this line of yours", self._user_lines(item))
            texts = (item.reason or "").split("\n")
            cut = [line(("  … all of it is below", "dim"))] if len(texts) > _MAX_REASON_LINES else []
            shown = [line(f"  {text}") for text in texts[:_MAX_REASON_LINES]]
            return [*([Line(), *mine] if mine else []), head, *shown, *cut]
        lines = [head, line("  ", (one_line(said.error), "error")), Line()]
        lines += [line(("  also: ", "dim"), one_line(text)) for text in said.more[:_MAX_ERRORS]]
        if said.code:
            target = self._generated_line(item, said.code)
            where = f"line {target.line:,} of the generated code" if target else "in the generated code"
            lines += _section(where, [line(f"  {said.code}", to=target)])
        return [*lines, *_section("your lines in this graph", self._user_lines(item))][:-1]

    def _generated_line(self, item: Compile, code: str) -> Location | None:
        """Return where a line of generated code is, or ``None`` if the recording does not have it."""
        for event in dict.fromkeys(one.event for one in self._artifacts.kernels(item.compile_id)):
            texts = self._artifacts.payload(event).split("\n") if event is not None else []
            number = next((number for number, text in enumerate(texts, 1) if text.strip() == code), None)
            if number is not None:
                return Location("code", item.compile_id, document=f"event:{event}", line=number)
        return None

    def _user_lines(self, item: Compile) -> list[Line]:
        """Return the lines that the finding on a failed compile names; of one that names none, its own line."""
        found = (each for each in self.explanation.findings if each.rule == Rule.FAILED_COMPILE)
        mine = next((each for each in found if item.compile_id in each.compile_ids), None)
        if mine is None:
            return []
        spans: list[Span] = [fact.span for fact in mine.evidence if fact.label == "line" and fact.span] or [mine.span]
        made = []
        for span in spans:
            texts = self.explanation.sources.get(span.file or "", "").split("\n")
            text = texts[span.line - 1].strip() if span.line and span.line <= len(texts) else ""
            at = source_location(span.file, span.line, None, self._cwd)
            if span.file and span.line:
                made.append(line(f"  {at}  ", text, to=source_place(span.file, span.line, item.compile_id)))
        return made

    def _only_backend(self, item: Compile) -> bool:
        """Whether a backend was called, of which AOTAutograd is not known to be a part."""
        timed = self.explanation.timing.spent if self.explanation.timing else ()
        own = (each.shares for each in timed if each.compile.index == item.index)
        return any(share.part == "backend" for shares in own for share in shares)


def _section(title: str, lines: Sequence[Line]) -> list[Line]:
    return [line((title, "title"), (f"  {len(lines)}", "dim")), *lines, Line()] if lines else []
