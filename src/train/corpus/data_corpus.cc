#include "train/corpus/data_corpus.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <unordered_set>

#include "base/file.h"
#include "base/hash.h"
#include "train/corpus/data_dedup.h"
#include "train/corpus/data_license.h"
#include "train/corpus/gzip.h"

namespace fathom::train {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxRawBytes = 4u << 20;
constexpr uint64_t kMaxUnpackedBytes = 16u << 20;
constexpr double kSeenShare = 0.5;       // of sampled shingles; more makes a near-duplicate
constexpr double kRepeatedShare = 0.04;  // of a source's pages
constexpr int kRepeatedPages = 6;

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

Result<SourceSpec> parse_source(const std::vector<std::string>& words, int line) {
  const std::string where = "recipe line " + std::to_string(line) + ": ";
  if (words.size() != 7) {
    return invalid(where + "wanted 7 fields, found " + std::to_string(words.size()));
  }
  SourceSpec spec;
  spec.name = words[0];
  if (words[1] != "doc" && words[1] != "code") {
    return invalid(where + "kind: wanted doc or code, found " + words[1]);
  }
  spec.kind = words[1] == "doc" ? TextKind::kDoc : TextKind::kCode;
  if (words[2] != "train" && words[2] != "held") {
    return invalid(where + "split: wanted train or held, found " + words[2]);
  }
  spec.split = words[2] == "train" ? Split::kTrain : Split::kHeldOut;
  spec.licence = words[3];
  char* end = nullptr;
  const double megabytes = std::strtod(words[4].c_str(), &end);
  if (*end != 0 || megabytes < 0 || megabytes > 1e6) {
    return invalid(where + "cap: wanted megabytes, found " + words[4]);
  }
  spec.cap_bytes = static_cast<int64_t>(megabytes * 1e6);
  spec.package = words[5];
  std::istringstream globs(words[6]);
  for (std::string glob; std::getline(globs, glob, ',');) {
    if (glob.rfind('-', 0) == 0) {
      spec.exclude.push_back(glob.substr(1));
    } else {
      spec.include.push_back(glob);
    }
  }
  return spec;
}

bool matches_any(const std::vector<std::string>& globs, std::string_view path) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return glob_match(glob, path); });
}

// All regular files below root as relative paths, sorted.
std::vector<std::string> list_files(const fs::path& root) {
  std::vector<std::string> paths;
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(root, options, error), end; !error && it != end;
       it.increment(error)) {
    if (it->is_symlink(error) || !it->is_regular_file(error)) continue;
    paths.push_back(it->path().lexically_relative(root).string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string digest(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  const Sha256Digest sum = sha256(bytes);
  return {reinterpret_cast<const char*>(sum.data()), sum.size()};
}

CopyrightFile read_copyright(const fs::path& root, const std::string& package) {
  for (const char* name : {"copyright", "copyright.gz"}) {
    auto text = read_maybe_gzip((root / "usr/share/doc" / package / name).string());
    if (text) return CopyrightFile::parse(*text);
  }
  return CopyrightFile::parse("");
}

// The kept texts of one source before duplicates are looked for.
Result<SourceText> read_source(const SourceSpec& spec, const fs::path& root) {
  if (!fs::is_directory(root)) {
    return not_found("package " + spec.package + ": wanted the folder " + root.string() +
                     ", found none");
  }
  SourceText source;
  source.spec = spec;
  const CopyrightFile copyright = read_copyright(root, spec.package);
  source.licence = spec.licence == "auto" ? copyright.default_licence() : spec.licence;
  if (spec.licence == "auto" && !licence_is_permissive(source.licence)) {
    return invalid("package " + spec.package + ": licence: wanted a permissive one, found \"" +
                   source.licence + "\"");
  }
  for (const std::string& path : list_files(root)) {
    if (!matches_any(spec.include, path) || matches_any(spec.exclude, path)) continue;
    ++source.files_seen;
    if (copyright.forbids(path)) {
      ++source.dropped_licence;
      continue;
    }
    auto raw = read_maybe_gzip((root / path).string());
    if (!raw) {
      ++source.dropped_form;
      continue;
    }
    if (spec.kind == TextKind::kCode && head_names_copyleft(*raw)) {
      ++source.dropped_licence;
      continue;
    }
    std::string text = readable_text(path, *raw);
    if (text.empty()) {
      ++source.dropped_form;
    } else if (head_names_copyleft(text)) {
      ++source.dropped_licence;
    } else {
      source.documents.push_back({path, std::move(text)});
    }
  }
  return source;
}

void clean_pages(SourceText& source) {
  if (source.spec.kind != TextKind::kDoc) return;
  std::vector<std::string> pages;
  for (Document& document : source.documents) pages.push_back(std::move(document.text));
  drop_repeated_lines(pages, kRepeatedShare, kRepeatedPages);
  std::vector<Document> kept;
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i].size() < 200) {
      ++source.dropped_form;
      continue;
    }
    kept.push_back({std::move(source.documents[i].path), std::move(pages[i])});
  }
  source.documents = std::move(kept);
}

