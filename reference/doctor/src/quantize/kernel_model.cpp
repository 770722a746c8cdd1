// SPDX-License-Identifier: Apache-2.0
#include "quantize/kernel_model.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "formats/simd/targets.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/tile_scale.hpp"
#include "quantize/differing.hpp"
#include "quantize/localize.hpp"
#include "reference/src/scaling/float32_steps.hpp"

namespace fp8lab::doctor {
namespace {

/// Elements and their factor.
void meet(TileOperation operation, float factor, std::span<float> x) {
  switch (operation) {
    case TileOperation::multiply:
      for (float& one : x) one *= factor;
      break;
    case TileOperation::divide:
      for (float& one : x) one /= factor;
      break;
    case TileOperation::multiply_add_zero:
      for (float& one : x) one = std::fma(one, factor, 0.0F);
      break;
    case TileOperation::multiply_then_add_zero:
      for (float& one : x) one = one * factor + 0.0F;
      break;
    case TileOperation::divide_then_add_zero:
      for (float& one : x) one = one / factor + 0.0F;
      break;
    case TileOperation::multiply_negative_zero:
      for (float& one : x) one = one * factor == 0 ? -0.0F : one * factor;
      break;
  }
}

/// Elements at a time.
constexpr std::size_t most_at_once = 1024;

}  // namespace

float rounded_to(const Format& format, float x) { return decode(format, encode(format, ieee_policy, x)); }

KernelModel::KernelModel(const Source& source, const Hypothesis& hypothesis, const StoredDump* dump)
    : source_(&source),
      hypothesis_(&hypothesis),
      deviations_(hypothesis.deviations),
      dump_(dump),
      stored_recipe_(hypothesis.recipe),
      scale_recipe_(hypothesis.recipe),
      operation_(hypothesis.recipe.operation),
      is_columnwise_(hypothesis.direction == Direction::columnwise) {
  std::ranges::stable_sort(deviations_, [](const Deviation& a, const Deviation& b) {
    return std::pair(a.departure->stage, a.departure) < std::pair(b.departure->stage, b.departure);
  });
  set_stages();
  if (narrowing_.earlier != nullptr) source_ = source.quantized_before(*narrowing_.earlier);
  applies_ = source_ != nullptr;
  if (!applies_) return;
  const AmaxKey key = amax_key();
  applies_ = takes_tensor(key);
  if (!applies_) return;
  amaxes_ = &source_->tiles(key);
  applies_ = makes_sense();
  if (!applies_) return;
  const AmaxKey whole{
      .across = 0, .along = 0, .is_signed = key.is_signed, .counts_nan = key.counts_nan, .narrowing = key.narrowing};
  facts_.input_type = source_->type();
  if (has_tensor_scale(recipe())) facts_.amax = source_->amax_of(source_->tiles(whole), 0, 0);
  take_tensor_scale();
  stored_constants_ = constants_of(stored_recipe_);
  scale_constants_ = constants_of(scale_recipe_);
  layout_ = scale_layout();
  if (takes_stored_ != TakesStored::none && !layout_.fits) applies_ = false;
  if (!applies_) return;
  if (vector_code_allowed()) set_encode();
  take_known_scales();
}

void KernelModel::set_stages() {
  const bool keeps_order = !recipe().transposed_columnwise && recipe().format.bits() != 4;
  is_transposed_ = is_columnwise_ && keeps_order;
  for (const Deviation& one : deviations_) {
    const Departure& own = *one.departure;
    if (own.input != nullptr) own.input(narrowing_, one);
    meets_twice_ = meets_twice_ || own.meets_twice;
    if (own.rule != nullptr) own.rule(stored_recipe_);
    if (own.operation != nullptr) operation_ = own.operation(operation_, one);
    takes_stored_ = std::max(takes_stored_, own.takes_stored);
    stores_inverse_ = stores_inverse_ || own.stores_inverse;
    is_transposed_ = is_transposed_ != own.transposes_codes;
  }
  scale_recipe_ = stored_recipe_;
  call(&Departure::used_rule, scale_recipe_);
  is_in_place_ = !has_any(&Departure::index, &Departure::place) && !is_transposed_;
  keeps_codes_ = !has_any(&Departure::code);
  keeps_scales_ = takes_stored_ == TakesStored::none && !has_any(&Departure::read, &Departure::used);
}

void KernelModel::set_encode() {
  CastPolicy policy = recipe().cast;
  const bool is_random = is_stochastic(recipe());
  if (is_random) policy.rounding = Rounding::upward;
  encode_ = vector_encode(recipe().format, policy);
  if (!is_random) return;
  policy.rounding = Rounding::downward;
  encode_others_ = vector_encode(recipe().format, policy);
}

void KernelModel::take_tensor_scale() {
  for (const Deviation& one : deviations_) {
    if (one.departure->tensor_scale == nullptr) continue;
    const ScaleConstants own = scale_constants(recipe(), facts_);
    // A given one that follows from the tensor is none.
    const float made = one.place == 1 ? own.tensor_scale_inv : own.tensor_scale;
    if (one.departure->is_given && one.value == made) applies_ = false;
    one.departure->tensor_scale(facts_, one);
  }
}

bool KernelModel::takes_tensor(const AmaxKey& key) const {
  const Recipe& r = recipe();
  if (r.transform != Transform::none && is_columnwise_) return false;  // quantize() does that
  const bool has_its_shape = key.across == r.tile_across && key.along == r.tile_along;
  if ((r.whole_tiles || r.pads_tiles) && has_its_shape) {
    if (r.tile_across > 1 && source_->rows() % r.tile_across != 0) return false;
    if (r.tile_along > 1 && source_->columns() % r.tile_along != 0) return false;
  }
  if (dump_ != nullptr && dump_->was_packed && r.format.bits() != 4) return false;
  return takes_stored_ == TakesStored::none || (dump_ != nullptr && !dump_->scales.empty());
}

bool KernelModel::makes_sense() const {
  const ModelCase own{.recipe = recipe(),
                      .stored_rule = stored_recipe_,
                      .used_rule = scale_recipe_,
                      .source = *source_,
                      .tiles = *amaxes_,
                      .dump = dump_,
                      .codes = code_matrix(),
                      .takes_stored = takes_stored_};
  return std::ranges::all_of(deviations_, [&](const Deviation& one) {
    return one.departure->makes_sense == nullptr || one.departure->makes_sense(own, one);
  });
}

CodeMatrix KernelModel::code_matrix() const {
  const std::uint64_t per_byte = dump_ != nullptr && dump_->was_packed ? 2 : 1;
  if (is_transposed_) return {source_->columns(), source_->rows(), per_byte};
  return {source_->rows(), source_->columns(), per_byte};
}

std::uint64_t KernelModel::place_of(std::size_t row, std::size_t column) const {
  if (is_in_place_) return row * source_->columns() + column;
  const CodeMatrix matrix = code_matrix();
  std::uint64_t r = is_transposed_ ? column : row;
  std::uint64_t c = is_transposed_ ? row : column;
  call(&Departure::index, r, c, matrix);
  std::uint64_t place = r * matrix.columns + c;
  for (const Deviation& one : deviations_) {
    if (one.departure->place != nullptr) place = one.departure->place(place, matrix);
  }
  return place;
}

std::optional<KernelModel::FactorRun> KernelModel::factors_of(const Piece& piece) const {
  if (factors_.empty()) return std::nullopt;
  const std::size_t along = amaxes_->along;
  const std::size_t within = piece.column % along;
  if (within != 0 && within + piece.count > along) return std::nullopt;
  const std::size_t first = piece.row / amaxes_->across * amaxes_->tiles_across + piece.column / along;
  const std::size_t tile = within == 0 ? along : piece.count;
  return FactorRun{tile, std::span(factors_).subspan(first, (piece.count + tile - 1) / tile)};
}

void KernelModel::scale_elements(const Piece& piece, std::span<float> x) const {
  const auto elements = source_->values(piece);
  const std::size_t tile_row = piece.row / amaxes_->across;
  const auto run = factors_of(piece);
  if (run) scale_tiles(std::span<const float>(x), run->tile, operation_, run->factors, x);
  for (std::size_t i = run ? x.size() : 0; i < x.size();) {
    const std::size_t tile_column = amaxes_->tile_column(piece.column + i);
    const std::size_t end = std::min(amaxes_->end_of(tile_column) - piece.column, x.size());
    const float factor = used_scale(tile_row, tile_column).factor;
    meet(operation_, factor, x.subspan(i, end - i));
    if (meets_twice_) meet(operation_, factor, x.subspan(i, end - i));
    i = end;
  }
  if (const Format type = type_of(recipe().product, facts_.input_type); type != binary32) {
    narrow(type == binary16 ? Narrowing::float16 : Narrowing::bfloat16, x);
    if (adds_zero_after(operation_)) std::ranges::for_each(x, [](float& one) { one += 0.0F; });
  }
  if (recipe().float32_steps) {
    const Float32Steps steps(recipe().format, recipe().cast.rounding);
    for (float& one : x) one = steps(one);
  }
  if (run) return;
  // A NaN that an operation makes has no sign, as on a GPU; bulk code makes it so.
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i]) && !std::isnan(elements[i])) x[i] = std::numeric_limits<float>::quiet_NaN();
  }
}

