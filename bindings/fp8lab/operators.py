# SPDX-License-Identifier: Apache-2.0
"""What stands between two GEMMs, as Transformer Engine's kernels compute it: activations, norms and softmaxes, forward
and backward, and optimizers.

Inputs are NumPy, ml_dtypes or torch arrays of float32, float16 or bfloat16 with rows along their last dimension; they
are computed in float32. Results are NumPy arrays of ``out_dtype``, the input's type if left out, rounded to nearest
even; ``float32`` gives the unrounded result, which the kernels quantize under delayed scaling. Every NaN is the
positive one of all ones, as of NVIDIA's instructions.

Where a kernel's bits depend on the device's functions and on its order of sums, the argument ``functions`` says which.
``hopper`` has those of an H100 or H200, for what ``functions()`` says. With ``correctly_rounded`` fp8lab has a
documented choice instead: elementary functions rounded correctly, and sums in a fixed order, whatever the number of
threads:

- along a row, element j is added to lane j % 32, in ascending order, from +0 on, rows being filled up with +0; then
  lane i and lane i + 16 are added, of these i and i + 8, and so on;
- over rows, block b of 32 has rows [b n, (b + 1) n), n = ceil(rows / 32), added in order from +0 on; then block i and
  block i + 16, and so on.

What is fused into one rounding is what nvcc 13.0 fuses of the kernels' formulas for sm_90. ``exactness()`` says of each
function what is exact and how far the rest can be from a device; ``activation_bounds`` and its like say it of each
element, and how many FP8 codes are open.

Every function takes

    functions : str
        Where exp, tanh and the like come from: one of ``functions()``.
    threads : int, optional
        All cores if left out, and one for a call of microseconds; no result depends on it.
    out : ndarray, optional
        Where the (first) result goes: of its shape and type, C-contiguous. Inputs that overlap it are copied first.

and raises TypeError for other element types and ValueError for shapes that do not fit, unknown names (the message lists
the known ones) and options that nothing reads; messages name the argument.
"""

from fp8lab._activations import (
    Activation,
    activation,
    activation_backward,
    activations,
    scaled_activation,
    scaled_activation_backward,
)
from fp8lab._compiled_gelu import compiled_gelu, compiled_gelu_backward, has_one_shape_sums
from fp8lab._dropout import (
    dropout,
    dropout_backward,
)
from fp8lab._elementary import (
    Exactness,
    elementary,
    exactness,
    functions,
)
from fp8lab._mask_permutation import (
    moe_chunk_map,
    moe_mask_map,
    moe_mask_permute,
    moe_mask_permute_probabilities,
    moe_mask_unpermute,
    moe_mask_unpermute_backward,
    moe_mask_unpermute_probabilities,
    moe_sort_chunks,
)
from fp8lab._norms import (
    layernorm,
    layernorm_backward,
    rmsnorm,
    rmsnorm_backward,
)
from fp8lab._nvfp4_shard import (
    nvfp4_global_scale,
    nvfp4_shard_codes,
    nvfp4_tile_scales,
)
from fp8lab._operator_bounds import (
    activation_backward_bounds,
    activation_bounds,
    layernorm_bounds,
    rmsnorm_bounds,
)
from fp8lab._optimizers import (
    adam_update,
    adam_update_fp8,
    adam_update_remainder,
    l2norm,
    scale_of_amax,
    scale_tensor,
    sgd_update,
)
from fp8lab._permutation import (
    moe_permutation_map,
    moe_permute,
    moe_unpermute,
    moe_unpermute_backward,
    pad_rows,
    unpad_rows,
)
from fp8lab._rope import (
    rope,
    rope_backward,
    rope_qkv,
    rope_qkv_backward,
)
from fp8lab._router import (
    RoutedTokens,
    moe_aux_loss,
    moe_aux_loss_backward,
    moe_bias_histogram,
    moe_routing_map,
    moe_scores,
    moe_scores_backward,
    moe_topk,
    moe_topk_backward,
)
from fp8lab._row_sums import (
    cast_transpose_row_sums,
    cast_transpose_thread_rows,
    cublaslt_row_sums,
    torch_row_sums,
)
from fp8lab._softmax import (
    cross_entropy,
    cross_entropy_backward,
    softmax,
    softmax_backward,
)

__all__ = [
    "Activation",
    "Exactness",
    "RoutedTokens",
    "activation",
    "activation_backward",
    "activation_backward_bounds",
    "activation_bounds",
    "activations",
    "adam_update",
    "adam_update_fp8",
    "adam_update_remainder",
    "cast_transpose_row_sums",
    "cast_transpose_thread_rows",
    "compiled_gelu",
    "compiled_gelu_backward",
    "cross_entropy",
    "cross_entropy_backward",
    "cublaslt_row_sums",
    "dropout",
    "dropout_backward",
    "elementary",
    "exactness",
    "functions",
    "has_one_shape_sums",
    "l2norm",
    "layernorm",
    "layernorm_backward",
    "layernorm_bounds",
    "moe_aux_loss",
    "moe_aux_loss_backward",
    "moe_bias_histogram",
    "moe_chunk_map",
    "moe_mask_map",
    "moe_mask_permute",
    "moe_mask_permute_probabilities",
    "moe_mask_unpermute",
    "moe_mask_unpermute_backward",
    "moe_mask_unpermute_probabilities",
    "moe_permutation_map",
    "moe_permute",
    "moe_routing_map",
    "moe_scores",
    "moe_scores_backward",
    "moe_sort_chunks",
    "moe_topk",
    "moe_topk_backward",
    "moe_unpermute",
    "moe_unpermute_backward",
    "nvfp4_global_scale",
    "nvfp4_shard_codes",
    "nvfp4_tile_scales",
    "pad_rows",
    "rmsnorm",
    "rmsnorm_backward",
    "rmsnorm_bounds",
    "rope",
    "rope_backward",
    "rope_qkv",
    "rope_qkv_backward",
    "scale_of_amax",
    "scale_tensor",
    "scaled_activation",
    "scaled_activation_backward",
    "sgd_update",
    "softmax",
    "softmax_backward",
    "torch_row_sums",
    "unpad_rows",
]
