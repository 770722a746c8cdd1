// SPDX-License-Identifier: Apache-2.0
// What the elements that a hypothesis leaves unexplained say of a departure in one place.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "quantize/hypotheses.hpp"
#include "quantize/kernel_model.hpp"

namespace fp8lab::doctor {

/// Which elements a hypothesis leaves unexplained.
struct Unexplained {
  std::uint64_t count = 0;
  std::uint64_t first = 0, last = 0;  // indices of the source
  std::size_t first_row = 0, last_row = 0, first_column = 0, last_column = 0;

  /// None of a source yet.
  [[nodiscard]] static Unexplained none_of(const Source& source);
  /// Takes in an element, but does not count it.
  void take(std::uint64_t index, std::size_t columns);
  /// Takes in those that another one has, of the same source.
  void join(const Unexplained& other);
};

/// What a hypothesis leaves unexplained, and the codes that are there, by the rows and columns of the source.
class LocalCase {
 public:
  LocalCase(const KernelModel& model, const Source& source, const StoredDump& dump, const Unexplained& unexplained)
      : model_(&model), source_(&source), dump_(&dump), unexplained_(&unexplained) {}

  [[nodiscard]] const Source& source() const { return *source_; }
  [[nodiscard]] const Amaxes& tiles() const { return model_->tiles(); }
  [[nodiscard]] const Unexplained& unexplained() const { return *unexplained_; }
  [[nodiscard]] std::uint8_t code(std::size_t row, std::size_t column) const;
  [[nodiscard]] std::uint8_t last_code() const { return code(source_->rows() - 1, source_->columns() - 1); }
  /// Whether the codes of a column, or a row, are all the last one.
  [[nodiscard]] bool has_last_code_in_column(std::size_t column) const;
  [[nodiscard]] bool has_last_code_in_row(std::size_t row) const;
  /// Whether the codes of a row are those predicted of another one.
  [[nodiscard]] bool has_codes_of(std::size_t row, std::size_t other) const;
  /// Whether the block from one element to another has no code but 0.
  [[nodiscard]] bool is_empty(std::uint64_t first, std::uint64_t last) const;
  /// Whether all that is unexplained lies in one tile of several.
  [[nodiscard]] bool is_one_tile() const;

 private:
  const KernelModel* model_;
  const Source* source_;
  const StoredDump* dump_;
  const Unexplained* unexplained_;
};

/// Candidates with a departure in one place that the unexplained elements suggest.
[[nodiscard]] std::vector<Candidate> local_candidates(const Candidate& candidate, const KernelModel& model,
                                                      const Source& source, const StoredDump& dump,
                                                      const Unexplained& unexplained);

/// The factors with which x gives all codes of the dump, by rounding to nearest in the model's format.
[[nodiscard]] std::optional<FactorInterval> factor_interval(const KernelModel& model, const Source& source,
                                                            const StoredDump& dump);

/// The scales of the tensor over those of tiles that give all stored scales and codes, as far as float32 rounding lets
/// one say; nothing where the recipe has no such scale or none gives them.
[[nodiscard]] std::optional<FactorInterval> tensor_scale_interval(const KernelModel& model, const Source& source,
                                                                  const StoredDump& dump);

/// The tiles whose stored scales or codes differ between scales of the tensor in that interval, of a
/// tensor_scale_interval(): those of all others are the same for each of them. Not all where there are very many.
[[nodiscard]] std::vector<Piece> tiles_that_tell(const KernelModel& model, const Source& source, const StoredDump& dump,
                                                 const FactorInterval& interval);

/// The float32 of an interval with the shortest mantissa; `preferred` where that lies within.
[[nodiscard]] float simplest(const FactorInterval& interval, std::optional<double> preferred);

}  // namespace fp8lab::doctor
