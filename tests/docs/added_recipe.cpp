// SPDX-License-Identifier: Apache-2.0
// The recipe of docs/add_a_recipe.md, compiled with the page's step applied to a copy of the table.
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("docs: an added recipe is found by its name, explains itself and quantizes as it says") {
  const NamedRecipe& named = find_recipe("example_rows");
  CHECK_NOTHROW(check_recipe(named.recipe));
  CHECK(describe(named.recipe) ==
        "e5m2, a float32 scale for a row: scale_inv = amax / largest, amax at least 1e-06, rounded up to a power of "
        "two; codes of x * fl(1 / scale_inv)");
  const std::vector<float> x{3, -0.5F, 0.25F, 0, 1e-20F, 0};
  const Quantized q = quantize({x, 2, 3}, named.recipe);
  // 3 / 57344 and 1e-6 / 57344, up to powers of two.
  CHECK(q.scale_inv == std::vector<float>{0x1p-14F, 0x1p-35F});
  for (std::size_t i = 0; i < x.size(); ++i) CHECK(q.codes[i] == encode(e5m2, {}, x[i] / q.scale_inv[i / 3]));
}

}  // namespace fp8lab::tests
