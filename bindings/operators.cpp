// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fp8lab/reference/operators/activation.hpp"
#include "fp8lab/reference/operators/compiled_gelu.hpp"
#include "fp8lab/reference/operators/cross_entropy.hpp"
#include "fp8lab/reference/operators/dropout.hpp"
#include "fp8lab/reference/operators/exactness.hpp"
#include "fp8lab/reference/operators/functions.hpp"
#include "fp8lab/reference/operators/group_bias.hpp"
#include "fp8lab/reference/operators/mask_permutation.hpp"
#include "fp8lab/reference/operators/multi_tensor.hpp"
#include "fp8lab/reference/operators/norm.hpp"
#include "fp8lab/reference/operators/nvfp4_shard.hpp"
#include "fp8lab/reference/operators/optimizer.hpp"
#include "fp8lab/reference/operators/permutation.hpp"
#include "fp8lab/reference/operators/rope.hpp"
#include "fp8lab/reference/operators/router.hpp"
#include "fp8lab/reference/operators/row_sums.hpp"
#include "fp8lab/reference/operators/softmax.hpp"
#include "fp8lab/reference/units/device_function.hpp"
#include "fp8lab/reference/units/special_function.hpp"
#include "module.hpp"

namespace fp8lab::bindings {
namespace {

/// An array of two dimensions and the name of its element type; float16 and bfloat16 as words.
using TypedArray = std::pair<py::array, std::string>;
/// The name of a Functions and a number of threads.
using OptionFields = std::tuple<std::string, int, int>;
/// limit, alpha, offset, beta1 and beta2.
using ActivationFields = std::tuple<float, float, float, float, float>;
/// ftz, prec_div, prec_sqrt and fast_math.
using DeviceFlagFields = std::tuple<bool, bool, bool, bool>;
/// eps and zero_centered_gamma.
using NormFields = std::pair<float, bool>;

MatrixView view_of(const TypedArray& array) { return matrix_of(array.first, array.second); }

FloatOutput output_of(const TypedArray& array) {
  if (array.second == "float32") {
    auto values = py::cast<Array<float>>(array.first);
    return mutable_view(values);
  }
  auto words = py::cast<Array<std::uint16_t>>(array.first);
  if (array.second == "float16") return mutable_view_as<Half>(words);
  return mutable_view_as<BFloat16>(words);
}

OperatorOptions options_of(const OptionFields& fields) {
  return {find_value<Functions>("functions", std::get<0>(fields)), std::get<1>(fields), std::get<2>(fields)};
}
ActivationParameters parameters_of(const ActivationFields& fields) {
  ActivationParameters parameters;
  std::tie(parameters.limit, parameters.alpha, parameters.offset, parameters.beta1, parameters.beta2) = fields;
  return parameters;
}
NormParameters parameters_of(const NormFields& fields) { return {fields.first, fields.second}; }

/// Calls a function without Python's lock, with arguments that were made under it.
template <typename Function, typename... Arguments>
auto released(const Function& function, Arguments&&... arguments) {
  const py::gil_scoped_release release;
  return function(std::forward<Arguments>(arguments)...);
}

/// The names of a table.
template <typename Rows>
std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& one : rows) names.emplace_back(one.name);
  return names;
}
/// The names of a table and what they mean.
template <typename Rows>
std::vector<std::pair<std::string, std::string>> words_of(const Rows& rows) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& one : rows) all.emplace_back(one.name, one.words);
  return all;
}

KernelActivation activation_of(const std::string& name) { return find_named(kernel_activations, "name", name).value; }

void run_activation(const std::string& name, const ActivationFields& parameters, const TypedArray& x,
                    const std::optional<Array<float>>& scales, const TypedArray& out, std::size_t interleave,
                    const OptionFields& options) {
  const KernelActivation kind = activation_of(name);
  if (!scales) {
    return released(activation, kind, parameters_of(parameters), view_of(x), output_of(out), options_of(options));
  }
  released(scaled_activation, kind, parameters_of(parameters), view_of(x), view(*scales), output_of(out),
           ScaledLayout{interleave}, options_of(options));
}

/// `sums` gets the gradient by the bias, or by the scales where there are any; it may be empty.
void run_activation_backward(const std::string& name, const ActivationFields& parameters, const TypedArray& grad,
                             const TypedArray& x, const std::optional<Array<float>>& scales, const TypedArray& dx,
                             Array<float> sums, std::size_t interleave, const OptionFields& options) {
  const KernelActivation kind = activation_of(name);
  if (!scales) {
    return released(activation_backward, kind, parameters_of(parameters), view_of(grad), view_of(x), output_of(dx),
                    mutable_view(sums), options_of(options));
  }
  released(scaled_activation_backward, kind, parameters_of(parameters), view_of(grad), view_of(x), view(*scales),
           output_of(dx), mutable_view(sums), ScaledLayout{interleave}, options_of(options));
}

void run_compiled_gelu(const TypedArray& x, const Array<float>& bias, const TypedArray& out, int threads) {
  released(compiled_gelu, view_of(x), view(bias), output_of(out), threads);
}
void run_compiled_gelu_backward(const TypedArray& grad, const TypedArray& x, const Array<float>& bias,
                                const TypedArray& dx, Array<float> sums, bool for_one_shape, int threads) {
  const CompiledBiasSums bias_sums{.sums = mutable_view(sums), .for_one_shape = for_one_shape};
  released(compiled_gelu_backward, view_of(grad), view_of(x), view(bias), output_of(dx), bias_sums, threads);
}

