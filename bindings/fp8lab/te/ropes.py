# SPDX-License-Identifier: Apache-2.0
"""The fused rotary position embedding."""

from __future__ import annotations

from typing import Any

from fp8lab.te.operators import as_tensor, operators, options

EXPORTED = ("fused_rope_backward", "fused_rope_forward")
__all__ = [*EXPORTED]


def _choices(
    freqs: Any, start_positions: Any, qkv_format: Any, interleaved: bool, cu_seqlens: Any, cp_size: int, cp_rank: int
) -> dict[str, Any]:
    name = str(getattr(qkv_format, "name", qkv_format)).lower()
    layout = next((one for one in ("sbhd", "bshd", "thd") if name.endswith(one)), None)
    if layout is None:
        raise ValueError(f"the format must be sbhd, bshd or thd, not {name}")
    return {
        "freqs": freqs.detach().contiguous(), "tensor_format": layout, "interleaved": bool(interleaved),
        "cu_seqlens": None if layout != "thd" or cu_seqlens is None else cu_seqlens.detach(),
        "start_positions": None if start_positions is None else start_positions.detach(),
        "cp_size": int(cp_size), "cp_rank": int(cp_rank), **options(),
    }  # fmt: skip


def fused_rope_forward(
    input: Any, freqs: Any, start_positions: Any, qkv_format: Any, interleaved: bool, cu_seqlens: Any, cp_size: int,
    cp_rank: int,
) -> Any:  # fmt: skip
    """The embedding of queries or keys."""
    choices = _choices(freqs, start_positions, qkv_format, interleaved, cu_seqlens, cp_size, cp_rank)
    return as_tensor(operators().rope(input.detach().contiguous(), **choices))


def fused_rope_backward(
    output_grads: Any, freqs: Any, start_positions: Any, qkv_format: Any, interleaved: bool, cu_seqlens: Any,
    cp_size: int, cp_rank: int,
) -> Any:  # fmt: skip
    """Its gradient."""
    choices = _choices(freqs, start_positions, qkv_format, interleaved, cu_seqlens, cp_size, cp_rank)
    return as_tensor(operators().rope_backward(output_grads.detach().contiguous(), **choices))
