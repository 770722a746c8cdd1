// SPDX-License-Identifier: Apache-2.0
#include "verify/casts.hpp"

#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

#include "fp8lab/formats/bulk.hpp"
#include "fp8lab/formats/encode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/interruption.hpp"
#include "fp8lab/formats/parallel.hpp"
#include "fp8lab/formats/targets.hpp"
#include "fp8lab/gpu/host_header.hpp"
#include "kit/provenance.hpp"
#include "verify/cast_digests.hpp"
#include "verify/cast_table.hpp"

namespace fp8lab::experiments {
namespace {

constexpr std::uint32_t chunk_bits = 20;
constexpr std::uint32_t all_chunks = 1U << (32 - chunk_bits);
constexpr std::size_t block = 1U << 13;  // floats at a time: all that a step reads and writes stays in the caches

/// The scalar encode, with a format and a rounding that the compiler knows and everything inlined: the same function,
/// several times as fast.
template <std::size_t kFormat, std::size_t kRounding>
[[gnu::flatten]] void scalar_encode(const CastPolicy& policy, std::span<const float> in,
                                    std::span<std::uint8_t> bytes) {
  constexpr Format format = named_formats[kFormat].format;
  CastPolicy own = policy;
  own.rounding = named_roundings[kRounding].value;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const auto code = encode(format, own, in[i]);
    if constexpr (format.bits() <= 8) {
      bytes[i] = static_cast<std::uint8_t>(code);
    } else {
      bytes[2 * i] = static_cast<std::uint8_t>(code);
      bytes[2 * i + 1] = static_cast<std::uint8_t>(code >> 8);
    }
  }
}
using ScalarEncode = void (*)(const CastPolicy&, std::span<const float>, std::span<std::uint8_t>);
constexpr auto scalar_encodes = []<std::size_t... kPairs>(std::index_sequence<kPairs...>) {
  constexpr std::size_t roundings = named_roundings.size();
  return std::array{static_cast<ScalarEncode>(scalar_encode<kPairs / roundings, kPairs % roundings>)...};
}(std::make_index_sequence<named_formats.size() * named_roundings.size()>());

/// Calls use(codes) with the bytes seen as codes of the format's width.
template <typename Use>
auto as_codes(const Format& format, std::span<std::uint8_t> bytes, const Use& use) {
  if (format.bits() <= 8) return use(bytes);
  return use(std::span(reinterpret_cast<std::uint16_t*>(bytes.data()), bytes.size() / 2));
}

/// The result of one chunk of one encoder.
struct ChunkResult {
  std::uint64_t mismatches = 0;
  std::optional<CastMismatch> first;
  std::uint32_t crc = 0;
};

/// Room for one thread's blocks.
struct Buffers {
  std::vector<float> in = std::vector<float>(block);
  std::vector<std::uint8_t> got = std::vector<std::uint8_t>(2 * block);
  std::vector<std::uint8_t> expected = std::vector<std::uint8_t>(2 * block);
};

void compare_block(const Format& format, std::uint32_t first, std::span<std::uint8_t> got,
                   std::span<std::uint8_t> expected, ChunkResult& result) {
  if (std::memcmp(got.data(), expected.data(), got.size()) == 0) return;
  as_codes(format, got, [&](auto ours) {
    as_codes(format, expected, [&](auto theirs) {
      for (std::size_t i = 0; i < ours.size() && i < theirs.size(); ++i) {
        if (static_cast<std::uint32_t>(ours[i]) == static_cast<std::uint32_t>(theirs[i])) continue;
        if (!result.first) result.first = {first + static_cast<std::uint32_t>(i), ours[i], theirs[i]};
        ++result.mismatches;
      }
    });
  });
}

ChunkResult check_chunk(const Format& format, const CastTable& table, const NamedEncoder& encoder, bool digest,
                        std::uint32_t chunk, Buffers& room) {
  const std::size_t width = format.bits() <= 8 ? 1 : 2;
  ChunkResult result;
  for (std::uint32_t offset = 0; offset < 1U << chunk_bits; offset += block) {
    checkpoint();
    const std::uint32_t first = (chunk << chunk_bits) + offset;
    for (std::uint32_t i = 0; i < block; ++i) room.in[i] = std::bit_cast<float>(first + i);
    const auto got = std::span(room.got).first(width * block);
    const auto expected = std::span(room.expected).first(width * block);
    encoder.encode(room.in, got);
    as_codes(format, expected, [&](auto codes) { table.fill(first, codes); });
    compare_block(format, first, got, expected, result);
    if (digest) result.crc = static_cast<std::uint32_t>(crc32_z(result.crc, got.data(), got.size()));
  }
  return result;
}

/// All chunks of one encoder, and the digest of the whole where it is asked for.
std::pair<EncoderCheck, std::uint32_t> check_encoder(const Format& format, const CastTable& table,
                                                     const NamedEncoder& encoder, bool digest,
                                                     std::span<const std::uint32_t> chunks, int threads,
                                                     const Progress& progress) {
  std::vector<ChunkResult> results(chunks.size());
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  parallel_for(static_cast<std::size_t>(threads), threads, [&](std::size_t /*first*/, std::size_t /*last*/) {
    Buffers room;
    try {
      for (std::size_t i = next++; i < chunks.size(); i = next++) {
        results[i] = check_chunk(format, table, encoder, digest, chunks[i], room);
        const std::scoped_lock lock(mutex);
        if (progress) progress(static_cast<double>(i) / static_cast<double>(chunks.size()));
      }
    } catch (...) {
      next = chunks.size();  // the others need not go on
      throw;
    }
  });
  EncoderCheck check{.name = encoder.name, .mismatches = 0, .first = {}};
  std::uint32_t crc = 0;
  const z_off_t bytes = z_off_t{format.bits() <= 8 ? 1 : 2} << chunk_bits;
  for (const ChunkResult& result : results) {
    check.mismatches += result.mismatches;
    if (!check.first) check.first = result.first;
    if (digest) crc = static_cast<std::uint32_t>(crc32_combine(crc, result.crc, bytes));
  }
  return {check, crc};
}

/// The bulk encode, on the target that is forced, or the scalar one.
NamedEncoder library_encoder(const NamedFormat& named, const CastPolicy& policy, std::string_view target) {
  if (target == "scalar") {
    const auto format = static_cast<std::size_t>(std::ranges::find(named_formats, named.name, &NamedFormat::name) -
                                                 named_formats.begin());
    const ScalarEncode run =
        scalar_encodes[format * named_roundings.size() + static_cast<std::size_t>(policy.rounding)];
    return {"scalar", [run, policy](auto in, auto bytes) { run(policy, in, bytes); }};
  }
  return {std::string(target), [format = named.format, policy](auto in, auto bytes) {
            as_codes(format, bytes, [&](auto codes) { encode(format, policy, in, codes); });
          }};
}

/// Reduces a policy to the parts that change the codes of floats in this format: equal results mean equal codes.
CastPolicy effective(const Format& format, CastPolicy policy) {
  const auto normal = [&](Overflow overflow) {
    const bool special = overflow == Overflow::to_special ||
                         (overflow != Overflow::saturate && format.has_infinity()) ||
                         (overflow == Overflow::to_infinity_or_sole_nan && format.has_sole_nan());
    return special && format.has_nan() ? Overflow::to_special : Overflow::saturate;
  };
  policy.overflow = normal(policy.overflow);
  policy.infinity = normal(policy.infinity);
  if (format.has_nan()) policy.missing_nan = {};
  if (!format.has_nan() && policy.nan != NanCode::negative_largest) policy.nan = NanCode::largest;
  const bool is_number = policy.nan == NanCode::largest || policy.nan == NanCode::negative_largest;
  if (format.specials == Specials::nan_at_negative_zero && !is_number) policy.nan = {};
  const bool one_nan = format.specials == Specials::nan_at_all_ones;
  if (one_nan && !is_number && policy.nan != NanCode::positive_all_ones) {
    policy.nan = format.is_signed ? NanCode::sign_all_ones : NanCode::positive_all_ones;
  }
  policy.nan_of_double = {};
  policy.float64_via_float32 = false;
  if (format.is_signed) policy.negative = {};
  if (format.has_subnormals) {
    policy.zero = {};
    policy.smallest = {};
  }
  return policy;
}

struct Combination {
  NamedFormat format;
  Profile profile;
  CastPolicy policy;
};

bool is_for_e8m0_alone(const Profile& profile) { return profile.name.starts_with("e8m0_"); }

/// Whether a profile is asked for in a rounding that is not its own.
bool is_asked(const VerifyCastsArguments& arguments, const Profile& profile, std::string_view rounding) {
  if (!arguments.roundings.empty()) return std::ranges::count(arguments.roundings, rounding) != 0;
  return find_value<Rounding>("rounding", rounding) == profile.policy.rounding || !arguments.profiles.empty() ||
         profile.name == "cuda_satfinite";
}

std::vector<Combination> combinations_of(const VerifyCastsArguments& arguments) {
  std::vector<NamedFormat> formats;
  formats.reserve(arguments.formats.size());
  for (const std::string& name : arguments.formats) formats.push_back(find_format(name));
  if (formats.empty()) formats.assign(named_formats.begin(), named_formats.end());
  std::vector<Profile> wanted;
  wanted.reserve(arguments.profiles.size());
  for (const std::string& name : arguments.profiles) wanted.push_back(find_profile(name));
  if (wanted.empty()) wanted.assign(profiles.begin(), profiles.end());
  for (const std::string& name : arguments.roundings) {
    if (find_value<Rounding>("rounding", name) == Rounding::stochastic) {
      throw std::invalid_argument("rounding 'stochastic' depends on random bits, not on the float alone");
    }
  }
  std::vector<Combination> list;
  for (const NamedFormat& format : formats) {
    for (const Profile& profile : wanted) {
      for (const Named<Rounding>& named : named_roundings) {
        if (named.value == Rounding::stochastic || !is_asked(arguments, profile, named.name)) continue;
        // The rounding of a profile for E8M0 alone belongs to it.
        const bool alone = is_for_e8m0_alone(profile);
        if (alone && (format.format != e8m0 || named.value != profile.policy.rounding)) continue;
        list.push_back({format, profile, profile.policy});
        list.back().policy.rounding = named.value;
      }
    }
  }
  if (list.empty())
    throw std::invalid_argument("no combination of these lists can be verified: e8m0_ profiles are for e8m0 alone");
  return list;
}

std::vector<std::uint32_t> chunks_of(const VerifyCastsArguments& arguments, std::size_t combination) {
  std::vector<std::uint32_t> chunks(all_chunks);
  std::iota(chunks.begin(), chunks.end(), 0U);
  if (arguments.all) return chunks;
  std::mt19937_64 random(arguments.seed * 1'000'003 + combination);
  for (int i = 0; i < arguments.chunks; ++i) {
    const auto rest = chunks.size() - static_cast<std::size_t>(i);
    std::swap(chunks[static_cast<std::size_t>(i)], chunks[static_cast<std::size_t>(i) + random() % rest]);
  }
  chunks.resize(static_cast<std::size_t>(arguments.chunks));
  std::ranges::sort(chunks);
  return chunks;
}

/// Every target forced in turn, then NVIDIA's header; the first target's digest.
VerifyCastsRow verify_combination(const Combination& combination, std::span<const std::uint32_t> chunks, int threads,
                                  const Progress& progress) {
  struct Unforce {
    ~Unforce() { force_target(""); }
  } guard;
  VerifyCastsRow row;
  auto names = targets();
  if (!has_vector_encode(combination.format.format, combination.policy)) names = {"scalar"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto part = [&](double share) {
      if (progress) progress((static_cast<double>(i) + share) / static_cast<double>(names.size() + 1));
    };
    force_target(names[i]);
    const std::vector encoders{library_encoder(combination.format, combination.policy, names[i])};
    VerifyCastsRow one = verify_cast(combination.format, combination.policy, encoders, chunks, threads, part);
    row.checks.push_back(std::move(one.checks.front()));
    if (i == 0) row.digest = one.digest;
    row.inputs = one.inputs;
  }
  if (const auto header = gpu::host_conversion(combination.format.format, combination.policy)) {
    const std::vector encoders{NamedEncoder{"cuda header", [&](auto in, auto bytes) { (*header)(in, bytes); }}};
    row.checks.push_back(verify_cast(combination.format, combination.policy, encoders, chunks, threads).checks.front());
  }
  return row;
}

/// An earlier combination with the same codes; NVIDIA's headers are asked for each of their own profiles, though.
std::optional<std::size_t> same_before(const std::vector<Combination>& combinations, std::size_t i) {
  const Combination& one = combinations[i];
  if (gpu::host_conversion(one.format.format, one.policy)) return std::nullopt;
  const CastPolicy policy = effective(one.format.format, one.policy);
  for (std::size_t k = 0; k < i; ++k) {
    const Combination& other = combinations[k];
    if (other.format.name == one.format.name && effective(other.format.format, other.policy) == policy) return k;
  }
  return std::nullopt;
}

void check_arguments(const VerifyCastsArguments& arguments) {
  check_threads(arguments.threads);
  if (arguments.chunks < 1 || std::cmp_greater(arguments.chunks, all_chunks)) {
    throw std::invalid_argument("chunks must be from 1 to " + std::to_string(all_chunks) + ", not " +
                                std::to_string(arguments.chunks));
  }
}

}  // namespace

