// SPDX-License-Identifier: Apache-2.0
// GEMM kernels on the host team equal gemm() bit for bit, in every order of what runs at the same time.
#include "fp8lab/gpu/gemm.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "fp8lab/reference/gemm/gemm.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using gpu::GemmKernel;
using gpu::HostChip;
using gpu::HostOrder;
using gpu::MmaType;

constexpr HostOrder ascending{};
constexpr HostOrder descending{.kind = HostOrder::Kind::descending};
constexpr HostOrder shuffled{.kind = HostOrder::Kind::shuffled, .seed = 3};

/// What a problem's codes are.
enum class Codes : std::uint8_t {
  any,     ///< NaN and infinities among them
  finite,  ///< all but these
  small,   ///< zeros and subnormals, and a few ones
};

struct Problem {
  std::size_t m, n, k;
  MmaType type_a = MmaType::e4m3, type_b = MmaType::e4m3;
  Codes codes = Codes::finite;
};

std::uint8_t code_of(MmaType type, Codes codes, std::uint64_t random) {
  const auto code = static_cast<std::uint8_t>(random);
  const unsigned largest = type == MmaType::e4m3 ? 0x7E : 0x7B;
  switch (codes) {
    case Codes::any: return random / 256 % 64 == 0 ? code : code & 0xBFU;
    case Codes::finite: return static_cast<std::uint8_t>((code & 0x80U) | std::min<unsigned>(code & 0x7FU, largest));
    case Codes::small: return random / 256 % 97 == 0 ? 0x38 : code & 0x83U;
  }
  return 0;
}
/// Codes that begin at a multiple of 16 bytes, as kernels want them.
std::vector<std::uint8_t> random_codes(MmaType type, Codes codes, std::uint64_t stream, std::size_t count) {
  std::vector<std::uint8_t> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = code_of(type, codes, random_bits(stream, i) >> 8);
  return all;
}
/// Scales of any significand and sign, from 2^-11 to 2^10.
std::vector<float> random_scales(std::uint64_t stream, std::size_t count) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    all[i] = std::bit_cast<float>(0x3A000000U + (static_cast<std::uint32_t>(random_bits(stream, i)) & 0x8AFFFFFFU));
  }
  return all;
}

/// Everything that a kernel reads, and its result beside that of the reference.
class GemmCase {
 public:
  GemmCase(GemmKernel kernel, const Problem& of)
      : kernel_(kernel),
        problem_(of),
        a_(random_codes(of.type_a, of.codes, 21, of.m * of.k)),
        b_(random_codes(of.type_b, of.codes, 22, of.n * of.k)),
        bias_(random_scales(23, of.n)) {
    const std::size_t blocks = gpu::ceil_div(of.k, 128);
    if (kernel == GemmKernel::wgmma_scaled_1d2d) rows_b_ = 128;
    if (kernel != GemmKernel::wgmma_scaled_1d2d && kernel != GemmKernel::wgmma_scaled_1d1d) return;
    tile_scales_a_ = random_scales(31, of.m * blocks);
    tile_scales_b_ = random_scales(32, gpu::ceil_div(of.n, rows_b_) * blocks);
  }

  /// The result; what lies behind it must be untouched.
  template <typename T>
  std::vector<T> run(HostOrder order, HostChip chip, std::size_t promote_k = 128) {
    const std::size_t size = problem_.m * problem_.n;
    std::vector<T> out(size + 8, std::bit_cast<T>(poison<T>()));
    const gpu::GemmArguments arguments{.m = problem_.m,
                                       .n = problem_.n,
                                       .k = problem_.k,
                                       .type_a = problem_.type_a,
                                       .type_b = problem_.type_b,
                                       .a = a_,
                                       .b = b_,
                                       .scale_a = std::span(&scale_a_, 1),
                                       .scale_b = std::span(&scale_b_, 1),
                                       .tile_scales_a = tile_scales_a_,
                                       .tile_scales_b = tile_scales_b_,
                                       .bias = bias_,
                                       .promote_k = promote_k,
                                       .out = std::span(out).first(size)};
    gpu::gemm_on_host(kernel_, arguments, order, chip);
    for (std::size_t i = size; i < out.size(); ++i) CHECK(std::bit_cast<Word<T>>(out[i]) == poison<T>());
    out.resize(size, out[0]);
    return out;
  }
  /// gemm() of the same, as float32 numbers or encoded.
  [[nodiscard]] std::vector<float> reference(HostChip chip, int promote_k) const {
    std::vector<float> out(problem_.m * problem_.n);
    gemm({.model = gpu::model_of(kernel_, chip), .promote_k = promote_k}, left(), right(), out, {.bias = bias_});
    return out;
  }
  [[nodiscard]] std::vector<std::uint16_t> reference(HostChip chip, const Format& format) const {
    std::vector<std::uint16_t> out(problem_.m * problem_.n);
    gemm({.model = gpu::model_of(kernel_, chip), .output = format, .cast = cuda_nosat_policy}, left(), right(), out,
         {.bias = bias_});
    return out;
  }

