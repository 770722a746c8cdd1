// SPDX-License-Identifier: Apache-2.0
// A fuzz target: any bytes as a command line, an argument a line. It is parsed and not run. What may come out is a
// command or an error.
#include <stdexcept>
#include <string>
#include <vector>

#include "kit/command_line.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> arguments{"fp8lab", ""};
  for (const std::uint8_t byte : std::vector<std::uint8_t>(data, data + size)) {
    if (byte == '\n') {
      arguments.emplace_back();
    } else if (byte != 0) {  // which no argument can have
      arguments.back() += static_cast<char>(byte);
    }
  }
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  try {
    static_cast<void>(fp8lab::experiments::command_of(static_cast<int>(argv.size()), argv.data()));
  } catch (const std::runtime_error&) {  // CLI11's errors, too
  } catch (const std::invalid_argument&) {
  }
  return 0;
}
