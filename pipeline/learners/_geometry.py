"""Everything a learner measures on its training samples, in one pass over their distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.learners import _checks
from pipeline.learners._arrays import Floats, Integers
from pipeline.learners._graphs import (
    DistanceRows,
    EuclideanRows,
    Graph,
    KernelRows,
    TableBuilder,
    random_halves,
    row_blocks,
)
from pipeline.learners._kernels import (
    KERNELS,
    Gram,
    LowRankGram,
    Nystroem,
    dense_gram,
    fitted_kernel,
)
from pipeline.learners.kernel_classifier import Kernel

DENSE_LIMIT = 8_000
"""Samples up to which the full kernel matrix (256 MB there) is used by default."""
USUAL_RANK = 500


@dataclass(frozen=True, slots=True)
class Neighbourhoods:
    """Who may be whose neighbour, in which graph, and how many of them count."""

    classes: Integers
    groups: Integers
    halves: Integers | None
    """Random bipartitions, or None for the leave-one-out graph."""
    n_neighbors: int

    @classmethod
    def choose(
        cls,
        classes: Integers,
        groups: Integers,
        *,
        graph: str,
        n_partitions: int,
        n_neighbors: int | None,
        rng: np.random.RandomState,
    ) -> Neighbourhoods:
        """Draw the partitions and settle the number of neighbours, or say why it cannot be had."""
        halves = random_halves(groups, classes, n_partitions, rng) if graph == "bipartite" else None
        available = _fewest_neighbours(classes, groups, halves)
        what = f"every sample has in the {graph} graph" + ("" if classes.max() == 0 else " of its class")
        return cls(classes, groups, halves, _checks.neighbour_count(n_neighbors, available, what))

    def builder(self) -> TableBuilder:
        # Half of the listed neighbours are on the other side of a cut; four times as many nearly always suffice.
        depth = self.n_neighbors + 1 if self.halves is None else 4 * self.n_neighbors + 8
        return TableBuilder(self.classes, self.groups, depth)

    def graph(self, rows: DistanceRows, builder: TableBuilder | None = None) -> Graph:
        """The neighbour graph; `builder` already holds the table where the rows have been visited."""
        if builder is None:
            builder = self.builder()
            for start, squared in row_blocks(rows):
                builder.add(start, squared)
        return Graph(rows, builder.table(), self.classes, self.groups)

    def edge_lengths(self, graph: Graph) -> tuple[Floats, Floats]:
        """Mean and largest neighbour distance of each sample in the chosen graph."""
        if self.halves is None:
            return graph.leave_one_out(self.n_neighbors)
        return graph.bipartite(self.n_neighbors, self.halves)


def _fewest_neighbours(classes: Integers, groups: Integers, halves: Integers | None) -> int:
    """The smallest number of allowed neighbours that any sample has."""
    fewest = len(classes)
    for z in np.unique(classes):
        members = np.flatnonzero(classes == z)
        if halves is None:
            largest_group = np.unique(groups[members], return_counts=True)[1].max()
            fewest = min(fewest, len(members) - int(largest_group))
        else:
            ones = halves[:, members].sum(axis=1)
            fewest = min(fewest, int(np.minimum(ones, len(members) - ones).min()))
    return fewest


@dataclass(frozen=True, slots=True)
class Geometry:
    """The kernel, its Gram matrix and, where asked for, the neighbour graph of the training samples."""

    kernel: Kernel
    gram: Gram
    nystroem: Nystroem | None
    graph: Graph | None


def distance_rows(X: Floats, kernel_name: str) -> DistanceRows:
    return KernelRows(X) if kernel_name == "precomputed" else EuclideanRows(X)


def measure(
    X: Floats,
    *,
    kernel: str,
    gamma: str | float,
    kernel_rank: str | int | None,
    rng: np.random.RandomState,
    neighbourhoods: Neighbourhoods | None = None,
) -> Geometry:
    """Kernel and graph of checked training samples."""
    fitted = fitted_kernel(kernel, gamma, X, rng)
    rows = distance_rows(X, kernel)
    rank = _rank(kernel_rank, len(X))
    if rank is not None:
        nystroem = Nystroem.choose(fitted, X, rank, rng)
        graph = None if neighbourhoods is None else neighbourhoods.graph(rows)
        return Geometry(fitted, LowRankGram(nystroem.factor(fitted, X)), nystroem, graph)
    builder = None if neighbourhoods is None else neighbourhoods.builder()
    gram = dense_gram(fitted, X, rows, builder)
    graph = None if neighbourhoods is None else neighbourhoods.graph(rows, builder)
    return Geometry(fitted, gram, None, graph)


def _rank(kernel_rank: str | int | None, n_samples: int) -> int | None:
    if kernel_rank == "auto":
        return USUAL_RANK if n_samples > DENSE_LIMIT else None
    if kernel_rank is None:
        return None
    return min(int(kernel_rank), n_samples)


def check_kernel(kernel: Any, gamma: Any, kernel_rank: Any) -> None:
    """Refuse unknown kernels, widths and ranks."""
    _checks.one_of(kernel, "kernel", KERNELS)
    if isinstance(gamma, str):
        _checks.one_of(gamma, "gamma", ("median", "scale"))
    else:
        _checks.number(gamma, "gamma", above=0, cure="give a positive width, 'median' or 'scale'")
    if isinstance(kernel_rank, str):
        _checks.one_of(kernel_rank, "kernel_rank", ("auto",))
    elif kernel_rank is not None:
        _checks.whole_number(
            kernel_rank, "kernel_rank", least=1, cure="give the number of landmarks, 'auto', or None for all"
        )


def check_graph(graph: Any, n_partitions: Any, n_neighbors: Any) -> None:
    _checks.one_of(graph, "graph", ("bipartite", "leave-one-out"))
    _checks.whole_number(n_partitions, "n_partitions", least=1, most=10, cure="5 is usual")
    if n_neighbors is not None:
        _checks.whole_number(n_neighbors, "n_neighbors", least=1, cure="5 is usual; None chooses")
