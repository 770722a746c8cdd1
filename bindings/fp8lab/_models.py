# SPDX-License-Identifier: Apache-2.0
"""The table of tensor-core models, and models that differ from them in some fields."""

from __future__ import annotations

from typing import Any

from fp8lab import _core
from fp8lab._arrays import check_bool, check_int, check_name, kind_of, named
from fp8lab._core import MmaModel
from fp8lab._entry import guard as _guard
from fp8lab._scaling import Quantized
from fp8lab.literals import ModelName

__all__ = [
    "model_with",
    "models",
    "takes",
]


def as_model(model: Any, argument: str = "model", instead: str = " or an MmaModel") -> MmaModel:
    """A model by name, or one that is given as it is."""
    return (
        model
        if isinstance(model, MmaModel)
        else named(argument, _core.find_model, check_name(model, argument, instead))
    )


def model_with(
    model: ModelName | MmaModel,
    *,
    fraction_bits: int | None = None,
    zero_exponent: int | None = None,
    keeps_sign: bool | None = None,
) -> MmaModel:
    """A model with other answers to what no device has decided, for ``mma`` and ``gemm``.

    Parameters
    ----------
    model : str or MmaModel
    fraction_bits : int, optional
        Bits kept below the largest exponent, 1 to 40: 25 instead of 35 is what a probe of an RTX 5090 is said to have
        read for FP4.
    zero_exponent : int, optional
        The exponent of a term that is zero, which bounds the alignment from below, -1000 to 127: MMA-Sim 2.1.1 and
        Khattak and Mikaitis give the chips' from the bits of results. An H200 has confirmed -133 of BF16 and TF32, and
        -21 of FP16 with a float16 accumulator; no device's rows decide the others.
    keeps_sign : bool, optional
        Whether a negative sum that underflows becomes -0 (Khattak and Mikaitis, arXiv 2512.07004) instead of +0
        (Xie et al., MMA-Sim, arXiv 2511.10909).

    Raises
    ------
    ValueError
        For an unknown name, a model whose ``arithmetic`` is not ``fused`` (``exact``, AMD's), or fraction bits or a
        zero exponent out of range.
    """
    core = as_model(model)
    if core.arithmetic != "fused":
        raise ValueError(f"{core.name} has nothing to replace")
    if fraction_bits is not None:
        fraction_bits = check_int(fraction_bits, "fraction_bits", 1, 40)
    if zero_exponent is not None:
        zero_exponent = check_int(zero_exponent, "zero_exponent", -1000, 127)
    return core._replace(
        fraction_bits, zero_exponent, None if keeps_sign is None else check_bool(keeps_sign, "keeps_sign")
    )


def takes(model: ModelName | MmaModel, q: Quantized) -> bool:
    """Whether ``gemm`` with this model takes such a Quantized: its format, and its scales.

    Parameters
    ----------
    model : str or MmaModel
    q : Quantized
    """
    if not isinstance(q, Quantized):
        raise TypeError(f"q must be a Quantized, not {kind_of(q)}")
    return as_model(model)._takes(q._core)


def models() -> list[MmaModel]:
    """The tensor cores that are modelled; ``str()`` of each explains it, with its source and its evidence.

    Each tells its ``maker``, ``chip`` and ``instruction``; its ``arithmetic`` (``fused``; ``exact``; AMD's
    ``products_first`` and ``flushed_pairs``; ``fma_chain``, which FP64 has, too); the instruction's ``k`` (None: any),
    which it adds in ``steps`` of ``products_per_step``; the formats of its ``operands`` and the type of its
    ``accumulator``; ``fraction_bits`` kept below the largest exponent, ``zero_exponent`` (of a term that is zero; None:
    it has none) and ``result_bits`` (mantissa bits of a step's result); ``group`` (products added exactly, as one
    term), ``order`` of the steps and ``lowering`` (what the compiler makes of it); ``scale_format`` and ``scale_block``
    where it takes block scales (else None). ``evidence`` is measured, published, inferred, by_definition or assumed;
    ``evidence_note`` names the devices, and what none has decided; ``source`` who published it.
    """
    return _core.models()


_guard(__name__, __all__)
