// SPDX-License-Identifier: Apache-2.0
#include "dot/dot.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array every_rule{ZeroRule::floor, ZeroRule::skip_terms, ZeroRule::count_zero_factors,
                                ZeroRule::skip_empty_groups, ZeroRule::skip_zero_groups};

/// The operands, viewed as the library takes them.
class Sides {
 public:
  explicit Sides(const DotArguments& arguments)
      : arguments_(arguments),
        left_(arguments.a.codes, arguments.a.format),
        right_(arguments.b.codes, arguments.b.format) {}

  [[nodiscard]] DotTrace trace(const MmaModel& model, const TraceOptions& options) const {
    return trace_dot(model, left_.operand(1, arguments_.a.codes.size(), arguments_.a.scales),
                     right_.operand(1, arguments_.b.codes.size(), arguments_.b.scales), options);
  }

 private:
  const DotArguments& arguments_;
  Elements left_, right_;
};

/// A word of a result, float16 widened to float32, so that results of both are compared.
std::uint64_t comparable(const Format& format, std::uint64_t word) {
  if (format != binary16) return word;
  const float value = decode(format, static_cast<std::uint32_t>(word));
  return std::isnan(value) ? 0x7FFFFFFFU : std::bit_cast<std::uint32_t>(value);
}

bool takes(const MmaModel& model, const DotArguments& arguments) {
  const auto has = [&](const Format& format) {
    const bool floats = format == binary32;  // which a TF32 instruction takes
    return std::ranges::find(model.operands, format) != model.operands.end() ||
           (floats && std::ranges::find(model.operands, tf32) != model.operands.end());
  };
  if (!has(arguments.a.format) || !has(arguments.b.format)) return false;
  if (!model.scales) return arguments.a.scales.empty() && arguments.b.scales.empty();
  const auto block = static_cast<std::size_t>(model.scales->block);
  const std::optional<BlockScales>& given = arguments.model.scales;
  return given && given->format == model.scales->format && given->block == model.scales->block &&
         arguments.a.codes.size() % block == 0;
}

/// The accumulator that the model adds to, as a word of another's; none where that cannot hold it.
std::optional<std::uint64_t> c_for(const MmaModel& model, const DotArguments& arguments) {
  const Format& own = arguments.model.accumulator();
  if (model.accumulator() == own) return arguments.options.c;
  if (model.is_fp64() || arguments.model.is_fp64()) return std::nullopt;  // they share no operands
  const float value = decode(own, static_cast<std::uint32_t>(arguments.options.c));
  const std::uint32_t word = encode(model.accumulator(), cuda_nosat_policy, value);
  const bool same =
      std::bit_cast<std::uint32_t>(decode(model.accumulator(), word)) == std::bit_cast<std::uint32_t>(value);
  return same ? std::optional<std::uint64_t>(word) : std::nullopt;
}

/// Never, the interval that was asked for where it fits, and the model's K times powers of two up to the whole.
std::vector<int> promotions_of(const MmaModel& model, const DotArguments& arguments) {
  std::vector<int> list{0};
  if (model.k() == 0 || model.is_fp64()) return list;
  const int asked = arguments.options.promote_k;
  const auto depth = static_cast<long long>(arguments.a.codes.size());
  for (long long k = model.k(); k < depth && k < 1 << 30; k *= 2) list.push_back(static_cast<int>(k));
  if (asked > 0 && asked % model.k() == 0 && std::ranges::count(list, asked) == 0) list.push_back(asked);
  return list;
}

/// The ways of one model that give `wanted`.
void add_candidates(std::vector<DotCandidate>& candidates, const Sides& sides, const DotArguments& arguments,
                    const MmaModel& model, std::uint64_t wanted) {
  const std::optional<std::uint64_t> c = c_for(model, arguments);
  if (!takes(model, arguments) || !c) return;
  for (const int promote_k : promotions_of(model, arguments)) {
    DotCandidate candidate{std::string(model.name), promote_k, {}, false};
    const auto rules = std::span(every_rule).first(model.group > 1 ? every_rule.size() : 3);
    for (const ZeroRule rule : rules) {
      const DotTrace trace = sides.trace(model, {*c, rule, promote_k});
      if (comparable(trace.format, trace.word) == wanted) candidate.zero_rules.push_back(rule);
    }
    candidate.every_zero_rule = candidate.zero_rules.size() == rules.size();
    if (!candidate.zero_rules.empty()) candidates.push_back(candidate);
  }
}

}  // namespace

DotResult run_dot(const DotArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  for (const DotOperand* operand : {&arguments.a, &arguments.b}) {
    const std::size_t depth = operand->codes.size();
    if (depth > most_depth) refuse("an operand may have at most ", most_depth, " elements, not ", depth);
  }
  const Sides sides(arguments);
  DotResult result{arguments, sides.trace(arguments.model, arguments.options), {}, {}};
  const Format& format = result.trace.format;
  if (arguments.got && (*arguments.got & ~(format.sign_mask() | format.magnitude_mask())) != 0) {
    refuse("got must be a word of ", format_name(format), ", the result's format, of ", format.bits(), " bits");
  }
  if (arguments.at && *arguments.at >= result.trace.depth) {
    refuse("at must be from 0 to ", result.trace.depth - 1, ", not ", *arguments.at);
  }
  if (takes(exact, arguments)) {
    if (const auto c = c_for(exact, arguments))
      result.exact = static_cast<float>(sides.trace(exact, {.c = *c}).value());
  }
  if (!arguments.got || result.passed()) return result;
  const std::uint64_t wanted = comparable(format, *arguments.got);
  for (std::size_t i = 0; i < models.size(); ++i) {
    if (progress) progress(static_cast<double>(i) / static_cast<double>(models.size()));
    add_candidates(result.candidates, sides, arguments, models[i], wanted);
  }
  return result;
}

}  // namespace fp8lab::experiments
