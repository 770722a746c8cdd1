// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/doctor/diagnose.hpp"

#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/widen.hpp"
#include "quantize/order.hpp"
#include "quantize/search.hpp"
#include "quantize/verdict.hpp"

namespace fp8lab::doctor {

namespace {

void check(const MatrixView& x, const Dump& dump, const DiagnoseOptions& options) {
  check_threads(options.threads);
  if (x.size() == 0) refuse("x has no elements");
  if (options.expected) check_recipe(*options.expected);
  if (dump.format && (dump.format->bits() > 8 || !dump.format->is_signed)) {
    const char* const instead = dump.format->is_signed ? ""
                                                       : ", which is of scales: give these as scales, beside the codes "
                                                         "of elements, or compare a cast with those of encode()";
    refuse("codes are of a format with a sign and at most 8 bits, such as e4m3, e5m2 or e2m1, not of ",
           format_name(*dump.format), instead);
  }
  const float scale = dump.scales.of_tensor.value_or(1);
  const bool is_positive = scale > 0 && std::isfinite(scale);
  if (!is_positive) refuse("tensor_scale, the scale of the tensor, must be positive and finite, not ", scale);
}

/// Elements that are not zero: what stands in another order leaves zeros in the place of zeros.
std::uint64_t numbers_of(const MatrixView& x) {
  std::uint64_t count = 0;
  x.visit([&](auto elements) {
    if constexpr (!std::is_same_v<typename decltype(elements)::value_type, double>) {
      for (const auto& one : elements) count += widened(one) != 0 ? 1 : 0;
    }
  });
  return count;
}

}  // namespace

Diagnosis diagnose(const MatrixView& x, const Dump& dump, const DiagnoseOptions& options) {
  const DefaultEnvironment environment;
  check(x, dump, options);
  Diagnosis found = Search(x, dump, options).run();
  const std::uint64_t left = found.explanations.front().codes;
  if (left == 0 || left * 2 <= numbers_of(x)) return found;
  // Rows or columns in another order leave nothing in its place.
  const std::optional<Reordered> reordered = put_in_order(x, dump);
  if (!reordered) return found;
  for (const bool with_scales : {true, false}) {
    Dump own = dump;
    own.codes = reordered->codes;
    if (with_scales && reordered->scales.empty()) continue;
    if (with_scales) own.scales.bytes = reordered->scales;
    Diagnosis other = Search(x, own, options).run();
    if (other.explanations.front().unexplained() >= found.explanations.front().unexplained()) continue;
    other.is_in_order = false;
    other.notes.push_back(reordered->note);
    other.verdict = verdict_of(other);
    found = std::move(other);
  }
  return found;
}

}  // namespace fp8lab::doctor
