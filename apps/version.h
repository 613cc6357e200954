#pragma once

// What this program is: its version, and from what it was built.

#include <string>
#include <utility>
#include <vector>

namespace fathom {

// Names and values, the version left out: commit, compiler, backends.
std::vector<std::pair<std::string, std::string>> build_facts();

// For `--version`.
std::string version_text();

}  // namespace fathom