bool VerifyCastsRow::passed() const {
  return std::ranges::all_of(checks, [](const EncoderCheck& check) { return check.mismatches == 0; }) &&
         (!digest || !committed || *digest == *committed);
}
bool VerifyCastsResult::passed() const { return std::ranges::all_of(rows, &VerifyCastsRow::passed); }
std::uint64_t VerifyCastsResult::mismatches() const {
  std::uint64_t count = 0;
  for (const VerifyCastsRow& row : rows) {
    for (const EncoderCheck& check : row.checks) count += check.mismatches;
  }
  return count;
}

VerifyCastsRow verify_cast(const NamedFormat& format, const CastPolicy& policy,
                           const std::vector<NamedEncoder>& encoders, std::span<const std::uint32_t> chunks,
                           int threads, const Progress& progress) {
  const DefaultEnvironment environment;
  std::vector<std::uint32_t> every;
  if (chunks.empty()) {
    every.resize(all_chunks);
    std::iota(every.begin(), every.end(), 0U);
    chunks = every;
  }
  const bool whole = chunks.size() == all_chunks;
  const CastTable table(format.format, policy);
  VerifyCastsRow row;
  row.format = format.name;
  row.inputs = std::uint64_t{chunks.size()} << chunk_bits;
  for (std::size_t i = 0; i < encoders.size(); ++i) {
    const auto part = [&](double share) {
      if (progress) progress((static_cast<double>(i) + share) / static_cast<double>(encoders.size()));
    };
    const auto [check, crc] = check_encoder(format.format, table, encoders[i], whole && i == 0, chunks, threads, part);
    row.checks.push_back(check);
    if (whole && i == 0) row.digest = crc;
  }
  return row;
}

