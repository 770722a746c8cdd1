// SPDX-License-Identifier: Apache-2.0
// Registers the experiment `doctor`: what a quantization kernel did.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "doctor/doctor.hpp"
#include "fp8lab/formats/decode.hpp"
#include "fp8lab/formats/environment.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {
namespace {

/// A row of the table of explanations.
struct ExplanationRow {
  std::size_t rank;
  std::string hypothesis;
  std::uint64_t codes, scales;
  bool is_tied;
};

Table explanations_table(const doctor::Diagnosis& diagnosis) {
  std::vector<ExplanationRow> rows;
  for (std::size_t i = 0; i < diagnosis.explanations.size(); ++i) {
    const doctor::Explanation& one = diagnosis.explanations[i];
    rows.push_back({i + 1, describe(one.hypothesis), one.codes, one.scales, i < diagnosis.tied});
  }
  return tabulate(rows, {.name = "explanations", .title = "What explains the output, the best first"})
      .column({"rank"}, &ExplanationRow::rank)
      .column({"hypothesis"}, &ExplanationRow::hypothesis)
      .column({.name = "codes", .title = "codes unexplained"}, &ExplanationRow::codes)
      .column({.name = "scales", .title = "scales unexplained"}, &ExplanationRow::scales)
      .column({.name = "tied", .title = "the first, or not told from it", .detail = true},
              [](const ExplanationRow& row) { return row.is_tied ? 1 : 0; });
}

Table exercised_table(const doctor::Diagnosis& diagnosis) {
  return tabulate(diagnosis.exercised,
                  {.name = "exercised", .title = "What the input has that tells kernels apart", .detail = true})
      .column({"kind"}, [](const doctor::Exercised& one) { return std::string(name_of(one.kind)); })
      .column({"count"}, &doctor::Exercised::count)
      .column({.name = "needed", .title = "an input can have it"},
              [](const doctor::Exercised& one) { return one.is_needed ? 1 : 0; });
}

Table discriminators_table(const DoctorResult& result) {
  const doctor::Diagnosis& diagnosis = result.diagnosis;
  using One = doctor::Discriminator;
  const auto hex = [](std::uint8_t code) { return fmt::format("{:02X}", code); };
  const auto value = [&diagnosis](std::uint8_t code) { return static_cast<double>(decode(diagnosis.format, code)); };
  return tabulate(diagnosis.discriminators,
                  {.name = "discriminators",
                   .title = "Elements that tell the first explanation from the next that makes other codes",
                   .detail = diagnosis.discriminators.empty()})
      .column({"index"},
              [&](const One& one) {
                return result.place_of(one.index)[0] * result.columns + result.place_of(one.index)[1];
              })
      .column({"row"}, [&](const One& one) { return result.place_of(one.index)[0]; })
      .column({"column"}, [&](const One& one) { return result.place_of(one.index)[1]; })
      .column({.name = "x", .digits = 9}, &One::x)
      .column({.name = "code", .right = true}, [hex](const One& one) { return hex(one.code); })
      .column({.name = "first", .right = true}, [hex](const One& one) { return hex(one.first); })
      .column({.name = "second", .right = true}, [hex](const One& one) { return hex(one.second); })
      .column({.name = "value", .digits = 9}, [value](const One& one) { return value(one.code); })
      .column({.name = "value_first", .digits = 9}, [value](const One& one) { return value(one.first); })
      .column({.name = "value_second", .digits = 9}, [value](const One& one) { return value(one.second); });
}

Text verdict_text(const DoctorResult& result) {
  const doctor::Diagnosis& diagnosis = result.diagnosis;
  Text text{"verdict", "", {diagnosis.verdict}};
  text.paragraphs.insert(text.paragraphs.end(), diagnosis.rest.begin(), diagnosis.rest.end());
  text.paragraphs.insert(text.paragraphs.end(), diagnosis.notes.begin(), diagnosis.notes.end());
  if (diagnosis.factor) {
    text.paragraphs.push_back(fmt::format("One factor from {:.9g} to {:.9g} for all elements would explain all codes.",
                                          diagnosis.factor->lowest, diagnosis.factor->highest));
  }
  if (result.probe) {
    text.paragraphs.push_back(fmt::format("The probe is an input on which {} of {} pairs of explanations differ.",
                                          result.probe->parted(), result.probe->pairs));
  }
  return text;
}

void describe(DoctorArguments& arguments, ArgumentList& list) {
  list.add("x", arguments.x, "what the kernel read: floats of a .npy or .safetensors file, an index or a folder")
      .positional();
  list.add("codes", arguments.codes, "the codes that it wrote: a file of bytes").positional();
  list.add("scales", arguments.scales, "the scales that it wrote: floats, or codes of E8M0 or E4M3").positional();
  list.add("format", arguments.format, "what codes are, where the file does not tell: e4m3, e5m2, e2m1, ...")
      .called("NAME")
      .by_default("what the file tells, or any");
  list.add("scale_format", arguments.scale_format, "what scales of a byte are: e8m0 or ue4m3")
      .called("NAME")
      .by_default("what a recipe stores")
      .needing({"scales"});
  list.add("tensor_scale", arguments.tensor_scale, "the scale of the tensor over those of blocks, or its inverse");
  list.add("tensors", arguments.names, "tensors of .safetensors files: of x, of codes and of scales, in this order")
      .called("NAMES")
      .by_default("the only one of each file")
      .with_repeats();
  list.add("expected", arguments.expected, "what the kernel should do");
  list.add("direction", arguments.direction, "rowwise or columnwise")
      .called("NAME")
      .by_default("rowwise, then columnwise");
  list.add("elements", arguments.most_elements,
           "how many elements of x to look at; of a larger x some rows are sampled")
      .by_default("2^28, of a larger x 2^24");
  list.add("shown", arguments.most_shown, "how many explanations and elements to list");
  list.add("strict", arguments.strict, "end with status 3 where the input does not show all that tells kernels apart");
  list.add("exercise", arguments.exercise, "where to write an input that shows all of it, under the first explanation")
      .called("DIR");
  list.add("probe", arguments.probe, "where to write an input on which the explanations differ").called("DIR");
  list.add_threads(arguments.threads);
}

Document run(const DoctorArguments& arguments, const Context& /*context*/) {
  const DoctorResult result = run_doctor(arguments);
  const DefaultEnvironment environment;
  Document document;
  document.passed = result.diagnosis.correct();
  document.in_part = arguments.strict && !result.diagnosis.unexercised().empty();
  document.sections = sections_of(verdict_text(result), explanations_table(result.diagnosis),
                                  discriminators_table(result), exercised_table(result.diagnosis));
  return document;
}

}  // namespace

