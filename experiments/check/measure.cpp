// SPDX-License-Identifier: Apache-2.0
// Measures one tensor by all recipes, band by band.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>

#include "check/band_loss.hpp"
#include "check/check.hpp"
#include "check/row_sums.hpp"
#include "check/simd/row_loss.hpp"
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
/// The share of the first pass through a tensor, which finds its amax, in the time of a run.
constexpr double pass_share = 0.15;

/// What all bands have to know of a tensor.
struct WholeTensor {
  float amax = 0;  // of the finite elements; 0 where no recipe needs it
  std::size_t rows = 0, columns = 0;
  Format input_type = binary32;  // float64 is rounded to float32
};

/// Whether a recipe on such a tensor has a scale for all of it.
bool is_one_tile(const Recipe& recipe, std::size_t rows, std::size_t columns) {
  const TileShape tile = tile_shape(recipe, Direction::rowwise, rows, columns);
  return tile.rows == rows && tile.columns == columns && recipe.tile_across == 0;
}

/// Whether bands need the amax of the whole tensor.
bool needs_amax(const Recipe& recipe, const WholeTensor& whole) {
  return has_tensor_scale(recipe) || is_one_tile(recipe, whole.rows, whole.columns);
}

/// A recipe, and how it takes bands of a tensor.
class BandRecipe {
 public:
  BandRecipe(const ChosenRecipe& chosen, const WholeTensor& whole) : recipe_(chosen.recipe), whole_(&whole) {
    const TileShape tile = tile_shape(recipe_, Direction::rowwise, whole.rows, whole.columns);
    is_one_tile_ = experiments::is_one_tile(recipe_, whole.rows, whole.columns);
    if (!is_one_tile_ && band_unit % tile.rows != 0) {
      refuse(chosen.name, " has a scale for ", tile.rows, " rows; a power of two up to 128, or all, are measured");
    }
    if (is_one_tile_ && !is_given(recipe_)) given_.amaxes = std::span(&whole.amax, 1);
    if (has_tensor_scale(recipe_) && !recipe_.tensor_scale_for_each_row) given_.tensor_amax = whole.amax;
    const BandedMatrix matrix{whole.rows, whole.columns, whole.amax, whole.input_type};
    if (BandLoss::knows(recipe_, matrix)) loss_.emplace(recipe_, matrix);
    const Format& format = recipe_.format;
    code_mask_ = static_cast<std::uint8_t>((1U << (format.bits() - (format.is_signed ? 1 : 0))) - 1);
    most_subnormal_ = static_cast<std::uint8_t>(format.has_subnormals ? (1U << format.mantissa_bits) - 1 : 0);
  }

  [[nodiscard]] const Recipe& recipe() const { return recipe_; }
  [[nodiscard]] bool is_one_tile() const { return is_one_tile_; }
  [[nodiscard]] const GivenScales& given() const { return given_; }
  /// What measures finite bands without codes; none where quantize() has to.
  [[nodiscard]] const std::optional<BandLoss>& loss() const { return loss_; }
  [[nodiscard]] std::uint8_t code_mask() const { return code_mask_; }
  [[nodiscard]] std::uint8_t most_subnormal() const { return most_subnormal_; }

 private:
  Recipe recipe_;
  const WholeTensor* whole_;
  bool is_one_tile_ = false;
  GivenScales given_;
  std::optional<BandLoss> loss_;
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

/// What bands add up, whatever the recipes.
struct BandFacts {
  float amax = 0;  // of the finite elements
  std::uint64_t not_finite = 0;

