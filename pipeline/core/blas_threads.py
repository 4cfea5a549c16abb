"""One thread for BLAS and OpenMP while results are computed.

With more threads these libraries split sums differently, so the last bits of a result depend on the number of threads.
On the small matrices of this package threads also cost more time than they save.
"""

from __future__ import annotations

import sys
from contextlib import ContextDecorator, ExitStack
from threading import Lock
from typing import Self

from threadpoolctl import ThreadpoolController


class _OneThread(ContextDecorator):
    """Limit all loaded libraries, and restore their limits when the last user leaves.

    The limits belong to the process, not to a thread: users are counted, and only the first and the last change them.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._n_modules = 0
        self._libraries: ThreadpoolController
        self._limits = ExitStack()

    def __enter__(self) -> Self:
        with self._lock:
            # Finding the libraries takes milliseconds. Only an import can have loaded another one.
            stale = len(sys.modules) != self._n_modules
            if stale:
                self._libraries, self._n_modules = ThreadpoolController(), len(sys.modules)
            if stale or not self._users:
                self._limits.enter_context(self._libraries.limit(limits=1))
            self._users += 1
        return self

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limits.close()


one_thread = _OneThread()
"""Context manager and decorator; nested use is cheap."""
