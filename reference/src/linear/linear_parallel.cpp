// SPDX-License-Identifier: Apache-2.0
// Source: NVIDIA/TransformerEngine after 2.18 (d0067d0), transformer_engine/pytorch/module/linear.py, module/base.py
// (grad_output_preprocess) and distributed.py (gather_along_first_dim, _start_all_gather_fp8_blockwise).
#include "linear/linear_parallel.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/linear/shape_rules.hpp"
#include "linear/reduce.hpp"
#include "linear/with_name.hpp"

namespace fp8lab {
namespace {

/// A rectangle of a matrix: what one rank has.
struct Part {
  std::size_t row, rows, column, columns;
};

/// The rank's part of a (rows, columns) matrix of which ranks share what `split` says.
enum class Split : std::uint8_t { none, rows, columns };
Part part_of(std::size_t rows, std::size_t columns, Split split, std::size_t rank, std::size_t ranks) {
  switch (split) {
    case Split::none: break;
    case Split::rows: return {rank * (rows / ranks), rows / ranks, 0, columns};
    case Split::columns: return {0, rows, rank * (columns / ranks), columns / ranks};
  }
  return {0, rows, 0, columns};
}

/// The dimension in which ranks share a tensor; y has the shape of dy, dx that of x, dw that of w.
Split split_of(LinearTensor tensor, ParallelMode mode) {
  const bool column = mode == ParallelMode::column;
  switch (tensor) {
    case LinearTensor::x: return column ? Split::none : Split::columns;
    case LinearTensor::w: return column ? Split::rows : Split::columns;
    case LinearTensor::dy: break;
  }
  return column ? Split::columns : Split::none;
}

template <typename T>
Buffer<T> copied(std::span<const T> values, std::size_t columns, const Part& part) {
  Buffer<T> result;
  result.reserve(part.rows * part.columns);
  for (std::size_t row = part.row; row < part.row + part.rows; ++row) {
    const auto line = values.subspan(row * columns + part.column, part.columns);
    result.insert(result.end(), line.begin(), line.end());
  }
  return result;
}

/// A matrix with its memory.
struct OwnMatrix {
  std::variant<Buffer<float>, Buffer<double>, Buffer<Half>, Buffer<BFloat16>> values;
  std::size_t rows, columns;

