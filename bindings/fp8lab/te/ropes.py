# SPDX-License-Identifier: Apache-2.0
"""The fused rotary position embedding."""

from __future__ import annotations

from typing import Any

from fp8lab.te.operators import as_tensor, kernel_options, operators

EXPORTED = ("fused_qkv_rope_backward", "fused_qkv_rope_forward", "fused_rope_backward", "fused_rope_forward")
__all__ = [*EXPORTED]


def _layout(qkv_format: Any, known: tuple[str, ...]) -> str:
    name = str(getattr(qkv_format, "name", qkv_format)).lower()
    layout = next((one for one in known if name.endswith(one)), None)
    if layout is None:
        raise ValueError(f"the format must be {', '.join(known[:-1])} or {known[-1]}, not {name}")
    return layout


def _choices(
    freqs: Any, start_positions: Any, qkv_format: Any, interleaved: bool, cu_seqlens: Any, cp_size: int, cp_rank: int
) -> dict[str, Any]:
    layout = _layout(qkv_format, ("sbhd", "bshd", "thd"))
    return {
        "freqs": freqs.detach().contiguous(), "tensor_format": layout, "interleaved": bool(interleaved),
        "cu_seqlens": None if layout != "thd" or cu_seqlens is None else cu_seqlens.detach(),
        "start_positions": None if start_positions is None else start_positions.detach(),
        "cp_size": int(cp_size), "cp_rank": int(cp_rank), **kernel_options(),
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


def _qkv_choices(qkv_format: Any, interleaved: bool, cp_size: int, cp_rank: int) -> dict[str, Any]:
    return {
        "tensor_format": _layout(qkv_format, ("sbhd", "bshd")), "interleaved": bool(interleaved),
        "cp_size": int(cp_size), "cp_rank": int(cp_rank), **kernel_options(),
    }  # fmt: skip


def fused_qkv_rope_forward(
    qkv_input: Any, q_freqs: Any, k_freqs: Any, start_positions: Any, qkv_split_arg_list: Any, qkv_format: Any,
    interleaved: bool, cp_size: int, cp_rank: int,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The embedding of queries and keys that lie beside values, and the values."""
    made = operators().rope_qkv(
        qkv_input.detach().contiguous(), [int(one) for one in qkv_split_arg_list], q_freqs.detach().contiguous(),
        k_freqs.detach().contiguous(), start_positions=None if start_positions is None else start_positions.detach(),
        **_qkv_choices(qkv_format, interleaved, cp_size, cp_rank),
    )  # fmt: skip
    return as_tensor(made[0]), as_tensor(made[1]), as_tensor(made[2])


def fused_qkv_rope_backward(
    q_grad_out: Any, k_grad_out: Any, v_grad_out: Any, q_freqs: Any, k_freqs: Any, qkv_split_arg_list: Any,
    qkv_format: Any, interleaved: bool, cp_size: int, cp_rank: int,
) -> Any:  # fmt: skip
    """Its gradient; positions count from 0 here."""
    grads = tuple(one.detach().contiguous() for one in (q_grad_out, k_grad_out, v_grad_out))
    made = operators().rope_qkv_backward(
        grads, [int(one) for one in qkv_split_arg_list], q_freqs.detach().contiguous(), k_freqs.detach().contiguous(),
        **_qkv_choices(qkv_format, interleaved, cp_size, cp_rank),
    )  # fmt: skip
    return as_tensor(made)
