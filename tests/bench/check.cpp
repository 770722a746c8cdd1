// SPDX-License-Identifier: Apache-2.0
// What check does to a tensor of bfloat16: all bands by recipes, from memory.
#include <bit>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench.hpp"
#include "check/check.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/measure/random.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"

namespace fp8lab::bench {
namespace {

using experiments::CheckedTensor;
using experiments::ChosenRecipe;
using experiments::HeldTensors;
using experiments::TensorStream;

constexpr std::size_t check_rows_a_tensor = 2048;
constexpr std::size_t check_columns = 4096;
constexpr std::size_t check_size = check_rows_a_tensor * check_columns;

struct CheckData {
  std::vector<BFloat16> words = std::vector<BFloat16>(check_size);
  std::vector<BFloat16> copy = std::vector<BFloat16>(check_size);
  CheckedTensor result;
  CheckData() {
    std::vector<float> x(check_size);
    torch_cuda_normal(1, 0, {}, 0, 1, x);
    for (std::size_t i = 0; i < check_size; ++i) {
      words[i].bits = static_cast<std::uint16_t>(encode(bfloat16, CastPolicy{}, x[i]));
    }
  }
};

/// Whether elements that become zero are counted as quantize() and dequantize() make them.
bool counts_are_right(const CheckData& data, const std::vector<ChosenRecipe>& recipes) {
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    const Quantized q = quantize(MatrixView(data.words, check_rows_a_tensor, check_columns), recipes[i].recipe);
    std::vector<float> back(check_size);
    dequantize(q, back);
    std::uint64_t zeroed = 0;
    for (std::size_t k = 0; k < check_size; ++k) zeroed += back[k] == 0 && (data.words[k].bits & 0x7FFFU) != 0 ? 1 : 0;
    if (zeroed != data.result.recipes[i].zeroed) return false;
  }
  return true;
}

Row check_row(const std::shared_ptr<CheckData>& data, const std::string& name, std::vector<ChosenRecipe> recipes) {
  const auto work = [data, recipes] {
    const TensorStream stream(
        HeldTensors{{.values = MatrixView(data->words, check_rows_a_tensor, check_columns), .name = "w"}});
    data->result = check_tensor(stream, 0, recipes, 1);
  };
  return {.name = "check, " + name + ", 2048 x 4096 bfloat16",
          .bound_name = "memcpy of it",
          .work = work,
          .bound = [data] { std::memcpy(data->copy.data(), data->words.data(), check_size * sizeof(BFloat16)); },
          .bound_factor = 1,
          .verified =
              [=] {
                work();
                return counts_are_right(*data, recipes);
              }};
}

}  // namespace

std::vector<Row> check_rows() {
  const auto data = std::make_shared<CheckData>();
  return {check_row(data, "MXFP8", {experiments::choose_recipe("ocp_mxfp8_e4m3")}),
          check_row(data, "six recipes", experiments::CheckArguments{}.recipes)};
}

}  // namespace fp8lab::bench
