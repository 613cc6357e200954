# fathom_room(NAME [DEPS ...]): one folder of src/ is one static library.
# Every .cc of the folder belongs to it; *_test.cc become the test program NAME_test, and
# *_fuzz.cc one libFuzzer program each (preset fuzz). DEPS are the rooms below, and libraries.
function(fathom_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS;PRIVATE;TEST_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cc$")

  add_library(fathom_${name} STATIC ${sources})
  target_include_directories(fathom_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(fathom_${name} PUBLIC ${ROOM_DEPS} PRIVATE ${ROOM_PRIVATE})

  if(FATHOM_TESTS AND tests)
    fathom_test(${name}_test SOURCES ${tests} DEPS fathom_${name} ${ROOM_TEST_DEPS})
  endif()
  if(FATHOM_FUZZ)
    foreach(fuzzer ${fuzzers})
      get_filename_component(fuzzer_name ${fuzzer} NAME_WE)
      add_executable(${fuzzer_name} ${fuzzer})
      target_link_libraries(${fuzzer_name} PRIVATE fathom_${name})
      target_link_options(${fuzzer_name} PRIVATE -fsanitize=fuzzer)
    endforeach()
  endif()
endfunction()

# fathom_test(NAME SOURCES ... DEPS ... [LABELS ...]): a GoogleTest program, one ctest entry a test.
# Tests find data below FATHOM_SOURCE_DIR, which is passed as a definition.
function(fathom_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_DEPS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE FATHOM_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS "${TEST_LABELS}")
endfunction()