/// layernorm(), or rmsnorm() where there is no beta.
void run_norm(const NormFields& parameters, const TypedArray& x, const TypedArray& gamma,
              const std::optional<TypedArray>& beta, const TypedArray& out, Array<float> mean, Array<float> rsigma,
              const OptionFields& options) {
  if (beta) {
    return released(layernorm, parameters_of(parameters), view_of(x), view_of(gamma), view_of(*beta), output_of(out),
                    mutable_view(mean), mutable_view(rsigma), options_of(options));
  }
  released(rmsnorm, parameters_of(parameters), view_of(x), view_of(gamma), output_of(out), mutable_view(rsigma),
           options_of(options));
}

void run_layernorm_backward(bool zero_centered_gamma, const TypedArray& grad, const TypedArray& x,
                            const Array<float>& mean, const Array<float>& rsigma, const TypedArray& gamma,
                            const TypedArray& dx, const TypedArray& dgamma, const TypedArray& dbeta,
                            const OptionFields& options) {
  const NormParameters parameters{.zero_centered_gamma = zero_centered_gamma};
  released(layernorm_backward, parameters, view_of(grad), view_of(x), view(mean), view(rsigma), view_of(gamma),
           output_of(dx), output_of(dgamma), output_of(dbeta), options_of(options));
}

void run_rmsnorm_backward(bool zero_centered_gamma, const TypedArray& grad, const TypedArray& x,
                          const Array<float>& rsigma, const TypedArray& gamma, const std::optional<TypedArray>& add,
                          const TypedArray& dx, const TypedArray& dgamma, const OptionFields& options) {
  std::optional<MatrixView> more;
  if (add) more = view_of(*add);
  const NormParameters parameters{.zero_centered_gamma = zero_centered_gamma};
  released(rmsnorm_backward, parameters, view_of(grad), view_of(x), view(rsigma), view_of(gamma),
           more ? &*more : nullptr, output_of(dx), output_of(dgamma), options_of(options));
}

std::vector<std::tuple<std::string, std::string, std::string, bool, bool>> activation_rows() {
  std::vector<std::tuple<std::string, std::string, std::string, bool, bool>> rows;
  for (const ActivationRow& row : kernel_activations) {
    rows.emplace_back(row.name, row.formula, row.gradient, row.gated, row.scaled);
  }
  return rows;
}

/// Batches, heads, queries and keys.
using SoftmaxFields = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;
SoftmaxShape shape_of(const SoftmaxFields& fields) {
  return {std::get<0>(fields), std::get<1>(fields), std::get<2>(fields), std::get<3>(fields)};
}

void run_softmax(const std::string& kind, const SoftmaxFields& shape, float scale, const TypedArray& x,
                 const Array<std::uint8_t>& mask, const TypedArray& out, const OptionFields& options) {
  released(softmax, find_value<SoftmaxMask>("kind", kind), shape_of(shape), scale, view_of(x), view(mask),
           output_of(out), options_of(options));
}

void run_softmax_backward(const std::string& kind, const SoftmaxFields& shape, float scale, const TypedArray& grad,
                          const TypedArray& y, const TypedArray& dx, const OptionFields& options) {
  released(softmax_backward, find_value<SoftmaxMask>("kind", kind), shape_of(shape), scale, view_of(grad), view_of(y),
           output_of(dx), options_of(options));
}

/// The elements of an array, whatever its shape.
FloatSpan float_span_of(const TypedArray& array) {
  std::optional<FloatSpan> elements;
  with_source(array.first, array.second, [&](auto values) { elements.emplace(values); });
  return *elements;
}

/// Sequence, batches, heads, size and rotated; sequence_first and interleaved; cp_size and cp_rank.
using RopeSizes = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t>;
using RopeChoices = std::tuple<bool, bool, std::size_t, std::size_t>;
void run_rope(bool backward, const RopeSizes& sizes, const RopeChoices& choices, const TypedArray& x,
              const Array<float>& freqs, const Array<std::int32_t>& cu_seqlens,
              const Array<std::int32_t>& start_positions, const TypedArray& out, const OptionFields& options) {
  RopeShape shape{};
  std::tie(shape.sequence, shape.batches, shape.heads, shape.size, shape.rotated) = sizes;
  RopeOptions how;
  std::tie(shape.sequence_first, how.interleaved, how.cp_size, how.cp_rank) = choices;
  how.cu_seqlens = view(cu_seqlens);
  how.start_positions = view(start_positions);
  released(backward ? rope_backward : rope, shape, how, float_span_of(x), view(freqs), output_of(out),
           options_of(options));
}

/// Sequence, batches, heads and rotated; the widths of query, key and value.
using QkvSizes = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;
using QkvWidths = std::array<std::size_t, 3>;
/// What rope_qkv() and its gradient have in common.
std::pair<RopeQkvShape, RopeOptions> qkv_of(const QkvSizes& sizes, const QkvWidths& widths,
                                            const RopeChoices& choices) {
  RopeQkvShape shape{};
  std::tie(shape.sequence, shape.batches, shape.heads, shape.rotated) = sizes;
  shape.widths = widths;
  RopeOptions how;
  std::tie(shape.sequence_first, how.interleaved, how.cp_size, how.cp_rank) = choices;
  return {shape, how};
}

void run_rope_qkv(const QkvSizes& sizes, const QkvWidths& widths, const RopeChoices& choices, const TypedArray& qkv,
                  const Array<float>& query_freqs, const Array<float>& key_freqs,
                  const Array<std::int32_t>& start_positions, const std::array<TypedArray, 3>& out,
                  const OptionFields& options) {
  auto [shape, how] = qkv_of(sizes, widths, choices);
  how.start_positions = view(start_positions);
  const std::array<FloatOutput, 3> to{output_of(out[0]), output_of(out[1]), output_of(out[2])};
  released(rope_qkv, shape, how, float_span_of(qkv), view(query_freqs), view(key_freqs), to, options_of(options));
}

