#pragma once

// Typed access to the fields of a tokenizer.json, with messages that name file and field; the parts
// of the file that are not vocabulary. Only for tokenizer_file.cc: this header shows Boost.JSON.

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom {

class JsonSource {
 public:
  // `name` outlives the object.
  explicit JsonSource(std::string_view name) : name_(name) {}

  Error error(std::string_view where, std::string_view what) const;

  // `memory` outlives the value.
  Result<boost::json::value> parse(std::string_view text,
                                   boost::json::monotonic_resource* memory) const;

  Result<const boost::json::object*> as_object(const boost::json::value& value,
                                               std::string_view where) const;
  Result<const boost::json::array*> as_array(const boost::json::value& value,
                                             std::string_view where) const;
  Result<int64_t> integer(const boost::json::value& value, std::string_view where, int64_t min,
                          int64_t max) const;

  // A field of `parent`, which stands at `where` ("" is the root); the field must be there.
  Result<const boost::json::value*> field(const boost::json::object& parent, std::string_view where,
                                          std::string_view key) const;
  Result<const boost::json::object*> object(const boost::json::object& parent,
                                            std::string_view where, std::string_view key) const;
  Result<const boost::json::array*> array(const boost::json::object& parent, std::string_view where,
                                          std::string_view key) const;
  Result<std::string_view> string(const boost::json::object& parent, std::string_view where,
                                  std::string_view key) const;
  Result<bool> boolean(const boost::json::object& parent, std::string_view where,
                       std::string_view key) const;
  Result<int64_t> integer(const boost::json::object& parent, std::string_view where,
                          std::string_view key, int64_t min, int64_t max) const;

 private:
  std::string_view name_;
};

// Refuses what would change ids and has no meaning here; returns model.ignore_merges.
Result<bool> check_supported(const JsonSource& source, const boost::json::object& root,
                             const boost::json::object& model);

// The regular expressions of the pre_tokenizer, in order.
Result<std::vector<std::string>> read_split_patterns(const JsonSource& source,
                                                     const boost::json::object& root);

}  // namespace fathom
