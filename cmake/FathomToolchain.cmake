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
