// SPDX-License-Identifier: Apache-2.0
#include "double_rounding/double_rounding.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <span>

#include "fp8lab/formats/chain.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "kit/lists.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::uint64_t most_inputs = 1 << 20;  // at a time
constexpr std::size_t most_examples = 8;
constexpr CastPolicy last_cast{};  // the default policy is cuda_satfinite

/// The floats in their order, as whole numbers without gaps: 0 is zero.
std::int64_t order_of(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto magnitude = static_cast<std::int64_t>(bits & 0x7FFFFFFFU);
  return (bits >> 31) != 0 ? -magnitude : magnitude;
}
float float_at(std::int64_t order) {
  const auto magnitude = static_cast<std::uint32_t>(std::abs(order));
  return std::bit_cast<float>(magnitude | (order < 0 ? 0x80000000U : 0U));
}

/// Where inputs come from: how many, in words, and elements first .. first + out.size().
struct Inputs {
  std::uint64_t size;
  std::string description;
  std::function<void(std::uint64_t first, std::span<float> out)> fill;
};

Inputs every_float(float low, float high) {
  if (!std::isfinite(low) || !std::isfinite(high) || !(low < high)) {
    refuse("low and high must be finite, and low less than high, not ", low, " and ", high);
  }
  TextStream text;
  text << "all float32 values x, " << low << " <= x < " << high;
  return {static_cast<std::uint64_t>(order_of(high) - order_of(low)), text.str(),
          [begin = order_of(low)](std::uint64_t first, std::span<float> out) {
            std::int64_t order = begin + static_cast<std::int64_t>(first);
            for (float& x : out) x = float_at(order++);
          }};
}

Inputs uniform_draws(double low, double high, long long size, std::uint64_t seed) {
  if (size < 1 || size > 1LL << 40) refuse("size must be from 1 to 2^40, not ", size);
  sample_uniform(low, high, seed, 0, {});  // throws where there is no such distribution
  TextStream text;
  text << "float32 values drawn with seed " << seed << " from U(" << low << ", " << high << ')';
  return {static_cast<std::uint64_t>(size), text.str(),
          [=](std::uint64_t first, std::span<float> out) { sample_uniform(low, high, seed, first, out); }};
}

Inputs inputs_of(const DoubleRoundingArguments& arguments) {
  const std::vector<double>& ends = arguments.uniform;
  if (ends.empty()) return every_float(arguments.low, arguments.high);
  if (ends.size() != 2) refuse("uniform must be two numbers, the ends of an interval, not ", ends.size());
  return uniform_draws(ends[0], ends[1], arguments.size, arguments.seed);
}

void check_bits(std::string_view what, const std::vector<ChosenFormat>& formats, int most) {
  check_filled_list(what, formats);
  for (const ChosenFormat& format : formats) {
    check_format(format.format);
    if (format.format.bits() > most) {
      refuse(what, " must have at most ", most, " bits, and ", format.name, " has ", format.format.bits());
    }
  }
}

std::vector<Chain> chains_of(const DoubleRoundingArguments& arguments) {
  check_bits("formats", arguments.formats, 8);
  check_bits("via", arguments.vias, 16);
  check_filled_list("via_roundings", arguments.via_roundings);
  std::vector<Chain> chains;
  for (const ChosenFormat& format : arguments.formats) {
    for (const ChosenFormat& via : arguments.vias) {
      for (const Rounding rounding : arguments.via_roundings) {
        check_deterministic(rounding);
        chains.push_back({format, via, rounding, 0, 0, {}});
      }
    }
  }
  return chains;
}

/// Counts the inputs that the chain changes.
void compare(std::span<const float> inputs, int threads, Chain& chain) {
  CastStep step{.format = chain.via.format};
  step.policy.rounding = chain.via_rounding;
  const Format& format = chain.format.format;
  const ChainDifferences found = chain_differences(step, format, last_cast, inputs, inputs.size(), threads);
  chain.count += found.count;
  for (const std::size_t index : found.indices) {
    checkpoint();
    const auto direct = static_cast<std::uint8_t>(encode(format, last_cast, inputs[index]));
    const auto via = static_cast<std::uint8_t>(encode_via(step, format, last_cast, inputs[index]));
    if (std::abs(decode(format, via)) < std::abs(decode(format, direct))) ++chain.toward_zero;
    if (chain.first.size() < most_examples) chain.first.push_back({inputs[index], direct, via});
  }
}

}  // namespace

DoubleRoundingResult run_double_rounding(const DoubleRoundingArguments& arguments, const Progress& progress) {
  const DefaultEnvironment environment;
  std::vector<Chain> chains = chains_of(arguments);
  const Inputs inputs = inputs_of(arguments);
  std::vector<float> room;
  for (std::uint64_t first = 0; first < inputs.size; first += room.size()) {
    room.resize(std::min(most_inputs, inputs.size - first));
    parallel_for(room.size(), arguments.threads, [&](std::size_t begin, std::size_t end) {
      inputs.fill(first + begin, std::span(room).subspan(begin, end - begin));
    });
    for (Chain& chain : chains) {
      compare(room, arguments.threads, chain);
      const auto part = static_cast<double>(&chain - chains.data() + 1) / static_cast<double>(chains.size());
      const double done = static_cast<double>(first) + part * static_cast<double>(room.size());
      if (progress) progress(done / static_cast<double>(inputs.size));
    }
  }
  return {arguments, inputs.description, inputs.size, std::move(chains)};
}

}  // namespace fp8lab::experiments
