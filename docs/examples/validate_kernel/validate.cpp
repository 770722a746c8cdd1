// SPDX-License-Identifier: Apache-2.0
// Compares a user's quantizer with fp8lab bit for bit: its arithmetic on the host, and its kernel where there is a
// device. Returns 0 where all bits are equal, 1 where they are not. --bug switches a bug on, which the comparison must
// find.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fp8lab/doctor/diagnose.hpp>
#include <fp8lab/formats/decode.hpp>
#include <fp8lab/reference/measure/distributions.hpp>
#include <fp8lab/reference/scaling/quantize.hpp>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "block_quantizer.cuh"
#include "on_device.hpp"

namespace {

constexpr std::size_t rows = 256, columns = 1024, blocks = rows * columns / block_size;

/// Draws in blocks of every magnitude, and what kernels forget: zeros of both signs, subnormals, infinity and NaN.
std::vector<float> hard_input() {
  std::vector<float> x(rows * columns);
  fp8lab::sample(fp8lab::find_distribution("normal"), 1, 0, x);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], static_cast<int>(i / block_size % 270) - 150);
  for (std::size_t i = 0; i < block_size; ++i) x[i] = i % 2 == 0 ? 0.0F : -0.0F;
  x[3 * block_size + 5] = std::numeric_limits<float>::quiet_NaN();
  x[4 * block_size + 6] = -std::numeric_limits<float>::infinity();
  return x;
}

void quantize_on_host(const std::vector<float>& x, bool too_late, std::vector<std::uint8_t>& codes,
                      std::vector<float>& scale_inv) {
  for (std::size_t block = 0; block < blocks; ++block) {
    const float* const values = x.data() + block * block_size;
    float amax = 0;
    for (int i = 0; i < block_size; ++i) amax = std::fmax(amax, std::fabs(values[i]));
    const BlockScale scale = scale_of(amax, too_late);
    for (int i = 0; i < block_size; ++i) codes[block * block_size + i] = to_e4m3(values[i] * scale.multiplies);
    scale_inv[block] = scale.stored_inverse;
  }
}

/// What the kernel did instead, in a sentence.
std::string diagnosis(const std::vector<float>& x, const std::vector<std::uint8_t>& codes,
                      const std::vector<float>& scale_inv) {
  const fp8lab::MatrixView tensor(x, rows, columns);
  const fp8lab::doctor::Dump dump{.codes = codes,
                                  .format = fp8lab::e4m3,
                                  .scales = {.format = fp8lab::binary32, .bytes = std::as_bytes(std::span(scale_inv))}};
  const char* const name = "te_block_1x128";
  return diagnose(tensor, dump, {.expected = fp8lab::find_recipe(name).recipe, .expected_name = name}).verdict;
}

/// Prints the first elements and scales that differ; returns whether none do.
bool equal(const char* where, const std::vector<float>& x, const std::vector<std::uint8_t>& codes,
           const std::vector<float>& scale_inv, const fp8lab::Quantized& expected) {
  std::size_t wrong_codes = 0, wrong_scales = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    if (codes[i] == expected.codes[i] || ++wrong_codes > 5) continue;
    std::printf("%s: (%zu, %zu): input %.9g (%08x): the kernel's code %02x is %g, fp8lab's %02x is %g\n", where,
                i / columns, i % columns, static_cast<double>(x[i]), bits_of(x[i]), codes[i],
                static_cast<double>(fp8lab::decode(fp8lab::e4m3, codes[i])), expected.codes[i],
                static_cast<double>(fp8lab::decode(fp8lab::e4m3, expected.codes[i])));
  }
  for (std::size_t i = 0; i < scale_inv.size(); ++i) {
    if (bits_of(scale_inv[i]) == bits_of(expected.scale_inv[i]) || ++wrong_scales > 5) continue;
    std::printf("%s: block %zu: the kernel's scale_inv is %a, fp8lab's %a\n", where, i,
                static_cast<double>(scale_inv[i]), static_cast<double>(expected.scale_inv[i]));
  }
  std::printf("%s: %zu of %zu codes and %zu of %zu scales differ\n", where, wrong_codes, codes.size(), wrong_scales,
              scale_inv.size());
  if (wrong_codes + wrong_scales == 0) return true;
  std::printf("%s: %s\n", where, diagnosis(x, codes, scale_inv).c_str());
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const bool bug = argc > 1 && std::strcmp(argv[1], "--bug") == 0;
  const std::vector<float> x = hard_input();

  // 1. What the codes and scales must be.
  const fp8lab::Quantized expected =
      fp8lab::quantize(fp8lab::MatrixView(x, rows, columns), fp8lab::find_recipe("te_block_1x128").recipe);

  // 2. The kernel's arithmetic on the host.
  std::vector<std::uint8_t> codes(x.size());
  std::vector<float> scale_inv(blocks);
  quantize_on_host(x, bug, codes, scale_inv);
  bool good = equal("host", x, codes, scale_inv, expected);

  // 3. The kernel.
#ifdef WITH_CUDA
  const Outcome outcome = quantize_on_device(x, bug, codes, scale_inv);
  if (outcome == Outcome::failed) good = false;
  if (outcome == Outcome::ran) good = equal("device", x, codes, scale_inv, expected) && good;
#else
  std::printf("device: skipped: compiled without CUDA\n");
#endif
  return good ? 0 : 1;
}
