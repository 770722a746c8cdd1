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
  // finegrained_fp8.py, torchao 0.18.0 quant_primitives.py: their functions on PyTorch 2.13.0 (CPU). amd-quark 0.13
  // observer.py: a port.
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
       {"3B600000 7E 22 25 F1 80", "3B1DB6DB 7E 2A F6", "31192492 80 00", "31192492 00 80", "3B124925 7E 7F FE"}},
      {"trtllm_1x128",
       {"3B5FFFFF 7E 22 25 F1 80", "3B1DB6DC 7E 2A F6", "3F800000 80 00", "1D124925 7E F6", "3B124925 7E 7F FE"}},
      {"torchao_float8_tensor",
       {"3B600000 7E 22 24 F1 80", "3B1E0000 7E 2A F6", "0 7F 7F", "1D120000 7E F6", "7FC00000 7F 7F 7F"}},
      {"torchao_float8_row",
       {"3B600000 7E 22 24 F1 80", "3B1E0000 7E 2A F6", "0 7F 7F", "1D120000 7E F6", "7FC00000 7F 7F 7F"}},
      {"quark_fp8",
       {"3B600000 7E 22 24 F1 80", "3B1E0000 7E 2A F6", "34000000 80 00", "1D120000 7E F6", "7FC00000 7F 7F 7F"}}};
  for (const auto& [name, words] : rows) {
    for (std::size_t i = 0; i < std::size(inputs); ++i) {
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
  // With a scale of the caller's, as vLLM's static quantization has it.
  const Recipe given{.quotient = Quotient::given_scale_inv,
                     .given_scale = std::bit_cast<float>(0x3C4985F0U),
                     .cast = {.nan = NanCode::largest}};
  const char* const fixed[] = {"3C4985F0 70 13 16 E2 80", "3C4985F0 6B 18 E3", "3C4985F0 80 00", "3C4985F0 00 80",
                               "3C4985F0 6A 7E EA"};
  for (std::size_t i = 0; i < std::size(inputs); ++i) {
    const std::vector<BFloat16> x = bfloats(inputs[i], 128);
    check_words(quantize({x, 1, 128}, given), fixed[i]);
  }
}

TEST_CASE("in float32, torchao's float8 tensors and Quark's have a scale of float32") {
  const std::vector<float> x = floats("3FC40000 3A050000 3A2F0000 BF000000 80000000", 128);
  const std::vector<float> y = floats("3F8A0000 3A4F0000 BF0B0000", 128);
  for (const char* name : {"torchao_float8_tensor", "quark_fp8"}) {
    check_words(quantize({x, 1, 128}, find_recipe(name).recipe), "3B600000 7E 22 24 F1 80");
    check_words(quantize({y, 1, 128}, find_recipe(name).recipe), "3B1DB6DB 7E 2A F6");
  }
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
  } rows[] = {{"modelopt_mxfp8",
               {"77 7E 6A 90", "78 76 62 80", "78 78 E9", "89 7E 29", "00 20 A0", "FE 00 7E 80", "00 7E 7F FE"}},
              {"flashinfer_mxfp8",
               {"77 7E 6A 90", "78 76 62 80", "78 78 E9", ".. ..", "00 00 80", "FE 00 7E 80", "77 78 7E F0"}},
              {"transformers_mxfp8",
               {"77 7E 6A 90", "78 76 62 80", "78 78 E9", "8A 76 21", "01 .. ..", "FE 00 7E 80", "77 78 7F F0"}},
              {"microxcaling_mxfp8", {"77 7E 6A 90", "77 7E 6A 00", "77 7E F1", "89 7E 29", "00 20 A0", "FF", "FF"}},
              {"vllm_mxfp4", {"7E 6 1 8", "7E 6 1 8", "7E 6 A", "90 6 0", "00 0 8", "FD 0 7 8", "7D 6 7 C"}},
              {"flashinfer_mxfp4", {"7E 6 1 8", "7E 6 1 8", "7E 6 A", ".. ..", "00 0 8", "FE 0 7 8", "7D 6 7 C"}}};
  for (const auto& [name, words] : rows) {
    for (std::size_t i = 0; i < std::size(blocks); ++i) {
      INFO(name << " of " << blocks[i]);
      const std::vector<float> x = floats(blocks[i], 32);
      const Quantized q = quantize({x, 1, 32}, find_recipe(name).recipe);
      const std::string expected = words[i];
      if (expected.size() > 2) {
        check_words(q, expected);
      } else {
        CHECK(first_scale(q) == hex(expected).front());
      }
    }
  }
}

TEST_CASE("NVFP4 is vLLM's and torchao's, of two levels and of one") {
  // torchao 0.18.0 nvfp4_tensor.py on PyTorch 2.13.0 (CPU); vllm 0.33.0 nvfp4_utils.cuh: a port.
  const char* const blocks[] = {"408C BF80 8000 3E9A", "3D91 BCF6", "3DFA 3D4D", "3F16 3E7A BDFA",
                                "3EB4 3E16 BD96",      "8000",      "3580 B500"};
  const struct {
    const char* recipe;
    const char* words[std::size(blocks)];
  } rows[] = {
      {"vllm_nvfp4", {"7E 7 B 8 1", "4F 7 C", "55 7 4", "67 7 4 A", "61 7 5 B", "00 8", "00 0 8"}},
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
        CHECK((q.codes[i * 8 + (k - 1) / 2] >> ((k - 1) % 2 * 4) & 0xFU) == expected[k]);
      }
    }
  }
}

}  // namespace fp8lab::tests
