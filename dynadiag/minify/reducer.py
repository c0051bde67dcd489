"""The reduction itself, in a process of the program stopped at the failing call: each candidate is tried in a fork."""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch.fx import GraphModule

from dynadiag.bisect.rows import outcome_from_json
from dynadiag.minify.candidates import Surroundings, Trials
from dynadiag.minify.likeness import akin, corrupted, same, shows
from dynadiag.minify.raising import reduce_raising
from dynadiag.minify.settings import ASSUME_STATIC, changed
from dynadiag.minify.signs import BEGUN, ORIGINS
from dynadiag.minify.task import Capture, Task
from dynadiag.minify.writing import Given, Written, write
from dynadiag.torch_private import minify as torch_private
from dynadiag.trial.outcome import Outcome
from dynadiag.trial.plan import INTERMEDIATES, Plan
from dynadiag.trial.runtime import TRIAL
from dynadiag.trial.signature import Signature
from dynadiag.trial.supervise import Limits

__all__ = ["reduce_here"]

_FEW = 3  # nodes that are tried one by one
_SLACK, _FACTOR = 60.0, 10.0  # of the time limit of a part of a graph; a busy machine slows a compile tenfold
_ROOT = Path(__file__).parent.parent.parent


Likeness = Callable[[Signature | None, Signature], bool]


def reduce_here(capture: Capture, task: Task) -> NoReturn:
    """Reduces, tells what it finds, and ends the process."""
    sys.setrecursionlimit(10_000)
    code = 0
    try:
        _Reducer(capture, task, _our_minifier()).run()
    except Exception:  # noqa: BLE001 - the program must not catch it: it would go on where it is to stop
        traceback.print_exc()
        code = 1
    else:
        TRIAL.send("reduced")
    sys.stderr.flush()
    os._exit(code)


def _our_minifier() -> ModuleType:
    """The minifier package, whatever the program may have under that name: the program goes no further."""
    for name in [n for n in sys.modules if n == "minifier" or n.startswith("minifier.")]:
        del sys.modules[name]
    sys.path.insert(0, str(_ROOT))
    return importlib.import_module("minifier")


