#include "train/corpus/data_dedup.h"

#include <functional>
#include <unordered_map>

namespace fathom::train {
namespace {

constexpr size_t kWindow = 64;
constexpr uint64_t kSampleMask = 31;  // one window in 32
constexpr uint64_t kBase = 0x9E3779B97F4A7C15ull | 1;

uint64_t mix(uint64_t x) {  // the finaliser of splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

template <typename Body>
void for_each_sample(std::string_view text, Body body) {
  if (text.size() < kWindow) return;
  uint64_t top = 1;
  for (size_t i = 1; i < kWindow; ++i) top *= kBase;
  uint64_t hash = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (i >= kWindow) hash -= top * static_cast<unsigned char>(text[i - kWindow]);
    hash = hash * kBase + static_cast<unsigned char>(text[i]);
    if (i + 1 < kWindow) continue;
    const uint64_t mixed = mix(hash);
    if ((mixed & kSampleMask) == 0) body(mixed);
  }
}

std::string_view trimmed(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

template <typename Body>
void for_each_line(std::string_view text, Body body) {
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) end = text.size();
    body(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

}  // namespace

double NearDuplicates::seen_share(std::string_view text) const {
  int64_t samples = 0, seen = 0;
  for_each_sample(text, [&](uint64_t hash) {
    ++samples;
    seen += static_cast<int64_t>(seen_.count(hash));
  });
  return samples == 0 ? 0 : static_cast<double>(seen) / static_cast<double>(samples);
}

void NearDuplicates::add(std::string_view text) {
  for_each_sample(text, [&](uint64_t hash) { seen_.insert(hash); });
}

void drop_repeated_lines(std::vector<std::string>& pages, double max_share, int min_pages) {
  std::unordered_map<uint64_t, int> counts;
  const std::hash<std::string_view> hasher;
  for (const std::string& page : pages) {
    std::unordered_set<uint64_t> on_page;
    for_each_line(page, [&](std::string_view line) {
      if (!trimmed(line).empty()) on_page.insert(hasher(trimmed(line)));
    });
    for (uint64_t hash : on_page) ++counts[hash];
  }
  const double limit = max_share * static_cast<double>(pages.size());
  for (std::string& page : pages) {
    std::string kept;
    bool blank = true;
    for_each_line(page, [&](std::string_view line) {
      const std::string_view words = trimmed(line);
      if (words.empty()) {
        if (!blank) kept += '\n';
        blank = true;
        return;
      }
      const int count = counts[hasher(words)];
      if (count >= min_pages && count > limit) return;
      kept.append(line);
      kept += '\n';
      blank = false;
    });
    page = std::move(kept);
  }
}

}  // namespace fathom::train
