# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.25)
# Where libraries are missing, CMake names all of them at once, with one line that installs them.
# cmake -D SOURCE=directory -D WORK=directory -D CXX=compiler -P missing.cmake
file(REMOVE_RECURSE ${WORK})
execute_process(COMMAND ${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK} -G Ninja -D CMAKE_CXX_COMPILER=${CXX} -D FP8LAB_TESTS=OFF
  -D FP8LAB_PYTHON=ON -D CMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON -D CMAKE_DISABLE_FIND_PACKAGE_CLI11=ON
  -D CMAKE_DISABLE_FIND_PACKAGE_Python=ON -D CMAKE_DISABLE_FIND_PACKAGE_pybind11=ON
  RESULT_VARIABLE result OUTPUT_VARIABLE told ERROR_VARIABLE told)
string(REGEX REPLACE "[ \n]+" " " told "${told}")
if(result EQUAL 0 OR NOT told MATCHES "fp8lab needs Eigen3, CLI11, Python, pybind11; on Debian and Ubuntu: apt-get install libeigen3-dev libcli11-dev python3-dev pybind11-dev ")
  message(FATAL_ERROR "without Eigen, CLI11 and Python's headers, cmake ends with ${result} and says\n${told}")
endif()
