// SPDX-License-Identifier: Apache-2.0
// What the subcommands of the fp8lab command line share. Each has its options and its run in command_<name>.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "fp8lab/formats/text.hpp"
#include "fp8lab/formats/text_stream.hpp"
#include "kit/command_line.hpp"
#include "kit/output.hpp"
#include "kit/picture.hpp"
#include "kit/progress.hpp"

namespace fp8lab::experiments {

// Each adds its subcommand to `app`; where the user calls it, `chosen` becomes what it does.
void add_scaling(CLI::App& app, Command& chosen);

/// What the terminal on stdout can show.
[[nodiscard]] TextStyle style_of_terminal();

/// The threads that an experiment takes: what the machine has.
[[nodiscard]] int threads_of_machine();

/// Prints to stdout, or throws: a report that nobody can read is no success.
void print(const std::string& text);

/// --out and --quiet, which every experiment has.
struct OutputOptions {
  std::optional<std::string> out;
  bool quiet = false;
};

/// Adds them; `files` says what --out writes.
void add_output(CLI::App& app, OutputOptions& options, const std::string& files);

/// Throws, before the work and not after it, where files of these names could not be written.
void check_output(const OutputOptions& options, const std::vector<std::string>& names);

/// What work(progress) returns, with a progress bar unless it has to be quiet.
template <typename Work>
auto with_progress(const OutputOptions& options, const Work& work) {
  ProgressBar bar;
  Progress progress;
  if (!options.quiet) progress = [&](double share) { bar(share); };
  return work(progress);
}

/// Writes the files and prints the report, as far as the options ask for them. `told` says what lies in the directory.
void deliver(const OutputOptions& options, const Files& files,
             const std::function<std::string(const TextStyle&)>& report, const std::string& told);

/// A number, or throws where not the whole text is one that fits T: of whole numbers 1000, 1e6 and 1.5e3 (CLI11 would
/// read 010 as octal, and "" as 0).
template <typename T>
[[nodiscard]] T parse_number(const std::string& text) {
  const auto read = [&]<typename Number>(Number& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return end == text.data() + text.size() && !text.empty() ? error : std::errc::invalid_argument;
  };
  T value{};
  std::errc error = read(value);
  if (error == std::errc{}) return value;
  if constexpr (std::is_integral_v<T>) {
    double real = 0;
    if (read(real) == std::errc{} && real == std::trunc(real)) {
      error = std::errc::result_out_of_range;
      constexpr double exact = 0x1p53;  // up to here a float64 is the number that was written
      const bool fits = std::abs(real) <= exact && std::in_range<T>(static_cast<long long>(real));
      if (fits) return static_cast<T>(static_cast<long long>(real));
    }
    constexpr int bits = std::numeric_limits<T>::digits;
    constexpr bool is_signed = std::is_signed_v<T>;
    if (error == std::errc::result_out_of_range) {
      throw std::invalid_argument(in_quotes(text) + " is not from " + (is_signed ? "-2^" + std::to_string(bits) : "0") +
                                  " to 2^" + std::to_string(bits) +
                                  " - 1; from 2^53 on, write all digits, without an exponent");
    }
  }
  const std::string number = std::is_integral_v<T> ? " is not a whole number, such as 1000 or 1e6" : " is not a number";
  throw std::invalid_argument(in_quotes(text) +
                              (error == std::errc::result_out_of_range ? " is out of range" : number));
}

/// parse(text), or throws its message after the option's name.
template <typename Parse>
auto parse_option(const std::string& name, const std::string& text, Parse parse) {
  try {
    return parse(text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(name + ": " + error.what());
  }
}

/// An option whose text parse(text) makes a value of, or refuses.
template <typename T, typename Parse>
CLI::Option* add_parsed(CLI::App& app, const std::string& name, T& value, Parse parse, const std::string& help) {
  return app.add_option_function<std::string>(
      name, [&value, name, parse](const std::string& text) { value = parse_option(name, text, parse); }, help);
}

/// An option that is a number; the value it has is the default.
template <typename T>
CLI::Option* add_number(CLI::App& app, const std::string& name, T& value, const std::string& help) {
  TextStream text;
  text << value;
  return add_parsed(app, name, value, parse_number<T>, help)
      ->type_name(std::is_integral_v<T> ? "INT" : "FLOAT")
      ->default_str(text.str());
}

/// The entries of the comma-separated list that option `name` got. Throws where there is none, an empty one, or, unless
/// it may repeat, one twice.
[[nodiscard]] std::vector<std::string> split_list(const std::string& name, const std::string& text,
                                                  bool repeats = false);

/// An option that is a comma-separated list; parse(entry) makes or refuses a value. `shown` tells the default.
template <typename T, typename Parse>
CLI::Option* add_list(CLI::App& app, const std::string& name, std::vector<T>& values, Parse parse,
                      const std::string& help, const std::string& shown) {
  CLI::callback_t take = [&values, parse, name](const CLI::results_t& given) {
    values.clear();
    for (const std::string& entry : split_list(name, given.front())) {
      values.push_back(parse_option(name, entry, parse));
    }
    return true;
  };
  return app.add_option(name, std::move(take), help)->type_name("LIST")->default_str(shown);
}

}  // namespace fp8lab::experiments
