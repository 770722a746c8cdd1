// SPDX-License-Identifier: Apache-2.0
#include "fp8lab/reference/operators/rope.hpp"

#include <utility>
#include <vector>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "operators/kernel_functions.hpp"
#include "operators/row_buffers.hpp"
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
RopeTurns turns_of(std::span<const float> freqs, std::size_t rotated, bool interleaved, bool backward,
                   const OperatorOptions& options) {
  const KernelFunctions functions = kernel_functions(options.functions);
  RopeTurns turns{std::vector<float>(freqs.size()), std::vector<float>(freqs.size())};
  parallel_for(freqs.size(), options.threads, [&](std::size_t first, std::size_t last) {
    const DefaultEnvironment environment;
    for (std::size_t i = first; i < last; ++i) {
      checkpoint(i);
      const RopePartner partner = partner_of(i % rotated, rotated, interleaved);
      const std::size_t of_sine = backward ? i - i % rotated + partner.index : i;
      const float sine = functions.sin(freqs[of_sine]);
      turns.cosines[i] = functions.cos(freqs[i]);
      turns.sines[i] = partner.is_first != backward ? -sine : sine;  // forward of the first, backward of the second
    }
  });
  return turns;
}

/// Where a token's vectors lie: `together` of them follow each other in each head.
struct VectorPlaces {
  std::size_t token;     // elements from a token to the next one
  std::size_t head;      // and from a head to the next one
  std::size_t together;  // vectors of a head
  std::size_t first = 0;

  [[nodiscard]] std::size_t of(std::size_t of_token, std::size_t vector, std::size_t size) const {
    return of_token * token + vector / together * head + first + vector % together * size;
  }
};
VectorPlaces side_by_side(std::size_t vectors, std::size_t size) { return {vectors * size, size, 1}; }

/// Turns the vectors of all tokens; shape.heads counts those of a token.
void turn_all(const RopeShape& shape, const RopeOptions& how, const FloatSpan& x, const VectorPlaces& from,
              std::span<const float> freqs, const FloatOutput& out, const VectorPlaces& to, bool backward,
              const OperatorOptions& options) {
  const RopePositions positions(shape, how, freqs.size() / shape.rotated);
  const RopeTurns turns = turns_of(freqs, shape.rotated, how.interleaved, backward, options);
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
        read_tensor(x, from.of(token, head, shape.size), shape.size, values.data());
        for (std::size_t i = 0; i < shape.rotated; ++i) {
          others[i] = values[partner_of(i, shape.rotated, how.interleaved).index];
        }
        loops.turn(values.data(), others.data(), cosines.data(), sines.data(), others.size(), others.data());
        std::copy(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(shape.rotated), values.begin());
        write_piece(values.data(), shape.size, out, to.of(token, head, shape.size));
      }
    }
  });
}

}  // namespace

void rope(const RopeShape& shape, const RopeOptions& how, FloatSpan x, std::span<const float> freqs, FloatOutput out,
          const OperatorOptions& options) {
  check_exact_functions("rope", options);
  check_rope(shape, how, "x", x, freqs, "out", out);
  const VectorPlaces places = side_by_side(shape.heads, shape.size);
  turn_all(shape, how, x, places, freqs, out, places, false, options);
}

void rope_backward(const RopeShape& shape, const RopeOptions& how, FloatSpan grad, std::span<const float> freqs,
                   FloatOutput dx, const OperatorOptions& options) {
  check_exact_functions("rope_backward", options);
  check_rope(shape, how, "grad", grad, freqs, "dx", dx);
  const VectorPlaces places = side_by_side(shape.heads, shape.size);
  turn_all(shape, how, grad, places, freqs, dx, places, true, options);
}