void KernelModel::encode_products(std::span<const float> products, std::span<std::uint8_t> codes,
                                  std::span<std::uint8_t> others) const {
  if (encode_) {
    encode_vector(*encode_, products.data(), nullptr, codes.data(), codes.size());
    if (encode_others_) encode_vector(*encode_others_, products.data(), nullptr, others.data(), others.size());
    return;
  }
  const Format& format = recipe().format;
  CastPolicy policy = recipe().cast;
  if (policy.rounding != Rounding::stochastic) {
    encode(format, policy, products, codes);
    return;
  }
  policy.rounding = Rounding::upward;
  encode(format, policy, products, codes);
  policy.rounding = Rounding::downward;
  encode(format, policy, products, others);
}

void KernelModel::change_codes(const Piece& piece, std::span<const float> products,
                               std::span<std::uint8_t> codes) const {
  if (keeps_codes_) return;
  const CodesOfPiece own{codes, products, recipe(), piece.row, piece.column, source_->columns()};
  call(&Departure::code, own);
}

void KernelModel::scaled(const Piece& piece, std::span<float> x) const {
  std::ranges::copy(source_->values(piece), x.begin());
  narrow(narrowing_.elements, x);
  scale_elements(piece, x);
}

void KernelModel::predict(const Piece& piece, std::span<std::uint8_t> codes, std::span<std::uint8_t> others) const {
  std::array<float, most_at_once> products;
  for (std::size_t first = 0; first < piece.count; first += most_at_once) {
    const Piece part{piece.row, piece.column + first, std::min(most_at_once, piece.count - first)};
    if (const auto run = encoder_ ? factors_of(part) : std::nullopt) {
      const auto own = codes.subspan(first, part.count);
      (*encoder_)(TileRows<float>{source_->values(part).data(), 1, part.count, part.count, run->tile}, operation_,
                  run->factors.data(), 0, false, own.data(), 0);
      std::ranges::copy(own, others.begin() + static_cast<std::ptrdiff_t>(first));
      continue;
    }
    const auto x = std::span(products).first(part.count);
    std::ranges::copy(source_->values(part), x.begin());
    // 1. The input and its scale.
    narrow(narrowing_.elements, x);
    scale_elements(part, x);
    // 2. The product.
    call(&Departure::product, x, recipe());
    // 3. The code.
    const auto own = codes.subspan(first, part.count);
    const auto own_others = others.subspan(first, part.count);
    encode_products(x, own, own_others);
    change_codes(part, x, own);
    if (recipe().cast.rounding == Rounding::stochastic) {
      change_codes(part, x, own_others);
    } else {
      std::ranges::copy(own, own_others.begin());
    }
  }
}

