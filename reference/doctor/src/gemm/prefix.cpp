// SPDX-License-Identifier: Apache-2.0
#include "gemm/prefix.hpp"

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "fp8lab/formats/refuse.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "fp8lab/reference/scaling/scale_layout.hpp"
#include "gemm/plain_rows.hpp"

namespace fp8lab::doctor {
namespace {

/// The first `depth` of `all` elements of each row, or where they are stored as (K, rows), the first rows.
template <typename Element>
std::vector<Element> head_of(std::span<const Element> from, std::size_t rows, std::size_t all, std::size_t depth,
                             bool transposed) {
  if (transposed) return {from.begin(), from.begin() + static_cast<std::ptrdiff_t>(rows * depth)};
  std::vector<Element> head;
  head.reserve(rows * depth);
  for (std::size_t row = 0; row < rows; ++row) {
    const auto own = from.subspan(row * all, depth);
    head.insert(head.end(), own.begin(), own.end());
  }
  return head;
}

/// The elements of K up to the last one that is not 0, of each row.
std::vector<std::size_t> ends_of(const Operand& x) {
  constexpr std::size_t rows_at_once = 64;
  std::vector<std::size_t> ends;
  for (std::size_t first = 0; first < x.rows; first += rows_at_once) {
    std::vector<std::size_t> numbers(std::min(rows_at_once, x.rows - first));
    std::iota(numbers.begin(), numbers.end(), first);
    const PlainRows rows(x, numbers, x.depth, {});
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      std::size_t end = x.depth;
      while (end > 0 && rows.value(i, end - 1) == 0) --end;
      ends.push_back(end);
    }
  }
  return ends;
}

}  // namespace

OperandHead::OperandHead(const Operand& from, std::size_t depth) : from_(from), depth_(depth) {
  if (depth == 0 || depth > from.depth) refuse("a prefix has 1 to ", from.depth, " elements of K, not ", depth);
  const std::size_t packing = from.packed ? 2 : 1;
  const std::size_t block = from.scales.type ? static_cast<std::size_t>(from.scales.type->block) : 1;
  const std::size_t tile = from.tile_scales.values.empty() ? 1 : from.tile_scales.depth;
  for (const std::size_t whole : {packing, block, tile}) {
    if (depth % whole != 0 && depth != from.depth) {
      refuse("a prefix has a multiple of ", whole, " elements of K, which share a scale or a byte, not ", depth);
    }
  }
  // 1. Elements.
  std::visit(
      [&](auto elements) {
        using Element = std::remove_const_t<typename decltype(elements)::element_type>;
        if constexpr (std::is_same_v<Element, double>) {
          refuse("prefixes are not of float64");
        } else if (from.transposed && packing == 2) {
          elements_ = head_of(elements, from.rows / 2, from.depth, depth, true);
        } else {
          elements_ = head_of(elements, from.rows, from.depth / packing, depth / packing, from.transposed);
        }
      },
      from.elements);
  // 2. Scales of blocks, compact then, and of tiles.
  if (!from.scales.codes.empty()) {
    const std::size_t along = from.depth / block;
    for (std::size_t row = 0; row < from.rows; ++row) {
      for (std::size_t j = 0; j < depth / block; ++j) {
        const bool is_compact = from.scales.layout == ScaleLayout::compact;
        blocks_.push_back(from.scales.codes[is_compact ? row * along + j : swizzled_place(row, j, along)]);
      }
    }
  }
  if (from.tile_scales.values.empty()) return;
  const std::size_t down = (from.rows + from.tile_scales.rows - 1) / from.tile_scales.rows;
  tiles_ = head_of(from.tile_scales.values, down, (from.depth + tile - 1) / tile, (depth + tile - 1) / tile,
                   from.transposed);
}

Operand OperandHead::operand() const {
  Operand head = from_;
  head.depth = depth_;
  std::visit([&](const auto& own) { head.elements = std::span(own); }, elements_);
  head.scales.codes = blocks_;
  head.scales.layout = ScaleLayout::compact;
  head.tile_scales.values = tiles_;
  return head;
}

std::optional<FirstDifference> difference_along_k(const GemmProblem& problem, std::span<const std::size_t> elements,
                                                  std::span<const std::uint64_t> words) {
  // 1. Products of rows that all have as many elements do not tell.
  const std::vector<std::size_t> ends_a = ends_of(problem.a());
  const std::vector<std::size_t> ends_b = ends_of(problem.b());
  const auto end_of = [&](std::size_t element) {
    const GemmPlace at = problem.element(element);
    return std::min(ends_a[at.row], ends_b[at.column]);
  };
  // 2. The wrong element that ends first, and the right one that ends last before.
  std::size_t to = problem.facts().depth + 1;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    if (words[i] != problem.word(elements[i])) to = std::min(to, end_of(elements[i]));
  }
  std::size_t from = 0;
  std::size_t before = 0;
  std::size_t wrong = 0;
  std::size_t behind = 0;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::size_t end = end_of(elements[i]);
    if (end >= to) {
      ++behind;
      wrong += words[i] != problem.word(elements[i]) ? 1 : 0;
    } else if (end != 0) {
      ++before;
      from = std::max(from, end);
    }
  }
  constexpr std::size_t few = 4;
  if (from == 0 || before < few || wrong * 2 < behind) return std::nullopt;
  return FirstDifference{from, to};
}

FirstDifference difference_of_prefixes(std::span<const GemmPrefix> prefixes, std::size_t depth,
                                       const std::function<bool(const GemmPrefix&)>& is_right) {
  std::vector<const GemmPrefix*> sorted;
  for (const GemmPrefix& one : prefixes) sorted.push_back(&one);
  std::ranges::sort(sorted, {}, [](const GemmPrefix* one) { return one->depth; });
  // The first wrong one of them: what is behind a difference has it, too.
  const auto at = std::ranges::partition_point(sorted, [&](const GemmPrefix* one) { return is_right(*one); });
  return {at == sorted.begin() ? 0 : (*(at - 1))->depth, at == sorted.end() ? depth : (*at)->depth};
}

std::string describe(const FirstDifference& difference) {
  TextStream text;
  text << "The first difference enters along K ";
  if (difference.from == 0) {
    text << "within the first " << difference.to << " elements.";
  } else {
    text << "behind the first " << difference.from << " elements, and within the first " << difference.to << '.';
  }
  return text.str();
}

}  // namespace fp8lab::doctor
