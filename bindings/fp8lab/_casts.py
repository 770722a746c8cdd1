# SPDX-License-Identifier: Apache-2.0
"""Casts between floats and codes, with the tables of formats, profiles and roundings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fp8lab import _core
from fp8lab._arrays import (
    Array,
    apart,
    as_array,
    as_codes,
    as_floats,
    as_format,
    as_profile,
    check_choice,
    check_int,
    check_real,
    check_threads,
    check_unread,
    code_dtype,
    contiguous,
    empty,
    fill,
    output,
)
from fp8lab._core import Format, Profile
from fp8lab._entry import guard as _guard
from fp8lab._values import equal
from fp8lab.literals import FormatName, ProfileName, RandomSharingName, RoundingName

__all__ = [
    "ChainDifferences",
    "cast_to_representable",
    "chain_differences",
    "decode",
    "encode",
    "formats",
    "pack_pairs",
    "profiles",
    "roundings",
    "unpack_pairs",
]

_ROUNDINGS = tuple(_core.roundings())


def formats() -> list[Format]:
    """The formats that there are; ``str()`` of each explains it. ``Format(...)`` makes one of your own.

    Sources: OCP 8-bit Floating Point Specification 1.0, OCP Microscaling Formats 1.0.
    """
    return _core.formats()


def profiles() -> list[Profile]:
    """The named rules for overflow, infinity, NaN, zero, sign and float64; ``str()`` of each explains it and names its
    source.

    One named after a package gives the package's codes from every source type, on the version that its source begins
    with.

    ``Profile(...)`` makes one of your own.
    """
    return _core.profiles()


def roundings() -> list[str]:
    """The names of the rounding modes."""
    return list(_ROUNDINGS)


def _rounding(value: Any, argument: str) -> str | None:
    return None if value is None else check_choice(value, argument, _ROUNDINGS)


def _random_bits(bits: Any, count: Any, sharing: str, size: int) -> tuple[Array | None, int | None]:
    """The random words as a flat contiguous array, and how many bits of each count."""
    if bits is None:
        if count is not None or sharing != "none":
            raise ValueError("random_count and random_sharing need random_bits")
        return None, None
    words, name = as_array(bits, "random_bits")
    if name not in ("uint8", "uint16", "uint32") or (sharing == "ptx" and name != "uint32"):
        allowed = "uint32" if sharing == "ptx" else "uint8, uint16 or uint32"
        raise TypeError(f"random_bits must be {allowed}, not {name}")
    if sharing == "none" and words.size != size:
        raise ValueError(f"random_bits must have as many elements as x, {size}, not {words.size}")
    if sharing == "ptx" and count is not None:
        raise ValueError("random_count is fixed by random_sharing 'ptx'")
    return contiguous(words), None if count is None else check_int(count, "random_count", 0, 8 * words.itemsize)


def encode(
    x: Any,
    format: FormatName | Format,
    *,
    profile: ProfileName | Profile = "cuda_satfinite",
    rounding: RoundingName | None = None,
    random_bits: Any = None,
    random_count: int | None = None,
    random_sharing: RandomSharingName = "none",
    via: FormatName | Format | None = None,
    via_profile: ProfileName | Profile | None = None,
    via_rounding: RoundingName | None = None,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """Encode numbers as codes of a small format, each rounded once from its own precision.

    Profiles with ``float64_via_float32``, those of packages that do so, round float64 to float32 first.

    Parameters
    ----------
    x : array_like of float32, float64, float16 or bfloat16
        NumPy, ml_dtypes or torch. Read in place where it is C-contiguous, copied otherwise.
    format : str or Format
        One of ``formats()``, or a ``Format`` of your own.
    profile : str or Profile
        One of ``profiles()``, or a ``Profile`` of your own: what overflow, infinities, NaN, zero and signs become.
    rounding : str, optional
        One of ``roundings()``; the profile's own if left out, which is ``nearest_even`` for all but some ``e8m0_``
        ones.
    random_bits : array_like of uint8, uint16 or uint32, of x's size
        For ``stochastic`` rounding, which rounds away from zero where the part cut off, as a fraction of a unit in the
        last place, plus ``random_bits / 2**random_count`` is 1 or more.
    random_count : int, optional
        The number of low bits of each random word that count; all of them if left out.
    random_sharing : str
        ``none``: a word an element. ``ptx``: uint32 words, shared out to neighbours as by PTX's ``cvt.rs``: one for
        four elements (two of 16-bit formats), 16 bits for each pair, 8 bits an element for E2M1, 13 for float16.
    via : str or Format, optional
        Round to this format first, as software does that converts to float16 or bfloat16 on the way; float32 and
        float64 only. ``chain_differences`` counts what that changes.
    via_profile, via_rounding
        The policy of that first cast: the profile ``ieee`` and its rounding if left out.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray of uint8 (uint16 for formats of more than 8 bits), optional
        Where to write, of x's shape and C-contiguous. Inputs that overlap it are copied first.

    Returns
    -------
    ndarray of uint8 (uint16 for formats of more than 8 bits)
        The codes, of x's shape; ``out`` where it is given.

    Raises
    ------
    TypeError
        For other element types; the message names the argument.
    ValueError
        For unknown names (the message lists the known ones), a wrong shape of ``out``, threads < 1, random bits that
        are missing, too few or not needed, and options of a first cast without ``via``.
    """
    array, source = as_floats(x, "x") if via is None else _as_chain_floats(x)
    own = as_format(format, "format")
    policy = as_profile(profile, "profile")
    mode = None if rounding is None else _rounding(rounding, "rounding")
    words, count = None, None
    is_plain = random_bits is random_count is None and type(random_sharing) is str and random_sharing == "none"
    if not is_plain:
        sharing = check_choice(random_sharing, "random_sharing", ("none", "ptx"))
        words, count = _random_bits(random_bits, random_count, sharing, array.size)
    number = check_threads(threads, array.size)
    dtype = code_dtype(own, format)
    if out is None:
        result = empty(array.shape, dtype)
    else:
        result = output(out, array.shape, dtype)
        array, words = apart(array, result), None if words is None else apart(words, result)
    if via is None:
        if via_profile is not None or via_rounding is not None:
            check_unread("via", via_profile=via_profile, via_rounding=via_rounding)
        _core.encode(array, source, result, own, policy, mode, words, count, random_sharing == "ptx", number)
        return result
    if words is not None:
        raise ValueError("random_bits and via cannot be combined: encode twice instead")
    _check_end_of_chain(own)
    first = as_format(via, "via")
    first_policy = as_profile("ieee" if via_profile is None else via_profile, "via_profile")
    first_mode = _rounding(via_rounding, "via_rounding")
    _core.encode_via(array, source, result, own, policy, mode, first, first_policy, first_mode, number)
    return result


def _as_chain_floats(x: Any) -> tuple[Array, str]:
    """What as_floats() makes of an array that can be rounded to 16 bits first."""
    array, source = as_array(x, "x")
    if source not in ("float32", "float64"):
        raise TypeError(f"x must be float32 or float64 for a chain of casts, not {source}")
    return contiguous(array), source


def _check_end_of_chain(format: Format) -> None:
    if format.bits > 8:
        raise ValueError(f"format must have at most 8 bits at the end of a chain of casts, not {format.bits}")


@dataclass(frozen=True, eq=False)
class ChainDifferences:
    """Where a chain of casts differs from the direct cast."""

    total: int
    """Elements compared."""
    count: int
    """Elements whose codes differ."""
    indices: Array
    """Flat indices of the first of them."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChainDifferences) and equal(vars(self), vars(other))


