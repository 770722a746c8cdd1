// SPDX-License-Identifier: Apache-2.0
// Planted: takes the locale of the program.
std::ostringstream text;
