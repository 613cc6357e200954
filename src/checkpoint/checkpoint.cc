#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <boost/json.hpp>
#include <climits>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

#include "checkpoint/safetensors.h"

namespace fathom {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr uint64_t kIndexBytesMax = 256 << 20;

std::span<const int64_t> shape_of(const Tensor& tensor) {
  return {tensor.shape.data(), static_cast<size_t>(tensor.rank)};
}

bool by_name(const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; }

// A file named by the index stands beside it: no path leads elsewhere.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= NAME_MAX && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

Result<std::vector<std::string>> list_files(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    if (it->path().extension() == ".safetensors") paths.push_back(it->path().string());
  }
  if (failure) return io_error(folder + ": cannot list: " + failure.message());
  if (paths.empty()) return not_found(folder + ": wanted *.safetensors, found none");
  std::sort(paths.begin(), paths.end());
  return paths;
}

struct Index {
  std::vector<std::pair<std::string, std::string>> weight_map;  // ascending names
  std::set<std::string> files;
  std::optional<json::value> total_size;
};

Result<Index> read_index(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const std::string text, read_file(path, kIndexBytesMax));
  json::error_code failure;
  const json::value root = json::parse(text, failure);
  if (failure) return invalid(path + ": wanted JSON, found: " + failure.message());
  const json::value* map = root.is_object() ? root.get_object().if_contains("weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) {
    return invalid(path + ": weight_map: wanted an object, found " +
                   (map == nullptr ? "nothing" : printable(json::serialize(*map))));
  }
  Index index;
  for (const auto& [name, file] : map->get_object()) {
    const bool plain = file.is_string() && is_plain_name(std::string_view(
                                               file.get_string().data(), file.get_string().size()));
    if (!plain) {
      return invalid(path + ": weight_map: tensor " + printable({name.data(), name.size()}) +
                     ": wanted a file name, found " + printable(json::serialize(file)));
    }
    index.files.emplace(file.get_string());
    index.weight_map.emplace_back(name, file.get_string());
  }
  std::sort(index.weight_map.begin(), index.weight_map.end());
  const json::value* metadata = root.get_object().if_contains("metadata");
  if (metadata != nullptr && !metadata->is_object()) {
    return invalid(path + ": metadata: wanted an object, found " +
                   printable(json::serialize(*metadata)));
  }
  const json::value* total =
      metadata == nullptr ? nullptr : metadata->get_object().if_contains("total_size");
  if (total != nullptr) index.total_size = *total;
  return index;
}

// Writers of such files disagree on whether the number has a decimal point.
bool is_size(const json::value& size, int64_t bytes) {
  if (size.is_int64()) return size.get_int64() == bytes;
  return size.is_number() && size.to_number<double>() == static_cast<double>(bytes);
}

}  // namespace

std::string describe_tensor(DType dtype, std::span<const int64_t> shape) {
  return std::string(dtype_name(dtype)) + " " + shape_text(shape);
}

std::string Checkpoint::describe(const StoredTensor& tensor) const {
  return describe_tensor(tensor.view.dtype, shape_of(tensor.view));
}

Result<Checkpoint> Checkpoint::open(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  std::error_code failure;
  if (!fs::is_directory(path, failure)) {
    FATHOM_RETURN_IF_ERROR(checkpoint.add_file(path));
    FATHOM_RETURN_IF_ERROR(checkpoint.sort_names());
    return checkpoint;
  }
  const std::string index = (fs::path(path) / "model.safetensors.index.json").string();
  FATHOM_ASSIGN_OR_RETURN(const bool has_index, has_file(index));
  if (has_index) {
    FATHOM_RETURN_IF_ERROR(checkpoint.add_index(index));
    return checkpoint;
  }
  FATHOM_ASSIGN_OR_RETURN(const std::vector<std::string> paths, list_files(path));
  for (const std::string& file : paths) FATHOM_RETURN_IF_ERROR(checkpoint.add_file(file));
  FATHOM_RETURN_IF_ERROR(checkpoint.sort_names());
  return checkpoint;
}

