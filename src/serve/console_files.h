#pragma once

// The files of src/serve/console, which cmake/FathomEmbed.cmake made part of the program.

#include <span>
#include <string_view>

namespace fathom {

struct EmbeddedFile {
  std::string_view name;
  std::string_view content_type;
  std::string_view tag;  // of an ETag header, quotes included; another one for other bytes
  std::string_view bytes;
};

extern const std::span<const EmbeddedFile> kEmbeddedFiles;

}  // namespace fathom
