#pragma once

// The text of a training corpus, from unpacked distribution packages. A recipe names the packages;
// the builder reads their files, keeps what is permissive, readable and new, and returns documents
// in a fixed order. Same packages and recipe, same bytes (docs/design/train.md).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace fathom::train {

enum class TextKind { kDoc, kCode };
enum class Split { kTrain, kHeldOut };

// One line of a recipe. A source is a part of one package.
struct SourceSpec {
  std::string name;  // of the source, unique
  TextKind kind = TextKind::kDoc;
  Split split = Split::kTrain;
  std::string
      licence;  // "auto": the package's own "Files: *" must be permissive; else checked by hand
  int64_t cap_bytes = 0;  // of kept text; 0: no limit
  std::string package;
  std::vector<std::string> include;  // globs over the path inside the package
  std::vector<std::string> exclude;  // globs, stronger
};

// Lines of "name kind split licence cap_mb package glob[,glob|,-glob]..."; '#' begins a comment.
Result<std::vector<SourceSpec>> parse_recipe(std::string_view text);

struct Document {
  std::string path;  // inside the package
  std::string text;  // UTF-8, no NUL, ends with a newline
};

struct SourceText {
  SourceSpec spec;
  std::vector<Document> documents;
  std::string licence;  // the name found or given
  int64_t bytes = 0;
  int64_t files_seen = 0;
  int64_t dropped_licence = 0, dropped_form = 0, dropped_duplicate = 0, dropped_cap = 0;
};

// packages_dir holds one folder a package, as dpkg-deb -x leaves it. Held-out sources are read
// first, so that a training file which repeats held-out text is the one that goes.
Result<std::vector<SourceText>> build_corpus(const std::vector<SourceSpec>& recipe,
                                             const std::string& packages_dir);

// The rules for one file, without duplicates: the text to keep, or empty.
//   html, htm: stripped. Then: at most 200,000 bytes, at least 200, well-formed UTF-8, no NUL, no
//   generated code, no long lines, not mostly digits, not mostly other scripts.
std::string readable_text(std::string_view path, std::string_view raw);

// A file's bytes; a name that ends in .gz is unpacked (at most 16 MiB) or refused (gzip.h).
Result<std::string> read_maybe_gzip(const std::string& path);

}  // namespace fathom::train
