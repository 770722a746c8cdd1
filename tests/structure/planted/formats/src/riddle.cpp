// SPDX-License-Identifier: Apache-2.0
// Of what nobody knows: a comment which the check has to find.
