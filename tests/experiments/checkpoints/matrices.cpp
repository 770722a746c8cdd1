// SPDX-License-Identifier: Apache-2.0
// Matrices of a checkpoint: what their numbers are.
#include "checkpoints/matrices.hpp"

#include <limits>

#include "support.hpp"

namespace fp8lab::tests::checkpoint_matrices {

using experiments::NumberMatrix;

TEST_CASE("the amax of a matrix is its largest magnitude in each type, and NaN counts nothing") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> floats(1001, -0.25F);
  std::vector<BFloat16> wide(1001, BFloat16{0x3E80});  // 0.25
  std::vector<Half> halves(1001, Half{0x3400});        // 0.25
  CHECK(NumberMatrix{.values = floats, .rows = 1, .columns = 1001}.amax() == 0.25F);
  CHECK(NumberMatrix{.values = wide, .rows = 1, .columns = 1001}.amax() == 0.25F);
  CHECK(NumberMatrix{.values = halves, .rows = 1, .columns = 1001}.amax() == 0.25F);
  floats[3] = nan, wide[3] = BFloat16{0xFFC0}, halves[3] = Half{0xFE00};
  floats[1000] = -3.5F, wide[1000] = BFloat16{0xC060}, halves[1000] = Half{0xC300};
  CHECK(NumberMatrix{.values = floats, .rows = 7, .columns = 143}.amax() == 3.5F);
  CHECK(NumberMatrix{.values = wide, .rows = 7, .columns = 143}.amax() == 3.5F);
  CHECK(NumberMatrix{.values = halves, .rows = 7, .columns = 143}.amax() == 3.5F);
  CHECK(NumberMatrix{.values = std::vector<float>(5, nan), .rows = 1, .columns = 5}.amax() == 0);
  CHECK(NumberMatrix{}.amax() == 0);
}

}  // namespace fp8lab::tests::checkpoint_matrices