  OwnMatrix(const MatrixView& whole, const Part& part) : rows(part.rows), columns(part.columns) {
    whole.visit([&]<typename T>(std::span<const T> all) { values = copied(all, whole.columns(), part); });
  }
  [[nodiscard]] MatrixView view() const {
    return std::visit(
        [&]<typename T>(const Buffer<T>& own) { return MatrixView{std::span<const T>(own), rows, columns}; }, values);
  }
};

/// The values of a Quantized, rounded to the type of the matrix, into its rows from `row` on.
void write_dequantized(const Quantized& q, OwnMatrix& out, std::size_t row) {
  std::vector<float> values(q.rows * q.columns);
  dequantize(q, values);
  std::visit(
      [&]<typename T>(Buffer<T>& all) {
        T* first = all.data() + row * out.columns;
        const auto rounded = [](float value) -> T {
          if constexpr (std::is_same_v<T, Half>) {
            return {static_cast<std::uint16_t>(encode(binary16, cuda_nosat_policy, value))};
          } else if constexpr (std::is_same_v<T, BFloat16>) {
            return {static_cast<std::uint16_t>(encode(bfloat16, cuda_nosat_policy, value))};
          } else {
            return static_cast<T>(value);
          }
        };
        std::ranges::transform(values, first, rounded);
      },
      out.values);
}

/// Whether Transformer Engine cannot gather the codes of x's parts: those of 128 x 1 or 1 x 128 tiles that are ragged.
bool is_quantized_twice(const LinearRecipe& recipe, const LinearCast& cast, const MatrixView& x,
                        const TensorParallel& parallel) {
  const auto* tiles = std::get_if<Recipe>(&cast);
  if (tiles == nullptr || recipe.system != LinearSystem::transformer_engine) return false;
  if (tiles->tile_along != 128 || tiles->scale_type != ScaleType::float32) return false;
  const std::size_t own_rows = x.rows() / static_cast<std::size_t>(parallel.ranks);
  return parallel.ranks > 1 && (own_rows % 128 != 0 || x.columns() % 128 != 0);
}

/// The x that a column-parallel layer's ranks gather of their parts of the sequence, where that is not x itself.
OwnMatrix gathered(const MatrixView& x, const Recipe& recipe, Direction direction, const TensorParallel& parallel,
                   int threads) {
  OwnMatrix result(x, {0, x.rows(), 0, x.columns()});
  const auto ranks = static_cast<std::size_t>(parallel.ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Part part = part_of(x.rows(), x.columns(), Split::rows, rank, ranks);
    write_dequantized(quantize(OwnMatrix(x, part).view(), recipe, direction, {.threads = threads}), result, part.row);
  }
  return result;
}

const MatrixView& matrix_of(const LinearInput& input, LinearTensor tensor) {
  if (const auto* x = std::get_if<MatrixView>(&input)) return *x;
  refuse(name_of(tensor), " must not be quantized: every rank quantizes its part");
}

LinearShape shape_of(LinearPass pass, const MatrixView& a, const MatrixView& b) {
  if (pass == LinearPass::fprop) return {.tokens = a.rows(), .in = a.columns(), .out = b.rows()};
  return {.tokens = a.rows(), .in = b.columns(), .out = a.columns()};
}

/// Throws where a dimension that ranks share is no multiple of them, whatever the recipe's system.
void check_shares(const TensorParallel& parallel, const LinearShape& shape) {
  const auto ranks = static_cast<std::size_t>(parallel.ranks);
  const auto check = [&](bool is_shared, const char* name, std::size_t size) {
    if (!is_shared || size % ranks == 0) return;
    refuse(name, " must be a multiple of ", ranks, ", the ranks that share it, not ", size);
  };
  check(parallel.mode == ParallelMode::column, "out", shape.out);
  check(parallel.mode == ParallelMode::row, "in", shape.in);
  check(parallel.sequence_parallel, "tokens", shape.tokens);
}

/// One pass, with what its ranks share.
template <typename Out>
class ParallelPass {
 public:
  ParallelPass(const LinearRecipe& recipe, LinearPass pass, const LinearInput& a, const LinearInput& b,
               std::span<Out> out, const LinearOptions& options)
      : recipe_(recipe),
        pass_(pass),
        factors_(factors_of(pass)),
        gemm_(gemm_of(recipe, pass)),
        a_(matrix_of(a, factors_.a.tensor)),
        b_(matrix_of(b, factors_.b.tensor)),
        shape_(shape_of(pass, a_, b_)),
        options_(options),
        parallel_(options.parallel),
        out_(out) {
    check();
    columns_ = pass == LinearPass::fprop ? shape_.out : shape_.in;
    rows_ = pass == LinearPass::wgrad ? shape_.out : shape_.tokens;
    if (out.size() != rows_ * columns_) refuse("out must have ", rows_ * columns_, " elements, not ", out.size());
    switch (pass) {
      case LinearPass::fprop: split_ = split_of(LinearTensor::dy, parallel_.mode); break;
      case LinearPass::dgrad: split_ = split_of(LinearTensor::x, parallel_.mode); break;
      case LinearPass::wgrad: split_ = split_of(LinearTensor::w, parallel_.mode); break;
    }
  }

  void run() {
    std::vector<OwnMatrix> gathered_x;  // one, or none
    const MatrixView left = a_of(gathered_x);
    const MatrixView right = b_of(gathered_x);
    std::vector<Buffer<Out>> results;
    results.reserve(ranks());
    for (std::size_t rank = 0; rank < ranks(); ++rank) results.push_back(result_of(rank, left, right));
    if (split_ != Split::none) {
      for (std::size_t rank = 0; rank < ranks(); ++rank) put(results[rank], rank);
      return;
    }
    reduce(results);
    add_bias();
  }

