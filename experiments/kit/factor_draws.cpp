// SPDX-License-Identifier: Apache-2.0
#include "kit/factor_draws.hpp"

#include <vector>

#include "fp8lab/formats/named.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::string_view prefix = "abs_";

}  // namespace

std::string FactorDraws::name() const { return std::string(magnitudes ? prefix : "") + std::string(distribution.name); }

bool FactorDraws::has_one_sign() const { return magnitudes || quantile(distribution, 0) >= 0; }

FactorDraws choose_factor_draws(std::string_view name) {
  struct Named {
    std::string name;
    FactorDraws draws;
  };
  std::vector<Named> list;
  list.reserve(2 * fp8lab::distributions.size());
  for (const bool magnitudes : {false, true}) {
    for (const Distribution& distribution : fp8lab::distributions) {
      const FactorDraws draws{distribution, magnitudes};
      list.push_back({draws.name(), draws});
    }
  }
  return find_named(list, "distribution", name).draws;
}

}  // namespace fp8lab::experiments
