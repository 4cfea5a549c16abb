"""How large is what a stage remembers?"""

from __future__ import annotations

import sys
from collections import deque

import numpy as np


def size_of(thing: object, seen: set[int] | None = None) -> int:
    """Bytes held by an object and all it refers to; a view counts as the array it shows."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, type):
        return 0
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        return thing.nbytes if thing.base is None else size_of(thing.base, seen)
    total = sys.getsizeof(thing)
    if isinstance(thing, dict):
        return total + sum(size_of(value, seen) for value in thing.values())
    if isinstance(thing, list | tuple | set | frozenset | deque):
        return total + sum(size_of(value, seen) for value in thing)
    slots = [getattr(thing, name) for name in getattr(type(thing), "__slots__", ()) if hasattr(thing, name)]
    return total + size_of(getattr(thing, "__dict__", {}), seen) + sum(size_of(value, seen) for value in slots)
