# SPDX-License-Identifier: Apache-2.0
"""Sequences of several lengths, packed and padded, in caches of keys and values and in parts of context parallelism.

Everything here moves elements, of any type, and computes none. Tokens are the first dimension of packed tensors (thd),
and ``cu_seqlens`` says where each sequence begins, and where the last one ends.

Source: Transformer Engine 2.20, ``common/fused_attn/kv_cache.cu`` and ``context_parallel.cu``.
"""

from __future__ import annotations

from typing import Any

import torch

from fp8lab.te.enums import NVTE_QKV_Format

EXPORTED = (
    "convert_bshd_to_thd",
    "convert_thd_to_bshd",
    "copy_to_kv_cache",
    "thd_copy_valid_tokens_from_per_split_to_rank_local",
    "thd_cp_rank_order_to_sequence_order",
    "thd_get_partitioned_indices",
    "thd_read_half_tensor",
    "thd_read_second_half_lse",
    "thd_sequence_order_to_cp_rank_order",
)
__all__ = [*EXPORTED]


def _ends(cu_seqlens: Any, name: str) -> list[int]:
    """Where sequences begin, and where the last one ends."""
    ends = [int(one) for one in cu_seqlens.detach().reshape(-1).tolist()]
    if len(ends) < 2 or any(a > b for a, b in zip(ends, ends[1:])) or ends[0] < 0:
        raise ValueError(f"{name} must have two or more numbers that do not descend, from 0 on, not {ends}")
    return ends


def _check_inside(what: str, last: int, size: int) -> None:
    if last > size:
        raise ValueError(f"{what}: {last} tokens do not fit into {size}")


# --- caches of keys and values ----------------------------------------------------------------------------------------


def convert_thd_to_bshd(tensor: Any, cu_seqlens: Any, b: int, max_seq_len: int) -> Any:
    """Packed tokens as (batch, sequence, ...), with zeros behind each sequence."""
    ends = _ends(cu_seqlens, "cu_seqlens")[: int(b) + 1]
    _check_inside("a sequence of convert_thd_to_bshd", max(j - i for i, j in zip(ends, ends[1:])), int(max_seq_len))
    made = torch.zeros(int(b), int(max_seq_len), *tensor.shape[1:], dtype=tensor.dtype)
    for one, first, last in zip(made, ends, ends[1:]):
        one[: last - first] = tensor.detach()[first:last]
    return made


def convert_bshd_to_thd(tensor: Any, cu_seqlens: Any, t: int) -> Any:
    """The first tokens of each sequence, packed; zeros where cu_seqlens has no token."""
    ends = _ends(cu_seqlens, "cu_seqlens")
    _check_inside("convert_bshd_to_thd", ends[-1], int(t))
    made = torch.zeros(int(t), *tensor.shape[2:], dtype=tensor.dtype)
    for one, first, last in zip(tensor.detach(), ends, ends[1:]):
        made[first:last] = one[: last - first]
    return made


