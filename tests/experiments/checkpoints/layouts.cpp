// SPDX-License-Identifier: Apache-2.0
// The records of layouts agree with each other and with the recipes that they name.
#include "checkpoints/layout.hpp"

#include <set>

#include "checkpoints/dequantize.hpp"
#include "fp8lab/reference/scaling/named_recipes.hpp"
#include "support.hpp"

namespace fp8lab::tests::checkpoint_layouts {

using experiments::all_layouts;
using experiments::Layout;

TEST_CASE("every layout has a name of its own, a reader of its own first, and recipes that there are") {
  std::set<std::string_view> names;
  for (const Layout& layout : all_layouts()) {
    INFO(layout.name);
    CHECK(names.insert(layout.name).second);
    CHECK(&experiments::find_layout(layout.name) == &layout);
    CHECK_FALSE(layout.words.empty());
    CHECK_FALSE(layout.source.empty());
    CHECK(layout.loaders.front().loader == experiments::Loader::format);
    CHECK_FALSE(layout.loaders.front().block_from_shapes);
    for (const experiments::Dequantization& rule : layout.loaders) CHECK_FALSE(rule.source.empty());
    CHECK(layout.has_scale_tensor() != layout.scale.empty());
    CHECK((layout.global == experiments::GlobalScale::none) == layout.global_scale.empty());
    CHECK((layout.packing == experiments::Packing::bytes) == (layout.format.bits() == 8));
    CHECK(layout.exclusion_keys.empty() == (layout.exclusion == experiments::Exclusion::none));
    for (const std::string_view recipe : layout.recipes) CHECK_NOTHROW(find_recipe(recipe));
  }
}

TEST_CASE("a reader whose rules are not known is refused by name") {
  const Layout& layout = experiments::find_layout("modelopt_nvfp4");
  CHECK(experiments::find_dequantization(layout, experiments::Loader::vllm).positive_zero);
  CHECK_THROWS_WITH(experiments::find_dequantization(layout, experiments::Loader::quark),
                    "it is not known how quark reads the layout modelopt_nvfp4; known: format, modelopt, vllm");
  CHECK_THROWS_AS(experiments::find_layout("fp8"), std::invalid_argument);
}

}  // namespace fp8lab::tests::checkpoint_layouts
