# SPDX-License-Identifier: Apache-2.0
"""What Transformer Engine's Triton kernels of permutations by a mask write, run by Triton's interpreter on a CPU.

    TRITON_INTERPRET=1 PYTHONPATH=DIR python tests/python/te/triton_words.py

writes tests/vectors/triton_permutation.json, in three minutes, where DIR has Triton (``pip install --target DIR triton``). The inputs are whole
numbers and powers of two, of which every product and sum is exact: the interpreter fuses nothing, and adds in NumPy's order.
"""

import hashlib
import importlib
import importlib.util
import json
from pathlib import Path

import numpy as np
from installed import folder

VECTORS = Path(__file__).parents[2] / "vectors" / "triton_permutation.json"
#: Tokens, experts and columns; a block of tokens is 1024, and one of columns is 16 here.
SIZES = ((5, 3, 6), (1, 1, 1), (40, 4, 33), (1100, 3, 1))
BLOCK = 16


def inputs(tokens: int, experts: int, columns: int, dtype: str) -> dict[str, np.ndarray]:
    """A mask in which the second token has no expert, rows, probabilities and gradients."""
    draw = np.random.default_rng([tokens, experts, columns])
    mask = draw.integers(0, 2, (tokens, experts)).astype(np.int32)
    mask[1:2] = 0
    counts = mask.sum(axis=0)
    pads = -counts % 4
    rows = int(counts.sum() + pads.sum())
    whole = lambda *shape: draw.integers(-4, 5, shape).astype(dtype)
    probabilities = draw.choice([0, 0.25, 0.5, 1], (tokens, experts)).astype(np.float32)
    return {
        "mask": mask,
        "pad_offsets": (np.cumsum(pads) - pads).astype(np.int64),
        "x": whole(tokens, columns),
        "permuted": whole(rows, columns),
        "probabilities": probabilities,
        "permuted_probabilities": draw.choice([0.25, 0.5, 1], rows).astype(np.float32),
    }


