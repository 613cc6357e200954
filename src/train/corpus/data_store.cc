#include "train/corpus/data_store.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>
#include <sstream>

#include "base/file.h"
#include "base/hash.h"

namespace fathom::train {

std::string join_documents(const std::vector<std::string>& texts) {
  std::string joined;
  for (const std::string& text : texts) {
    joined += text;
    joined += '\0';
  }
  return joined;
}

std::vector<std::string> split_documents(std::string_view joined) {
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < joined.size();) {
    const size_t end = std::min(joined.find('\0', begin), joined.size());
    texts.emplace_back(joined.substr(begin, end - begin));
    begin = end + 1;
  }
  return texts;
}

Result<std::vector<std::string>> read_documents(const std::string& corpus_dir,
                                                const std::string& source) {
  const std::string path = corpus_dir + "/text/" + source + ".txt";
  if (!std::filesystem::exists(path)) {
    return not_found(path + ": wanted what `fathom train data corpus` writes, found none; run it " +
                     "with --dir " + corpus_dir);
  }
  FATHOM_ASSIGN_OR_RETURN(const std::string joined, read_file(path));
  return split_documents(joined);
}

Result<std::map<std::string, PackageVersion>> parse_package_table(std::string_view text) {
  std::map<std::string, PackageVersion> packages;
  std::istringstream stream{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    std::istringstream fields(line);
    std::string package, version, sha256;
    if (!(fields >> package >> version >> sha256) || sha256.size() != 64) {
      return invalid("packages.tsv line " + std::to_string(number) +
                     ": wanted package, version and SHA-256, found \"" + line + "\"");
    }
    packages[package] = {version, sha256};
  }
  return packages;
}

double unit_hash(std::string_view text) {
  const Sha256Digest sum = sha256(std::as_bytes(std::span(text.data(), text.size())));
  uint64_t value = 0;
  for (int i = 0; i < 6; ++i) value = value << 8 | sum[static_cast<size_t>(i)];
  return static_cast<double>(value) / static_cast<double>(uint64_t{1} << 48);
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned char>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string manifest_json(const std::vector<SourceText>& sources,
                          const std::map<std::string, PackageVersion>& packages) {
  std::string out = "{\n  \"sources\": [\n";
  for (size_t i = 0; i < sources.size(); ++i) {
    const SourceText& source = sources[i];
    const auto package = packages.find(source.spec.package);
    const bool known = package != packages.end();
    std::ostringstream line;
    line << "    {\"name\": " << json_quoted(source.spec.name)
         << ", \"package\": " << json_quoted(source.spec.package)
         << ", \"version\": " << json_quoted(known ? package->second.version : "")
         << ", \"deb_sha256\": " << json_quoted(known ? package->second.sha256 : "")
         << ", \"licence\": " << json_quoted(source.licence) << ", \"kind\": \""
         << (source.spec.kind == TextKind::kDoc ? "doc" : "code") << "\", \"split\": \""
         << (source.spec.split == Split::kTrain ? "train" : "held_out")
         << "\", \"files\": " << source.documents.size() << ", \"bytes\": " << source.bytes
         << ", \"dropped\": {\"licence\": " << source.dropped_licence
         << ", \"form\": " << source.dropped_form << ", \"duplicate\": " << source.dropped_duplicate
         << ", \"cap\": " << source.dropped_cap << "}}";
    out += line.str() + (i + 1 < sources.size() ? ",\n" : "\n");
  }
  return out + "  ]\n}\n";
}

}  // namespace fathom::train
