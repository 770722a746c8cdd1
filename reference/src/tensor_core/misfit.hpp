// SPDX-License-Identifier: Apache-2.0
// Says why a model does not take an operand, and which models do.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "fp8lab/reference/tensor_core/operand.hpp"

namespace fp8lab {

/// How the model reads the elements: the format of codes and of float64 values, binary32 or tf32 for float32 values.
[[nodiscard]] Format format_for(const MmaModel& model, const Operand& operand);

/// Why the model does not take the operand's format, or its kind of scales: what follows the operand's name in a
/// message; empty where it does.
[[nodiscard]] std::string misfit_of_format(const MmaModel& model, const Operand& operand);
[[nodiscard]] std::string misfit_of_scales(const MmaModel& model, const Operand& operand);

[[nodiscard]] bool takes(const MmaModel& model, const Operand& operand);

/// The names of the models that fit, at most eight of them: "a, b and 12 more (fp8lab models lists all)". Empty where
/// none fits.
[[nodiscard]] std::string names_of_models(const std::function<bool(const MmaModel&)>& fits);

/// The end of a message about a misfit: ". Models that take e4m3 with such scales: a, b".
[[nodiscard]] std::string models_that_take(const Operand& operand);
/// The same of an operand that has no scales: ". Models that take e4m3 without block scales: a, b".
[[nodiscard]] std::string models_without_scales(const Operand& operand);

/// The multiples of `unit` beside x: "32 or 64", and "32" where x is below 32.
[[nodiscard]] std::string nearest_multiples(std::size_t x, std::size_t unit);

/// "e8m0, one for every 32 of K", and the shortest decimal number that is x.
[[nodiscard]] std::string text_of(const BlockScales& scales);
[[nodiscard]] std::string text_of(float x);

}  // namespace fp8lab
