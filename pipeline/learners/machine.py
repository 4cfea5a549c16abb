"""What remains of a kernel classifier at prediction time, for those who store or load it."""

from pipeline.learners._discriminant import Discriminant
from pipeline.learners._kernels import Kernel

__all__ = ["Discriminant", "Kernel"]