Result<void> Checkpoint::add_file(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  FATHOM_ASSIGN_OR_RETURN(SafetensorsHeader header, parse_safetensors(file.bytes(), path));
  for (SafetensorsEntry& entry : header.tensors) {
    const std::byte* data = file.bytes().data() + entry.begin;
    const auto element = static_cast<uint64_t>(dtype_bytes(entry.dtype));
    if (reinterpret_cast<uintptr_t>(data) % element != 0) {
      FATHOM_ASSIGN_OR_RETURN(Buffer copy,
                              Buffer::allocate(static_cast<int64_t>(entry.end - entry.begin),
                                               path + ": tensor " + printable(entry.name)));
      realigned_.push_back(std::move(copy));
      std::memcpy(realigned_.back().data(), data, entry.end - entry.begin);
      data = realigned_.back().data();
    }
    tensors_.push_back({.name = std::move(entry.name),
                        .view = Tensor::dense(data, entry.dtype, entry.shape),
                        .file = static_cast<int>(files_.size())});
  }
  files_.push_back(std::move(file));
  return {};
}

Result<void> Checkpoint::sort_names() {
  std::sort(tensors_.begin(), tensors_.end(), by_name);
  const auto twice =
      std::adjacent_find(tensors_.begin(), tensors_.end(),
                         [](const auto& a, const auto& b) { return a.name == b.name; });
  if (twice == tensors_.end()) return {};
  return invalid(files_[static_cast<size_t>(std::next(twice)->file)].path() + ": tensor " +
                 printable(twice->name) + ": wanted each name once, found it also in " +
                 files_[static_cast<size_t>(twice->file)].path());
}

Result<void> Checkpoint::add_index(const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const Index index, read_index(path));
  for (const std::string& name : index.files) {
    FATHOM_RETURN_IF_ERROR(add_file((fs::path(path_) / name).string()));
  }
  FATHOM_RETURN_IF_ERROR(sort_names());
  for (const auto& [name, file] : index.weight_map) {
    const StoredTensor* tensor = find(name);
    const std::string found =
        tensor == nullptr ? "nothing"
                          : fs::path(files_[static_cast<size_t>(tensor->file)].path()).filename();
    if (found != file) {
      return invalid(path + ": tensor " + printable(name) + ": wanted it in " + file + ", found " +
                     (tensor == nullptr ? found : "it in " + found));
    }
  }
  for (const StoredTensor& tensor : tensors_) {
    const auto entry =
        std::lower_bound(index.weight_map.begin(), index.weight_map.end(), tensor.name,
                         [](const auto& a, const std::string& name) { return a.first < name; });
    if (entry != index.weight_map.end() && entry->first == tensor.name) continue;
    index_problems_.push_back(path + ": tensor " + printable(tensor.name) +
                              ": wanted an entry in weight_map, found none");
  }
  if (index.total_size && !is_size(*index.total_size, payload_bytes())) {
    index_problems_.push_back(path + ": metadata.total_size: wanted " +
                              std::to_string(payload_bytes()) + ", found " +
                              printable(json::serialize(*index.total_size)));
  }
  return {};
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return found != tensors_.end() && found->name == name ? &*found : nullptr;
}

Result<Tensor> Checkpoint::get(std::string_view name) const {
  const StoredTensor* tensor = find(name);
  if (tensor != nullptr) return tensor->view;
  return not_found(path_ + ": tensor " + printable(name) + ": wanted it, found nothing");
}

Result<Tensor> Checkpoint::get(const ExpectedTensor& expected) const {
  const StoredTensor* tensor = find(expected.name);
  const std::string wanted = describe_tensor(expected.dtype, expected.shape);
  if (tensor == nullptr) {
    return not_found(path_ + ": tensor " + expected.name + ": wanted " + wanted +
                     ", found nothing");
  }
  const bool same = tensor->view.dtype == expected.dtype &&
                    std::ranges::equal(shape_of(tensor->view), expected.shape);
  if (same) return tensor->view;
  return invalid(files_[static_cast<size_t>(tensor->file)].path() + ": tensor " + expected.name +
                 ": wanted " + wanted + ", found " + describe(*tensor));
}

int64_t Checkpoint::payload_bytes() const {
  int64_t total = 0;
  for (const StoredTensor& tensor : tensors_) total += tensor.view.bytes();
  return total;
}

std::vector<std::string> Checkpoint::compare(std::span<const ExpectedTensor> expected) const {
  std::vector<std::string> problems = index_problems_;
  std::set<std::string_view> known;
  for (const ExpectedTensor& tensor : expected) {
    known.insert(tensor.name);
    const Result<Tensor> found = get(tensor);
    if (!found) problems.push_back(found.error().message);
  }
  for (const StoredTensor& tensor : tensors_) {
    if (known.contains(tensor.name)) continue;
    problems.push_back(files_[static_cast<size_t>(tensor.file)].path() + ": tensor " +
                       printable(tensor.name) + ": wanted no such tensor, found " +
                       describe(tensor));
  }
  return problems;
}

}  // namespace fathom
