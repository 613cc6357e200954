#include "apps/version.h"

#include "ops/backends.h"

namespace fathom {
namespace {

// Clang's __VERSION__ names it, GCC's is the number alone.
#ifdef __clang__
constexpr const char* kCompiler = __VERSION__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

}  // namespace

std::vector<std::pair<std::string, std::string>> build_facts() {
  std::string backends;
  for (const std::string& name : available_backends()) {
    backends += (backends.empty() ? "" : ", ") + name;
  }
  return {{"commit", FATHOM_COMMIT}, {"compiler", kCompiler}, {"backends", backends}};
}

std::string version_text() {
  std::string text = std::string("fathom ") + FATHOM_VERSION + "\ncommit " + FATHOM_COMMIT +
                     "\ncompiler " + kCompiler + "\nbackends";
  const std::vector<std::string> found = available_backends();
  for (const std::string& name : found) text += "\n  " + name;
  if (found.empty() || !found.front().starts_with("cuda")) {
    text += built_with_cuda() ? "\n  (cuda: built in, no GPU or driver found)"
                              : "\n  (cuda: not built in)";
  }
  return text;
}

}  // namespace fathom
