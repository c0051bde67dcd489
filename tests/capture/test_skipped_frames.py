"""Frames that Dynamo leaves untraced are recorded without disturbing its log, and reported with the break."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import dynadiag
from dynadiag.capture import code_locations
from dynadiag.explanation.explanation import Explanation, explain
from dynadiag.recording.opening import open_recording
from dynadiag.torch_private import loggers
from tests.capture.runs import Bench

pytestmark = pytest.mark.usefixtures("forked_interpreters")

# 2.11 leaves a frame without a word where it finds no tensor in it.
needs_reasons = pytest.mark.skipif(torch.__version__ < "2.13", reason="this torch does not say why it left a frame")

IS_FOR_GOOD = torch.__version__ < "2.14"  # a function that is called under a dispatch mode stays uncompiled

REST = """
    import torch

    class Pair:
        def __init__(self, y):
            self.y = y

    @torch.compiler.disable
    def pair(x):
        return Pair(x + 1)

    def numbers(x):
        yield x.cos()
        yield x.sin()

    @torch.compile(backend="eager")
    def step(x):
        out = pair(x.sin())
        return sum(numbers(out.y))

    step(torch.ones(3))
"""


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Dynamo's logger, put back as it was."""
    one = logging.getLogger("torch._dynamo.convert_frame")
    level, handlers = one.level, list(one.handlers)
    yield one
    one.setLevel(level)
    one.handlers[:] = handlers


def rest_uncompiled() -> None:
    @torch.compiler.disable
    def out(x: torch.Tensor) -> object:
        return {1, x}

    def split(x: torch.Tensor) -> object:
        return len(out(x.sin()))

    torch._dynamo.reset()
    torch.compile(split, backend="eager")(torch.ones(3))


@needs_reasons
def test_dynamo_tells_of_each_frame_and_the_logger_is_let_go(logger: logging.Logger) -> None:
    heard: list[tuple[str, str]] = []

    def listener(code: CodeType, reason: str) -> None:
        heard.append((code.co_name, reason))

    loggers.listen_for_skips(listener)
    try:
        rest_uncompiled()
    finally:
        loggers.stop_listening_for_skips(listener)
    assert ("torch_dynamo_resume_in_split_at_", "no tensor-related objects found in frame") in [
        (name.rstrip("0123456789"), reason) for name, reason in heard
    ]
    assert type(logger) is logging.Logger
    assert "_listeners" not in vars(logger)


@needs_reasons
def test_dynamos_own_log_names_its_own_lines(logger: logging.Logger) -> None:
    seen: list[logging.LogRecord] = []

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    logger.addHandler(Kept(logging.DEBUG))
    logger.setLevel(logging.DEBUG)
    listener = lambda _code, _reason: None  # noqa: E731 - the same object is released
    loggers.listen_for_skips(listener)
    try:
        rest_uncompiled()
    finally:
        loggers.stop_listening_for_skips(listener)
    told = [record for record in seen if record.getMessage().startswith("skipping: ")]
    assert told
    assert {Path(record.pathname).name for record in told} == {"convert_frame.py"}


def code(name: str, file: str = "/home/user/train.py") -> CodeType:
    return (lambda: None).__code__.replace(co_name=name, co_qualname=name, co_filename=file, co_firstlineno=7)


@pytest.mark.parametrize(
    ("name", "file", "reason", "recorded"),
    [
        ("torch_dynamo_resume_in_f_at_7", "/home/user/train.py", "no tensor-related objects found in frame", True),
        ("helper", "/home/user/train.py", "no tensor-related objects found in frame", False),
        ("helper", "/home/user/train.py", "Dynamo tracing is disabled", True),
        ("numbers", "/home/user/train.py", "an error was suppressed during compilation", True),
        ("helper", "/home/user/train.py", "frame is in the Dynamo skipfiles list", False),
        ("helper", "/home/user/train.py", "Dynamo decided to skip the frame while tracing: no ops", False),
        ("numbers", torch.__file__, "an error was suppressed during compilation", False),
    ],
)
def test_only_what_nothing_else_tells_is_recorded(name: str, file: str, reason: str, recorded: bool) -> None:
    found = code_locations.describe_skipped_frame(code(name, file), reason)
    assert found == ({"file": file, "line": 7, "function": name, "reason": reason} if recorded else None)