std::vector<Experiment> doctor_experiments() {
  return {experiment<DoctorArguments>(
      {.name = "doctor",
       .summary = "Say what a quantization kernel did, from its input and its output",
       .description =
           "Searches what explains every code and every scale that a kernel wrote: the named recipes and the casts of "
           "profiles, then another value in one field of a recipe, one departure that no recipe says (double rounding, "
           "a scale rounded too late, tiles that begin one element early, swapped bytes, a tail that was not written, "
           "...), then two and three of these. Says when the data cannot tell some apart, and writes an input that "
           "does.",
       .result = "text `verdict`, tables `explanations`, `discriminators`, `exercised`",
       .passed = "a named recipe, or the expected one, explains everything",
       .not_passed = "not what a named recipe, or the expected one, does",
       .status_not_passed = 1,
       .passed_in_part = "with --strict: correct, but the input does not show all",
       .examples = {{"doctor x.npy codes.npy scales.npy", "which recipe is it, or what is wrong?"},
                    {"doctor x.npy codes.npy --format e4m3 --expected te_mxfp8", "told from what it should do"},
                    {"doctor x.npy codes.npy scales.npy --probe probe", "with an input that tells more"}},
       .small = R"({"x": "x.npy", "codes": "codes.npy"})"},
      describe, run)};
}

}  // namespace fp8lab::experiments
