#include "text/json_output.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <limits>

namespace fathom {
namespace {

namespace json = boost::json;

TEST(JsonOutput, FiguresStandAsPeopleWriteThem) {
  EXPECT_EQ(json_output(json::array{0.0, -1.0, 0.25, 1e16, 1e-5, 7, true, nullptr}),
            "[0.0,-1.0,0.25,1e+16,1e-05,7,true,null]");
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(json_output(json::array{kInfinite, -kInfinite, std::numeric_limits<double>::quiet_NaN(),
                                    std::numeric_limits<uint64_t>::max()}),
            "[null,null,null,18446744073709551615]");
}

TEST(JsonOutput, KeepsOrderAndWritesOnlyUtf8) {
  EXPECT_EQ(json_output(json::object{{"b", json::array{}}, {"a\n", json::object{}}}),
            R"({"b":[],"a\n":{}})");
  EXPECT_EQ(json_output("\x01\"é\xff"
                        "a\xe2\x82"),
            "\"\\u0001\\\"é\xEF\xBF\xBD"
            "a\xEF\xBF\xBD\"");
}

TEST(JsonOutput, WhatIsReadBackIsTheSame) {
  const json::value value = {{"x", {1.5, -2.25e-7, 3e300, 12, "text / \t ü"}}, {"y", {{"z", 0.1}}}};
  EXPECT_EQ(json::parse(json_output(value)), value);
}

}  // namespace
}  // namespace fathom
