// SPDX-License-Identifier: Apache-2.0
// Recipes of serving and export packages: words that their own functions gave on a CPU, or literal ports of their GPU
// kernels with IEEE divisions in place of approximate ones.
#include <string>

#include "reference/scaling/words.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

/// The scale of the first tile: its code, or the bits of scale_inv.
std::uint32_t first_scale(const Quantized& q) {
  return q.scale_codes.empty() ? word_of(q.scale_inv[0]) : q.scale_codes[0];
}

/// A scale, and the codes after it.
void check_words(const Quantized& q, const std::string& words) {
  const std::uint32_t scale = hex(words).front();
  if (scale != open && std::isnan(std::bit_cast<float>(scale)) && q.scale_codes.empty()) {
    CHECK(std::isnan(q.scale_inv[0]));
  } else if (scale != open) {
    CHECK(first_scale(q) == scale);
  }
  check_codes(q, words.substr(words.find(' ') + 1));
}

}  // namespace

TEST_CASE("FP8 tensors, tokens and groups are those of vLLM, SGLang, TensorRT-LLM, transformers, torchao and Quark") {
  // bfloat16 inputs, filled up with zeros. vllm 0.33.0 common.cu, sglang 0.5.23 per_tensor_quant_fp8.cuh,
  // per_token_quant_fp8.cuh and per_token_group_quant.cuh, TensorRT-LLM 0193dbd: ports. transformers 5.23.0
  // finegrained_fp8.py, torchao 0.18.0 quant_primitives.py, both input_to_float8: their functions on PyTorch 2.13.0
  // (CPU). amd-quark 0.13 observer.py: a port. What Triton's clamp makes of NaN: the PTX ISA of min.xorsign.abs.f32.
  const char* const inputs[] = {"3FC4 3A05 3A2F BF00 8000", "3F8A 3A4F BF0B", "8000 0000", "2180 A100",
                                "3F80 7FC0 BF80"};
  const struct {
    const char* recipe;
    const char* words[std::size(inputs)];
  } rows[] = {
      {"vllm_per_tensor",
       {"3B600000 7E 22 25 F1 80", "3B1DB6DB 7E 2B F6", "0 7E 7E", "1D124925 7E F6", "3B124925 7E 7E FE"}},
      {"sglang_per_token",
       {"3B600000 7E 22 25 F1 80", "3B1DB6DB 7E 2B F6", "0 7E 7E", "1D124925 7E F6", "3B124925 7E 7E FE"}},
      {"vllm_per_token",
       {"3B600000 7E 22 24 F1 80", "3B1DB6DB 7E 2A F6", "36924925 80 00", "36924925 00 80", "3B124925 7E 7E FE"}},
      {"sglang_group",
       {"3B600001 7E 22 25 F1 80", "3B1DB6DC 7E 2A F6", "2A7B5124 80 00", "2A7B5124 00 80", "3B124925 7E 7F FE"}},
      {"sglang_group_ue8m0", {"77 7C 20 23 F0 80", "77 79 25 F1", "55 80 00", "55 00 80", "77 78 7F F8"}},
      {"trtllm_per_token",
       {"3B600000 7E 22 24 F1 80", "3B1DB6DB 7E 2A F6", "31192492 80 00", "31192492 00 80", "7F800000 00 7F 80"}},
      {"trtllm_per_token_min_scaling",
       {"3B600000 7E 22 24 F1 80", "3B1DB6DB 7E 2A F6", "36924925 80 00", "36924925 00 80", "7F800000 00 7F 80"}},
      {"sglang_per_token_warp",
       {"3B600000 7E 22 25 F1 80", "3B1DB6DB 7E 2B F6", "0 80 00", "1D124925 7E F6", "3B124925 7E 7E FE"}},
      {"trtllm_1x128",
       {"3B5FFFFF 7E 22 25 F1 80", "3B1DB6DC 7E 2A F6", "3F800000 80 00", "1D124925 7E F6", "3B124925 7E 7F FE"}},
      {"torchao_float8_tensor",
       {"3B600000 7E 22 24 F1 80", "3B1E0000 7E 2A F6", "0 7F 7F", "1D120000 7E F6", "7FC00000 7F 7F 7F"}},
      {"torchao_float8_row",
       {"3B600000 7E 22 24 F1 80", "3B1E0000 7E 2A F6", "0 7F 7F", "1D120000 7E F6", "7FC00000 7F 7F 7F"}},
      {"quark_fp8",
       {"3B600000 7E 22 24 F1 80", "3B1E0000 7E 2A F6", "34000000 80 00", "1D120000 7E F6", "7FC00000 7F 7F 7F"}},
      {"sglang_per_tensor",
       {"3B600000 7E 22 25 F1 80", "3B1DB6DB 7E 2B F6", "0 7E 7E", "1D124925 7E F6", "3B124925 7E 7E FE"}},
      {"vllm_per_token_native",
       {"3B600000 7E 22 25 F1 80", "3B1DB6DB 7E 2B F6", "36924925 80 00", "36924925 00 80", "7FC00000 7F 7F 7F"}},
      {"vllm_group",
       {"3B600000 7E 22 25 F1 80", "3B1DB6DB 7E 2B F6", "2A7B5123 80 00", "2A7B5123 00 80", "3B124925 7E FE FE"}},
      {"vllm_group_ue8m0",
       {"3B800000 7C 20 23 F0 80", "3B800000 79 25 F1", "2F000000 80 00", "2F000000 00 80", "3B800000 78 FE F8"}},
      {"vllm_triton_group", {"", "", "", "", "3B124925 7E 7E FE"}},
      {"vllm_triton_group_ue8m0", {"", "", "", "", "3B800000 78 7E F8"}},
      {"sglang_mxfp8", {"", "", "", "", "77 78 7E F8"}},
      {"vllm_group_packed", {"77 7C 20 23 F0 80", "77 79 25 F1", "5E 80 00", "5E 00 80", "77 78 FE F8"}},
      {"vllm_input_to_float8",
       {"3B607038 7E 22 24 F1 80", "3B1E4CAD 7E 2A F6", "27216B31 80 00", "27216B31 00 80", "7FC00000 7F 7F 7F"}},
      {"sglang_input_to_float8",
       {"3B600001 7E 21 24 F1 80", "3B1DB6DB 7E 2B F6", "2720D7C5 80 00", "2720D7C5 00 80", "7FC00000 7F 7F 7F"}},
      {"compressed_tensors_tensor",
       {"3B600000 7E 22 24 F1 00", "3B1E0000 7E 2A F6", "3C000000 00 00", "1D120000 7E F6", "7FC00000 7F 7F 7F"}},
      {"compressed_tensors_channel",
       {"3B600000 7E 22 24 F1 00", "3B1E0000 7E 2A F6", "3C000000 00 00", "1D120000 7E F6", "7FC00000 7F 7F 7F"}},
      {"modelopt_fp8",
       {"3B600000 7E 22 24 F1 80", "3B1E0000 7E 2A F6", "0 .. ..", "1D120000 7E F6", "7FC00000 7F 7F 7F"}},
      {"modelopt_fp8_channel",
       {"3B600000 7E 22 24 F1 80", "3B1E0000 7E 2A F6", "0 .. ..", "1D120000 7E F6", "7FC00000 7F 7F 7F"}},
      {"transformers_fp8_activation",
       {"3B600000 7E 22 24 F1 80", "3B1DB6DB 7E 2A F6", "0 80 00", "1D124925 00 80", "3B124925 7E 7F FE"}},
      {"flax_fp8",
       {"3B5FFFFF 7E 22 25 F1 80", "3B1DB6DC 7E 2A F6", "3F800000 80 00", "1D124925 7E F6", "3F800000 38 7F B8"}},
      {"flax_fp8_bfloat16", {"3B5FFFFF 7E 22 24 F1 80", "", "3F800000 80 00", "", "3F800000 38 7F B8"}}};
  for (const auto& [name, words] : rows) {
    for (std::size_t i = 0; i < std::size(inputs); ++i) {
      if (*words[i] == 0) continue;
      INFO(name << " of " << inputs[i]);
      const std::vector<BFloat16> x = bfloats(inputs[i], 128);
      check_words(quantize({x, 1, 128}, find_recipe(name).recipe), words[i]);
    }
  }
  // A tile of 128 x 128.
  const char* const weights[] = {"3B600001 7E 21 24 F1 80", "3B1DB6DB 7E 2B F6", "3F800000 80 00", "1D124925 7E F6",
                                 "3F800000 38 7F B8"};
  for (std::size_t i = 0; i < std::size(inputs); ++i) {
    INFO("transformers_fp8_weight of " << inputs[i]);
    const std::vector<BFloat16> x = bfloats(inputs[i], 128 * 128);
    check_words(quantize({x, 128, 128}, find_recipe("transformers_fp8_weight").recipe), weights[i]);
  }
  // Just above 448 * 2^-10; NaN; infinity. vllm 0.33.0 utils/deep_gemm.py and DeepGEMM 54e2261 deep_gemm/utils/math.py:
  // their functions on a CPU.
  const char* const above[] = {"3EE00001 3E999999 3B000000 80000000", "3F800000 7FC00000 BF000000",
                               "3F800000 7F800000 BF000000"};
  const struct {
    const char* recipe;
    const char* words[std::size(above)];
  } powers[] = {{"vllm_weight_ue8m0", {"3A800000 7E 7A 40 80", "7FC00000 7F 7F 7F", "7F800000 00 .. 80"}},
                {"deepgemm_weight_ue8m0", {"3B000000 76 72 38 80", "7F000000 00 7F 80", "7F000000 00 7E 80"}}};
  for (const auto& [name, words] : powers) {
    for (std::size_t i = 0; i < std::size(above); ++i) {
      INFO(name << " of " << above[i]);
      check_words(quantize({floats(above[i], 128 * 128), 128, 128}, find_recipe(name).recipe), words[i]);
    }
  }
  // With a scale of the caller's, as vLLM's static quantization has it.
  const std::vector<float> given{std::bit_cast<float>(0x3C4985F0U)};
  const char* const fixed[] = {"3C4985F0 70 13 16 E2 80", "3C4985F0 6B 18 E3", "3C4985F0 80 00", "3C4985F0 00 80",
                               "3C4985F0 6A 7E EA"};
  for (std::size_t i = 0; i < std::size(inputs); ++i) {
    const std::vector<BFloat16> x = bfloats(inputs[i], 128);
    const Recipe& recipe = find_recipe("vllm_static").recipe;
    check_words(quantize({x, 1, 128}, recipe, Direction::rowwise, {.given = {.scales_inv = given}}), fixed[i]);
  }
}

