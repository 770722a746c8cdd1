// SPDX-License-Identifier: Apache-2.0
#include <stdexcept>
#include <string>
#include <vector>

#include "fp8lab/reference/gemm/gemm.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "tensor_core/misfit.hpp"

namespace fp8lab {
namespace {

/// A Quantized as the model reads it: a view of its codes, or for `exact` its dequantized values.
class Side {
 public:
  Side(const MmaModel& model, const Quantized& q, const std::string& name, int threads) : operand_(operand_of(q)) {
    if (model.k() == 0) {
      values_.resize(q.rows * q.columns);
      dequantize(q, values_, threads);
      operand_ = Operand::floats(values_, operand_.rows, operand_.depth);
      operand_.transposed = q.direction == Direction::columnwise;
    } else if (!takes(model, operand_)) {
      refuse(model, q, name);
    }
  }
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;
  ~Side() = default;

  [[nodiscard]] const Operand& operand() const { return operand_; }

 private:
  [[noreturn]] void refuse(const MmaModel& model, const Quantized& q, const std::string& name) const {
    std::string wrong = misfit_of_format(model, operand_);
    wrong = wrong.empty() ? "scale_" + name + " " + misfit_of_scales(model, operand_) : name + " " + wrong;
    const auto fits = [&](const MmaModel& other) { return other.k() == 0 || takes(other, operand_); };
    throw std::invalid_argument(name + " was quantized by \"" + describe(q.recipe) + "\", which " +
                                std::string(model.name) + " does not take: " + wrong +
                                ". Models that take it: " + names_of_models(fits));
  }

  Operand operand_;
  std::vector<float> values_;
};

std::string text_of(const Quantized& q, const Operand& operand) {
  const bool rowwise = q.direction == Direction::rowwise;
  return std::to_string(operand.depth) + (rowwise ? ", its columns" : ", its rows") + " (" + std::to_string(q.rows) +
         " x " + std::to_string(q.columns) + ", " + (rowwise ? "rowwise" : "columnwise") + ")";
}

/// Whether a Hadamard matrix turned the tensor along K.
bool is_turned(const Quantized& q) {
  return q.recipe.transform != Transform::none && q.direction == Direction::columnwise;
}

void check_pair(const Quantized& a, const Operand& left, const Quantized& b, const Operand& right) {
  if (left.depth != right.depth) {
    throw std::invalid_argument("a and b must have the same K: of a it is " + text_of(a, left) + ", of b " +
                                text_of(b, right));
  }
  if (is_turned(a) != is_turned(b)) {
    const std::string turned = is_turned(a) ? "a" : "b";
    throw std::invalid_argument("a Hadamard matrix turned " + turned + " along K, and not " +
                                (is_turned(a) ? "b" : "a") + ": their product would be of no tensors");
  }
}

template <typename Out>
void multiply(const GemmRecipe& recipe, const Quantized& a, const Quantized& b, std::span<Out> out,
              const GemmCall& call) {
  if (recipe.dequantized != StepType::as_given) {
    const Operand left = operand_of(a);
    const Operand right = operand_of(b);
    check_pair(a, left, b, right);
    return gemm(recipe, left, right, out, call);
  }
  const Side left(recipe.model, a, "a", call.threads);
  const Side right(recipe.model, b, "b", call.threads);
  check_pair(a, left.operand(), b, right.operand());
  gemm(recipe, left.operand(), right.operand(), out, call);
}

}  // namespace

bool takes(const MmaModel& model, const Quantized& q) {
  return q.row_amaxes.empty() && (model.k() == 0 || takes(model, operand_of(q)));
}

void gemm(const GemmRecipe& recipe, const Quantized& a, const Quantized& b, std::span<float> out,
          const GemmCall& call) {
  multiply(recipe, a, b, out, call);
}
void gemm(const GemmRecipe& recipe, const Quantized& a, const Quantized& b, std::span<std::uint8_t> out,
          const GemmCall& call) {
  multiply(recipe, a, b, out, call);
}
void gemm(const GemmRecipe& recipe, const Quantized& a, const Quantized& b, std::span<std::uint16_t> out,
          const GemmCall& call) {
  multiply(recipe, a, b, out, call);
}

}  // namespace fp8lab
