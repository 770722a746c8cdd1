// SPDX-License-Identifier: Apache-2.0
#include "kit/source.hpp"

#include <stdexcept>
#include <type_traits>

#include "fp8lab/formats/parallel.hpp"

namespace fp8lab::experiments {
namespace {

/// `size` where it is from 1 to 2^log2_most.
std::uint64_t checked_size(long long size, int log2_most) {
  if (size < 1 || size > 1LL << log2_most) {
    throw std::invalid_argument("size must be from 1 to 2^" + std::to_string(log2_most) + ", not " +
                                std::to_string(size));
  }
  return static_cast<std::uint64_t>(size);
}

std::string count_of(std::uint64_t size, ElementType type) {
  return std::to_string(size).append(" ").append(name_of(type)).append(size == 1 ? " value" : " values");
}

/// A shape as Python prints it.
std::string shape_text(const std::vector<std::uint64_t>& shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

ElementType type_of(const HeldTensor& held) {
  return std::visit(
      []<typename T>(std::span<const T> /*values*/) {
        if (std::is_same_v<T, float>) return ElementType::float32;
        if (std::is_same_v<T, double>) return ElementType::float64;
        return std::is_same_v<T, Half> ? ElementType::float16 : ElementType::bfloat16;
      },
      held);
}

}  // namespace

Source::Source(const CastSource& source, int threads) : source_(&source), threads_(threads) {
  std::visit([&](const auto& kind) { open(kind); }, source);
}

void Source::open(const Draws& draws) {
  size_ = checked_size(draws.size, 40);
  description_ = count_of(size_, type_)
                     .append(" drawn with seed ")
                     .append(std::to_string(draws.seed))
                     .append(" from ")
                     .append(draws.distribution.name);
}

void Source::open(const Grid& grid) {
  size_ = checked_size(grid.size, 26);
  grid_.resize(size_);
  normal_grid(grid_);
  description_ = count_of(size_, type_) + " of the normal grid: quantiles of N(0, 1), no chance";
}

void Source::open(const StoredTensor& stored) {
  file_.emplace(stored.path, stored.tensor);
  type_ = file_->type();
  if (type_ == ElementType::uint8) {
    throw std::invalid_argument(printable(stored.path.native()) +
                                " holds uint8, which are codes; float32, float64, float16 and bfloat16 are cast");
  }
  size_ = file_->size();
  description_ = count_of(size_, type_) + " of " + printable(stored.path.native());
  if (!file_->name().empty()) description_ += ", tensor " + printable(file_->name());
  description_ += ", shape " + shape_text(file_->shape());
}

void Source::open(const HeldTensor& held) {
  type_ = type_of(held);
  size_ = std::visit([](auto values) { return values.size(); }, held);
  description_ = count_of(size_, type_) + " of an array";
}

void Source::fill(std::uint64_t first, std::span<float> out) {
  if (const auto* draws = std::get_if<Draws>(source_)) {
    parallel_for(out.size(), threads_, [&](std::size_t begin, std::size_t end) {
      sample(draws->distribution, draws->seed, first + begin, out.subspan(begin, end - begin));
    });
    return;
  }
  std::ranges::copy(std::span(grid_).subspan(first, out.size()), out.begin());
}

}  // namespace fp8lab::experiments
