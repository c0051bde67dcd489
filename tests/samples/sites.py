"""Break sites of every form, for `test_sites`. The comment on a line names the break and the text of its span.

Text that is not ASCII stands before each span: torch and CPython count columns in bytes.
"""

# ruff: noqa: T201 - a program; its prints are breaks

from __future__ import annotations

import functools
import linecache
import threading

import torch
from torch._dynamo import graph_break


def run(fn, *args, **options):
    return torch.compile(fn, backend="eager", **options)(*args)


def before_first_op(x):
    length = ("ünïcödé", graph_break())  # GB0025: graph_break()
    return x + len(length)


def in_for(x):
    for _ in range(2):
        x = (x + 1, "é", graph_break())[0]  # GB0025: graph_break()
    return x


def in_while(x):
    count = 0
    while count < 2:
        count += len(["é", print("日本", x.shape)]) // 2  # GB0059: print("日本", x.shape)
        x = x * 2
    return x


def in_with(x):
    with torch.no_grad():
        y = (x + 1, "é", graph_break(), x * 2)[0]  # GB0025: graph_break()
    return y + 1


def in_try(x):
    try:
        y = (x + 1, "é", graph_break())[0]  # GB0025: graph_break()
    finally:
        x = x * 2
    return x + y


def generate(x):
    for number in range(2):
        yield (x + number, "é", graph_break())[0]  # GB0025: graph_break()


def in_generator(x):
    return sum(generate(x))


def in_comprehension(x):
    return sum([("é", graph_break(), x + number)[2] for number in range(2)])  # GB0025: graph_break()


def innermost(x):
    y = x + len("日")
    z = ("é", y.sum().item())[1]  # GB0124: y.sum().item()
    return y * z


def middle(x):
    return innermost(x + 1) + 1


def nested(x):
    return middle(x) * 2


def callback(x):
    return ("é", graph_break(), x * 3)[2]  # GB0025: graph_break()


def apply(fn, x):
    return fn(x) + 1


def takes_callback(x):
    return apply(callback, x)


class Base(torch.nn.Module):
    def forward(self, x):
        return (x.relu(), "é", graph_break())[0]  # GB0025: graph_break()


class Derived(Base):
    def forward(self, x):
        return super().forward(x) + 1


in_lambda = lambda x: ("é", graph_break(), x + 1)[2]  # noqa: E731  # GB0025: graph_break()


def decorated(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) + 1

    return wrapper


@decorated
def wrapped(x):
    return (x.relu(), "é", graph_break())[0]  # GB0025: graph_break()


def branch(x):
    y = x.relu()
    if len("日本") == 2 and y.sum() > 0:  # GB0170: y.sum() > 0
        y = y + 1
    return y


def whole(x):
    return (x + 1, "é", graph_break())[0]  # GB0025: graph_break()


def in_thread(x):
    return (x + 2, "é", graph_break())[0]  # GB0025: graph_break()


def in_another_thread(x):
    return (x + 3, "é", graph_break())[0]  # GB0025: graph_break()


def in_the_old_way(x):
    return (x + 4, "é", graph_break())[0]  # GB0025: graph_break()


class CompiledInPlace(torch.nn.Module):
    def forward(self, x):
        return (x + 5, "é", graph_break())[0]  # GB0025: graph_break()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x * 2

    @staticmethod
    def backward(_ctx, grad):
        return (grad * 2, "é", print("gradient", grad.shape))[0]  # GB0059: print("gradient", grad.shape)


def hook(grad):
    return ("é", graph_break(), grad * 2)[2]  # GB0025: graph_break()


CELL = """
def in_cell(x):
    return (x + 6, "é", graph_break())[0]
"""


def threads(x):
    started = [threading.Thread(target=run, args=(fn, x)) for fn in (in_thread, in_another_thread)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()


def cells(x):
    """Code without a source, and code whose source only `linecache` knows, as in a notebook."""
    for name in ("<made>", "<cell 1>"):
        spaces = {"graph_break": graph_break}
        if name == "<cell 1>":
            linecache.cache[name] = (len(CELL), None, CELL.splitlines(keepends=True), name)
        exec(compile(CELL, name, "exec"), spaces)
        run(spaces["in_cell"], x)


def backward():
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        x = torch.ones(3, requires_grad=True)
        y = Doubled.apply(x) * 2
        y.register_hook(hook)
        y.sum().backward()
    print("done", x.grad)


def main():
    x = torch.ones(3)
    inline = (before_first_op, in_for, in_while, in_with, in_try, in_generator, in_comprehension)
    for fn in (*inline, nested, takes_callback, Derived(), in_lambda, wrapped, branch):
        run(fn, x)
    try:
        run(whole, x, fullgraph=True)
    except torch._dynamo.exc.Unsupported as error:
        print("refused:", str(error).splitlines()[0])
    threads(x)
    torch._dynamo.optimize("eager")(in_the_old_way)(x)
    net = CompiledInPlace()
    net.compile(backend="eager")
    net(x)
    cells(x)
    backward()


if __name__ == "__main__":
    main()
