// SPDX-License-Identifier: Apache-2.0
// The experiment of docs/add_an_experiment.md, its test and what follows from its record, compiled with the files that
// the page's steps write.
#include "experiments/range/range.cpp"
#include "range/document.cpp"
#include "range/range.cpp"

#include "kit/render.hpp"
#include "support.hpp"

namespace fp8lab::tests {

TEST_CASE("docs: an added experiment takes its arguments and makes its document") {
  const experiments::Experiment range = experiments::range_experiments().front();
  const std::unique_ptr<experiments::Call> call = range.prepare();
  call->arguments.find("formats").set({std::string("e2m1"), std::string("bfloat16")});
  const experiments::Document document = call->run({});
  CHECK(document.experiment == "range");
  const std::string text = text_of(document, {});
  CHECK_THAT(text, ContainsSubstring("e2m1") && ContainsSubstring("0.5") && ContainsSubstring("3.38953139e+38"));
}

}  // namespace fp8lab::tests
