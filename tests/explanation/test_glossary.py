"""The glossary: one text for the browser and for the page."""

from __future__ import annotations

import re
from pathlib import Path

from dynadiag.explanation.glossary import GLOSSARY, explain_words
from dynadiag.explanation.registry import Registry

PAGE = Path(__file__).parents[2] / "docs" / "glossary.md"
ENTRY = re.compile(r"^- `([^`]+)`: (.*(?:\n  .*)*)", re.MULTILINE)


def test_the_page_has_the_same_entries() -> None:
    page = {word: " ".join(text.split()) for word, text in ENTRY.findall(PAGE.read_text(encoding="utf-8"))}
    assert page == GLOSSARY


def test_words_of_a_line_are_explained_once_in_the_order_of_their_kind() -> None:
    found = dict(explain_words("GB0059 print ended 2 graph breaks; extern, TENSOR_MATCH and post_grad, extern, GB9999"))
    assert list(found) == ["GB0059", "graph break", "extern", "TENSOR_MATCH", "post_grad"]
    assert found["GB0059"].startswith(f"{Registry.installed().lookup('GB0059').gb_type}. ")
    assert not list(explain_words("y = x + 1"))


def test_a_part_of_a_name_and_what_is_called_are_no_words_of_the_glossary() -> None:
    assert not list(
        explain_words("Transformer.forward; def forward(self): torch._dynamo.config, compile(f), kernel.cpp")
    )
    assert [word for word, _ in explain_words("forward, after passes. Of Dynamo.")] == [
        "post_grad",
        "forward",
        "Dynamo",
    ]


def test_what_torch_fills_in_for_each_break_is_left_out() -> None:
    ((_, text),) = explain_words("GB0036")
    assert "Operator `…`'s output shape depends on input Tensor data" in text
