# fathom_room(NAME [SUBFOLDERS ...] [DEPS ...] [PRIVATE ...] [TEST_DEPS ...] [TEST_LABELS ...])
# One folder of src/ is one static library, fathom_NAME. Every .cc of the folder belongs to it;
# *_test.cc become the test program NAME_test, and *_fuzz.cc one libFuzzer program each (preset
# fuzz). DEPS are rooms below and libraries; PRIVATE are libraries no header shows.
function(fathom_room name)
  cmake_parse_arguments(ROOM "" "" "SUBFOLDERS;DEPS;PRIVATE;TEST_DEPS;TEST_LABELS" ${ARGN})
  list(TRANSFORM ROOM_SUBFOLDERS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(TRANSFORM ROOM_SUBFOLDERS APPEND /*.cc)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${ROOM_SUBFOLDERS})
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cc$")

  add_library(fathom_${name} STATIC ${sources})
  target_include_directories(fathom_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(fathom_${name} PUBLIC ${ROOM_DEPS} PRIVATE ${ROOM_PRIVATE})

  if(tests)
    fathom_test(${name}_test SOURCES ${tests} DEPS fathom_${name} ${ROOM_TEST_DEPS}
                LABELS ${name} ${ROOM_TEST_LABELS})
  endif()
  foreach(fuzzer ${fuzzers})
    fathom_fuzzer(${fuzzer} fathom_${name})
  endforeach()
endfunction()

# fathom_test(NAME SOURCES ... DEPS ... [LABELS ...] [TIMEOUT seconds])
# A GoogleTest program, one ctest entry a test. Tests find data below FATHOM_SOURCE_DIR, which is
# passed as a definition. Labels say what a test needs (torch, gpu, differential) or costs (slow,
# long); ./fathom selects by them. They are joined by commas into one ctest label, because
# gtest_discover_tests cannot pass a list. A sanitizer gets three times the time.
function(fathom_test name)
  cmake_parse_arguments(TEST "" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT TEST_LABELS)
    set(TEST_LABELS ${name})
  endif()
  if(NOT FATHOM_TESTS)
    return()
  endif()
  if(FATHOM_TEST_ROOMS)
    set(wanted ${TEST_LABELS})
    list(FILTER wanted INCLUDE REGEX "^(${FATHOM_TEST_ROOMS_REGEX})$")
    if(NOT wanted)
      return()
    endif()
  endif()
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 300)
  endif()
  if(FATHOM_SANITIZER)
    math(EXPR TEST_TIMEOUT "${TEST_TIMEOUT} * 3")
  endif()
  string(REPLACE ";" "," labels "${TEST_LABELS}")

  add_executable(${name} ${TEST_SOURCES})
  add_dependencies(fathom_tests ${name})
  target_link_libraries(${name} PRIVATE ${TEST_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE FATHOM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  if(FATHOM_SANITIZER)
    target_compile_options(${name} PRIVATE -O0)  # half the time to compile; the rooms keep -O1
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 120
                       PROPERTIES LABELS "${labels}" TIMEOUT ${TEST_TIMEOUT})
endfunction()
string(REPLACE ";" "|" FATHOM_TEST_ROOMS_REGEX "${FATHOM_TEST_ROOMS}")

# fathom_fuzzer(SOURCE ROOM): X_fuzz.cc is a libFuzzer program with its corpus in tests/fuzz/X/.
# Its ctest entry, label fuzz, runs every input of the corpus once; tests/long/fuzz.sh goes on.
function(fathom_fuzzer source room)
  if(NOT FATHOM_FUZZ)
    return()
  endif()
  get_filename_component(name ${source} NAME_WE)
  string(REGEX REPLACE "_fuzz$" "" stem ${name})
  add_executable(${name} ${source})
  add_dependencies(fathom_fuzzers ${name})
  target_link_libraries(${name} PRIVATE ${room})
  target_compile_definitions(${name} PRIVATE FATHOM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_test(NAME ${name}.corpus
           COMMAND ${name} -runs=0 -timeout=20 -malloc_limit_mb=256
                   ${CMAKE_SOURCE_DIR}/tests/fuzz/${stem})
  set_tests_properties(${name}.corpus PROPERTIES LABELS fuzz TIMEOUT 600)
endfunction()