TEST_CASE("amaxes and factors have limits, tiles below 2^-126 are flushed, and what fills tiles up is stored") {
  // TensorRT-LLM: 448 * 512 in place of 448 / 2^-10, by hand. vLLM: an upper bound of 1 for the amax of 2.
  const std::vector<BFloat16> small = bfloats("3A80 3A00", 128);
  check_words(quantize({small, 1, 128}, find_recipe("trtllm_per_token_min_scaling").recipe), "36924925 76 6E");
  Recipe bounded = find_recipe("vllm_per_token").recipe;
  bounded.largest_amax = 1;
  check_words(quantize({bfloats("4000 3F00", 128), 1, 128}, bounded), "3B124925 7E 76");
  // Transformer Engine: the largest float32 in place of an infinite scale, by hand.
  const std::vector<float> low{0x1p-136F};
  check_words(quantize({low, 1, 1}, find_recipe("te_current_scaling").recipe), "00200000 02");
  // microxcaling 7bc4195 on PyTorch 2.13.0 (CPU), without its flag and with it.
  const std::vector<float> tiny = floats("00080000 80080000", 32);
  check_words(quantize({tiny, 1, 32}, find_recipe("microxcaling_mxfp8").recipe), "00 20 A0");
  check_words(quantize({tiny, 1, 32}, find_recipe("microxcaling_mxfp8_flush").recipe), "00 00 00");
  // nvidia-modelopt 0.47.0 on PyTorch 2.13.0 (CPU): a block of zeros counts as 1, one whose quotient vanishes does not.
  std::vector<float> blocks(48, 0);
  blocks[0] = 0x1p127F;
  blocks[16] = 0x1p-120F;
  const Quantized calibrated = quantize({blocks, 1, 48}, find_recipe("modelopt_nvfp4_static").recipe);
  CHECK((calibrated.scale_codes == std::vector<std::uint8_t>{0x7E, 0x01, 0x01}));
  // nvidia-modelopt 0.47.0 nvfp4_tensor.py: 24 columns become 32, of which 16 share a scale.
  const std::vector<float> x(std::size_t{3} * 24, 1);
  const Quantized q = quantize({x, 3, 24}, find_recipe("modelopt_nvfp4").recipe);
  CHECK((q.rows == 3 && q.columns == 32 && q.codes.size() == 48 && q.scale_codes.size() == 6));
  CHECK((q.codes[11] == 0x77 && q.codes[12] == 0 && q.codes[15] == 0));
  const Quantized other = quantize({x, 3, 24}, find_recipe("modelopt_nvfp4").recipe, Direction::columnwise);
  CHECK((other.rows == 16 && other.columns == 24));
}