bool KernelModel::is_code(std::uint8_t stored, std::uint8_t code, std::uint8_t other) const {
  return stored == code || stored == other || is_nan_of_other_sign(recipe().format, stored, code);
}

std::uint64_t KernelModel::mismatches_in_place(const std::uint8_t* stored, std::span<const std::uint8_t> codes,
                                               std::span<const std::uint8_t> others) const {
  if (std::memcmp(stored, codes.data(), codes.size()) == 0) return 0;
  // What differs in the sign alone may be a NaN: then each code is looked at.
  const Format& format = recipe().format;
  const auto [all, in_sign] =
      differing_bytes(stored, codes, others.data(), static_cast<std::uint8_t>(format.sign_mask()));
  if (in_sign == 0 || !format.has_nan()) return all;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < codes.size(); ++i) count += is_code(stored[i], codes[i], others[i]) ? 0 : 1;
  return count;
}

std::uint64_t KernelModel::tell_in_place(std::size_t index, std::span<const std::uint8_t> codes,
                                         std::span<const std::uint8_t> others, std::vector<std::uint64_t>* which,
                                         std::size_t most, Unexplained* where) const {
  const std::uint8_t* const stored = codes_in_order() + index;
  const std::uint64_t wrong = mismatches_in_place(stored, codes, others);
  const auto differs = [&](std::size_t i) { return !is_code(stored[i], codes[i], others[i]); };
  if (wrong != 0 && where != nullptr) {
    std::size_t first = 0;
    std::size_t last = codes.size() - 1;
    while (!differs(first)) ++first;
    while (!differs(last)) --last;
    where->take(index + first, source_->columns());
    where->take(index + last, source_->columns());
  }
  std::uint64_t left = wrong;
  for (std::size_t i = 0; which != nullptr && which->size() < most && left != 0; ++i) {
    if (!differs(i)) continue;
    which->push_back(index + i);
    --left;
  }
  return wrong;
}

