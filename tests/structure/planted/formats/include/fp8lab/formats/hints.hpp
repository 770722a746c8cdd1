// SPDX-License-Identifier: Apache-2.0
// Vector code in an installed header, which the test of the structure is to find.
#pragma once

struct EncodeHints {
  bool stream = false;
};