def chain_differences(
    x: Any,
    format: FormatName | Format,
    *,
    via: FormatName | Format,
    profile: ProfileName | Profile = "cuda_satfinite",
    rounding: RoundingName | None = None,
    via_profile: ProfileName | Profile = "ieee",
    via_rounding: RoundingName | None = None,
    most: int = 8,
    threads: int | None = None,
) -> ChainDifferences:
    """Count and locate the elements whose codes differ when they are rounded to ``via`` first.

    Parameters
    ----------
    x : array_like of float32 or float64
    format, profile, rounding, via, via_profile, via_rounding, threads
        As for ``encode``.
    most : int
        How many of the elements that differ are located.

    Returns
    -------
    ChainDifferences
        ``total``, ``count`` and ``indices`` (flat, ascending).

    Raises
    ------
    TypeError, ValueError
        As ``encode`` does.
    """
    array, source = _as_chain_floats(x)
    own = as_format(format, "format")
    _check_end_of_chain(own)
    count, indices = _core.chain_differences(
        array,
        source,
        own,
        as_profile(profile, "profile"),
        _rounding(rounding, "rounding"),
        as_format(via, "via"),
        as_profile(via_profile, "via_profile"),
        _rounding(via_rounding, "via_rounding"),
        check_int(most, "most", 0, 2**31),
        check_threads(threads, array.size),
    )
    return ChainDifferences(array.size, count, np.asarray(indices, np.int64))


