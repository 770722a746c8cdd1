// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "kit/argument.hpp"
#include "train/train.hpp"

namespace fp8lab::experiments {

/// The arguments as users give them.
void describe_train(TrainArguments& arguments, ArgumentList& list);

/// The names, as the enumerators are.
[[nodiscard]] std::string_view name_of(TrainLoss loss);
[[nodiscard]] std::string_view name_of(Optimizer optimizer);
[[nodiscard]] std::string_view name_of(JumpOf of);
[[nodiscard]] std::string_view name_of(HeadPrecision head);

}  // namespace fp8lab::experiments
