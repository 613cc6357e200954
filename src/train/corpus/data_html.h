#pragma once

// HTML to plain text: what a reader sees, without navigation, scripts and styles. Paragraphs are
// separated by one empty line, <pre> keeps its layout, list items begin with "- ", headings stand
// alone. Total: any bytes give text, never an error. Not a browser: no CSS, no tables layout (cells
// are separated by two spaces).

#include <string>
#include <string_view>

namespace fathom::train {

std::string html_to_text(std::string_view html);

}  // namespace fathom::train