void run_rope_qkv_backward(const QkvSizes& sizes, const QkvWidths& widths, const RopeChoices& choices,
                           const std::array<TypedArray, 3>& grads, const Array<float>& query_freqs,
                           const Array<float>& key_freqs, const TypedArray& dqkv, const OptionFields& options) {
  const auto [shape, how] = qkv_of(sizes, widths, choices);
  const std::array<FloatSpan, 3> in{float_span_of(grads[0]), float_span_of(grads[1]), float_span_of(grads[2])};
  released(rope_qkv_backward, shape, how, in, view(query_freqs), view(key_freqs), output_of(dqkv), options_of(options));
}

/// Runs dropout(), or without a state its gradient, which reads the mask.
void run_dropout(float probability, const std::optional<std::pair<std::uint64_t, std::uint64_t>>& state,
                 const TypedArray& x, const TypedArray& out, Array<std::uint8_t> mask, int threads) {
  if (!state) return released(dropout_backward, probability, float_span_of(x), view(mask), output_of(out), threads);
  released(dropout, probability, DropoutState{state->first, state->second}, float_span_of(x), output_of(out),
           mutable_view(mask), threads);
}

void run_nvfp4_shard_codes(const TypedArray& x, const std::tuple<std::size_t, std::size_t, std::size_t>& shard,
                           const Array<float>& scales, float global_scale, Array<std::uint8_t> codes, int threads) {
  const auto& [rows, columns, start] = shard;
  released(nvfp4_shard_codes, float_span_of(x), WeightShard{rows, columns, start}, view(scales), global_scale,
           mutable_view(codes), threads);
}

/// topk, groups, group_topk and radix_from; score, softmax_first and scaling.
using RouterSizes = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;
using RouterChoices = std::tuple<std::string, bool, float>;
RouterParameters router_of(const RouterSizes& sizes, const RouterChoices& choices) {
  RouterParameters parameters;
  std::tie(parameters.topk, parameters.groups, parameters.group_topk, parameters.radix_from) = sizes;
  parameters.score = find_value<RouterScore>("score", std::get<0>(choices));
  parameters.softmax_first = std::get<1>(choices);
  parameters.scaling = std::get<2>(choices);
  return parameters;
}

void run_moe_topk(const RouterSizes& sizes, const RouterChoices& choices, const TypedArray& logits,
                  const Array<float>& bias, const TypedArray& probabilities, Array<std::int32_t> experts,
                  Array<float> saved, Array<float> cutoff, const OptionFields& options) {
  released(moe_topk, router_of(sizes, choices), view_of(logits), view(bias), output_of(probabilities),
           mutable_view(experts), mutable_view(saved), mutable_view(cutoff), options_of(options));
}

void run_moe_topk_backward(const RouterSizes& sizes, const RouterChoices& choices, const Array<std::uint8_t>& bytes,
                           const Array<std::int32_t>& experts, const Array<float>& saved, const TypedArray& grad,
                           const TypedArray& dlogits, const OptionFields& options) {
  released(moe_topk_backward, router_of(sizes, choices), Routing{view(bytes), view(experts)}, view(saved),
           view_of(grad), output_of(dlogits), options_of(options));
}

void run_moe_scores(const RouterSizes& sizes, const RouterChoices& choices, const TypedArray& logits,
                    Array<float> scores, Array<std::int32_t> experts, Array<float> saved, const OptionFields& options) {
  released(moe_scores, router_of(sizes, choices), view_of(logits), mutable_view(scores), mutable_view(experts),
           mutable_view(saved), options_of(options));
}

void run_moe_scores_backward(const std::string& score, const Array<float>& saved, const TypedArray& grad,
                             const TypedArray& dlogits, const OptionFields& options) {
  released(moe_scores_backward, find_value<RouterScore>("score", score), view(saved), view_of(grad), output_of(dlogits),
           options_of(options));
}

/// experts, topk, tokens, coefficient and sms.
using AuxLossFields = std::tuple<std::size_t, std::size_t, std::int64_t, float, std::size_t>;
std::pair<float, float> run_moe_aux_loss(const AuxLossFields& fields, const TypedArray& probabilities,
                                         const Array<float>& tokens_per_expert, const OptionFields& options) {
  AuxLossParameters parameters;
  std::tie(parameters.experts, parameters.topk, parameters.tokens, parameters.coefficient, parameters.sms) = fields;
  const MatrixView in = view_of(probabilities);
  const OperatorOptions how = options_of(options);
  const py::gil_scoped_release release;
  const AuxLoss found = moe_aux_loss(parameters, in, view(tokens_per_expert), how);
  return {found.loss, found.factor};
}

void run_moe_aux_loss_backward(float factor, const Array<float>& tokens_per_expert, float grad, std::size_t rows,
                               const TypedArray& dprobabilities) {
  moe_aux_loss_backward(factor, view(tokens_per_expert), grad, rows, output_of(dprobabilities));
}

void run_moe_bias_histogram(const Array<float>& scores, const Array<float>& cutoff, float lower, float upper,
                            Array<std::int32_t> histogram) {
  moe_bias_histogram(view(scores), view(cutoff), lower, upper, mutable_view(histogram));
}

bool run_scale_tensor(const TypedArray& x, float scale, const TypedArray& out, int threads) {
  return released(scale_tensor, float_span_of(x), scale, output_of(out), threads);
}

std::pair<float, std::vector<float>> run_l2norms(const std::vector<TypedArray>& tensors, const OptionFields& options) {
  std::vector<FloatSpan> in;
  for (const TypedArray& one : tensors) in.push_back(float_span_of(one));
  TensorNorms norms = released([&] { return l2norms(in, options_of(options)); });
  return {norms.total, std::move(norms.each)};
}

