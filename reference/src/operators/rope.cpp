// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/rope.hpp"

#include <utility>
#include <vector>

#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "operators/tensor_pieces.hpp"

namespace fp8lab {

namespace {

bool is_packed(const RopeOptions& how) { return !how.cu_seqlens.empty(); }

void check_sequences(const RopeShape& shape, const RopeOptions& how) {
  const auto cp = static_cast<std::int64_t>(how.cp_size);
  if (cp == 0 || how.cp_rank >= how.cp_size)
    refuse("cp_rank must be below cp_size ", how.cp_size, ", not ", how.cp_rank);
  const auto check_even = [&](std::int64_t length) {
    if (cp > 1 && length % 2 != 0)
      refuse("cp_size needs sequences of an even number of tokens, also those of cu_seqlens, and x or grad has one of ",
             length);
  };
  if (!is_packed(how)) return check_even(static_cast<std::int64_t>(shape.sequence));
  if (how.cu_seqlens.front() != 0 || how.cu_seqlens.back() / cp != static_cast<std::int64_t>(shape.sequence)) {
    refuse("cu_seqlens must begin with 0 and end with cp_size times the ", shape.sequence, " tokens, not ",
           how.cu_seqlens.back());
  }
  for (std::size_t i = 1; i < how.cu_seqlens.size(); ++i) {
    if (how.cu_seqlens[i] < how.cu_seqlens[i - 1]) refuse("cu_seqlens must ascend");
    check_even(how.cu_seqlens[i] / cp - how.cu_seqlens[i - 1] / cp);
  }
}

std::size_t sequences_of(const RopeShape& shape, const RopeOptions& how) {
  return is_packed(how) ? how.cu_seqlens.size() - 1 : shape.batches;
}

void check_rope(const RopeShape& shape, const RopeOptions& how, std::string_view name, const FloatSpan& x,
                std::span<const float> freqs, std::string_view out_name, const FloatOutput& out) {
  const std::size_t size = shape.sequence * (is_packed(how) ? 1 : shape.batches) * shape.heads * shape.size;
  check_size(name, tensor_size(name, x), size);
  check_size(out_name, output_size(out), size);
  if (shape.rotated % 2 != 0 || shape.rotated == 0 || shape.rotated > shape.size) {
    refuse("freqs must be of an even number of elements, at most ", shape.size, ", not ", shape.rotated);
  }
  if (freqs.size() % shape.rotated != 0) refuse("freqs must have a multiple of ", shape.rotated, " elements");
  check_sequences(shape, how);
  if (!how.start_positions.empty()) {
    check_size("start_positions", how.start_positions.size(), sequences_of(shape, how));
  }
}

/// The positions of all tokens, in the order in which they lie.
class RopePositions {
 public:
  RopePositions(const RopeShape& shape, const RopeOptions& how, std::size_t known) : how_(how), known_(known) {
    if (is_packed(how)) {
      const auto cp = static_cast<std::int64_t>(how.cp_size);
      for (std::size_t i = 0; i + 1 < how.cu_seqlens.size(); ++i) {
        const std::int64_t length = how.cu_seqlens[i + 1] / cp - how.cu_seqlens[i] / cp;
        for (std::int64_t token = 0; token < length; ++token) add(i, token, length);
      }
      return;
    }
    const auto length = static_cast<std::int64_t>(shape.sequence);
    const std::size_t outer = shape.sequence_first ? shape.sequence : shape.batches;
    const std::size_t inner = shape.sequence_first ? shape.batches : shape.sequence;
    for (std::size_t i = 0; i < outer; ++i) {
      for (std::size_t j = 0; j < inner; ++j) {
        add(shape.sequence_first ? j : i, static_cast<std::int64_t>(shape.sequence_first ? i : j), length);
      }
    }
  }
  [[nodiscard]] const std::vector<std::size_t>& of_tokens() const { return positions_; }

