#include "apps/plan_flag.h"

#include "model/plans.h"

namespace fathom {

std::string known_plan(const std::string& value) {
  if (is_plan_path(value)) return {};
  std::string known;
  for (const std::string& name : plan_names()) {
    if (name == value) return {};
    known += name + ", ";
  }
  return "wanted " + known + "or the path of a config.json, found " + value;
}

}  // namespace fathom
