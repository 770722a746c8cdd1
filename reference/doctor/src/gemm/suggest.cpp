// SPDX-License-Identifier: Apache-2.0
#include "gemm/suggest.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "gemm/element_gemm.hpp"
#include "gemm/plain_rows.hpp"
#include "search/draw.hpp"

namespace fp8lab::doctor {
namespace {

/// Rows and columns of the elements that are compared with one departure or two.
constexpr std::size_t sampled_side = 6;
/// Elements that are compared for each block of K whose factor is asked.
constexpr std::size_t elements_per_block = 3;
/// Blocks of K at most.
constexpr std::size_t most_blocks = 32;
/// What is at most so far away is a suggestion: a sum that has nothing to do with the output is about 1 away.
constexpr double near = 0.25;
/// How much farther away what changes less may be than the nearest.
constexpr double leeway = 3;
constexpr std::size_t most_suggestions = 12;

double value_of_word(const Format& format, std::uint64_t word) {
  constexpr Format single = binary32;
  if (format == single) return std::bit_cast<float>(static_cast<std::uint32_t>(word));
  return decode(format, static_cast<std::uint32_t>(word));
}

double as_read(double scale, ScaleReading reading) {
  switch (reading) {
    case ScaleReading::own: return scale;
    case ScaleReading::missing: return 1;
    case ScaleReading::twice: return scale * scale;
    case ScaleReading::inverted: return 1 / scale;
  }
  return scale;
}

/// An element by exact sums.
struct NearElement {
  double result;     ///< what the epilogue makes of the sum
  double magnitude;  ///< the root of the sum of squared products, scaled as the sum is
  double factor;     ///< that the sum is scaled with
};

/// Sums of some elements in float64, as kernels read their operands; nothing is rounded as a GEMM does.
class NearGemm {
 public:
  NearGemm(const GemmProblem& problem, std::vector<std::size_t> elements)
      : problem_(problem), elements_(std::move(elements)) {
    const Format& format = problem.facts().format;
    for (const std::size_t i : elements_) there_.push_back(value_of_word(format, problem.word(i)));
    if (format.bits() <= 16) largest_ = decode(format, static_cast<std::uint32_t>(format.max_code()));
  }

  [[nodiscard]] const std::vector<double>& there() const { return there_; }
  [[nodiscard]] std::size_t count() const { return elements_.size(); }
  [[nodiscard]] GemmPlace place(std::size_t i) const { return problem_.element(elements_[i]); }
  /// What becomes of a result that is beyond the format.
  [[nodiscard]] double limited(double x) const { return std::clamp(x, -largest_, largest_); }

  /// Calls use(i, k, product) for each scaled product of each element, and gives the elements.
  template <typename Use>
  std::vector<NearElement> products(const GemmDeparture* departure, const Use& use) const {
    const GemmReading& reading = reading_of(departure);
    const Operand& a = problem_.a();
    const Operand& b = problem_.b();
    auto [left, right] = problem_.rows_of(elements_, reading.turned == Turned::out);
    const auto exchange = [](std::vector<std::size_t>& rows, std::size_t count) {
      for (std::size_t& row : rows) row = (row ^ 8) < count ? row ^ 8 : row;
    };
    if (reading.rows_exchanged) exchange(left, a.rows);
    if (reading.columns_exchanged) exchange(right, b.rows);
    const PlainRows x(a, left, a.depth, {reading.turned == Turned::a, reading.a.blocks, 0, {}, reading.a, &b});
    const PlainRows y(b, right, b.depth, {reading.turned == Turned::b, reading.b.blocks, 0, {}, reading.b, &a});
    const GemmAddends addends{problem_.out().c, problem_.out().bias, a.rows, b.rows};
    const double halves = (reading.a.as_fnuz ? 0.5 : 1) * (reading.b.as_fnuz ? 0.5 : 1);
    const auto of_tensor = [](const TensorScale& scale) {
      return static_cast<double>(scale.factor) / static_cast<double>(scale.divisor);
    };
    const Side of_a{x, reading.a, a.tile_scales.values.empty() ? 0 : a.tile_scales.depth, of_tensor(a.tensor_scale)};
    const Side of_b{y, reading.b, b.tile_scales.values.empty() ? 0 : b.tile_scales.depth, of_tensor(b.tensor_scale)};
    std::vector<NearElement> all;
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      double factor = of_a.row(i) * of_b.row(i) * halves;
      const double scale_out = as_read(static_cast<double>(problem_.out().scale_out), reading.scale_out);
      factor *= scale_out;
      double sum = 0;
      double squares = 0;
      double scale = 1;
      const std::vector<double> of_x = x.values(i);
      const std::vector<double> of_y = y.values(i);
      for (std::size_t k = 0; k < a.depth; ++k) {
        if (k % granule == 0) scale = of_a.along(i, k) * of_b.along(i, k) * factor;
        const double product = of_x[k] * of_y[k] * scale;
        use(i, k, product);
        sum += product;
        squares += product * product;
      }
      const ElementAddends added = addends_of(reading, addends, left[i], right[i]);
      const double c = reading.c == CReading::missing ? 0 : static_cast<double>(added.c);
      const double bias = reading.bias == BiasReading::missing ? 0 : static_cast<double>(added.bias);
      all.push_back({sum + (c + bias) * scale_out, std::sqrt(squares), factor});
    }
    return all;
  }

