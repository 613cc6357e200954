// Encodes files on one thread and prints one JSON line for each: bytes, ids, the best time of
// several rounds, and the SHA-256 of the ids (little-endian int32), so that another tokenizer can
// be held against it (bench/tokenizer_compare.py). A file is cut into documents: each ends at the
// first newline at or after kDocumentBytes.
//
// Usage: tokenizer_speed TOKENIZER.json ROUNDS FILE...

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "base/file.h"
#include "base/hash.h"
#include "text/tokenizer.h"

namespace fathom {
namespace {

// CPU time of this thread, which other programs on the machine do not lengthen.
double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

constexpr size_t kDocumentBytes = 16384;

std::vector<std::string_view> documents_of(std::string_view text) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    const size_t newline = text.find('\n', kDocumentBytes);
    const size_t n_bytes = newline == text.npos ? text.size() : newline + 1;
    documents.push_back(text.substr(0, n_bytes));
    text.remove_prefix(n_bytes);
  }
  return documents;
}

Result<void> measure(const Tokenizer& tokenizer, int n_rounds, const std::string& path) {
  FATHOM_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  const auto documents = documents_of(text);
  std::vector<std::vector<TokenId>> encoded(documents.size());
  double best_s = 1e30;
  for (int round = 0; round < n_rounds; ++round) {
    const double start = cpu_seconds();
    for (size_t i = 0; i < documents.size(); ++i) {
      FATHOM_ASSIGN_OR_RETURN(encoded[i], tokenizer.encode(documents[i], AddedTokens::kMatch));
    }
    best_s = std::min(best_s, cpu_seconds() - start);
  }
  std::vector<TokenId> ids;
  for (const auto& document : encoded) ids.insert(ids.end(), document.begin(), document.end());
  const std::string digest = to_hex(sha256(std::as_bytes(std::span(ids))));
  fmt::print(
      "{{\"file\":\"{}\",\"bytes\":{},\"ids\":{},\"seconds\":{:.6f},\"mb_per_s\":{:.2f},"
      "\"sha256\":\"{}\"}}\n",
      path, text.size(), ids.size(), best_s, text.size() / best_s / 1e6, digest);
  return {};
}

Result<void> run(int argc, char** argv) {
  if (argc < 4) return invalid("usage: tokenizer_speed TOKENIZER.json ROUNDS FILE...");
  const double start = cpu_seconds();
  FATHOM_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::load(argv[1]));
  fmt::print("{{\"load_seconds\":{:.3f}}}\n", cpu_seconds() - start);
  const int n_rounds = std::max(1, std::atoi(argv[2]));
  for (int i = 3; i < argc; ++i) FATHOM_RETURN_IF_ERROR(measure(tokenizer, n_rounds, argv[i]));
  return {};
}

}  // namespace
}  // namespace fathom

int main(int argc, char** argv) {
  const auto result = fathom::run(argc, argv);
  if (result) return 0;
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  return 1;
}
