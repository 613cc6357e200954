// The tokenizer.json writer and the constants of the small models.

#include <array>

#include "train/corpus/bpe_trainer.h"

namespace fathom::train {
namespace {

void append_utf8(std::string& out, int c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else {  // the byte alphabet ends at U+0143
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 63));
  }
}

// GPT-2's alphabet: printable bytes stand for themselves, the others get U+0100 and up, in order.
std::array<int, 256> byte_alphabet() {
  std::array<int, 256> alphabet{};
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
                           (byte >= 0xAE && byte <= 0xFF);
    alphabet[static_cast<size_t>(byte)] = printable ? byte : next++;
  }
  return alphabet;
}

std::string visible(std::string_view bytes) {
  static const std::array<int, 256> alphabet = byte_alphabet();
  std::string out;
  for (char c : bytes) append_utf8(out, alphabet[static_cast<unsigned char>(c)]);
  return out;
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        out += c;
    }
  }
  return out + "\"";
}

std::string added_token(int id, const AddedToken& token) {
  return "    {\"id\": " + std::to_string(id) + ", \"content\": " + quoted(token.content) +
         ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": " +
         (token.special ? "false" : "true") +
         ", \"special\": " + (token.special ? "true" : "false") + "}";
}

std::string pre_tokenizer(const std::vector<std::string>& patterns) {
  std::string out = "  \"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [\n";
  for (const std::string& pattern : patterns) {
    out += "    {\"type\": \"Split\", \"pattern\": {\"Regex\": " + quoted(pattern) +
           "}, \"behavior\": \"Isolated\", \"invert\": false},\n";
  }
  return out +
         "    {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
         "\"use_regex\": false}\n  ]},\n";
}

}  // namespace

std::vector<std::string> small_model_patterns() {
  return {R"(\p{N})",
          R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
          R"(| ?[\p{P}\p{S}]+(?:[\r\n]+[\t ]*)?|[\r\n]+[\t ]*|\s+(?!\S)|\s+)"};
}

std::vector<AddedToken> small_model_head_tokens() {
  return {
      {"<｜begin▁of▁sentence｜>", true}, {"<｜end▁of▁sentence｜>", true}, {"<｜▁pad▁｜>", true}};
}

std::vector<AddedToken> small_model_tail_tokens() {
  std::vector<AddedToken> tokens;
  for (const char* content : {"<｜System｜>",
                              "<｜fim▁hole｜>",
                              "<｜fim▁begin｜>",
                              "<｜fim▁end｜>",
                              "<｜User｜>",
                              "<｜Assistant｜>",
                              "<think>",
                              "</think>",
                              "｜DSML｜",
                              "<｜latest_reminder｜>",
                              "<｜action｜>",
                              "<｜query｜>",
                              "<｜authority｜>",
                              "<｜domain｜>",
                              "<｜task｜>",
                              "<｜political｜>",
                              "<｜entity｜>",
                              "<｜title｜>",
                              "<｜safety｜>",
                              "<｜answer｜>",
                              "<｜search｜>",
                              "<｜read_url｜>",
                              "<｜deepseek_image｜>"}) {
    tokens.push_back({content, false});
  }
  return tokens;
}

std::string bpe_json(const BpeModel& model) {
  const BpeOptions& options = model.options;
  std::vector<std::string> names;  // by id, tail tokens not included
  for (const AddedToken& token : options.head_tokens) names.push_back(token.content);
  for (bool printable : {true, false}) {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string name = visible(std::string(1, static_cast<char>(byte)));
      const bool itself = byte_alphabet()[static_cast<size_t>(byte)] < 256;
      if (itself == printable) names.push_back(name);
    }
  }
  for (const auto& [left, right] : model.merges) names.push_back(visible(left + right));

  std::string out = "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n";
  out += "  \"added_tokens\": [\n";
  int id = 0;
  for (const AddedToken& token : options.head_tokens) out += added_token(id++, token) + ",\n";
  id = static_cast<int>(names.size());
  for (const AddedToken& token : options.tail_tokens) out += added_token(id++, token) + ",\n";
  if (out.ends_with(",\n")) out.erase(out.size() - 2, 1);
  out += "  ],\n  \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": []},\n";
  out += pre_tokenizer(options.patterns);
  out +=
      "  \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
      "\"trim_offsets\": false, \"use_regex\": true},\n"
      "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": "
      "true, "
      "\"use_regex\": true},\n"
      "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
      "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n"
      "    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n    \"vocab\": {\n";
  for (size_t i = 0; i < names.size(); ++i) {
    out += "      " + quoted(names[i]) + ": " + std::to_string(i);
    out += i + 1 < names.size() ? ",\n" : "\n";
  }
  out += "    },\n    \"merges\": [\n";
  for (size_t i = 0; i < model.merges.size(); ++i) {
    const auto& [left, right] = model.merges[i];
    out += "      " + quoted(visible(left) + " " + visible(right));
    out += i + 1 < model.merges.size() ? ",\n" : "\n";
  }
  return out + "    ]\n  }\n}\n";
}

}  // namespace fathom::train