  void merge(const FiniteAmax& other) {
    amax = std::max(amax, other.amax);
    not_finite += other.not_finite;
  }
};

/// Calls use(row, magnitudes) for each row of a band; some rows at a time are widened, in `room`, so that they stay in
/// a core's cache.
template <typename Use>
void for_rows_of(const MatrixView& band, Buffer<float>& room, const Use& use) {
  constexpr std::size_t some_elements = 4096;
  const std::size_t columns = band.columns();
  const std::size_t some = std::max<std::size_t>(1, some_elements / columns);
  if (room.size() < some * columns) room.resize(some * columns);
  for (std::size_t first = 0; first < band.rows(); first += some) {
    checkpoint();
    const std::size_t count = std::min(some, band.rows() - first);
    const std::span<float> magnitudes = std::span(room).first(count * columns);
    band.visit([&]<typename T>(std::span<const T> all) {
      if constexpr (!std::is_same_v<T, double>)
        magnitudes_of(all.subspan(first * columns, count * columns), magnitudes);
    });
    for (std::size_t row = 0; row < count; ++row) {
      use(first + row, std::span<const float>(magnitudes).subspan(row * columns, columns));
    }
  }
}

FiniteAmax amax_of_band(const MatrixView& band) {
  return band.visit([]<typename T>(std::span<const T> all) {
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, BFloat16>) return finite_amax(all);
    BandFacts facts;
    Buffer<float> room(std::min(all.size(), scalar_piece));
    for (std::size_t first = 0; first < all.size(); first += scalar_piece) {
      const auto some = all.subspan(first, std::min(scalar_piece, all.size() - first));
      const std::span<float> magnitudes = std::span(room).first(some.size());
      if constexpr (!std::is_same_v<T, double>) magnitudes_of(some, magnitudes);
      facts.merge(finite_amax(std::span<const float>(magnitudes)));
    }
    return FiniteAmax{facts.amax, facts.not_finite};
  });
}

/// Measures bands on one thread.
class BandMeter {
 public:
  BandMeter(const std::vector<BandRecipe>& recipes, const WholeTensor& whole)
      : recipes_(recipes), whole_(whole), counts_(recipes.size()) {
    for (const BandRecipe& one : recipes) losses_.push_back(one.loss());
  }

  /// Rows from `first` on. `energies` and `noises` have a place for each row; of noises, recipe by recipe.
  void add(const MatrixView& band, std::size_t first, std::span<double> energies, std::span<double> noises) {
    const std::size_t columns = band.columns();
    runs_a_row_ = (columns + run_length - 1) / run_length;
    runs_.resize(band.rows() * runs_a_row_);
    // 1. What all recipes need of the rows.
    for_rows_of(band, room_, [&](std::size_t row, std::span<const float> magnitudes) {
      energies[first + row] = energy_and_amaxes(magnitudes, runs_of(row));
    });
    const FiniteAmax of_runs = finite_amax(std::span<const float>(runs_));
    is_finite_ = of_runs.not_finite == 0;
    facts_.merge(is_finite_ ? of_runs : amax_of_band(band));
    // 2. Recipes whose codes nobody needs, all of them on a row while it is in the caches.
    quantized_.clear();
    without_codes_.clear();
    for (std::size_t i = 0; i < recipes_.size(); ++i) {
      const bool is_known = is_finite_ && losses_[i] && losses_[i]->make_scales(runs_, band.rows());
      (is_known ? without_codes_ : quantized_).push_back(i);
    }
    if (!without_codes_.empty()) add_without_codes(band, first, noises);
    // 3. All others.
    if (quantized_.empty()) return;
    take_values(band, first, energies);
    for (const std::size_t i : quantized_) {
      checkpoint();
      add_recipe(band, i, noises.subspan(i * whole_.rows + first, band.rows()));
      const BandRecipe& one = recipes_[i];
      if (!one.is_one_tile()) count_tiles(band, counts_[i]);
      if (one.is_one_tile() && first == 0) count_tile_of_all(counts_[i]);
    }
  }
  [[nodiscard]] const std::vector<BandCounts>& counts() const { return counts_; }
  [[nodiscard]] const BandFacts& facts() const { return facts_; }