 private:
  void add(std::size_t sequence, std::int64_t token, std::int64_t length) {
    std::int64_t position = token + (how_.start_positions.empty() ? 0 : how_.start_positions[sequence]);
    const auto size = static_cast<std::int64_t>(how_.cp_size);
    const auto rank = static_cast<std::int64_t>(how_.cp_rank);
    if (size > 1) {
      const bool is_first = token < length / 2;
      position += is_first ? rank * length / 2 : length * size - (rank + 1) * length / 2 - length / 2;
    }
    if (position < 0 || std::cmp_greater_equal(position, known_)) {
      refuse("freqs has ", known_, " positions, and a token of x or grad has position ", position,
             ", by start_positions, cu_seqlens, cp_size and cp_rank");
    }
    positions_.push_back(static_cast<std::size_t>(position));
  }

  const RopeOptions& how_;
  std::size_t known_;
  std::vector<std::size_t> positions_;
};

/// The other element of a pair, and whether this one is the first.
struct RopePartner {
  std::size_t index;
  bool is_first;
};
RopePartner partner_of(std::size_t i, std::size_t rotated, bool interleaved) {
  if (interleaved) return {i ^ 1, i % 2 == 0};
  const std::size_t half = rotated / 2;
  return i < half ? RopePartner{i + half, true} : RopePartner{i - half, false};
}

/// The cosines, and the sines as they multiply the other elements, of every position.
struct RopeTurns {
  std::vector<float> cosines;
  std::vector<float> sines;
};
RopeTurns turns_of(std::span<const float> freqs, std::size_t rotated, bool interleaved, bool backward, int threads) {
  RopeTurns turns{std::vector<float>(freqs.size()), std::vector<float>(freqs.size())};
  parallel_for(freqs.size(), threads, [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) {
      checkpoint(i);
      const RopePartner partner = partner_of(i % rotated, rotated, interleaved);
      const std::size_t of_sine = backward ? i - i % rotated + partner.index : i;
      const float sine = rounded_sin(freqs[of_sine]);
      turns.cosines[i] = rounded_cos(freqs[i]);
      turns.sines[i] = partner.is_first != backward ? -sine : sine;  // forward of the first, backward of the second
    }
  });
  return turns;
}

void turn_all(const RopeShape& shape, const RopeOptions& how, const FloatSpan& x, std::span<const float> freqs,
              const FloatOutput& out, bool backward, const OperatorOptions& options) {
  const RopePositions positions(shape, how, freqs.size() / shape.rotated);
  const RopeTurns turns = turns_of(freqs, shape.rotated, how.interleaved, backward, options.threads);
  const RowFunctions loops = row_functions();
  parallel_for(positions.of_tokens().size(), options.threads, [&](std::size_t first, std::size_t last) {
    std::vector<float> values(padded(shape.size));
    std::vector<float> others(padded(shape.rotated));
    std::vector<float> cosines(padded(shape.rotated));
    std::vector<float> sines(padded(shape.rotated));
    for (std::size_t token = first; token < last; ++token) {
      checkpoint();
      const std::size_t at = positions.of_tokens()[token] * shape.rotated;
      widen_row(turns.cosines.data() + at, shape.rotated, cosines.data());
      widen_row(turns.sines.data() + at, shape.rotated, sines.data());
      for (std::size_t head = 0; head < shape.heads; ++head) {
        const std::size_t place = (token * shape.heads + head) * shape.size;
        read_tensor(x, place, shape.size, values.data());
        for (std::size_t i = 0; i < shape.rotated; ++i) {
          others[i] = values[partner_of(i, shape.rotated, how.interleaved).index];
        }
        loops.turn(values.data(), others.data(), cosines.data(), sines.data(), others.size(), others.data());
        std::copy(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(shape.rotated), values.begin());
        write_piece(values.data(), shape.size, out, place);
      }
    }
  });
}

}  // namespace

void rope(const RopeShape& shape, const RopeOptions& how, FloatSpan x, std::span<const float> freqs, FloatOutput out,
          const OperatorOptions& options) {
  check_rope(shape, how, "x", x, freqs, "out", out);
  turn_all(shape, how, x, freqs, out, false, options);
}

void rope_backward(const RopeShape& shape, const RopeOptions& how, FloatSpan grad, std::span<const float> freqs,
                   FloatOutput dx, const OperatorOptions& options) {
  check_rope(shape, how, "grad", grad, freqs, "dx", dx);
  turn_all(shape, how, grad, freqs, dx, true, options);
}

}  // namespace fp8lab
