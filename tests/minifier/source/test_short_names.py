"""Short names leave a program that does the same."""

from __future__ import annotations

import contextlib
import io

from minifier.source.short_names import tidied

PROGRAM = """
import math
import json
class Region:
    hidden: int = 1
    def method(self, given):
        return self.hidden + given
def compute(hidden):
    value = Region()
    value.hidden = hidden
    return [value.method(number) for number in range(hidden)]
def fill():
    global shared
    shared = 5
fill()
print(compute(3), shared, math.pi, json.dumps(1))
"""


def test_the_tidiest_form_does_the_same_with_short_names() -> None:
    texts = [PROGRAM, next(tidied(PROGRAM))]
    printed = []
    for text in texts:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(text, "program.py", "exec"), {})
        printed.append(output.getvalue())
    assert printed[0] == printed[1]
    assert "import json, math" in texts[1]
    assert "shared" not in texts[1]
    assert "Region" not in texts[1]
    assert "number" not in texts[1]
