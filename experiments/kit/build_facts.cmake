# SPDX-License-Identifier: Apache-2.0
# Writes build_facts.hpp at build time, so that the commit is that of the sources which are compiled.
# cmake -D SOURCE=dir -D OUTPUT=file -D VERSION=v -D COMPILER=c -P build_facts.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=40 --exclude=*
                OUTPUT_VARIABLE commit ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
if(failed OR NOT EXISTS ${SOURCE}/.git)
  set(commit unknown)
  if(DEFINED ENV{FP8LAB_COMMIT})  # of sources that were copied without their history
    set(commit $ENV{FP8LAB_COMMIT})
  endif()
endif()
set(content "#pragma once
namespace fp8lab::experiments::build {
inline constexpr const char* version = \"${VERSION}\";
inline constexpr const char* commit = \"${commit}\";
inline constexpr const char* compiler = \"${COMPILER}\";
}  // namespace fp8lab::experiments::build
")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT content STREQUAL "${before}")
  file(WRITE ${OUTPUT} "${content}")
endif()
