#include "serve/console.h"

#include <boost/json.hpp>

#include "serve/console_files.h"
#include "text/json_output.h"

namespace fathom {
namespace {

namespace json = boost::json;

constexpr std::string_view kPage = "/console";
constexpr std::string_view kFolder = "/console/";

// Nothing from elsewhere, nothing inside another page, no script but the files.
constexpr char kPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const EmbeddedFile* find_file(std::string_view path) {
  if (path == kPage) path = "/console/index.html";
  if (!path.starts_with(kFolder)) return nullptr;
  for (const EmbeddedFile& file : kEmbeddedFiles) {
    if (file.name == path.substr(kFolder.size())) return &file;
  }
  return nullptr;
}

json::object counts(const std::map<std::string, int64_t>& by_name) {
  json::object object;
  for (const auto& [name, n] : by_name) object[name] = n;
  return object;
}

json::object blocks_json(const EngineStatus& engine) {
  const int64_t n_pinned = engine.load.n_pinned_blocks;
  return {{"tokens", kBlockTokens},
          {"bytes", engine.block_bytes},
          {"total", engine.n_blocks},
          {"pinned", n_pinned},
          {"cached", engine.n_idle_blocks},
          {"free", engine.n_blocks - n_pinned - engine.n_idle_blocks},
          {"evicted", engine.prefix.evicted},
          {"cleared", engine.prefix.cleared}};
}

json::object phases_json(const EngineLoad& load) {
  return {{"waiting", load.n_waiting},     {"restoring", load.n_restoring},
          {"replaying", load.n_replaying}, {"prefilling", load.n_prefilling},
          {"decoding", load.n_decoding},   {"parked", load.n_parked}};
}

json::array tiers_json(const std::vector<TierReport>& tiers) {
  json::array list;
  for (const TierReport& tier : tiers) {
    const TierCounters& n = tier.counters;
    list.push_back(json::object{{"name", tier.name},
                                {"blocks", n.n_blocks},
                                {"bytes", n.held_bytes},
                                {"bytes_max", n.max_bytes},
                                {"payload_bytes", n.payload_bytes},
                                {"hits", n.hits},
                                {"missing", n.misses},
                                {"bad", n.bad},
                                {"kept", n.kept},
                                {"dropped", n.dropped_full + n.dropped_failed},
                                {"evicted_size", n.evicted_size},
                                {"evicted_age", n.evicted_age},
                                {"put_payload_bytes", n.put_payload_bytes},
                                {"written_bytes", n.written_bytes}});
  }
  return list;
}

// Null where there is no place for them.
json::value states_json(const EngineStatus& engine) {
  if (!engine.states) return nullptr;
  const StateCounters& of = *engine.states;
  const EngineCounters& n = engine.counters;
  return json::object{{"hits", of.hits},
                      {"missing", of.missing},
                      {"bad", of.bad},
                      {"failed", of.failed},
                      {"paused", of.paused},
                      {"kept", of.kept},
                      {"dropped", of.dropped_full + of.dropped_failed + of.dropped_paused},
                      {"put_bytes", of.put_bytes},
                      {"hit_bytes", of.hit_bytes},
                      {"timeouts", of.timeouts},
                      {"refusals", of.refusals},
                      {"protocol", of.protocol},
                      {"late", n.n_late_fetches},
                      {"wait_us", n.fetch_us}};
}

json::object steps_json(const EngineCounters& n) {
  return {{"count", n.n_steps},
          {"rows", n.n_rows},
          {"prompt_rows", n.prompt_rows},
          {"failed", n.n_failed_steps},
          {"busy_us", n.step_us}};
}

json::object tokens_json(const EngineCounters& n) {
  return {{"prompt", n.prompt_tokens},     {"cached", n.cached_tokens},
          {"replayed", n.replayed_tokens}, {"computed", n.computed_tokens},
          {"drawn", n.n_tokens},           {"answered", n.answered_tokens}};
}

}  // namespace

bool is_console_file(const std::string& path) { return find_file(path) != nullptr; }

HttpReply console_file_reply(const HttpRequest& request) {
  const EmbeddedFile* file = find_file(request.path);
  FATHOM_CHECK(file != nullptr);
  HttpReply reply = {.content_type = std::string(file->content_type)};
  // Asked for again each time, so that a page never runs with files of another version.
  reply.headers = {{"ETag", std::string(file->tag)},
                   {"Cache-Control", "no-cache"},
                   {"Content-Security-Policy", kPolicy},
                   {"X-Content-Type-Options", "nosniff"},
                   {"Referrer-Policy", "no-referrer"}};
  if (request.if_none_match.find(file->tag) != std::string::npos) {
    reply.status = 304;
  } else {
    reply.body = std::string(file->bytes);
  }
  return reply;
}

std::string console_state(const EngineStatus& engine, const ServerMetrics& metrics,
                          const ServerView& server) {
  const EngineCounters& n = engine.counters;
  const EngineLoad& load = engine.load;
  return json_output(json::object{
      {"server",
       {{"model", server.model},
        {"version", server.version},
        {"connections", server.n_connections}}},
      {"ready", !server.draining},
      {"uptime_s", server.uptime_s},
      {"waiting_s", static_cast<double>(load.wait_us_max) * 1e-6},
      {"blocks", blocks_json(engine)},
      {"windows",
       {{"bytes", engine.slot_bytes}, {"total", engine.n_slots}, {"used", load.n_slots}}},
      {"others",
       {{"tail_bytes", load.tail_bytes},
        {"parked_bytes", load.parked_bytes},
        {"sessions", load.n_sessions},
        {"session_bytes", load.session_bytes},
        {"session_bytes_max", engine.session_bytes_max}}},
      {"phases", phases_json(load)},
      {"queue",
       {{"requests", server.n_live},
        {"requests_max", server.limits.max_live},
        {"outputs", server.n_outputs},
        {"outputs_max", server.limits.max_outputs}}},
      {"hits",
       {{"none", n.n_no_hit},
        {"session", n.n_session_hits},
        {"exact", n.n_exact_hits},
        {"bounded", n.n_bounded_hits}}},
      {"tokens", tokens_json(n)},
      {"tiers", tiers_json(engine.tiers)},
      {"restores",
       {{"count", n.n_restores},
        {"cut", n.n_cut_restores},
        {"late", n.n_late_restores},
        {"tokens", n.restored_tokens},
        {"wait_us", n.restore_us}}},
      {"shared_states", states_json(engine)},
      {"steps", steps_json(n)},
      {"preempted", {{"parked", n.n_parked}, {"dropped", n.n_dropped}}},
      {"requests",
       {{"ended", counts(metrics.ends())},
        {"refused", counts(metrics.refusals())},
        {"first_tokens", metrics.first_token_s().count()},
        {"first_token_s", metrics.first_token_s().sum()}}}});
}

}  // namespace fathom
