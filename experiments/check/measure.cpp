// SPDX-License-Identifier: Apache-2.0
// Measures one tensor by all recipes, band by band.
#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <stdexcept>

#include "check/check.hpp"
#include "check/row_sums.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/pack.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/reference/scaling/facts.hpp"
#include "fp8lab/reference/scaling/quantize.hpp"

namespace fp8lab::experiments {
namespace {

/// Rows of a band are a multiple of this, and so whole tiles.
constexpr std::size_t band_unit = 128;
constexpr std::size_t band_elements = std::size_t{1} << 18;
constexpr std::size_t run_length = 16;  // of amaxes_of_runs()

bool is_exact_power(float x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5F;
}

/// Whether an amax, over the scale, is above the format's largest value before it is rounded. As the experiment scaling
/// has it: a scale that is no power of two is rounded, so that the amax that made it may lie 2^-23 above.
bool is_beyond(float amax, float scale_inv, double largest) {
  const double scaled = static_cast<double>(amax) / static_cast<double>(scale_inv);
  return scaled > (is_exact_power(scale_inv) ? largest : largest * (1 + 0x1p-22));
}

/// What all bands have to know of a tensor.
struct WholeTensor {
  float amax = 0;
  std::uint64_t not_finite = 0;
  std::size_t rows = 0, columns = 0;
};

/// A recipe, and how it takes bands of a tensor.
class BandRecipe {
 public:
  BandRecipe(const ChosenRecipe& chosen, const WholeTensor& whole) : recipe_(chosen.recipe), whole_(&whole) {
    const TileShape tile = tile_shape(recipe_, Direction::rowwise, whole.rows, whole.columns);
    is_one_tile_ = tile.rows == whole.rows && tile.columns == whole.columns && recipe_.tile_across == 0;
    if (!is_one_tile_ && tile.rows > band_unit && tile.rows != whole.rows) {
      refuse(chosen.name, " has a scale for ", tile.rows, " rows; up to 128, or all of a tensor, are measured");
    }
    if (is_one_tile_ && !is_given(recipe_)) given_.amaxes = std::span(&whole.amax, 1);
    if (has_tensor_scale(recipe_) && !recipe_.tensor_scale_for_each_row) given_.tensor_amax = whole.amax;
    const Format& format = recipe_.format;
    code_mask_ = static_cast<std::uint8_t>((1U << (format.bits() - (format.is_signed ? 1 : 0))) - 1);
    most_subnormal_ = static_cast<std::uint8_t>(format.has_subnormals ? (1U << format.mantissa_bits) - 1 : 0);
  }

  [[nodiscard]] const Recipe& recipe() const { return recipe_; }
  [[nodiscard]] bool is_one_tile() const { return is_one_tile_; }
  [[nodiscard]] const GivenScales& given() const { return given_; }
  [[nodiscard]] std::uint8_t code_mask() const { return code_mask_; }
  [[nodiscard]] std::uint8_t most_subnormal() const { return most_subnormal_; }

 private:
  Recipe recipe_;
  const WholeTensor* whole_;
  bool is_one_tile_ = false;
  GivenScales given_;
  std::uint8_t code_mask_ = 0, most_subnormal_ = 0;
};

/// Counts of one recipe that bands add up.
struct BandCounts {
  std::uint64_t zeroed = 0, subnormal = 0, blocks = 0, clipped = 0;

  void merge(const BandCounts& other) {
    zeroed += other.zeroed;
    subnormal += other.subnormal;
    blocks += other.blocks;
    clipped += other.clipped;
  }
};

/// Measures bands on one thread.
class BandMeter {
 public:
  BandMeter(const std::vector<BandRecipe>& recipes, const WholeTensor& whole)
      : recipes_(recipes), whole_(whole), counts_(recipes.size()) {}

  /// Rows from `first` on. `energies` and `noises` have a place for each row; of noises, recipe by recipe.
  void add(const MatrixView& band, std::span<const float> x, std::size_t first, std::span<double> energies,
           std::span<double> noises) {
    const std::size_t columns = band.columns();
    x_.assign(x.begin(), x.end());
    if (whole_.not_finite > 0) std::ranges::replace_if(x_, [](float value) { return !std::isfinite(value); }, 0.F);
    runs_a_row_ = (columns + run_length - 1) / run_length;
    runs_.resize(band.rows() * runs_a_row_);
    for (std::size_t row = 0; row < band.rows(); ++row) {
      const std::span<const float> values = std::span<const float>(x_).subspan(row * columns, columns);
      energies[first + row] = row_energy(values);
      amaxes_of_runs(values, std::span(runs_).subspan(row * runs_a_row_, runs_a_row_));
    }
    for (std::size_t i = 0; i < recipes_.size(); ++i) {
      checkpoint();
      add_recipe(band, x, i, noises.subspan(i * whole_.rows + first, band.rows()));
      const BandRecipe& one = recipes_[i];
      if (!one.is_one_tile()) count_tiles(band, counts_[i]);
      if (one.is_one_tile() && first == 0) count_tile_of_all(counts_[i]);
    }
  }
  [[nodiscard]] const std::vector<BandCounts>& counts() const { return counts_; }

