"""Decimal digits of many numbers at once: eight characters per 64-bit word, the first in the lowest byte."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

WORD = 8
"""Characters per word."""

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


def digit_count(words: Words) -> Ints:
    """How many of the characters of each word are digits, up to the first that is none."""
    digits = words ^ np.uint64(0x3030303030303030)
    above_nine = ((digits + np.uint64(0x7676767676767676)) | digits) & np.uint64(0x8080808080808080)
    lowest = above_nine & (~above_nine + np.uint64(1))
    # Of 2^7, 2^15 … the logarithm is exact; no bit at all means that every character is a digit.
    bit = np.log2(np.where(lowest == 0, np.uint64(1 << 63), lowest).astype(np.float64)).astype(np.int64)
    return np.where(lowest == 0, WORD, bit >> 3)


def digit_value(words: Words, count: Ints) -> Ints:
    """The number that the first ``count`` characters of each word spell; they are digits."""
    digits = words ^ np.uint64(0x3030303030303030)
    shift = ((WORD - count) * 8).astype(np.uint64)
    # A shift by all 64 bits is undefined; no digits are worth 0.
    pairs = np.where(count > 0, digits << (shift & np.uint64(63)), np.uint64(0))
    pairs = (pairs * np.uint64(10) + (pairs >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    fours = (pairs * np.uint64(100) + (pairs >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    value: Ints = ((fours * np.uint64(10000) + (fours >> np.uint64(32))) & np.uint64(0xFFFFFFFF)).astype(np.int64)
    return value
