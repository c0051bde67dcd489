"""Every private name of torch that the recorder uses, tried on the installed torch."""

from __future__ import annotations

import ast
import logging
import logging.config
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch._C._dynamo.eval_frame import get_eval_frame_callback, set_eval_frame

from dynadiag.torch_private import caches as private_caches
from dynadiag.torch_private import capture as torch_private
from dynadiag.torch_private import loggers, operator_profile, trial
from dynadiag.trial.zygote import ZYGOTE_VARIABLES

Look = Callable[[FrameType], Any]


class Spy(logging.Handler):
    """Keeps the names of events, and what ``look`` finds from where each was emitted."""

    def __init__(self, look: Look = lambda _frame: None) -> None:
        super().__init__(logging.DEBUG)
        self.names: list[str] = []
        self.found: dict[str, list[Any]] = {}
        self._look = look

    def handle(self, record: logging.LogRecord) -> bool:
        metadata = getattr(record, "metadata", {})
        name = metadata["artifact"]["name"] if "artifact" in metadata else next(iter(metadata), "")
        self.names.append(name)
        self.found.setdefault(name, []).append(self._look(sys._getframe(1)))
        return True


@contextmanager
def listening(look: Look = lambda _frame: None) -> Iterator[Spy]:
    torch._dynamo.reset()
    spy = Spy(look)
    loggers.listen(spy)
    try:
        yield spy
    finally:
        loggers.release(spy)


def looking_for(emitter: tuple[str, str]) -> Look:
    return lambda frame: torch_private.emitter_locals(*emitter, frame)


