// SPDX-License-Identifier: Apache-2.0
#include "tensor_core/misfit.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/reference/tensor_core/models.hpp"
#include "tensor_core/factors.hpp"

namespace fp8lab {
namespace {

/// Says why float32 scales of tiles cannot serve as such codes; empty where they can.
std::string misfit_of_tiles(const MmaModel& model, const BlockScales& scales, const TileScales& tiles) {
  if (scales.format != e8m0 || tiles.depth % static_cast<std::size_t>(scales.block) != 0) {
    return "is of tiles; " + std::string(model.name) + " takes " + text_of(scales);
  }
  const auto is_code = [](float scale) { return std::isnan(scale) || scale == decode(e8m0, e8m0_of(scale)); };
  const auto wrong = std::ranges::find_if_not(tiles.values, is_code);
  if (wrong == tiles.values.end()) return "";
  return "must be powers of two, of which " + std::string(model.name) + " gets the exponents as E8M0, not " +
         text_of(*wrong);
}

bool has_scales(const Operand& operand) { return !operand.scales.codes.empty() || !operand.tile_scales.values.empty(); }

}  // namespace

std::string text_of(const BlockScales& scales) {
  return format_name(scales.format) + ", one for every " + std::to_string(scales.block) + " of K";
}

std::string text_of(float x) {
  std::array<char, 32> room{};
  return {room.data(), std::to_chars(room.data(), room.data() + room.size(), x).ptr};
}

Format format_for(const MmaModel& model, const Operand& operand) {
  const bool floats = std::holds_alternative<std::span<const float>>(operand.elements);
  if (!floats) return operand.format;
  return std::ranges::find(model.operands, tf32) == model.operands.end() ? binary32 : tf32;
}

std::string misfit_of_format(const MmaModel& model, const Operand& operand) {
  const Format format = format_for(model, operand);
  if (std::ranges::find(model.operands, format) != model.operands.end()) return "";
  std::string taken;
  for (const Format& known : model.operands) taken += (taken.empty() ? "" : ", ") + format_name(known);
  return "is " + format_name(format) + "; " + std::string(model.name) + " takes " + taken;
}

std::string misfit_of_scales(const MmaModel& model, const Operand& operand) {
  const std::string name(model.name);
  const std::span<const std::uint8_t> codes = operand.scales.codes;
  const TileScales& tiles = operand.tile_scales;
  if (!model.scales) {
    if (codes.empty()) return "";
    return "has " + std::to_string(codes.size()) + (codes.size() == 1 ? " code; " : " codes; ") + name +
           " has no block scales";
  }
  if (!codes.empty() && !tiles.values.empty()) return "is of blocks and of tiles; " + name + " takes one of them";
  if (!tiles.values.empty()) return misfit_of_tiles(model, *model.scales, tiles);
  if (codes.empty()) return "is left out; " + name + " takes " + text_of(*model.scales);
  if (!operand.scales.type || *operand.scales.type == *model.scales) return "";
  return "is " + text_of(*operand.scales.type) + "; " + name + " takes " + text_of(*model.scales);
}

bool takes(const MmaModel& model, const Operand& operand) {
  return misfit_of_format(model, operand).empty() && misfit_of_scales(model, operand).empty();
}

std::string names_of_models(const std::function<bool(const MmaModel&)>& fits) {
  constexpr std::size_t most = 8;
  const auto count = static_cast<std::size_t>(std::ranges::count_if(models, fits));
  std::string names;
  std::size_t named = 0;
  for (const MmaModel& model : models) {
    if (!fits(model) || named == most) continue;
    names += (named == 0 ? "" : ", ") + std::string(model.name);
    ++named;
  }
  if (count > named) names += " and " + std::to_string(count - named) + " more (fp8lab models lists all)";
  return names;
}

std::string models_that_take(const Operand& operand) {
  const bool scaled = has_scales(operand);
  const std::string names = names_of_models(
      [&](const MmaModel& model) { return scaled ? takes(model, operand) : misfit_of_format(model, operand).empty(); });
  const std::string what = format_name(operand.format) + (scaled ? " with such scales" : "");
  return names.empty() ? ". No model takes " + what : ". Models that take " + what + ": " + names;
}

std::string models_without_scales(const Operand& operand) {
  const std::string names =
      names_of_models([&](const MmaModel& model) { return !model.scales && misfit_of_format(model, operand).empty(); });
  return names.empty() ? "" : ". Models that take " + format_name(operand.format) + " without block scales: " + names;
}

std::string nearest_multiples(std::size_t x, std::size_t unit) {
  const std::size_t below = x / unit * unit;
  return (below == 0 ? "" : std::to_string(below) + " or ") + std::to_string(below + unit);
}

}  // namespace fp8lab
