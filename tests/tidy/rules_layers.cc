#include <map>
#include <optional>
#include <regex>
#include <set>

#include "lexer.h"
#include "rules.h"

namespace fathom::tidy {
namespace {

// docs/design.md, section 2.
const std::map<std::string, int>& floors() {
  static const std::map<std::string, int> kFloors = {
      {"base", 1},  {"tensor", 2}, {"text", 2},  {"ops", 3},   {"cache", 3}, {"checkpoint", 3},
      {"model", 4}, {"engine", 5}, {"serve", 6}, {"train", 6}, {"eval", 6},  {"apps", 7}};
  return kFloors;
}

// The room of src/ROOM/..., and apps for apps/...; empty elsewhere (tests, bench).
std::string room_of(const std::string& path) {
  if (starts_with(path, "apps/")) return "apps";
  if (!starts_with(path, "src/")) return "";
  const size_t slash = path.find('/', 4);
  return slash == std::string::npos ? "" : path.substr(4, slash - 4);
}

struct Include {
  std::string name;
  bool quoted = false;
  int line = 0;
};

std::vector<Include> includes_of(const std::string& text) {
  static const std::regex kInclude(R"re(^\s*#\s*include\s*([<"])([^>"]+)[>"])re");
  std::vector<Include> includes;
  int line = 0;
  for (const std::string& row : lines_of(text)) {
    ++line;
    std::smatch match;
    if (std::regex_search(row, match, kInclude)) {
      includes.push_back({match[2], match[1] == "\"", line});
    }
  }
  return includes;
}

std::string first_part(const std::string& path) { return path.substr(0, path.find('/')); }

// ops may know a backend in ops/backends.cc alone; a backend never knows the other. Tests compare.
std::optional<std::string> backend_complaint(const std::string& path, const std::string& name) {
  if (ends_with(path, "_test.cc") || path == "src/ops/backends.cc") return std::nullopt;
  for (const std::string backend : {"ops/cpu/", "ops/cuda/"}) {
    if (starts_with(name, backend) && !starts_with(path, "src/" + backend)) {
      return "only ops/backends.cc and tests may include a backend, found " + name;
    }
  }
  return std::nullopt;
}

std::optional<std::string> layer_complaint(const std::string& path, const std::string& name) {
  const std::string room = room_of(path);
  const std::string other = first_part(name);
  const auto other_floor = floors().find(other);
  if (other == name || other_floor == floors().end()) return std::nullopt;
  if (other == room) return room == "ops" ? backend_complaint(path, name) : std::nullopt;
  if (floors().at(room) > other_floor->second) {
    return starts_with(name, "ops/") ? backend_complaint(path, name) : std::nullopt;
  }
  return room + " (floor " + std::to_string(floors().at(room)) +
         ") may include lower floors only, found " + name + " (floor " +
         std::to_string(other_floor->second) + ")";
}

const std::regex& cuda_header() {
  static const std::regex kCuda(R"(^(cuda|cublas|cub/|cute/|cutlass/|nccl|thrust/|mma\.h|nvrtc))");
  return kCuda;
}

const std::regex& torch_header() {
  static const std::regex kTorch(R"(^(torch/|ATen/|c10/))");
  return kTorch;
}

// The trainer has kernels of its own for operators that libtorch would run in many launches;
// bench/device holds programs that check and time kernels of ops/cuda alone.
bool may_use_cuda(const std::string& path) {
  return starts_with(path, "src/ops/cuda/") || starts_with(path, "src/train/") ||
         starts_with(path, "bench/device/");
}

// Headers of C++ have no dot and no slash; those of C and of the system may be shown too.
bool is_standard_header(const std::string& name) {
  static const std::set<std::string> kSystem = {"unistd.h", "fcntl.h", "pthread.h"};
  return name.find_first_of("./") == std::string::npos || starts_with(name, "sys/") ||
         kSystem.count(name) != 0;
}

// Whether only the .cc files of its own folder read a header.
bool is_private_header(const Tree& tree, const std::string& path) {
  for (const auto& [other, file] : tree.files) {
    if (!is_source(other) || (folder_of(other) == folder_of(path) && !is_header(other))) continue;
    for (const Include& include : includes_of(file.text)) {
      if ("src/" + include.name == path) return false;
    }
  }
  return true;
}

// These folders exist for a library's sake, or nothing above them is compiled without it.
bool may_show_libraries(const Tree& tree, const std::string& path) {
  return room_of(path) == "train" || room_of(path) == "apps" || room_of(path) == "serve" ||
         starts_with(path, "src/ops/cpu/") || starts_with(path, "src/ops/cuda/") ||
         is_private_header(tree, path);
}

std::optional<std::string> third_party_complaint(const Tree& tree, const std::string& path,
                                                 const Include& include) {
  const std::string& name = include.name;
  if (std::regex_search(name, cuda_header()) && !may_use_cuda(path)) {
    return "CUDA belongs to src/ops/cuda, src/train and bench/device, found " + name;
  }
  const bool trainer = room_of(path) == "train" || starts_with(path, "apps/train");
  if (std::regex_search(name, torch_header()) && !trainer) {
    return "libtorch belongs to src/train and apps/train*, found " + name;
  }
  if (include.quoted || !is_header(path) || room_of(path).empty()) return std::nullopt;
  if (is_standard_header(name) || may_show_libraries(tree, path)) return std::nullopt;
  if (ends_with(path, "_testing.h")) return std::nullopt;  // fixtures, for tests of any room
  return "a public header shows the standard library only, found " + name;
}

// The CMakeLists.txt that should compile a .cc: in its folder or the nearest above.
std::string nearest_cmake(const Tree& tree, const std::string& path) {
  for (std::string folder = folder_of(path); !folder.empty(); folder = folder_of(folder)) {
    if (tree.has(folder + "/CMakeLists.txt")) return folder + "/CMakeLists.txt";
  }
  return "";
}

// A room compiles its own folder and the SUBFOLDERS it names; others glob or name their files.
bool compiles(const std::string& cmake_path, const std::string& cmake, const std::string& path) {
  if (cmake.find("fathom_room(") == std::string::npos) {
    return cmake.find("GLOB") != std::string::npos ||
           cmake.find(file_of(path)) != std::string::npos;
  }
  if (folder_of(cmake_path) == folder_of(path)) return true;
  const std::regex named("SUBFOLDERS[^)]*\\b" + file_of(folder_of(path)) + "\\b");
  return std::regex_search(cmake, named);
}

}  // namespace

