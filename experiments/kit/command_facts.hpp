// SPDX-License-Identifier: Apache-2.0
// What the command line offers, as facts: shell completion and the man page are made of them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kit/argument.hpp"
#include "kit/experiment.hpp"

namespace fp8lab::experiments {

struct OptionFacts {
  std::vector<std::string> names;         ///< such as "--formats"; of a word without a name its metavar alone
  std::string metavar;                    ///< stands for the value; empty for a flag
  std::string help;                       ///< a phrase
  std::string otherwise;                  ///< what holds where it is not given; empty: nothing
  std::vector<std::string> choices = {};  ///< the names that its value may have; empty: others
  bool is_list = false;                   ///< the value is a list with commas
  bool is_word = false;                   ///< it is given without a name
};

struct CommandFacts {
  std::string name;  ///< such as "verify casts"
  std::string summary;
  std::string description = {};
  std::string statuses = {};  ///< what its exit status means
  std::vector<OptionFacts> options = {};
  std::vector<Example> examples = {};
};

/// The names that an argument of this kind may have; empty where it has others, or none.
[[nodiscard]] std::vector<std::string> choices_of(Kind kind);

}  // namespace fp8lab::experiments
