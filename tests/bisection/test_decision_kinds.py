"""The table of kinds, as the ladder, the descent and the verdict read it."""

from __future__ import annotations

import inspect

import pytest

from dynadiag.bisection import aot_hooks, compiler_hooks, fake_kernel_check
from dynadiag.bisection.decisions import kind_name, kind_plural
from dynadiag.trial import exports
from dynadiag.trial.decision_kinds import DECISION_KINDS, REPORTED_KINDS, kind_named, kinds_of_rung
from dynadiag.trial.plan import RUNGS, Plan, Switch


def test_the_kinds_of_a_rung_are_in_the_order_of_the_compiler() -> None:
    order = ("kernel", "fusion", "lowering", "pattern", "pass", "decomposition", "dynamo_graph")
    found = kinds_of_rung("custom")  # may have more kinds in between
    assert tuple(name for name in found if name in order) == order
    assert not {"frame", "cudagraphs", "graph", "inline", "operator"}.intersection(found)
    aot = ("pass", "decomposition", "functionalization", "dynamo_graph")
    assert kinds_of_rung("aot_eager_decomp_partition") == kinds_of_rung("aot_eager") == aot
    assert kinds_of_rung("inductor") == kinds_of_rung("triton")
    assert (kinds_of_rung("eager"), kinds_of_rung("uncompiled")) == (("dimension", "export", "frame"), ())


def test_rungs_and_names_are_real_and_names_differ() -> None:
    assert all(rung in RUNGS for kind in DECISION_KINDS for rung in kind.rungs)
    assert len({kind.name for kind in DECISION_KINDS}) == len(DECISION_KINDS)
    assert set(REPORTED_KINDS) == {kind.name for kind in DECISION_KINDS} - {"inline"}


def test_each_kind_has_a_hook() -> None:
    hooks = "".join(map(inspect.getsource, (compiler_hooks, aot_hooks, fake_kernel_check, exports)))
    assert [kind.name for kind in DECISION_KINDS if f'"{kind.name}"' not in hooks] == []


@pytest.mark.parametrize(
    ("kind", "name", "plural"),
    [("dynamo_graph", "graph", "graphs"), ("inline", "fusion", "fusions"), ("pass", "pass", "passes")],
)
def test_users_read_the_label(kind: str, name: str, plural: str) -> None:
    assert (kind_name(kind), kind_plural(kind)) == (name, plural)


@pytest.mark.parametrize(("kind", "forked"), [("lowering", True), ("inline", True), ("pass", False), ("frame", False)])
def test_trials_are_forked_before_inductor_only_where_nothing_earlier_is_switched(kind: str, forked: bool) -> None:
    plan = Plan("inductor", record=("kernel",), switches=(Switch(kind, True, ()),))
    assert plan.prefix_before_inductor() == (Plan("inductor") if forked else None)


def test_of_an_unknown_kind_nothing_is_assumed() -> None:
    found = kind_named("of a later release")
    assert (found.rungs, found.applied_at_once, kind_name("of a later release")) == ((), False, "of a later release")
