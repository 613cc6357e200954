#pragma once

// The jobs of `fathom store` that move a prefix between stores as one file.

#include <string>
#include <utility>
#include <vector>

#include "apps/common.h"

namespace fathom {

struct PrefixFlags {
  std::string block;     // digits that a key begins with
  std::string output;    // file
  std::string input;     // file
  std::string file_key;  // file; empty: the store's key
  bool clear = false;

  // What has no effect with other jobs, and those jobs.
  using OnlyWith = std::vector<std::pair<const CLI::Option*, std::vector<std::string>>>;
  OnlyWith add_to(CLI::App& app);
  // What is wrong with them beside that job; empty: nothing. `with_key`: --store-key was given.
  std::string misuse(const std::string& job, bool with_key) const;

  // Exit status of `export` or `import`. `key_file` is the store's; empty: none.
  int run(const std::string& job, const std::string& folder, const std::string& key_file,
          const OutputFlags& show) const;
};

}  // namespace fathom