/// item_size, has_activation and multiprocessors.
using CastTransposeFields = std::tuple<std::size_t, bool, int>;
CastTransposeKernel kernel_of(const CastTransposeFields& fields) {
  return {std::get<0>(fields), std::get<1>(fields), std::get<2>(fields)};
}

Array<float> array_of(const std::vector<float>& values) {
  return Array<float>(static_cast<py::ssize_t>(values.size()), values.data());
}
Array<float> run_torch_row_sums(const TypedArray& x, std::size_t offset, int multiprocessors) {
  return array_of(released(torch_row_sums, view_of(x), offset, multiprocessors));
}
Array<float> run_cublaslt_row_sums(const TypedArray& x, bool after_gelu) {
  return array_of(released(cublaslt_row_sums, view_of(x), after_gelu));
}
Array<float> run_cast_transpose_row_sums(const TypedArray& x, const CastTransposeFields& kernel) {
  return array_of(released(cast_transpose_row_sums, view_of(x), kernel_of(kernel)));
}
std::size_t run_cast_transpose_thread_rows(std::size_t rows, std::size_t columns, const CastTransposeFields& kernel) {
  return cast_transpose_thread_rows(kernel_of(kernel), rows, columns);
}

void run_add_group_bias(const TypedArray& x, const TypedArray& bias, const Array<std::int64_t>& offsets,
                        const Array<float>& scales, const TypedArray& out, int threads) {
  const FloatOutput to = output_of(out);
  released(add_group_bias, view_of(x), view_of(bias), view(offsets), view(scales), to, threads);
}
void run_group_bias_gradient(const TypedArray& grad, const Array<std::int64_t>& offsets, Array<float> dbias,
                             int threads) {
  released(group_bias_gradient, view_of(grad), view(offsets), mutable_view(dbias), threads);
}
void run_scaled_group_bias_gradient(const TypedArray& grad, const Array<float>& scales, const TypedArray& bias,
                                    const Array<std::int64_t>& offsets, Array<float> dbias, Array<float> dscales,
                                    int threads) {
  released(scaled_group_bias_gradient, view_of(grad), view(scales), view_of(bias), view(offsets), mutable_view(dbias),
           mutable_view(dscales), threads);
}

/// lr, weight_decay, momentum, dampening and scale; nesterov, first_run and weight_decay_after_momentum.
using SgdNumbers = std::tuple<float, float, float, float, float>;
using SgdFlags = std::tuple<bool, bool, bool>;
void run_sgd(const SgdNumbers& numbers, const SgdFlags& flags, const TypedArray& grad, const TypedArray& param,
             const TypedArray& momentum, const std::optional<TypedArray>& model, int threads) {
  SgdParameters parameters;
  std::tie(parameters.lr, parameters.weight_decay, parameters.momentum, parameters.dampening, parameters.scale) =
      numbers;
  std::tie(parameters.nesterov, parameters.first_run, parameters.weight_decay_after_momentum) = flags;
  const auto copy = model ? std::get<std::span<Half>>(output_of(*model)) : std::span<Half>();
  released(sgd_update, parameters, float_span_of(grad), output_of(param), output_of(momentum), copy, threads);
}

/// lr, beta1, beta2, eps and weight_decay; step, bias_correction and mode.
using AdamNumbers = std::tuple<float, float, float, float, float>;
using AdamChoices = std::tuple<std::uint32_t, bool, std::string>;
AdamParameters adam_of(const AdamNumbers& numbers, const AdamChoices& choices) {
  AdamParameters parameters;
  std::tie(parameters.lr, parameters.beta1, parameters.beta2, parameters.eps, parameters.weight_decay) = numbers;
  parameters.step = std::get<0>(choices);
  parameters.bias_correction = std::get<1>(choices);
  parameters.mode = find_value<AdamMode>("mode", std::get<2>(choices));
  return parameters;
}

void run_adam(const AdamNumbers& numbers, const AdamChoices& choices, const TypedArray& grad, const TypedArray& param,
              const TypedArray& m, const TypedArray& v, const std::optional<Array<float>>& master,
              const OptionFields& options) {
  std::optional<Array<float>> wide = master;
  const auto full = wide ? mutable_view(*wide) : std::span<float>();
  released(adam_update, adam_of(numbers, choices), float_span_of(grad), output_of(param), output_of(m), output_of(v),
           full, options_of(options));
}

/// The gradient is updated, too.
void run_adam_unscaling(const AdamNumbers& numbers, const AdamChoices& choices, float inverse_scale,
                        const TypedArray& grad, const TypedArray& param, const TypedArray& m, const TypedArray& v,
                        const std::optional<Array<float>>& master, const OptionFields& options) {
  std::optional<Array<float>> wide = master;
  const auto full = wide ? mutable_view(*wide) : std::span<float>();
  released(adam_update_unscaling, adam_of(numbers, choices), inverse_scale, output_of(grad), output_of(param),
           output_of(m), output_of(v), full, options_of(options));
}

float run_adam_fp8(const AdamNumbers& numbers, const AdamChoices& choices, const TypedArray& grad,
                   const NamedOrOwnFormat& format, float scale, float amax, Array<std::uint8_t> codes,
                   const TypedArray& m, const TypedArray& v, Array<float> master, const OptionFields& options) {
  return released(adam_update_fp8, adam_of(numbers, choices), float_span_of(grad), format.format, scale, amax,
                  mutable_view(codes), output_of(m), output_of(v), mutable_view(master), options_of(options));
}

void run_adam_remainder(const AdamNumbers& numbers, const AdamChoices& choices, const TypedArray& grad,
                        const TypedArray& param, const TypedArray& m, const TypedArray& v,
                        Array<std::int16_t> remainder, const OptionFields& options) {
  released(adam_update_remainder, adam_of(numbers, choices), float_span_of(grad),
           std::get<std::span<BFloat16>>(output_of(param)), output_of(m), output_of(v), mutable_view(remainder),
           options_of(options));
}

