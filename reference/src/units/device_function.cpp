// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/units/device_function.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/overlap.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/units/rounded_functions.hpp"
#include "units/device_steps.hpp"
#include "units/hopper_functions.hpp"

namespace fp8lab {
namespace {

/// The arrays of a call.
struct DeviceArrays {
  std::span<const float> x, y;
  std::span<float> out;
};

float with_device_nan(float x) { return x != x ? std::bit_cast<float>(0x7FFFFFFFU) : x; }

/// The units that a build computes with.
SpecialUnits units_of_build(const DeviceBuild& build) {
  const bool is_hopper = build.chip == DeviceChip::sm_90;
  const SpecialUnits units = build.units.value_or(SpecialUnits::hopper);
  if (units == SpecialUnits::correctly_rounded || is_hopper) return units;
  if (build.units) refuse("units are ", name_of(units), ", which are not those of ", name_of(build.chip));
  refuse("the special function unit of ", name_of(build.chip), " is not known; units of correctly_rounded stand in");
}

/// The division that flags ask for, of three.
template <typename Step>
Step division_under(const DeviceFlags& flags, Step fast, Step rounded, Step full) {
  if (flags.fast_math) return fast;
  return flags.prec_div ? rounded : full;
}

/// Calls call(step) with the step that computes a function under flags.
template <typename Steps, typename Call>
void with_device_step(DeviceFunction function, const DeviceFlags& flags, const Steps& steps, const Call& call) {
  const bool fast = flags.fast_math;
  const auto of = [&](float (Steps::*step)(float) const) {
    return [&steps, step](float x, float /*y*/) { return (steps.*step)(x); };
  };
  const auto of_two = [&](float (Steps::*step)(float, float) const) {
    return [&steps, step](float x, float y) { return (steps.*step)(x, y); };
  };
  switch (function) {
    case DeviceFunction::expf: return call(of(fast ? &Steps::fast_expf : &Steps::expf));
    case DeviceFunction::fast_expf: return call(of(&Steps::fast_expf));
    case DeviceFunction::tanhf: return call(of(fast ? &Steps::fast_tanhf : &Steps::tanhf));
    case DeviceFunction::erff: return call(of(&Steps::erff));
    case DeviceFunction::rsqrtf: return call(of(&Steps::rsqrtf));
    case DeviceFunction::divide:
      return call(of_two(division_under(flags, &Steps::fast_divide, &Steps::rounded_divide, &Steps::full_divide)));
    case DeviceFunction::fast_divide: return call(of_two(&Steps::fast_divide));
    case DeviceFunction::rounded_divide: return call(of_two(&Steps::rounded_divide));
    case DeviceFunction::reciprocal:
      return call(
          of(division_under(flags, &Steps::fast_reciprocal, &Steps::rounded_reciprocal, &Steps::full_reciprocal)));
    case DeviceFunction::rounded_reciprocal: return call(of(&Steps::rounded_reciprocal));
    case DeviceFunction::logf: return call(of(fast ? &Steps::fast_logf : &Steps::logf));
    case DeviceFunction::fast_logf: return call(of(&Steps::fast_logf));
    case DeviceFunction::exp2f: return call(of(&Steps::exp2f));
    case DeviceFunction::exp10f: return call(of(fast ? &Steps::fast_exp10f : &Steps::exp10f));
    case DeviceFunction::log2f: return call(of(fast ? &Steps::fast_log2f : &Steps::log2f));
    case DeviceFunction::fast_log2f: return call(of(&Steps::fast_log2f));
    case DeviceFunction::log10f: return call(of(fast ? &Steps::fast_log10f : &Steps::log10f));
    case DeviceFunction::log1pf: return call(of(&Steps::log1pf));
    case DeviceFunction::expm1f: return call(of(&Steps::expm1f));
    case DeviceFunction::sqrtf: return call(of(fast || !flags.prec_sqrt ? &Steps::fast_sqrtf : &Steps::rounded_sqrt));
    case DeviceFunction::rounded_sqrt: return call(of(&Steps::rounded_sqrt));
    case DeviceFunction::erfcf: return call(of(&Steps::erfcf));
    case DeviceFunction::normcdff: return call(of(&Steps::normcdff));
    case DeviceFunction::sinf: return call(of(fast ? &Steps::fast_sinf : &Steps::sinf));
    case DeviceFunction::cosf: return call(of(fast ? &Steps::fast_cosf : &Steps::cosf));
  }
}

template <Subnormals kSubnormals>
void run_device_steps(DeviceFunction function, const DeviceBuild& build, const DeviceArrays& arrays, int threads) {
  const DeviceSteps<kSubnormals> steps(units_of_build(build));
  with_device_step(function, build.flags, steps, [&](const auto& step) {
    parallel_for(arrays.x.size(), threads, [&](std::size_t first, std::size_t last) {
      for (std::size_t i = first; i < last; ++i) {
        checkpoint(i);
        arrays.out[i] = with_device_nan(step(arrays.x[i], arrays.y.empty() ? 0.0F : arrays.y[i]));
      }
    });
  });
}

}  // namespace

namespace {

thread_local std::optional<int> words_off_of_thread;

}  // namespace

FunctionsOff::FunctionsOff(int words) { words_off_of_thread = words; }
FunctionsOff::~FunctionsOff() { words_off_of_thread.reset(); }

float words_off(float x, float result, int words) {
  if (x == 0 || std::isinf(x) || result == 0 || result != result) return result;
  const auto word = std::bit_cast<std::uint32_t>(result);
  const std::int64_t magnitude = std::int64_t{word & 0x7FFFFFFFU} + words;
  const auto limited = static_cast<std::uint32_t>(std::clamp<std::int64_t>(magnitude, 0, 0x7F800000));
  return std::bit_cast<float>((word & 0x80000000U) | limited);
}

float hopper_expf(float x) {
  if (words_off_of_thread) return words_off(x, rounded_exp(x), *words_off_of_thread);
  return DeviceSteps<Subnormals::kept>(SpecialUnits::hopper).expf(x);
}
float hopper_tanhf(float x) {
  // No device's tangent is beyond 1.
  if (words_off_of_thread) return std::clamp(words_off(x, rounded_tanh(x), *words_off_of_thread), -1.0F, 1.0F);
  return DeviceSteps<Subnormals::kept>(SpecialUnits::hopper).tanhf(x);
}

float hopper_log1pf(float x) { return DeviceSteps<Subnormals::kept>(SpecialUnits::hopper).log1pf(x); }
float hopper_sinf(float x) { return DeviceSteps<Subnormals::kept>(SpecialUnits::hopper).sinf(x); }
float hopper_cosf(float x) { return DeviceSteps<Subnormals::kept>(SpecialUnits::hopper).cosf(x); }

void device_function(DeviceFunction function, const DeviceBuild& build, std::span<const float> x,
                     std::span<const float> y, std::span<float> out, int threads) {
  if (out.size() != x.size()) refuse("out must have ", x.size(), " elements, not ", out.size());
  const std::size_t of_y = has_two_arguments(function) ? x.size() : 0;
  if (y.size() != of_y) refuse("y must have ", of_y, " elements for ", name_of(function), ", not ", y.size());
  check_apart_or_same("x", x, "out", out);
  check_apart_or_same("y", y, "out", out);
  const bool flushes = build.flags.ftz || build.flags.fast_math;
  (flushes ? run_device_steps<Subnormals::flushed> : run_device_steps<Subnormals::kept>)(function, build, {x, y, out},
                                                                                         threads);
}

}  // namespace fp8lab
