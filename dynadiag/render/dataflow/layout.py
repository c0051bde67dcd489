"""Where the boxes and lines of a directed acyclic graph stand: a layered layout.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures"
(1981): layers, order within a layer, coordinates. Lines run in the channels between layers, as wires in the channel
routing of Hashimoto and Stevens (1971): each source has a row of the channel, and two sources never share a cell but
where they cross. docs/notes/graph-layout.md says why no library does this.

A unit is a cell of a terminal. y grows downwards.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from dynadiag.grouping import grouped, reached

Corner = tuple[int, int]

_GAP = 2  # columns between two boxes
_SWEEPS = 8  # passes over the layers, for the order and for the columns; more change little
_LINE_WEIGHT = 6.0  # a long line stays straight sooner than a box stays above its neighbours
_FREE_WEIGHT = 0.01  # a vertex without neighbours in the other layer gives way
_PORTS = (0, 1, -1, 2, -2)  # columns where a line may enter a box, from its middle


@dataclass(frozen=True, slots=True)
class Rectangle:
    """The place of a box."""

    x: int
    y: int
    width: int
    height: int

    @property
    def middle(self) -> int:
        """The column in which lines leave the box."""
        return self.x + self.width // 2


@dataclass(frozen=True, slots=True)
class Layout:
    """The place of each box, and the corners of the line of each edge, from the source's lower edge to the target."""

    boxes: Mapping[str, Rectangle]
    lines: Mapping[tuple[str, str], tuple[Corner, ...]]
    width: int
    height: int


@dataclass(slots=True)
class _Vertex:
    """A box, or a place where a long line passes a layer (``name`` is ``None``).

    ``left`` and ``right`` are its columns on both sides of its middle, ``place`` counts the vertices before it in its
    layer.
    """

    name: str | None
    layer: int
    width: int
    height: int
    upper: list[_Vertex]
    lower: list[_Vertex]
    x: int = 0  # the column of its middle
    entry: int = 0  # the column in which lines enter it
    place: int = 0
    left: int = field(init=False)
    right: int = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.width // 2
        self.right = self.width - self.left


def lay_out(sizes: Mapping[str, tuple[int, int]], edges: Iterable[tuple[str, str]]) -> Layout:
    """Lay out boxes of these widths and heights. ``sizes`` is in a topological order; other edges are left out."""
    order = {name: number for number, name in enumerate(sizes)}
    pairs = [(source, target) for source, target in dict.fromkeys(edges) if order[source] < order[target]]
    layers, paths = _build_layers(sizes, pairs)
    _order_layers(layers)
    _assign_columns(layers)
    return _make_layout(layers, paths)


# Layers


