"""The sensors' own properties: gain, lowest frequency, self-noise and 16-bit conversion."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.core.events import Samples
from pipeline.simulation.faults import LSB
from pipeline.simulation.propagation import Floats

FULL_SCALE_PA = 1.0  # 94 dB
SELF_NOISE_DB = 18.0
_LOWEST_HZ = 25.0


def response(size: int, rate_hz: int) -> NDArray[np.complex128]:
    """Return the frequency response of a microphone at the `size // 2 + 1` frequencies of a real transform."""
    ratio = 1j * np.arange(size // 2 + 1) * rate_hz / size / _LOWEST_HZ
    passed: NDArray[np.complex128] = ratio**2 / (1 + np.sqrt(2) * ratio + ratio**2)
    return passed


def converted(sound: Floats | Samples) -> Samples:
    """Round to 16 bits and clip at full scale."""
    return np.clip(np.rint(sound / LSB), -(2**15), 2**15 - 1).astype(np.float32) * np.float32(LSB)