 private:
  void add_recipe(const MatrixView& band, std::span<const float> x, std::size_t i, std::span<double> noises) {
    const BandRecipe& one = recipes_[i];
    quantize(band, one.recipe(), Direction::rowwise, q_, {.given = one.given()});
    back_.resize(q_.rows * q_.columns);
    dequantize(q_, back_);
    codes_of_band();
    for (std::size_t row = 0; row < band.rows(); ++row) {
      const std::span<float> back = std::span(back_).subspan(row * q_.columns, band.columns());
      const std::span<const float> values = std::span<const float>(x_).subspan(row * band.columns(), band.columns());
      if (whole_.not_finite > 0) {
        for (std::size_t j = 0; j < back.size(); ++j) {
          if (!std::isfinite(x[row * band.columns() + j])) back[j] = 0;
        }
      }
      noises[row] = row_noise(back, values);
      counts_[i].zeroed += count_zeroed(back, values);
      counts_[i].subnormal +=
          count_from_one_to(codes_.subspan(row * q_.columns, band.columns()), one.code_mask(), one.most_subnormal());
    }
  }
  /// The codes, a byte each.
  void codes_of_band() {
    codes_ = q_.codes;
    if (q_.format.bits() != 4) return;
    unpacked_.resize(q_.rows * q_.columns);
    unpack_pairs(q_.codes, unpacked_);
    codes_ = unpacked_;
  }
  void count_tile_of_all(BandCounts& counts) {
    counts.blocks = 1;
    counts.clipped = is_beyond(whole_.amax, tile_scales_inv(q_).front(), max_value(q_.format)) ? 1 : 0;
  }
  void count_tiles(const MatrixView& band, BandCounts& counts) {
    const TileShape tile = tile_shape(q_);
    const std::vector<float> scales_inv = tile_scales_inv(q_);
    const double largest = max_value(q_.format);
    const std::size_t across = (q_.columns + tile.columns - 1) / tile.columns;
    const std::size_t used = (band.columns() + tile.columns - 1) / tile.columns;  // less where tiles are filled up
    for (std::size_t row = 0; row < band.rows(); row += tile.rows) {
      for (std::size_t column = 0; column < used; ++column) {
        const float amax = amax_of_tile(band, row, column * tile.columns, tile);
        ++counts.blocks;
        if (is_beyond(amax, scales_inv[row / tile.rows * across + column], largest)) ++counts.clipped;
      }
    }
  }
  [[nodiscard]] float amax_of_tile(const MatrixView& band, std::size_t top, std::size_t left,
                                   const TileShape& tile) const {
    const std::size_t bottom = std::min(band.rows(), top + tile.rows);
    const std::size_t right = std::min(band.columns(), left + tile.columns);
    const bool has_runs = left % run_length == 0 && (right % run_length == 0 || right == band.columns());
    float amax = 0;
    for (std::size_t row = top; row < bottom; ++row) {
      if (has_runs) {
        const float* const runs = runs_.data() + row * runs_a_row_;
        for (std::size_t run = left / run_length; run * run_length < right; ++run) amax = std::max(amax, runs[run]);
      } else {
        const float* const values = x_.data() + row * band.columns();
        for (std::size_t j = left; j < right; ++j) amax = std::max(amax, std::fabs(values[j]));
      }
    }
    return amax;
  }

