// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kit/argument.hpp"
#include "train/train.hpp"

namespace fp8lab::experiments {

/// The arguments as users give them.
void describe_train(TrainArguments& arguments, ArgumentList& list);

}  // namespace fp8lab::experiments
