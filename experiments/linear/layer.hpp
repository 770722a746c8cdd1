// SPDX-License-Identifier: Apache-2.0
// The tensors of a Linear layer, step by step: drawn, or the user's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "fp8lab/reference/linear/linear_recipe.hpp"
#include "fp8lab/reference/linear/shape_rules.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {

/// float32 draws: x and dy anew in every step, as the stream changes them; w and the bias once, normal. x has the
/// stream `seed`, w the next, then dy and the bias; each is multiplied by its factor in float32.
struct LayerDraws {
  Distribution distribution = distributions.front();  ///< of x and dy
  std::uint64_t seed = 1;
  long long tokens = 128;
  long long in = 256;
  long long out = 256;
  long long steps = 6;
  StreamKind kind = StreamKind::jump;
  double x_factor = 1;
  double w_factor = 0.023;  ///< Transformer Engine's default initialisation of Linear
  double dy_factor = 0.001;
  double bias_factor = 0.1;  ///< 0: there is no bias
};
/// Tensors of files or arrays, for each step one, or one for all steps. A pass runs where both of its factors are
/// given.
struct LayerTensors {
  std::optional<TensorSource> x;     ///< (tokens, in); more dimensions are taken together as tokens
  std::optional<TensorSource> w;     ///< (out, in)
  std::optional<TensorSource> dy;    ///< (tokens, out); more dimensions are taken together as tokens
  std::optional<TensorSource> bias;  ///< (out,)
};
using LayerSource = std::variant<LayerDraws, LayerTensors>;

/// A tensor that was read, and which of the layer's it is: x, w, dy or bias.
struct LayerTensorFacts {
  std::string tensor;
  SourceTensor facts;
};

/// The tensors of a layer.
class Layer {
 public:
  /// Reads the headers of all files. Throws std::invalid_argument for sizes and factors out of range, tensors whose
  /// shapes do not fit each other, and as TensorStream does; the message names the tensor and the dimension.
  Layer(const LayerSource& source, int threads);

  [[nodiscard]] std::size_t steps() const { return steps_; }
  [[nodiscard]] const std::string& description() const { return description_; }
  [[nodiscard]] std::vector<LayerTensorFacts> facts() const;
  [[nodiscard]] std::vector<LeftOutTensor> left_out() const;
  /// Whether both factors of the pass are there.
  [[nodiscard]] bool has(LinearPass pass) const;
  [[nodiscard]] bool has(LinearTensor tensor) const { return stream_of(tensor).has_value(); }

  /// The sizes of a step, for which two of x, w and dy must be there.
  [[nodiscard]] LinearShape shape(std::size_t step) const;

  /// Reads the tensors of a step, float64 rounded to float32. What does not change is not read again.
  void load(std::size_t step);
  [[nodiscard]] const MatrixView& view(LinearTensor tensor) const;
  /// The bias of the step in float32; empty where there is none.
  [[nodiscard]] std::span<const float> bias() const { return bias_; }

 private:
  [[nodiscard]] const std::optional<TensorStream>& stream_of(LinearTensor tensor) const;
  void open(const LayerDraws& draws, int threads);
  void open(const LayerTensors& tensors, int threads);
  void check_step(std::size_t step) const;

  std::optional<TensorStream> x_stream_, w_stream_, dy_stream_, bias_stream_;
  std::size_t steps_ = 1;
  std::string description_;
  Tensor x_, w_, dy_, bias_tensor_;
  Buffer<float> bias_;
};

}  // namespace fp8lab::experiments