 private:
  /// Scales change at multiples of this alone.
  static constexpr std::size_t granule = 8;

  struct Side {
    const PlainRows& rows;
    const SideReading& reading;
    std::size_t tile_depth;
    double tensor_scale;

    [[nodiscard]] double row(std::size_t i) const {
      const double scale = static_cast<double>(rows.row_scale(i)) * tensor_scale;
      return tile_depth != 0 && tensor_scale == 1 ? scale : as_read(scale, reading.scales);
    }
    [[nodiscard]] double along(std::size_t i, std::size_t k) const {
      if (tile_depth == 0) return static_cast<double>(rows.block_scale(i, k));
      const std::size_t at = reading.previous_tile && k >= tile_depth ? k - tile_depth : k;
      return as_read(static_cast<double>(rows.tile_scale(i, at)), reading.scales);
    }
  };

  const GemmProblem& problem_;
  std::vector<std::size_t> elements_;
  std::vector<double> there_;
  double largest_ = std::numeric_limits<double>::infinity();
};

double median(std::vector<double> values) {
  if (values.empty()) return 1;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// How near nine tenths of the elements are; predictions may be changed by number(i).
template <typename Change>
double distance_of(const NearGemm& gemm, const std::vector<NearElement>& by, const Change& change) {
  std::vector<double> all;
  std::vector<double> sizes;
  std::vector<double> sizes_there;
  for (std::size_t i = 0; i < by.size(); ++i) {
    const double there = gemm.there()[i];
    const double result = gemm.limited(change(i, by[i].result));
    sizes.push_back(std::abs(result));
    sizes_there.push_back(std::abs(there));
    if (std::isnan(there) && std::isnan(result)) continue;
    const double distance = there == result ? 0 : std::abs(there - result) / by[i].magnitude;
    all.push_back(std::isfinite(distance) ? std::min(distance, 1.0) : 1.0);
  }
  // Beside sums that are far too large, everything is near.
  const double size = median(sizes);
  const double size_there = median(sizes_there);
  if (all.size() < 4 || size > 2 * size_there || size_there > 2 * size) return 1;
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(all.size() * 9 / 10);
  std::ranges::nth_element(all, at);
  return *at;
}

class Suggester {
 public:
  Suggester(const GemmProblem& problem, std::span<const std::size_t> order)
      : problem_(problem), order_(order), gemm_(problem, sample(problem, order)) {
    const auto& there = gemm_.there();
    is_relu_ = std::ranges::none_of(there, [](double x) { return x < 0; }) &&
               std::ranges::count(there, 0.0) * 4 > static_cast<std::ptrdiff_t>(there.size());
  }

  [[nodiscard]] std::vector<SuggestedDeparture> run() {
    std::vector<const GemmDeparture*> rows;
    for (const GemmDeparture& one : gemm_departures()) {
      const GemmReading& reading = one.reading;
      const bool has_number = one.drops_tail || reading.products != ProductReading::own;
      const bool is_exact = reading.promotion != PromotionReading::own || reading.blocks_as_tiles;
      const bool has_bias = reading.bias == BiasReading::in_each_range;
      if (has_number || is_exact || has_bias || !is_searched(one, problem_.facts())) continue;
      rows.push_back(&one);
    }
    ask(nullptr);
    ask_blocks(nullptr);
    for (const GemmDeparture* one : rows) {
      ask(one);
      ask_blocks(one);
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (std::size_t j = i + 1; j < rows.size(); ++j) {
        if (const GemmDeparture* both = both_departures(*rows[i], *rows[j])) ask(both);
      }
    }
    return nearest();
  }

 private:
  /// Elements of a few rows and columns, so that each has several.
  static std::vector<std::size_t> sample(const GemmProblem& problem, std::span<const std::size_t> order) {
    const std::size_t rows = problem.facts().rows;
    const std::size_t columns = problem.facts().columns;
    std::vector<std::size_t> all;
    if (!problem.is_whole() || rows < sampled_side || columns < sampled_side) {
      const auto some = order.first(std::min(order.size(), sampled_side * sampled_side));
      return {some.begin(), some.end()};
    }
    for (std::size_t i = 0; i < sampled_side; ++i) {
      const std::size_t row = (i * rows + drawn_word(11, i) % rows) / sampled_side;
      for (std::size_t j = 0; j < sampled_side; ++j) {
        all.push_back(row * columns + (j * columns + drawn_word(12, j) % columns) / sampled_side);
      }
    }
    return all;
  }

  void add(const GemmDeparture* departure, ScaledBy scaled_by, double distance) {
    if (!(distance < near) || (departure == nullptr && scaled_by == ScaledBy::nothing && !is_relu_)) return;
    all_.push_back({.departure = departure, .scaled_by = scaled_by, .is_relu = is_relu_, .distance = distance});
  }

  /// The number that an element is multiplied with: the median over all, or over its row or column.
  [[nodiscard]] std::vector<double> factors_of(const std::vector<NearElement>& by, ScaledBy scaled_by) const {
    const auto line = [&](std::size_t i) {
      if (scaled_by == ScaledBy::rows) return gemm_.place(i).row;
      return scaled_by == ScaledBy::columns ? gemm_.place(i).column : 0;
    };
    std::vector<double> factors(by.size(), 1);
    for (std::size_t i = 0; i < by.size(); ++i) {
      std::vector<double> ratios;
      for (std::size_t j = 0; j < by.size(); ++j) {
        const double ratio = gemm_.there()[j] / by[j].result;
        if (line(j) == line(i) && std::isfinite(ratio) && std::abs(by[j].result) > by[j].magnitude / 4) {
          ratios.push_back(ratio);
        }
      }
      factors[i] = median(ratios);
    }
    return factors;
  }

  /// Is the output that of this departure, times one number, or one for each row or column?
  void ask(const GemmDeparture* departure) {
    const auto by = gemm_.products(departure, [](std::size_t, std::size_t, double) {});
    const auto rectified = [&](double x) { return is_relu_ ? std::max(x, 0.0) : x; };
    const double plain = distance_of(gemm_, by, [&](std::size_t, double x) { return rectified(x); });
    add(departure, ScaledBy::nothing, plain);
    if (plain < near) return;  // numbers beside it would be 1
    for (const ScaledBy scaled_by : {ScaledBy::one_number, ScaledBy::rows, ScaledBy::columns}) {
      const bool is_line = scaled_by != ScaledBy::one_number;
      if (is_line && !problem_.is_whole()) continue;
      if (departure != nullptr && departure->first != nullptr) continue;  // three things explain nearly anything
      const std::vector<double> factors = factors_of(by, scaled_by);
      const double distance =
          distance_of(gemm_, by, [&](std::size_t i, double x) { return rectified(x * factors[i]); });
      const double largest = std::abs(*std::ranges::max_element(factors, {}, [](double x) { return std::abs(x); }));
      // Distances are measured beside the sums: a number near 0 makes all of them alike.
      if (largest > 0) add(departure, scaled_by, distance / std::min(largest, 1.0));
    }
  }

  /// How often is each block of K in the output? Least squares of the contributions, which must come out whole.
  void ask_blocks(const GemmDeparture* departure) {
    if (is_relu_) return;
    const std::size_t depth = problem_.a().depth;
    const std::size_t unit = std::max({problem_.facts().block, problem_.facts().tile_depth, std::size_t{1}});
    std::size_t length = 0;  // the longest first, which are told best
    for (const std::size_t tried : {512, 256, 128, 64, 32}) {
      const std::size_t count = depth / tried;
      if (depth % tried != 0 || tried % unit != 0 || count < 2 || count > most_blocks) continue;
      length = tried;
    }
    if (length == 0) return;
    const std::size_t finest = depth / length;
    const std::size_t elements = std::min(order_.size(), std::max<std::size_t>(elements_per_block * finest, 24));
    if (elements < 2 * finest) return;
    const NearGemm gemm(problem_, {order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(elements)});
    Eigen::MatrixXd parts =
        Eigen::MatrixXd::Zero(static_cast<Eigen::Index>(elements), static_cast<Eigen::Index>(finest));
    const auto by = gemm.products(departure, [&](std::size_t i, std::size_t k, double product) {
      parts(static_cast<Eigen::Index>(i), static_cast<Eigen::Index>(k / length)) += product;
    });
    for (; length <= depth / 2; length *= 2) {
      if (const auto counts = counts_of(gemm, by, parts)) {
        add_counts(departure, length, *counts);
        // The longest blocks that do: they say the same in fewer words.
        const bool can_join = counts->size() % 2 == 0 && are_pairs(*counts);
        if (!can_join) return;
        all_.pop_back();
      }
      if (parts.cols() % 2 != 0) return;
      Eigen::MatrixXd joined(parts.rows(), parts.cols() / 2);
      for (Eigen::Index j = 0; j < joined.cols(); ++j) joined.col(j) = parts.col(2 * j) + parts.col(2 * j + 1);
      parts = joined;
    }
  }

  [[nodiscard]] static bool are_pairs(const std::vector<std::size_t>& counts) {
    for (std::size_t j = 0; j + 1 < counts.size(); j += 2) {
      if (counts[j] != counts[j + 1]) return false;
    }
    return counts.size() > 2;
  }

  /// How often each part is there, if whole numbers come near the output.
  static std::optional<std::vector<std::size_t>> counts_of(const NearGemm& gemm, const std::vector<NearElement>& by,
                                                           const Eigen::MatrixXd& parts) {
    constexpr double apart = 0.2;
    Eigen::MatrixXd left = parts;
    Eigen::VectorXd right(parts.rows());
    for (Eigen::Index i = 0; i < parts.rows(); ++i) {
      const auto& one = by[static_cast<std::size_t>(i)];
      const double missing = gemm.there()[static_cast<std::size_t>(i)] - one.result;
      const bool counts = std::isfinite(missing) && one.magnitude > 0;
      right(i) = counts ? missing / one.magnitude : 0;
      left.row(i) *= counts ? 1 / one.magnitude : 0;
    }
    const Eigen::VectorXd solved = left.colPivHouseholderQr().solve(right);
    std::vector<std::size_t> all;
    Eigen::VectorXd whole(solved.size());
    bool changes = false;
    for (Eigen::Index j = 0; j < solved.size(); ++j) {
      const double count = 1 + solved(j);
      whole(j) = std::round(count) - 1;
      if (!(std::abs(count - std::round(count)) < apart) || count < -apart || count > 64) return std::nullopt;
      changes = changes || whole(j) != 0;
      all.push_back(static_cast<std::size_t>(std::round(count)));
    }
    const Eigen::VectorXd rest = right - left * whole;
    if (!changes || rest.norm() > near * std::sqrt(static_cast<double>(rest.size()))) return std::nullopt;
    return all;
  }

  /// The lists of blocks that have each so often.
  void add_counts(const GemmDeparture* departure, std::size_t length, const std::vector<std::size_t>& counts) {
    const std::size_t total = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    std::vector<std::size_t> ascending;
    std::vector<std::size_t> again;
    for (std::size_t j = 0; j < counts.size(); ++j) {
      ascending.insert(ascending.end(), counts[j], j);
      if (counts[j] > 1) again.insert(again.end(), counts[j] - 1, j);
    }
    const auto put = [&](std::vector<std::size_t> blocks) {
      all_.push_back({.departure = departure, .number = length, .blocks = std::move(blocks)});
    };
    if (total == counts.size()) {  // a block is multiplied in the place of another one
      std::vector<std::size_t> stale;
      stale.reserve(counts.size());
      std::size_t next = 0;
      for (std::size_t j = 0; j < counts.size(); ++j) stale.push_back(counts[j] != 0 ? j : again[next++]);
      put(std::move(stale));
      return;
    }
    put(std::move(ascending));
  }

  [[nodiscard]] std::vector<SuggestedDeparture> nearest() {
    double least = near;
    for (const SuggestedDeparture& one : all_) least = std::min(least, one.distance);
    std::erase_if(all_, [&](const SuggestedDeparture& one) {
      return one.distance > std::max(least * leeway, 0.02) && one.blocks.empty();
    });
    // A number beside a departure says nothing where another departure alone comes as near.
    const bool has_single = std::ranges::any_of(all_, [](const SuggestedDeparture& one) {
      return one.is_single() && one.departure != nullptr && one.scaled_by == ScaledBy::nothing;
    });
    if (has_single) std::erase_if(all_, [](const auto& one) { return one.scaled_by != ScaledBy::nothing; });
    std::ranges::stable_sort(all_, [](const SuggestedDeparture& x, const SuggestedDeparture& y) {
      return std::pair(x.parts(), x.distance) < std::pair(y.parts(), y.distance);
    });
    // One row of the table alone is a hypothesis that is tried anyway.
    std::size_t count = 0;
    std::erase_if(all_, [&](const SuggestedDeparture& one) { return !one.is_single() && ++count > most_suggestions; });
    return all_;
  }

  const GemmProblem& problem_;
  std::span<const std::size_t> order_;
  NearGemm gemm_;
  bool is_relu_ = false;
  std::vector<SuggestedDeparture> all_;
};

}  // namespace

namespace {

/// What the sampled elements of a row, or of a column, have in common.
enum class Line : std::uint8_t { near_sums, times, wrong };

/// Elements of all rows in some columns, or of all columns in some rows, are compared with exact sums.
class LocatedLines {
 public:
  LocatedLines(const GemmProblem& problem, bool by_rows) : by_rows_(by_rows) {
    const std::size_t rows = problem.facts().rows;
    const std::size_t columns = problem.facts().columns;
    const std::size_t count = by_rows ? rows : columns;
    const std::size_t across = by_rows ? columns : rows;
    const std::size_t sampled = std::min(across, sampled_side);
    std::vector<std::size_t> elements;
    for (std::size_t line = 0; line < count; ++line) {
      for (std::size_t j = 0; j < sampled; ++j) {
        const std::size_t at = (j * across + drawn_word(13 + line, j) % across) / sampled;
        elements.push_back(by_rows ? line * columns + at : at * columns + line);
      }
    }
    const NearGemm gemm(problem, std::move(elements));
    const auto by = gemm.products(nullptr, [](std::size_t, std::size_t, double) {});
    for (std::size_t line = 0; line < count; ++line) lines_.push_back(line_of(gemm, by, line * sampled, sampled));
  }

