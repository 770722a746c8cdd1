// SPDX-License-Identifier: Apache-2.0
// The calls of experiments.
#include <algorithm>
#include <sstream>

#include "accumulate/accumulate.hpp"
#include "accumulate/harmonic.hpp"
#include "cast/cast.hpp"
#include "check/check.hpp"
#include "delayed/delayed.hpp"
#include "dot/dot.hpp"
#include "double_rounding/double_rounding.hpp"
#include "environment_calls.hpp"
#include "files/amax_trace.hpp"
#include "fp8lab/reference/measure/exact_sqnr.hpp"
#include "fp8lab/reference/scaling/representable.hpp"
#include "kit/dots.hpp"
#include "kit/picture.hpp"
#include "kit/render.hpp"
#include "primer/primer.hpp"
#include "scaling/scaling.hpp"
#include "train/train.hpp"
#include "transpose/transpose.hpp"
#include "verify/casts.hpp"
#include "verify/tensor_cores.hpp"

namespace fp8lab::tests::environment {
namespace {

using namespace experiments;  // NOLINT(google-build-using-namespace)

/// JSON without what tells when and where it was made. Text alone: the lines of those keys are cut out.
std::string timeless(const std::string& text) {
  std::istringstream lines(text);
  std::string kept;
  bool in_provenance = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("\"provenance\": {") != std::string::npos) in_provenance = true;
    if (!in_provenance) kept += line + '\n';
    if (line.find('}') != std::string::npos) in_provenance = false;
  }
  return kept;
}
/// A result's files and reports.
template <typename Result>
std::string bytes_of(const Result& result) {
  const Document document = document_of(result);
  std::string all;
  for (const auto& [name, content] : files_of(document)) all += name + ": " + timeless(content);
  for (const bool unicode : {true, false}) {
    all += text_of(document, {.unicode = unicode}) + text_of(document, {.unicode = unicode, .width = 40});
  }
  return all;
}

/// Pictures, whose axes have numbers.
std::string drawn_pictures() {
  std::string all;
  const TextStyle style{.width = 90};
  std::vector<double> x;
  std::vector<double> y;
  for (std::size_t i = 0; i < 40; ++i) {
    x.push_back(1000.5 + 1e4 * static_cast<double>(i));
    y.push_back(std::abs(in().near[i]));
  }
  Histogram h(BinadeBins{-4, 4});
  h.add(in().near);
  for (const AxisOfX axis : {AxisOfX::linear, AxisOfX::logarithmic}) all += draw_lines({{'o', x, y}}, style, axis);
  const Counts counts = counts_of(h, "near", "");
  return all + draw_binades({&counts}, style, 0.01) + bar(scale, 1.1, 30, style);
}

std::string parsed() {
  std::istringstream csv("step,a@0,a@1\n1000,0.1,1e-40\n2000,3.3333333333333333,1.17549429e-38\n");
  const AmaxTrace trace = parse_amax_trace(csv, "test");
  std::string all;
  for (const auto& tensor : trace.tensors) {
    for (const auto& amaxes : tensor.amaxes) all += bytes(amaxes);
  }
  const DotOperand operand = operand_of_values(e4m3, std::span(in().doubles).first(64));
  all += operand.source + bytes(operand_of_values(binary32, std::span(in().tiny_doubles).first(64)).source);
  const AmaxTrace example = example_amax_trace();
  return all + bytes(example.tensors[1].amaxes[0]);
}

AccumulateArguments accumulate_arguments(std::vector<long long> ks) {
  AccumulateArguments arguments;
  arguments.ks = std::move(ks);
  arguments.rows = arguments.columns = 4;
  arguments.threads = 2;
  return arguments;
}

