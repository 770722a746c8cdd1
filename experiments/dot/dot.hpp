// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fp8lab/reference/gemm/trace.hpp"
#include "kit/document.hpp"
#include "kit/dots.hpp"
#include "kit/progress.hpp"
#include "kit/tensor_source.hpp"

namespace fp8lab::experiments {

/// The most products of a dot product that is told: its trace takes 0.4 KB of memory a product, its JSON 1.7 KB.
inline constexpr std::size_t most_depth = std::size_t{1} << 18;

/// One side of a dot product.
struct DotOperand {
  Format format;
  Codes codes = {};         ///< bit patterns for binary32 and binary64
  Scales scales = {};       ///< of its blocks, for models that have them
  std::string source = {};  ///< where the codes came from, in words
};

/// The format called `name`, or binary32 for "float32", as TF32's operands are given, or binary64. Throws
/// std::invalid_argument that lists the known names.
[[nodiscard]] Format operand_format(std::string_view name);

/// Codes in hexadecimal, in the order of k: separated by commas, or all of the format's width and nothing in between.
/// Throws std::invalid_argument where they are not.
[[nodiscard]] Codes parse_codes(const Format& format, std::string_view text);

/// Numbers as an operand: rounded as profile cuda_satfinite rounds, to float32 nearest even, and to float64 not at all;
/// `source` says how many were no numbers of the format.
[[nodiscard]] DotOperand operand_of_values(const Format& format, std::span<const double> values);

/// A row of one tensor, a matrix: uint8 of a file as codes of the format, which must be of at most 8 bits, any other as
/// numbers, rounded as operand_of_values() does, each from its own type. No more of a file is read. Throws
/// std::runtime_error where a file cannot be read, std::invalid_argument where the source has several tensors, no such
/// row, or one of more than most_depth elements.
[[nodiscard]] DotOperand operand_of_tensor(const Format& format, const TensorSource& source, std::uint64_t row);

struct DotArguments {
  MmaModel model;
  DotOperand a, b;
  TraceOptions options = {};
  std::optional<std::uint64_t> got = {};  ///< the word that a kernel gave, in the format of the result
  std::optional<std::size_t> at = {};     ///< a k whose instruction the report shows where there are many
};

/// A way to compute the same operands that gives the word that was got.
struct DotCandidate {
  std::string model;
  int promote_k;  ///< 0: never
  std::vector<ZeroRule> zero_rules;
  bool every_zero_rule;  ///< that the model tells apart
};

struct DotResult {
  DotArguments arguments;
  DotTrace trace;
  std::optional<float> exact;  ///< the real sum of c and the products, rounded once; none with block scales or in FP64
  std::vector<DotCandidate> candidates;  ///< where something else was got than the trace has

  /// Whether what was got, if anything, is the word of the trace.
  [[nodiscard]] bool passed() const { return !arguments.got || *arguments.got == trace.word; }
};

/// Traces a dot product and, where another word was got, searches all models that take the operands, all zero rules and
/// promotions for those that give it; float16 and float32 results are compared as numbers there.
///
/// Throws as trace_dot() does, and std::invalid_argument for more than most_depth products and where `got` is no word
/// of the result.
[[nodiscard]] DotResult run_dot(const DotArguments& arguments, const Progress& progress = {});

/// Tables of everything: `result`, `instructions`, `steps`, `terms`, `products`, `scales` and `candidates`; and every
/// term of up to four instructions, of more those of the one with k `at`, told in full.
[[nodiscard]] Document document_of(const DotResult& result);

}  // namespace fp8lab::experiments
