// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <memory>
#include <random>
#include <span>

#include "bench.hpp"
#include "cast/cast.hpp"
#include "fp8lab/doctor/compare.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/measure/errors.hpp"
#include "fp8lab/reference/measure/histogram.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/representable.hpp"

namespace fp8lab::bench {
namespace {

constexpr std::size_t size = std::size_t{1} << 22;

/// Normal numbers, what an E4M3 cast makes of them, and the numbers as bfloat16.
struct Buffers {
  std::vector<float> x = std::vector<float>(size);
  std::vector<float> back = std::vector<float>(size);
  std::vector<float> copy = std::vector<float>(size);
  std::vector<BFloat16> bfloats = std::vector<BFloat16>(size);
  Buffers() {
    torch_cuda_normal(1, 0, {}, 0, 1, x);
    cast_to_representable(e4m3, {}, std::span<const float>(x), 1, std::span(back));
    for (std::size_t i = 0; i < size; ++i) {
      bfloats[i].bits = static_cast<std::uint16_t>(encode(bfloat16, CastPolicy{}, x[i]));
    }
  }
};
using Data = std::shared_ptr<Buffers>;

/// `read`: bytes an element; a copy reads and writes 8.
Row row_of(const Data& data, const std::string& name, double read, const std::function<void()>& work,
           const std::function<bool()>& verified) {
  return {.name = name + ", 2^22 elements",
          .bound_name = "memcpy, same bytes",
          .work = work,
          .bound = [data] { std::memcpy(data->copy.data(), data->x.data(), size * sizeof(float)); },
          .bound_factor = read / 8,
          .verified = verified};
}

/// Totals, and the binades of the errors.
void measure_errors(const Buffers& data, ErrorTotals& totals, Histogram& binades) {
  std::vector<double> x(error_block);
  std::vector<double> back(error_block);
  for (std::size_t first = 0; first < size; first += error_block) {
    widen(std::span(data.x).subspan(first, error_block), x);
    widen(std::span(data.back).subspan(first, error_block), back);
    totals.add(std::span<const double>(back), std::span<const double>(x));
    absolute_error(back, x, back);
    binades.add(std::span<const double>(back));
  }
}

bool errors_are_right(const Buffers& data) {
  ErrorTotals totals;
  ErrorTotals expected;
  Histogram binades(BinadeBins{-149, 127});
  Histogram expected_binades(BinadeBins{-149, 127});
  measure_errors(data, totals, binades);
  for (std::size_t i = 0; i < size; ++i) {
    const auto x = static_cast<double>(data.x[i]);
    const auto back = static_cast<double>(data.back[i]);
    expected.add(back, x);
    expected_binades.add(absolute_error(back, x));
  }
  return totals.count == expected.count && totals.max_relative_error == expected.max_relative_error &&
         binades == expected_binades;
}

template <typename T>
experiments::CastResult cast_result(const std::vector<T>& values) {
  experiments::CastArguments arguments;
  arguments.source = experiments::HeldTensors{{MatrixView(std::span<const T>(values), 1, values.size())}};
  arguments.formats = {{"e4m3", e4m3}};
  return run_cast(arguments);
}

template <typename T>
bool cast_is_right(const std::vector<T>& values) {
  const experiments::CastResult result = cast_result(values);
  Histogram codes(CodeBins{e4m3});
  for (const T x : values) codes.add_code(encode(e4m3, CastPolicy{}, x));
  return result.casts[0].codes == codes;
}

/// Two arrays of random bits, nearly all of whose elements differ.
struct Dumps {
  std::vector<std::byte> a = std::vector<std::byte>(size * sizeof(float)), b = a, copy = a;
  Dumps() {
    std::mt19937_64 random(1);
    for (std::vector<std::byte>* const dump : {&a, &b}) {
      for (std::size_t i = 0; i < dump->size(); i += 8) {
        const std::uint64_t bits = random();
        std::memcpy(dump->data() + i, &bits, sizeof(bits));
      }
    }
  }
};

/// Counts what differs and what is above, element by element, by the values.
bool comparison_is_right(const Dumps& dumps, const doctor::ElementType& type) {
  const auto bits = static_cast<std::size_t>(type.bits());
  const std::uint64_t mask = ~std::uint64_t{0} >> (64 - bits);
  std::uint64_t differing = 0;
  std::uint64_t above = 0;
  for (std::size_t i = 0; i < dumps.a.size() * 8; i += bits) {
    std::uint64_t word_a = 0;
    std::uint64_t word_b = 0;
    std::memcpy(&word_a, dumps.a.data() + i / 8, (bits + 7) / 8);
    std::memcpy(&word_b, dumps.b.data() + i / 8, (bits + 7) / 8);
    word_a = word_a >> i % 8 & mask;
    word_b = word_b >> i % 8 & mask;
    differing += word_a != word_b ? 1 : 0;
    above += value_of(type, word_b) > value_of(type, word_a) ? 1 : 0;
  }
  const doctor::Comparison found = compare(type, dumps.a, dumps.b, {.columns = 4096});
  std::uint64_t found_above = 0;
  for (const std::uint64_t count : found.distances.above) found_above += count;
  return found.differing == differing && found_above == above;
}

Row comparison_row(const std::shared_ptr<Dumps>& dumps, const doctor::ElementType& type, const std::string& name) {
  return {.name = "compare of 2 x 2^24 bytes that differ, " + name,
          .bound_name = "memcpy, same bytes",
          .work = [dumps, type] { (void)compare(type, dumps->a, dumps->b, {.columns = 4096}); },
          .bound = [dumps] { std::memcpy(dumps->copy.data(), dumps->a.data(), dumps->a.size()); },
          .bound_factor = 1,
          .verified = [dumps, type] { return comparison_is_right(*dumps, type); }};
}

}  // namespace

std::vector<Row> measure_rows() {
  const auto data = std::make_shared<Buffers>();
  std::vector<Row> rows;
  rows.push_back(row_of(
      data, "totals and one histogram, float32", 8,
      [data] {
        ErrorTotals totals;
        Histogram binades(BinadeBins{-149, 127});
        measure_errors(*data, totals, binades);
      },
      [data] { return errors_are_right(*data); }));
  rows.push_back(row_of(
      data, "all that cast shows, float32", 4, [data] { (void)cast_result(data->x); },
      [data] { return cast_is_right(data->x); }));
  rows.push_back(row_of(
      data, "all that cast shows, bfloat16", 2, [data] { (void)cast_result(data->bfloats); },
      [data] { return cast_is_right(data->bfloats); }));
  const auto dumps = std::make_shared<Dumps>();
  rows.push_back(comparison_row(dumps, {e4m3}, "e4m3"));
  rows.push_back(comparison_row(dumps, {e2m1, true}, "e2m1 in pairs"));
  rows.push_back(comparison_row(dumps, {bfloat16}, "bfloat16"));
  rows.push_back(comparison_row(dumps, {binary32}, "float32"));
  return rows;
}

}  // namespace fp8lab::bench
