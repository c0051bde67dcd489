"""Where a batch is made whose size changes: only where the sources leave no choice."""

from __future__ import annotations

import pytest

from dynadiag.explanation.batches import made_at
from dynadiag.recording.records import Frame, Recompile

MODEL, LOOP = "/p/model.py", "/p/train.py"
FORWARD = "class Net:\n    def forward(self, ids, mask=None):\n        return ids\n"
COLLATE = "def collate(samples):\n    ids, mask = pad(samples)\n    return ids, mask\n"
LOADED = COLLATE + "loader = DataLoader(data, collate_fn=collate{more})\nfor x, m in loader:\n    {body}model(x, m)\n"
YIELDED = "def batches():\n    for n in range(3):\n        yield {{'ids': text, 'mask': m}}\n"
DICT = "for batch in {loop}:\n    model(**batch)\n"
SUBJECTS = ("L['ids']", "L['mask']")


@pytest.mark.parametrize(
    ("text", "names", "line", "function"),
    [
        (LOADED.format(more="", body=""), ("ids", "mask"), 3, "collate"),
        (LOADED.format(more=", num_workers=2", body=""), ("x", "m"), 6, None),  # a worker's marks are lost
        (LOADED.format(more="", body="x = x.to(device)\n    "), ("x", "m"), 7, None),
        ((YIELDED + DICT).format(loop="batches()"), ("text", "m"), 3, "batches"),
        (DICT.format(loop="loader"), ("batch['ids']", "batch['mask']"), 2, None),
        ("model(x, mask=m)\n", ("x", "m"), 1, None),
        ("model(x, m) + other(a, b)\n", None, 1, None),
        ("model = torch.compile(net)\nmodel(x, m) + other(a, b)\n", ("x", "m"), 2, None),
        ("model = torch.compile(net)\nmodel(make(n, k), m)\n", None, 1, None),
        ("model(make(n, k), m)\n", None, 1, None),
        ("model(x.half(), m)\n", None, 1, None),
        ("model(*parts)\n", None, 1, None),
    ],
)
def test_a_batch_is_made_where_it_is_certain(
    text: str, names: tuple[str, ...] | None, line: int, function: str | None
) -> None:
    item = Recompile(0, "0/1", MODEL, 2, "Net.forward", (), limit_reached=False)
    caller = Frame(LOOP, text.count("\n"), "<module>")
    made = made_at(SUBJECTS, item, caller, {MODEL: FORWARD, LOOP: text})
    if names is None:
        assert made is None
        return
    assert made is not None
    assert (tuple(made.names.values()), made.place.line, made.function) == (names, line, function)


@pytest.mark.parametrize(
    ("head", "named"), [("def forward(s, ids)", "x"), ("@staticmethod\n    def forward(s, ids)", "m")]
)
def test_what_a_method_calls_its_object_is_no_argument(head: str, named: str) -> None:
    item = Recompile(0, "0/1", MODEL, 2, "Net.forward", (), limit_reached=False)
    sources = {MODEL: f"class Net:\n    {head}:\n        return ids\n", LOOP: "model(x, m)\n"}
    made = made_at(["L['ids']"], item, Frame(LOOP, 1, "<module>"), sources)
    assert made is not None
    assert made.names == {"L['ids']": named}


def test_a_wrappers_arguments_and_what_they_hold_are_found() -> None:
    item = Recompile(0, "0/1", "/torch/nn/modules/container.py", 248, "forward", (), limit_reached=False)
    text = "fast = torch.compile(net)\nloss(fast(batch), y)\n"
    made = made_at(["L['args'][0]['ids']"], item, Frame(LOOP, 2, "<module>"), {LOOP: text})
    assert made is not None
    assert made.names == {"L['args'][0]['ids']": "batch['ids']"}