@pytest.fixture(scope="module")
def explanation(tmp_path_factory: pytest.TempPathFactory) -> Explanation:
    bench = Bench(tmp_path_factory.mktemp("skips"), REST)
    run = bench.recorded()
    assert run.code == 0, run.err
    with open_recording(bench.out / "run.dynadiag") as recording:
        return explain(recording)


@needs_reasons
def test_a_break_tells_that_what_follows_it_was_not_compiled(explanation: Explanation) -> None:
    found = next(item for item in explanation.findings if item.rule == "break")
    assert found.cost.functions_uncompiled == 1
    told = next(fact.text for fact in found.evidence if fact.label == "led to")
    assert "ran uncompiled (no tensor-related objects found in frame)" in told


def test_a_generator_is_named_as_the_reason() -> None:
    def numbers() -> Iterator[int]:
        yield 1

    found = code_locations.describe_skipped_frame(
        numbers.__code__.replace(co_filename="/home/user/train.py"), "an error was suppressed during compilation"
    )
    assert found is not None
    assert "generator" in found["reason"]


@needs_reasons
def test_a_generator_that_could_not_be_traced_is_a_skipped_frame(explanation: Explanation) -> None:
    assert ("numbers", 11) in [(frame.function, frame.line) for frame in explanation.skipped]