Complaints check_layers(const Tree& tree) {
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    const std::string room = room_of(path);
    if (!is_source(path) || room.empty()) continue;
    if (floors().count(room) == 0) {
      found.push_back({path, 0, "layers", "folder is no room of docs/design.md: " + room});
      continue;
    }
    for (const Include& include : includes_of(file.text)) {
      const auto complaint = layer_complaint(path, include.name);
      if (complaint) found.push_back({path, include.line, "layers", *complaint});
    }
  }
  return found;
}

Complaints check_third_party(const Tree& tree) {
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    if (!is_source(path)) continue;
    if (ends_with(path, ".cu") && !may_use_cuda(path)) {
      found.push_back({path, 0, "third party",
                       "a .cu file belongs to src/ops/cuda, src/train or bench/device"});
    }
    for (const Include& include : includes_of(file.text)) {
      const auto complaint = third_party_complaint(tree, path, include);
      if (complaint) found.push_back({path, include.line, "third party", *complaint});
    }
  }
  return found;
}

// The room of the library fathom_NAME: a room may have more than one (fathom_train_data). Empty for
// names that are no library of a room.
std::string room_of_target(const std::string& name) {
  for (const auto& [room, floor] : floors()) {
    if (name == room || starts_with(name, room + "_")) return room;
  }
  return "";
}

Complaints check_link_graph(const Tree& tree) {
  static const std::regex kTarget(R"(\bfathom_([a-z_]+)\b)");
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    const std::string room = room_of(path);
    if (file_of(path) != "CMakeLists.txt" || floors().count(room) == 0) continue;
    const auto end = std::sregex_iterator();
    for (auto it = std::sregex_iterator(file.text.begin(), file.text.end(), kTarget); it != end;
         ++it) {
      const std::string other = room_of_target((*it)[1]);
      const auto floor = floors().find(other);
      if (floor == floors().end() || other == room || floor->second < floors().at(room)) continue;
      found.push_back(
          {path, 0, "link graph", room + " links " + it->str() + ", not a lower floor"});
    }
  }
  return found;
}

Complaints check_cmake_rooms(const Tree& tree) {
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    if (!ends_with(path, ".cc") && !ends_with(path, ".cu")) continue;
    if (is_data(path)) continue;
    const std::string cmake = nearest_cmake(tree, path);
    if (cmake.empty() || !compiles(cmake, tree.files.at(cmake).text, path)) {
      found.push_back({path, 0, "cmake", "no CMakeLists.txt beside it compiles this file"});
    }
  }
  return found;
}

Complaints check_own_header(const Tree& tree) {
  Complaints found;
  for (const auto& [path, file] : tree.files) {
    if (!is_source(path)) continue;
    const bool repeats = ends_with(path, "-inl.h");  // once for each target of Highway
    if (is_header(path) && !repeats && file.text.find("#pragma once\n") == std::string::npos) {
      found.push_back({path, 0, "header", "no #pragma once"});
    }
    const std::string own = path.substr(0, path.rfind('.')) + ".h";
    if (is_header(path) || !tree.has(own)) continue;
    const std::vector<Include> includes = includes_of(file.text);
    if (includes.empty() || file_of(includes[0].name) != file_of(own)) {
      found.push_back({path, 0, "header", "the first include is not " + file_of(own)});
    }
  }
  return found;
}

}  // namespace fathom::tidy
