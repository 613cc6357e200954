#include "train/corpus/data_license.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace fathom::train {
namespace {

constexpr size_t kHeadBytes = 4096;

constexpr std::array kPermissive = {"0bsd",
                                    "afl",
                                    "apache",
                                    "asl",
                                    "beopen",
                                    "boost",
                                    "bsd",
                                    "bsl",
                                    "bzip2",
                                    "cc0",
                                    "cc-by-2",
                                    "cc-by-3",
                                    "cc-by-4",
                                    "cnri",
                                    "curl",
                                    "expat",
                                    "fsf-all-permissive",
                                    "fsfap",
                                    "go",
                                    "hpnd",
                                    "icu",
                                    "isc",
                                    "libpng",
                                    "llvm",
                                    "lua",
                                    "mit",
                                    "ncsa",
                                    "ntp",
                                    "openssl",
                                    "pd",
                                    "permissive",
                                    "postgresql",
                                    "psf",
                                    "public-domain",
                                    "public domain",
                                    "python",
                                    "tcl",
                                    "ubsan",
                                    "unicode",
                                    "university-of-illinois",
                                    "unlicense",
                                    "uoi-ncsa",
                                    "w3c",
                                    "wtfpl",
                                    "x11",
                                    "zlib",
                                    "zpl"};

constexpr std::array kCopyleft = {"GPL",
                                  "GNU General Public",
                                  "GNU Lesser",
                                  "GNU Library General",
                                  "GNU Affero",
                                  "General Public Lic",
                                  "GFDL",
                                  "Free Documentation Lic",
                                  "CC-BY-SA",
                                  "CC BY-SA",
                                  "CC-BY-NC",
                                  "CC BY-NC",
                                  "ShareAlike",
                                  "Share Alike",
                                  "NonCommercial",
                                  "Non-Commercial",
                                  "Mozilla Public",
                                  "MPL-2.0",
                                  "MPLv2",
                                  "Eclipse Public",
                                  "CDDL",
                                  "CeCILL",
                                  "EUPL",
                                  "Artistic License",
                                  "Common Public License",
                                  "Sleepycat",
                                  "non-commercial use"};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::string_view trim(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n,");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n,") - first + 1);
}

std::vector<std::string_view> split(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.push_back(trim(text.substr(begin, end - begin)));
    if (end == std::string_view::npos) return parts;
    begin = end + separator.size();
  }
}

bool name_is_permissive(std::string_view name) {
  // "CC-BY-SA-4.0" must not pass as "CC-BY", nor "Python-GPL" as "Python".
  if (name.find("gpl") != name.npos || name.find("-sa") != name.npos ||
      name.find("-nc") != name.npos) {
    return false;
  }
  return std::any_of(kPermissive.begin(), kPermissive.end(),
                     [&](std::string_view known) { return name.substr(0, known.size()) == known; });
}

std::string field(std::string_view stanza, std::string_view name) {
  std::string value;
  bool inside = false;
  size_t begin = 0;
  while (begin < stanza.size()) {
    const size_t end = std::min(stanza.find('\n', begin), stanza.size());
    const std::string_view line = stanza.substr(begin, end - begin);
    const bool continued = !line.empty() && (line[0] == ' ' || line[0] == '\t');
    if (!continued) inside = lower(line.substr(0, name.size())) == lower(name);
    if (inside) {
      value += continued ? std::string(line) : std::string(line.substr(name.size()));
      value += '\n';
    }
    begin = end + 1;
  }
  return value;
}

}  // namespace

bool licence_is_permissive(std::string_view expression) {
  const std::string names = lower(trim(expression));
  if (names.empty()) return false;
  for (std::string_view alternative : split(names, " or ")) {
    bool all = true;
    for (std::string_view part : split(alternative, " and ")) {
      for (std::string_view name : split(part, ",")) {
        if (!name.empty()) all = all && name_is_permissive(name);
      }
    }
    if (all) return true;
  }
  return false;
}

bool head_names_copyleft(std::string_view text) {
  const std::string_view head = text.substr(0, kHeadBytes);
  return std::any_of(kCopyleft.begin(), kCopyleft.end(),
                     [&](std::string_view word) { return head.find(word) != head.npos; });
}

bool glob_match(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

CopyrightFile CopyrightFile::parse(std::string_view text) {
  CopyrightFile file;
  if (text.substr(0, 512).find("copyright-format") == std::string_view::npos) return file;
  std::string clean;
  for (char c : text) {
    if (c != '\r') clean += c;
  }
  size_t begin = 0;
  while (begin < clean.size()) {
    size_t end = clean.find("\n\n", begin);
    if (end == std::string::npos) end = clean.size();
    const std::string_view block = std::string_view(clean).substr(begin, end - begin);
    begin = end + 1;
    while (begin < clean.size() && clean[begin] == '\n') ++begin;
    const std::string files = field(block, "Files:");
    if (files.empty()) continue;
    Stanza stanza;
    size_t at = 0;
    while ((at = files.find_first_not_of(" \t\n,", at)) != std::string::npos) {
      const size_t stop = std::min(files.find_first_of(" \t\n,", at), files.size());
      stanza.patterns.push_back(files.substr(at, stop - at));
      at = stop;
    }
    const std::string licence = field(block, "License:");
    stanza.licence = trim(std::string_view(licence).substr(0, licence.find('\n')));
    stanza.permissive = licence_is_permissive(stanza.licence);
    file.stanzas_.push_back(std::move(stanza));
  }
  return file;
}

std::string CopyrightFile::default_licence() const {
  for (const Stanza& stanza : stanzas_) {
    if (std::count(stanza.patterns.begin(), stanza.patterns.end(), "*") > 0) return stanza.licence;
  }
  return {};
}

bool CopyrightFile::forbids(std::string_view installed_path) const {
  for (const Stanza& stanza : stanzas_) {
    if (stanza.permissive) continue;
    for (const std::string& pattern : stanza.patterns) {
      if (pattern == "*" || pattern.rfind("debian/", 0) == 0) continue;
      for (size_t at = 0; at != std::string_view::npos;) {
        if (glob_match(pattern, installed_path.substr(at))) return true;
        const size_t slash = installed_path.find('/', at);
        at = slash == std::string_view::npos ? slash : slash + 1;
      }
    }
  }
  return false;
}

}  // namespace fathom::train
