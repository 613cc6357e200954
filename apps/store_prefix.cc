#include "apps/store_prefix.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <optional>

#include "apps/progress.h"
#include "apps/signals.h"
#include "base/hash.h"
#include "cache/store/prefix_file.h"

namespace fathom {
namespace {

constexpr size_t kKeyDigitsMin = 16;
constexpr size_t kKeyDigitsMax = 64;

Result<std::optional<SecretKey>> key_in(const std::string& file) {
  if (file.empty()) return std::optional<SecretKey>();
  FATHOM_ASSIGN_OR_RETURN(const SecretKey key, read_key(file));
  return std::optional<SecretKey>(key);
}

Result<PrefixReport> moved(const PrefixFlags& flags, const std::string& job,
                           const std::string& folder, const std::string& key_file,
                           const PrefixProgress& progress) {
  FATHOM_ASSIGN_OR_RETURN(const std::optional<SecretKey> key, key_in(key_file));
  if (job == "export") {
    return export_prefix(folder, flags.block, flags.output,
                         {.clear = flags.clear, .key = key, .progress = progress});
  }
  FATHOM_ASSIGN_OR_RETURN(const std::optional<SecretKey> file_key, key_in(flags.file_key));
  return import_prefix(
      folder, flags.input,
      {.key = key, .file_key = file_key, .clear = flags.clear, .progress = progress});
}

}  // namespace

PrefixFlags::OnlyWith PrefixFlags::add_to(CLI::App& app) {
  const CLI::Option* with_block =
      app.add_option("--block", block,
                     "export: the prefix that ends with this block; 16 digits of its key, as ls "
                     "shows them, or more")
          ->type_name("KEY");
  const CLI::Option* with_output =
      app.add_option("-o,--out", output, "export: the file to write")->type_name("FILE");
  const CLI::Option* with_input =
      app.add_option("-f,--file", input, "import: the file to read")->type_name("FILE");
  const CLI::Option* with_key =
      app.add_option("--file-key", file_key,
                     "import: key that the file is sealed with, where it is not the store's")
          ->type_name("FILE");
  const CLI::Option* with_clear =
      app.add_flag("--clear", clear,
                   "export: unseal what the store keeps sealed, with its --store-key; import: "
                   "keep in clear what the file has sealed");
  return {{with_block, {"export"}},
          {with_output, {"export"}},
          {with_input, {"import"}},
          {with_key, {"import"}},
          {with_clear, {"export", "import"}}};
}

std::string PrefixFlags::misuse(const std::string& job, bool with_key) const {
  if (job == "import") return input.empty() ? "--file: wanted a value, found none" : "";
  if (job != "export") return "";
  if (block.empty()) return "--block: wanted a value, found none";
  if (output.empty()) return "--out: wanted a value, found none";
  const bool digits = block.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!digits || block.size() < kKeyDigitsMin || block.size() > kKeyDigitsMax) {
    return "--block: wanted 16 to 64 hexadecimal digits, found '" + one_line(block) + "'";
  }
  return with_key && !clear ? "--store-key: has no effect with export without --clear" : "";
}

int PrefixFlags::run(const std::string& job, const std::string& folder, const std::string& key_file,
                     const OutputFlags& show) const {
  ProgressLine line(show.show_progress(), job.c_str(), "bytes");
  const auto progress = [&](int64_t done, int64_t all) {
    line.update(done, all);
    return !StopSignals::requested();
  };
  const Result<PrefixReport> report = moved(*this, job, folder, key_file, progress);
  line.clear();
  if (!report) return fail(report.error());
  if (show.json) {
    boost::json::object result = {{"key", to_hex(report->last.digest)},
                                  {"blocks", report->n_blocks},
                                  {"payload_bytes", report->payload_bytes},
                                  {"file_bytes", report->file_bytes},
                                  {"sealed", report->sealed}};
    if (job == "import") result["added"] = report->n_added;
    print_json(result);
    return 0;
  }
  const std::string how = report->sealed ? "sealed" : "in clear";
  if (job == "export") {
    std::cout << one_line(output) << ": " << report->n_blocks << " blocks, "
              << report->payload_bytes << " bytes, " << how << "\n";
  } else {
    std::cout << one_line(folder) << ": " << report->n_added << " of " << report->n_blocks
              << " blocks added, the others were there; " << one_line(input) << " is " << how
              << "\n";
  }
  return 0;
}

}  // namespace fathom