void run_cross_entropy(float label_smoothing, std::int64_t ignore_index, const TypedArray& x,
                       const Array<std::int64_t>& targets, Array<float> loss, Array<float> largest, Array<float> sum,
                       const OptionFields& options) {
  released(cross_entropy, CrossEntropyParameters{label_smoothing, ignore_index}, view_of(x), view(targets),
           mutable_view(loss), mutable_view(largest), mutable_view(sum), options_of(options));
}

void run_cross_entropy_backward(float label_smoothing, std::int64_t ignore_index, const Array<float>& grad,
                                const TypedArray& x, const Array<std::int64_t>& targets, const Array<float>& largest,
                                const Array<float>& sum, const TypedArray& dx, const OptionFields& options) {
  released(cross_entropy_backward, CrossEntropyParameters{label_smoothing, ignore_index}, view(grad), view_of(x),
           view(targets), view(largest), view(sum), output_of(dx), options_of(options));
}

void run_permutation_map(const Array<std::int32_t>& experts, std::size_t tokens, std::size_t kept,
                         Array<std::int32_t> out) {
  const auto map = permutation_map(view(experts), tokens, kept);
  std::copy(map.begin(), map.end(), mutable_view(out).begin());
}

std::span<const std::byte> bytes_of(const Array<std::uint8_t>& array) { return std::as_bytes(view(array)); }

void run_permute_rows(const Array<std::uint8_t>& x, std::size_t row_bytes, const Array<std::int32_t>& map,
                      Array<std::uint8_t> out, int threads) {
  released(permute_rows, bytes_of(x), row_bytes, view(map), std::as_writable_bytes(mutable_view(out)), threads);
}

void run_unpermute_rows(const TypedArray& x, std::size_t columns, const Array<std::int32_t>& map,
                        const Array<float>& probabilities, const TypedArray& out, int threads) {
  released(unpermute_rows, float_span_of(x), columns, view(map), view(probabilities), output_of(out), threads);
}

void run_unpermute_rows_backward(const TypedArray& grad, const TypedArray& x, std::size_t columns,
                                 const Array<std::int32_t>& map, const Array<float>& probabilities,
                                 const TypedArray& dx, Array<float> probability_gradient, int threads) {
  released(unpermute_rows_backward, float_span_of(grad), float_span_of(x), columns, view(map), view(probabilities),
           output_of(dx), mutable_view(probability_gradient), threads);
}

void run_mask_map(const Array<std::uint8_t>& mask, std::size_t tokens, Array<std::int32_t> out) {
  const auto map = mask_map(view(mask), tokens);
  std::copy(map.begin(), map.end(), mutable_view(out).begin());
}

/// A map of (tokens, 2 experts + 1) and the offsets of experts, which may be empty.
using MaskedRowFields = std::tuple<Array<std::int32_t>, std::size_t, Array<std::int64_t>>;
MaskedRows rows_of(const MaskedRowFields& at) {
  return {view(std::get<0>(at)), std::get<1>(at), view(std::get<2>(at))};
}

void run_permute_rows_by_mask(const Array<std::uint8_t>& x, std::size_t row_bytes, const MaskedRowFields& at,
                              const TypedArray& probabilities, Array<std::uint8_t> out, int threads) {
  released(permute_rows_by_mask, bytes_of(x), row_bytes, rows_of(at), float_span_of(probabilities),
           std::as_writable_bytes(mutable_view(out)), threads);
}

/// permute_probabilities_by_mask(), or unpermute_probabilities_by_mask() where `back` says so.
void run_permute_probabilities_by_mask(bool back, const Array<std::uint8_t>& probabilities, std::size_t size,
                                       const MaskedRowFields& at, Array<std::uint8_t> out) {
  released(back ? unpermute_probabilities_by_mask : permute_probabilities_by_mask, bytes_of(probabilities), size,
           rows_of(at), std::as_writable_bytes(mutable_view(out)));
}

void run_unpermute_rows_by_mask(const TypedArray& x, std::size_t columns, const MaskedRowFields& at,
                                const TypedArray& probabilities, const TypedArray& out, int threads) {
  released(unpermute_rows_by_mask, float_span_of(x), columns, rows_of(at), float_span_of(probabilities), output_of(out),
           threads);
}

void run_unpermute_rows_by_mask_backward(const TypedArray& grad, const TypedArray& x, std::size_t columns,
                                         const MaskedRowFields& at, const TypedArray& probabilities,
                                         const TypedArray& dx, const TypedArray& probability_gradient, int threads) {
  released(unpermute_rows_by_mask_backward, float_span_of(grad), float_span_of(x), columns, rows_of(at),
           float_span_of(probabilities), output_of(dx), output_of(probability_gradient), threads);
}

void run_chunk_map(const Array<std::int64_t>& counts, const Array<std::int64_t>& order, std::size_t tokens,
                   Array<std::int32_t> out) {
  const auto map = chunk_map(view(counts), view(order), tokens);
  std::copy(map.begin(), map.end(), mutable_view(out).begin());
}

/// sort_chunks(), or unsort_chunks() where `back` says so.
void run_sort_chunks(bool back, const Array<std::uint8_t>& x, std::size_t row_bytes, const Array<std::int32_t>& map,
                     Array<std::uint8_t> out, int threads) {
  released(back ? unsort_chunks : sort_chunks, bytes_of(x), row_bytes, view(map),
           std::as_writable_bytes(mutable_view(out)), threads);
}

/// pad_rows(), or unpad_rows() where `back` says so.
void run_pad_rows(bool back, const Array<std::uint8_t>& x, std::size_t row_bytes,
                  const std::vector<std::size_t>& counts, std::size_t multiple, Array<std::uint8_t> out) {
  released(back ? unpad_rows : pad_rows, bytes_of(x), row_bytes, counts, multiple,
           std::as_writable_bytes(mutable_view(out)));
}

