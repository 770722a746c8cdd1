// SPDX-License-Identifier: Apache-2.0
// The record of an experiment, from which the command line, Python and the docs follow. Each folder registers its own
// by a function <folder>_experiments(), which the registry calls.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kit/argument.hpp"
#include "kit/document.hpp"
#include "kit/parted_run.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

/// How a run tells how far it is.
struct Context {
  Progress progress = {};                             ///< the share that is done
  std::function<void(const BytesDone&)> bytes = {};   ///< the same of a run through files, in place of progress
  std::function<void(const std::string&)> note = {};  ///< a line about what is done; a terminal shows it at once
  std::function<void(const std::string&)> kept = {};  ///< a sentence about what is kept of a run that ended early
  Cluster cluster = {};                               ///< does parts of a run elsewhere; Python has one
};

/// One call of an experiment: its arguments, to be set, and what it does with them.
struct Call {
  ArgumentList arguments;
  std::function<Document(const Context&)> run;
};

struct Example {
  std::string command;  ///< what follows "fp8lab"
  std::string meaning;
};

struct Experiment {
  std::string name;     ///< of the command, such as "double-rounding" or "verify casts"
  std::string summary;  ///< one sentence, without a full stop
  std::string description = {};
  std::string result = {};      ///< what its document has: the names of its tables, histograms and curves
  std::string passed = "done";  ///< when the command exits with 0
  std::string not_passed = {};  ///< when the command exits with status_not_passed; empty: never
  int status_not_passed = 3;
  std::string passed_in_part = {};  ///< when the command exits with status_in_part; empty: never
  int status_in_part = 3;
  std::vector<Example> examples = {};
  /// Arguments that make a call of a moment, by their names in Python, as JSON. Every test that goes through all
  /// experiments makes this call. Paths are those of tests/experiments/kit/small_calls.py.
  std::string small = "{}";
  bool python = true;  ///< fp8lab.experiments has it
  /// SIGINT and SIGTERM end its run by an exception, so that it can save its state, and the process afterwards.
  bool saves_when_stopped = false;
  std::function<std::unique_ptr<Call>()> prepare = {};

  /// The name in Python and in documents, such as "double_rounding".
  [[nodiscard]] std::string identifier() const;
};

/// Gives an experiment its arguments and its run: describe(arguments, list) binds the members of a new Arguments to the
/// list, run(arguments, context) makes the document, whose name, arguments and provenance are filled in here.
template <typename Arguments>
[[nodiscard]] Experiment experiment(Experiment facts, void (*describe)(Arguments&, ArgumentList&),
                                    Document (*run)(const Arguments&, const Context&)) {
  facts.prepare = [identifier = facts.identifier(), describe, run] {
    const auto arguments = std::make_shared<Arguments>();
    auto call = std::make_unique<Call>();
    describe(*arguments, call->arguments);
    call->run = [identifier, arguments, run, list = &call->arguments](const Context& context) {
      Document document = run(*arguments, context);
      document.experiment = identifier;
      document.arguments = list->json();
      document.made = provenance();
      return document;
    };
    return call;
  };
  return facts;
}

/// Lists all experiments, in the order of the help.
[[nodiscard]] const std::vector<Experiment>& experiments();
/// The one with that identifier(). Throws std::invalid_argument that lists the known names.
[[nodiscard]] const Experiment& find_experiment(std::string_view identifier);

}  // namespace fp8lab::experiments
