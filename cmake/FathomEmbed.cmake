# fathom_embed(TARGET HEADER FILES ...): the files become bytes of the program. Defines the array
# kEmbeddedFiles that HEADER declares (name, content type, tag, bytes), in the order given.
function(fathom_embed target header)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE paths)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${target}_embedded.cc)
  set(script ${CMAKE_SOURCE_DIR}/cmake/embed.cmake)
  add_custom_command(
    OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -D OUTPUT=${output} -D HEADER=${header} -D "PATHS=${paths}"
            -P ${script}
    DEPENDS ${paths} ${script}
    COMMENT "embedding files of ${target}"
    VERBATIM)
  target_sources(${target} PRIVATE ${output})
endfunction()