def compiled(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(fn, backend="eager", **options)


def breaks(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y.cos()


def sizes(x: torch.Tensor) -> torch.Tensor:
    return x * x.shape[0]


def test_the_trace_has_the_name_that_is_listened_to() -> None:
    with listening() as spy:
        compiled(sizes)(torch.ones(3))
    assert {"dynamo_start", "dynamo_output_graph", "dynamo_cpp_guards_str", "compilation_metrics"} <= set(spy.names)


def test_dynamo_is_off_while_a_listener_has_an_event_and_as_before_afterwards() -> None:
    with listening(lambda _frame: get_eval_frame_callback()) as spy:
        before = set_eval_frame(False)  # as inside a compiled call
        torch._logging.trace_structured("artifact", metadata_fn=lambda: {"name": "seen", "encoding": "string"})
        after = set_eval_frame(before)
    assert spy.found["seen"] == [None]
    assert after is False


def test_a_function_that_a_release_renamed_has_both_names() -> None:
    name, local = torch_private.START_EMITTER
    for names in (f"a_newer_name|{name}", f"{name}|an_older_name"):
        with listening(looking_for((names, local))) as spy:
            compiled(sizes)(torch.ones(3))
        assert spy.found["dynamo_start"][0] is not None


def test_dynamo_start_knows_the_code_object() -> None:
    with listening(looking_for(torch_private.START_EMITTER)) as spy:
        compiled(sizes)(torch.ones(3))
    (found,) = spy.found["dynamo_start"]
    assert found["code"].co_name == "sizes"


def test_the_output_graph_is_at_hand() -> None:
    with listening(looking_for(torch_private.GRAPH_EMITTER)) as spy:
        compiled(sizes)(torch.ones(3))
    (found,) = spy.found["dynamo_output_graph"]
    assert isinstance(found["gm"], torch.fx.GraphModule)


def test_guards_are_at_hand_with_their_stacks() -> None:
    with listening(looking_for(torch_private.GUARDS_EMITTER)) as spy:
        compiled(sizes)(torch.ones(3))
    (found,) = spy.found["dynamo_cpp_guards_str"]
    named = {guard.name: guard for guard in found["sorted_guards"]}
    assert "L['x']" in named
    assert named["L['x']"].create_fn_name() == "TENSOR_MATCH"


def a_break_in_a_graph() -> None:
    compiled(breaks)(torch.ones(3))


def a_break_that_skips_the_frame() -> None:
    def early(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            torch._dynamo.graph_break()
            x = x + 1
        return x

    compiled(early)(torch.ones(3))


@pytest.mark.parametrize("program", [a_break_in_a_graph, a_break_that_skips_the_frame])
def test_the_exception_of_a_break_is_at_hand(program: Callable[[], None]) -> None:
    def look(frame: FrameType) -> BaseException | None:
        for function, local in torch_private.BREAK_EMITTERS.items():
            if found := torch_private.emitter_locals(function, local, frame):
                return found[local]
        return None

    with listening(look) as spy:
        program()
    assert spy.found["dynamo_graph_break_reason"]
    for failure in spy.found["dynamo_graph_break_reason"]:
        assert isinstance(failure, BaseException)
        gb_type = getattr(failure, "gb_type")  # noqa: B009 - torch's own attribute, which must be there
        assert gb_type is None or isinstance(gb_type, str)


def test_the_exception_of_a_failed_compile_is_at_hand() -> None:
    with listening(looking_for(torch_private.ERROR_EMITTER)) as spy, pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(breaks, fullgraph=True)(torch.ones(3))
    (found,) = spy.found["dynamo_error"]
    assert isinstance(found["e"], torch._dynamo.exc.Unsupported)
    assert found["one_graph"] is True


def inner(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x


def outer(x: torch.Tensor) -> torch.Tensor:
    return inner(x.sin())


def test_the_interpreters_of_a_break_are_found_the_innermost_last() -> None:
    def look(frame: FrameType) -> list[Any]:
        found = torch_private.emitter_locals("log_graph_break", "exc", frame)
        if found is None:
            return []
        return [
            (tx.f_code.co_name, tx.current_instruction.positions)
            for tx in torch_private.instruction_translators(frame, found["exc"])
        ]

    with listening(look) as spy:
        compiled(outer)(torch.ones(3))
    interpreters = next(found for found in spy.found["dynamo_graph_break_reason"] if found)
    assert [name for name, _ in interpreters] == ["outer", "inner"]
    positions = interpreters[-1][1]
    assert positions.lineno == inner.__code__.co_firstlineno + 1
    assert (positions.col_offset, positions.end_col_offset) == (4, 31)


def test_functions_of_the_users_with_the_names_of_torchs_are_not_looked_at() -> None:
    def _compile(e: str, frame: FrameType | None) -> Any:
        return torch_private.emitter_locals("_compile", "e", sys._getframe(0))

    class Trainer:
        current_instruction = None

        def run(self) -> list[Any]:
            return list(torch_private.instruction_translators(sys._getframe(0), None))

    assert _compile("mine", None) is None
    assert Trainer().run() == []


def test_the_cached_entries_of_a_recompile_have_their_guards() -> None:
    def look(frame: FrameType) -> Any:
        found = torch_private.emitter_locals(*torch_private.RECOMPILE_EMITTER, frame)
        return found and (found["frame"].f_locals, torch_private.cached_entries(found, frame))

    with listening(look) as spy:
        fn = compiled(sizes, dynamic=False)
        for size in (2, 3, 4):
            fn(torch.ones(size))
    locals_, entries = spy.found["recompile_reasons"][-1]
    assert locals_["x"].shape == (4,)
    assert sorted(str(entry.compile_id) for entry in entries) == ["0/0", "0/1"]
    for entry in entries:
        wrapper = entry.guard_manager
        assert wrapper.closure_vars is not None
        assert "G" in wrapper.global_scope
        assert wrapper.root.get_leaf_guards() is not None
        assert any(child.get_source() == "L['x']" for child in wrapper.root.get_child_managers())


def test_symbols_have_ranges_and_hints() -> None:
    def look(frame: FrameType) -> Any:
        found = torch_private.emitter_locals(*torch_private.GRAPH_EMITTER, frame)
        if found is None:
            return None
        values = [node.meta.get("example_value") for node in found["gm"].graph.nodes]
        tensor = next(value for value in values if isinstance(value, torch.Tensor))
        return torch_private.size_symbols(tensor.fake_mode.shape_env)

    with listening(look) as spy:
        compiled(sizes, dynamic=True)(torch.ones(5))
    (symbols,) = spy.found["dynamo_output_graph"]
    ((_, symbol),) = symbols.items()
    assert symbol["hint"] == "5"
    assert symbol["range"].startswith("VR[")


def test_what_is_compiled_is_known_as_such() -> None:
    module, by_method = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    by_method.compile()
    assert torch_private.is_compiled(torch.compile(sizes))
    assert torch_private.is_compiled(torch.compile(module))
    assert torch_private.is_compiled(by_method)
    assert not torch_private.is_compiled(sizes)
    assert not torch_private.is_compiled(module)
    assert not torch_private.is_compiled(len)


def test_every_compiled_call_is_counted_and_disabled_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo import eval_frame

    monkeypatch.setattr(eval_frame, torch_private.STANCE_HOOK, getattr(eval_frame, torch_private.STANCE_HOOK))
    calls: list[None] = []
    torch_private.call_before_compiled_calls(lambda _: calls.append(None))
    torch._dynamo.reset()
    function, module = compiled(breaks), torch.nn.Linear(3, 3)
    module.compile(backend="eager")
    for _ in range(3):
        function(torch.ones(3))
    assert len(calls) == 3
    module(torch.ones(3))
    assert len(calls) == 4
    torch.compiler.disable(sizes)(torch.ones(3))
    assert len(calls) == 4


QUIETED: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "dictConfig": lambda: logging.config.dictConfig({"version": 1}),
    "dictConfig of torch": lambda: logging.config.dictConfig(
        {"version": 1, "loggers": {"torch": {"level": "ERROR", "handlers": []}}}
    ),
    "logging.disable": lambda: logging.disable(logging.CRITICAL),
    "level": lambda: logging.getLogger(loggers.TRACE_LOGGER).setLevel(logging.CRITICAL),
    "disabled": lambda: setattr(logging.getLogger(loggers.TRACE_LOGGER), "disabled", True),
    "set_logs": lambda: torch._logging.set_logs(dynamo=logging.ERROR),
    "shutdown": logging.shutdown,
}


@pytest.fixture
def logger_kept() -> Iterator[logging.Logger]:
    """The trace's logger; all of it, and of logging as a whole, is put back."""
    logger = logging.getLogger(loggers.TRACE_LOGGER)
    others = {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
    before = {name: (one.disabled, one.level, list(one.handlers), one.propagate) for name, one in others.items()}
    root, disabled = list(logging.root.handlers), logging.root.manager.disable
    yield logger
    logging.disable(disabled)
    logging.root.handlers[:] = root
    for name, one in others.items():
        one.disabled, level, one.handlers, one.propagate = before[name]
        one.setLevel(level)


@pytest.mark.parametrize("quiet", QUIETED.values(), ids=QUIETED)
def test_events_come_whatever_the_program_does_to_logging(
    quiet: Callable[[], object], logger_kept: logging.Logger
) -> None:
    with listening() as spy:
        quiet()
        compiled(sizes)(torch.ones(3))
    assert "dynamo_output_graph" in spy.names


@pytest.mark.parametrize("quiet", QUIETED.values(), ids=QUIETED)
def test_released_the_logger_is_as_the_program_left_it(
    quiet: Callable[[], object], logger_kept: logging.Logger
) -> None:
    def state() -> tuple[object, ...]:
        own = {name: value for name, value in vars(logger_kept).items() if name not in ("isEnabledFor", "_cache")}
        return type(logger_kept), {**own, "handlers": [type(handler) for handler in logger_kept.handlers]}

    kept = state()
    quiet()
    bare = state()
    logging.disable(logging.NOTSET)
    for name, value in kept[1].items():  # type: ignore[attr-defined]  # the dict of the pair
        if name != "handlers":
            setattr(logger_kept, name, value)
    with listening():
        quiet()
    assert state() == bare


def test_the_programs_own_handlers_get_what_they_would_have_got(logger_kept: logging.Logger) -> None:
    own = Spy()
    logger_kept.addHandler(own)
    with listening() as spy:
        compiled(sizes)(torch.ones(3))
        seen = len(own.names)
        logger_kept.disabled = True
        torch._dynamo.reset()
        compiled(sizes)(torch.ones(3))
    assert 0 < seen == len(own.names) < len(spy.names)


def test_two_listeners_do_not_mind_each_other() -> None:
    with listening() as first:
        with listening() as second:
            compiled(sizes)(torch.ones(3))
        both = len(second.names)
        torch._dynamo.reset()
        compiled(sizes)(torch.ones(3))
    assert 0 < both == len(second.names) < len(first.names)
    assert type(logging.getLogger(loggers.TRACE_LOGGER)) is logging.Logger


def test_a_profile_has_marks_of_compiled_code_of_look_ups_and_of_graphs() -> None:
    torch._dynamo.reset()
    fn = compiled(breaks)
    fn(torch.ones(3))
    with operator_profile.mark_graphs("our mark"), torch.profiler.profile() as profile:
        fn(torch.ones(3))
    spans = {event.name: event for event in profile.events()}
    names = [event.name for event in profile.events()]
    codes = [name for name in spans if name.startswith(operator_profile.COMPILED_REGION)]
    assert len(codes) == 2
    assert all(name.removeprefix(operator_profile.COMPILED_REGION).endswith("/0") for name in codes)
    ours = 1 if torch.__version__ < "2.13" else 0  # warm.LOOKUP: of the mark's own function
    assert (names.count(operator_profile.CACHE_LOOKUP) - ours, names.count("our mark")) == (2, 2)
    with torch.profiler.profile() as profile:
        fn(torch.ones(3))
    assert "our mark" not in [event.name for event in profile.events()]


def test_guards_are_timed_unless_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._dynamo import guards

    timed: list[None] = []
    inner = guards.profile_guard_manager
    monkeypatch.setattr(guards, "profile_guard_manager", lambda *args: timed.append(None) or inner(*args))
    torch._dynamo.reset()
    compiled(sizes)(torch.ones(2))
    assert len(timed) == 1
    trial.skip_guard_timing()
    torch._dynamo.reset()
    compiled(sizes)(torch.ones(2))
    assert len(timed) == 1


def test_the_compiler_is_loaded_without_a_thread_or_a_gpu_in_use() -> None:
    """A process that forks trials may have neither. NVML has a thread of its own, which nothing in a fork waits for."""
    program = (
        "import pathlib, torch\n"
        "names = lambda: [p.read_text() for p in pathlib.Path('/proc/self/task').glob('*/comm')]\n"
        "threads = lambda: sum(not name.startswith('cuda') for name in names())\n"
        "from dynadiag.torch_private import trial\n"
        "before = threads()\n"
        "trial.load_compiler()\n"
        "print(threads() - before, torch.cuda.is_initialized())\n"
    )
    alone = dict.fromkeys(ZYGOTE_VARIABLES, "1")
    done = subprocess.run([sys.executable, "-c", program], env=os.environ | alone, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "False"], done.stderr


def test_the_key_of_aot_autograds_cache_is_torchs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own components have the hashes that torch prints with debug logging, and torch's graph stays as it is."""
    from torch._functorch._aot_autograd import autograd_cache

    printed: list[str] = []

    def kept(pickler: Any, details: Any, _key: str) -> list[str]:
        printed.extend(pickler.debug_lines(details))
        return []

    writes_components = not hasattr(autograd_cache, "_get_debug_lines_for_cache_key")  # into the event: torch 2.11
    if not writes_components:
        monkeypatch.setattr(autograd_cache, "_get_debug_lines_for_cache_key", kept)
    with torch._inductor.utils.fresh_cache(), listening(private_caches.aot_autograd_key) as spy:
        torch.compile(lambda x, w: x @ w, backend="inductor")(torch.ones(2, 3), torch.ones(3, 2))
    (found,) = spy.found["aotautograd_cache_miss"]
    if writes_components:
        assert found is None
        return
    names = [line.partition(": ")[0] for line in found]
    assert [name.partition("] ")[2].partition("[")[0] for name in names].count("example_inputs") == 2
    assert {"gm", "aot_config", "autograd_config"} <= {name.partition("] ")[2] for name in names}
    assert set(names) <= {line.partition(": ")[0] for line in printed}


def test_the_libraries_of_a_module_are_files_with_their_keys() -> None:
    with torch._inductor.utils.fresh_cache(), listening() as spy:
        torch.compile(lambda x: x.sin() + 1, backend="inductor")(torch.ones(7))
        assert "inductor_output_code" in spy.names
        modules = [module.__file__ for module in torch._inductor.codecache.PyCodeCache.modules]
        found = [library for module in modules for library in private_caches.cpp_libraries(module)]
        assert found
        for name, key, file in found:
            assert name.startswith("cpp_fused_")
            assert file.exists()
            assert key in file.name


def test_a_profile_without_a_job_id_is_disabled() -> None:
    with listening():
        compiled(sizes)(torch.ones(3))
        assert private_caches.pgo_lookup() == ("disabled", None)


def test_a_reduction_of_the_interpreter_combines_neighbours() -> None:
    """As `tl.reduce` with a function of the user's does: the order of the elements stays."""
    pytest.importorskip("triton")
    from dynadiag.torch_private.interpreter_patches import _every_second

    words = np.array([["a", "b", "c", "d"], ["e", "f", "g", "h"]], dtype=object)
    pairs = _every_second(words, 1, 0) + _every_second(words, 1, 1)
    assert pairs.tolist() == [["ab", "cd"], ["ef", "gh"]]
    assert (_every_second(pairs, 0, 0) + _every_second(pairs, 0, 1)).tolist() == [["abef", "cdgh"]]


def test_the_interpreter_negates_tensors_element_by_element() -> None:
    """Python's `not` of a tensor of several elements raises."""
    pytest.importorskip("triton")
    from dynadiag.torch_private import interpreter_patches

    class Transformer(ast.NodeTransformer):
        visit_UnaryOp = interpreter_patches._visit_unary_op  # noqa: N815 - the name that `ast` looks for

    tree = Transformer().visit(ast.parse("y = not (-x if not a else b)"))
    assert ast.unparse(tree) == "y = _elementwise_not(-x if _elementwise_not(a) else b)"
    names = {"_elementwise_not": interpreter_patches._elementwise_not, "a": 0, "b": 2, "x": 0}
    exec(compile(ast.fix_missing_locations(tree), "kernel", "exec"), names)
    assert names["y"] is True


def test_frames_are_counted_until_the_reset() -> None:
    torch.compiler.reset()
    fast, counts = compiled(lambda x: x + 1), []
    for size in (2, 2, 3):
        fast(torch.ones(size))
        counts.append(torch_private.frames_begun())
    torch.compiler.reset()
    assert [*counts, torch_private.frames_begun()] == [1, 1, 2, 0]
