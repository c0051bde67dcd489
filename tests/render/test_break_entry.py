"""A kind of graph break in plain words."""

from __future__ import annotations

import json

import pytest

from dynadiag.explanation.registry import Registry
from dynadiag.render.listings import entry_json, entry_text
from dynadiag.render.printer import Printer
from dynadiag.render.wrap import width


def test_an_entry_says_what_it_means_and_what_to_do() -> None:
    text = entry_text(Registry.installed().lookup("GB0124"))
    assert text.startswith("GB0124: Unsupported Tensor.item() call")
    for title in ("What it means:", "torch says:", "torch's hints, unchecked:", "What to do:", "Reported with:"):
        assert title in text


def test_an_entry_without_hints_has_ours() -> None:
    text = entry_text(Registry.installed().lookup("GB0007"))
    assert "torch's hints" not in text
    assert "torch.library.custom_op" in text


def test_the_document_has_the_same_parts() -> None:
    made = json.loads(entry_json(Registry.installed().lookup("GB0170")))
    assert made["schema"] == 1
    assert (made["gb_id"], bool(made["meaning"]), bool(made["remedies"])) == ("GB0170", True, True)


@pytest.mark.parametrize("columns", [80, 120])
def test_every_entry_fits_the_columns(columns: int) -> None:
    for entry in Registry.installed().entries.values():
        assert max(map(width, entry_text(entry, Printer(columns)).split("\n"))) <= columns
