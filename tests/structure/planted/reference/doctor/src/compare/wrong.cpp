// SPDX-License-Identifier: Apache-2.0
// An include of a sub-room of the doctor that lies above this one, which the check has to find.
#include "search/located.hpp"
