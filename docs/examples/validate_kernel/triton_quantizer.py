# SPDX-License-Identifier: Apache-2.0
"""A quantizer as a user has written it in Triton: E4M3 codes of 128 neighbours in a row, which share a scale that is a
power of two."""

import torch
import triton
import triton.language as tl


@triton.jit
def quantize_block(x, codes, scale_inv, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at)
    amax = tl.max(tl.abs(values), axis=0)
    scale = tl.div_rn(448.0, amax)  # Triton's / may be wrong in the last bit
    scale = tl.where((amax > 0) & (amax <= 3.4028234663852886e38), tl.minimum(scale, 3.4028234663852886e38), 1.0)
    scale = (scale.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    tl.store(codes + at, (values * scale).to(tl.float8e4nv))
    tl.store(scale_inv + tl.program_id(0), tl.div_rn(1.0, scale))


def quantize(x, device="cuda"):
    """uint8 codes and float32 scale_inv of a float32 array (rows, columns)."""
    values = torch.from_numpy(x).to(device)
    codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn, device=device)
    scale_inv = torch.empty((x.shape[0], x.shape[1] // 128), dtype=torch.float32, device=device)
    quantize_block[(scale_inv.numel(),)](values, codes, scale_inv, 128)
    return codes.view(torch.uint8).cpu().numpy(), scale_inv.cpu().numpy()
