#pragma once

// Which licences the training text may have, decided by program: names of the machine-readable
// debian/copyright format, and words in the head of a file. Permissive means: no copyleft, no
// share-alike, no restriction of use. When in doubt the text is left out.

#include <string>
#include <string_view>
#include <vector>

namespace fathom::train {

// True for an expression of licence short names ("Expat or GPL-2+", "BSD-3-clause and ISC") that
// can be met with permissive licences alone: one alternative of "or" suffices, all parts of "and"
// count. An unknown name is not permissive.
bool licence_is_permissive(std::string_view expression);

// True when the first 4,096 bytes name a copyleft or share-alike licence.
bool head_names_copyleft(std::string_view text);

// A debian/copyright file. A file without the machine-readable format has no stanzas.
class CopyrightFile {
 public:
  static CopyrightFile parse(std::string_view text);

  bool machine_readable() const { return !stanzas_.empty(); }

  // The licence of "Files: *", empty when there is none.
  std::string default_licence() const;

  // True when a stanza that is not permissive may cover the file: one of its patterns matches the
  // path or a suffix of it (the source path is a suffix of the installed one, give or take a
  // prefix). Stanzas for debian/ and for everything ("*") do not count.
  bool forbids(std::string_view installed_path) const;

 private:
  struct Stanza {
    std::vector<std::string> patterns;
    std::string licence;
    bool permissive = false;
  };
  std::vector<Stanza> stanzas_;
};

// Shell-style match: * for any run (also of slashes), ? for one character.
bool glob_match(std::string_view pattern, std::string_view text);

}  // namespace fathom::train