class _Reducer:
    def __init__(self, capture: Capture, task: Task, minifier: ModuleType) -> None:
        self._capture = capture
        self._task = task
        self._minifier = minifier
        self._stopped = task.stop
        threads = task.threads if task.threads_asked or task.reference.kind == "signal" else None
        settings = tuple(changed(capture.before, threads))
        self._settings = tuple(s for s in settings if s.name != ASSUME_STATIC)
        self._dynamic = len(self._settings) < len(settings)  # by torch.compile(dynamic=True), which says so there
        custom = task.rung == "custom"
        self._trials = Trials(
            backend=torch_private.registered_name(capture.backend) if custom else task.rung,
            plan=Plan(rung=task.rung, tolerance=task.tolerance, record=(ORIGINS,)),
            limits=Limits(task.seconds, task.memory),
            all_settings=settings,
            use_threads=lambda: task.set_threads(task.threads),
            default_threads=len(os.sched_getaffinity(0)) if task.threads_asked else task.threads,
            accuracy=task.accuracy,
            backward=task.phase == "backward",
            answers=_answers(task) if torch.cuda.is_initialized() else None,
        )
        self._around = Surroundings((), {})
        self._reference = task.reference
        self._corrupts = task.accuracy and task.reference.kind == "signal"  # memory: a part may only be wrong
        self._last: Outcome | None = None
        self._replayed = 0  # answers from an earlier search, and the search's own
        earlier = json.loads(Path(task.memo).read_text()) if task.memo else {}
        self._memo: dict[str, bool] = {key: told["status"] == "same" for key, told in earlier.items()}
        self._known: dict[str, dict[str, Any]] = earlier

    def run(self) -> None:
        signal.signal(signal.SIGINT, self._stop)
        self._tell("captured", nodes=_operations(self._capture.module), settings=[s.name for s in self._settings])
        try:
            importlib.import_module("minifier.tensors").check_inputs(self._capture.inputs)
        except self._minifier.ReductionError as error:
            self._tell("refused", text=str(error))
            return
        self._tell("given", inputs=self._canonical(self._capture.module, list(self._capture.inputs)))
        found = self._reduced(list(self._capture.inputs))
        if found is None:
            return
        module, inputs, minimal = found
        self._fewer_settings(module, inputs)
        if self._corrupts:
            self._end_as_it_ends(module, inputs)
        given = Given(
            self._trials,
            self._capture.before,
            self._around,
            self._reference,
            self._text,
            tuple(self._task.passes),
            self._task.reference.message if self._corrupts else self._reference.message,
        )
        written = write(given, module, inputs)
        self._tell_result(written, module, inputs, minimal)

    def _stop(self, *_: object) -> None:
        """Asked to stop: from here on every candidate counts as passing, so that the search ends with what it has."""
        self._stopped = True

    def _tell(self, event: str, **data: Any) -> None:
        TRIAL.send(event, **data)

    def _canonical(self, module: GraphModule, inputs: list[Any]) -> str:
        graphs = importlib.import_module("minifier.graphs")
        return str(graphs.canonical(graphs.Case(module, tuple(inputs))))

    def _reduced(self, inputs: list[Any]) -> tuple[GraphModule, list[Any], bool] | None:
        """The first form of the graph that fails by itself and can be taken apart, reduced; or the whole of it."""
        whole: tuple[GraphModule, list[Any], bool] | None = None
        for module in self._forms(inputs):
            outcome = self._shown_by_itself(module, inputs)
            if outcome is None or outcome.signature is None:
                continue
            self._reference = outcome.signature
            self._memo[f"whole {self._canonical(module, inputs)}"] = True
            whole = whole or (module, inputs, False)
            try:
                return self._search(module, inputs, outcome)
            except self._minifier.ReductionError as error:
                if self._raises_uncompiled:
                    return self._raising(module, inputs)
                self._tell("note", text=f"{_called(module)} could not be reduced: {error}")
        return whole

    @property
    def _raises_uncompiled(self) -> bool:
        return self._task.accuracy and "uncompiled raises" in self._task.reference.message

    def _raising(self, module: GraphModule, inputs: list[Any]) -> tuple[GraphModule, list[Any], bool]:
        def fails(candidate: GraphModule, values: list[Any]) -> bool:
            key = self._canonical(candidate, values)
            if key in self._memo:
                return self._memo[key]
            self._memo[key] = failed = self._fails(candidate, values)
            if self._last is not None:
                self._row(key, "raising", _operations(candidate), self._last, failed)
            return failed

        small, values = reduce_raising(module, inputs, fails)
        return small, values, _operations(small) == 1 and not self._stopped

    def _forms(self, inputs: list[Any]) -> Iterator[GraphModule]:
        """The graph as Dynamo made it, and the ATen operators that it calls.

        Those come first where it has a vmap or grad of functorch's: that has been worked out in them, where in Dynamo's
        graph it is many calls which only make sense together, and which no program could make.
        """
        private = importlib.import_module("minifier.torch_private")
        if not any(map(private.opens_transform, self._capture.module.graph.nodes)):
            yield self._as_made()
            yield from self._operators(inputs)
        else:
            yield from self._operators(inputs)
            yield self._as_made()

    def _as_made(self) -> GraphModule:
        graphs = importlib.import_module("minifier.graphs")
        launches = importlib.import_module("minifier.launches")
        vmaps = importlib.import_module("minifier.vmaps")
        whole = vmaps.with_vmaps(launches.with_launches(self._capture.module))
        copied: GraphModule = graphs.own(graphs.Case(whole, ())).module  # Dynamo skips code that was made while it ran
        return copied

    def _operators(self, inputs: list[Any]) -> Iterator[GraphModule]:
        if self._raises_uncompiled:
            return
        try:
            yield torch_private.operators_of(self._capture.module, inputs)
        except Exception as error:  # noqa: BLE001 - any operation of the user's may refuse to be traced
            self._tell("note", text=f"its operators cannot be traced: {error}")

    def _shown_by_itself(self, module: GraphModule, inputs: list[Any]) -> Outcome | None:
        """The trial of the first way to compile it alone in which it fails as the program did. Static shapes first."""
        options = torch_private.inductor_options(self._capture.backend) if self._task.rung == "inductor" else {}
        for dynamic, earlier in self._ways(inputs):
            around = Surroundings(
                self._settings,
                options,
                dynamic,
                fallback_random=self._task.accuracy and not self._task.own_numbers,
                fullgraph=self._capture.fullgraph,
                earlier=earlier,
            )
            outcome = self._once(
                f"whole {dynamic}{' earlier' if earlier else ''} {self._canonical(module, inputs)}",
                ("whole", _operations(module)),
                partial(self._trials.graph, module, inputs, around, (INTERMEDIATES, BEGUN)),
                self._like(akin),
            )
            if self._like(akin)(outcome.signature, self._task.reference):
                self._around = around
                self._trials.limits = replace(self._trials.limits, seconds=self._enough(outcome.seconds))
                return outcome
        found = outcome.signature
        text = f"fails in another way: {found.type}: {found.message[:200]}" if found else "does not fail"
        self._tell("note", text=f"{_called(module)} by itself {text}")
        return None

    def _ways(self, inputs: list[Any]) -> list[tuple[bool | None, bool]]:
        """(``dynamic``, whether it is called before): at a later call the code is one made for other inputs."""
        earlier = importlib.import_module("minifier.earlier")
        symbolic = any(isinstance(v, int) for v in inputs)
        first: list[bool | None] = [True] if self._dynamic else [None, True] if symbolic else [None]
        again: list[bool | None] = [True] if symbolic else [None] if earlier.share_memory(inputs) else []
        later = again if self._task.call else []
        return [*((dynamic, False) for dynamic in first), *((dynamic, True) for dynamic in later)]

    def _enough(self, seconds: float) -> float:
        """A part takes no longer than the whole, but for what the failure cut short: beyond, it hangs."""
        return min(self._task.seconds, _SLACK + _FACTOR * seconds)

    def _once(self, key: str, label: tuple[str, int], run: Callable[[], Outcome], shown: Likeness) -> Outcome:
        """A trial whose outcome is asked for in full: made, or as an earlier search saw it."""
        if key in self._known:
            self._replayed += 1
            return outcome_from_json(json.dumps(self._known[key]))
        outcome = run()
        self._row(key, *label, outcome, shown(outcome.signature, self._reference))
        return outcome

    def _text(self, source: str, rung: str | None) -> Outcome:
        """A trial of the text of a repro."""
        digest = hashlib.blake2b(source.encode(), digest_size=16).hexdigest()
        label = (f"text {rung or 'as written'}", source.count("\n"))
        return self._once(f"text {rung} {digest}", label, partial(self._trials.text, source, rung), shows)

    def _search(self, module: GraphModule, inputs: list[Any], whole: Outcome) -> tuple[GraphModule, list[Any], bool]:
        reduction = self._minifier.reduce_graph(
            module,
            inputs,
            self._fails,
            budget=self._minifier.Budget(seconds=self._task.budget),
            suspects=_suspects(whole),
            votes=self._task.repeat,
            memo=self._memo,
            progress=self._progress,
        )
        self._replayed += reduction.cached
        return reduction.graph_module, reduction.inputs, reduction.minimal and not self._stopped

    def _fails(self, module: GraphModule, inputs: list[Any]) -> bool:
        if self._stopped:
            return False
        self._last = self._trials.graph(module, inputs, self._around)
        return self._same(self._last)

    def _same(self, outcome: Outcome) -> bool:
        return self._like(same)(outcome.signature, self._reference)

    def _like(self, likeness: Likeness) -> Likeness:
        """What is written out of bounds ends one candidate and only falsifies another."""
        return partial(corrupted, likeness) if self._corrupts else likeness

    def _progress(self, progress: Any) -> None:
        outcome, self._last = self._last, None
        if outcome is not None:
            extra = {"best": progress.best, "cached": progress.hits, "seconds_left": progress.seconds_left}
            self._row(progress.key, progress.stage, progress.size, outcome, progress.failed, **extra)

    def _row(self, key: str, stage: str, size: int, outcome: Outcome, failed: bool, **extra: Any) -> None:
        status = "same" if failed else outcome.against(self._reference)
        self._tell(
            "candidate", key=key, stage=stage, size=size, status=status, failed=failed, outcome=_kept(outcome), **extra
        )

    def _fewer_settings(self, module: GraphModule, inputs: list[Any]) -> None:
        """Leaves out whatever of the program's settings and options the failure does not need: all, then one by one."""
        if self._take(module, inputs, Surroundings((), {}, None)):
            return
        for setting in self._settings:
            kept = tuple(s for s in self._around.settings if s is not setting)
            self._take(module, inputs, replace(self._around, settings=kept))
        for option in list(self._around.options):
            rest = {k: v for k, v in self._around.options.items() if k != option}
            self._take(module, inputs, replace(self._around, options=rest))
        self._take(module, inputs, replace(self._around, dynamic=None))
        self._take(module, inputs, replace(self._around, fallback_random=False))
        self._take(module, inputs, replace(self._around, fullgraph=False))
        self._take(module, inputs, replace(self._around, earlier=False))

    def _end_as_it_ends(self, module: GraphModule, inputs: list[Any]) -> None:
        """What is to be shown is what the last candidate does: it may be wrong where the whole was killed."""
        key = f"last {self._canonical(module, inputs)} {self._around.key()}"
        run = partial(self._trials.graph, module, inputs, self._around)
        outcome = self._once(key, ("last", _operations(module)), run, self._like(akin))
        if outcome.signature is not None and self._same(outcome):
            self._reference = outcome.signature

    def _take(self, module: GraphModule, inputs: list[Any], around: Surroundings) -> bool:
        if around == self._around or self._stopped:
            return False
        key = f"settings {self._canonical(module, inputs)} {around.key()}"
        failed = self._memo.get(key)
        self._replayed += failed is not None
        if failed is None:
            graphs = importlib.import_module("minifier.graphs")
            own = graphs.own(graphs.Case(module, tuple(inputs)))
            outcome = self._trials.graph(own.module, list(own.inputs), around)
            failed = self._same(outcome)
            self._row(key, "settings", _operations(module), outcome, failed)
        if failed:
            self._around = around
        return failed

    def _tell_result(self, written: Written, module: GraphModule, inputs: list[Any], minimal: bool) -> None:
        tensors = [v for v in inputs if isinstance(v, torch.Tensor)]
        self._tell(
            "repro",
            text=written.text,
            missing=[*written.missing, *([] if written.shown else self._replaced())],
            shown=written.shown,
            before=_operations(self._capture.module),
            after=_operations(module),
            inputs=len(inputs),
            elements=sum(t.numel() for t in tensors),
            minimal=minimal,
            cached=self._replayed,
            stopped=self._stopped,
            signature=self._reference.to_json(),
        )

    def _replaced(self) -> list[str]:
        """Functions of torch's that the program put others in the place of: the repro does not have these."""
        return [f"{place}, which the program replaced," for place in self._capture.before.unknown()]