@needs_reasons
@pytest.mark.filterwarnings("ignore:Using `torch.compile")  # others leave hooks on all modules
def test_a_module_of_torch_that_was_compiled_before_is_left_for_a_dispatch_mode_too(tmp_path: Path) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(torch.nn.Linear(2, 2), backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        compiled(torch.ones(2))
        with FlopCounterMode(display=False):
            compiled(torch.ones(2))
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        found = explain(recording)
    (item,) = found.findings
    assert (found.graph_count, item.rule, item.span.file) == (1, "uncompiled", __file__)
    if IS_FOR_GOOD:
        assert item.title == "Linear.forward stays uncompiled: FlopCounterMode, a dispatch mode, was on in a call"
        assert item.evidence[-1].text == "what was compiled before (0/0): no later call runs it"
    else:
        assert item.title == "Linear.forward ran uncompiled in a call, as FlopCounterMode, a dispatch mode, was on"


@needs_reasons
def test_the_dispatch_mode_because_of_which_a_function_is_skipped_is_named(tmp_path: Path) -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    torch._dynamo.reset()
    compiled = torch.compile(doubled, backend="eager")
    with dynadiag.record(tmp_path / "run.dynadiag"):
        with FlopCounterMode(display=False):
            compiled(torch.ones(2))
        compiled(torch.ones(2))  # without the mode, and until 2.13 still not compiled
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        found = explain(recording)
    (item,) = found.findings
    assert (found.graph_count, item.rule) == (0 if IS_FOR_GOOD else 1, "uncompiled")
    assert (item.severity, "FlopCounterMode" in item.title) == ("warning" if IS_FOR_GOOD else "note", True)
    assert [each.key for each in item.advice] == ["skipped.mode"] * IS_FOR_GOOD


def returned(x: torch.Tensor, way: str) -> torch.Tensor:
    """What torch leaves for good in one call: there it has nothing to compile, or breaks where it cannot go on."""
    if way == "breaks":
        for _ in range(2):
            torch._dynamo.graph_break()
            x = x + 1
    return x if way == "nothing" else x * len(way)


def last_findings(path: Path, calls: list[str], called: Callable[[str], object]) -> list[tuple[str, list[str]]]:
    """The rule of each finding, with what it says of the calls after torch left the function."""
    torch._dynamo.reset()
    with dynadiag.record(path):
        for each in calls:
            called(each)
        called(calls[0])
    with dynadiag.open(path) as recording:
        found = explain(recording).findings
    return [(item.rule, [fact.text for fact in item.evidence if fact.label in ("unused", "later")]) for item in found]


UNUSED = "what was compiled before (0/0): no later call runs it"


@needs_reasons
@pytest.mark.parametrize("way", ["nothing", "breaks"])
def test_what_leaves_a_compiled_function_for_good_has_the_calls_after_it(tmp_path: Path, way: str) -> None:
    compiled = torch.compile(returned, backend="eager")
    ways = ["a", "a", way, "a", "a"]
    found = last_findings(tmp_path / "run.dynadiag", ways, lambda each: compiled(torch.ones(2), each))
    assert (found[0][0], found[0][1]) == (
        "uncompiled" if way == "nothing" else "break",
        [UNUSED, "3 calls, which ran in Python"],
    )


@needs_reasons
def test_a_module_that_reaches_the_limit_has_the_calls_after_it(tmp_path: Path) -> None:
    class Scale(torch.nn.Module):
        def forward(self, x: torch.Tensor, way: str) -> torch.Tensor:
            return x * len(way)

    compiled = torch.compile(Scale(), backend="eager")
    with torch._dynamo.config.patch(recompile_limit=2):
        found = last_findings(
            tmp_path / "run.dynadiag", ["a", "bb", "ccc", "dddd"], lambda each: compiled(torch.ones(2), each)
        )
    rule, said = found[0]
    assert (rule, said) == ("recompile-limit", ["2 calls, of which those that fit nothing compiled ran in Python"])


def test_what_is_compiled_again_after_a_reset_has_no_calls_that_ran_in_python(tmp_path: Path) -> None:
    compiled = torch.compile(returned, backend="eager")

    def called(way: str) -> None:
        if way == "bb":
            torch._dynamo.reset()
        compiled(torch.ones(2), way)

    found = last_findings(tmp_path / "run.dynadiag", ["a", "nothing", "bb", "a"], called)
    assert [said for _, said in found if said] == []


def test_a_compile_that_is_interrupted_is_none_without_operations(tmp_path: Path) -> None:
    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        raise KeyboardInterrupt

    compiled = torch.compile(returned, backend=backend)
    torch._dynamo.reset()
    with dynadiag.record(tmp_path / "run.dynadiag"), pytest.raises(KeyboardInterrupt):
        compiled(torch.ones(2), "a")
    with dynadiag.open(tmp_path / "run.dynadiag") as recording:
        explanation = explain(recording)
    assert explanation.findings == ()
    assert explanation.headline.sentence == "returned was being compiled when it was interrupted."


@needs_reasons
def test_nothing_of_torchs_is_replaced_before_a_function_is_left_nor_after_the_recording(tmp_path: Path) -> None:
    from torch._dynamo import eval_frame

    own, seen = eval_frame._callback_from_stance, []
    compiled = torch.compile(returned, backend="eager")

    def called(way: str) -> None:
        compiled(torch.ones(2), way)
        seen.append(eval_frame._callback_from_stance is own)

    last_findings(tmp_path / "run.dynadiag", ["a", "nothing"], called)
    assert (seen, eval_frame._callback_from_stance is own) == ([True, False, False], True)


@needs_reasons
def test_a_function_below_the_compiled_one_has_no_calls_counted(tmp_path: Path) -> None:
    """Its calls do not pass through a wrapper: those of the compiled function are not its own."""

    def outer(x: torch.Tensor, way: str) -> torch.Tensor:
        torch._dynamo.graph_break()
        return returned(x.sin(), way)

    compiled = torch.compile(outer, backend="eager")
    found = last_findings(tmp_path / "run.dynadiag", ["a", "breaks", "a"], lambda each: compiled(torch.ones(2), each))
    assert not any("ran in Python" in text for _, said in found for text in said)


@pytest.mark.parametrize(("stance", "is_told"), [("eager_on_recompile", True), ("fail_on_recompile", False)])
def test_a_stance_that_leaves_calls_to_python_is_told(tmp_path: Path, stance: str, is_told: bool) -> None:
    program = f"""
        import torch

        compiled = torch.compile(lambda x: (x + 1).relu(), backend="eager", dynamic=False)
        compiled(torch.ones(3))
        torch.compiler.set_stance("{stance}")
        compiled(torch.ones(3))
    """
    told = Bench(tmp_path, program).recorded().out
    assert ("calls that fit nothing compiled before it was set ran in Python" in " ".join(told.split())) == is_told