auto exactness_rows() {
  std::vector<std::tuple<std::string, std::string, bool, std::string, double, double, double, std::string, bool>> rows;
  for (const Exactness& row : exactness()) {
    rows.emplace_back(row.function, row.name, row.exact, row.why, row.ulps, row.flips, row.device_flips, row.draws,
                      is_exact_on_hopper(row));
  }
  return rows;
}

void bind_activations(py::module_& module) {
  module.def("exactness_rows", &exactness_rows);
  module.def("activation_rows", &activation_rows);
  module.def("activation", &run_activation, py::arg("name"), py::arg("parameters"), py::arg("x"), py::arg("scales"),
             py::arg("out"), py::arg("interleave"), py::arg("options"));
  module.def("activation_backward", &run_activation_backward, py::arg("name"), py::arg("parameters"), py::arg("grad"),
             py::arg("x"), py::arg("scales"), py::arg("dx"), py::arg("sums").noconvert(), py::arg("interleave"),
             py::arg("options"));
}

void bind_norms(py::module_& module) {
  module.def("norm", &run_norm, py::arg("parameters"), py::arg("x"), py::arg("gamma"), py::arg("beta"), py::arg("out"),
             py::arg("mean").noconvert(), py::arg("rsigma").noconvert(), py::arg("options"));
  module.def("layernorm_backward", &run_layernorm_backward, py::arg("zero_centered_gamma"), py::arg("grad"),
             py::arg("x"), py::arg("mean").noconvert(), py::arg("rsigma").noconvert(), py::arg("gamma"), py::arg("dx"),
             py::arg("dgamma"), py::arg("dbeta"), py::arg("options"));
  module.def("rmsnorm_backward", &run_rmsnorm_backward, py::arg("zero_centered_gamma"), py::arg("grad"), py::arg("x"),
             py::arg("rsigma").noconvert(), py::arg("gamma"), py::arg("add"), py::arg("dx"), py::arg("dgamma"),
             py::arg("options"));
}

void bind_softmax(py::module_& module) {
  module.def("softmax", &run_softmax, py::arg("kind"), py::arg("shape"), py::arg("scale"), py::arg("x"),
             py::arg("mask").noconvert(), py::arg("out"), py::arg("options"));
  module.def("softmax_backward", &run_softmax_backward, py::arg("kind"), py::arg("shape"), py::arg("scale"),
             py::arg("grad"), py::arg("y"), py::arg("dx"), py::arg("options"));
}

void bind_mask_permutations(py::module_& module) {
  module.def("mask_map", &run_mask_map, py::arg("mask").noconvert(), py::arg("tokens"), py::arg("out").noconvert());
  module.def("permute_rows_by_mask", &run_permute_rows_by_mask, py::arg("x").noconvert(), py::arg("row_bytes"),
             py::arg("at"), py::arg("probabilities"), py::arg("out").noconvert(), py::arg("threads"));
  module.def("permute_probabilities_by_mask", &run_permute_probabilities_by_mask, py::arg("back"),
             py::arg("probabilities").noconvert(), py::arg("size"), py::arg("at"), py::arg("out").noconvert());
  module.def("unpermute_rows_by_mask", &run_unpermute_rows_by_mask, py::arg("x"), py::arg("columns"), py::arg("at"),
             py::arg("probabilities"), py::arg("out"), py::arg("threads"));
  module.def("unpermute_rows_by_mask_backward", &run_unpermute_rows_by_mask_backward, py::arg("grad"), py::arg("x"),
             py::arg("columns"), py::arg("at"), py::arg("probabilities"), py::arg("dx"),
             py::arg("probability_gradient"), py::arg("threads"));
  module.def("chunk_map", &run_chunk_map, py::arg("counts").noconvert(), py::arg("order").noconvert(),
             py::arg("tokens"), py::arg("out").noconvert());
  module.def("sort_chunks", &run_sort_chunks, py::arg("back"), py::arg("x").noconvert(), py::arg("row_bytes"),
             py::arg("map").noconvert(), py::arg("out").noconvert(), py::arg("threads"));
}

void bind_permutations(py::module_& module) {
  module.def("permutation_map", &run_permutation_map, py::arg("experts").noconvert(), py::arg("tokens"),
             py::arg("kept"), py::arg("out").noconvert());
  module.def("permute_rows", &run_permute_rows, py::arg("x").noconvert(), py::arg("row_bytes"),
             py::arg("map").noconvert(), py::arg("out").noconvert(), py::arg("threads"));
  module.def("unpermute_rows", &run_unpermute_rows, py::arg("x"), py::arg("columns"), py::arg("map").noconvert(),
             py::arg("probabilities").noconvert(), py::arg("out"), py::arg("threads"));
  module.def("unpermute_rows_backward", &run_unpermute_rows_backward, py::arg("grad"), py::arg("x"), py::arg("columns"),
             py::arg("map").noconvert(), py::arg("probabilities").noconvert(), py::arg("dx"),
             py::arg("probability_gradient").noconvert(), py::arg("threads"));
  module.def("pad_rows", &run_pad_rows, py::arg("back"), py::arg("x").noconvert(), py::arg("row_bytes"),
             py::arg("counts"), py::arg("multiple"), py::arg("out").noconvert());
  module.def("cross_entropy", &run_cross_entropy, py::arg("label_smoothing"), py::arg("ignore_index"), py::arg("x"),
             py::arg("targets").noconvert(), py::arg("loss").noconvert(), py::arg("largest").noconvert(),
             py::arg("sum").noconvert(), py::arg("options"));
  module.def("cross_entropy_backward", &run_cross_entropy_backward, py::arg("label_smoothing"), py::arg("ignore_index"),
             py::arg("grad").noconvert(), py::arg("x"), py::arg("targets").noconvert(), py::arg("largest").noconvert(),
             py::arg("sum").noconvert(), py::arg("dx"), py::arg("options"));
}