def chunks(tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of five chunks, of which one is empty, and their order; some rows are behind all."""
    sizes = np.array([tokens // 3, 0, tokens // 4, 1 if tokens > 1 else 0, tokens // 5], np.int64)
    return sizes, np.array([3, 1, 4, 0, 2], np.int64)


def word(array: np.ndarray) -> str:
    """The bytes of an array, or of a large one their digest."""
    data = np.ascontiguousarray(array).tobytes()
    return data.hex() if len(data) <= 1024 else hashlib.sha256(data).hexdigest()


def without_unwritten(table: np.ndarray, experts: int) -> np.ndarray:
    """The map with zeros where the kernel leaves what was there."""
    behind = np.arange(experts) >= table[:, -1:]
    kept = table.copy()
    kept[:, :experts][behind] = 0
    kept[:, experts : 2 * experts][behind] = 0
    return kept


def kernels():
    """The file of kernels, which needs nothing of Transformer Engine."""
    path = folder() / "common" / "triton" / "permutation.py"
    spec = importlib.util.spec_from_file_location("permutation_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tuned = importlib.import_module("triton.runtime.autotuner").Autotuner
    found = vars(module)
    return lambda name: found[name].fn if isinstance(found[name], tuned) else found[name]


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def run(tokens: int, experts: int, columns: int, dtype: str) -> dict[str, str]:
    """All kernels on one set of inputs."""
    import torch
    import triton

    kernel = kernels()
    given = {name: torch.from_numpy(array) for name, array in inputs(tokens, experts, columns, dtype).items()}
    power = triton.next_power_of_2
    blocks = cdiv(tokens, 1024)
    table = torch.zeros(tokens, 2 * experts + 1, dtype=torch.int32)
    workspace = torch.zeros(experts, blocks, dtype=torch.int32)
    mask = given["mask"]
    kernel("_row_id_map_pass_1_kernel")[(experts, blocks)](
        mask, tokens, *mask.stride(), *table.stride(), table, workspace, BLOCK_SIZE=1024
    )
    kernel("_row_id_map_pass_2_kernel")[(experts, blocks)](
        table, workspace, tokens, *table.stride(), WORKSPACE_LOAD_WIDTH=power(experts * blocks), BLOCK_SIZE=1024
    )
    kernel("_row_id_map_pass_3_kernel")[(tokens,)](
        table, *table.stride(), num_experts=experts, LOAD_SIZE=power(experts)
    )
    x, permuted, p = given["x"], given["permuted"], given["probabilities"]
    offsets, of_rows = given["pad_offsets"], given["permuted_probabilities"]
    rows = len(permuted)
    grid = (tokens, cdiv(columns, BLOCK))
    out, out_p = torch.zeros(rows, columns, dtype=x.dtype), torch.zeros(rows)
    kernel("_permute_kernel")[grid](
        x, table, p, None, None, offsets, out, out_p, 0, tokens, rows, *table.stride(), *x.stride(), *out.stride(),
        *p.stride(), None, None, 1, None, None, out, out_p, num_experts=experts, hidden_size=columns,
        PERMUTE_PROBS=True, PERMUTE_SCALE=False, FUSION_PAD=True, BLOCK_SIZE=BLOCK,
    )  # fmt: skip
    back, back_p = torch.zeros(tokens, columns, dtype=x.dtype), torch.zeros(tokens, experts)
    kernel("_unpermute_kernel")[grid](
        permuted, table, p, of_rows, offsets, back, back_p, *table.stride(), *permuted.stride(), *back.stride(),
        *p.stride(), 1, *back_p.stride(), back, back_p, num_experts=experts, hidden_size=columns,
        PROBS_LOAD_WIDTH=power(experts), WITH_MERGING_PROBS=True, PERMUTE_PROBS=True, FUSION_UNPAD=True,
        BLOCK_SIZE=BLOCK,
    )  # fmt: skip
    dx, dp = torch.zeros(rows, columns, dtype=x.dtype), torch.zeros(tokens, experts)
    kernel("_unpermute_bwd_with_merging_probs_kernel")[(tokens,)](
        x, permuted, p, table, offsets, *table.stride(), *x.stride(), *dx.stride(), *permuted.stride(), *p.stride(),
        *dp.stride(), dx, dp, num_experts=experts, hidden_size=columns, PROBS_LOAD_WIDTH=power(experts),
        FUSION_UNPAD=True, BLOCK_SIZE=BLOCK,
    )  # fmt: skip
    sizes, order = map(torch.from_numpy, chunks(tokens))
    places = torch.zeros(tokens, dtype=torch.int32)
    kernel("_make_chunk_sort_map_kernel")[(tokens,)](
        sizes, order, places, num_splits=len(sizes), IDX_LOAD_WIDTH=power(len(sizes))
    )
    found = {
        "map": without_unwritten(table.numpy(), experts),
        "permuted": out, "permuted_probabilities": out_p, "unpermuted": back, "unpermuted_probabilities": back_p,
        "dx": dx, "dprobabilities": dp, "chunk_map": places,
    }  # fmt: skip
    for forward, name in ((True, "sorted"), (False, "unsorted")):
        moved, moved_p = torch.zeros_like(x), torch.zeros(tokens)
        kernel("_sort_chunks_by_map_kernel")[grid](
            x, places, p[:, 0].contiguous(), moved, *x.stride(), *moved.stride(), 1, 1, moved, moved_p,
            hidden_size=columns, PERMUTE_PROBS=True, BLOCK_SIZE=BLOCK, FORWARD=forward,
        )  # fmt: skip
        found |= {name: moved, f"{name}_probabilities": moved_p}
    return {name: word(np.asarray(array)) for name, array in found.items()}


def main() -> None:
    import triton

    cases = {
        f"{tokens} {experts} {columns} {dtype}": run(tokens, experts, columns, dtype)
        for tokens, experts, columns in SIZES
        for dtype in ("float32", "float16")
    }
    source = (
        "what the kernels of Transformer Engine 2.20.2 (common/triton/permutation.py) write, computed by the "
        f"interpreter of Triton {triton.__version__} on the inputs of tests/python/te/triton_words.py: bytes, or "
        "SHA-256 of more than 1024"
    )
    VECTORS.write_text(json.dumps({"source": source, "cases": cases}, indent=0) + "\n")


if __name__ == "__main__":
    main()
