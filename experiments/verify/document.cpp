// SPDX-License-Identifier: Apache-2.0
// Registers the experiments that compare casts and tensor cores with exact values and with recorded ones.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "files/tensor_file.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/targets.hpp"
#include "kit/experiment.hpp"
#include "verify/casts.hpp"
#include "verify/tensor_cores.hpp"

namespace fp8lab::experiments {
namespace {

std::string hex(std::uint64_t word) { return fmt::format("{:08x}", word); }
template <typename T, typename Word>
std::optional<std::string> hex(const std::optional<T>& found, Word T::* word) {
  return found ? std::optional(hex((*found).*word)) : std::nullopt;
}
std::optional<std::string> hex(const std::optional<std::uint32_t>& word) {
  return word ? std::optional(hex(*word)) : std::nullopt;
}
std::optional<std::string> filled(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

/// A row and one of its checks.
template <typename Row, typename Check>
struct CheckOfRow {
  const Row& row;
  const Check& check;
};
template <typename Check, typename Row>
std::vector<CheckOfRow<Row, Check>> checks_of(const std::vector<Row>& rows) {
  std::vector<CheckOfRow<Row, Check>> all;
  for (const Row& row : rows) {
    for (const Check& check : row.checks) all.push_back({row, check});
  }
  return all;
}

// Casts.

using CastCheck = CheckOfRow<VerifyCastsRow, EncoderCheck>;

std::uint64_t mismatches_of(const VerifyCastsRow& row) {
  std::uint64_t count = 0;
  for (const EncoderCheck& check : row.checks) count += check.mismatches;
  return count;
}

Table rows_table(const VerifyCastsResult& result) {
  Head inputs{.name = "inputs", .detail = true};
  return tabulate(result.rows, {.name = "rows"})
      .column({"format"}, [](const VerifyCastsRow& row) { return row.format; })
      .column({"profile"}, [](const VerifyCastsRow& row) { return row.profile; })
      .column({"rounding"}, [](const VerifyCastsRow& row) { return row.rounding; })
      .column({"mismatches"}, mismatches_of)
      .column(inputs, [](const VerifyCastsRow& row) { return row.inputs; })
      .column({"digest"}, [](const VerifyCastsRow& row) { return hex(row.digest); })
      .column({"committed", "digest kept"}, [](const VerifyCastsRow& row) { return hex(row.committed); })
      .column({"same_as", "the same as"}, [](const VerifyCastsRow& row) { return filled(row.same_as); })
      .column({.name = "seconds", .title = "time", .unit = "s", .notation = Notation::fixed, .digits = 1},
              [](const VerifyCastsRow& row) { return row.seconds; });
}

Table checks_table(const std::vector<CastCheck>& checks) {
  return tabulate(checks, {.name = "checks", .detail = true})
      .column({"format"}, [](const CastCheck& one) { return one.row.format; })
      .column({"profile"}, [](const CastCheck& one) { return one.row.profile; })
      .column({"rounding"}, [](const CastCheck& one) { return one.row.rounding; })
      .column({"encoder"}, [](const CastCheck& one) { return one.check.name; })
      .column({"mismatches"}, [](const CastCheck& one) { return one.check.mismatches; })
      .column({"first_input"}, [](const CastCheck& one) { return hex(one.check.first, &CastMismatch::input); })
      .column({"first_got"}, [](const CastCheck& one) { return hex(one.check.first, &CastMismatch::got); })
      .column({"first_expected"}, [](const CastCheck& one) { return hex(one.check.first, &CastMismatch::expected); });
}

Text wrong_casts(const std::vector<CastCheck>& checks) {
  Text text{.name = "wrong", .title = "What is wrong"};
  for (const auto& [row, check] : checks) {
    if (check.mismatches == 0 || !row.same_as.empty()) continue;
    std::string sentence =
        fmt::format("{} {} {}, {}: {} wrong", row.format, row.profile, row.rounding, check.name, check.mismatches);
    const std::optional<CastMismatch>& first = check.first;
    if (first) {
      sentence +=
          fmt::format("; first float {:08x} gives {:08x}, exact is {:08x}", first->input, first->got, first->expected);
    }
    text.paragraphs.push_back(std::move(sentence));
  }
  return text;
}

Text summary_of(const VerifyCastsResult& result) {
  std::size_t kept = 0;
  std::size_t own = 0;
  std::vector<std::string> encoders;
  for (const VerifyCastsRow& row : result.rows) {
    if (row.committed && row.digest && *row.committed == *row.digest) ++kept;
    if (row.same_as.empty()) ++own;
    for (const EncoderCheck& check : row.checks) {
      if (std::ranges::find(encoders, check.name) == encoders.end()) encoders.push_back(check.name);
    }
  }
  std::string names;
  for (const std::string& name : encoders) names += (names.empty() ? "" : ", ") + name;
  Text text{
      "verdict",
      "",
      {fmt::format("Each of {} was compared, float by float, with codes that follow from the exact values of the "
                   "format. (cuda header: NVIDIA's header, for the combinations that it has. Where a cast has no "
                   "vector code, every target runs scalar code.)",
                   names),
       fmt::format("Combinations: {}, run: {}; the others mean the same for their format.", result.rows.size(), own)}};
  if (result.arguments.all) {
    text.paragraphs.push_back(
        fmt::format("Digests are CRC-32 of all codes in the order of the floats' bit patterns; {} "
                    "of {} equal the ones kept in the sources.",
                    kept, result.rows.size()));
  }
  text.paragraphs.push_back(
      fmt::format("{} mismatches: {}", result.mismatches(), result.passed() ? "verified" : "NOT verified"));
  return text;
}

std::string note_of(const VerifyCastsRow& row) {
  return fmt::format("{} {} {}: {} mismatches", row.format, row.profile, row.rounding, mismatches_of(row));
}

// Tensor cores.

using CoreCheck = CheckOfRow<VerifyTensorCoresRow, ProductCheck>;

Table rows_table(const VerifyTensorCoresResult& result) {
  return tabulate(result.rows, {.name = "rows"})
      .column({"model"}, [](const VerifyTensorCoresRow& row) { return row.model; })
      .column({"kind"}, [](const VerifyTensorCoresRow& row) { return row.kind; })
      .column({"sets"}, [](const VerifyTensorCoresRow& row) { return row.checks.size(); })
      .column({"compared", "dot products"}, [](const VerifyTensorCoresRow& row) { return row.compared(); })
      .column({"mismatches"}, [](const VerifyTensorCoresRow& row) { return row.mismatches(); });
}

Table checks_table(const std::vector<CoreCheck>& checks) {
  const auto first_index = [](const CoreCheck& one) {
    return one.check.first ? std::optional(one.check.first->index) : std::nullopt;
  };
  return tabulate(checks, {.name = "checks", .detail = true})
      .column({"model"}, [](const CoreCheck& one) { return one.row.model; })
      .column({"kind"}, [](const CoreCheck& one) { return one.row.kind; })
      .column({"set"}, [](const CoreCheck& one) { return one.check.name; })
      .column({"compared"}, [](const CoreCheck& one) { return one.check.compared; })
      .column({"mismatches"}, [](const CoreCheck& one) { return one.check.mismatches; })
      .column({"first_index"}, first_index)
      .column({"first_got"}, [](const CoreCheck& one) { return hex(one.check.first, &ProductMismatch::got); })
      .column({"first_expected"},
              [](const CoreCheck& one) { return hex(one.check.first, &ProductMismatch::expected); });
}

Text wrong_products(const std::vector<CoreCheck>& checks) {
  Text text{.name = "wrong", .title = "What is wrong"};
  for (const auto& [row, check] : checks) {
    const std::optional<ProductMismatch>& first = check.first;
    if (!first) continue;
    text.paragraphs.push_back(fmt::format("{}: {} wrong; first dot product {} gives {:08x}, expected {:08x}",
                                          check.name, check.mismatches, first->index, first->got, first->expected));
  }
  return text;
}

/// The counts of all models together.
struct KindTotals {
  std::string kind;
  std::uint64_t models = 0, compared = 0, mismatches = 0;
};

Table kinds_table(const VerifyTensorCoresResult& result) {
  std::vector<KindTotals> kinds;
  for (const char* kind : {"targets", "vectors", "chains", "GPU rows"}) {
    KindTotals totals{kind};
    for (const VerifyTensorCoresRow& row : result.rows) {
      if (row.kind != kind) continue;
      ++totals.models;
      totals.compared += row.compared();
      totals.mismatches += row.mismatches();
    }
    if (totals.models > 0) kinds.push_back(totals);
  }
  return tabulate(kinds, {.name = "kinds"})
      .column({"kind"}, [](const KindTotals& totals) { return totals.kind; })
      .column({"models"}, [](const KindTotals& totals) { return totals.models; })
      .column({"compared", "dot products"}, [](const KindTotals& totals) { return totals.compared; })
      .column({"mismatches"}, [](const KindTotals& totals) { return totals.mismatches; });
}

Text intro_of(const VerifyTensorCoresArguments& arguments) {
  std::string names;
  for (const std::string_view name : targets()) {
    if (name != "scalar") names += (names.empty() ? "" : ", ") + std::string(name);
  }
  Text text{
      "intro",
      "",
      {fmt::format("Tensor cores, bit for bit. targets: at least {} dot products a model (seed {}), {} against the "
                   "scalar code",
                   arguments.dots, arguments.seed, names)}};
  if (arguments.vectors) {
    text.paragraphs.push_back(fmt::format("vectors, chains: {}, under MMA-Sim's zero rule; chains also promoted",
                                          printable(arguments.vectors->native())));
  }
  if (arguments.rows) text.paragraphs.push_back("GPU rows: " + printable(arguments.rows->native()));
  return text;
}

Text verdict_of(const VerifyTensorCoresResult& result) {
  Text text{.name = "verdict"};
  for (const std::string& source : result.sources) text.paragraphs.push_back("Source: " + printable(source));
  text.paragraphs.push_back(fmt::format("{} dot products, {} mismatches: {}", result.compared(), result.mismatches(),
                                        result.passed() ? "verified" : "NOT verified"));
  return text;
}

/// The table of totals over all rows.
template <typename Result>
Table totals_table(const Result& result) {
  const std::array all{&result};
  auto table = tabulate(all, {.name = "summary", .detail = true});
  if constexpr (requires { result.compared(); }) {
    table.column({"compared"}, [](const Result* one) { return one->compared(); });
  }
  return table.column({"mismatches"}, [](const Result* one) { return one->mismatches(); });
}

// Arguments.

/// Reads the names of what `find` finds.
template <auto find>
std::string found_name(const std::string& name) {
  (void)find(name);
  return name;
}
std::string found_rounding(const std::string& name) {
  return std::string(name_of(find_value<Rounding>("rounding", name)));
}
std::string own_name(const std::string& name) { return name; }

void describe(VerifyCastsArguments& arguments, ArgumentList& list) {
  list.add_named("formats", arguments.formats, "formats to verify", found_name<find_format>, own_name)
      .by_default("all");
  list.add_named("profiles", arguments.profiles, "profiles to verify", found_name<find_profile>, own_name)
      .by_default("all");
  list.add_named("roundings", arguments.roundings, "rounding modes to verify", found_rounding, own_name)
      .by_default("the rounding of each profile, and all of them for cuda_satfinite");
  list.add("all", arguments.all, "cast all 2^32 floats for each combination, and check the digest of the codes");
  list.add("chunks", arguments.chunks, "the number of random chunks of 2^20 floats for each combination, 1 to 4096")
      .excluding({"all"});
  list.add("seed", arguments.seed, "the seed that chooses the chunks").excluding({"all"});
  list.add_threads(arguments.threads);
}

void describe(VerifyTensorCoresArguments& arguments, ArgumentList& list) {
  list.add_named("models", arguments.models, "models to verify", found_name<find_model>, own_name).by_default("all");
  list.add("dots", arguments.dots, "the least number of dot products for each model and instruction set");
  list.add("seed", arguments.seed, "the seed of the operands");
  list.add("vectors", arguments.vectors,
           "also check the vectors and chains recorded in this file, such as tests/vectors/mma_sim.json");
  list.add("rows", arguments.rows,
           "also check the rows measured on GPUs in this file: JSON, plain or gzipped, with `source` and `groups`, "
           "each with "
           "`gpu`, `model`, `fmt`, `cd` and `cases`");
  list.add_threads(arguments.threads);
}

Document run(const VerifyCastsArguments& arguments, const Context& context) {
  return document_of(verify_casts(arguments, context.progress, [&](const VerifyCastsRow& row) {
    if (context.note) context.note(note_of(row));
  }));
}
Document run(const VerifyTensorCoresArguments& arguments, const Context& context) {
  return document_of(verify_tensor_cores(arguments, context.progress, [&](const VerifyTensorCoresRow& row) {
    if (context.note) {
      context.note(
          fmt::format("{} {}: {} dot products, {} mismatches", row.model, row.kind, row.compared(), row.mismatches()));
    }
  }));
}

Experiment casts_experiment() {
  return experiment<VerifyCastsArguments>(
      {.name = "verify casts",
       .summary = "Check every cast from float32 against the exact values of its format, on every instruction set",
       .description =
           "For each combination of format, profile and rounding, the code of every float is compared with the one "
           "that follows from the exact values of the format: from the points between two neighbours at which each "
           "code begins. Checked are the vector code of every instruction set, the scalar code, and NVIDIA's host "
           "header where fp8lab was built beside the CUDA toolkit.",
       .result = "tables `rows` (a row for each combination) and `checks` (a row for each way to encode it); `passed` "
                 "tells whether all are exact",
       .not_passed = "something is not exact",
       .examples = {{"verify casts", "a seeded sample of every combination"},
                    {"verify casts --all --formats e4m3", "all 2^32 floats, and their digests"},
                    {"verify casts --all", "everything: about 40 minutes on two cores"}},
       .small = R"({"formats": ["e2m1"], "roundings": ["nearest_even"], "chunks": 1})"},
      describe, run);
}

Experiment tensor_cores_experiment() {
  return experiment<VerifyTensorCoresArguments>(
      {.name = "verify tensor-cores",
       .summary =
           "Check every tensor core's vector code against its scalar code, and the scalar code against recorded words",
       .description =
           "For each model, the vector code of every instruction set is compared with the scalar code, in GEMMs of "
           "difficult operands: all formats, carries, cancellation, subnormals, zeros, NaN, K of one instruction and "
           "of several, with and without promotion. The scalar code is compared with files of recorded words, JSON "
           "or gzipped JSON. The word of every dot product must be equal.",
       .result = "tables `rows` (a row for each model and kind), `checks` (a row for each set of dot products) and "
                 "`kinds`; `passed` tells whether all are equal",
       .not_passed = "something is not equal",
       .examples = {{"verify tensor-cores", "every model"},
                    {"verify tensor-cores --vectors tests/vectors/mma_sim.json", "and what MMA-Sim computed"},
                    {"verify tensor-cores --models hopper_wgmma_fp8 --dots 100000000", ""}},
       .small = R"({"models": ["hopper_wgmma_fp8"], "dots": 10})"},
      describe, run);
}

}  // namespace

Document document_of(const VerifyCastsResult& result) {
  const DefaultEnvironment environment;
  const VerifyCastsArguments& arguments = result.arguments;
  const std::string floats = arguments.all
                                 ? std::string("all 2^32 floats")
                                 : fmt::format("{} x 2^20 floats (seed {})", arguments.chunks, arguments.seed);
  const auto checks = checks_of<EncoderCheck>(result.rows);
  Document document{.passed = result.passed()};
  document.sections = sections_of(Text{"intro", "", {"Casts from float32: " + floats + " a combination"}},
                                  rows_table(result), checks_table(checks), totals_table(result));
  const Text wrong = wrong_casts(checks);
  if (!wrong.paragraphs.empty()) document.sections.emplace_back(wrong);
  document.sections.emplace_back(summary_of(result));
  return document;
}

Document document_of(const VerifyTensorCoresResult& result) {
  const DefaultEnvironment environment;
  const auto checks = checks_of<ProductCheck>(result.rows);
  Document document{.passed = result.passed()};
  document.sections =
      sections_of(intro_of(result.arguments), rows_table(result), checks_table(checks), totals_table(result));
  const Text wrong = wrong_products(checks);
  if (!wrong.paragraphs.empty()) document.sections.emplace_back(wrong);
  document.sections.emplace_back(kinds_table(result));
  document.sections.emplace_back(verdict_of(result));
  return document;
}

std::vector<Experiment> verify_experiments() { return {casts_experiment(), tensor_cores_experiment()}; }

}  // namespace fp8lab::experiments
