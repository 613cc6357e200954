# Compiler flags that are part of the meaning of the program, and tools used where present.

# The summation order of every word is fixed (docs/design.md, section 7): the compiler must not
# contract a*b+c into a fused multiply-add of its own choice.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-Wthread-safety)
endif()

find_program(FATHOM_CCACHE ccache)
if(FATHOM_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${FATHOM_CCACHE})
endif()

find_program(FATHOM_MOLD mold)
if(FATHOM_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

# GCC 12 reports overlapping copies in "text" + std::string where there are none (GCC bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  add_compile_options(-Wno-restrict)
endif()

# fathom_asio_sources(FILE ...): of the calling folder. In instrumented coroutines of Asio and Beast
# GCC 12 sees memory that was not set, or not allocated as it is freed, where there is none.
function(fathom_asio_sources)
  if(FATHOM_SANITIZER AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    set_source_files_properties(${ARGN} PROPERTIES
      COMPILE_OPTIONS "-Wno-maybe-uninitialized;-Wno-mismatched-new-delete")
  endif()
endfunction()