TEST_CASE("in float32, torchao's float8 tensors and Quark's have a scale of float32") {
  const std::vector<float> x = floats("3FC40000 3A050000 3A2F0000 BF000000 80000000", 128);
  const std::vector<float> y = floats("3F8A0000 3A4F0000 BF0B0000", 128);
  for (const char* name : {"torchao_float8_tensor", "quark_fp8"}) {
    check_words(quantize({x, 1, 128}, find_recipe(name).recipe), "3B600000 7E 22 24 F1 80");
    check_words(quantize({y, 1, 128}, find_recipe(name).recipe), "3B1DB6DB 7E 2A F6");
  }
  for (const char* name : {"modelopt_fp8", "compressed_tensors_block", "compressed_tensors_channel"}) {
    const bool drops = std::string(name) != "modelopt_fp8";
    check_words(quantize({x, 1, 128}, find_recipe(name).recipe),
                drops ? "3B600000 7E 22 24 F1 00" : "3B600000 7E 22 24 F1 80");
    check_words(quantize({y, 1, 128}, find_recipe(name).recipe), "3B1DB6DB 7E 2A F6");
  }
  const std::vector<float> zeros = floats("80000000 00000000", 128);
  check_words(quantize({zeros, 1, 128}, find_recipe("compressed_tensors_channel").recipe), "34000000 00 00");
}

