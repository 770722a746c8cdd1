// SPDX-License-Identifier: Apache-2.0
#include "kit/band.hpp"

#include <algorithm>

#include "fp8lab/reference/measure/distributions.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "support.hpp"

namespace fp8lab::tests {
namespace {

using namespace fp8lab::experiments;

/// What the bands of a tensor stand for, one after the other.
std::vector<float> by_bands(const Quantized& q, std::size_t most) {
  std::vector<float> all(q.rows * q.columns);
  Quantized band;  // whose memory serves all of them
  for (std::size_t first = 0; first < q.rows; first += most) {
    const std::size_t rows = std::min(most, q.rows - first);
    take_band(q, first, rows, band);
    dequantize(band, std::span(all).subspan(first * q.columns, rows * q.columns));
  }
  return all;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, {}, [](float x) { return bits(x); }, [](float x) { return bits(x); });
}

}  // namespace

TEST_CASE("the bands of a quantized tensor are the tensor, by every recipe, in both directions") {
  std::size_t number = 0;
  for (const NamedRecipe& named : recipes()) {
    if (is_stochastic(named.recipe) || (number++ % 3 != 0 && !exhaustive())) continue;
    for (const Direction direction : {Direction::rowwise, Direction::columnwise}) {
      const std::size_t rows = 384;  // three tiles of 128
      const std::size_t columns = 256;
      std::vector<float> x(rows * columns);
      sample(find_distribution("normal"), 7, 0, x);
      const Quantized q = quantize({x, rows, columns}, named.recipe, direction);
      std::vector<float> whole(x.size());
      dequantize(q, whole);
      const std::size_t most = rows_of_bands({&q}, 1);
      INFO(named.name << ", direction " << static_cast<int>(direction) << ", bands of " << most);
      CHECK(most < rows);
      CHECK(same(by_bands(q, most), whole));
      CHECK(same(by_bands(q, 2 * most), whole));
    }
  }
}

TEST_CASE("bands are of whole blocks of all that is asked for, and of about as many elements") {
  const std::vector<float> x(1000 * 64, 1);
  const auto by = [&](const char* name, Direction direction) {
    return quantize({x, 1000, 64}, find_recipe(name).recipe, direction);
  };
  const Quantized tiles = by("te_block_128x128", Direction::rowwise);
  const Quantized columns = by("te_block_1x128", Direction::columnwise);
  const Quantized tensor = by("te_current_scaling", Direction::rowwise);
  CHECK(rows_of_bands({&tiles, &tensor}, 1) == 128);
  CHECK(rows_of_bands({&columns}, 64 * 300) == 256);
  CHECK(rows_of_bands({&tensor}, 1) == 32);
  CHECK(rows_of_bands({&tensor}, 1 << 20) == 1000);
  const Quantized odd = quantize({x, 1000, 64}, Block{.rows = 1, .columns = 48}, Direction::columnwise);
  CHECK(rows_of_bands({&odd, &tensor}, 1) == 96);
}

}  // namespace fp8lab::tests
