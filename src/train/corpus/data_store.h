#pragma once

// Files between the data jobs: texts of a source, and the manifest.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "train/corpus/data_corpus.h"

namespace fathom::train {

// Documents of one source in one file: every text, then a NUL.
std::string join_documents(const std::vector<std::string>& texts);
std::vector<std::string> split_documents(std::string_view joined);

// The documents of a source that the job `data corpus` left below `corpus_dir`. kNotFound, with the
// job to run, where it left none.
Result<std::vector<std::string>> read_documents(const std::string& corpus_dir,
                                                const std::string& source);

struct PackageVersion {
  std::string version, sha256;
};

// The table that tools/corpus_fetch.sh writes: package, version, SHA-256, size.
Result<std::map<std::string, PackageVersion>> parse_package_table(std::string_view text);

// The data manifest: one object a source with package, version, SHA-256 of the .deb, licence,
// split, kind, files and bytes kept, and how many files were left out for what reason.
std::string manifest_json(const std::vector<SourceText>& sources,
                          const std::map<std::string, PackageVersion>& packages);

// A number in [0, 1) that depends on the bytes alone: the same text is always in or out of a
// sample.
double unit_hash(std::string_view text);

// A JSON string literal. Bytes that are not ASCII stay as they are.
std::string json_quoted(std::string_view text);

}  // namespace fathom::train
