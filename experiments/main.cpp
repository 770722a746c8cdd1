// SPDX-License-Identifier: Apache-2.0
// The fp8lab command line. Exit status: 0 done; 2 bad input or unwritable output; 1 or 3 as the command says.
#include "kit/command_line.hpp"

int main(int argc, char** argv) { return fp8lab::experiments::run_command_line(argc, argv); }