 private:
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(parallel_.ranks); }
  [[nodiscard]] bool is_row() const { return parallel_.mode == ParallelMode::row; }

  void check() const {
    const bool rowwise_a = factors_.a.direction == Direction::rowwise;
    const bool rowwise_b = factors_.b.direction == Direction::rowwise;
    const std::size_t depth_a = rowwise_a ? a_.columns() : a_.rows();
    const std::size_t depth_b = rowwise_b ? b_.columns() : b_.rows();
    if (depth_a != depth_b) {
      refuse(name_of(factors_.a.tensor), " has ", depth_a, rowwise_a ? " columns" : " rows", " and ",
             name_of(factors_.b.tensor), " has ", depth_b, rowwise_b ? " columns" : " rows", "; they must be as many");
    }
    check_shares(parallel_, shape_);
    if (options_.check_shapes) check_shape(recipe_, pass_, shape_, parallel_);
    if (pass_ == LinearPass::fprop && !options_.bias.empty() && options_.bias.size() != shape_.out) {
      refuse("bias must have ", shape_.out, " elements, not ", options_.bias.size());
    }
    const auto* recipe = std::get_if<Recipe>(&gemm_.a);
    if (pass_ != LinearPass::fprop && options_.random && recipe != nullptr) {
      check_random(recipe->format, *options_.random, shape_.tokens * shape_.out);
    }
  }

  /// The operands: of a column-parallel layer with a split sequence, the x that is gathered.
  MatrixView a_of(std::vector<OwnMatrix>& memory) const {
    return pass_ == LinearPass::fprop ? x_of(a_, gemm_.a, factors_.a.direction, memory) : a_;
  }
  MatrixView b_of(std::vector<OwnMatrix>& memory) const {
    return pass_ == LinearPass::wgrad ? x_of(b_, gemm_.b, factors_.b.direction, memory) : b_;
  }
  MatrixView x_of(const MatrixView& x, const LinearCast& cast, Direction direction,
                  std::vector<OwnMatrix>& memory) const {
    if (is_row() || !parallel_.sequence_parallel || !is_quantized_twice(recipe_, cast, x, parallel_)) return x;
    return memory.emplace_back(gathered(x, std::get<Recipe>(cast), direction, parallel_, options_.threads)).view();
  }

  /// The words of the rank's part of dy, in the order of its codes.
  [[nodiscard]] RandomSource random_of(std::size_t rank, const RandomSource& all,
                                       std::vector<std::uint32_t>& memory) const {
    const auto& recipe = std::get<Recipe>(gemm_.a);
    const bool rowwise = factors_.a.direction == Direction::rowwise;
    const bool transposed = !rowwise && (recipe.transposed_columnwise || recipe.format.bits() == 4);
    const std::size_t rows = transposed ? shape_.out : shape_.tokens;
    const std::size_t columns = transposed ? shape_.tokens : shape_.out;
    Split split = transposed ? Split::rows : Split::columns;
    if (is_row()) split = Split::none;
    const Part part = part_of(rows, columns, split, rank, ranks());
    std::visit(
        [&]<typename Word>(std::span<const Word> words) {
          const Buffer<Word> own = copied(words.first(rows * columns), columns, part);
          memory.assign(own.begin(), own.end());
        },
        all.words);
    return {std::span<const std::uint32_t>(memory), all.count, all.sharing};
  }

