# SPDX-License-Identifier: Apache-2.0
"""Kernels with a planted defect: a change of one line, compiled for the host team, which the kernels' tests must find.

It needs the release build of the checkout.
"""

import fcntl
import json
import pathlib
import shlex
import shutil
import subprocess

import pytest
from sampled import EXHAUSTIVE

ROOT = pathlib.Path(__file__).parents[2]
BUILD = ROOT / "build" / "release"
KERNELS = pathlib.Path("fp8lab/gpu/kernels")

pytestmark = [
    pytest.mark.skipif(not EXHAUSTIVE, reason="half a minute each: ./dev test --exhaustive"),
    pytest.mark.skipif(not (BUILD / "build.ninja").exists(), reason="no release build"),
    pytest.mark.usefixtures("built"),
]

QUANTIZERS = "every named recipe*,every order*,pointers of any*,special values*,scales of one byte*,NVFP4 with*,a given scale*,both directions*"
QUANTIZERS += ",the amax of*,the delayed*"
# The source that has the kernels, the tests that call them, and more for the compiler. A source of the tests has both;
# the others of the tests are left out.
QUANTIZE = ("quantize_host.cpp", QUANTIZERS)
GEMM = ("gemm.cpp", "wgmma with*,mma.sync*,GEMM kernels take*")
BLACKWELL = ("gemm_blackwell.cpp", "the GEMM of sm_1*,Blackwell's GEMMs*")
RECORDER = ("recorder.cpp", "recorder: every instruction*")
KERNEL_TESTS = ("tests/gpu/kernels.cpp", "")
TILE_TESTS = ("tests/gpu/instruction_tiles.cpp", "mma.sync of the host*,wgmma of the host*")
# Results are right in every order where a barrier is missing: the host tells what threads access.
QUANTIZE_RACES = ("quantize_host.cpp", "no race: quantizers", "-fsanitize=thread")
GEMM_RACES = ("gemm.cpp", "no race: GEMMs of Hopper*", "-fsanitize=thread")
BLACKWELL_RACES = ("gemm_blackwell.cpp", "no race: GEMMs of Blackwell", "-fsanitize=thread")

