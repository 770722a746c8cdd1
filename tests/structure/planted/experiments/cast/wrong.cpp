// SPDX-License-Identifier: Apache-2.0
// An include of another question, which the check has to find.
#include "dot/dot.hpp"