void bind_router(py::module_& module) {
  module.def("router_scores", [] { return names_of(router_scores); });
  module.def("moe_topk", &run_moe_topk, py::arg("sizes"), py::arg("choices"), py::arg("logits"),
             py::arg("bias").noconvert(), py::arg("probabilities"), py::arg("experts").noconvert(),
             py::arg("saved").noconvert(), py::arg("cutoff").noconvert(), py::arg("options"));
  module.def("moe_topk_backward", &run_moe_topk_backward, py::arg("sizes"), py::arg("choices"),
             py::arg("bytes").noconvert(), py::arg("experts").noconvert(), py::arg("saved").noconvert(),
             py::arg("grad"), py::arg("dlogits"), py::arg("options"));
  module.def("moe_scores", &run_moe_scores, py::arg("sizes"), py::arg("choices"), py::arg("logits"),
             py::arg("scores").noconvert(), py::arg("experts").noconvert(), py::arg("saved").noconvert(),
             py::arg("options"));
  module.def("moe_scores_backward", &run_moe_scores_backward, py::arg("score"), py::arg("saved").noconvert(),
             py::arg("grad"), py::arg("dlogits"), py::arg("options"));
  module.def("moe_aux_loss", &run_moe_aux_loss, py::arg("fields"), py::arg("probabilities"),
             py::arg("tokens_per_expert").noconvert(), py::arg("options"));
  module.def("moe_aux_loss_backward", &run_moe_aux_loss_backward, py::arg("factor"),
             py::arg("tokens_per_expert").noconvert(), py::arg("grad"), py::arg("rows"), py::arg("dprobabilities"));
  module.def("moe_bias_histogram", &run_moe_bias_histogram, py::arg("scores").noconvert(),
             py::arg("cutoff").noconvert(), py::arg("lower"), py::arg("upper"), py::arg("histogram").noconvert());
}

void bind_optimizers(py::module_& module) {
  module.def("rope", &run_rope, py::arg("backward"), py::arg("sizes"), py::arg("choices"), py::arg("x"),
             py::arg("freqs").noconvert(), py::arg("cu_seqlens").noconvert(), py::arg("start_positions").noconvert(),
             py::arg("out"), py::arg("options"));
  module.def("rope_qkv", &run_rope_qkv, py::arg("sizes"), py::arg("widths"), py::arg("choices"), py::arg("qkv"),
             py::arg("query_freqs").noconvert(), py::arg("key_freqs").noconvert(),
             py::arg("start_positions").noconvert(), py::arg("out"), py::arg("options"));
  module.def("rope_qkv_backward", &run_rope_qkv_backward, py::arg("sizes"), py::arg("widths"), py::arg("choices"),
             py::arg("grads"), py::arg("query_freqs").noconvert(), py::arg("key_freqs").noconvert(), py::arg("dqkv"),
             py::arg("options"));
  module.def("dropout", &run_dropout, py::arg("probability"), py::arg("state"), py::arg("x"), py::arg("out"),
             py::arg("mask").noconvert(), py::arg("threads"));
  module.def("scale_tensor", &run_scale_tensor, py::arg("x"), py::arg("scale"), py::arg("out"), py::arg("threads"));
  module.def("l2norms", &run_l2norms, py::arg("tensors"), py::arg("options"));
  module.def("compiled_gelu", &run_compiled_gelu, py::arg("x"), py::arg("bias").noconvert(), py::arg("out"),
             py::arg("threads"));
  module.def("compiled_gelu_backward", &run_compiled_gelu_backward, py::arg("grad"), py::arg("x"),
             py::arg("bias").noconvert(), py::arg("dx"), py::arg("sums").noconvert(), py::arg("for_one_shape"),
             py::arg("threads"));
  module.def("has_one_shape_sums", &has_one_shape_sums, py::arg("rows"), py::arg("columns"));
  module.def("torch_row_sums", &run_torch_row_sums, py::arg("x"), py::arg("offset"), py::arg("multiprocessors"));
  module.def("cublaslt_row_sums", &run_cublaslt_row_sums, py::arg("x"), py::arg("after_gelu"));
  module.def("cast_transpose_row_sums", &run_cast_transpose_row_sums, py::arg("x"), py::arg("kernel"));
  module.def("add_group_bias", &run_add_group_bias, py::arg("x"), py::arg("bias"), py::arg("offsets").noconvert(),
             py::arg("scales").noconvert(), py::arg("out"), py::arg("threads"));
  module.def("group_bias_gradient", &run_group_bias_gradient, py::arg("grad"), py::arg("offsets").noconvert(),
             py::arg("dbias").noconvert(), py::arg("threads"));
  module.def("scaled_group_bias_gradient", &run_scaled_group_bias_gradient, py::arg("grad"),
             py::arg("scales").noconvert(), py::arg("bias"), py::arg("offsets").noconvert(),
             py::arg("dbias").noconvert(), py::arg("dscales").noconvert(), py::arg("threads"));
  module.def("cast_transpose_thread_rows", &run_cast_transpose_thread_rows, py::arg("rows"), py::arg("columns"),
             py::arg("kernel"));
  module.def(
      "scale_of_amax",
      [](float amax, float largest, bool power_of_two, float eps) {
        const AmaxScale pair = scale_of_amax(amax, largest, power_of_two, eps);
        return std::pair(pair.scale, pair.scale_inv);
      },
      py::arg("amax"), py::arg("largest"), py::arg("power_of_two"), py::arg("eps"));
  module.def("nvfp4_global_scale", &nvfp4_global_scale, py::arg("amax"));
  module.def(
      "nvfp4_tile_scales",
      [](const Array<float>& amaxes, float global_amax, Array<float> scales) {
        released(nvfp4_tile_scales, view(amaxes), global_amax, mutable_view(scales));
      },
      py::arg("amaxes").noconvert(), py::arg("global_amax"), py::arg("scales").noconvert());
  module.def("nvfp4_shard_codes", &run_nvfp4_shard_codes, py::arg("x"), py::arg("shard"), py::arg("scales").noconvert(),
             py::arg("global_scale"), py::arg("codes").noconvert(), py::arg("threads"));
  module.def("sgd_update", &run_sgd, py::arg("numbers"), py::arg("flags"), py::arg("grad"), py::arg("param"),
             py::arg("momentum"), py::arg("model"), py::arg("threads"));
  module.def("adam_update", &run_adam, py::arg("numbers"), py::arg("choices"), py::arg("grad"), py::arg("param"),
             py::arg("m"), py::arg("v"), py::arg("master"), py::arg("options"));
  module.def("adam_update_unscaling", &run_adam_unscaling, py::arg("numbers"), py::arg("choices"),
             py::arg("inverse_scale"), py::arg("grad"), py::arg("param"), py::arg("m"), py::arg("v"), py::arg("master"),
             py::arg("options"));
  module.def("adam_update_fp8", &run_adam_fp8, py::arg("numbers"), py::arg("choices"), py::arg("grad"),
             py::arg("format"), py::arg("scale"), py::arg("amax"), py::arg("codes").noconvert(), py::arg("m"),
             py::arg("v"), py::arg("master").noconvert(), py::arg("options"));
  module.def("adam_update_remainder", &run_adam_remainder, py::arg("numbers"), py::arg("choices"), py::arg("grad"),
             py::arg("param"), py::arg("m"), py::arg("v"), py::arg("remainder").noconvert(), py::arg("options"));
}