class Deduplicator {
 public:
  void filter(SourceText& source) {
    std::vector<Document> kept;
    for (Document& document : source.documents) {
      const bool repeated =
          exact_.count(digest(document.text)) > 0 || near_.seen_share(document.text) > kSeenShare;
      if (repeated) {
        ++source.dropped_duplicate;
        continue;
      }
      exact_.insert(digest(document.text));
      near_.add(document.text);
      kept.push_back(std::move(document));
    }
    source.documents = std::move(kept);
  }

 private:
  std::unordered_set<std::string> exact_;
  NearDuplicates near_;
};

// Keeps documents in the order of their digests, a fixed random order, until the cap is reached.
void apply_cap(SourceText& source) {
  const int64_t cap = source.spec.cap_bytes;
  std::vector<std::pair<std::string, size_t>> order;
  for (size_t i = 0; i < source.documents.size(); ++i) {
    order.emplace_back(digest(source.documents[i].text), i);
  }
  std::sort(order.begin(), order.end());
  std::set<size_t> chosen;
  int64_t bytes = 0;
  for (const auto& [key, index] : order) {
    if (cap > 0 && bytes >= cap) break;
    bytes += static_cast<int64_t>(source.documents[index].text.size());
    chosen.insert(index);
  }
  std::vector<Document> kept;
  for (size_t index : chosen) kept.push_back(std::move(source.documents[index]));
  source.dropped_cap = static_cast<int64_t>(source.documents.size() - kept.size());
  source.documents = std::move(kept);
  source.bytes = bytes;
}

}  // namespace

Result<std::vector<SourceSpec>> parse_recipe(std::string_view text) {
  std::vector<SourceSpec> recipe;
  std::set<std::string> names;
  std::istringstream stream{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) continue;
    FATHOM_ASSIGN_OR_RETURN(SourceSpec spec, parse_source(words, number));
    if (!names.insert(spec.name).second) {
      return invalid("recipe line " + std::to_string(number) +
                     ": wanted a new source name, found " + spec.name + " again");
    }
    recipe.push_back(std::move(spec));
  }
  return recipe;
}

Result<std::vector<SourceText>> build_corpus(const std::vector<SourceSpec>& recipe,
                                             const std::string& packages_dir) {
  std::vector<SourceSpec> order = recipe;
  std::stable_sort(order.begin(), order.end(), [](const SourceSpec& a, const SourceSpec& b) {
    return a.split == Split::kHeldOut && b.split == Split::kTrain;
  });
  std::vector<SourceText> sources;
  Deduplicator duplicates;
  for (const SourceSpec& spec : order) {
    FATHOM_ASSIGN_OR_RETURN(SourceText source,
                            read_source(spec, fs::path(packages_dir) / spec.package));
    clean_pages(source);
    duplicates.filter(source);
    apply_cap(source);
    sources.push_back(std::move(source));
  }
  return sources;
}

Result<std::string> read_maybe_gzip(const std::string& path) {
  if (!path.ends_with(".gz")) return read_file(path, kMaxRawBytes);
  FATHOM_ASSIGN_OR_RETURN(const std::string packed, read_file(path, kMaxUnpackedBytes));
  return gunzip(packed, path, kMaxUnpackedBytes);
}

}  // namespace fathom::train
