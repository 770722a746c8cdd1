# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.25)
# Installs fp8lab aside, and builds and runs programs against it: the folders SOURCE and EXAMPLE.
# cmake -D BUILD=directory -D SOURCE=directory -D EXAMPLE=directory -D WORK=directory -D CXX=compiler -D FLAGS=flags -P consumer.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${output}")
  endif()
endfunction()
file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix --component development)
foreach(source ${SOURCE} ${EXAMPLE})
  get_filename_component(name ${source} NAME)
  run(${CMAKE_COMMAND} -S ${source} -B ${WORK}/${name} -G Ninja -D CMAKE_PREFIX_PATH=${WORK}/prefix -D CMAKE_CXX_COMPILER=${CXX}
      -D "CMAKE_CXX_FLAGS=${FLAGS}" -D CMAKE_RUNTIME_OUTPUT_DIRECTORY=${WORK}/${name})
  run(${CMAKE_COMMAND} --build ${WORK}/${name})
endforeach()
run(${WORK}/consumer/consumer)
run(${WORK}/cpp/program)
