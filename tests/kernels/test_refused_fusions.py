"""Why two kernels were not one: the scheduler's reasons, from the compile to the listing and the JSON."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch

import dynadiag
from dynadiag.__main__ import main
from dynadiag.capture.generated_code import RefusedFusions
from dynadiag.kernels.call_nodes import FusionRefusal, parse_operations
from dynadiag.kernels.read_modules import kernel_calls
from dynadiag.render.fusion_text import plain_reason, refusal_texts
from dynadiag.torch_private import loggers


def _around_a_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    return ((y @ weight).relu() * y).sum(1)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a product between two kernels that use the same data."""
    path = tmp_path_factory.mktemp("refused") / "run.dynadiag"
    torch._dynamo.reset()
    inductor, functorch = torch._inductor.config, torch._functorch.config
    with inductor.patch(fx_graph_cache=False), functorch.patch(enable_autograd_cache=False), dynadiag.record(path):
        torch.compile(_around_a_product)(torch.randn(48, 80), torch.randn(80, 80))
    return path


def test_the_reason_is_known_of_both_kernels(recorded: Path) -> None:
    with dynadiag.open(recorded) as recording:
        first, product, second = kernel_calls(recording)
    assert product.refused == ()
    assert list(refusal_texts(product)) == ["a call of a library: Inductor fuses only loops that it generates itself"]
    assert next(refusal_texts(first)).endswith(f"which comes after: {product.name} has to run between them")
    (after,), (before,) = first.refused, second.refused
    assert (after.call, after.comes, before.call, before.comes) == (second.index, "after", first.index, "before")
    assert after.reason == before.reason
    assert after.reason == "intermediate nodes between node1 & node2"


def test_the_listing_and_the_json_have_it(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "--json", "-", str(recorded)]) == 0
    document = json.loads(capsys.readouterr().out)
    (fusion,) = document["fusion"]
    assert (fusion["compile_id"], fusion["calls"]) == ("0/0", 3)
    named = {kernel["name"]: kernel for kernel in document["kernels"]}
    name = next(name for name, kernel in named.items() if kernel["not_fused"])
    (refused,) = named[name]["not_fused"]
    assert refused["name"] in named
    assert main(["kernels", str(recorded)]) == 0
    assert f"{fusion['operators']} operators run as 3 calls" in capsys.readouterr().out
    assert main(["kernels", str(recorded), name]) == 0
    assert f"not fused with {refused['name']}, which comes" in capsys.readouterr().out


def test_the_logger_is_an_ordinary_one_when_nobody_listens(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("torch._inductor.scheduler.__fusion")
    refused = RefusedFusions()
    loggers.listen_for_refused_fusions(refused.add)
    assert type(logger) is not logging.Logger
    loggers.stop_listening_for_refused_fusions(refused.add)
    assert type(logger) is logging.Logger


def test_of_a_pair_the_reason_for_the_largest_nodes_counts() -> None:
    refused = RefusedFusions()
    refused.add("op0", "op2", "no shared data", ())
    refused.add("op0_op1", "op2", "numel/rnumel mismatch (reduce) (%s, %s), (%s, %s)", (1, 2, 3, 4))
    refused.add("op0", "op1", "will create cycle", ())  # fused in the end
    refused.add("op0", "op7", "will create cycle", ())  # of another graph
    refused.add("true_graph_0_op0_true_graph_0_op1", "true_graph_0_op2", "100% other", ())
    groups = {"op0": 0, "op1": 0, "op2": 1} | {f"true_graph_0_op{number}": 5 + number // 2 for number in range(3)}
    assert list(refused.between(groups)) == [
        (0, 1, "numel/rnumel mismatch (reduce) (1, 2), (3, 4)"),
        (5, 6, "100% other"),
    ]
    refused.clear()
    assert list(refused.between(groups)) == []


@pytest.mark.parametrize("rows", ["[[0, 1]]", "[[0, 1, 2]]", '[[true, 1, "a"]]', "3", "[3]"])
def test_what_is_no_refusal_is_left_out(rows: str) -> None:
    assert parse_operations(f'{{"operations": [], "refused": {rows}}}').refused == ()
    assert parse_operations('{"refused": [[0, 1, "a"]]}').refused == (FusionRefusal(0, 1, "a"),)


def test_figures_of_torch_stay_in_the_plain_words() -> None:
    assert plain_reason("numel/rnumel mismatch (reduce) (48, 80), (80, 48)").startswith("their loops have other sizes")
    assert plain_reason("something new") == "torch says: something new"
