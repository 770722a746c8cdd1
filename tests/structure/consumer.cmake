# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.25)
# Installs fp8lab aside, and builds and runs programs against it: the folder SOURCE, and cpp and validate_kernel of EXAMPLES.
# cmake -D BUILD=directory -D SOURCE=directory -D EXAMPLES=directory -D WORK=directory -D CXX=compiler -D FLAGS=flags
#   [-D CUDA=compiler] -P consumer.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()
file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component development)
foreach(source ${SOURCE} ${EXAMPLES}/cpp ${EXAMPLES}/validate_kernel)
  get_filename_component(name ${source} NAME)
  run(${CMAKE_COMMAND} -S ${source} -B ${WORK}/${name} -G Ninja -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${CXX}
      -D "CMAKE_CXX_FLAGS=${FLAGS}" -D "CMAKE_CUDA_COMPILER=${CUDA}" -D CMAKE_RUNTIME_OUTPUT_DIRECTORY=${WORK}/${name})
  run(${CMAKE_COMMAND} --build ${WORK}/${name})
endforeach()
run(${WORK}/consumer/consumer)
run(${WORK}/cpp/program)
run(${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/validate_kernel --no-tests=error --output-on-failure)
execute_process(COMMAND ${WORK}/validate_kernel/validate --bug RESULT_VARIABLE result OUTPUT_VARIABLE output)
file(READ ${EXAMPLES}/../validate_a_kernel.md page)
string(REGEX REPLACE "(^|\n)device:[^\n]*" "" told "${output}")
string(FIND "${page}" "${told}" at)
if(NOT result EQUAL 1 OR NOT told MATCHES "[1-9][0-9]* of 262144 codes and 0 of 2048 scales differ" OR at EQUAL -1)
  message(FATAL_ERROR "validate --bug gives ${result}, and other lines than docs/validate_a_kernel.md has:\n${told}")
endif()