  /// "rows 16 to 31 of 48"; empty where all are near.
  void put(TextStream& text) const {
    const std::string_view noun = by_rows_ ? "row" : "column";
    const auto all = static_cast<std::ptrdiff_t>(lines_.size());
    const auto near_ones = std::ranges::count(lines_, Line::near_sums);
    const auto times = std::ranges::count(lines_, Line::times);
    if (near_ones == all) {
      text << "all " << noun << "s are near exact sums";
      return;
    }
    text << near_ones << " of " << all << " " << noun << "s are near exact sums";
    if (times != 0) text << ", " << times << " are a number times these";
    if (near_ones == 0) return;
    text << ", and not " << noun << "s ";
    std::string_view comma;
    std::size_t told = 0;
    for (std::size_t i = 0; i < lines_.size() && told < 6; ++i) {
      if (lines_[i] == Line::near_sums) continue;
      std::size_t last = i;
      while (last + 1 < lines_.size() && lines_[last + 1] != Line::near_sums) ++last;
      text << comma << i;
      if (last != i) text << " to " << last;
      comma = ", ";
      ++told;
      i = last;
    }
    if (told == 6) text << ", ...";
  }
  [[nodiscard]] bool are_near() const {
    return std::ranges::all_of(lines_, [](Line one) { return one == Line::near_sums; });
  }

