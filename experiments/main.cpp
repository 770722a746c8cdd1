// SPDX-License-Identifier: Apache-2.0
// The fp8lab command line. Exit status: 0 done; 2 bad input or unwritable output; 1 or 3 as the command says.
#include <csignal>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <string>

#include "fp8lab/formats/environment.hpp"
#include "fp8lab/formats/text.hpp"
#include "fp8lab/gpu/cuda_error.hpp"
#include "kit/command_line.hpp"

namespace {

using namespace fp8lab::experiments;

/// One line on stderr, whatever the user typed.
int fail(const std::string& reason) {
  std::fprintf(stderr, "%s\n", fp8lab::one_line("fp8lab: " + reason).c_str());
  return bad_input;
}

/// Does the same without taking memory. `command` may be anything.
int fail_for_memory(const char* command) {
  std::fprintf(stderr, "fp8lab: out of memory in %.16s; smaller or fewer tensors, or fewer threads, take less\n",
               command);
  return bad_input;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);                 // a file that grows too large is an error to report, not the end
  const fp8lab::DefaultEnvironment environment;  // a parent process may have left another one of floating point
  try {
    return command_of(argc, argv)();
  } catch (const std::bad_alloc&) {
    return fail_for_memory(argv[1]);    // without a command, nothing takes memory
  } catch (const std::length_error&) {  // sizes that no memory has
    return fail_for_memory(argv[1]);
  } catch (const fp8lab::gpu::NoDeviceError& error) {
    static_cast<void>(fail(error.what()));
    return no_device;
  } catch (const std::exception& error) {
    return fail(error.what());
  } catch (...) {
    return fail("unknown error");
  }
}
