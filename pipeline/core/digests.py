"""A SHA-256 that can be interrupted and gone on with elsewhere, which that of `hashlib` cannot."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import ClassVar

_BLOCK = 64
_WORD = 0xFFFFFFFF
_PRIMES = [n for n in range(2, 312) if all(n % k for k in range(2, isqrt(n) + 1))]
_CONSTANTS = [int(prime ** (1 / 3) % 1 * 2**32) for prime in _PRIMES]
_BEGINNING = tuple(isqrt(prime << 64) & _WORD for prime in _PRIMES[:8])

Words = tuple[int, ...]


@dataclass(slots=True)
class Sha256:
    """The state is eight words, what fills no block yet, and how many bytes there were."""

    remembers: ClassVar = ("words", "pending", "length")

    words: Words = _BEGINNING
    pending: bytes = b""
    length: int = 0

    def update(self, data: bytes) -> None:
        self.length += len(data)
        data = self.pending + data
        whole = len(data) - len(data) % _BLOCK
        self.words, self.pending = _compress(self.words, data[:whole]), data[whole:]

    def hexdigest(self) -> str:
        zeros = bytes(-(len(self.pending) + 9) % _BLOCK)
        end = self.pending + b"\x80" + zeros + (8 * self.length).to_bytes(8, "big")
        return "".join(f"{word:08x}" for word in _compress(self.words, end))


def compressed_slowly(words: Words, blocks: bytes) -> Words:
    """FIPS 180-4, section 6.2.2, for a Python whose OpenSSL cannot be reached."""
    for start in range(0, len(blocks), _BLOCK):
        words = _one_block(words, blocks[start : start + _BLOCK])
    return words


def _one_block(words: Words, block: bytes) -> Words:
    w = [int.from_bytes(block[k : k + 4], "big") for k in range(0, _BLOCK, 4)]
    for t in range(16, 64):
        small = _turned(w[t - 15], 7) ^ _turned(w[t - 15], 18) ^ w[t - 15] >> 3
        large = _turned(w[t - 2], 17) ^ _turned(w[t - 2], 19) ^ w[t - 2] >> 10
        w.append((large + w[t - 7] + small + w[t - 16]) & _WORD)
    a, b, c, d, e, f, g, h = words
    for constant, word in zip(_CONSTANTS, w, strict=True):
        chosen = h + (_turned(e, 6) ^ _turned(e, 11) ^ _turned(e, 25)) + (e & f ^ ~e & g) + constant + word
        majority = (_turned(a, 2) ^ _turned(a, 13) ^ _turned(a, 22)) + (a & b ^ a & c ^ b & c)
        a, b, c, d, e, f, g, h = (chosen + majority) & _WORD, a, b, c, (d + chosen) & _WORD, e, f, g
    return tuple((old + new) & _WORD for old, new in zip(words, (a, b, c, d, e, f, g, h), strict=True))


def _turned(word: int, by: int) -> int:
    return (word >> by | word << 32 - by) & _WORD


def _openssl() -> Callable[[Words, bytes], Words] | None:
    """OpenSSL's, by the library that Python's own `hashlib` is linked to: a thousand times as fast."""
    try:
        import _hashlib

        update = ctypes.CDLL(_hashlib.__file__).SHA256_Update
    except (ImportError, OSError, AttributeError):
        return None
    update.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)

    def compressed(words: Words, blocks: bytes) -> Words:
        context = (ctypes.c_uint32 * 28)(*words)  # behind the words: lengths and a part of a block, of which is none
        update(context, blocks, len(blocks))
        return tuple(context[:8])

    return compressed


_compress = _openssl() or compressed_slowly