  /// Computes the output of one rank's GEMM.
  [[nodiscard]] Buffer<Out> result_of(std::size_t rank, const MatrixView& left, const MatrixView& right) const {
    const auto part = [&](const MatrixView& whole, LinearTensor tensor) {
      return OwnMatrix(whole, part_of(whole.rows(), whole.columns(), split_of(tensor, parallel_.mode), rank, ranks()));
    };
    const OwnMatrix own_left = part(left, factors_.a.tensor);
    const OwnMatrix own_right = part(right, factors_.b.tensor);
    LinearOptions own = options_;
    own.parallel = {};
    own.check_shapes = false;
    if (!own.bias.empty() && pass_ == LinearPass::fprop) {
      own.bias = is_row() ? std::span<const float>() : own.bias.subspan(rank * own_right.rows, own_right.rows);
    }
    std::vector<std::uint32_t> words;
    if (own.random && std::holds_alternative<Recipe>(gemm_.a) && factors_.a.tensor == LinearTensor::dy) {
      own.random = random_of(rank, *own.random, words);
    }
    const Part there = result_part(rank);
    Buffer<Out> result(there.rows * there.columns);
    if (own.accumulate) result = copied(std::span<const Out>(out_), columns_, there);
    const std::span<Out> to(result);
    switch (pass_) {
      case LinearPass::fprop: linear(recipe_, own_left.view(), own_right.view(), to, own); break;
      case LinearPass::dgrad: linear_dgrad(recipe_, own_left.view(), own_right.view(), to, own); break;
      case LinearPass::wgrad: linear_wgrad(recipe_, own_left.view(), own_right.view(), to, own); break;
    }
    return result;
  }

  [[nodiscard]] Part result_part(std::size_t rank) const { return part_of(rows_, columns_, split_, rank, ranks()); }

  void put(const Buffer<Out>& result, std::size_t rank) {
    const Part part = result_part(rank);
    for (std::size_t row = 0; row < part.rows; ++row) {
      std::ranges::copy(std::span(result).subspan(row * part.columns, part.columns),
                        out_.subspan((part.row + row) * columns_ + part.column).begin());
    }
  }

  void reduce(const std::vector<Buffer<Out>>& results) {
    if constexpr (std::is_same_v<Out, float>) {
      reduce_results(results, parallel_, out_);
    } else {
      reduce_results(results, parallel_, gemm_.recipe.output, out_);
    }
  }

  /// The bias of a row-parallel layer: in the output's type, after the sum.
  void add_bias() {
    if (options_.bias.empty() || !is_row()) return;
    const Format& type = gemm_.recipe.output;
    for (std::size_t i = 0; i < out_.size(); ++i) {
      const float bias = options_.bias[i % columns_];
      if constexpr (std::is_same_v<Out, float>) {
        out_[i] += bias;
      } else {
        const float rounded = decode(type, encode(type, cuda_nosat_policy, bias));
        out_[i] = static_cast<Out>(encode(type, cuda_nosat_policy, decode(type, out_[i]) + rounded));
      }
    }
  }

  const LinearRecipe& recipe_;
  LinearPass pass_;
  LinearFactors factors_;
  const LinearGemm& gemm_;
  const MatrixView& a_;
  const MatrixView& b_;
  LinearShape shape_;
  const LinearOptions& options_;
  const TensorParallel& parallel_;
  std::span<Out> out_;
  std::size_t rows_ = 0, columns_ = 0;
  Split split_ = Split::none;  // of the result; none: it is summed
};

template <typename Out>
void run_split(const LinearRecipe& recipe, LinearPass pass, const LinearInput& a, const LinearInput& b,
               std::span<Out> out, const LinearOptions& options) {
  const DefaultEnvironment environment;
  check_linear_recipe(recipe);
  check_tensor_parallel(options.parallel);
  auto split =
      with_name(std::string(name_of(pass)), [&] { return ParallelPass<Out>(recipe, pass, a, b, out, options); });
  split.run();
}

}  // namespace

void run_parallel_pass(const LinearRecipe& recipe, LinearPass pass, const LinearInput& a, const LinearInput& b,
                       std::span<float> out, const LinearOptions& options) {
  run_split(recipe, pass, a, b, out, options);
}
void run_parallel_pass(const LinearRecipe& recipe, LinearPass pass, const LinearInput& a, const LinearInput& b,
                       std::span<std::uint16_t> out, const LinearOptions& options) {
  run_split(recipe, pass, a, b, out, options);
}

}  // namespace fp8lab
