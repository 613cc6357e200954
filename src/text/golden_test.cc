#include "text/golden_test.h"

#include <lzma.h>

#include <cstdio>
#include <cstdlib>

#include "base/file.h"

namespace fathom {
namespace {

[[noreturn]] void give_up(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

std::string unpack_xz(const std::string& packed, const std::string& name) {
  lzma_stream stream = LZMA_STREAM_INIT;
  // LZMA_CONCATENATED: what follows a stream is another one, padding, or damage.
  const lzma_ret ready = lzma_stream_decoder(&stream, UINT64_MAX, LZMA_CONCATENATED);
  if (ready != LZMA_OK) give_up(name + ": no xz decoder");
  std::string out;
  std::string buffer(1 << 20, '\0');
  stream.next_in = reinterpret_cast<const uint8_t*>(packed.data());
  stream.avail_in = packed.size();
  lzma_ret state = LZMA_OK;
  while (state == LZMA_OK) {
    stream.next_out = reinterpret_cast<uint8_t*>(buffer.data());
    stream.avail_out = buffer.size();
    state = lzma_code(&stream, LZMA_FINISH);
    out.append(buffer, 0, buffer.size() - stream.avail_out);
  }
  lzma_end(&stream);
  if (state != LZMA_STREAM_END) give_up(name + ": damaged xz file");
  return out;
}

}  // namespace

std::string golden_file(const std::string& name) {
  const std::string path = std::string(FATHOM_SOURCE_DIR) + "/tests/golden/" + name;
  auto content = read_file(path);
  if (!content) give_up(content.error().message);
  return name.ends_with(".xz") ? unpack_xz(*content, name) : std::move(*content);
}

boost::json::value golden_json(const std::string& name) {
  boost::json::error_code failure;
  auto value = boost::json::parse(golden_file(name), failure);
  if (failure) give_up(name + ": " + failure.message());
  return value;
}

std::vector<boost::json::value> golden_json_lines(const std::string& name) {
  const std::string text = golden_file(name);
  std::vector<boost::json::value> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    boost::json::error_code failure;
    lines.push_back(boost::json::parse(std::string_view(text).substr(begin, end - begin), failure));
    if (failure) give_up(name + ": " + failure.message());
    begin = end + 1;
  }
  if (lines.empty()) give_up(name + ": no lines");
  return lines;
}

const std::string& released_tokenizer_json() {
  static const std::string json = golden_file("tokenizer/tokenizer.json.xz");
  return json;
}

const Tokenizer& released_tokenizer() {
  static const Tokenizer tokenizer = [] {
    auto result = Tokenizer::from_json(released_tokenizer_json(), "tokenizer.json");
    if (!result) give_up(result.error().message);
    return std::move(*result);
  }();
  return tokenizer;
}

std::vector<TokenId> ids_of(const boost::json::value& list) {
  return boost::json::value_to<std::vector<TokenId>>(list);
}

std::string string_of(const boost::json::value& text) {
  const auto& string = text.as_string();
  return {string.data(), string.size()};
}

}  // namespace fathom