TEST_CASE("MX blocks are those of FlashInfer, ModelOpt, transformers, microxcaling and vLLM") {
  // nvidia-modelopt 0.47.0 mxfp8_tensor.py, microxcaling 7bc4195 mx_ops.py: their functions on PyTorch 2.13.0 (CPU).
  // flashinfer fb28d72 quantization_utils.cuh, transformers 5.23.0 finegrained_fp8.py, vllm 0.33.0: ports.
  const char* const blocks[] = {
      "3FE00000 3E99999A B9000000", "3FE10000 3E9A0000 80000000", "3FF80000 BF100000",         "48E00001 43960000",
      "00080000 80080000",          "3F800000 7F800000 BF000000", "3F800000 7FC00000 BF000000"};
  const struct {
    const char* recipe;
    const char* words[std::size(blocks)];
  } rows[] = {
      {"modelopt_mxfp8",
       {"77 7E 6A 90", "78 76 62 80", "78 78 E9", "89 7E 29", "00 20 A0", "FE 00 7E 80", "00 7E 7F FE"}},
      {"flashinfer_mxfp8",
       {"77 7E 6A 90", "78 76 62 80", "78 78 E9", ".. ..", "00 00 80", "FE 00 7E 80", "77 78 7E F0"}},
      {"transformers_mxfp8",
       {"77 7E 6A 90", "78 76 62 80", "78 78 E9", "8A 76 21", "01 00 80", "FE 00 7E 80", "77 78 7F F0"}},
      {"microxcaling_mxfp8", {"77 7E 6A 90", "77 7E 6A 00", "77 7E F1", "89 7E 29", "00 20 A0", "FF", "FF"}},
      {"vllm_mxfp4", {"7E 6 1 8", "7E 6 1 8", "7E 6 A", "90 6 0", "00 0 8", "FD 0 7 8", "7D 6 7 C"}},
      {"vllm_mxfp8", {"77 7E 6A 90", "78 76 62 80", "78 78 E9", "89 7E 29", "00 20 A0", "FE 00 7E 80", "00 7F 7F 7F"}},
      {"trtllm_mxfp8", {"77 7E 6A 90", "78 76 62 80", "78 78 E9", ".. ..", "00 .. ..", "FE .. .. ..", "77 78 7F F0"}},
      {"compressed_tensors_mxfp8",
       {"78 76 62 88", "78 76 62 00", "78 78 E9", "8A 76 21", "00 20 A0", ".. ..", ".. .."}},
      {"quark_mxfp8", {"77 7E 6A 90", "77 7E 6A 80", "78 78 E9", "89 7E 29", "00 20 A0", "FE 00 7E 80", "FF"}},
      {"torchao_mxfp4_ceil", {"7E 6 1 8", "7E 6 1 8", "7E 6 A", "90 6 0", "00 0 8", ".. ..", ".. .."}},
      {"torchao_mxfp4_even", {"7E 6 1 8", "7E 6 1 8", "7E 6 A", "90 6 0", "00 0 8", ".. ..", ".. .."}},
      {"torchao_mxfp4_rceil", {"7E 6 1 8", "7E 6 1 8", "7E 6 A", "90 6 0", "00 0 8", ".. ..", ".. .."}},
      {"torchao_0_18_mxfp4_floor", {"7D 7 2 8", "7D 7 2 8", "7D 7 C", "8F 7 0", "00 0 8", "FD", "FF"}},
      {"torchao_mxfp4_floor", {"7D 7 2 8", "7D 7 2 8", "7D 7 C", "8F 7 0", "00 0 8", "FF", "FF"}},
      {"microxcaling_mxfp4", {"7D 7 2 8", "7D 7 2 0", "7D 7 C", "8F 7 0", "00 0 8", "FF", "FF"}},
      {"compressed_tensors_mxfp4", {"7E 6 1 8", "7E 6 1 0", "7E 6 A", "90 6 0", "00 0 8", ".. ..", ".. .."}},
      {"modelopt_mxfp4", {"7E 5 1 8", "7E 6 1 8", "7E 6 A", "90 6 0", "00 0 8", "00 8 8 8", "00 8 8 8"}},
      {"deepgemm_fp4_ue8m0",
       {"3F000000 5 1 0", "3F000000 6 1 0", "3F000000 6 A", "48000000 6 0", "38000000 0 0", "7F000000 0 7 0",
        "7F000000 0 0 0"}},
      {"flashinfer_mxfp4", {"7E 6 1 8", "7E 6 1 8", "7E 6 A", ".. ..", "00 0 8", "FE 0 7 8", "7D 6 7 C"}}};
  for (const auto& [name, words] : rows) {
    for (std::size_t i = 0; i < std::size(blocks); ++i) {
      INFO(name << " of " << blocks[i]);
      const std::vector<float> x = floats(blocks[i], 32);
      const Quantized q = quantize({x, 1, 32}, find_recipe(name).recipe);
      const std::string expected = words[i];
      if (expected.size() > 2) {
        check_words(q, expected);  // of open ones, too
      } else {
        CHECK(first_scale(q) == hex(expected).front());
      }
    }
  }
}

