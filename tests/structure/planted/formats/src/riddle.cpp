// SPDX-License-Identifier: Apache-2.0
// Of what nobody knows: a comment which the check has to find.
/// Those after which it ends, and the three below: comments which the check has to find, too.
inline constexpr int last = 0;
/// That format.
int format_of(int code);
/// What is looked at.
struct Arguments {};
