// SPDX-License-Identifier: Apache-2.0
// Where the tensors of an experiment come from. Every experiment and Python read tensors through this, so that the same
// source means the same values everywhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/reference/measure/distributions.hpp"
#include "kit/progress.hpp"
#include "kit/tensor.hpp"

namespace fp8lab::experiments {

/// How the drawn tensors of a stream change from step to step; step 0 is the first.
enum class StreamKind : std::uint8_t {
  stationary,  ///< not at all: draws of one distribution
  drift,       ///< step t is multiplied by 2^(t / 8)
  outliers,    ///< in steps 4, 12, 20, ... one element of 4096 is multiplied by 256
  jump,        ///< the middle third of the steps is multiplied by 32
};
/// Throws std::invalid_argument that lists the known names.
[[nodiscard]] StreamKind find_stream_kind(std::string_view name);
[[nodiscard]] std::string_view name_of(StreamKind kind);
/// In words, such as "the middle third of the steps is multiplied by 32".
[[nodiscard]] std::string_view describe(StreamKind kind);

/// Rows, or columns, that are larger than the others: the i-th of `count` is number i * n / count of n, and multiplied
/// by `factor` in float32.
struct OutlierLines {
  long long count = 0;
  double factor = 1;  ///< positive and finite in float32
};

/// float32 draws of sample(), row-major: `steps` tensors (at most 2^16) of rows x columns, each tensor's draws after
/// those of the one before. All together they have at most 2^40 elements.
struct Draws {
  Distribution distribution = distributions.front();
  std::uint64_t seed = 1;
  long long rows = 1;
  long long columns = 1 << 20;
  long long steps = 1;
  StreamKind kind = StreamKind::stationary;
  OutlierLines outlier_rows = {};     ///< tokens, where rows are tokens
  OutlierLines outlier_columns = {};  ///< channels
};
/// One tensor of normal_grid(), row-major: quantiles of N(0, 1), without chance; at most 2^26 elements.
struct Grid {
  long long rows = 1;
  long long columns = 1 << 20;
};
/// Tensors of .npy and .safetensors files, as TensorFile reads them: those of the first file, then those of the next.
struct StoredTensors {
  std::vector<std::filesystem::path> paths;
  std::vector<std::string> names = {};  ///< which tensors of each file, as find_tensors() takes them
};
/// Values in memory, which must outlive the run.
struct HeldTensor {
  MatrixView values;
  std::optional<std::vector<std::uint64_t>> shape = {};  ///< left out: rows and columns
  std::string name = {};                                 ///< may be empty
};
using HeldTensors = std::vector<HeldTensor>;
using TensorSource = std::variant<Draws, Grid, StoredTensors, HeldTensors>;

/// What is known of a tensor before it is read.
struct SourceTensor {
  std::string name;                  ///< of the file and of the tensor in it, printable; empty where it has none
  ElementType type;                  ///< of the source
  std::vector<std::uint64_t> shape;  ///< empty for a single number
  std::size_t rows = 1;              ///< all dimensions but the last one together
  std::size_t columns = 1;

  [[nodiscard]] std::uint64_t size() const { return std::uint64_t{rows} * columns; }
};
/// A shape as Python prints it: "(2, 3)", "(4,)".
[[nodiscard]] std::string shape_text(const std::vector<std::uint64_t>& shape);

/// The element type of a loaded tensor.
enum class Loads : std::uint8_t {
  as_stored,    ///< that of the source
  quantizable,  ///< the same, but float64 is rounded to float32 (to nearest even): no recipe quantizes it
  float32,      ///< float32: float64 is rounded to it, and float16 and bfloat16 lose nothing
};

/// What an experiment can take, and how.
struct StreamOptions {
  int log2_most_elements = 40;         ///< of a tensor
  bool takes_empty = false;            ///< tensors without elements, too
  Loads loads = Loads::as_stored;      ///< what load() makes of them
  int threads = 1;                     ///< changes nothing but the time
  const Progress* progress = nullptr;  ///< called with 0 between pieces of draws
};

/// The tensors of a source, in order. No more of them is in memory than was asked for, but the grid, which has to be
/// sorted, and what the caller holds anyway.
class TensorStream {
 public:
  /// Reads the headers of all files. Throws std::invalid_argument for sizes out
  /// of range, no tensors, codes (uint8), and what find_tensors() throws.
  explicit TensorStream(TensorSource source, const StreamOptions& options = {});

  [[nodiscard]] std::size_t count() const { return facts_.size(); }
  [[nodiscard]] const SourceTensor& facts(std::size_t i) const { return facts_[i]; }
  [[nodiscard]] const std::vector<SourceTensor>& all_facts() const { return facts_; }
  /// The number of elements of all tensors.
  [[nodiscard]] double elements() const;
  /// What the source is, in words and one line.
  [[nodiscard]] const std::string& description() const { return description_; }
  /// What a message begins with that is about tensor i: its name, or which array it is; empty for draws.
  [[nodiscard]] std::string called(std::size_t i) const;

  /// Reads tensor i. `into` may have served before.
  void load(std::size_t i, Tensor& into) const;
  /// Row `row` of tensor i, alone, in its own type.
  void load_row(std::size_t i, std::size_t row, Tensor& into) const;

  /// Calls use(values) for every block of tensor i, of at most 2^20 elements, in the order of rows; values are a span
  /// of const float, double, Half or BFloat16, as the source has them.
  template <typename Use>
  void for_each_block(std::size_t i, const Use& use) const {
    const Tensor whole = whole_for_blocks(i);
    Tensor block;
    for (std::uint64_t first = 0; first < facts_[i].size(); first += block_size_) {
      checkpoint();
      const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(block_size_, facts_[i].size() - first));
      if (whole.has_values()) {
        whole.view().visit([&](auto all) { use(all.subspan(static_cast<std::size_t>(first), count)); });
      } else {
        read_range(i, first, count, block);
        block.view().visit(use);
      }
    }
  }

 private:
  static constexpr std::size_t block_size_ = std::size_t{1} << 20;

  void open(const Draws& draws);
  void open(const Grid& grid);
  void open(const StoredTensors& stored);
  void open(const HeldTensors& held);
  void add(SourceTensor facts);
  [[nodiscard]] bool is_read_as_float32(ElementType type) const;
  /// A tensor that lies in memory already, or that cannot be read in blocks; otherwise one without values.
  [[nodiscard]] Tensor whole_for_blocks(std::size_t i) const;
  /// Elements [first, first + count), in the order of rows, as one row. Not of a tensor that has to be read whole.
  void read_range(std::size_t i, std::uint64_t first, std::size_t count, Tensor& into) const;
  void draw(const Draws& draws, std::size_t step, std::uint64_t first, std::span<float> out) const;

  TensorSource source_;
  StreamOptions options_;
  std::vector<SourceTensor> facts_;
  std::vector<std::pair<std::size_t, TensorHeader>> stored_;  ///< which path, and what the file says of the tensor
  Buffer<float> grid_;
  std::string description_;
};

}  // namespace fp8lab::experiments
