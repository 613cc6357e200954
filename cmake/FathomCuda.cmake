# The CUDA backend: kernels for sm_90a by nvcc, the CUDA runtime linked statically; the driver is
# found when the program runs, so that it starts without one.
find_program(FATHOM_NVCC nvcc HINTS /usr/local/cuda/bin REQUIRED)
find_package(CUDAToolkit 13.0 REQUIRED)

# fathom_cuda_objects(OUT): compiles the .cu files of the current folder's cuda/ and lists the
# objects. nvcc by hand: as a language of the project, CUDA would link every program through nvcc.
# --fmad=false is part of the meaning of the kernels (docs/design/cuda.md).
function(fathom_cuda_objects out)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.cu)
  set(objects "")
  foreach(source ${sources})
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${FATHOM_CCACHE} ${FATHOM_NVCC} -std=c++20 -O3 --fmad=false --expt-relaxed-constexpr
              -gencode arch=compute_90a,code=sm_90a
              -Xcompiler -fPIC,-Wall,-Wextra,-Wno-missing-field-initializers
              -I${CMAKE_SOURCE_DIR}/src -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source}
      DEPFILE ${object}.d
      COMMENT "nvcc ${name}"
      VERBATIM)
    list(APPEND objects ${object})
  endforeach()
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
