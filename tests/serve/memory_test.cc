// Goal: where memory for a request is wanting, that request is refused or its connection closed,
// and nobody else notices. Method: this program's operator new, which refuses large pieces while
// it is told to; bodies that need one, in each of their forms, beside a stream that goes on.
#include <gtest/gtest.h>

#include "scarce_memory.h"
#include "served.h"

namespace fathom {
namespace {

constexpr size_t kLargest = size_t{24} << 20;  // more than an answer needs
constexpr size_t kBody = size_t{40} << 20;

bool logged(Served& served, const std::string& text) {
  for (const std::string& line : served.log()) {
    if (line.find(text) != std::string::npos) return true;
  }
  return false;
}

class WantOfMemory : public testing::TestWithParam<bool> {};

TEST_P(WantOfMemory, LosesTheRequestAlone) {
  Served served({});
  HttpClient beside(served.port());
  HttpClient large(served.port());
  beside.send(post_text("/v1/chat/completions", long_call()));
  ASSERT_TRUE(beside.read_until("data: "));
  const std::string begin = "POST /tokenize HTTP/1.1\r\nHost: x\r\n";
  const std::string body(kBody, ' ');
  refuse_pieces_above(kLargest);
  if (GetParam()) {
    large.send(begin + "Transfer-Encoding: chunked\r\n\r\n2800000\r\n");
  } else {
    large.send(begin + "Content-Length: " + std::to_string(kBody) + "\r\n\r\n");
  }
  large.send(body);
  const auto reply = large.read_reply();
  refuse_pieces_above(SIZE_MAX);
  if (reply) {
    EXPECT_EQ(reply->status, 503) << reply->body;
  }
  EXPECT_TRUE(logged(served, "- - connection: wanted memory, found none"));
  EXPECT_TRUE(beside.read_until("data: [DONE]"));
  EXPECT_NE(beside.unread().find(R"("finish_reason":"length")"), std::string::npos);
  HttpClient other(served.port());
  EXPECT_EQ(other.post("/tokenize", R"({"prompt":"x"})")->status, 200);
  served.stop();  // nothing is held
}

INSTANTIATE_TEST_SUITE_P(Bodies, WantOfMemory, testing::Bool(),
                         [](const auto& info) { return info.param ? "InChunks" : "OfALength"; });

}  // namespace
}  // namespace fathom