std::uint64_t KernelModel::code_mismatches(const Piece& piece, std::vector<std::uint64_t>* which, std::size_t most,
                                           Unexplained* where) const {
  std::array<std::uint8_t, most_at_once> codes;
  std::array<std::uint8_t, most_at_once> others;
  std::uint64_t count = 0;
  for (std::size_t first = 0; first < piece.count; first += most_at_once) {
    const Piece part{piece.row, piece.column + first, std::min(most_at_once, piece.count - first)};
    const auto own = std::span(codes).first(part.count);
    const auto own_others = std::span(others).first(part.count);
    predict(part, own, own_others);
    const std::size_t index = part.row * source_->columns() + part.column;
    if (codes_in_order() != nullptr) {
      count += tell_in_place(index, own, own_others, which, most, where);
      continue;
    }
    for (std::size_t i = 0; i < part.count; ++i) {
      const std::uint64_t place = place_of(part.row, part.column + i);
      if (place >= dump_->codes.size()) continue;
      if (is_code(dump_->codes[place], codes[i], others[i])) continue;
      ++count;
      if (where != nullptr) where->take(index + i, source_->columns());
      if (which != nullptr && which->size() < most) which->push_back(index + i);
    }
  }
  return count;
}

std::uint64_t KernelModel::nans_of_other_sign() const {
  complete();
  std::atomic<std::uint64_t> all = 0;
  const auto count_rows = [&](std::size_t first, std::size_t last) {
    std::vector<std::uint8_t> codes(source_->columns());
    std::vector<std::uint8_t> others(source_->columns());
    std::uint64_t count = 0;
    for (std::size_t row = first; row < last; ++row) {
      predict({row, 0, codes.size()}, codes, others);
      for (std::size_t column = 0; column < codes.size(); ++column) {
        const std::uint64_t place = place_of(row, column);
        if (place >= dump_->codes.size()) continue;
        count += is_nan_of_other_sign(recipe().format, dump_->codes[place], codes[column]) ? 1 : 0;
      }
    }
    all += count;
  };
  parallel_for(source_->rows(), source_->threads(), count_rows,
               std::max<std::size_t>(1, scalar_piece / source_->columns()));
  return all;
}

