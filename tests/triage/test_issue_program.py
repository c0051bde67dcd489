"""The program in the text of an issue."""

from __future__ import annotations

import pytest

from dynadiag.triage.issue_program import program_of_issue

PROGRAM = "import torch\nprint(torch.compile(torch.sin)(torch.ones(2)))\n"
TRACEBACK = '```\nTraceback (most recent call last):\n  File "a.py", line 1, in <module>\n```\n'


@pytest.mark.parametrize(
    "text",
    [
        f"It fails.\n```python\n{PROGRAM}```\n",
        f"{TRACEBACK}\n~~~py\n{PROGRAM}~~~\n",
        f"````\n{PROGRAM}````\n",
        f"<details>\r\n\r\n```python title='a.py'\r\n{PROGRAM}```\r\n</details>",
        f"1. Run\n   ```python\n   {PROGRAM.strip().replace(chr(10), chr(10) + '   ')}\n   ```\n",
        f"```python\nimport torch\ntorch.ones(2)\n```\nand\n```python\n{PROGRAM}```\n",
        "```\n>>> import torch\n>>> print(torch.compile(torch.sin)(torch.ones(2)))\ntensor([0.8, 0.8])\n```\n",
    ],
)
def test_the_block_that_compiles_is_the_program(text: str) -> None:
    assert program_of_issue(text) == PROGRAM


def test_blocks_that_are_a_program_together_are_one() -> None:
    text = (
        "```python\nimport torch\ndef f(x):\n    return x\n```\nThen\n```python\ntorch.compile(f)(torch.ones(2))\n```\n"
    )
    program = program_of_issue(text)
    assert program is not None
    compile(program, "program.py", "exec")
    assert program.startswith("import torch\n")
    assert program.endswith("torch.compile(f)(torch.ones(2))\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no code",
        TRACEBACK,
        "```sh\npip install torch\n```",
        "```python\nimport torch\ntorch.ones(2)\n```",
        "```python\nimport torch\ntorch.compile(",
        f"```python\n{'(' * 5000}\n```",
        "```python\n\0import torch; torch.compile\n```",
    ],
)
def test_a_text_without_a_program_has_none(text: str) -> None:
    assert program_of_issue(text) is None
