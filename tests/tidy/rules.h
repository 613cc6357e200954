#pragma once

// The rules of docs/style.md that a program can check. Each takes the whole tree and returns what
// it found, in the order of paths; an empty list means that the rule holds.

#include <vector>

#include "tree.h"

namespace fathom::tidy {

using Complaints = std::vector<Complaint>;

// rules_layers.cc: who may include what.
Complaints check_layers(const Tree& tree);       // floors, rooms and the folders of backends
Complaints check_third_party(const Tree& tree);  // CUDA, torch; nothing foreign in public headers
Complaints check_link_graph(const Tree& tree);   // CMake links along the same law
Complaints check_cmake_rooms(const Tree& tree);  // every .cc is compiled
Complaints check_own_header(const Tree& tree);   // #pragma once; x.cc includes x.h first

// rules_text.cc: budgets, words and names.
Complaints check_lines(const Tree& tree);      // columns, lines of a file
Complaints check_functions(const Tree& tree);  // lines, parameters, nesting
Complaints check_banned_words(const Tree& tree);
Complaints check_names(const Tree& tree);
Complaints check_tests(const Tree& tree);  // none switched off or commented out

// rules_files.cc
Complaints check_citations(const Tree& tree);  // pages and reference data that a text names exist
Complaints check_documents(const Tree& tree);  // one title each
Complaints check_file_sizes(const Tree& tree);

}  // namespace fathom::tidy