 private:
  template <typename T>
  using Word = std::conditional_t<sizeof(T) == 2, std::uint16_t, std::uint32_t>;
  template <typename T>
  static constexpr Word<T> poison() {
    return static_cast<Word<T>>(0xAAAAAAAAU & std::numeric_limits<Word<T>>::max());
  }
  [[nodiscard]] Operand left() const {
    Operand operand = Operand::codes(a_, gpu::format_of(problem_.type_a), problem_.m, problem_.k);
    operand.tensor_scale.factor = scale_a_;
    operand.tile_scales = {.values = tile_scales_a_, .rows = 1, .depth = 128};
    return operand;
  }
  [[nodiscard]] Operand right() const {
    Operand operand = Operand::codes(b_, gpu::format_of(problem_.type_b), problem_.n, problem_.k);
    operand.tensor_scale.factor = scale_b_;
    operand.tile_scales = {.values = tile_scales_b_, .rows = rows_b_, .depth = 128};
    return operand;
  }

  GemmKernel kernel_;
  Problem problem_;
  std::vector<std::uint8_t> a_, b_;
  float scale_a_ = 0.37F, scale_b_ = 3.1F;
  std::vector<float> bias_, tile_scales_a_, tile_scales_b_;
  std::size_t rows_b_ = 1;
};

void check_kernel(GemmKernel kernel, const Problem& problem, HostOrder order, HostChip chip = HostChip::hopper,
                  std::size_t promote_k = 128) {
  GemmCase work(kernel, problem);
  const auto out = work.run<float>(order, chip, promote_k);
  const bool promotes = kernel == GemmKernel::wgmma_promoted;
  const auto wanted = work.reference(chip, promotes ? static_cast<int>(promote_k) : 0);
  Mismatches wrong;
  for (std::size_t i = 0; i < out.size(); ++i) wrong.compare(i, std::uint32_t{0}, bits(out[i]), bits(wanted[i]));
  REQUIRE_NO(wrong);
}

}  // namespace

