// SPDX-License-Identifier: Apache-2.0
// Where the tensors of an experiment come from. Every experiment and Python read tensors through this, so that the same
// source means the same values everywhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "files/stored_tensors.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "kit/draws.hpp"
#include "kit/progress.hpp"
#include "kit/tensor.hpp"

namespace fp8lab::experiments {

/// One tensor of normal_grid(), row-major: quantiles of N(0, 1), without chance; at most 2^26 elements.
struct Grid {
  long long rows = 1;
  long long columns = 1 << 20;
};
/// Tensors of .npy and .safetensors files, of the index of a checkpoint or of a folder, as find_stored_tensors() gives
/// them. Codes whose format the file tells are decoded, without their scales. Tensors that a pattern chose and that
/// cannot be used are left out; one that was asked for by its name is refused.
struct StoredTensors {
  std::vector<std::filesystem::path> paths;
  std::vector<std::string> names = {};  ///< which tensors, as find_stored_tensors() takes them
  /// Those tensors, where somebody else has found them, in files of other formats.
  std::optional<FoundTensors> found = {};
};
/// Values in memory, which must outlive the run.
struct HeldTensor {
  MatrixView values;
  std::optional<std::vector<std::uint64_t>> shape = {};  ///< left out: rows and columns
  std::string name = {};                                 ///< may be empty
};
using HeldTensors = std::vector<HeldTensor>;
using TensorSource = std::variant<Draws, Grid, StoredTensors, HeldTensors>;

/// The facts about a tensor that are known before it is read.
struct SourceTensor {
  std::string name;                  ///< the path of the file and the name in it, printable; empty where it has none
  ElementType type;                  ///< of the source
  std::vector<std::uint64_t> shape;  ///< empty for a single number
  std::size_t rows = 1;              ///< all dimensions of matrix_shape(shape) but the last one together
  std::size_t columns = 1;
  std::string own_name = {};  ///< in its file, as that has it; of an array as it was given

  [[nodiscard]] std::uint64_t size() const { return std::uint64_t{rows} * columns; }
};
/// The shape without the dimensions of 1 at its end that leave two or more: (1024, 1, 512, 1) is (1024, 1, 512), which
/// has 1024 rows.
[[nodiscard]] std::span<const std::uint64_t> matrix_shape(const std::vector<std::uint64_t>& shape);
/// A shape as Python prints it: "(2, 3)", "(4,)".
[[nodiscard]] std::string shape_text(const std::vector<std::uint64_t>& shape);

/// The element type of a loaded tensor.
enum class Loads : std::uint8_t {
  as_stored,    ///< that of the source
  quantizable,  ///< the same, but float64 is rounded to float32 (to nearest even): no recipe quantizes it
  float32,      ///< float32: float64 is rounded to it, and float16 and bfloat16 lose nothing
};

/// The tensors that an experiment accepts, and how they are loaded.
struct StreamOptions {
  int log2_most_elements = 40;         ///< of a tensor
  bool takes_empty = false;            ///< whether tensors without elements are taken
  Loads loads = Loads::as_stored;      ///< the element type that load() gives
  int threads = 1;                     ///< changes nothing but the time
  const Progress* progress = nullptr;  ///< called with 0 between pieces of draws
  /// Stored tensors of three dimensions or more that have "expert" in their names are a matrix for each expert.
  bool splits_experts = false;
  /// Says why the experiment cannot use a stored tensor; empty: it can.
  std::function<std::string(const SourceTensor&)> unfit = {};
};

/// The tensors of a source, in order. Only what is asked for is read into memory. The grid is an exception: it is made
/// whole, as it has to be sorted.
class TensorStream {
 public:
  /// Reads the headers of all files. Throws std::invalid_argument for sizes out of range, a source without tensors and
  /// codes (uint8), and what find_tensors() throws.
  explicit TensorStream(TensorSource source, const StreamOptions& options = {});

  [[nodiscard]] std::size_t count() const { return facts_.size(); }
  [[nodiscard]] const SourceTensor& facts(std::size_t i) const { return facts_[i]; }
  [[nodiscard]] const std::vector<SourceTensor>& all_facts() const { return facts_; }
  /// What was left out of a source of files, and why.
  [[nodiscard]] const std::vector<LeftOutTensor>& left_out() const { return left_out_; }
  /// The number of elements of all tensors.
  [[nodiscard]] double elements() const;
  /// One line that says what the source is.
  [[nodiscard]] const std::string& description() const { return description_; }
  /// Where tensor i lies, and its file's size and last change, by which other runs know it again; of no file empty.
  [[nodiscard]] std::string stamp(std::size_t i) const;
  /// Whether tensor i is best read from begin to end, by one thread.
  [[nodiscard]] bool is_read_in_order(std::size_t i) const { return !stored_.empty() && stored_[i].in_order; }
  /// How a message about tensor i begins: with its name, or with the index of the array; empty for draws.
  [[nodiscard]] std::string called(std::size_t i) const;

  /// Reads tensor i. Memory that `into` has is used again.
  void load(std::size_t i, Tensor& into) const;
  /// Reads row `row` of tensor i, in the type of the source.
  void load_row(std::size_t i, std::size_t row, Tensor& into) const;

  /// Reads rows [first, first + count) of tensor i, in the type of the source.
  void load_rows(std::size_t i, std::size_t first, std::size_t count, Tensor& into) const;

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
  void open_named(const HeldTensors& held);
  void add(SourceTensor facts);
  void add_stored(const FoundTensor& found);
  /// Throws std::invalid_argument where the tensor cannot be used.
  void try_to_add(const FoundTensor& found, const std::string& called);
  [[nodiscard]] std::string array_name(std::size_t i) const;
  [[nodiscard]] bool is_read_as_float32(ElementType type) const;
  /// Tensor i, where it is in memory already or cannot be read in blocks; otherwise a tensor without values.
  [[nodiscard]] Tensor whole_for_blocks(std::size_t i) const;
  /// Reads elements [first, first + count), in the order of rows, as one row. Precondition: whole_for_blocks() gives no
  /// values.
  void read_range(std::size_t i, std::uint64_t first, std::size_t count, Tensor& into) const;
  /// draw() on threads; reports progress between pieces.
  void draw_on_threads(const Draws& draws, std::size_t i, std::uint64_t first, std::span<float> out) const;

  TensorSource source_;
  StreamOptions options_;
  std::vector<SourceTensor> facts_;
  std::vector<FoundTensor> stored_;
  std::vector<LeftOutTensor> left_out_;
  Buffer<float> grid_;
  std::string description_;
};

}  // namespace fp8lab::experiments
