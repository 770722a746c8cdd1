// SPDX-License-Identifier: Apache-2.0
#include "train/arguments.hpp"

#include <array>

#include "fp8lab/formats/named.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::array train_losses{Named{"cross_entropy", TrainLoss::cross_entropy}, Named{"mse", TrainLoss::mse}};
constexpr std::array optimizers{Named{"adam", Optimizer::adam}, Named{"sgd", Optimizer::sgd}};
constexpr std::array jumping{Named{"inputs", JumpOf::inputs}, Named{"gradients", JumpOf::gradients}};
constexpr std::array heads{Named{"high_precision", HeadPrecision::high_precision}, Named{"fp8", HeadPrecision::fp8}};
static_assert(is_in_order(train_losses) && is_in_order(optimizers) && is_in_order(jumping) && is_in_order(heads));

void describe_network(TrainArguments& arguments, ArgumentList& list) {
  list.add("sizes", arguments.sizes,
           "how many inputs, units of each hidden layer, and outputs; at least 2 inputs for "
           "each output")
      .with_repeats();
  list.add("recipes", arguments.recipes,
           "linear recipes to train under (fp8lab linear-recipes lists them), beside FP32, which is always there")
      .spelled("--recipe")
      .also_called("--recipes")
      .or_none();
  list.add("head", arguments.head,
           "the last layer of recipes that quantize: high_precision (bfloat16, as real systems have it) or fp8 "
           "(as the recipe has it)");
  list.add("batch", arguments.batch, "examples of a step");
  list.add("steps", arguments.steps, "steps of training");
  list.add("loss", arguments.loss,
           "what is learnt: cross_entropy (which of the products of input pairs is the largest) or mse (all of "
           "the products)");
}

void describe_optimizer(TrainArguments& arguments, ArgumentList& list) {
  list.add("optimizer", arguments.optimizer, "adam or sgd (with momentum)");
  list.add("learning_rate", arguments.learning_rate, "learning rate");
  list.add("momentum", arguments.momentum, "momentum of sgd");
  list.add("clip", arguments.clip, "gradients whose norm is larger are scaled to it; 0: none are");
  list.add("gradient_scale", arguments.gradient_scale,
           "factor on the loss's gradient, which the optimizer divides out again");
}

void describe_delayed(TrainArguments& arguments, ArgumentList& list) {
  list.add("amax_history_len", arguments.amax_history_len, "length of the amax history of te_delayed recipes");
  list.add("amax_compute_algo", arguments.amax_compute_algo, "which amax of it makes the scale: max, most_recent");
  list.add("margin", arguments.margin, "divide their scales by 2^margin");
  list.add("delayed_version", arguments.version, "the version whose rules they follow (fp8lab delayed-versions)");
}

void describe_jump(TrainArguments& arguments, ArgumentList& list) {
  Jump& jump = arguments.jump;
  list.add("jump_step", jump.step, "the first step, from 1 on, at which inputs or gradients are multiplied")
      .by_default("there is none");
  list.add("jump_factor", jump.factor, "by what").needing({"jump_step"});
  list.add("jump_of", jump.of,
           "what: inputs (their products, which are learnt, stay), or gradients (that of the loss; the optimizer "
           "does not divide it out)")
      .needing({"jump_step"});
  list.add("jump_length", jump.length, "for how many steps").needing({"jump_step"});
}

}  // namespace

void describe_train(TrainArguments& arguments, ArgumentList& list) {
  describe_network(arguments, list);
  describe_optimizer(arguments, list);
  describe_delayed(arguments, list);
  describe_jump(arguments, list);
  list.add("error_steps", arguments.error_steps, "steps whose gradients are compared with FP32's").or_none();
  list.add("divergence", arguments.divergence,
           "a run diverges where its loss stays above so many times the lowest mean of 20 steps before");
  list.add("checkpoint", arguments.checkpoint,
           "save the state of the training into this file every minute, at the end and at Ctrl-C")
      .called("FILE");
  list.add("resume", arguments.resume, "go on from the checkpoint, with the bits of a run that was not interrupted")
      .needing({"checkpoint"});
  list.add("seed", arguments.seed, "which weights and examples are drawn");
  list.add_threads(arguments.threads);
}

std::span<const Named<TrainLoss>> named_values(TrainLoss /*any*/) { return train_losses; }
std::span<const Named<Optimizer>> named_values(Optimizer /*any*/) { return optimizers; }
std::span<const Named<JumpOf>> named_values(JumpOf /*any*/) { return jumping; }
std::span<const Named<HeadPrecision>> named_values(HeadPrecision /*any*/) { return heads; }

}  // namespace fp8lab::experiments
