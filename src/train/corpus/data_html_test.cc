#include "train/corpus/data_html.h"

#include <gtest/gtest.h>

namespace fathom::train {
namespace {

TEST(Html, KeepsWhatAReaderSees) {
  EXPECT_EQ(html_to_text("<html><head><title>t</title></head><body><nav>Home</nav>"
                         "<h1>Title<a class=\"headerlink\" href=\"#x\">\xC2\xB6</a></h1>\n"
                         "<p>One  <b>bold</b>\nline &amp; two &lt;tags&gt;.</p><p>Next</p>"
                         "<script>var x = '<p>no</p>';</script></body></html>"),
            "Title\n\nOne bold line & two <tags>.\n\nNext\n");
}

TEST(Html, KeepsTheLayoutOfCode) {
  EXPECT_EQ(html_to_text("<p>See:</p><pre>int  x;\n  <span>y</span> &gt; 1</pre><p>end</p>"),
            "See:\n\nint  x;\n  y > 1\n\nend\n");
}

TEST(Html, WritesListsAndCells) {
  EXPECT_EQ(html_to_text("<ul><li>one</li><li>two</li></ul><table><tr><td>a</td><td>b</td></tr>"
                         "<tr><td>c</td></tr></table>"),
            "- one\n- two\n\na  b\nc\n");
}

TEST(Html, DecodesEntities) {
  EXPECT_EQ(html_to_text("a&nbsp;b &#65;&#x42; &eacute; &mdash; &unknown; & x &#xD800; 1 < 2"),
            "a b AB \xC3\xA9 \xE2\x80\x94 &unknown; & x &#xD800; 1 < 2\n");
}

TEST(Html, IsTotalOnBrokenInput) {
  for (const char* text : {"<", "<p", "</", "<!--", "<script>", "&", "&#", "&#;",
                           "<a class=\"headerlink", "<pre>", "</pre></pre>x", "\xFF\xC2"}) {
    html_to_text(text);
  }
  EXPECT_EQ(html_to_text(""), "");
  EXPECT_EQ(html_to_text("<!-- a --><p></p>"), "");
}

}  // namespace
}  // namespace fathom::train