# What is planted: the file, what it has, and what takes its place.
DEFECTS = {
    "cast: the last run is not written": (
        QUANTIZE, "cast.hpp",
        "if (i >= count) return;\n        const Run",
        "if (i + 16 >= count) return;\n        const Run",
    ),
    "cast: an amax that was there is lost": (
        QUANTIZE, "cast.hpp",
        "atomic_max(raised_amax, most)",
        "*raised_amax = most",
    ),
    "amax: of the first warp alone": (
        QUANTIZE, "cast.hpp",
        (
            "largest[t] = largest[t] < of_run ? of_run : largest[t];\n"
            "      });\n"
            "    });\n"
            "    const std::uint32_t most = team.max(largest);\n"
            "    team.for_each(1, [&](std::size_t) { atomic_max(amax"
        ),
        (
            "largest[t] = largest[t] < of_run && t < 32 ? of_run : largest[t];\n"
            "      });\n"
            "    });\n"
            "    const std::uint32_t most = team.max(largest);\n"
            "    team.for_each(1, [&](std::size_t) { atomic_max(amax"
        ),
    ),
    "elements: -0 is lost": (
        QUANTIZE, "element_rule.hpp",
        "return x * factor;",
        "return x * factor + 0.0F;",
    ),
    "elements: a NaN has no sign": (
        QUANTIZE, "element_rule.hpp",
        "negative ? 0xFFU : 0x7FU",
        "0x7FU",
    ),
    "elements: the halves of a word are swapped": (
        QUANTIZE, "element_rule.hpp",
        "ptx::e5m2x2(x[2 * i], x[2 * i + 1])",
        "ptx::e5m2x2(x[2 * i + 1], x[2 * i])",
    ),
    "stores: past the end": (
        QUANTIZE, "run.hpp",
        "if (i < valid) to[i] = static_cast<std::uint8_t>",
        "if (i <= valid) to[i] = static_cast<std::uint8_t>",
    ),
    "rows: the scale of the neighbor": (
        QUANTIZE, "quantize_rows.hpp",
        "put_scale(i >> trailing_zeros(along), scale)",
        "put_scale((i >> trailing_zeros(along)) ^ 1U, scale)",
    ),
    "rows: half of a block has no part in its amax": (
        QUANTIZE, "quantize_rows.hpp",
        "if (along == 2 * run_length) team.template max_of_lanes<2>(amaxes);",
        "",
    ),
    "tiles: amaxes do not begin at zero": (
        QUANTIZE, "quantize_tile.hpp",
        "shared.tiles[i] = 0;",
        ";",
    ),
    "tiles: no barrier before codes": (
        QUANTIZE, "quantize_tile.hpp",
        "    if constexpr (!kUniform) make_scales(team, corner, shared);\n    put_codes(team, corner, shared);",
        "    put_codes(team, corner, shared);\n    if constexpr (!kUniform) make_scales(team, corner, shared);",
    ),
    "tiles: the transpose's last rows": (
        QUANTIZE, "quantize_tile.hpp",
        "if (place.row >= valid_rows || place.column >= valid_columns) continue;",
        "if (place.row + 1 >= valid_rows || place.column >= valid_columns) continue;",
    ),
    "tiles: the scale of another tile": (
        QUANTIZE, "quantize_tile.hpp",
        "return by_row ? tile : most_tiles + tile;",
        "return by_row ? tile : most_tiles + (tile ^ 1U);",
    ),
    "delayed: a row of the window is read that was written": (
        QUANTIZE, "delayed.hpp",
        (
            "moved[t] = row + 1 < length ? own[(row + 1) * tensors] : newest;\n"
            "      });\n"
            "      team.for_each_thread([&](std::size_t t) {\n"
            "        const std::size_t row = first + t;"
        ),
        "moved[t] = row + 1 < length ? own[(row + 1) * tensors] : newest;",
    ),
    "delayed: the newest amax is not kept": (
        QUANTIZE, "delayed.hpp",
        ": newest;\n",
        ": here;\n",
    ),
    "dequantize: the scale of the run before": (
        QUANTIZE, "dequantize.hpp",
        "if (i == 0 || (column + i) % scale_columns == 0) factor",
        "if (i == 0) factor",
    ),
    "dequantize: codes of four bits in the other order": (
        QUANTIZE, "dequantize.hpp",
        "codes[i / 2] >> (i % 2 * 4)",
        "codes[i / 2] >> ((i + 1) % 2 * 4)",
    ),
    "elements: the quotient is the product with an inverse": (
        QUANTIZE, "element_rule.hpp",
        "return x / factor;",
        "return x * (1.0F / factor);",
    ),
    "elements: another format's largest code takes a NaN's place": (
        QUANTIZE, "element_rule.hpp",
        "rule.format == CodeFormat::e4m3 ? 0x7EU : 0x7BU",
        "0x7EU",
    ),
    "elements: every four codes get the first random word": (
        QUANTIZE, "element_rule.hpp",
        "e2m1x4_stochastic(four, random.words[i])",
        "e2m1x4_stochastic(four, random.words[0])",
    ),
    "amaxes: infinity is dropped": (
        QUANTIZE, "../ptx/max.hpp",
        "second <= most && second > first",
        "second < most && second > first",
    ),
    "loads: the last element of a tail": (
        QUANTIZE, "run.hpp",
        "if (i < valid) run.set(i, from[i]);",
        "if (i + 1 < valid) run.set(i, from[i]);",
    ),
    "stores: the last pair of a tail": (
        QUANTIZE, "run.hpp",
        "if (std::size_t{2} * i < valid)",
        "if (std::size_t{2} * i + 2 < valid)",
    ),
    "scales: swizzled for the neighbor": (
        QUANTIZE, "scale_maker.hpp",
        "swizzled_place(row, column, columns)",
        "swizzled_place(row, column ^ 1U, columns)",
    ),
    "scales: the given one is ignored": (
        QUANTIZE, "scale_maker.hpp",
        "if (given != nullptr) own.given_scale = *given;",
        "",
    ),
    "scales: the factor in place of its inverse": (
        QUANTIZE, "scale_maker.hpp",
        "scale_inv[at] = scale.scale_inv;",
        "scale_inv[at] = scale.factor;",
    ),
    "scales: the rule that is known has one format": (
        QUANTIZE, "scale_maker.hpp",
        "return {.format = format}; }\n};\n/// te_block",
        "return {.format = CodeFormat::e2m1}; }\n};\n/// te_block",  # whose codes fit anywhere: a heap that is overrun may hang in place of a failure
    ),
    "scales: the tensor's amax is not the kernel's": (
        QUANTIZE, "scale_maker.hpp",
        "{.amax = *amax, .input_type",
        "{.amax = 1, .input_type",
    ),
    "fill: the last byte": (
        KERNEL_TESTS, "fill.hpp",
        "team.for_each(size,",
        "team.for_each(size - 1,",
    ),
    "fill: every block begins where the first does": (
        KERNEL_TESTS, "fill.hpp",
        "out[first + i] = 0;",
        "out[i] = 0;",
    ),
    "encode: inputs of the first block": (
        KERNEL_TESTS, "../encode_kernel.hpp",
        "encode(format, policy, in[first + i])",
        "encode(format, policy, in[i])",
    ),
    "encode: the sign of zero": (
        KERNEL_TESTS, "../encode_kernel.hpp",
        "encode(format, policy, in[first + i])",
        "encode(format, policy, in[first + i] + 0.0F)",
    ),
    "Hadamard: sums are not rounded": (
        QUANTIZE, "hadamard_run.hpp",
        "to_bfloat16 ? rounded_to_bfloat16(value) : value",
        "value",
    ),
    "Hadamard: a sign": (
        QUANTIZE, "hadamard_run.hpp",
        "hadamard_sign(j, i) < 0 ? -x : x",
        "hadamard_sign(j, i) < 0 && i + j != 7 ? -x : x",
    ),
    "epilogue: the bias of the neighbor": (
        GEMM, "gemm_epilogue.hpp",
        "second = finished(second, column + 1, alpha)",
        "second = finished(second, column, alpha)",
    ),
    "epilogue: the last column": (
        GEMM, "gemm_epilogue.hpp",
        "if (both) place[1] = second;",
        "",
    ),
    "mma.sync: fragments of a are swapped": (
        GEMM, "gemm_mma_sync.hpp",
        "mma_sync_a(Instruction::elements, thread % 32, reg, 0)",
        "mma_sync_a(Instruction::elements, thread % 32, reg ^ 1U, 0)",
    ),
    "mma.sync: the stage that is being written is read": (
        GEMM, "gemm_mma_sync.hpp",
        "load_fragments(tiles[thread], static_cast<unsigned>(thread), shared, stage, step)",
        "load_fragments(tiles[thread], static_cast<unsigned>(thread), shared, stage ^ 1U, step)",
    ),
    "wgmma: a stage is given back before it is read": (
        GEMM, "gemm_wgmma.hpp",
        (
            "      wgmma_wait<1>(group);  // so the block before is done\n"
            "      if (block > 0) arrive_by_warps(group, shared.empty[previous]);"
        ),
        "      arrive_by_warps(group, shared.empty[turn.stage]);\n      wgmma_wait<1>(group);",
    ),
    "wgmma: the second group reads the rows of the first": (
        GEMM, "gemm_wgmma.hpp",
        "shared.a[stage]) + i * 64 * tile_k",
        "shared.a[stage]) + 0 * i * tile_k",
    ),
    "wgmma: the last block of K is not promoted": (
        GEMM, "gemm_wgmma.hpp",
        "if (count < promotion.interval && !is_end) continue;",
        "if (count < promotion.interval) continue;",
    ),
    "wgmma: a scale of the rows eight below": (
        GEMM, "gemm_wgmma.hpp",
        "(i % 4 < 2 ? upper : lower)",
        "(i % 4 < 2 ? lower : upper)",
    ),
    "wgmma: a promotion within a stage leaves the accumulator": (
        GEMM, "gemm_wgmma.hpp",
        "add || step > part.first",
        "add || step > 0",
    ),
    "wgmma: the interval begins anew with each stage": (
        GEMM, "gemm_wgmma.hpp",
        "for (Steps part = next_part(0, count);",
        "for (Steps part = next_part(0, 0);",
    ),
    "mma.sync tiles: the last team": (
        TILE_TESTS, "instruction_tiles.hpp",
        "return ceil_div(tiles, threads / 32);",
        "return tiles / (threads / 32);",
    ),
    "mma.sync tiles: fragments of b are swapped": (
        TILE_TESTS, "instruction_tiles.hpp",
        "mma_sync_b(Mma::elements, lane, reg, 0)",
        "mma_sync_b(Mma::elements, lane ^ 4U, reg, 0)",
    ),
    "wgmma tiles: rows are not swizzled": (
        TILE_TESTS, "instruction_tiles.hpp",
        "const auto place = swizzle_128b(static_cast<std::uint32_t>(i / 8 * 128 + i % 8 * 4));",
        "const auto place = static_cast<std::uint32_t>(i / 8 * 128 + i % 8 * 4);",
    ),
    "scaled tiles: a's scale is of b's row": (
        RECORDER, "scaled_tiles.hpp",
        "left.scale_word(mma_sync_scale_row_a(lane))",
        "left.scale_word(mma_sync_scale_row_b(lane))",
    ),
    "scaled tiles: the first element of a pair is both": (
        RECORDER, "scaled_tiles.hpp",
        "(at[0] & 15U) | (at[1] & 15U) << 4",
        "(at[0] & 15U) * 17U",
    ),
    "tcgen05 tiles: scales of rows 32 below": (
        RECORDER, "scaled_tiles.hpp",
        "swizzled_place(row, 0, 4)",
        "swizzled_place(row ^ 32U, 0, 4)",
    ),
    "tcgen05 tiles: rows are not swizzled": (
        RECORDER, "scaled_tiles.hpp",
        "swizzle_128b(row * 128 + byte)",
        "(row * 128 + byte)",
    ),
    "wgmma: no fence of registers": (
        GEMM, "gemm_wgmma.hpp",
        "wgmma_fence(group);",
        "",
    ),
    "wgmma: no fence of barriers": (
        GEMM, "gemm_wgmma.hpp",
        "fence_init(team);",
        "",
    ),
    "wgmma: registers are read while they are written": (
        GEMM, "gemm_wgmma.hpp",
        "wgmma_wait_all(group, accumulators);",
        "",
    ),
    "wgmma tiles: no fence of registers": (
        TILE_TESTS, "instruction_tiles.hpp",
        "wgmma_fence(group);",
        "",
    ),
    "wgmma tiles: no fence of shared memory": (
        TILE_TESTS, "instruction_tiles.hpp",
        "fence_shared(team);",
        "",
    ),
    "tcgen05 tiles: no fence of shared memory": (
        RECORDER, "scaled_tiles.hpp",
        "fence_shared(team);",
        "",
    ),
    "tcgen05 tiles: no fence of barriers": (
        RECORDER, "scaled_tiles.hpp",
        "fence_init(team);",
        "",
    ),
    "tcgen05 tiles: no fence before the barrier": (
        RECORDER, "scaled_tiles.hpp",
        "tcgen05_fence_before(group);\n    group.sync();",
        "group.sync();",
    ),
    "tcgen05 tiles: no fence behind the barrier": (
        RECORDER, "scaled_tiles.hpp",
        "tcgen05_fence_after(group);\n      memory.copy_scales",
        "memory.copy_scales",
    ),
    "tcgen05 tiles: no fence before loads": (
        RECORDER, "scaled_tiles.hpp",
        "tcgen05_fence_after(group);\n    // 3.",
        "// 3.",
    ),
    "tcgen05 tiles: no fence before memory is given back": (
        RECORDER, "scaled_tiles.hpp",
        "    tcgen05_fence_before(group);\n  }",
        "  }",
    ),
    "sm_100: no fence of shared memory": (
        BLACKWELL, "gemm_sm100.hpp",
        "fence_shared(group);",
        "",
    ),
    "sm_100: no fence of barriers": (
        BLACKWELL, "gemm_sm100.hpp",
        "fence_init(team);",
        "",
    ),
    "sm_100: no fence behind the stage's barrier": (
        BLACKWELL, "gemm_sm100.hpp",
        "tcgen05_fence_after(group);\n        multiply",
        "multiply",
    ),
    "sm_100: no fence before loads": (
        BLACKWELL, "gemm_sm100.hpp",
        "    tcgen05_fence_after(group);\n  }",
        "  }",
    ),
    "sm_100: no fence before memory is given back": (
        BLACKWELL, "gemm_sm100.hpp",
        "tcgen05_fence_before(group);",
        "",
    ),
    "sm_120: a stage's copies are no group": (
        BLACKWELL, "gemm_sm120.hpp",
        "copies.commit(thread);",
        "",
    ),
    "sm_100: the first product is added to what was there": (
        BLACKWELL, "gemm_sm100.hpp",
        "scales_of_b + scale / 4 * 4, add || step > 0)",
        "scales_of_b + scale / 4 * 4, true)",
    ),
    "sm_100: scales of the other operand": (
        BLACKWELL, "gemm_sm100.hpp",
        "shared_address(group, shared.scales[stage][1]) + t * 512",
        "shared_address(group, shared.scales[stage][0]) + t * 512",
    ),
    "sm_100: scales beyond K are not cleared": (
        BLACKWELL, "gemm_sm100.hpp",
        "scales[0][place + i] = scales[1][place + i] = 0",
        "scales[0][place + i] = scales[0][place + i]",
    ),
    "sm_120: nobody waits for the stage": (
        BLACKWELL, "gemm_sm120.hpp",
        "copies.wait<0>(thread);",
        "copies.wait<1>(thread);",
    ),
    "sm_120: pieces of b are swapped": (
        BLACKWELL, "gemm_sm120.hpp",
        "kSlice * 2 + lane / 8 % 2)",
        "kSlice * 2 + (lane / 8 + 1) % 2)",
    ),
    "swizzled scales: the last row": (
        BLACKWELL, "swizzle.hpp",
        "row < rows && column < columns",
        "row + 1 < rows && column < columns",
    ),
    "wgmma: no barrier behind the scales that its threads load": (
        GEMM, "gemm_wgmma.hpp",
        "    group.sync();\n  }\n  /// Adds the accumulators",
        "  }\n  /// Adds the accumulators",
    ),
    "tcgen05: no barrier before scales that one thread waited for": (
        BLACKWELL, "gemm_sm100.hpp",
        "    group.sync();  // the stage is there for all threads, since it is for one\n",
        "",
    ),
    "tcgen05: no barrier behind the scales that are cleared": (
        BLACKWELL, "gemm_sm100.hpp",
        "    fence_shared(group);\n    group.sync();\n  }",
        "    fence_shared(group);\n  }",
    ),
    "tcgen05 of the recorder: no barrier behind the accumulators": (
        RECORDER, "scaled_tiles.hpp",
        "    tcgen05_fence_before(group);\n    group.sync();\n    // 2. One thread",
        "    tcgen05_fence_before(group);\n    // 2. One thread",
    ),
    "swizzled scales: rows of a tile as they come": (
        BLACKWELL, "swizzle.hpp",
        "swizzled_place(i / 4, i % 4, 4)",
        "(i / 4 * 4 + i % 4)",
    ),
    "swizzled scales: the scale of the neighbor": (
        BLACKWELL, "swizzle.hpp",
        "swizzled_place(i / 4, i % 4, 4)",
        "swizzled_place(i / 4, (i + 1) % 4, 4)",
    ),
    "race: the scales of two blocks of K have one place": (
        GEMM_RACES, "gemm_wgmma.hpp",
        "float scales_b[2][tile_n];",
        (
            "struct {\n"
            "      float one[tile_n];\n"
            "      float* operator[](std::size_t) { return one; }\n"
            "      const float* operator[](std::size_t) const { return one; }\n"
            "    } scales_b;"
        ),
    ),
    "race: wgmma's producer does not wait for an empty stage": (
        GEMM_RACES, "gemm_wgmma.hpp",
        "wait(role, shared.empty[turn.stage], turn.parity ^ 1U);",
        "",
    ),
    "race: wgmma's producer waits for the stage before": (
        GEMM_RACES, "gemm_wgmma.hpp",
        "wait(role, shared.empty[turn.stage], turn.parity ^ 1U);",
        "if (i > stages) wait(role, shared.empty[(i - 1) % stages], (i - 1) / stages % 2 ^ 1U);",
    ),
    "race: mma.sync has no barrier behind a stage": (
        GEMM_RACES, "gemm_mma_sync.hpp",
        "team.for_each_thread([&](std::size_t thread) {\n        store_ahead",
        "team.go_on_each_thread([&](std::size_t thread) {\n        store_ahead",
    ),
    "race: sm_100's producer does not wait for an empty stage": (
        BLACKWELL_RACES, "gemm_sm100.hpp",
        "wait(role, shared.empty[turn.stage], turn.parity ^ 1U);",
        "",
    ),
    "race: sm_100 gives a stage back before its instructions": (
        BLACKWELL_RACES, "gemm_sm100.hpp",
        (
            "multiply(group, shared, turn.stage, block > 0, memory);\n"
            "        memory.commit(group, shared.empty[turn.stage]);"
        ),
        (
            "memory.commit(group, shared.empty[turn.stage]);\n"
            "        multiply(group, shared, turn.stage, block > 0, memory);"
        ),
    ),
    "race: sm_120 has the next stage copied before the barrier": (
        BLACKWELL_RACES, "gemm_sm120.hpp",
        (
            "team.for_each_thread([&](std::size_t thread) { copies.wait<0>(thread); });\n"
            "      load_own(team, [&](std::size_t thread) {\n"
            "        if (stage + 1 < stages()) start(thread, stage + 1);\n"
            "      });"
        ),
        (
            "load_own(team, [&](std::size_t thread) {\n"
            "        if (stage + 1 < stages()) start(thread, stage + 1);\n"
            "      });\n"
            "      team.for_each_thread([&](std::size_t thread) {\n"
            "        stage + 1 < stages() ? copies.wait<1>(thread) : copies.wait<0>(thread);\n"
            "      });"
        ),
    ),
    "race: sm_120 has no barrier behind the wait for a stage": (
        BLACKWELL_RACES, "gemm_sm120.hpp",
        "team.for_each_thread([&](std::size_t thread) { copies.wait<0>(thread); });",
        "load_own(team, [&](std::size_t thread) { copies.wait<0>(thread); });",
    ),
    "race: codes of the transpose take the place of elements": (
        QUANTIZE_RACES, "quantize_tile.hpp",
        (
            "    alignas(16) std::uint32_t values[side * words];    // NOLINT(modernize-avoid-c-arrays)\n"
            "    alignas(16) std::uint32_t codes[side * side / 4];  // NOLINT(modernize-avoid-c-arrays): columnwise\n"
        ),
        (
            "    union {\n"
            "      alignas(16) std::uint32_t values[side * words];\n"
            "      alignas(16) std::uint32_t codes[side * side / 4];\n"
            "    };\n"
        ),
    ),
    "race: tiles have no barrier behind elements": (
        QUANTIZE_RACES, "quantize_tile.hpp",
        "team.for_each_thread([&](std::size_t t) {\n      const auto thread = static_cast<unsigned>(t);\n      if (whole)",
        "team.go_on_each_thread([&](std::size_t t) {\n      const auto thread = static_cast<unsigned>(t);\n      if (whole)",
    ),
    "race: tiles have no barrier behind amaxes": (
        QUANTIZE_RACES, "quantize_tile.hpp",
        "team.for_each_thread([&](std::size_t t) {\n      const auto thread = static_cast<unsigned>(t);\n      if (rowwise.wanted && is_block",
        "team.go_on_each_thread([&](std::size_t t) {\n      const auto thread = static_cast<unsigned>(t);\n      if (rowwise.wanted && is_block",
    ),
    "race: tiles have no barrier behind codes of the transpose": (
        QUANTIZE_RACES, "quantize_tile.hpp",
        "team.for_each_thread([&](std::size_t t) {\n      const auto thread = static_cast<unsigned>(t);\n      if (rowwise.wanted) {",
        "team.go_on_each_thread([&](std::size_t t) {\n      const auto thread = static_cast<unsigned>(t);\n      if (rowwise.wanted) {",
    ),
    "race: rows have no barrier behind constants": (
        QUANTIZE_RACES, "quantize_rows.hpp",
        "team.for_each_thread([&](std::size_t t) {\n      unrolled<runs>([&](unsigned k) {\n        const std::size_t i = first + (std::size_t{k} * threads + t) * run_length;\n        if (i < count) elements",
        "team.go_on_each_thread([&](std::size_t t) {\n      unrolled<runs>([&](unsigned k) {\n        const std::size_t i = first + (std::size_t{k} * threads + t) * run_length;\n        if (i < count) elements",
    ),
    "race: a cast has no barrier behind its factor": (
        QUANTIZE_RACES, "cast.hpp",
        "team.for_each_thread([&](std::size_t t) {\n      if (t == 0) {\n        const TileScale",
        "team.go_on_each_thread([&](std::size_t t) {\n      if (t == 0) {\n        const TileScale",
    ),
    "race: dequantize has no barrier behind constants": (
        QUANTIZE_RACES, "dequantize.hpp",
        "team.for_each(1, [&](std::size_t) { shared",
        "team.go_on_each_thread([&](std::size_t t) { if (t == 0) shared",
    ),
    "race: a delayed update has no barrier behind the newest amax": (
        QUANTIZE_RACES, "delayed.hpp",
        "team.for_each(1, [&](std::size_t) { shared",
        "team.go_on_each_thread([&](std::size_t t) { if (t == 0) shared",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def built():
    """The kernels without a defect, and the tests; builds of several processes wait for each other."""
    with (BUILD / "planted.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["ninja", "-C", BUILD, "bin/test_planted"], check=True, capture_output=True)


def _command(source: str) -> list[str]:
    """How the release build compiles a source of the library, or one of the tests, up to its output."""
    target = "test_planted.dir/Unity/unity_0_cxx.cxx" if source.startswith("tests/") else f"fp8lab_gpu.dir/src/{source}"
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if f"/{target}.o " in entry["command"]:
            words = shlex.split(entry["command"])
            words = words[1:] if "ccache" in words[0] else words
            return words[: words.index("-o")]
    raise AssertionError(f"the release build has no {source}")


def _link(first: pathlib.Path, program: pathlib.Path, all_tests: bool) -> list[str]:
    told = subprocess.run(
        ["ninja", "-C", BUILD, "-t", "commands", "bin/test_planted"], capture_output=True, text=True, check=True
    ).stdout
    line = next(line for line in told.splitlines() if "-o bin/test_planted" in line)
    words = shlex.split(line.split("&&")[1])
    words[words.index("bin/test_planted")] = str(program)
    # Where both have a template, the linker takes the first.
    words.insert(next(i for i, word in enumerate(words) if word.endswith(".o")), str(first))
    if not all_tests:
        words = [word for word in words if "/test_planted.dir/" not in word]
    return words[1:] if "ccache" in words[0] else words


def _run(
    folder: pathlib.Path, suite: tuple[str, ...], file: str = "", old: str = "", new: str = ""
) -> subprocess.CompletedProcess:
    """The tests, with kernels from a copy of the headers in which ``old`` is ``new``."""
    source, tests, *options = suite
    include = folder / "include"
    shutil.copytree(ROOT / "gpu" / "include", include)
    if file:
        path = include / KERNELS / file
        text = path.read_text()
        assert text.count(old) == 1, f"{file} has {text.count(old)} times: {old}"
        path.write_text(text.replace(old, new))
    made, program = folder / "kernels.o", folder / "test_planted"
    is_test = source.startswith("tests/")
    place = ROOT / source if is_test else ROOT / "gpu" / "src" / source
    compile_ = [*_command(source), "-w", "-O1", *options, "-iquote", include, "-I", include, "-o", made, "-c", place]
    compile_.insert(1, f"-I{include}")
    subprocess.run(compile_, cwd=BUILD, check=True)
    subprocess.run(_link(made, program, not is_test), cwd=BUILD, check=True)
    return subprocess.run(
        [program, *filter(None, [tests]), "--abort"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=300,
    )


SUITES = [QUANTIZE, GEMM, BLACKWELL, RECORDER, KERNEL_TESTS, TILE_TESTS, QUANTIZE_RACES, GEMM_RACES, BLACKWELL_RACES]


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: " ".join([suite[0], *suite[2:]]))
def test_without_a_defect_they_pass(suite, tmp_path):
    done = _run(tmp_path, suite)
    assert done.returncode == 0 and "No tests ran" not in done.stdout, done.stdout


@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found(name, tmp_path):
    suite, *change = DEFECTS[name]
    done = _run(tmp_path, suite, *change)
    assert done.returncode != 0 and "No tests ran" not in done.stdout, done.stdout
    if suite[2:]:
        assert "a race in shared memory" in done.stdout, done.stdout
