#include "model_copy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace fathom {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

uint64_t header_bytes(const std::string& bytes) {
  uint64_t n = 0;
  std::memcpy(&n, bytes.data(), sizeof(n));
  return n;
}

}  // namespace

ModelCopy::ModelCopy(const std::string& folder, bool links) {
  static int number = 0;
  path_ = testing::TempDir() + "/fathom_copy_" + std::to_string(::getpid()) + "_" +
          std::to_string(number++);
  fs::create_directories(path_);
  for (const auto& entry : fs::directory_iterator(std::string(FATHOM_SOURCE_DIR) + "/" + folder)) {
    if (!entry.is_regular_file()) continue;
    const fs::path to = fs::path(path_) / entry.path().filename();
    if (links) {
      fs::create_symlink(entry.path(), to);
    } else {
      fs::copy(entry.path(), to);
      fs::permissions(to, fs::perms::owner_write, fs::perm_options::add);
    }
  }
}

ModelCopy::~ModelCopy() {
  std::error_code code;
  fs::remove_all(path_, code);
}

std::string ModelCopy::read(const std::string& name) const {
  std::ostringstream text;
  text << std::ifstream(file(name), std::ios::binary).rdbuf();
  return text.str();
}

void ModelCopy::write(const std::string& name, const std::string& text) const {
  fs::remove(file(name));  // a link must not lead the bytes elsewhere
  std::ofstream(file(name), std::ios::binary) << text;
}

void ModelCopy::remove(const std::string& name) const { fs::remove(file(name)); }

void ModelCopy::make_folder(const std::string& name) const {
  fs::remove(file(name));
  fs::create_directory(file(name));
}

void ModelCopy::edit_json(const std::string& name, const Edit& edit) const {
  json::value value = json::parse(read(name));
  edit(value.get_object());
  write(name, json::serialize(value));
}

void ModelCopy::edit_header(const std::string& name, const Edit& edit) const {
  const std::string bytes = read(name);
  const uint64_t n = header_bytes(bytes);
  json::value header = json::parse(bytes.substr(8, n));
  edit(header.get_object());
  const std::string text = json::serialize(header);
  const uint64_t length = text.size();
  std::string changed(reinterpret_cast<const char*>(&length), 8);
  write(name, changed + text + bytes.substr(8 + n));
}

void ModelCopy::set_byte(const std::string& name, const std::string& tensor, size_t offset,
                         char value) const {
  std::string bytes = read(name);
  const uint64_t n = header_bytes(bytes);
  const json::value header = json::parse(bytes.substr(8, n));
  const auto begin = header.at(tensor).at("data_offsets").at(0).to_number<size_t>();
  bytes.at(8 + n + begin + offset) = value;
  write(name, bytes);
}

}  // namespace fathom