 private:
  static Line line_of(const NearGemm& gemm, const std::vector<NearElement>& by, std::size_t first, std::size_t count) {
    constexpr double tolerance = 0.1;
    const auto are_near_by = [&](double factor) {
      std::size_t good = 0;
      for (std::size_t i = first; i < first + count; ++i) {
        const double there = gemm.there()[i];
        const double result = gemm.limited(by[i].result * factor);
        // An infinity is near nothing but itself.
        const bool is_near = std::isfinite(there) &&
                             std::abs(there - result) <=
                                 tolerance * by[i].magnitude * std::min(std::abs(factor), 1.0) + std::abs(there) / 16;
        good += is_near || there == result ? 1 : 0;
      }
      return good == count;
    };
    if (are_near_by(1)) return Line::near_sums;
    std::vector<double> ratios;
    for (std::size_t i = first; i < first + count; ++i) {
      const double ratio = gemm.there()[i] / by[i].result;
      if (std::isfinite(ratio)) ratios.push_back(ratio);
    }
    const double factor = median(ratios);
    return factor != 0 && ratios.size() > 2 && are_near_by(factor) ? Line::times : Line::wrong;
  }

  bool by_rows_;
  std::vector<Line> lines_;
};

}  // namespace

std::string located_sums(const GemmProblem& problem, std::span<const std::size_t> order) {
  TextStream text;
  text << "Located: ";
  if (!problem.is_whole()) {
    const std::vector<std::size_t> some(
        order.begin(), order.begin() + static_cast<std::ptrdiff_t>(std::min(order.size(), std::size_t{64})));
    const NearGemm gemm(problem, some);
    const auto by = gemm.products(nullptr, [](std::size_t, std::size_t, double) {});
    std::size_t count = 0;
    for (std::size_t i = 0; i < by.size(); ++i) {
      count += std::abs(gemm.there()[i] - by[i].result) <= 0.1 * by[i].magnitude ? 1 : 0;
    }
    text << count << " of " << by.size() << " elements are near exact sums.";
    return text.str();
  }
  const LocatedLines rows(problem, true);
  const LocatedLines columns(problem, false);
  rows.put(text);
  text << "; ";
  columns.put(text);
  text << ".";
  if (rows.are_near() && columns.are_near()) text << ' ' << small_difference;
  return text.str();
}

std::size_t SuggestedDeparture::parts() const {
  std::size_t count = departure == nullptr ? 0 : parts_of(*departure).size();
  if (scaled_by != ScaledBy::nothing) count += scaled_by == ScaledBy::one_number ? 1 : 2;
  if (!blocks.empty()) ++count;
  if (is_relu) ++count;
  return count;
}

std::vector<SuggestedDeparture> suggested_departures(const GemmProblem& problem, std::span<const std::size_t> order) {
  return Suggester(problem, order).run();
}

std::string describe(const SuggestedDeparture& one) {
  TextStream text;
  std::string_view separator;
  const auto put = [&](std::string_view words) {
    text << separator << words;
    separator = "; and ";
  };
  if (one.departure != nullptr) put(one.departure->words);
  if (one.scaled_by != ScaledBy::nothing) put(scaled_elements(one.scaled_by).words);
  if (!one.blocks.empty()) {
    put("of blocks of ");
    text << one.number << " elements of K";
    std::string_view comma = " ";
    const std::size_t last = std::ranges::max(one.blocks);
    for (std::size_t j = 0; j <= last; ++j) {
      const auto count = std::ranges::count(one.blocks, j);
      if (count == 1) continue;
      text << comma << "that from k = " << j * one.number << " on is there " << count << " times";
      comma = ", ";
    }
    if (comma == " ") text << " some are there in another order or are left out at the end";
  }
  return text.str();
}

}  // namespace fp8lab::doctor
