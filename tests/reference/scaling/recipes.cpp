// SPDX-License-Identifier: Apache-2.0
// Recipes against what the systems that they are named after gave: words recorded from their own functions.
#include <cmath>
#include <string>

#include "reference/scaling/words.hpp"
#include "support.hpp"

namespace fp8lab::tests {
TEST_CASE("FP8 tensors, rows and tiles are those of torchao's and DeepGEMM's own functions") {
  // On PyTorch 2.13.0 (CPU): torchao 0.18.0 tensor_to_scale and to_fp8_saturated, without and with powers of two, and
  // torch_blockwise_scale_act_quant_lhs; DeepGEMM 54e2261 per_token_cast_to_fp8, without and with use_ue8m0. Torchao's
  // float8 scales multiply on quantize; the others are scale_inv.
  const struct {
    const char* x;
    const char* words[5];  // the scale, then the codes
  } rows[] = {
      {"3FC4 3A05 3A2F BF00 8000",
       {"43924925 7E 22 25 F1 80", "43800000 7C 20 23 F0 80", "3B5FFFFF 7E 22 25 F1 80", "3B600000 7E 22 25 F1 80",
        "3B800000 7C 20 23 F0 80"}},
      {"3F8A 3A4F BF0B",
       {"43CFC4A3 7E 2A F6", "43800000 79 25 F1", "3B1DB6DC 7E 2A F6", "3B1DB6DB 7E 2B F6", "3B800000 79 25 F1"}},
      {"8000 0000", {"57CBBA10 80 00", "57800000 80 00", "2720D7C5 80 00", "346FACAD 80 00", "34800000 80 00"}},
      {"2180 A100", {"57CBBA10 00 80", "57800000 00 80", "2720D7C5 00 80", "346FACAD 00 80", "34800000 00 80"}},
      {"3F80 7FC0 BF80",
       {"7FC00000 7F 7F 7F", "7FC00000 7F 7F 7F", "7FC00000 7F 7F 7F", "7FC00000 7F 7F 7F", "7F000000 00 7F 80"}}};
  const char* const names[] = {"torchao_tensorwise", "torchao_rowwise", "torchao_blockwise", "deepgemm_cpu",
                               "deepgemm_ue8m0"};
  for (const auto& [x, words] : rows) {
    for (std::size_t i = 0; i < std::size(names); ++i) {
      INFO(names[i] << " of " << x);
      const std::string expected = words[i];
      const Quantized q = quantize({std::span<const BFloat16>(bfloats(x, 128)), 1, 128}, find_recipe(names[i]).recipe);
      const auto scale = std::bit_cast<float>(hex(expected).front());
      CHECK(word_of(q.scale_inv[0]) == word_of(i < 2 ? 1 / scale : scale));
      check_codes(q, expected.substr(9));
    }
  }
  const std::vector<float> near = floats("3EE00001", 1);  // its scale is next below 1024
  check_codes(quantize({near, 1, 1}, find_recipe("torchao_rowwise").recipe), "7E");
}

TEST_CASE("MX blocks are those of torchao's own to_mx, of 0.18 and after") {
  // The code of the scale, then those of the elements. Torchao 0.18.0 and 36027d8 on PyTorch 2.13.0 (CPU).
  const char* const blocks[] = {
      "3FE00000 3E99999A B9000000", "3FE10000 3E9A0000 80000000", "3FF80000 BF100000",         "48E00001 43960000",
      "00080000 80080000",          "3F800000 7F800000 BF000000", "3F800000 7FC00000 BF000000"};
  const struct {
    Format format;
    MxRule rule;
    bool released;  // 0.18.0
    const char* words[std::size(blocks)];
  } rows[] = {
      {e4m3,
       MxRule::floor,
       true,
       {"77 7E 6A 90", "77 7E 6A 80", "77 7E F1", "89 7E 29", "00 18 98", "F7 00 7E 80", "FF 00 7F 80"}},
      {e4m3,
       MxRule::ceil,
       true,
       {"78 76 62 88", "78 76 62 80", "78 78 E9", "8A 76 21", "00 18 98", "F7 00 7E 80", "FF 00 7F 80"}},
      {e4m3,
       MxRule::even,
       true,
       {"77 7E 6A 90", "77 7E 6A 80", "78 78 E9", "89 7E 29", "00 18 98", "F7 00 7E 80", "FF 00 7F 80"}},
      {e4m3,
       MxRule::rceil,
       true,
       {"77 7E 6A 90", "78 76 62 80", "78 78 E9", "89 7E 29", "00 00 80", "FE 00 7E 80", "FF 7F 7F 7F"}},
      {e4m3,
       MxRule::floor,
       false,
       {"77 7E 6A 90", "77 7E 6A 80", "77 7E F1", "89 7E 29", "00 20 A0", "FF 7F 7F 7F", "FF 7F 7F 7F"}},
      {e4m3,
       MxRule::ceil,
       false,
       {"78 76 62 88", "78 76 62 80", "78 78 E9", "8A 76 21", "00 20 A0", "FF 7F 7F 7F", "FF 7F 7F 7F"}},
      {e4m3,
       MxRule::even,
       false,
       {"77 7E 6A 90", "77 7E 6A 80", "78 78 E9", "89 7E 29", "00 20 A0", "FF 7F 7F 7F", "FF 7F 7F 7F"}},
      {e4m3,
       MxRule::rceil,
       false,
       {"77 7E 6A 90", "78 76 62 80", "78 78 E9", "8A 76 21", "00 20 A0", "FF 7F 7F 7F", "FF 7F 7F 7F"}},
      {e2m1, MxRule::floor, true, {"7D 7 2 8", "7D 7 2 8", "7D 7 C", "8F 7 0", "00 0 8", "FD 0 7 8", "FF 0 .. 8"}},
      {e2m1, MxRule::ceil, true, {"7E 6 1 8", "7E 6 1 8", "7E 6 A", "90 6 0", "00 0 8", "FD 0 7 8", "FF 0 .. 8"}},
      {e2m1, MxRule::even, true, {"7E 6 1 8", "7E 6 1 8", "7E 6 A", "90 6 0", "00 0 8", "FD 0 7 8", "FF 0 .. 8"}},
      {e2m1, MxRule::rceil, true, {"7E 6 1 8", "7E 6 1 8", "7E 6 A", "90 6 0", "00 0 8", "FE 0 7 8", "FF"}},
      {e2m1, MxRule::floor, false, {"7D 7 2 8", "7D 7 2 8", "7D 7 C", "8F 7 0", "00 0 8", "FF", "FF"}},
      {e2m1, MxRule::rceil, false, {"7E 6 1 8", "7E 6 1 8", "7E 6 A", "90 6 0", "00 0 8", "FF", "FF"}}};
  for (const auto& [format, rule, released, words] : rows) {
    const std::string name =
        std::string(released ? "torchao_0_18_mxfp8_" : "torchao_mxfp8_") + std::string(name_of(rule));
    Recipe recipe = find_recipe(name).recipe;
    recipe.format = format;
    for (std::size_t i = 0; i < std::size(blocks); ++i) {
      INFO(describe(recipe) << " of " << blocks[i]);
      const Quantized q = quantize({std::span<const float>(floats(blocks[i], 32)), 1, 32}, recipe);
      const std::string expected = words[i];
      CHECK(q.scale_codes[0] == hex(expected).front());
      if (expected.size() > 2) check_codes(q, expected.substr(3));
    }
  }
  // The sign of a NaN stays, but by rceil.
  const std::vector<float> nans = floats("3F800000 FFC00000", 32);
  check_codes(quantize({nans, 1, 32}, find_recipe("torchao_0_18_mxfp8_floor").recipe), "00 FF 00");
  check_codes(quantize({nans, 1, 32}, find_recipe("torchao_0_18_mxfp8_rceil").recipe), "7F 7F 7F");
}

TEST_CASE("NVFP4 is that of Transformer Engine's own reference, with its Hadamard matrix and without") {
  // NVFP4QuantizerRef of reference_nvfp4.py at d0067d0, which Transformer Engine's tests hold its kernels to, on
  // PyTorch 2.13.0 (CPU). Of the kernels' -0 it makes 0: here they are 8.
  const struct {
    const char* block;
    std::uint32_t scale;
    const char* codes;
  } blocks[] = {{"408C BF80 8000 3E9A", 0x7E, "7 B 8 1"},
                {"3D91 BCF6", 0x4F, "7 C"},
                {"3DFA 3D4D", 0x55, "7 4"},
                {"3F16 3E7A BDFA", 0x67, "7 4 A"},
                {"3EB4 3E16 BD96", 0x61, "7 5 B"},
                {"8000", 0x00, "8"},
                {"3580 B500", 0x00, "7 F"}};
  std::vector<BFloat16> row;
  for (const auto& one : blocks) {
    const std::vector<BFloat16> block = bfloats(one.block, 16);
    row.insert(row.end(), block.begin(), block.end());
  }
  Quantized q = quantize({row, 1, row.size()}, find_recipe("te_nvfp4").recipe);
  for (std::size_t i = 0; i < std::size(blocks); ++i) {
    INFO("block " << i);
    CHECK(q.scale_codes[i] == blocks[i].scale);
    check_codes(q, blocks[i].codes);
    q.codes.erase(q.codes.begin(), q.codes.begin() + 8);
  }
  // 32 x 8 seeded numbers, columnwise: seven codes and a scale are others where the matrix' output is not rounded.
  const std::string codes =
      "f593e7ad661b86a1e319e4dbc446bdf0f8fbf806466ac1957da1aabc19ecb0c9dc47c074b09659e4ed532c8d9172e1d1541d330dea9d4e7d"
      "52886eff6c474e7dedbaf492d5cbcca37f24cdde7f6b451c9b514ecf544542f6cb3b4973cc61253cd2c2c1b5f1712a1778f31491aa347dda"
      "d45cba9f03d1a9231dcf5379b0e38b93";
  const std::vector<std::uint8_t> scales{0x74, 0x77, 0x73, 0x7e, 0x78, 0x79, 0x79, 0x75,
                                         0x76, 0x74, 0x76, 0x79, 0x77, 0x78, 0x7b, 0x78};
  std::vector<BFloat16> x(std::size_t{32} * 8);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = {static_cast<std::uint16_t>((random_bits(1, i) & 0x81FFU) + 0x3E80U)};
  }
  q = quantize({x, 32, 8}, find_recipe("te_nvfp4_rht").recipe, Direction::columnwise);
  std::string actual;
  for (const std::uint8_t byte : q.codes) {
    for (const int nibble : {byte >> 4, byte & 15}) actual += "0123456789abcdef"[nibble];
  }
  CHECK(actual == codes);
  CHECK(q.scale_codes == scales);
  CHECK(q.amax == 6.75F);
}

}  // namespace fp8lab::tests