VerifyCastsResult verify_casts(const VerifyCastsArguments& arguments, const Progress& progress,
                               const VerifyRowDone& row_done) {
  const DefaultEnvironment environment;
  check_arguments(arguments);
  const auto combinations = combinations_of(arguments);
  VerifyCastsResult result;
  result.arguments = arguments;
  for (std::size_t i = 0; i < combinations.size(); ++i) {
    const Combination& combination = combinations[i];
    const auto start = std::chrono::steady_clock::now();
    VerifyCastsRow row;
    if (const auto same = same_before(combinations, i)) {
      row = result.rows[*same];
      row.same_as = row.same_as.empty() ? row.profile : row.same_as;
    } else {
      row = verify_combination(combination, chunks_of(arguments, i), arguments.threads, [&](double share) {
        if (progress) progress((static_cast<double>(i) + share) / static_cast<double>(combinations.size()));
      });
    }
    row.format = combination.format.name;
    row.profile = combination.profile.name;
    row.rounding = named_roundings[static_cast<std::size_t>(combination.policy.rounding)].name;
    if (row.digest) row.committed = committed_digest(row.format, row.profile, row.rounding);
    row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (row_done) row_done(row);
    result.rows.push_back(std::move(row));
  }
  return result;
}

}  // namespace fp8lab::experiments
