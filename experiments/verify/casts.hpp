// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fp8lab/formats/format.hpp"
#include "fp8lab/formats/policy.hpp"
#include "kit/document.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

/// The casts to verify, and how many of their inputs.
struct VerifyCastsArguments {
  std::vector<std::string> formats = {};   ///< names; all where empty
  std::vector<std::string> profiles = {};  ///< names; all where empty. Those with e8m0 in their name are for E8M0 alone
  std::vector<std::string> roundings = {};  ///< names; where neither is given: every profile with its own rounding, and
                                            ///< every other rounding with cuda_satfinite
  bool all = false;                         ///< all 2^32 floats, and their digests
  int chunks = 4;  ///< otherwise so many seeded chunks of 2^20 consecutive floats, a combination
  std::uint64_t seed = 1;
  int threads = 1;
};

/// One element that is wrong.
struct CastMismatch {
  std::uint32_t input;  ///< the float's bit pattern
  std::uint32_t got;
  std::uint32_t expected;
};

/// One way to encode, held against the exact codes.
struct EncoderCheck {
  std::string name;
  std::uint64_t mismatches = 0;
  std::optional<CastMismatch> first;  ///< the lowest input that is wrong
};

/// One combination.
struct VerifyCastsRow {
  std::string format;
  std::string profile;
  std::string rounding;
  std::string same_as;  ///< the profile that means the same for this format and whose checks these are, or empty
  std::uint64_t inputs = 0;
  std::vector<EncoderCheck> checks;     ///< one a target, "scalar", and "cuda header" where NVIDIA has the combination
  std::optional<std::uint32_t> digest;  ///< CRC-32 of all 2^32 codes in the order of the floats' bit patterns
  std::optional<std::uint32_t> committed;  ///< the digest that is kept in the sources, where there is one
  double seconds = 0;

  [[nodiscard]] bool passed() const;
};

struct VerifyCastsResult {
  VerifyCastsArguments arguments;
  std::vector<VerifyCastsRow> rows;
  [[nodiscard]] bool passed() const;
  [[nodiscard]] std::uint64_t mismatches() const;
};

/// Encodes floats to codes of one byte, or of two where the format has more than 8 bits, lower byte first.
using EncodeBytes = std::function<void(std::span<const float> in, std::span<std::uint8_t> bytes)>;

/// Something that encodes, by the name it is reported under.
struct NamedEncoder {
  std::string name;
  EncodeBytes encode;
};

/// Holds one combination's `encoders`, one after the other, against codes that come from the exact values of the format
/// (where between two values each code begins), and digests the first encoder's output.
///
/// @param chunks numbers below 4096 of the chunks of 2^20 floats to check, all where empty
[[nodiscard]] VerifyCastsRow verify_cast(const NamedFormat& format, const CastPolicy& policy,
                                         const std::vector<NamedEncoder>& encoders,
                                         std::span<const std::uint32_t> chunks, int threads,
                                         const Progress& progress = {});

/// Called with each row when it is done.
using VerifyRowDone = std::function<void(const VerifyCastsRow&)>;

/// Verifies every combination that the arguments name: each vector target and the scalar code, and NVIDIA's host
/// headers where fp8lab was built with them. Makes use of force_target(), so nothing else may run meanwhile.
///
/// Throws std::invalid_argument for unknown names, lists that leave nothing to verify, the rounding `stochastic`, and
/// counts below 1 or, for chunks, above 4096.
[[nodiscard]] VerifyCastsResult verify_casts(const VerifyCastsArguments& arguments, const Progress& progress = {},
                                             const VerifyRowDone& row_done = {});

/// Tables `rows` with a row for each combination and `checks` with one for each way to encode it.
[[nodiscard]] Document document_of(const VerifyCastsResult& result);

}  // namespace fp8lab::experiments
