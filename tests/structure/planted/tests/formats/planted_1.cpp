// SPDX-License-Identifier: Apache-2.0
namespace fp8lab::tests {
namespace {

struct Unnamed {};

}  // namespace

class PlantedCase {
  struct Within {};
};

}  // namespace fp8lab::tests
