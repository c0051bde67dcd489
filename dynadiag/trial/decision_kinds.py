"""The kinds of decisions of the compiler that a trial can switch off, with what the search has to know of each.

For a new kind, add an entry here, and a hook in `bisection.compiler_hooks` that asks ``TRIAL.is_on`` with its name. The
function of torch that the hook wraps goes to `torch_private.bisect`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DecisionKind:
    """What is known of a kind.

    ``rungs`` are those at which the search tries whether it explains the failure. ``label`` is its name for users,
    where that differs. ``in_inductor``: it has no effect before the first graph reaches Inductor, so trials can be
    forked from there. ``applied_at_once``: a decision takes effect as soon as it is reported, so the last one that a
    killed process reported is suspect. ``reported``: a search reports it at each rung.
    """

    name: str
    rungs: tuple[str, ...] = ()
    label: str = ""
    in_inductor: bool = False
    applied_at_once: bool = False
    reported: bool = True


_INDUCTOR = ("inductor", "triton")
_CODE = (*_INDUCTOR, "custom")  # a backend of the program's own may use Inductor's parts
_AOT = ("aot_eager_decomp_partition", "aot_eager")

# In the order of the compiler, latest first: the search switches off prefixes of this list.
DECISION_KINDS = (
    DecisionKind("kernel", _CODE, in_inductor=True),
    DecisionKind("fusion", _CODE, in_inductor=True),
    DecisionKind("inline", label="fusion", in_inductor=True, reported=False),  # tried where lowerings fail together
    DecisionKind("lowering", _CODE, in_inductor=True, applied_at_once=True),
    DecisionKind("pattern", _CODE, applied_at_once=True),
    DecisionKind("pass", (*_CODE, *_AOT), applied_at_once=True),
    DecisionKind("decomposition", (*_CODE, *_AOT), applied_at_once=True),
    DecisionKind("functionalization", _AOT),
    DecisionKind("cudagraphs", _INDUCTOR),
    DecisionKind("graph", _INDUCTOR, in_inductor=True),
    DecisionKind("dynamo_graph", (*_CODE, *_AOT), label="graph"),
    DecisionKind("node"),  # of Dynamo's graph: a graph at fault is narrowed to these
    DecisionKind("dimension", ("eager",)),  # that torch.export is told to keep dynamic
    DecisionKind("export", ("eager",)),
    DecisionKind("frame", ("eager",)),
    DecisionKind("operator"),  # a custom operator's fake kernel: tried before all other kinds
)
REPORTED_KINDS = tuple(kind.name for kind in DECISION_KINDS if kind.reported)
_BY_NAME = {kind.name: kind for kind in DECISION_KINDS}


def kind_named(name: str) -> DecisionKind:
    """The kind with this name; for a name that is none, one that nothing is known of."""
    return _BY_NAME.get(name, DecisionKind(name))


def kinds_of_rung(rung: str) -> tuple[str, ...]:
    """The names of the kinds that may explain a failure at a rung, latest first."""
    return tuple(kind.name for kind in DECISION_KINDS if rung in kind.rungs)
