// SPDX-License-Identifier: Apache-2.0
// A reader that includes what lies above it, which the check has to find.
#include "kit/lists.hpp"
