#pragma once

// A copy of a model in a folder of its own, to be damaged.

#include <boost/json.hpp>
#include <functional>
#include <string>

namespace fathom {

class ModelCopy {
 public:
  // Copies the files of a folder below FATHOM_SOURCE_DIR; with `links`, as symbolic links, of which
  // those that are edited become files.
  explicit ModelCopy(const std::string& folder, bool links = false);
  ~ModelCopy();
  ModelCopy(const ModelCopy&) = delete;
  ModelCopy& operator=(const ModelCopy&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  std::string read(const std::string& name) const;
  void write(const std::string& name, const std::string& text) const;
  void remove(const std::string& name) const;
  void make_folder(const std::string& name) const;  // in place of the file

  using Edit = std::function<void(boost::json::object&)>;
  void edit_json(const std::string& name, const Edit& edit) const;
  // The header of a safetensors file; its data stay as they are.
  void edit_header(const std::string& name, const Edit& edit) const;
  // Byte `offset` of a tensor.
  void set_byte(const std::string& name, const std::string& tensor, size_t offset,
                char value) const;

 private:
  std::string path_;
};

}  // namespace fathom
