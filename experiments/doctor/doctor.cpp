// SPDX-License-Identifier: Apache-2.0
#include "doctor/doctor.hpp"

#include <fmt/format.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "doctor/dump_files.hpp"
#include "files/npy_writer.hpp"
#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/refuse.hpp"
#include "kit/output.hpp"

namespace fp8lab::experiments {
namespace {

/// The format of bytes that the file or the user tells. Throws where these contradict each other.
std::optional<Format> told_format(const std::optional<std::string>& wanted, std::string_view told,
                                  std::string_view called) {
  if (told.empty() && !wanted) return std::nullopt;
  const Format format = find_format(wanted.value_or(std::string(told))).format;
  if (!told.empty() && wanted && find_format(told).format != format) {
    refuse(called, " are ", told, ", as their file tells, and not ", *wanted);
  }
  return format;
}

/// Left out of bytes where nothing tells their format.
std::optional<Format> scale_type(const DoctorArguments& arguments, const TensorHeader& header) {
  if (arguments.scale_format && header.type != ElementType::uint8) {
    refuse("scale_format says what bytes are, and scales are of ", name_of(header.type));
  }
  switch (header.type) {
    case ElementType::float32: return binary32;
    case ElementType::float16: return binary16;
    case ElementType::bfloat16: return bfloat16;
    case ElementType::uint8: {
      // Scales have no sign: E4M3 is stored as that without one.
      const std::string_view told = header.format == "e4m3" ? "ue4m3" : header.format;
      const std::optional<Format> format = told_format(arguments.scale_format, told, "scales");
      if (format && *format != e8m0 && *format != ue4m3) {
        refuse("scales of a byte are e8m0 or ue4m3, not ", format_name(*format));
      }
      return format;
    }
    case ElementType::float64: break;
  }
  refuse("scales are of float64, which no kernel stores");
}

void write_probe(const std::filesystem::path& directory, const doctor::Diagnosis& diagnosis,
                 const doctor::Probe& probe) {
  std::string text = fmt::format(
      "Run probe.npy, {} x {} of float32, through the kernel. Its codes, a byte for each, then have the digest "
      "(FNV-1a,\n"
      "64 bits) of one of these hypotheses. {} of {} pairs of hypotheses differ on it.\n\n",
      probe.rows, probe.columns, probe.parted(), probe.pairs);
  for (std::size_t i = 0; i < probe.digests.size(); ++i) {
    text += fmt::format("{:016X}  {}\n", probe.digests[i], describe(diagnosis.explanations[i].hypothesis));
  }
  if (!probe.alike.empty()) text += "\nIt does not part these pairs, which may be the same arithmetic:\n";
  for (const auto& [first, second] : probe.alike) {
    text += fmt::format("- {}\n  and {}\n", describe(diagnosis.explanations[first].hypothesis),
                        describe(diagnosis.explanations[second].hypothesis));
  }
  write_files(directory,
              {{"probe.txt", std::move(text)},
               {"probe.npy", npy_of("<f4", {probe.rows, probe.columns}, std::as_bytes(std::span(probe.values)))}});
}

}  // namespace

std::array<std::uint64_t, 2> DoctorResult::place_of(std::uint64_t index) const {
  const std::uint64_t row = index / columns;
  return {sampled_rows.empty() ? row : sampled_rows[static_cast<std::size_t>(row)], index % columns};
}

DoctorResult run_doctor(const DoctorArguments& arguments) {
  const DefaultEnvironment environment;
  if (arguments.x.empty() || arguments.codes.empty()) refuse("x and codes must be given: two files");
  if (arguments.exercise) check_writable(*arguments.exercise, {"exercise.npy"});
  if (arguments.probe) check_writable(*arguments.probe, {"probe.txt", "probe.npy"});
  // 1. The files.
  DoctorResult result;
  DumpFiles files = read_dump(arguments);
  result.shape = files.shape;
  result.columns = files.x.columns();
  result.sampled_rows = std::move(files.sampled_rows);
  doctor::Dump dump;
  dump.codes = {reinterpret_cast<const std::uint8_t*>(files.codes.data()), files.codes.size()};
  dump.format = told_format(arguments.format, files.codes_header.format, "codes");
  if (!files.scales.empty()) {
    dump.scales.bytes = files.scales;
    dump.scales.format = scale_type(arguments, files.scales_header);
  }
  if (arguments.tensor_scale) dump.scales.of_tensor = static_cast<float>(*arguments.tensor_scale);
  // 2. The diagnosis.
  doctor::DiagnoseOptions options{.most_shown = arguments.most_shown, .threads = arguments.threads};
  if (arguments.expected) {
    options.expected = arguments.expected->recipe;
    options.expected_name = arguments.expected->name;
  }
  if (arguments.direction) options.direction = find_value<Direction>("direction", *arguments.direction);
  result.diagnosis = doctor::diagnose(files.x.view(), dump, options);
  result.diagnosis.notes.insert(result.diagnosis.notes.begin(), files.notes.begin(), files.notes.end());
  // 3. What would tell more.
  Format type = bfloat16;
  if (files.x.type() == ElementType::float32) type = binary32;
  if (files.x.type() == ElementType::float16) type = binary16;
  if (arguments.exercise) {
    const doctor::Hypothesis& first = result.diagnosis.explanations.front().hypothesis;
    const doctor::ExerciseInput made = doctor::exercise(first.recipe, first.direction, type);
    write_files(*arguments.exercise,
                {{"exercise.npy", npy_of("<f4", {made.rows, made.columns}, std::as_bytes(std::span(made.values)))}});
  }
  if (!arguments.probe) return result;
  std::vector<doctor::Hypothesis> hypotheses;
  hypotheses.reserve(result.diagnosis.explanations.size());
  for (const doctor::Explanation& one : result.diagnosis.explanations) hypotheses.push_back(one.hypothesis);
  if (hypotheses.size() < 2) refuse("a probe parts at least two explanations; shown is ", arguments.most_shown);
  result.probe = doctor::probe(hypotheses, type);
  write_probe(*arguments.probe, result.diagnosis, *result.probe);
  return result;
}

}  // namespace fp8lab::experiments