 private:
  void add_without_codes(const MatrixView& band, std::size_t first, std::span<double> noises) {
    for_rows_of(band, room_, [&](std::size_t row, std::span<const float> magnitudes) {
      for (const std::size_t i : without_codes_) {
        const RowLoss loss = losses_[i]->add_row(row, magnitudes);
        noises[i * whole_.rows + first + row] = loss.noise;
        counts_[i].zeroed += loss.zeroed;
        counts_[i].subnormal += loss.subnormal;
      }
    });
    for (const std::size_t i : without_codes_) {
      if (recipes_[i].is_one_tile() && first != 0) continue;
      counts_[i].blocks += losses_[i]->tiles();
      counts_[i].clipped += losses_[i]->clipped_tiles();
    }
  }
  [[nodiscard]] std::span<float> runs_of(std::size_t row) {
    return std::span(runs_).subspan(row * runs_a_row_, runs_a_row_);
  }
  /// The band in float32, and the same with zeros where it is not finite, whose energy counts.
  void take_values(const MatrixView& band, std::size_t first, std::span<double> energies) {
    values_.resize(band.size());
    band.visit(
        [&](auto all) { std::ranges::transform(all, values_.begin(), [](auto value) { return as_float32(value); }); });
    x_.assign(values_.begin(), values_.end());
    if (is_finite_) return;
    std::ranges::replace_if(x_, [](float value) { return !std::isfinite(value); }, 0.F);
    const std::size_t columns = band.columns();
    for (std::size_t row = 0; row < band.rows(); ++row) {
      energies[first + row] =
          energy_and_amaxes(std::span<const float>(x_).subspan(row * columns, columns), runs_of(row));
    }
  }

