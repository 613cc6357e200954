#pragma once

// Reads tests/golden/ops/*.safetensors for the tests of this room: flat headers that our own
// generator wrote. For tests only; checkpoint/ has the reader that trusts nothing.

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tensor/codecs.h"
#include "tensor/tensor.h"

namespace fathom {

class Golden {
 public:
  explicit Golden(const std::string& name) {
    const std::string path = std::string(FATHOM_SOURCE_DIR) + "/tests/golden/ops/" + name;
    auto text = read_file(path + ".safetensors");
    FATHOM_CHECK(text.has_value());
    text_ = std::move(*text);
    uint64_t header = 0;
    std::memcpy(&header, text_.data(), 8);
    header_ = std::string_view(text_).substr(8, header);
    data_ = Buffer(static_cast<int64_t>(text_.size() - 8 - header));
    std::memcpy(data_.data(), text_.data() + 8 + header, text_.size() - 8 - header);
  }

  Tensor tensor(const std::string& name) const {
    const size_t at = header_.find("\"" + name + "\"");
    FATHOM_CHECK(at != std::string_view::npos);
    const std::string_view entry = header_.substr(at, header_.find('}', at) - at);
    const std::vector<int64_t> shape = numbers(entry, "\"shape\"");
    const std::vector<int64_t> offsets = numbers(entry, "\"data_offsets\"");
    const Tensor t =
        Tensor::dense(static_cast<const void*>(data_.data() + offsets[0]), dtype_of(entry), shape);
    FATHOM_CHECK(t.bytes() == offsets[1] - offsets[0]);
    return t;
  }

  // Any float tensor as fp32.
  std::vector<float> floats(const std::string& name) const {
    const Tensor t = tensor(name);
    std::vector<float> result(static_cast<size_t>(t.elements()));
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = t.dtype == DType::kBf16 ? bf16_to_float(t.as<Bf16>()[i]) : t.as<float>()[i];
    }
    return result;
  }

 private:
  static DType dtype_of(std::string_view entry) {
    for (const DType dtype :
         {DType::kBf16, DType::kF32, DType::kI8, DType::kU8, DType::kI32, DType::kI64}) {
      std::string quoted = "\"";
      quoted.append(dtype_name(dtype)).push_back('"');
      if (entry.find(quoted) != std::string_view::npos) return dtype;
    }
    FATHOM_CHECK(false);
    return DType::kU8;
  }

  static std::vector<int64_t> numbers(std::string_view entry, std::string_view key) {
    const size_t begin = entry.find('[', entry.find(key)) + 1;
    std::string list(entry.substr(begin, entry.find(']', begin) - begin));
    std::vector<int64_t> result;
    for (const char* p = list.c_str(); *p != '\0';) {
      char* end = nullptr;
      result.push_back(std::strtoll(p, &end, 10));
      p = *end == ',' ? end + 1 : end;
    }
    return result;
  }

  std::string text_;
  std::string_view header_;
  Buffer data_;
};

// How many elements of two bf16 arrays differ, and by how many steps of the bf16 number line.
struct Bf16Difference {
  int64_t count = 0;
  int64_t largest_ulp = 0;
};

inline Bf16Difference compare_bf16(const Bf16* a, const Bf16* b, int64_t n) {
  const auto place = [](Bf16 bits) {
    const int64_t magnitude = bits & 0x7fff;
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
  };
  Bf16Difference result;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t distance = std::abs(place(a[i]) - place(b[i]));
    result.count += distance != 0 ? 1 : 0;
    result.largest_ulp = std::max(result.largest_ulp, distance);
  }
  return result;
}

// The tolerance of tests/golden/README.md: at most `ulp` steps, on at most `part` of the elements.
inline void expect_bf16_near(const Tensor& found, const Tensor& wanted, int64_t ulp, double part) {
  ASSERT_EQ(found.elements(), wanted.elements());
  const Bf16Difference d = compare_bf16(found.as<Bf16>(), wanted.as<Bf16>(), wanted.elements());
  EXPECT_LE(d.largest_ulp, ulp);
  EXPECT_LE(static_cast<double>(d.count), part * static_cast<double>(wanted.elements()));
}

}  // namespace fathom
