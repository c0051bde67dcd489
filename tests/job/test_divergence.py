"""The first divergence of ranks: its kind, rank, line and cause; none if they agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from dynadiag.job.comparison import find_divergence
from dynadiag.job.divergence import Divergence
from dynadiag.job.processes import open_job
from tests.job import build
from tests.job.build import REDUCE, Events, collective, compiled, graph, guards, rank, stood, stopped, unseen
from tests.tui.build import at, recording, source_events

ONE = graph(("l_x_ * 2", "f32[4][1]cpu", 6))
TYPE = "f32[4][1]cpu"


def divergence(folder: Path) -> Divergence | None:
    return find_divergence(open_job(sorted(folder.glob("*.dynadiag"))))


def of_two(folder: Path, first: Sequence[Events], second: Sequence[Events]) -> Divergence | None:
    rank(folder, 0, *first)
    rank(folder, 1, *second)
    return divergence(folder)


def found(folder: Path, first: Sequence[Events], second: Sequence[Events]) -> Divergence:
    made = of_two(folder, first, second)
    assert made is not None
    return made


def test_ranks_that_do_the_same_do_not_diverge(tmp_path: Path) -> None:
    steps = [compiled(breaks=True), collective(), compiled("0/1", again=("4", "5")), collective(line=21)]
    assert of_two(tmp_path, steps, steps) is None


def test_a_recompile_on_one_rank_only(tmp_path: Path) -> None:
    both = [compiled(), collective()]
    made = found(tmp_path, [*both, collective()], [*both, compiled("0/1", again=("4", "5")), collective()])
    assert (made.kind, made.ranks, made.compile_id, made.line) == ("recompile", (1,), "0/1", 6)
    assert "x.size()[0] was 4, now 5" in made.text
    assert [advice.checked for advice in made.advice] == ["unchecked"] * len(made.advice)


def test_a_break_on_one_rank_is_told_with_the_value_that_differs(tmp_path: Path) -> None:
    debug = guards(("L['self'].debug", "L['self'].debug == True"))
    quiet = guards(("L['self'].debug", "L['self'].debug == False"))
    made = found(tmp_path, [compiled(guards=debug, breaks=True)], [compiled(guards=quiet)])
    assert (made.kind, made.ranks, made.line) == ("break", (0,), 8)
    assert made.cause == "`self.debug` is True on rank 0, False on rank 1 (line 6)"


def test_a_recompile_is_told_where_all_ranks_were_killed_at_unknown_lines(tmp_path: Path) -> None:
    """gloo aborts both ranks where the sizes of a collective inside their graphs differ."""
    rank(tmp_path, 0, compiled(), end=[])
    rank(tmp_path, 1, compiled(), compiled("0/1", again=("8", "12")), end=[])
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("recompile", (1,), 6)
    assert made.consequences == (
        "ranks 0-1 were killed, crashed, called os._exit or could not write: their recordings are cut short",
    )


def test_a_length_that_differs_is_told_as_one(tmp_path: Path) -> None:
    long, short = (guards(("L['self'].taps", f"len(L['self'].taps) == {number}")) for number in (3, 2))
    made = found(tmp_path, [compiled(guards=long, breaks=True)], [compiled(guards=short)])
    assert made.cause == "`len(self.taps)` is 3 on rank 0, 2 on rank 1 (line 6)"


def test_each_value_of_many_ranks_is_told(tmp_path: Path) -> None:
    for number in range(4):
        own = guards(("L['self'].rank", f"L['self'].rank == {number}"))
        rank(tmp_path, number, compiled(guards=own, breaks=number == 0), world=4)
    made = divergence(tmp_path)
    assert made is not None
    assert made.cause == "`self.rank` is 0 on rank 0; 1, 2, 3 on ranks 1-3 (line 6)"


def test_another_root_of_a_broadcast(tmp_path: Path) -> None:
    made = found(tmp_path, *([collective("broadcast", peer=root)] for root in (0, 1)))
    assert (made.kind, made.ranks) == ("collective", (1,))
    assert "with root 1" in made.text


def test_another_graph_is_told_by_its_first_node(tmp_path: Path) -> None:
    more = graph(("l_x_ * 2", TYPE, 6), ("n0.sin()", TYPE, 7))
    made = found(tmp_path, [compiled(graph=more)], [compiled(graph=ONE)])
    assert (made.kind, made.ranks, made.line) == ("graph", (0,), 7)


def test_a_graph_in_another_dtype_is_the_unusual_one(tmp_path: Path) -> None:
    half = graph(("l_x_ * 2", "bf16[4][1]cpu", 6))
    made = found(tmp_path, [compiled(graph=half)], [compiled(graph=ONE)])
    assert (made.kind, made.ranks, made.line) == ("graph", (0,), 6)


def test_one_collective_more_in_a_graph(tmp_path: Path) -> None:
    reduce = (REDUCE.format("l_x_", "0"), TYPE, 6)
    error = (REDUCE.format("n0", "0"), "f32[][]cpu", 9)
    made = found(tmp_path, [compiled(graph=graph(reduce))], [compiled(graph=graph(reduce, error))])
    assert (made.kind, made.ranks, made.line) == ("collective", (1,), 9)
    assert "`all_reduce of f32[]`" in made.text


def test_collectives_of_a_graph_in_another_order(tmp_path: Path) -> None:
    one, two = (REDUCE.format("l_x_", "0"), TYPE, 6), (REDUCE.format("l_x_", "0"), "f32[5][1]cpu", 7)
    made = found(tmp_path, [compiled(graph=graph(one, two))], [compiled(graph=graph(two, one))])
    assert made.kind == "collective"
    assert made.text == "the graph of f has `all_reduce of f32[5]` on rank 1, `all_reduce of f32[4]` on rank 0"


def test_the_groups_of_two_ranks_have_other_names(tmp_path: Path) -> None:
    steps = [
        [*build.group(0, 1, name), *compiled(graph=graph((REDUCE.format("l_x_", name), TYPE, 6)))] for name in "12"
    ]
    assert of_two(tmp_path, [steps[0]], [steps[1]]) is None


@pytest.mark.parametrize(
    "call",
    [
        REDUCE.format("l_x_", "0"),
        "torch.zeros(4, device='cuda:{0}')",
        "torch.zeros(4, device=device(type='cuda', index={0}))",
    ],
)
def test_each_rank_has_a_device_of_its_own(call: str, tmp_path: Path) -> None:
    steps = []
    for index in (3, 5):  # not the numbers of the ranks, as on another host
        type_ = f"f32[4][1]cuda:{index}"
        steps.append(compiled(graph=graph((call.replace("{0}", str(index)), type_, 6), type_=type_)))
    assert of_two(tmp_path, [steps[0]], [steps[1]]) is None


def test_another_reduction_is_told_with_the_arguments(tmp_path: Path) -> None:
    calls = [REDUCE.format("l_x_", "0").replace("sum", how) for how in ("sum", "max")]
    one, two = (compiled(graph=graph((call, TYPE, 6))) for call in calls)
    made = found(tmp_path, [one], [two])
    assert made.kind == "collective"
    assert "'max'" in made.text
    assert "'sum'" in made.text


def test_one_collective_more_that_the_program_issues(tmp_path: Path) -> None:
    waits = stopped("Timed out waiting 15000ms for recv operation to complete")
    rank(tmp_path, 0, compiled(), collective(), collective(line=22), end=waits)
    rank(tmp_path, 1, compiled(), collective(), collective("broadcast", line=25), end=waits)
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("collective", (0,), 22)
    assert "Timed out waiting" in made.consequences[0]


def test_a_collective_of_another_size(tmp_path: Path) -> None:
    made = found(tmp_path, [collective(sizes=(4,))], [collective(sizes=(5,))])
    assert (made.kind, made.line) == ("collective", 20)


def test_a_collective_of_another_process_group_is_told_with_the_group(tmp_path: Path) -> None:
    groups = [*build.group(0, 2), *build.group(0, 2, "1")]
    made = found(tmp_path, [groups, collective()], [groups, collective(group="1")])
    assert made.kind == "collective"
    assert "in process group 1 at line 20 where" in made.text
    assert made.text.endswith("in process group 0 at line 20")


def test_an_input_of_another_dtype_is_the_cause(tmp_path: Path) -> None:
    double = graph(("l_x_ * 2", "f64[4][1]cpu", 6), type_="f64[4][1]cpu")
    x = guards(("L['x']", "check_tensor(L['x'], Tensor)"))
    made = found(tmp_path, [compiled(graph=ONE, guards=x)], [compiled(graph=double, guards=x)])
    assert (made.kind, made.ranks, made.line) == ("graph", (1,), 6)
    assert made.cause == "the input `x` is f64[4] on rank 1, f32[4] on rank 0"


def test_a_value_that_differs_is_told_with_all_its_digits(tmp_path: Path) -> None:
    more = graph(("l_x_ * 2", TYPE, 6), ("n0 * 3", TYPE, 7))
    mean = [guards(("L['mean']", f"L['mean'] == {value}")) for value in ("32000000000.0", "6.5557780265808105")]
    made = found(tmp_path, [compiled(graph=more, guards=mean[0])], [compiled(graph=ONE, guards=mean[1])])
    assert made.cause == "`mean` is 32000000000.0 on rank 0, 6.5557780265808105 on rank 1 (line 6)"
    assert "has `n0 * 3: " in made.text


def test_an_input_of_one_rank_among_many_has_its_name(tmp_path: Path) -> None:
    for each in range(4):
        type_ = f"f32[{3 if each == 2 else 4}][1]cpu"
        x = guards(("L['x']", "check_tensor(L['x'], Tensor)"))
        rank(tmp_path, each, compiled(graph=graph(("l_x_ * 2", type_, 6), type_=type_), guards=x), world=4)
    made = divergence(tmp_path)
    assert made is not None
    assert made.text == "rank 2 takes x, `f32[3][1]cpu`, in f, ranks 0-1, 3 `f32[4][1]cpu`"


def test_collectives_on_the_same_lines_in_another_order(tmp_path: Path) -> None:
    made = found(tmp_path, [collective(line=20), collective(line=21)], [collective(line=21), collective(line=20)])
    assert made.kind == "collective"


def test_the_same_statements_in_another_order_on_each_side_of_an_if(tmp_path: Path) -> None:
    """They exchange what they reduce: a wrong answer without an error."""
    lines = {20: "dist.all_reduce(a)", 21: "dist.all_reduce(b)", 23: "dist.all_reduce(b)", 24: "dist.all_reduce(a)"}
    source = source_events("\n".join(f"    {lines.get(number, '')}" for number in range(1, 30)))
    made = found(
        tmp_path,
        [source, collective(line=20), collective(line=21)],
        [source, collective(line=23), collective(line=24)],
    )
    assert (made.kind, made.ranks, made.line) == ("collective", (0,), 20)
    assert made.text == (
        "rank 0 issues `dist.all_reduce(a)` at line 20 where rank 1 issues `dist.all_reduce(b)` at line 23"
    )


def test_each_side_of_an_if_may_have_a_line_of_its_own(tmp_path: Path) -> None:
    assert of_two(tmp_path, [collective("broadcast", line=20)], [collective("broadcast", line=22)]) is None


def test_a_line_that_one_rank_alone_has_is_no_collective_more_where_both_issue_as_many(tmp_path: Path) -> None:
    step, own = collective(line=20), collective(line=24)
    assert of_two(tmp_path, [step, own, step], [step, step, step]) is None


def test_sends_and_receives_differ_by_design(tmp_path: Path) -> None:
    assert of_two(tmp_path, [compiled(), collective("send")], [collective("recv"), compiled()]) is None


def test_a_rank_that_does_not_compile(tmp_path: Path) -> None:
    eager = collective(stance="force_eager")
    made = found(tmp_path, [compiled(), collective()], [eager])
    assert (made.kind, made.ranks) == ("skip", (1,))
    assert "set_stance('force_eager')" in made.text


def test_a_miss_here_and_a_hit_there_after_a_warm_up(tmp_path: Path) -> None:
    warm = [compiled(cache="miss"), collective("barrier"), compiled("0/0", cache="hit", seconds=0.1)]
    made = found(tmp_path, [*warm, collective()], [collective("barrier"), compiled(cache="miss"), collective()])
    assert (made.kind, made.ranks) == ("cache", (1,))


def test_an_option_is_the_cause_of_a_miss_after_a_reset(tmp_path: Path) -> None:
    """torch uses the id of the first compile again."""
    options: list[Events] = [
        [({"dynadiag_options": {"torch._inductor.config": {"max_fusion_size": value}}, **at("0/0")}, None)]
        for value in (64, 8)
    ]
    before = [options[0], compiled(cache="miss"), collective()]
    made = found(
        tmp_path,
        [*before, options[0], compiled(cache="hit")],
        [*before, options[1], compiled(cache="miss")],
    )
    assert (made.kind, made.ranks, made.compile_id) == ("cache", (1,), "0/0#2")
    assert made.cause == "`torch._inductor.config.max_fusion_size` is 8 on rank 1, 64 on rank 0"


def test_a_hit_here_and_no_cache_there(tmp_path: Path) -> None:
    made = found(tmp_path, [compiled(cache="hit"), collective()], [compiled(), collective()])
    assert (made.kind, made.ranks) == ("cache", (1,))
    assert "without the FX graph cache, a hit on rank 0" in made.text


def test_a_miss_here_and_no_cache_there_is_no_divergence(tmp_path: Path) -> None:
    assert of_two(tmp_path, [compiled(cache="miss")], [compiled()]) is None


@pytest.mark.parametrize(("training", "rank"), [((True, False), 1), ((False, True), 0)])
def test_a_rank_that_evaluates_while_others_train(training: tuple[bool, bool], rank: int, tmp_path: Path) -> None:
    calls = [f"torch.nn.functional.dropout(l_x_, 0.1, {each}, False)" for each in training]
    made = found(tmp_path, *([compiled(graph=graph((call, "f32[4][1]cpu", 6)))] for call in calls))
    assert (made.kind, made.ranks) == ("graph", (rank,))


def test_a_rank_that_was_killed(tmp_path: Path) -> None:
    rank(tmp_path, 0, compiled(), collective(), collective(), end=stopped("Connection closed by peer [127.0.0.1]:1"))
    rank(tmp_path, 1, compiled(), collective(line=23), end=[])
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("died", (1,), 23)


def test_logs_of_torchs_own_say_nothing_of_how_a_rank_ended(tmp_path: Path) -> None:
    for number, steps in ((0, [compiled(), compiled("1/0")]), (1, [compiled()])):
        events = [({**meta, "rank": number}, payload) for step in steps for meta, payload in step]
        recording(tmp_path, events, f"rank{number}")
    made = divergence(tmp_path)
    assert made is None or made.kind not in ("died", "timeout")


def test_a_rank_whose_disk_was_full_did_not_die(tmp_path: Path) -> None:
    rank(tmp_path, 0, compiled(), *[collective()] * 4)
    rank(tmp_path, 1, compiled(), collective(), end=[])
    assert divergence(tmp_path) is None


def test_a_rank_that_raised_and_torchrun_that_ended_the_other(tmp_path: Path) -> None:
    rank(tmp_path, 0, compiled(), collective(), end=[])
    rank(tmp_path, 1, compiled(), collective(), end=stopped("bad batch", line=33, type_="builtins.ValueError"))
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("died", (1,), 33)


def test_who_raised_first_is_told_on_one_clock(tmp_path: Path) -> None:
    hour = 3600.0
    for number, (ahead, ended, error) in enumerate(((0.0, 8.0, "ValueError"), (hour, 7.0, "KeyError"))):
        steps = [collective(at=build.BEGAN + ahead + second) for second in range(4)]
        end = stopped("bad", line=33, type_=f"builtins.{error}", ended=build.BEGAN + ahead + ended)
        rank(tmp_path, number, build.group(number, 2), *steps, end=end, host="ab"[number])
    rank(tmp_path, 2, build.group(2, 3), *[collective(at=build.BEGAN + second) for second in range(4)])
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks) == ("died", (1,))


def test_all_ranks_that_raise_the_same_do_not_diverge(tmp_path: Path) -> None:
    for number in (0, 1):
        rank(tmp_path, number, compiled(), end=stopped("bad config", type_="builtins.ValueError"))
    assert divergence(tmp_path) is None


def test_a_rank_that_came_less_far_until_the_timeout(tmp_path: Path) -> None:
    waits = stopped("Timed out waiting 15000ms for recv operation to complete", line=21)
    rank(tmp_path, 0, compiled(), collective(), collective(line=21), end=waits)
    rank(tmp_path, 1, compiled(), collective(), end=stopped("Timed out waiting for the store", line=40))
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("timeout", (1,), 40)


def test_a_rank_that_hangs_is_told_by_what_it_did_not_begin(tmp_path: Path) -> None:
    waits = stopped("Timed out waiting 8000ms for recv operation to complete", line=21)
    last = collective("all_reduce", line=21)
    rank(tmp_path, 0, compiled(), collective("all_reduce"), last, end=waits, world=3)
    rank(tmp_path, 1, compiled(), collective("all_reduce"), end=[], world=3)
    rank(tmp_path, 2, compiled(), collective("all_reduce"), last, end=[], world=3)  # ended with the job
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("timeout", (1,), 20)
    assert made.text == (
        "rank 1 finished its last collective (prog.py:20, all_reduce) and never began the next: "
        "rank 0 waited until the timeout (prog.py:21, all_reduce)"
    )


def test_a_rank_that_hangs_before_its_first_collective(tmp_path: Path) -> None:
    waits = stopped("Timed out waiting 8000ms for recv operation to complete", line=20)
    rank(tmp_path, 0, compiled(), collective("all_reduce"), end=waits)
    rank(tmp_path, 1, end=[])
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line, made.text) == (
        "timeout",
        (1,),
        20,  # where rank 0 waited
        "rank 1 never began its first collective: rank 0 waited until the timeout (prog.py:20, all_reduce)",
    )


def test_a_rank_that_hangs_before_a_collective_of_compiled_code(tmp_path: Path) -> None:
    waits = stopped("Timed out waiting 8000ms for recv operation to complete", line=6)
    rank(tmp_path, 0, compiled(), collective("all_reduce"), end=waits)
    rank(tmp_path, 1, compiled(), collective("all_reduce"), end=[])
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("timeout", (1,), 20)
    assert made.text.endswith("and never began the next: rank 0 waited until the timeout (prog.py:6)")


@pytest.mark.parametrize("skips", [True, False])
def test_a_collective_that_a_rank_leaves_out_or_has_more(skips: bool, tmp_path: Path) -> None:
    """Rank 1 leaves out what both did before, or rank 0 issues on a line what rank 1 never does."""
    step, metric = collective(line=20), collective(sizes=(), line=24)
    before = [step, step, metric] if skips else [step, step]
    waits = stopped("Timed out waiting 8000ms for recv operation to complete", line=24)
    rank(tmp_path, 0, compiled(), *before, step, step, metric, end=waits)
    rank(tmp_path, 1, compiled(), *before, step, step, step, end=waits)
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("collective", (1,) if skips else (0,), 24)
    assert made.text.endswith("at line 24, rank 1 does not and goes on with all_reduce of (4,) float32 at line 20")


def test_a_rank_past_the_loop_left_out_a_collective_of_it(tmp_path: Path) -> None:
    """It waits in the barrier behind the loop, for it had no batch at one step."""
    lines = {19: "for batch in batches:", 20: "    dist.all_reduce(loss)", 22: "dist.barrier()"}
    source = source_events("\n".join(lines.get(number, "") for number in range(1, 30)))
    step, barrier = collective(line=20), collective("barrier", line=22, sizes=(), dtypes=[])
    waits = stopped("Timed out waiting 8000ms for recv operation to complete", line=20)
    rank(tmp_path, 0, source, compiled(), step, step, step, end=waits)
    rank(tmp_path, 1, source, compiled(), step, step, barrier, end=waits)
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("collective", (1,), 20)
    assert made.text.endswith("rank 1 does not and goes on with barrier at line 22")


def test_a_collective_more_of_the_same_size_is_told_at_its_line(tmp_path: Path) -> None:
    step, more = collective(line=20), collective(line=24)
    waits = stopped("Timed out waiting 8000ms for recv operation to complete", line=20)
    rank(tmp_path, 0, compiled(), step, more, step, more, end=waits)
    rank(tmp_path, 1, compiled(), step, step, step)
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("collective", (0,), 24)


def test_a_rank_that_leaves_early_is_the_one(tmp_path: Path) -> None:
    step = collective("all_reduce", line=20)
    rank(tmp_path, 0, compiled(), step, step, end=stopped("Connection closed by peer [127.0.0.1]:1", line=20))
    rank(tmp_path, 1, compiled(), step)
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("collective", (1,), 20)
    assert made.text.endswith("rank 1 does not: it had ended")


SUM = graph((REDUCE.format("l_x_", "0"), "f32[4][1]cpu", 6))
GONE = "Connection closed by peer [127.0.0.1]:1"


def test_a_collective_more_of_compiled_code_is_told_at_its_line(tmp_path: Path) -> None:
    """Rank 0 leaves the loop and ends. Rank 1 then fails: its peer is gone, in a collective that has no event."""
    rank(tmp_path, 0, compiled(graph=SUM), unseen(5))
    rank(tmp_path, 1, compiled(graph=SUM), unseen(2), unseen(6), end=stopped(GONE, line=4))
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("collective", (0,), 6)
    assert made.text == (
        "rank 1 begins one more collective of the compiled f (`all_reduce of f32[4]`, line 6), "
        "rank 0 does not: it had ended"
    )


def test_a_collective_more_of_cpp_is_told_where_the_rank_waits(tmp_path: Path) -> None:
    waits = stopped("Timed out waiting 8000ms for recv operation to complete", line=16)
    barrier = collective("barrier", line=19, sizes=(), dtypes=[], number=1)
    rank(tmp_path, 0, compiled(), unseen(4), end=waits)
    rank(tmp_path, 1, compiled(), unseen(3, before=1), barrier, end=waits)
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("collective", (1,), 16)
    assert made.text.endswith("rank 1 does not and goes on with barrier at line 19")


@pytest.mark.parametrize("ends", [[], stopped(GONE)])
def test_a_rank_that_was_ended_may_have_been_about_to_begin_more(ends: Events, tmp_path: Path) -> None:
    rank(tmp_path, 0, compiled(graph=SUM), unseen(5), end=stopped(GONE))
    rank(tmp_path, 1, compiled(graph=SUM), unseen(3), end=ends)
    made = divergence(tmp_path)
    assert made is None or made.kind == "died"


def test_unseen_collectives_between_sends_count_as_one_number(tmp_path: Path) -> None:
    send = collective("send", line=12, number=1)
    barrier = collective("barrier", sizes=(), number=2)
    assert of_two(tmp_path, [unseen(2, 1), send, unseen(1, 2), barrier], [unseen(3, 2), barrier]) is None


def test_functions_with_collectives_in_another_order(tmp_path: Path) -> None:
    """gloo aborts one rank, for the sizes do not fit. What it had compiled next is not known."""
    longer = SUM.replace("[4]", "[8]")
    other = [
        (json.loads(json.dumps(data).replace('"f"', '"g"').replace('"line": 5', '"line": 12')), text)
        for data, text in compiled(graph=longer)
    ]
    rank(tmp_path, 0, other, end=[])
    rank(tmp_path, 1, compiled(graph=SUM), unseen(1), end=stopped(GONE))
    made = divergence(tmp_path)
    assert made is not None
    assert made.kind == "collective"
    assert "rank 1 compiles f, whose first collective is `all_reduce of f32[4]` (line 6)" in made.text
    assert "where rank 0 compiles g, whose first is `all_reduce of f32[8]`" in made.text


def test_a_function_with_a_collective_that_one_rank_alone_calls(tmp_path: Path) -> None:
    """Rank 1 goes on with what both did before: more of that began than before rank 0 compiled the other function."""
    more = [
        (json.loads(json.dumps(data).replace('"f"', '"g"').replace('"line": 5', '"line": 12')), text)
        for data, text in compiled("1/0", graph=SUM)
    ]
    for data, _ in more:
        data.get("dynadiag_frame", {})["unseen"] = 3
    rank(tmp_path, 0, compiled(graph=SUM), more, unseen(5), end=stopped(GONE))
    rank(tmp_path, 1, compiled(graph=SUM), unseen(4), end=stopped(GONE))
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("collective", (0,), 6)
    assert made.text == (
        "rank 0 compiles g, whose first collective is `all_reduce of f32[4]` (line 6), rank 1 does not"
    )


def test_a_rank_that_left_with_a_code_died(tmp_path: Path) -> None:
    left = [*stopped(), ({"dynadiag_exit": {"code": 3}}, None)]
    barrier = collective("barrier", sizes=(), dtypes=[], line=24)
    rank(tmp_path, 0, compiled(), collective(), end=left)
    rank(tmp_path, 1, compiled(), collective(), barrier, end=stopped(GONE, line=24))
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.text) == ("died", (0,), "rank 0 ended with 3, last seen at prog.py:20")


@pytest.mark.parametrize("signal", [None, -9])
def test_a_rank_that_hangs_is_told_where_it_stood(signal: int | None, tmp_path: Path) -> None:
    """A launcher kills a rank that does not answer, after the others have waited in vain."""
    waits = stopped("Timed out waiting 8000ms for recv operation to complete", line=21)
    first, second = collective(line=21, number=1), collective(line=21, number=2)
    rank(tmp_path, 0, compiled(), first, second, end=waits)
    end: Events = [] if signal is None else [({"dynadiag_exit": {"code": signal}}, None)]
    rank(tmp_path, 1, compiled(), stood(3, after=0), first, stood(17), end=end)
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.line) == ("timeout", (1,), 17)
    assert made.text.startswith("rank 1 stood at prog.py:17 in wait_for and never came: rank 0 waited until")


def test_a_graph_for_any_size_is_told_with_the_option_that_differs(tmp_path: Path) -> None:
    sizes = '"Sym(s0)", L_x_: "f32[s0][1]cpu"):\n        s0 = s0'
    any_size = ONE.replace('"f32[4][1]cpu"):', sizes).replace('L_x_: "Sym', 's0: "Sym')
    options = [
        ({"dynadiag_options": {"torch._dynamo.config": {"dynamic_shapes": value}}, **at("0/0")}, None)
        for value in (True, False)
    ]
    made = found(tmp_path, [[options[0]], compiled(graph=any_size)], [[options[1]], compiled(graph=ONE)])
    assert made.text == "rank 0 compiles f for sizes that may change, rank 1 for fixed ones"
    assert made.cause == "`torch._dynamo.config.dynamic_shapes` is True on rank 0, False on rank 1"


def test_a_rank_that_never_came(tmp_path: Path) -> None:
    for number in (0, 1):
        rank(tmp_path, number, compiled(), world=3, end=stopped("Timed out after 300 seconds"))
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks) == ("died", (2,))


@pytest.mark.parametrize("starts", [(0, 16), (16, 32)])
def test_a_number_in_proportion_to_the_rank_is_a_shards(starts: tuple[int, int], tmp_path: Path) -> None:
    steps = [[compiled(graph=graph((f"l_x_ - {start}", TYPE, 6)))] for start in starts]
    assert of_two(tmp_path, *steps) is None


@pytest.mark.parametrize("values", [(7, 12), (1e-5, 1e-6), (True, False)])
def test_another_number_is_another_graph(values: tuple[object, object], tmp_path: Path) -> None:
    steps = [[compiled(graph=graph((f"l_x_ * {value}", TYPE, 6)))] for value in values]
    made = found(tmp_path, *steps)
    assert (made.kind, made.line) == ("graph", 6)


def many(folder: Path, odd: int, number: int = 5) -> None:
    for each in range(number):
        size = 5 if each == odd else 4
        expression = ("L['x'].size()[0]", f"L['x'].size()[0] == {size}")
        rank(folder, each, compiled(guards=guards(expression)), collective(), world=number)


def test_a_guard_of_one_rank_among_many(tmp_path: Path) -> None:
    many(tmp_path, odd=3)
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks) == ("recompile", (3,))
    assert "L['x'].size()[0] == 5" in made.text
    assert "ranks 0-2, 4" in made.text


def test_truncated_missing_and_restarted_ranks_do_not_hide_it(tmp_path: Path) -> None:
    for number in range(7):
        steps = [compiled(), collective(), *([compiled("0/1", again=("4", "5"))] if number == 4 else []), collective()]
        if number != 1:
            rank(tmp_path, number, *(steps[:1] if number == 2 else steps), world=7, end=[] if number == 2 else None)
    rank(tmp_path, 5, compiled(), world=7, restart=1)
    (tmp_path / "a-rank6.dynadiag").write_bytes(b"not a recording")
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks, made.restart) == ("recompile", (4,), 0)


def test_what_most_ranks_do_is_told_of_the_one_that_does_not(tmp_path: Path) -> None:
    for number in range(4):
        rank(tmp_path, number, compiled(breaks=number != 2), world=4)
    made = divergence(tmp_path)
    assert made is not None
    assert (made.kind, made.ranks) == ("break", (2,))
    assert made.text.startswith("ranks 0-1, 3 break the graph of f")