  void add_recipe(const MatrixView& band, std::size_t i, std::span<double> noises) {
    const BandRecipe& one = recipes_[i];
    quantize(band, one.recipe(), Direction::rowwise, q_, {.given = one.given()});
    back_.resize(q_.rows * q_.columns);
    dequantize(q_, back_);
    codes_of_band();
    for (std::size_t row = 0; row < band.rows(); ++row) {
      const std::span<float> back = std::span(back_).subspan(row * q_.columns, band.columns());
      const std::span<const float> values = std::span<const float>(x_).subspan(row * band.columns(), band.columns());
      if (!is_finite_) {
        for (std::size_t j = 0; j < back.size(); ++j) {
          if (!std::isfinite(values_[row * band.columns() + j])) back[j] = 0;
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
  std::vector<std::optional<BandLoss>> losses_;
  std::vector<std::size_t> without_codes_, quantized_;  // recipes
  Quantized q_;
  Buffer<float> back_;
  std::vector<float> values_, x_, runs_;
  std::size_t runs_a_row_ = 0;
  bool is_finite_ = true;  // the band
  BandFacts facts_;
  Buffer<float> room_;
  Buffer<std::uint8_t> unpacked_;
  std::span<const std::uint8_t> codes_;
};

std::size_t rows_of_band(std::size_t columns) {
  return std::max<std::size_t>(1, band_elements / (band_unit * std::max<std::size_t>(1, columns))) * band_unit;
}

/// Goes through the bands of a tensor, one or more times.
class BandReader {
 public:
  BandReader(const TensorStream& stream, std::size_t tensor, int threads, const Progress& progress)
      : stream_(stream),
        tensor_(tensor),
        facts_(stream.facts(tensor)),
        threads_(stream.is_read_in_order(tensor) ? 1 : threads),
        progress_(progress) {}

  /// Calls use(kept, band, first row) for each band, on threads; float64 is rounded to float32. make() gives what a
  /// thread keeps, done(kept) takes it. This goes on from one share of the work to another.
  template <typename Make, typename Use, typename Done>
  void read(double from, double to, const Make& make, const Use& use, const Done& done) {
    const std::size_t most = rows_of_band(facts_.columns);
    const std::size_t bands = (facts_.rows + most - 1) / most;
    std::atomic<std::size_t> finished = 0;
    std::mutex merging;
    parallel_for(bands, threads_, [&](std::size_t begin, std::size_t end) {
      auto kept = make();
      Tensor rows;
      Tensor rounded;
      for (std::size_t band = begin; band < end; ++band) {
        checkpoint();
        const std::size_t first = band * most;
        const std::size_t count = std::min(most, facts_.rows - first);
        stream_.load_rows(tensor_, first, count, rows);
        const bool is_double = rows.type() == ElementType::float64;
        if (is_double) rows.widen(0, rounded.allocate<float>(count, facts_.columns));
        use(kept, is_double ? rounded.view() : rows.view(), first);
        tell(from + (to - from) * static_cast<double>(++finished) / static_cast<double>(bands));
      }
      const std::scoped_lock lock(merging);
      done(kept);
    });
  }

 private:
  void tell(double share) const {
    if (progress_ && std::this_thread::get_id() == caller_) progress_(share);
  }

  const TensorStream& stream_;
  std::size_t tensor_;
  const SourceTensor& facts_;
  int threads_;
  const Progress& progress_;
  std::thread::id caller_ = std::this_thread::get_id();
};

/// The type in which quantize() gets a tensor.
Format format_of(ElementType type) {
  switch (type) {
    case ElementType::float16: return binary16;
    case ElementType::bfloat16: return bfloat16;
    case ElementType::float32:
    case ElementType::float64:
    case ElementType::uint8: break;
  }
  return binary32;
}

/// Whether a thousandth of the elements can hold half of the energy: not where that many of the largest do not. The
/// bins of Magnitudes are 2^-12 wide, and so is what they make of the energy.
bool may_be_concentrated(const BandFacts& facts, std::uint64_t size, std::span<const double> energies) {
  if (facts.not_finite > 0) return true;
  double energy = 0;
  for (const double row : energies) energy += row;
  const auto few = static_cast<double>(size) / 1000;
  const auto amax = static_cast<double>(facts.amax);
  return few * amax * amax >= 0.49 * energy;
}

std::optional<Concentration> concentration_of(BandReader& reader) {
  std::optional<Magnitudes> magnitudes;
  reader.read(
      1, 1, [] { return Magnitudes(); },
      [](Magnitudes& own, const MatrixView& band, std::size_t) { band.visit([&](auto all) { own.add(all); }); },
      [&](Magnitudes& own) {
        if (magnitudes) return magnitudes->merge(own);
        magnitudes = std::move(own);
      });
  return magnitudes->concentration();
}

/// The amax of the finite elements.
float amax_of(BandReader& reader) {
  BandFacts facts;
  reader.read(
      0, pass_share, [] { return BandFacts(); },
      [](BandFacts& own, const MatrixView& band, std::size_t) { own.merge(amax_of_band(band)); },
      [&](const BandFacts& own) { facts.merge({own.amax, own.not_finite}); });
  return facts.amax;
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
                           int threads, const Progress& progress) {
  const SourceTensor& facts = stream.facts(tensor);
  CheckedTensor result{.name = facts.name, .own_name = facts.own_name, .rows = facts.rows, .columns = facts.columns};
  // 1. The amax, where scales need it.
  WholeTensor whole{.rows = facts.rows, .columns = facts.columns, .input_type = format_of(facts.type)};
  BandReader reader(stream, tensor, threads, progress);
  const bool has_first_pass =
      std::ranges::any_of(recipes, [&](const ChosenRecipe& one) { return needs_amax(one.recipe, whole); });
  if (has_first_pass) whole.amax = amax_of(reader);
  // 2. Each recipe.
  std::vector<BandRecipe> banded;
  for (const ChosenRecipe& recipe : recipes) banded.emplace_back(recipe, whole);
  std::vector<double> energies(facts.rows);
  std::vector<double> noises(facts.rows * recipes.size());
  std::vector<BandCounts> counts(recipes.size());
  BandFacts of_all;
  reader.read(
      has_first_pass ? pass_share : 0, 1, [&] { return BandMeter(banded, whole); },
      [&](BandMeter& meter, const MatrixView& band, std::size_t first) { meter.add(band, first, energies, noises); },
      [&](const BandMeter& meter) {
        of_all.merge({meter.facts().amax, meter.facts().not_finite});
        for (std::size_t i = 0; i < counts.size(); ++i) counts[i].merge(meter.counts()[i]);
      });
  result.amax = static_cast<double>(of_all.amax);
  result.not_finite = of_all.not_finite;
  if (may_be_concentrated(of_all, facts.size(), energies)) result.concentration = concentration_of(reader);
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
