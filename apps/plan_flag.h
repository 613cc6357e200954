#pragma once

// Shared by the verbs that take --plan.

#include <string>

namespace fathom {

// Empty if `value` is a named plan or the path of a file, else the complaint: an unknown name is
// wrong usage.
std::string known_plan(const std::string& value);

}  // namespace fathom
