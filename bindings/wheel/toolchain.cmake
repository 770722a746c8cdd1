# SPDX-License-Identifier: Apache-2.0
# A toolchain for wheels: this machine's compiler, and a linker that knows an older glibc. PyPI's ziglang has the symbols of each glibc;
# against those of 2.28, of 2018, the module is linked, with the C++ library inside, so that it runs on every later Linux.
# wheel.sh sets the environment.
list(PREPEND CMAKE_PREFIX_PATH $ENV{FP8LAB_WHEEL_PREFIX})  # where scikit-build-core names pybind11, too
set(CMAKE_CXX_CREATE_SHARED_MODULE
  "$ENV{FP8LAB_ZIG} cc -target x86_64-linux-gnu.$ENV{FP8LAB_GLIBC} -shared -s -Wl,-z,now -Wl,--version-script=${CMAKE_CURRENT_LIST_DIR}/exported -o <TARGET> <OBJECTS> <LINK_LIBRARIES> $ENV{FP8LAB_WHEEL_LIBRARIES} -lm -lpthread -ldl")