def _answers(task: Task) -> list[Outcome]:
    kept = json.loads(Path(task.answers).read_text()) if task.answers else []
    return [outcome_from_json(json.dumps(told)) for told in kept]


def _kept(outcome: Outcome) -> dict[str, Any]:
    """What a row keeps of an outcome: of the points those that name suspects, for a search that is taken up again."""
    begun = [point for point in outcome.points if point.group == BEGUN]
    pointing = [*(point for point in outcome.points if point.group == ORIGINS), *begun[-1:]]
    return {**asdict(outcome), "points": [asdict(point) for point in pointing], "tail": outcome.tail[-1000:]}


def _suspects(outcome: Outcome) -> list[list[str]]:
    """Nodes that the failure itself names: by where the failing operator came from, by the kernel that was refused or
    whose values first went astray, by their names in its text. Many are tried together before each.
    """
    origins = [point.name for point in outcome.points if point.group == ORIGINS]
    begun = [point.name.split() for point in outcome.points if point.group == BEGUN]
    if outcome.killed and begun:
        origins += begun[-1]
    named = list(dict.fromkeys([*reversed(origins), *reversed(outcome.diverged_in), *outcome.witness]))
    together = [named] if len(named) > _FEW else []
    return [*together, *([name] for name in named)]


def _called(module: GraphModule) -> str:
    aten = any(isinstance(node.target, torch._ops.OpOverload) for node in module.graph.nodes)
    return "the graph of its ATen operators" if aten else "Dynamo's graph"


def _operations(module: GraphModule) -> int:
    return sum(node.op.startswith("call_") for node in module.graph.nodes)
