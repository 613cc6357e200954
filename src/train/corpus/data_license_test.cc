#include "train/corpus/data_license.h"

#include <gtest/gtest.h>

namespace fathom::train {
namespace {

TEST(Licence, AcceptsPermissiveNamesAndAlternatives) {
  for (const char* name : {"Expat", "BSD-3-clause", "Apache-2.0", "public-domain", "PSF-2.0", "Go",
                           "GPL-2+ or Expat", "MIT and BSD-2-Clause", "ISC, Zlib", "CC-BY-4.0"}) {
    EXPECT_TRUE(licence_is_permissive(name)) << name;
  }
}

TEST(Licence, RefusesCopyleftAndUnknownNames) {
  for (const char* name :
       {"GPL-2+", "LGPL-2.1", "Expat and GPL-3", "CC-BY-SA-4.0", "CC-BY-NC-3.0", "GFDL-1.3",
        "MPL-2.0", "EPL-1.0", "Artistic", "other-1", "", "Python-GPL"}) {
    EXPECT_FALSE(licence_is_permissive(name)) << name;
  }
}

TEST(Licence, ReadsTheHeadOfAFile) {
  EXPECT_TRUE(head_names_copyleft("# under the terms of the GNU General Public License\n"));
  EXPECT_TRUE(head_names_copyleft("// SPDX-License-Identifier: LGPL-2.1\n"));
  EXPECT_FALSE(head_names_copyleft("// Licensed under the Apache License, Version 2.0\n"));
  EXPECT_FALSE(head_names_copyleft(std::string(5000, 'x') + "GPL"));
}

TEST(Licence, ReadsCopyrightStanzas) {
  const CopyrightFile file = CopyrightFile::parse(
      "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
      "\nFiles: *\nCopyright: 2020 A\nLicense: BSD-3-clause\n text of it\n"
      "\nFiles: lib/extra/*.py\n tools/gen?.py\nCopyright: 2021 B\nLicense: GPL-2+\n"
      "\nFiles: debian/*\nCopyright: C\nLicense: GPL-2+\n"
      "\nFiles: vendor/*\nLicense: Expat or GPL-2+\n");
  EXPECT_TRUE(file.machine_readable());
  EXPECT_EQ(file.default_licence(), "BSD-3-clause");
  EXPECT_TRUE(file.forbids("usr/share/thing/lib/extra/sub/a.py"));
  EXPECT_TRUE(file.forbids("usr/share/thing/tools/gen1.py"));
  EXPECT_FALSE(file.forbids("usr/share/thing/tools/gen12.py"));
  EXPECT_FALSE(file.forbids("usr/share/thing/lib/a.py"));
  EXPECT_FALSE(file.forbids("usr/share/vendor/a.py"));
  EXPECT_FALSE(CopyrightFile::parse("Some free text about GPL").machine_readable());
}

TEST(Licence, MatchesGlobs) {
  EXPECT_TRUE(glob_match("*.html", "a/b/c.html"));
  EXPECT_TRUE(glob_match("*/net/*", "src/net/http/server.go"));
  EXPECT_FALSE(glob_match("*.html", "a.html.gz"));
  EXPECT_TRUE(glob_match("a?c*", "abc"));
  EXPECT_FALSE(glob_match("", "a"));
}

}  // namespace
}  // namespace fathom::train