/// Messages with numbers.
std::string refused() {
  std::string all;
  const auto refuse = [&](const auto& call) {
    try {
      call();
      all += "not refused";
    } catch (const std::exception& error) {
      all += std::string(error.what()) + '\n';
    }
  };
  std::vector<float> out(in().near.size());
  CastArguments negative;
  negative.scales = {-1234567.5};
  refuse([&] { cast_to_representable(e4m3, CastPolicy{}, in().near, -1234.5, out); });
  refuse([&] { sample_uniform(1234567.5, -0.25, 1, 0, out); });
  refuse([&] { static_cast<void>(exact_sqnr_db(e4m3, distributions[0], -1234567.5)); });
  refuse([&] {
    AmaxHistory history = start_history({});
    record_amax({}, Pass::forward, history, -1234.5F);
  });
  refuse([&] { check_recipe(GivenScale{.scale = -1234567.5F}); });
  refuse([&] { check_recipe(JustInTime{.amax_epsilon = -1234567.5F}); });
  refuse([&] {
    std::istringstream csv("step,a\n1,-1234567.5\n");
    static_cast<void>(parse_amax_trace(csv, "test"));
  });
  refuse([&] { static_cast<void>(run_primer({.scale_x = -1234.5F})); });
  refuse([&] { static_cast<void>(run_cast(negative)); });
  refuse([&] { static_cast<void>(run_double_rounding({.uniform = {2345.5, 1.5}})); });
  refuse([&] { static_cast<void>(run_accumulate(accumulate_arguments({123456789}))); });
  return all;
}

std::string casts() {
  CastArguments arguments;
  arguments.source = Draws{.columns = 300};
  arguments.formats = {{"e2m1", e2m1}};
  arguments.scales = {scale, 1e-3};
  arguments.amaxes = {3.3};
  arguments.best_scale = arguments.exact = true;
  arguments.threads = 2;
  return bytes_of(run_cast(arguments));
}

std::string accumulated() { return bytes_of(run_accumulate(accumulate_arguments({32, 64}))); }

std::string verified_casts() {
  VerifyCastsResult result = verify_casts({.formats = {"e2m1"}, .roundings = {"nearest_even"}, .chunks = 1});
  for (VerifyCastsRow& row : result.rows) row.seconds = 0;
  return bytes_of(result);
}

}  // namespace

Calls experiment_calls() {
  return {
      {"parsers", parsed},
      {"messages", refused},
      {"primer",
       [] { return bytes_of(run_primer({.in_features = 32, .out_features = 32, .rows = 32, .scale_x = 0.3F})); }},
      {"cast", casts},
      {"accumulate", accumulated},
      {"double rounding", [] { return bytes_of(run_double_rounding({.uniform = {0.1, 0.9}, .size = 3000})); }},
      {"harmonic", [] { return bytes_of(run_harmonic({.formats = {{"e5m2", e5m2}, {"bfloat16", bfloat16}}})); }},
      {"delayed", [] { return bytes_of(run_delayed({.margin = 1})); }},
      {"check", [] { return bytes_of(run_check({.source = Draws{.rows = 130, .columns = 128}})); }},
      {"scaling", [] { return bytes_of(run_scaling({.source = Draws{.rows = 32, .columns = 128, .steps = 3}})); }},
      {"train",
       [] {
         TrainArguments training;
         training.sizes = {32, 32, 16};
         training.batch = 32;
         training.steps = 3;
         training.jump = {.step = 2, .factor = 0.1};
         return bytes_of(run_train(training));
       }},
      {"transpose",
       [] {
         return bytes_of(run_transpose({.source = Draws{.rows = 128, .columns = 128},
                                        .recipes = {choose_recipe("te_mxfp8"), choose_recipe("te_block_1x128")}}));
       }},
      {"dot",
       [] {
         const auto values = std::span(in().doubles);
         return bytes_of(run_dot({.model = hopper_wgmma_fp8,
                                  .a = operand_of_values(e4m3, values.first(32)),
                                  .b = operand_of_values(e4m3, values.subspan(32, 32)),
                                  .got = 0x3DCCCCCDU}));
       }},
      {"verify casts", verified_casts},
      {"verify tensor cores",
       [] { return bytes_of(verify_tensor_cores({.models = {"hopper_wgmma_fp8"}, .dots = 100})); }},
      {"pictures", drawn_pictures},
  };
}

}  // namespace fp8lab::tests::environment