  const std::vector<BandRecipe>& recipes_;
  const WholeTensor& whole_;
  std::vector<BandCounts> counts_;
  Quantized q_;
  Buffer<float> back_;
  std::vector<float> x_, runs_;
  std::size_t runs_a_row_ = 0;
  Buffer<std::uint8_t> unpacked_;
  std::span<const std::uint8_t> codes_;
};

std::size_t rows_of_band(std::size_t columns) {
  return std::max<std::size_t>(1, band_elements / (band_unit * std::max<std::size_t>(1, columns))) * band_unit;
}

/// Calls use(band, x, first row) for each band of a tensor, on threads; x is its elements in float32, to which float64
/// is rounded. make() gives what a thread keeps, done(kept) takes it.
template <typename Make, typename Use, typename Done>
void for_bands(const TensorStream& stream, std::size_t tensor, int threads, const Make& make, const Use& use,
               const Done& done) {
  const SourceTensor& facts = stream.facts(tensor);
  const std::size_t most = rows_of_band(facts.columns);
  const std::size_t bands = (facts.rows + most - 1) / most;
  std::mutex merging;
  parallel_for(bands, threads, [&](std::size_t begin, std::size_t end) {
    auto kept = make();
    Tensor rows;
    Tensor rounded;
    Buffer<float> room;
    for (std::size_t band = begin; band < end; ++band) {
      checkpoint();
      const std::size_t first = band * most;
      const std::size_t count = std::min(most, facts.rows - first);
      stream.load_rows(tensor, first, count, rows);
      if (rows.type() == ElementType::float64) {
        rows.widen(0, rounded.allocate<float>(count, facts.columns));
        use(kept, rounded.view(), rounded.floats(0, rounded.size(), room), first);
      } else {
        use(kept, rows.view(), rows.floats(0, rows.size(), room), first);
      }
    }
    const std::scoped_lock lock(merging);
    done(kept);
  });
}

double decibels(double energy, double noise) {
  if (energy == 0 && noise == 0) return std::numeric_limits<double>::quiet_NaN();
  return noise == 0 ? std::numeric_limits<double>::infinity() : 10 * std::log10(energy / noise);
}

double bits_of(const Recipe& recipe, std::uint64_t blocks, std::uint64_t size) {
  double bits = recipe.format.bits();
  const int scale_bits = std::max(8, scale_format_of(recipe).bits());  // a byte at least
  bits += static_cast<double>(scale_bits) * static_cast<double>(blocks) / static_cast<double>(size);
  return bits + (has_tensor_scale(recipe) ? 32 / static_cast<double>(size) : 0);
}

/// The figures of the rows, in the order of the rows.
void add_rows(std::span<const double> energies, std::span<const double> noises, CheckedRecipe& into) {
  double energy = 0;
  double noise = 0;
  std::vector<double> rows;
  into.worst_row_sqnr_db = into.median_row_sqnr_db = std::numeric_limits<double>::quiet_NaN();
  bool has_worst = false;
  for (std::size_t row = 0; row < energies.size(); ++row) {
    energy += energies[row];
    noise += noises[row];
    if (energies[row] == 0 && noises[row] == 0) continue;
    double sqnr = decibels(energies[row], noises[row]);
    if (std::isnan(sqnr)) sqnr = -std::numeric_limits<double>::infinity();  // what comes back is NaN: the worst
    rows.push_back(sqnr);
    if (has_worst && sqnr >= into.worst_row_sqnr_db) continue;
    has_worst = true;
    into.worst_row_sqnr_db = sqnr;
    into.worst_row = row;
  }
  into.sqnr_db = decibels(energy, noise);
  if (rows.empty()) return;
  const auto middle = rows.begin() + static_cast<std::ptrdiff_t>((rows.size() - 1) / 2);
  std::ranges::nth_element(rows, middle);
  into.median_row_sqnr_db = *middle;
}

}  // namespace

CheckedTensor check_tensor(const TensorStream& stream, std::size_t tensor, const std::vector<ChosenRecipe>& recipes,
                           int threads) {
  const SourceTensor& facts = stream.facts(tensor);
  CheckedTensor result{.name = facts.name, .own_name = facts.own_name, .rows = facts.rows, .columns = facts.columns};
  // 1. What the scales of a whole tensor need, and whose energy it is.
  WholeTensor whole{.rows = facts.rows, .columns = facts.columns};
  Magnitudes magnitudes;
  struct FirstPass {
    FiniteAmax amax{0, 0};
    Magnitudes magnitudes;
  };
  for_bands(
      stream, tensor, threads, [] { return FirstPass(); },
      [](FirstPass& pass, const MatrixView&, std::span<const float> x, std::size_t) {
        const FiniteAmax some = finite_amax(x);
        pass.amax.amax = std::max(pass.amax.amax, some.amax);
        pass.amax.not_finite += some.not_finite;
        pass.magnitudes.add(x);
      },
      [&](const FirstPass& pass) {
        whole.amax = std::max(whole.amax, pass.amax.amax);
        whole.not_finite += pass.amax.not_finite;
        magnitudes.merge(pass.magnitudes);
      });
  result.amax = static_cast<double>(whole.amax);
  result.not_finite = whole.not_finite;
  result.concentration = magnitudes.concentration();
  // 2. Each recipe.
  std::vector<BandRecipe> banded;
  for (const ChosenRecipe& recipe : recipes) banded.emplace_back(recipe, whole);
  std::vector<double> energies(facts.rows);
  std::vector<double> noises(facts.rows * recipes.size());
  std::vector<BandCounts> counts(recipes.size());
  for_bands(
      stream, tensor, threads, [&] { return BandMeter(banded, whole); },
      [&](BandMeter& meter, const MatrixView& band, std::span<const float> x, std::size_t first) {
        meter.add(band, x, first, energies, noises);
      },
      [&](const BandMeter& meter) {
        for (std::size_t i = 0; i < counts.size(); ++i) counts[i].merge(meter.counts()[i]);
      });
  // 3. What they amount to.
  double energy = 0;
  for (const double row : energies) {
    energy += row;
    if (row == 0) ++result.zero_rows;
  }
  const auto size = static_cast<double>(facts.size());
  result.rms = std::sqrt(energy / size);
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    CheckedRecipe& one = result.recipes.emplace_back();
    add_rows(energies, std::span<const double>(noises).subspan(i * facts.rows, facts.rows), one);
    one.zeroed = counts[i].zeroed;
    one.subnormal = counts[i].subnormal;
    one.blocks = counts[i].blocks;
    one.clipped_blocks = counts[i].clipped;
    one.bits_per_weight = bits_of(recipes[i].recipe, one.blocks, facts.size());
  }
  return result;
}

}  // namespace fp8lab::experiments