namespace {

constexpr std::array<std::string_view, 3> qkv_names{"query", "key", "value"};

std::size_t width_of_all(const RopeQkvShape& shape) { return shape.widths[0] + shape.widths[1] + shape.widths[2]; }

void check_qkv(const RopeQkvShape& shape, const RopeOptions& how, std::size_t all,
               const std::array<std::size_t, 3>& parts, std::string_view all_name) {
  const std::size_t size = shape.widths[2];
  if (size == 0 || shape.widths[0] % size != 0 || shape.widths[1] % size != 0) {
    refuse("widths of query and key must be multiples of the value's, ", size, ", not ", shape.widths[0], " and ",
           shape.widths[1]);
  }
  if (is_packed(how)) refuse("cu_seqlens are not for query, key and value together");
  const std::size_t vectors = shape.sequence * shape.batches * shape.heads;
  check_size(all_name, all, vectors * width_of_all(shape));
  for (std::size_t i = 0; i < 3; ++i) check_size(qkv_names[i], parts[i], vectors * shape.widths[i]);
}

/// Calls run(part, its shape, where it lies among all, where it lies alone) for query, key and value.
template <typename Run>
void for_each_of_qkv(const RopeQkvShape& shape, const Run& run) {
  const std::size_t size = shape.widths[2];
  const std::size_t width = width_of_all(shape);
  std::size_t first = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t together = shape.widths[i] / size;
    const RopeShape of_part{shape.sequence, shape.batches, shape.heads * together,
                            size,           shape.rotated, shape.sequence_first};
    if (together != 0) {
      run(i, of_part, VectorPlaces{shape.heads * width, width, together, first}, side_by_side(of_part.heads, size));
    }
    first += shape.widths[i];
  }
}

void check_turned(const RopeShape& shape, const RopeOptions& how, std::span<const float> freqs, std::string_view name) {
  if (shape.rotated % 2 != 0 || shape.rotated == 0 || shape.rotated > shape.size) {
    refuse("freqs must be of an even number of elements, at most ", shape.size, ", not ", shape.rotated);
  }
  if (freqs.size() % shape.rotated != 0) refuse(name, "_freqs must have a multiple of ", shape.rotated, " elements");
  check_sequences(shape, how);
  if (!how.start_positions.empty()) check_size("start_positions", how.start_positions.size(), shape.batches);
}

/// Copies vectors from one place to another.
void copy_vectors(const RopeShape& shape, const FloatSpan& x, const VectorPlaces& from, const FloatOutput& out,
                  const VectorPlaces& to, const OperatorOptions& options) {
  parallel_for(shape.sequence * shape.batches, options.threads, [&](std::size_t first, std::size_t last) {
    std::vector<float> values(padded(shape.size));
    for (std::size_t token = first; token < last; ++token) {
      for (std::size_t head = 0; head < shape.heads; ++head) {
        read_tensor(x, from.of(token, head, shape.size), shape.size, values.data());
        write_piece(values.data(), shape.size, out, to.of(token, head, shape.size));
      }
    }
  });
}

}  // namespace

void rope_qkv(const RopeQkvShape& shape, const RopeOptions& how, FloatSpan qkv, std::span<const float> query_freqs,
              std::span<const float> key_freqs, const std::array<FloatOutput, 3>& out, const OperatorOptions& options) {
  check_exact_functions("rope_qkv", options);
  check_qkv(shape, how, tensor_size("qkv", qkv), {output_size(out[0]), output_size(out[1]), output_size(out[2])},
            "qkv");
  RopeOptions positions = how;
  if (how.cp_size > 1) positions.start_positions = {};
  for_each_of_qkv(shape,
                  [&](std::size_t i, const RopeShape& of_part, const VectorPlaces& all, const VectorPlaces& own) {
                    if (i == 2) return copy_vectors(of_part, qkv, all, out[i], own, options);
                    const std::span<const float> freqs = i == 0 ? query_freqs : key_freqs;
                    check_turned(of_part, positions, freqs, qkv_names[i]);
                    turn_all(of_part, positions, qkv, all, freqs, out[i], own, false, options);
                  });
}

void rope_qkv_backward(const RopeQkvShape& shape, const RopeOptions& how, const std::array<FloatSpan, 3>& grads,
                       std::span<const float> query_freqs, std::span<const float> key_freqs, FloatOutput dqkv,
                       const OperatorOptions& options) {
  check_exact_functions("rope_qkv_backward", options);
  std::array<std::size_t, 3> sizes{};
  for (std::size_t i = 0; i < 3; ++i) sizes[i] = tensor_size(qkv_names[i], grads[i]);
  check_qkv(shape, how, output_size(dqkv), sizes, "dqkv");
  if (!how.start_positions.empty()) refuse("start_positions are not for the gradient: the kernel counts from 0");
  for_each_of_qkv(shape,
                  [&](std::size_t i, const RopeShape& of_part, const VectorPlaces& all, const VectorPlaces& own) {
                    if (i == 2) return copy_vectors(of_part, grads[i], own, dqkv, all, options);
                    const std::span<const float> freqs = i == 0 ? query_freqs : key_freqs;
                    check_turned(of_part, how, freqs, qkv_names[i]);
                    turn_all(of_part, how, grads[i], own, freqs, dqkv, all, true, options);
                  });
}

}  // namespace fp8lab
