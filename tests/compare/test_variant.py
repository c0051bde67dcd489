"""Which variants are compared."""

from __future__ import annotations

from dynadiag.compare.variant import Variant, variants
from dynadiag.trial.typed_json import dump, load


def test_the_uncompiled_call_is_always_there_and_first_for_each_autocast() -> None:
    found = variants(["make"], ["default", "eager"], ["aot_eager"], ["none", "bf16"])
    assert [variant.label for variant in found] == [
        *("eager", "default", "backend aot_eager"),
        *("eager, bfloat16", "default, bfloat16", "backend aot_eager, bfloat16"),
    ]
    assert [variant.compiles for variant in found] == [False, True, True] * 2


def test_further_functions_are_held_against_the_first_uncompiled() -> None:
    found = variants(["one", "two"], ["as-written", "default"], dynamic=["true", "false"])
    assert [variant.name for variant in found if variant.is_eager] == ["one"]
    assert [variant.label for variant in found if variant.name == "two"] == [
        "as-written",
        "default, dynamic",
        "default, static",
    ]


def test_a_variant_goes_over_to_its_process_and_back() -> None:
    variant = Variant("make", "default", "inductor", "bfloat16", True, "train")
    assert load(dump(variant), Variant) == variant