def copy_to_kv_cache(
    new_k: Any,
    new_v: Any,
    k_cache: Any,
    v_cache: Any,
    page_table: Any,
    cu_new_lens: Any,
    cu_cached_lens: Any,
    qkv_format: Any,
    b: int,
    max_ctx_len: int,
    max_seq_len: int,
    max_pages_per_seq: int,
    is_non_paged: bool,
) -> None:
    """Puts each sequence's new tokens behind those that its pages of the caches have.

    ``cu_cached_lens`` counts the new tokens, too. With ``is_non_paged`` a sequence has the place of its number, to
    which its earlier tokens come first from the place that ``page_table`` names.
    """
    if len({new_k.dtype, new_v.dtype, k_cache.dtype, v_cache.dtype}) != 1:
        raise ValueError("new_k, new_v, k_cache and v_cache must be of the same data type.")
    if int(qkv_format) not in _NEW_TOKENS:
        raise ValueError("qkv_format must be {BSHD, SBHD, THD}.")
    count, page_size = int(b), int(max_seq_len) // int(max_pages_per_seq)
    new = _ends(cu_new_lens, "cu_new_lens")
    cached = _ends(cu_cached_lens, "cu_cached_lens")
    new_lens = [j - i for i, j in zip(new, new[1:])][:count]
    old_lens = [j - i - k for i, j, k in zip(cached, cached[1:], new_lens)]
    for old, more in zip(old_lens, new_lens):
        if old < 0:
            raise ValueError(f"a sequence of {old + more} tokens in the cache cannot have {more} new ones")
        _check_inside("a sequence of the cache", old + more, int(max_seq_len))
    pages = page_table.detach().reshape(-1).tolist()
    for fresh, cache in ((new_k.detach(), k_cache.detach()), (new_v.detach(), v_cache.detach())):
        tokens = cache.view(-1, *cache.shape[2:])
        if is_non_paged:
            _move_up(tokens, pages[:count], old_lens, int(max_seq_len))
        for one, (old, more) in enumerate(zip(old_lens, new_lens)):
            own = [one] if is_non_paged else pages[one * int(max_pages_per_seq) :]
            at = torch.tensor([own[i // page_size] * page_size + i % page_size for i in range(old, old + more)])
            tokens[at.to(torch.int64)] = _NEW_TOKENS[int(qkv_format)](fresh, one, new[one], more)


#: The new tokens of a sequence, by the layout: its number, where it begins in a packed tensor, and how many there are.
_NEW_TOKENS: dict[int, Any] = {
    int(NVTE_QKV_Format.NVTE_BSHD): lambda fresh, one, _first, count: fresh[one, :count],
    int(NVTE_QKV_Format.NVTE_SBHD): lambda fresh, one, _first, count: fresh[:count, one],
    int(NVTE_QKV_Format.NVTE_THD): lambda fresh, _one, first, count: fresh[first : first + count],
}


def _move_up(tokens: Any, places: list[int], old_lens: list[int], length: int) -> None:
    """Brings the earlier tokens of each sequence to the place of its number, one sequence after the other.

    The last descent of the places ends those that are in use.
    """
    descents = [i + 1 for i in range(len(places) - 1) if places[i + 1] < places[i]]
    used = descents[-1] if descents else len(places)
    for one, (place, old) in enumerate(zip(places[:used], old_lens)):
        if places[0] != 0 or place - places[0] != one:
            tokens[one * length : one * length + old] = tokens[place * length : place * length + old].clone()


# --- context parallelism: each of 2 cp_size chunks of a sequence; a rank has one from both ends -----------------------


def _check_ranks(cu_seqlens: Any, total_tokens: int, world_size: int, name: str) -> list[int]:
    chunks = 2 * int(world_size)
    if chunks <= 0 or int(total_tokens) <= 0 or int(total_tokens) % chunks:
        raise ValueError(f"{name} must be at least 1 and twice it divide the {total_tokens} tokens, not {world_size}")
    ends = _ends(cu_seqlens, "cu_seqlens")
    if any(end % chunks for end in ends) or ends[-1] > int(total_tokens):
        raise ValueError(
            f"each of cu_seqlens must be a multiple of {chunks}, twice {name}, and at most {total_tokens}, not {ends}"
        )
    return ends


def _indices(ends: list[int], total_tokens: int, world_size: int, rank: int) -> Any:
    """The tokens of a rank: of each sequence the rank-th chunk, and the rank-th from its end.

    Tokens behind the last sequence count with it, as in the kernel.
    """
    starts = torch.tensor([end // world_size for end in ends])
    tokens = torch.arange(total_tokens // world_size)
    one = (torch.searchsorted(starts[1:-1].contiguous(), tokens, right=True)).clamp(max=len(ends) - 2)
    first, length = starts[one], starts[one + 1] - starts[one]
    offset = torch.where(tokens - first < length // 2, rank, (world_size - 1) * 2 - rank)
    return tokens - first + first * world_size + length // 2 * offset


def thd_get_partitioned_indices(cu_seqlens: Any, total_tokens: int, world_size: int, rank: int) -> Any:
    """The tokens of a rank, (tokens / world_size,) of int32."""
    ends = _check_ranks(cu_seqlens, total_tokens, world_size, "world_size")
    if not 0 <= int(rank) < int(world_size):
        raise ValueError(f"rank must be from 0 to {int(world_size) - 1}, not {rank}")
    return _indices(ends, int(total_tokens), int(world_size), int(rank)).to(torch.int32)


def _order(inp: Any, cu_seqlens: Any, cp_size: int, total_tokens: int) -> Any:
    ends = _check_ranks(cu_seqlens, total_tokens, cp_size, "cp_size")
    if not inp.dim() or inp.shape[0] != int(total_tokens):
        raise ValueError(f"inp must have {total_tokens} tokens first, not the shape {tuple(inp.shape)}")
    return torch.cat([_indices(ends, int(total_tokens), int(cp_size), rank) for rank in range(int(cp_size))])


def thd_sequence_order_to_cp_rank_order(inp: Any, cu_seqlens: Any, cp_size: int, total_tokens: int) -> Any:
    """The tokens of rank 0, then those of rank 1, and so on."""
    return inp.detach()[_order(inp, cu_seqlens, cp_size, total_tokens)]


def thd_cp_rank_order_to_sequence_order(inp: Any, cu_seqlens: Any, cp_size: int, total_tokens: int) -> Any:
    """The tokens in the order of their sequences again."""
    made = torch.empty_like(inp.detach().contiguous())
    made[_order(inp, cu_seqlens, cp_size, total_tokens)] = inp.detach()
    return made


def thd_copy_valid_tokens_from_per_split_to_rank_local(
    out: Any, inp: Any, cu_seqlens_padded: Any, cu_seqlens: Any
) -> None:
    """Copies the tokens that a sequence has; what is padding stays as it was."""
    if out.shape != inp.shape or out.dtype != inp.dtype:
        raise ValueError("out and inp must have one shape and type")
    if not out.is_contiguous():
        raise ValueError("thd_copy_valid_tokens_from_per_split_to_rank_local output must be contiguous.")
    places, ends = _ends(cu_seqlens_padded, "cu_seqlens_padded"), _ends(cu_seqlens, "cu_seqlens")
    if len(places) != len(ends):
        raise ValueError(f"cu_seqlens_padded must have {len(ends)} numbers, as cu_seqlens, not {len(places)}")
    for i, place in enumerate(places[:-1]):
        # A token counts with the sequence whose padded place it is in, and those behind the last with that.
        room = (inp.shape[0] if i == len(places) - 2 else places[i + 1]) - place
        last = place + min(ends[i + 1] - ends[i], room)
        out.detach()[place:last] = inp.detach()[place:last]


def _halves(cu_seqlens: Any) -> list[int]:
    return [end // 2 for end in _ends(cu_seqlens, "cu_seqlens")]


def thd_read_half_tensor(tensor: Any, cu_seqlens: Any, half_idx: int) -> Any:
    """The first half (0) or the second one (1) of each sequence, of (t, h, d) or (2, t, h, d)."""
    if tensor.dim() not in (3, 4) or int(half_idx) not in (0, 1):
        raise ValueError("tensor must be (t, h, d) or (2, t, h, d), and half_idx 0 or 1")
    along, halves = tensor.dim() - 3, _halves(cu_seqlens)
    shape = list(tensor.shape)
    shape[along] //= 2
    _check_inside("thd_read_half_tensor", halves[-1], shape[along])
    made = torch.empty(shape, dtype=tensor.dtype)
    for i, j in zip(halves, halves[1:]):
        source = tensor.detach().narrow(along, i + (j if int(half_idx) else i), j - i)
        made.narrow(along, i, j - i).copy_(source)
    return made


def thd_read_second_half_lse(
    lse: Any, cu_seqlens: Any, lse_packed: bool, second_half_lse_seqlen: int | None = None
) -> Any:
    """The second half of each sequence of (heads, tokens), or of (batch, heads, tokens); zeros behind it.

    Transformer Engine 1 has no length: it is half of the tokens.
    """
    halves = _halves(cu_seqlens)
    length = lse.shape[-1] // 2 if second_half_lse_seqlen is None else int(second_half_lse_seqlen)
    if lse_packed:
        made = torch.zeros(lse.shape[0], length, dtype=lse.dtype)
        for i, j in zip(halves, halves[1:]):
            made[:, i:j] = lse.detach()[:, i + j : j + j]
        return made
    made = torch.zeros(*lse.shape[:2], length, dtype=lse.dtype)
    for one, own, i, j in zip(made, lse.detach(), halves, halves[1:]):
        one[:, : j - i] = own[:, j - i : 2 * (j - i)]
    return made
