// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

#include "bench.hpp"
#include "formats/simd/tiles.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"

namespace fp8lab::bench {
namespace {

constexpr std::size_t rows = 4096;
constexpr std::size_t columns = 4096;
constexpr std::size_t floats = rows * columns;  // 64 MiB

/// Normal numbers as floats and twice as many bfloat16s, and room for what comes of them.
struct Tensors {
  std::vector<float> x = std::vector<float>(floats);
  std::vector<float> y = std::vector<float>(floats);
  std::vector<BFloat16> narrow = std::vector<BFloat16>(2 * floats);
  Quantized row, column;
  Tensors() {
    torch_cuda_normal(1, 0, {}, 0, 1, x);
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      narrow[i].bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x[i % floats]) >> 16);
    }
  }
};

/// Reads all there is, and hardly does more: many sums at a time, which a compiler keeps in vectors.
float sum_of(std::span<const float> x) {
  std::array<float, 64> sums{};
  for (std::size_t i = 0; i + sums.size() <= x.size(); i += sums.size()) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += x[i + j];
  }
  return *std::ranges::max_element(sums);
}

bool same(const Quantized& a, const Quantized& b) {
  return a.codes == b.codes && a.scale_codes == b.scale_codes && a.scale_inv == b.scale_inv;
}

class ScalingRows {
 public:
  explicit ScalingRows(std::shared_ptr<Tensors> data) : data_(std::move(data)) {}

  void add(const std::string& name, double moved, const std::function<void()>& work,
           const std::function<bool()>& right) {
    const auto copy = [data = data_] { std::memcpy(data->y.data(), data->x.data(), floats * sizeof(float)); };
    rows.push_back({name, "memcpy, same bytes", work, copy, moved / (8.0 * floats), [work, right] {
                      work();
                      return right();
                    }});
  }
  /// Quantized rowwise from float32 and from bfloat16; the bound reads once and writes once.
  void add_recipe(const std::string& name, const Recipe& recipe, double code_bytes) {
    const auto data = data_;
    add(
        "quantize float32, " + name, (4 + code_bytes) * floats,
        [=] { quantize({data->x, rows_, columns_}, recipe, Direction::rowwise, data->row); },
        [=] { return equals_scalar(data->row, std::span<const float>(data->x), rows_); });
    add(
        "quantize bfloat16, " + name, 2 * (2 + code_bytes) * floats,
        [=] { quantize({data->narrow, 2 * rows_, columns_}, recipe, Direction::rowwise, data->row); },
        [=] { return equals_scalar(data->row, std::span<const BFloat16>(data->narrow), 2 * rows_); });
  }

  template <typename Source>
  static bool equals_scalar(const Quantized& q, std::span<const Source> x, std::size_t height) {
    force_target("scalar");
    const Quantized slow = quantize({x, height, columns_}, q.recipe, q.direction);
    force_target(wanted_target());
    return same(q, slow);
  }

  std::vector<Row> rows;

 private:
  static constexpr std::size_t rows_ = bench::rows;
  static constexpr std::size_t columns_ = bench::columns;
  std::shared_ptr<Tensors> data_;
};

struct NamedRecipe {
  std::string name;
  Recipe recipe;
};

}  // namespace

std::vector<Row> scaling_rows() {
  const auto data = std::make_shared<Tensors>();
  ScalingRows all(data);
  const std::span<const float> x(data->x);
  const auto amax = std::make_shared<std::array<std::uint32_t, 1>>();
  const auto sum = std::make_shared<float>();
  const auto find_amax = [=] { add_amax({x.data(), 1, floats, floats, floats}, NanInAmax::dropped, amax->data(), 0); };
  const auto read = [=] { *sum = sum_of(x); };
  all.rows.push_back({"amax float32", "a read, same bytes", find_amax, read, 1, [=] {
                        find_amax();
                        float most = 0;
                        for (const float value : x) most = std::max(most, std::abs(value));
                        return std::bit_cast<float>((*amax)[0]) == most;
                      }});
  all.add_recipe("given scale", GivenScale{.scale = 64}, 1);
  all.add_recipe("just in time", JustInTime{}, 1);
  all.add_recipe("MX E4M3", MxBlock{}, 1);
  all.add_recipe("MX E2M1", MxBlock{.format = e2m1, .rule = MxRule::floor}, 0.5);
  all.add_recipe("1 x 128", Block{}, 1);
  all.add_recipe("128 x 128", Block{.rows = 128}, 1);
  all.add_recipe("NVFP4", NvFp4{}, 0.5);
  const auto both = [&](const std::string& name, const Recipe& recipe) {
    all.add(
        "both directions, " + name, 6.0 * floats,
        [=] { quantize_both({x, rows, columns}, recipe, data->row, data->column); },
        [=] {
          return ScalingRows::equals_scalar(data->row, x, rows) && ScalingRows::equals_scalar(data->column, x, rows);
        });
  };
  both("MX E4M3", MxBlock{});
  both("1 x 128", Block{});
  const auto quantized = std::make_shared<Quantized>(quantize({x, rows, columns}, MxBlock{}));
  all.add(
      "dequantize MX E4M3", 5.0 * floats, [=] { dequantize(*quantized, data->y); },
      [=] {
        std::vector<float> slow(floats);
        force_target("scalar");
        dequantize(*quantized, slow);
        force_target(wanted_target());
        return slow == data->y;
      });
  const auto two_threads = [&](const std::string& name, const std::function<void(int)>& work,
                               const std::function<bool()>& right) {
    all.rows.push_back({name + ", two threads", "half of one's time", [=] { work(2); }, [=] { work(1); }, 0.5, right});
  };
  const auto same_by_two = [=](const std::function<void(int)>& work) {
    return [=] {
      work(1);
      const Quantized one = data->row;
      work(2);
      return same(one, data->row);
    };
  };
  // What memory allows.
  const auto copy = [=](int threads) {
    parallel_for(floats, threads, [=](std::size_t first, std::size_t last) {
      std::memcpy(&data->y[first], &data->x[first], (last - first) * sizeof(float));
    });
  };
  two_threads("memcpy", copy, [=] {
    copy(2);
    return data->y == data->x;
  });
  const std::array recipes{NamedRecipe{"MX E4M3", MxBlock{}}, NamedRecipe{"1 x 128", Block{}},
                           NamedRecipe{"just in time", JustInTime{}}, NamedRecipe{"NVFP4", NvFp4{}}};
  for (const NamedRecipe& one : recipes) {
    const auto work = [=](int threads) {
      quantize({x, rows, columns}, one.recipe, Direction::rowwise, data->row, {.threads = threads});
    };
    two_threads("quantize float32, " + one.name, work, same_by_two(work));
  }
  const auto both_directions = [=](int threads) {
    quantize_both({x, rows, columns}, MxBlock{}, data->row, data->column, {.threads = threads});
  };
  two_threads("both directions, MX E4M3", both_directions, same_by_two(both_directions));
  return std::move(all.rows);
}

}  // namespace fp8lab::bench
