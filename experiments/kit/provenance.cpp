// SPDX-License-Identifier: Apache-2.0
#include "kit/provenance.hpp"

#include <chrono>
#include <ctime>
#include <stdexcept>
#include <string>

#include "build_facts.hpp"
#include "files/stored_file.hpp"

namespace fp8lab::experiments {
namespace {

std::string cpu_name() {
  try {
    FileStream info("/proc/cpuinfo");
    for (std::string line; std::getline(info, line);) {
      if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    }
    return "unknown";
  } catch (const std::runtime_error&) {
    return "unknown";  // there is no such file on this system
  }
}

std::string utc_now() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  char text[32];
  gmtime_r(&now, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

Provenance provenance() { return {build::version, build::commit, build::compiler, cpu_name(), utc_now()}; }

std::string_view version() { return build::version; }

}  // namespace fp8lab::experiments