def pack_pairs(codes: Any, *, out: Array | None = None) -> Array:
    """Pack 4-bit codes two a byte along the last axis, the first of a pair in the low nibble, as FP4 tensors are
    stored.

    Parameters
    ----------
    codes : array_like of uint8 (or ml_dtypes.float4_e2m1fn), (..., n)
    out : ndarray of uint8, (..., (n + 1) // 2), optional

    Returns
    -------
    ndarray of uint8, (..., (n + 1) // 2)
        After an odd n the last high nibble is 0.

    Raises
    ------
    TypeError, ValueError
        For other element types, codes of more than 4 bits, scalars, and a wrong ``out``.
    """
    array, _ = as_codes(codes, "codes", _core.find_format("e2m1"), "the format of pairs")
    if array.ndim == 0:
        raise ValueError("codes must have at least one dimension")
    result = output(out, (*array.shape[:-1], (array.shape[-1] + 1) // 2), np.uint8)
    if array.shape[-1] % 2:
        even = np.zeros((*array.shape[:-1], array.shape[-1] + 1), np.uint8)
        fill(even[..., :-1], array)
        array = even
    _core.pack_pairs(apart(array, result), result)
    return result


def unpack_pairs(packed: Any, count: int | None = None, *, out: Array | None = None) -> Array:
    """The 4-bit codes of packed bytes: the inverse of ``pack_pairs``.

    Parameters
    ----------
    packed : array_like of uint8, (..., m)
    count : int, optional
        Codes along the last axis, 2 m or 2 m - 1; 2 m if left out.
    out : ndarray of uint8, (..., count), optional

    Returns
    -------
    ndarray of uint8, (..., count)

    Raises
    ------
    TypeError, ValueError
        For other element types, scalars, a count that does not fit, and a wrong ``out``.
    """
    array, name = as_array(packed, "packed")
    if name != "uint8":
        raise TypeError(f"packed must be uint8, not {name}")
    if array.ndim == 0:
        raise ValueError("packed must have at least one dimension")
    most = 2 * array.shape[-1]
    number = most if count is None else check_int(count, "count", max(most - 1, 0), most)
    array = contiguous(array)
    result = output(out, (*array.shape[:-1], number), np.uint8)
    room = result if number == most else np.empty((*array.shape[:-1], most), np.uint8)
    _core.unpack_pairs(apart(array, room), room)
    if room is not result:
        fill(result, room[..., :number])
    return result


def decode(
    codes: Any, format: FormatName | Format | None = None, *, threads: int | None = None, out: Array | None = None
) -> Array:
    """The values of codes, exactly.

    Parameters
    ----------
    codes : array_like of uint8 (uint16 for formats of more than 8 bits), or of an ml_dtypes or torch float8 type
        A float8 type carries its format.
    format : str or Format, optional
        One of ``formats()``, or a ``Format`` of your own; ``e4m3`` if left out. Of codes that carry theirs, the same.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray of float32, optional
        Where to write, of codes' shape and C-contiguous. Codes that overlap it are copied first.

    Returns
    -------
    ndarray of float32
        The values, of codes' shape. NaN codes give the quiet NaN with the code's sign.

    Raises
    ------
    TypeError, ValueError
        As ``encode`` does, and for codes with bits beyond the format's width.
    """
    array, own = as_codes(codes, "codes", format)
    result = output(out, array.shape, np.float32)
    _core.decode(array if out is None else apart(array, result), result, own, check_threads(threads, array.size))
    return result


def cast_to_representable(
    x: Any,
    format: FormatName | Format,
    *,
    scale: float = 1.0,
    profile: ProfileName | Profile = "cuda_satfinite",
    rounding: RoundingName | None = None,
    threads: int | None = None,
    out: Array | None = None,
) -> Array:
    """Numbers as they come back from a trip through a small format under a scale.

    ``decode(encode(x * scale)) * (1 / scale)``, computed in float32 (float64 for float64 input) and rounded to x's
    type:
    what Transformer Engine's FP8 primer calls ``cast_to_representable``.

    Parameters
    ----------
    x : array_like of float32, float64, float16 or bfloat16
    format, profile, rounding, threads
        As for ``encode``; stochastic rounding needs ``encode`` and ``decode``.
    scale : float
        Multiplies before the cast; positive and finite.
    out : ndarray of x's type, optional
        Where to write, of x's shape and C-contiguous; may be ``x`` itself. An x that overlaps it otherwise is copied
        first.

    Returns
    -------
    ndarray of x's type (bfloat16 as ml_dtypes.bfloat16)

    Raises
    ------
    TypeError, ValueError
        As ``encode`` does, and for a scale that is not positive and finite.
    """
    array, source = as_floats(x, "x")
    if source == "bfloat16":
        import ml_dtypes

        dtype: Any = ml_dtypes.bfloat16
    else:
        dtype = np.dtype(source)
    result = output(out, array.shape, dtype)
    words = as_array(result, "out")[0].view(array.dtype)
    _core.cast_to_representable(
        apart(array, words),
        source,
        words,
        as_format(format, "format"),
        check_real(scale, "scale"),
        as_profile(profile, "profile"),
        _rounding(rounding, "rounding"),
        check_threads(threads, array.size),
    )
    return result


_guard(__name__, __all__)