TEST_CASE("NVFP4 is that of each package, of two levels and of one, and Transformer Engine's 4 over 6") {
  // torchao 0.18.0 nvfp4_tensor.py, nvidia-modelopt 0.47.0 nvfp4_tensor.py, compressed-tensors 0.20.0 and Transformer
  // Engine's reference (where -0 is open) on PyTorch 2.13.0 (CPU); vllm 0.33.0 nvfp4_utils.cuh, flashinfer fb28d72,
  // TensorRT-LLM 0193dbd, amd-quark 0.13: ports.
  const char* const blocks[] = {"408C BF80 8000 3E9A", "3D91 BCF6", "3DFA 3D4D", "3F16 3E7A BDFA",
                                "3EB4 3E16 BD96",      "8000",      "3580 B500"};
  const struct {
    const char* recipe;
    const char* words[std::size(blocks)];
  } rows[] = {
      {"vllm_nvfp4", {"7E 7 B 8 1", "4F 7 C", "55 7 4", "67 7 4 A", "61 7 5 B", "00 8", "00 0 8"}},
      {"te_nvfp4", {"7E 7 B 8 1", "4F 7 C", "55 7 4", "67 7 4 A", "61 7 5 B", "00 8", "00 7 F"}},
      {"flashinfer_nvfp4", {"7E 7 B 8 1", "4F 7 C", "55 7 4", "67 7 4 A", "61 7 5 B", "00 8", "00 7 F"}},
      {"flashinfer_nvfp4_exact", {"7E 7 B 8 1", "4F 7 C", "55 7 4", "67 7 4 A", "61 7 5 B", "00 8", "00 7 F"}},
      {"trtllm_nvfp4", {"7E 7 B 8 1", "4F 7 C", "55 7 4", "67 7 4 A", "61 7 5 B", "00 8", "00 7 F"}},
      {"flashinfer_nvfp4_cute", {"7E 7 B 8 1", "4F 7 C", "55 7 4", "67 7 4 A", "61 7 5 B", "00 8", "00 0 8"}},
      {"te_nvfp4_fast_math", {"7E 7 B 0 1", "4F 7 C", "55 7 4", "67 7 5 B", "61 7 5 B", "00 0", "00 7 F"}},
      {"te_nvfp4_4over6", {"78 7 B .. 1", "48 7 D", "53 6 3", "65 6 3 A", "5F 6 3 A", "00 ..", "00 7 F"}},
      {"te_nvfp4_4over6_448", {"7E 7 B .. 1", "53 6 B", "59 6 3", "6B 6 3 A", "66 6 3 A", "00 ..", "00 7 F"}},
      {"modelopt_nvfp4", {"7E 7 B 0 1", "4E 7 D", "54 7 5", "67 7 4 A", "61 7 4 A", "38 0", "01 1 8"}},
      {"compressed_tensors_nvfp4", {"7E 7 B 0 1", "4F 7 C", "55 7 4", "67 7 5 B", "61 7 5 B", "20 0", "20 0 8"}},
      {"quark_nvfp4", {"7E 7 B 8 1", "4E 7 D", "55 7 4", "67 7 5 B", "61 7 5 B", "00 ..", "00 7 F"}},
      {"torchao_nvfp4", {"7E 7 B 8 1", "4E 7 D", "55 7 4", "67 7 5 B", "61 7 5 B", "08 8", "08 0 8"}},
      {"torchao_nvfp4_one_level", {"34 7 B 8 1", "08 6 C", "0A 7 5", "1C 7 5 B", "17 7 5 B", "08 8", "08 0 8"}}};
  std::vector<BFloat16> row;
  for (const char* block : blocks) {
    const std::vector<BFloat16> words = bfloats(block, 16);
    row.insert(row.end(), words.begin(), words.end());
  }
  for (const auto& [name, words] : rows) {
    const Quantized q = quantize({row, 1, row.size()}, find_recipe(name).recipe);
    for (std::size_t i = 0; i < std::size(blocks); ++i) {
      INFO(name << " of " << blocks[i]);
      const std::vector<std::uint32_t> expected = hex(words[i]);
      CHECK(q.scale_codes[i] == expected[0]);
      for (std::size_t k = 1; k < expected.size(); ++k) {
        const std::uint32_t code = q.codes[i * 8 + (k - 1) / 2] >> ((k - 1) % 2 * 4) & 0xFU;
        if (expected[k] != open) CHECK(code == expected[k]);
      }
    }
  }
  // In float32, compressed-tensors rounds the tensor's scale twice in float32.
  std::vector<float> wide;
  for (const BFloat16 x : row) wide.push_back(std::bit_cast<float>(std::uint32_t{x.bits} << 16));
  const Quantized q = quantize({wide, 1, wide.size()}, find_recipe("compressed_tensors_nvfp4").recipe);
  CHECK(q.scale_codes == std::vector<std::uint8_t>{0x7E, 0x4E, 0x55, 0x67, 0x61, 0x20, 0x20});
  CHECK(q.codes[8] == 0xD7);
}

}  // namespace fp8lab::tests