SpecialInstruction instruction_of(const std::string& name, const std::string& type, std::optional<bool> ftz) {
  const std::optional<Subnormals> subnormals =
      ftz ? std::optional(*ftz ? Subnormals::flushed : Subnormals::kept) : std::nullopt;
  return special_instruction(find_value<SpecialFunction>("name", name), find_value<SpecialType>("dtype", type),
                             subnormals);
}

}  // namespace

void bind_operators(py::module_& module) {
  module.def("functions", [] { return names_of(function_names); });
  module.def(
      "elementary",
      [](const std::string& name, const Array<float>& x, Array<float> out, int threads) {
        const auto to = mutable_view(out);
        const py::gil_scoped_release release;
        apply_elementary(name, view(x), to, threads);
      },
      py::arg("name"), py::arg("x").noconvert(), py::arg("out").noconvert(), py::arg("threads"));
  module.def("special_functions", [] { return words_of(special_functions); });
  module.def("special_units", [] { return words_of(special_units); });
  module.def("special_types", [] { return words_of(special_types); });
  module.def(
      "special_function",
      [](const std::string& units, const std::string& name, std::optional<bool> ftz, const Array<float>& x,
         Array<float> out, int threads) {
        const auto to = mutable_view(out);
        const SpecialInstruction instruction = instruction_of(name, "float32", ftz);
        const py::gil_scoped_release release;
        apply_special_function(find_value<SpecialUnits>("units", units), instruction.function, instruction.subnormals,
                               view(x), to, threads);
      },
      py::arg("units"), py::arg("name"), py::arg("ftz"), py::arg("x").noconvert(), py::arg("out").noconvert(),
      py::arg("threads"));
  module.def(
      "special_instruction",
      [](const std::string& units, const std::string& name, const std::string& type, std::optional<bool> ftz,
         Array<std::uint32_t> words, int threads) {
        const auto to = mutable_view(words);
        const SpecialInstruction instruction = instruction_of(name, type, ftz);
        const py::gil_scoped_release release;
        apply_special_instruction(find_value<SpecialUnits>("units", units), instruction, to, to, threads);
      },
      py::arg("units"), py::arg("name"), py::arg("type"), py::arg("ftz"), py::arg("words").noconvert(),
      py::arg("threads"));
  module.def("device_functions", [] { return words_of(device_functions); });
  module.def("device_chips", [] { return words_of(device_chips); });
  module.def("cuda_releases", [] { return words_of(cuda_releases); });
  module.def(
      "device_function",
      [](const std::string& name, const std::pair<std::string, std::string>& chip_and_cuda, const std::string& units,
         const DeviceFlagFields& flags, const Array<float>& x, const Array<float>& y, Array<float> out, int threads) {
        const auto to = mutable_view(out);
        const py::gil_scoped_release release;
        DeviceBuild build{.chip = find_value<DeviceChip>("chip", chip_and_cuda.first),
                          .cuda = find_value<CudaRelease>("cuda", chip_and_cuda.second)};
        std::tie(build.flags.ftz, build.flags.prec_div, build.flags.prec_sqrt, build.flags.fast_math) = flags;
        if (!units.empty()) build.units = find_value<SpecialUnits>("units", units);
        device_function(find_value<DeviceFunction>("name", name), build, view(x), view(y), to, threads);
      },
      py::arg("name"), py::arg("chip_and_cuda"), py::arg("units"), py::arg("flags"), py::arg("x").noconvert(),
      py::arg("y").noconvert(), py::arg("out").noconvert(), py::arg("threads"));
  bind_activations(module);
  bind_norms(module);
  bind_softmax(module);
  bind_optimizers(module);
  bind_permutations(module);
  bind_mask_permutations(module);
  bind_router(module);
}

}  // namespace fp8lab::bindings