void Randomness::add(const Randomness& other) {
  inexact += other.inexact;
  bias += other.bias;
  slope += other.slope;
  bias_variance += other.bias_variance;
  slope_variance += other.slope_variance;
}

bool Randomness::is_random() const {
  const auto is_within = [](std::int64_t sum, std::int64_t variance) {
    return std::abs(static_cast<double>(sum)) <= 5 * std::sqrt(static_cast<double>(variance)) + 1024;
  };
  return is_within(bias, bias_variance) && is_within(slope / 512, slope_variance / (std::int64_t{512} * 512));
}

Randomness PartsCut::randomness() const {
  Randomness all;
  for (const std::int64_t away : {0, 1}) {
    for (std::int64_t p = 0; p <= 1024; ++p) {
      const std::int64_t count = counts[static_cast<std::size_t>(away)][static_cast<std::size_t>(p)];
      if (count == 0) continue;
      const std::int64_t bias = count * (away * 1024 - p);
      const std::int64_t variance = count * p * (1024 - p);
      all.add({count, bias, bias * (p - 512), variance, variance * (p - 512) * (p - 512)});
    }
  }
  return all;
}

void KernelModel::add_parts_cut(const Piece& piece, PartsCut& parts) const {
  if (!is_stochastic(recipe())) return;
  const Format& format = recipe().format;
  const CastPolicy downward{.rounding = Rounding::toward_zero};
  const auto last = static_cast<std::uint8_t>(format.max_code());
  std::array<double, 256> values{};
  std::array<double, 256> units{};  // powers of two, over 1024, inverted
  for (std::uint32_t code = 0; code <= last; ++code) values[code] = static_cast<double>(decode(format, code));
  for (std::uint32_t code = 0; code < last; ++code) units[code] = 1024 / (values[code + 1] - values[code]);
  const auto encoder = vector_code_allowed() ? vector_encode(format, downward) : std::nullopt;
  const std::uint8_t* const stored = codes_in_order();
  const std::uint64_t mask = format.magnitude_mask();
  const double largest = values[last];
  const auto add = [&counts = parts.counts, &values, &units, mask, largest](float x, std::uint8_t low,
                                                                            std::uint8_t own) {
    const auto magnitude = static_cast<double>(x);
    if (!(magnitude < largest)) return;
    const double part_cut = (magnitude - values[low]) * units[low];
    if (part_cut == 0) return;
    ++counts[(own & mask) == low ? 0 : 1][static_cast<std::size_t>(part_cut)];
  };
  std::array<float, most_at_once> products;
  std::array<std::uint8_t, most_at_once> lows;
  for (std::size_t first = 0; first < piece.count; first += most_at_once) {
    const Piece part{piece.row, piece.column + first, std::min(most_at_once, piece.count - first)};
    const auto x = std::span(products).first(part.count);
    scaled(part, x);
    std::ranges::transform(x, x.begin(), [](float one) { return std::abs(one); });
    if (encoder) {
      encode_vector(*encoder, x.data(), nullptr, lows.data(), x.size());
    } else {
      encode(format, downward, std::span<const float>(x), std::span(lows).first(part.count));
    }
    if (stored != nullptr) {
      const std::uint8_t* const own = stored + part.row * source_->columns() + part.column;
      for (std::size_t i = 0; i < x.size(); ++i) add(x[i], lows[i], own[i]);
      continue;
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint64_t place = place_of(part.row, part.column + i);
      if (place < dump_->codes.size()) add(x[i], lows[i], dump_->codes[place]);
    }
  }
}

}  // namespace fp8lab::doctor
