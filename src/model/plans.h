#pragma once

// Named configurations: the released model (spec/backbone.md 1.1), the tiny one of the reference
// vectors (t12, spec/backbone.md 7), small ones that are trained here (n34, n12), and proxies of
// the released shapes with fewer layers and experts that fit one machine (p7, r8, p165).

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace fathom {

// released, t12, n12, n34, p7, r8, p165.
std::vector<std::string> plan_names();

Result<ModelConfig> named_plan(std::string_view name);

// Whether plan_from takes the text for the path of a config.json: it ends in .json or holds a
// slash.
bool is_plan_path(std::string_view name_or_path);

// A plan by name, or the configuration of a file.
Result<ModelConfig> plan_from(const std::string& name_or_path);

}  // namespace fathom