TEST_CASE("wgmma with fast accumulation on the host team equals gemm") {
  using enum MmaType;
  check_kernel(GemmKernel::wgmma_fast, {129, 263, 656}, ascending);
  check_kernel(GemmKernel::wgmma_fast, {63, 40, 1024, e4m3, e5m2, Codes::any}, descending);
  check_kernel(GemmKernel::wgmma_fast, {130, 17, 144, e5m2, e4m3, Codes::small}, shuffled);
  check_kernel(GemmKernel::wgmma_fast, {1, 1, 16, e5m2, e5m2}, shuffled);
}
TEST_CASE("wgmma with promotion on the host team equals gemm") {
  using enum MmaType;
  check_kernel(GemmKernel::wgmma_promoted, {129, 131, 1024}, descending);
  check_kernel(GemmKernel::wgmma_promoted, {70, 120, 656, e5m2, e4m3, Codes::any}, ascending, HostChip::hopper, 256);
  check_kernel(GemmKernel::wgmma_promoted, {5, 3, 400, e4m3, e5m2, Codes::small}, shuffled, HostChip::hopper, 256);
  // The last promotion comes early.
  check_kernel(GemmKernel::wgmma_promoted, {40, 33, 528}, shuffled, HostChip::hopper, 256);
  check_kernel(GemmKernel::wgmma_promoted, {5, 3, 144}, ascending, HostChip::hopper, 1024);
}
TEST_CASE("wgmma with promotion within a stage, and with intervals that end in another stage, equals gemm") {
  using enum MmaType;
  check_kernel(GemmKernel::wgmma_promoted, {66, 9, 304}, ascending, HostChip::hopper, 32);
  check_kernel(GemmKernel::wgmma_promoted, {3, 130, 400, e5m2, e4m3, Codes::any}, shuffled, HostChip::hopper, 64);
  check_kernel(GemmKernel::wgmma_promoted, {5, 17, 656, e4m3, e5m2, Codes::small}, descending, HostChip::hopper, 96);
  // Two promotions in the last stage, the first of them of what a stage before left.
  check_kernel(GemmKernel::wgmma_promoted, {5, 3, 480}, shuffled, HostChip::hopper, 160);
}
TEST_CASE("wgmma with DeepGEMM's scaled promotion on the host team equals gemm") {
  using enum MmaType;
  check_kernel(GemmKernel::wgmma_scaled_1d2d, {66, 257, 640}, ascending);
  check_kernel(GemmKernel::wgmma_scaled_1d1d, {131, 66, 656, e4m3, e4m3, Codes::any}, descending);
  check_kernel(GemmKernel::wgmma_scaled_1d2d, {3, 130, 1024, e5m2, e4m3}, shuffled);
}
TEST_CASE("mma.sync's GEMM on the host team equals gemm with the models of Ada, Hopper and RTX Blackwell") {
  using enum MmaType;
  check_kernel(GemmKernel::mma_sync, {129, 7, 336}, ascending, HostChip::ada);
  check_kernel(GemmKernel::mma_sync, {40, 131, 112, e5m2, e4m3, Codes::any}, shuffled);
  check_kernel(GemmKernel::mma_sync, {3, 5, 16, e4m3, e5m2, Codes::small}, descending, HostChip::rtx_blackwell);
  check_kernel(GemmKernel::mma_sync_float16, {17, 120, 80, e4m3, e4m3, Codes::small}, descending, HostChip::ada);
  check_kernel(GemmKernel::mma_sync_float16, {65, 33, 144, e5m2, e5m2, Codes::any}, shuffled);
}
TEST_CASE("GEMM kernels store half and bfloat16 as gemm encodes them") {
  GemmCase work(GemmKernel::mma_sync, {.m = 33, .n = 30, .k = 64, .type_b = MmaType::e5m2, .codes = Codes::any});
  const auto halves = work.run<Half>(ascending, HostChip::ada);
  const auto bfloats = work.run<BFloat16>(ascending, HostChip::ada);
  const auto wanted_halves = work.reference(HostChip::ada, binary16);
  const auto wanted_bfloats = work.reference(HostChip::ada, bfloat16);
  Mismatches wrong;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    wrong.compare(i, std::uint32_t{0}, halves[i].bits, wanted_halves[i]);
    wrong.compare(i, std::uint32_t{0}, bfloats[i].bits, wanted_bfloats[i]);
  }
  REQUIRE_NO(wrong);
}
TEST_CASE("GEMM kernels refuse what does not fit, and say what does") {
  std::vector<std::uint8_t> a(16 * 32 + 16);
  std::vector<float> out(256);
  const auto refusal = [&](GemmKernel kernel, auto change, HostChip chip = HostChip::hopper) -> std::string {
    gpu::GemmArguments arguments{.m = 16, .n = 16, .k = 32, .a = std::span(a).first(512), .b = std::span(a).first(512)};
    arguments.out = std::span(out);
    change(arguments);
    try {
      gpu::gemm_on_host(kernel, arguments, {}, chip);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  using Arguments = gpu::GemmArguments;
  constexpr auto fast = GemmKernel::wgmma_fast;
  const float scale = 1;
  CHECK(refusal(fast, [](Arguments&) {}).empty());
  CHECK(refusal(fast, [](Arguments& x) { x.k = 24; }) == "K must be a positive multiple of 16, not 24");
  CHECK(refusal(fast, [](Arguments& x) { x.k = 0; }) == "K must be a positive multiple of 16, not 0");
  CHECK(refusal(fast, [](Arguments& x) { x.m = 17; }) == "a must have 17 * 32 elements, not 512");
  CHECK(refusal(fast, [&](Arguments& x) { x.b = std::span(a).subspan(1, 512); }) ==
        "b must begin at a multiple of 16 bytes");
  CHECK(refusal(fast, [&](Arguments& x) { x.out = std::span(out).first(3); }) ==
        "out must have 16 * 16 elements, not 3");
  CHECK(refusal(fast, [](Arguments& x) { x.type_b = MmaType::f16; }) == "b must be e4m3 or e5m2");
  CHECK(refusal(fast, [&](Arguments& x) { x.bias = std::span(&scale, 1); }) ==
        "bias must have 16 elements, one a column, or none, not 1");
  CHECK(refusal(fast, [&](Arguments& x) { x.tile_scales_a = std::span(&scale, 1); }) ==
        "tile scales are for wgmma_scaled_1d2d and wgmma_scaled_1d1d, not for wgmma_fast");
  CHECK(refusal(GemmKernel::wgmma_scaled_1d2d, [](Arguments&) {}) == "tile_scales_a must have 16 * 1 elements, not 0");
  CHECK(refusal(GemmKernel::wgmma_promoted, [](Arguments& x) { x.promote_k = 48; }) ==
        "promote_k must be a positive multiple of 32, not 48");
  CHECK(refusal(fast, [](Arguments&) {}, HostChip::ada) == "wgmma_fast is for Hopper alone");
  CHECK(refusal(GemmKernel::mma_sync, [](Arguments&) {}, HostChip::ampere) == "mma.sync of FP8 is for sm_89 and later");
  CHECK(find_value<gpu::GemmKernel>("kernel", "mma_sync") == GemmKernel::mma_sync);
}

}  // namespace fp8lab::tests