def _assign_layers(names: Iterable[str], edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The layer of each box: below all that it reads. A box that reads nothing is right above its first user."""
    users: dict[str, list[str]] = {name: [] for name in names}
    inner = set()
    for source, target in edges:
        users[source].append(target)
        inner.add(target)
    layer_of = dict.fromkeys(users, 0)
    for name, targets in users.items():
        for target in targets:
            layer_of[target] = max(layer_of[target], layer_of[name] + 1)
    for name, targets in users.items():
        if name not in inner and targets:
            layer_of[name] = min(layer_of[target] for target in targets) - 1
    return layer_of


def _build_layers(
    sizes: Mapping[str, tuple[int, int]], edges: Sequence[tuple[str, str]]
) -> tuple[list[list[_Vertex]], dict[tuple[str, str], list[_Vertex]]]:
    """The vertices of each layer, and those that the line of each edge passes."""
    layer_of = _assign_layers(sizes, edges)
    layers: list[list[_Vertex]] = [[] for _ in range(max(layer_of.values(), default=-1) + 1)]
    boxes = {name: _Vertex(name, layer_of[name], *size, [], []) for name, size in sizes.items()}
    for vertex in boxes.values():
        layers[vertex.layer].append(vertex)
    paths: dict[tuple[str, str], list[_Vertex]] = {}
    for source, found in grouped(edges).items():
        paths |= _connect(boxes[source], [boxes[name] for name in found], layers)
    return layers, paths


def _connect(
    source: _Vertex, targets: Sequence[_Vertex], layers: Sequence[list[_Vertex]]
) -> dict[tuple[str, str], list[_Vertex]]:
    """Connect a box with its users. Lines to several layers share the way to the first."""
    passed, paths = [source], {}
    for target in sorted(targets, key=lambda vertex: vertex.layer):
        while passed[-1].layer < target.layer - 1:
            dummy = _Vertex(None, passed[-1].layer + 1, 1, 1, [], [])
            layers[dummy.layer].append(dummy)
            _join(passed[-1], dummy)
            passed.append(dummy)
        before = [vertex for vertex in passed if vertex.layer < target.layer]
        _join(before[-1], target)
        paths[source.name or "", target.name or ""] = [*before, target]
    return paths


def _join(upper: _Vertex, lower: _Vertex) -> None:
    upper.lower.append(lower)
    lower.upper.append(upper)


# The order within a layer


def _order_layers(layers: list[list[_Vertex]]) -> None:
    """Order each layer by the barycenters of its neighbours, down and up in turn. The order with the fewest crossings
    is kept.
    """
    best, fewest = [list(layer) for layer in layers], _crossings(layers)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        _sort_by_barycenter(layers if sweep % 2 == 0 else layers[::-1], down=sweep % 2 == 0)
        count = _crossings(layers)
        if count < fewest:
            best, fewest = [list(layer) for layer in layers], count
    layers[:] = best


def _sort_by_barycenter(layers: Sequence[list[_Vertex]], *, down: bool) -> None:
    """Sort the vertices of each layer by the mean position of their neighbours in the layer before."""
    for fixed, layer in pairwise(layers):
        _number(fixed)
        _number(layer)
        means = {}
        for vertex in layer:
            near = vertex.upper if down else vertex.lower
            means[id(vertex)] = sum(other.place for other in near) / len(near) if near else vertex.place
        layer.sort(key=lambda vertex, means=means: means[id(vertex)])  # type: ignore[misc]


def _number(layer: Sequence[_Vertex]) -> None:
    for number, vertex in enumerate(layer):
        vertex.place = number


def _crossings(layers: Sequence[Sequence[_Vertex]]) -> int:
    """How often two lines between neighbouring layers cross."""
    count = 0
    for upper, lower in pairwise(layers):
        _number(lower)
        seen: list[int] = []  # where the lines of the vertices so far end, in order
        for vertex in upper:
            ends = [other.place for other in vertex.lower]
            last = seen[-1] if seen else 0
            count += sum(len(seen) - bisect_right(seen, end) for end in ends if end < last)
            for end in ends:
                insort(seen, end)
    return count


# Columns


def _assign_columns(layers: Sequence[Sequence[_Vertex]]) -> None:
    """Put each vertex near the median of its neighbours, and keep the order."""
    for layer in layers:
        _place_layer(layer, [0.0] * len(layer), [1.0] * len(layer))
    for sweep in range(_SWEEPS + 1):
        for layer in layers if sweep % 2 == 0 else layers[::-1]:
            near = [vertex.upper if sweep % 2 == 0 else vertex.lower for vertex in layer]
            wanted = [_median(others) if others else vertex.x for vertex, others in zip(layer, near, strict=True)]
            _place_layer(layer, wanted, [_weight(*pair) for pair in zip(layer, near, strict=True)])


def _median(near: Sequence[_Vertex]) -> float:
    """The median column. Most vertices have one neighbour."""
    return near[0].x if len(near) == 1 else median(other.x for other in near)


def _weight(vertex: _Vertex, near: Sequence[_Vertex]) -> float:
    return _FREE_WEIGHT if not near else _LINE_WEIGHT if vertex.name is None else 1.0


def _place_layer(layer: Sequence[_Vertex], wanted: Sequence[float], weights: Sequence[float]) -> None:
    """Put the vertices of a layer as near to the `wanted` columns as their widths allow (weighted least squares).

    Without its share of the widths to its left, a column must not be less than the one before: that is an isotonic
    regression, which pools neighbours that are out of order.
    """
    offsets: list[int] = []
    pools: list[tuple[float, float, int]] = []  # a pool: its mean, its weight, its number of vertices
    for number, vertex in enumerate(layer):
        before = layer[number - 1] if number else None
        offsets.append(offsets[-1] + before.right + _GAP + vertex.left if before else 0)
        pool = (wanted[number] - offsets[-1], weights[number], 1)
        while pools and pools[-1][0] > pool[0]:
            mean, weight, count = pools.pop()
            total = weight + pool[1]
            pool = ((mean * weight + pool[0] * pool[1]) / total, total, count + pool[2])
        pools.append(pool)
    means = [round(mean) for mean, _, count in pools for _ in range(count)]
    for vertex, mean, offset in zip(layer, means, offsets, strict=True):
        vertex.x = mean + offset


# Lines


def _make_layout(layers: Sequence[Sequence[_Vertex]], paths: Mapping[tuple[str, str], Sequence[_Vertex]]) -> Layout:
    """The boxes with their rows, and the lines through the channels between the layers."""
    shift = -min((vertex.x - vertex.left for layer in layers for vertex in layer), default=0)
    for layer in layers:
        for vertex in layer:
            vertex.x += shift
    _choose_entries(layers)
    rows: dict[int, int] = {}  # by the vertex above a channel: the row of its lines
    boxes: dict[str, Rectangle] = {}
    y = 0
    for layer in layers:
        for vertex in layer:
            if vertex.name is not None:
                boxes[vertex.name] = Rectangle(vertex.x - vertex.left, y, vertex.width, vertex.height)
        y += max(vertex.height for vertex in layer)
        tracks = _tracks(layer)
        rows |= {vertex: y + track for vertex, track in tracks.items()}
        y += max(tracks.values(), default=0) + 2
    lines = {edge: _corners(path, rows, boxes) for edge, path in paths.items()}
    width = max((vertex.x + vertex.right for layer in layers for vertex in layer), default=0)
    return Layout(boxes, lines, width, max((box.y + box.height for box in boxes.values()), default=0))


def _choose_entries(layers: Sequence[Sequence[_Vertex]]) -> None:
    """Where lines enter each box: below no source of the layer above that it does not read.

    A box below one of its sources is entered there, in a straight line, unless that makes a cycle of vertical
    constraints.
    """
    for upper, lower in pairwise([[], *layers]):
        sources = {vertex.x: id(vertex) for vertex in upper if vertex.lower}
        for vertex in lower:
            vertex.entry = vertex.x
            if vertex.name is not None:
                own = {id(other) for other in vertex.upper}
                _choose_entry(vertex, {column for column, source in sources.items() if source not in own})
        while cycles := [vertex for vertex in _targets_in_cycles(_nets(upper)) if vertex.entry in sources]:
            if not any(_choose_entry(vertex, sources.keys()) for vertex in cycles):
                break


def _choose_entry(vertex: _Vertex, taken: Set[int]) -> bool:
    """Let lines enter a box, or pass a layer, in a column that is not taken. Returns whether there is one."""
    reach = vertex.left if vertex.name is not None else _GAP  # a line stays between its neighbours
    free = [vertex.x + port for port in _PORTS if abs(port) < reach and vertex.x + port not in taken]
    if free:
        vertex.entry = free[0]
        if vertex.name is None:
            vertex.x = free[0]
    return bool(free)


@dataclass(frozen=True, slots=True)
class _Net:
    """The lines that share a row of a channel, because they come from one vertex or go to one box.

    ``starts`` and ``ends`` are the columns in which they enter and leave the channel.
    """

    sources: tuple[_Vertex, ...]
    starts: frozenset[int]
    ends: frozenset[int]


def _nets(layer: Sequence[_Vertex]) -> list[_Net]:
    """The nets of the lines that turn in the channel below a layer."""
    found: dict[int, list[_Vertex]] = {}
    for vertex in layer:
        if any(other.entry != vertex.x for other in vertex.lower):
            found.setdefault(id(vertex.lower[0] if len(vertex.lower) == 1 else vertex), []).append(vertex)
    return [
        _Net(
            tuple(sources),
            frozenset(vertex.x for vertex in sources),
            frozenset(other.entry for vertex in sources for other in vertex.lower),
        )
        for sources in found.values()
    ]


def _vertical_constraints(nets: Sequence[_Net]) -> list[list[int]]:
    """For each net the numbers of the nets that need a row above it: they start in a column in which it ends."""
    coming = grouped((column, number) for number, net in enumerate(nets) for column in net.starts)
    return [
        [other for column in net.ends for other in coming.get(column, ()) if other != number]
        for number, net in enumerate(nets)
    ]


def _targets_in_cycles(nets: Sequence[_Net]) -> list[_Vertex]:
    """The targets of nets in a cycle of vertical constraints. Nets to the same boxes do not count: they share cells."""
    above = _vertical_constraints(nets)
    before = [_nets_above(number, above) for number in range(len(nets))]
    cycles = [{other for other in before[number] if number in before[other]} for number in range(len(nets))]
    blocked = {one for cycle in cycles if len({nets[each].ends for each in cycle}) > 1 for one in cycle}
    return [vertex for one in blocked for source in nets[one].sources for vertex in source.lower]


def _first_cycle(waiting: Sequence[int], above: Sequence[Sequence[int]], done: Collection[int]) -> list[int]:
    """The nets that wait for the fewest nets, themselves included: a cycle that waits for no other cycle."""
    waits = {number: len(_nets_above(number, above, done) | {number}) for number in waiting}
    fewest = min(waits.values())
    return [number for number, count in waits.items() if count == fewest]


def _nets_above(number: int, above: Sequence[Sequence[int]], done: Collection[int] = ()) -> set[int]:
    """The nets that have to be above a net, by one constraint or several, without those that are done."""

    def left(one: int) -> Iterator[int]:
        return (other for other in above[one] if other not in done)

    return reached(left(number), left)


def _tracks(layer: Sequence[_Vertex]) -> dict[int, int]:
    """The row in the channel below a layer for each vertex (by its id) whose lines turn there."""
    nets = _nets(layer)
    above = _vertical_constraints(nets)
    found: dict[int, int] = {}
    taken: list[list[tuple[int, int]]] = []
    waiting = list(range(len(nets)))
    while waiting:
        ready = [one for one in waiting if all(other in found for other in above[one])]
        number = min(ready or _first_cycle(waiting, above, found), key=lambda one: min(nets[one].starts))
        waiting.remove(number)
        columns = nets[number].starts | nets[number].ends
        first, last = min(columns), max(columns)
        track = max((found[other] + 1 for other in above[number] if other in found), default=0)
        while track < len(taken) and any(first <= end and start <= last for start, end in taken[track]):
            track += 1
        taken += [[] for _ in range(track + 1 - len(taken))]
        taken[track].append((first, last))
        found[number] = track
    return {id(vertex): found[number] for number, net in enumerate(nets) for vertex in net.sources}


def _corners(path: Sequence[_Vertex], rows: Mapping[int, int], boxes: Mapping[str, Rectangle]) -> tuple[Corner, ...]:
    first, last = boxes[path[0].name or ""], boxes[path[-1].name or ""]
    points = [(path[0].x, first.y + first.height - 1)]
    for upper, lower in pairwise(path):
        if lower.entry != upper.x:
            points += [(upper.x, rows[id(upper)]), (lower.entry, rows[id(upper)])]
    return (*points, (path[-1].entry, last.y))
