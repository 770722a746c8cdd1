# SPDX-License-Identifier: Apache-2.0
# find_package(fp8lab) for others: fp8lab::formats, fp8lab::reference, fp8lab::doctor; with COMPONENTS gpu also fp8lab::gpu.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/fp8lab)
set(has_kernels OFF)
if(FP8LAB_CUDA AND CMAKE_CUDA_COMPILER)
  set(has_kernels ON)
endif()
file(CONFIGURE OUTPUT fp8labConfig.cmake @ONLY CONTENT [[
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(hwy)
include(${CMAKE_CURRENT_LIST_DIR}/fp8labTargets.cmake)
foreach(component formats reference doctor)
  set(fp8lab_${component}_FOUND TRUE)
endforeach()
if("gpu" IN_LIST fp8lab_FIND_COMPONENTS)
  if(@has_kernels@)  # which the CUDA runtime is linked for
    find_dependency(CUDAToolkit)
  endif()
  include(${CMAKE_CURRENT_LIST_DIR}/fp8labGpuTargets.cmake)
  set(fp8lab_gpu_FOUND TRUE)
endif()
foreach(component IN LISTS fp8lab_FIND_COMPONENTS)
  if(fp8lab_FIND_REQUIRED_${component} AND NOT fp8lab_${component}_FOUND)
    set(fp8lab_FOUND FALSE)
    set(fp8lab_NOT_FOUND_MESSAGE "fp8lab has no component ${component}; it has formats, reference, doctor and gpu")
  endif()
endforeach()
]])
write_basic_package_version_file(fp8labConfigVersion.cmake COMPATIBILITY SameMinorVersion)
# The same for pkg-config, which knows no components; the libraries are found from the place of the file.
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
file(CONFIGURE OUTPUT fp8lab.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@to_prefix@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: fp8lab
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} -lfp8lab_doctor -lfp8lab_reference -lfp8lab_formats -lhwy -pthread
]])
foreach(export fp8lab fp8labGpu)
  install(EXPORT ${export} FILE ${export}Targets.cmake NAMESPACE fp8lab:: DESTINATION ${package_dir} COMPONENT development)
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/fp8labConfig.cmake ${PROJECT_BINARY_DIR}/fp8labConfigVersion.cmake DESTINATION ${package_dir} COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/fp8lab.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
